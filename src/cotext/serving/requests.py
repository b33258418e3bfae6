"""What the dialects read of a request in the same way: fields as JSON or as a form, and who asks."""

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json
from cotext.serving.errors import RequestError
from cotext.serving.keys import Admission
from cotext.serving.record import record_of
from cotext.serving.service import Client, Service
from cotext.serving.settings import ServerSettings

T = TypeVar("T")

MAX_JSON_DEPTH: Final = 16
MAX_FILES: Final = 4
IN_LOOP_BYTES: Final = 16 * 1024  # of a body that is parsed in the event loop; others would hold it up
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_UTF8: Final = ("utf-8", "utf8", "us-ascii")
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


def service_of(request: Request) -> Service:
    """The service of the application that was asked."""
    service: Service = request.app.state.service
    return service


def client_of(request: Request, key: str | None) -> Client:
    """Who asks with a key, wherever the dialect has it; one place among the requests is taken until it ends.

    Raises:
        RequestError: 403, a key is needed, or this is none; 429 and 503, too many requests.
    """
    admission: Admission = request.app.state.admission
    return admission.admit(record_of(request.scope), key)


def bearer_key(request: Request) -> str | None:
    """The key of `Authorization: Bearer KEY` (RFC 6750, 2.1), if there is one."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


async def fields(request: Request) -> dict[str, Any]:
    """The fields of a request, of a JSON object or of a form; of a form, every field has a list of values.

    What a multipart form holds that is not UTF-8 is read as Latin-1. Files in it are closed when the request
    is over.

    Raises:
        RequestError: 400, neither, or damaged; 413, too long or too many; 415, another kind of body.
    """
    kind, options = _content_type(request)
    if kind == "multipart/form-data":
        return await _parts(request)
    content = await request.body()
    max_fields = service_of(request).settings.max_fields
    if len(content) > IN_LOOP_BYTES:
        return await to_thread.run_sync(_parsed, content, kind, options, max_fields)
    return _parsed(content, kind, options, max_fields)


class Fields:
    """The fields of a request; one that a form or an address has several times is a list, as in JSON.

    Every method raises RequestError 400 where a field is not of the type that it is asked for.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = {name: value for name, value in found.items() if value is not None}

    @classmethod
    def of_form(cls, lists: Mapping[str, list[Any]]) -> "Fields":
        """The fields of a form, which has a list of values for each name."""
        return cls({name: values[0] if len(values) == 1 else values for name, values in lists.items()})

    def with_others(self, found: Mapping[str, Any]) -> "Fields":
        """These fields and others, which come before them."""
        return Fields({**self._found, **found})

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def value(self, name: str) -> Any:
        """A field as it came; None where it is not there."""
        return self._found.get(name)

    def text(self, name: str, default: str = "") -> str:
        """A field that is a text."""
        found = default if (value := self.value(name)) is None else value
        if not isinstance(found, str):
            raise RequestError(400, f"Parameter '{name}' has to be a text")
        return found

    def needed(self, name: str) -> str:
        """A field that is a text, without which there is no answer."""
        found = self.text(name)
        if not found.strip():
            raise RequestError(400, f"Parameter '{name}' not specified.")
        return found

    def several(self, name: str) -> list[Any]:
        """A field that is a list; anything else is a list of it alone."""
        found = self._found.get(name, [])
        return found if isinstance(found, list) else [found]

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts; a text alone is one of one."""
        found = self.several(name)
        if not all(isinstance(each, str) for each in found):
            raise RequestError(400, f"Parameter '{name}' has to be a list of texts")
        return found

    def names(self, name: str) -> list[str]:
        """A list of names, which a form has with commas between them."""
        return [part.strip() for each in self.texts(name) for part in each.split(",") if part.strip()]

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that is true or false; 1 or 0 in a form."""
        found = self.value(name)
        if found is None:
            return default
        if found in (True, False):
            return bool(found)
        if isinstance(found, str) and found.lower() in ("0", "1", "false", "true"):
            return found.lower() in ("1", "true")
        raise RequestError(400, f"Parameter '{name}' has to be true or false")

    def one_of(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """A field that has one of some values, in capitals or not."""
        found = self.text(name, default).lower()
        if found not in allowed and found != default:
            raise RequestError(
                400, f"Value for '{name}' not supported: {shown(found)}; choose {', '.join(allowed)}"
            )
        return found


async def read_fields(request: Request) -> Fields:
    """The fields of a body, JSON or a form, and those of the address that the body has not; as `fields`."""
    found = await fields(request)
    address = {name: request.query_params.getlist(name) for name in request.query_params}
    if _content_type(request)[0] in FORMS:
        return Fields.of_form(address | found)
    return Fields.of_form(address).with_others(found)


def _parsed(content: bytes, kind: str, options: dict[str, str], max_fields: int) -> dict[str, Any]:
    """The fields of a body that is not a multipart form; raises RequestError as `fields`."""
    if not content.strip():
        return {}
    if options.get("charset", "utf-8").lower() not in _UTF8:
        raise RequestError(415, "the body is in another encoding than UTF-8")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not UTF-8") from None
    if kind in FORMS:
        return _form(text, max_fields)
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise RequestError(415, "send application/json, or a form")
    return _json(text)


def _content_type(request: Request) -> tuple[str, dict[str, str]]:
    kind, *options = request.headers.get("content-type", "").split(";")
    pairs = (option.partition("=") for option in options)
    return kind.strip().lower(), {name.strip().lower(): value.strip(" \"'") for name, _, value in pairs}


def _json(text: str) -> dict[str, Any]:
    try:
        content = parse_json(text, "the body", unique=True)
    except CotextError as error:
        raise RequestError(400, str(error)) from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is no JSON object")
    level: list[Any] = [content]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise RequestError(400, f"the body is nested deeper than {MAX_JSON_DEPTH} levels")
    return content


def _form(text: str, max_fields: int) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except UnicodeDecodeError:
        raise RequestError(400, "the form is not UTF-8") from None
    except ValueError:
        raise RequestError(413, f"more than {max_fields:,} fields in a form") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


async def _parts(request: Request) -> dict[str, Any]:
    if _content_type(request)[1].get("charset", "utf-8").lower() not in _UTF8:
        raise RequestError(415, "the form is in another encoding than UTF-8")
    settings = service_of(request).settings
    try:
        form = await request.form(
            max_files=MAX_FILES, max_fields=settings.max_fields, max_part_size=settings.max_body_bytes
        )
    except (UnicodeError, ValueError):
        raise RequestError(400, "the form is damaged") from None
    record_of(request.scope).form = form
    found = {name: form.getlist(name) for name in form}
    for name, values in found.items():
        for text in (name, *(value for value in values if isinstance(value, str))):
            if "\0" in name or _HALF_CHARACTER.search(text):
                raise RequestError(400, "the form holds half characters")
    return found


def check_size(settings: ServerSettings, texts: Iterable[str]) -> None:
    """Refuse more text than a request may have.

    Raises:
        RequestError: 413, there is more.
    """
    size = sum(len(text.encode()) for text in texts)
    if size > settings.max_text_bytes:
        most = f"{settings.max_text_bytes:,} at most"
        raise RequestError(413, f"{size:,} bytes of text, and {most}; send less at a time, or a file")


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


# --- What the routes of the own API read of a request: its body, and who asks.


class Body(BaseModel):
    """A request: these fields and no others."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


def asking(request: Request) -> Client:
    """Who asks, by `Authorization: Bearer KEY`.

    Raises:
        RequestError: 403, a key is needed, or this is none.
    """
    return client_of(request, bearer_key(request))


async def body_of(request: Request, kind: type[B]) -> B:
    """The fields of a request.

    Raises:
        RequestError: 400, they are not such, with the first that is wrong.
    """
    try:
        return kind.model_validate(await fields(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(400, f"{where[:100]}: {first['msg'].lower()}") from None
