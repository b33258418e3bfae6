"""`/api/files` of the own API: files are sent, translated as jobs, and fetched."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from cotext.serving.dialects import plain_refusal
from cotext.serving.errors import RequestError
from cotext.serving.event_stream import Event, EventStream
from cotext.serving.jobs import JobOptions, JobStatus
from cotext.serving.jobs.names import attachment
from cotext.serving.limits import Admission
from cotext.serving.own_api.bodies import asking
from cotext.serving.requests import service_of
from cotext.serving.uploads import received_file

refusal = plain_refusal
PIECE_BYTES: Final = 256 * 1024


def routes() -> list[BaseRoute]:
    """The routes of files."""
    return [
        Route("/api/files", send, methods=["POST"]),
        Route("/api/files", all_of, methods=["GET"]),
        Route("/api/files/{id}", one, methods=["GET"]),
        Route("/api/files/{id}", forget, methods=["DELETE"]),
        Route("/api/files/{id}/events", events, methods=["GET"]),
        Route("/api/files/{id}/result", result, methods=["GET"]),
    ]


async def send(request: Request) -> Response:
    """Take a file."""
    client, service = asking(request), service_of(request)
    settings = service.settings
    async with received_file(
        request, service.jobs, settings.max_file_bytes, settings.max_text_bytes, lambda upload, size: client
    ) as upload:
        name = upload.value("system")
        system = service.systems.named(name) if name else service.systems.choose(None, None)
        options = JobOptions(_glossary(upload.value("glossary")), fast=upload.value("fast") == "true")
        submit = partial(service.jobs.submit, client, system, upload.path, upload.file_name, options)
        ticket = await to_thread.run_sync(submit)
    return JSONResponse({"id": ticket.id}, 201, {"Location": f"/api/files/{ticket.id}"})


async def all_of(request: Request) -> Response:
    """The files of a client, the newest first."""
    client = asking(request)
    found = service_of(request).jobs.of_client(client)
    return JSONResponse({"files": [asdict(status) for status in found]})


async def one(request: Request) -> Response:
    """How far a file is."""
    client = asking(request)
    return JSONResponse(asdict(service_of(request).jobs.status(request.path_params["id"], client)))


async def forget(request: Request) -> Response:
    """Cancel the translation of a file, and forget it."""
    client = asking(request)
    service_of(request).jobs.delete(request.path_params["id"], client)
    return Response(status_code=204)


async def events(request: Request) -> Response:
    """How far a file is, whenever that changes, until it is done."""
    client, jobs = asking(request), service_of(request).jobs
    id = request.path_params["id"]
    jobs.status(id, client)  # what is no file of the client's is told by the status of the answer
    admission: Admission = request.app.state.admission
    # A server that stops does not wait for those who watch: they ask again.
    statuses = jobs.watch(id, client, is_over=lambda: admission.stopping)
    return EventStream(_events(statuses))


async def _events(statuses: AsyncGenerator[JobStatus]) -> AsyncGenerator[Event]:
    async for status in statuses:
        kind = "progress" if not status.finished else "done" if status.state == "done" else "error"
        yield Event(kind, asdict(status))


async def result(request: Request) -> Response:
    """The translated file, to be saved and not to be shown."""
    client = asking(request)
    return file_answer(*service_of(request).jobs.result(request.path_params["id"], client))


def file_answer(path: Path, name: str, on_end: Callable[[], None] = lambda: None) -> Response:
    """A file under a name, to be saved; `on_end` is called before its last piece is sent.

    Raises:
        RequestError: 404, it has been deleted meanwhile.
    """
    try:
        file = path.open("rb")
    except OSError:
        raise RequestError(404, "this file has been deleted") from None
    headers = {
        "Content-Disposition": attachment(name),
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_pieces(file, on_end), headers=headers, media_type="application/octet-stream")


def _pieces(file: BinaryIO, on_end: Callable[[], None]) -> Iterator[bytes]:
    with file:
        piece = file.read(PIECE_BYTES)
        while following := file.read(PIECE_BYTES):
            yield piece
            piece = following
        on_end()
        yield piece


def _glossary(text: str) -> tuple[tuple[str, str], ...]:
    """Terms and their translations, of JSON: a list of pairs.

    Raises:
        RequestError: 400, something else.
    """
    if not text.strip():
        return ()
    try:
        pairs: Any = json.loads(text)
        entries = tuple((source, target) for source, target in pairs)
    except (ValueError, TypeError, RecursionError):
        entries = ((None, None),)
    if not all(isinstance(part, str) for entry in entries for part in entry):
        raise RequestError(400, 'a glossary is a JSON list of pairs: [["term", "translation"], ...]')
    return entries
