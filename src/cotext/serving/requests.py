"""What the dialects read of a request in the same way: fields as JSON or as a form, and who asks."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from cotext.serving.errors import RequestError
from cotext.serving.service import Client, Service

T = TypeVar("T")


def service_of(request: Request) -> Service:
    """The service of the application that was asked."""
    service: Service = request.app.state.service
    return service


def client_of(request: Request, key: str | None) -> Client:
    """Who asks with a key, wherever the dialect has it.

    Raises:
        RequestError: 403, a key is needed, or this is none.
    """
    return Client()


async def fields(request: Request) -> dict[str, Any]:
    """The fields of a request, of a JSON object or of a form; of a form, every field has a list of values.

    Raises:
        RequestError: 400, neither; 413, too long.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        form = await request.form()
        return {name: form.getlist(name) for name in form}
    try:
        content = json.loads(await request.body() or b"{}")
    except ValueError:
        raise RequestError(400, "the body is no JSON and no form") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is no JSON object")
    return content


async def unless_gone(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """The answer, whose work stops when the client hangs up."""
    task = asyncio.ensure_future(answer)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watcher = asyncio.ensure_future(gone())
    try:
        return await task
    except asyncio.CancelledError:
        raise RequestError(499, "the client is gone") from None
    finally:
        watcher.cancel()
