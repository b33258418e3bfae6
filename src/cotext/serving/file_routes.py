"""`/api/files` of the own API: files are uploaded, translated as jobs, and downloaded."""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Final

from anyio import to_thread
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cotext.serving.errors import RequestError
from cotext.serving.jobs.names import attachment
from cotext.serving.jobs.storage import disk_full
from cotext.serving.jobs.table import JobOptions
from cotext.serving.requests import (
    FILE_FIELD,
    Fields,
    Form,
    asking,
    content_length,
    content_type,
    service_of,
    single,
)

MAX_FIELDS: Final = 64  # of a form with a file
PIECE_BYTES: Final = 256 * 1024


@asynccontextmanager
async def received_file(request: Request, client: str) -> AsyncIterator[tuple[UploadFile, Fields, str]]:
    """Receive a form with a file in the field `file`; return the file, all fields, and a reservation.

    The file arrives in the folder of jobs. Meanwhile its size is reserved in the space of `client`: the
    declared size, or else the largest.

    Raises:
        RequestError: 400, the form is invalid, or does not have exactly one file. 413, the form is too large.
            429 and 503, there is no space.
    """
    jobs, settings = service_of(request).jobs, service_of(request).settings
    if content_type(request) != "multipart/form-data":
        raise RequestError(400, "send a file as multipart/form-data, in the field `file`")
    most = settings.max_file_bytes
    reservation = await to_thread.run_sync(
        jobs.reserve, client, min(content_length(request.headers) or most, most)
    )
    form = Form(request, MAX_FIELDS, settings.max_text_bytes, jobs.table.root)
    try:
        try:
            fields = Fields(single(await form.read()))
        except OSError:
            raise disk_full() from None
        if form.file is None:
            raise RequestError(400, f"the form has no file in its field `{FILE_FIELD}`")
        yield form.file, fields, reservation
    finally:
        if form.file is not None:
            form.file.file.close()
        jobs.release(reservation)


def routes() -> list[Route]:
    return [
        Route("/api/files", send, methods=["POST"]),
        Route("/api/files", all_of, methods=["GET"]),
        Route("/api/files/{id}", one, methods=["GET"]),
        Route("/api/files/{id}", forget, methods=["DELETE"]),
        Route("/api/files/{id}/result", result, methods=["GET"]),
    ]


async def send(request: Request) -> Response:
    """Receive a file."""
    client, service = asking(request), service_of(request)
    async with received_file(request, client) as (file, fields, reservation):
        name = fields.text("system")
        system = service.systems.named(name) if name else service.systems.translating(None, None)[0]
        options = JobOptions(_glossary(fields.text("glossary")))
        ticket = await to_thread.run_sync(
            service.jobs.submit, client, system, file.file, file.filename or "", options, reservation
        )
    return JSONResponse({"id": ticket.id}, 201, {"Location": f"/api/files/{ticket.id}"})


async def all_of(request: Request) -> Response:
    """Return the status of all files of a client, the newest first."""
    client = asking(request)
    statuses = service_of(request).jobs.of_client(client)
    return JSONResponse({"files": [asdict(status) for status in statuses]})


async def one(request: Request) -> Response:
    """Return the status of a file."""
    client = asking(request)
    return JSONResponse(asdict(service_of(request).jobs.status(request.path_params["id"], client)))


async def forget(request: Request) -> Response:
    """Cancel the translation of a file, and delete it."""
    client = asking(request)
    service_of(request).jobs.delete(request.path_params["id"], client)
    return Response(status_code=204)


async def result(request: Request) -> Response:
    """Return the translated file, as a download."""
    client = asking(request)
    return file_answer(*service_of(request).jobs.result(request.path_params["id"], client))


def file_answer(path: Path, name: str, on_end: Callable[[], None] = lambda: None) -> Response:
    """Return a file as a download; `on_end` is called before its last piece is sent.

    Raises:
        RequestError: 404, the file has been deleted.
    """
    try:
        file = path.open("rb")
    except OSError:
        raise RequestError(404, "this file has been deleted") from None
    size = os.fstat(file.fileno()).st_size
    headers = {"Content-Disposition": attachment(name), "Content-Length": str(size)}
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
    """Read a glossary from a JSON list of pairs; raise RequestError 400 if it is invalid."""
    if not text.strip():
        return ()
    try:
        pairs: Any = json.loads(text)
        entries = tuple((source, target) for source, target in pairs)
    except (ValueError, TypeError, RecursionError):
        entries = ((None, None),)
    if not all(isinstance(part, str) for entry in entries for part in entry):
        raise RequestError(400, 'give a glossary as a JSON list of pairs: [["term", "translation"], ...]')
    return entries
