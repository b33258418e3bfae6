"""`/api/files` of the own API: files are uploaded, translated as jobs, and downloaded."""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from anyio import to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from cotext.serving.errors import RequestError
from cotext.serving.jobs import JobOptions, Jobs
from cotext.serving.jobs.folder import RETRY_SECONDS
from cotext.serving.jobs.names import attachment
from cotext.serving.record import Client
from cotext.serving.requests import asking, service_of

# --- Uploads as multipart/form-data (RFC 7578), written to the disk of the jobs while they arrive.
#
# Starlette's form parser writes up to a thousand files of any size to the temporary folder before a handler
# is called. This one checks the limits while a file arrives.

FILE_FIELD: Final = "file"
MAX_PARTS: Final = 64
WRITTEN_BYTES: Final = 256 * 1024  # written at a time


@dataclass(slots=True)
class Upload:
    """An uploaded file: its path until it is submitted, its name on the client, other form fields."""

    path: Path
    file_name: str = ""
    fields: dict[str, list[str]] = field(default_factory=dict)

    def value(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return self.fields.get(name, [default])[-1]


@asynccontextmanager
async def received_file(request: Request, client: Client) -> AsyncIterator[Upload]:
    """Receive a form with a file in the field `file`; the file is deleted afterwards unless submitted.

    `client`: whose space is used, by the bytes that have arrived.

    Raises:
        RequestError: 400, the form is invalid or incomplete, or does not have exactly one file; 413, the file
            or its fields are too large; 429 and 503, there is no space.
    """
    jobs, settings = service_of(request).jobs, service_of(request).settings
    max_file_bytes, max_field_bytes = settings.max_file_bytes, settings.max_text_bytes
    boundary = _boundary(request)
    declared = request.headers.get("content-length", "")
    announced = int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else 0
    if announced > max_file_bytes + max_field_bytes:
        raise _too_long(max_file_bytes)
    with jobs.upload() as path:
        form = _Form(Upload(path), boundary, max_file_bytes, max_field_bytes)
        await to_thread.run_sync(jobs.announced, client, min(announced, max_file_bytes))
        await _read(request, form, jobs, client)
        yield form.received()


async def _read(request: Request, form: "_Form", jobs: Jobs, client: Client) -> None:
    path = form.upload.path

    def write() -> None:
        jobs.arrived(path, client, form.file_bytes)
        file.write(form.taken())

    try:
        with path.open("xb") as file:
            async for chunk in request.stream():
                form.write(chunk)
                if len(form.waiting) >= WRITTEN_BYTES:
                    await to_thread.run_sync(write)
            form.finish()
            await to_thread.run_sync(write)
    except (FormParserError, ValueError, KeyError):
        raise RequestError(400, "the form is damaged; send it as multipart/form-data") from None
    except ClientDisconnect:
        raise RequestError(499, "the client has disconnected") from None
    except OSError:
        raise RequestError(
            503, "the server has too little disk space for this file; try again later", RETRY_SECONDS
        ) from None


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise RequestError(400, "send a file as multipart/form-data, in the field `file`")
    return options[b"boundary"]


def _too_long(most: int) -> RequestError:
    return RequestError(413, f"a file may have {most:,} bytes at most; split it")


class _Form:
    """The parts of a form while they arrive: file content is buffered until written, fields are kept."""

    def __init__(self, upload: Upload, boundary: bytes, max_file_bytes: int, max_field_bytes: int) -> None:
        self.upload, self._most, self._most_of_fields = upload, max_file_bytes, max_field_bytes
        self.waiting = bytearray()
        self.file_bytes = self._field_bytes = self._parts = self._files = 0
        self._header, self._value = b"", b""
        self._disposition = b""
        self._name: str | None = None  # name of the current field; None for the file
        self._content = bytearray()  # content of the current field
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_header,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_part_end": self._end,
                "on_end": self._on_end,
            },
        )

    def write(self, chunk: bytes) -> None:
        self._parser.write(chunk)

    def taken(self) -> bytes:
        """Return the waiting content of the file, and clear it."""
        content = bytes(self.waiting)
        self.waiting.clear()
        return content

    def finish(self) -> None:
        """Raise RequestError if the form has no end."""
        self._parser.finalize()
        if not self._ended:
            raise RequestError(400, "the form is incomplete: its end is missing; send it again")

    def received(self) -> Upload:
        """Return the complete file."""
        if not self._files:
            raise RequestError(400, "the form has no file in its field `file`")
        return self.upload

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise RequestError(413, f"a form with a file may have {MAX_PARTS} fields at most")
        self._disposition, self._content = b"", bytearray()

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = _text(options[b"name"])
        self._name = None if name == FILE_FIELD and b"filename" in options else name
        if self._name is None:
            self._files += 1
            if self._files > 1:
                raise RequestError(400, "the form has several files; send one at a time")
            self.upload.file_name = _text(options[b"filename"])

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._name is None:
            self.file_bytes += end - start
            if self.file_bytes > self._most:
                raise _too_long(self._most)
            self.waiting += data[start:end]
            return
        self._field_bytes += end - start
        if self._field_bytes > self._most_of_fields:
            raise RequestError(413, f"the fields of a form may have {self._most_of_fields:,} bytes at most")
        self._content += data[start:end]

    def _end(self) -> None:
        if self._name is not None:
            self.upload.fields.setdefault(self._name, []).append(_text(self._content))

    def _on_end(self) -> None:
        self._ended = True


def _text(content: bytes | bytearray) -> str:
    """Decode UTF-8 (RFC 7578, 5.1.2), or else Latin-1, which old browsers use."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


PIECE_BYTES: Final = 256 * 1024


def routes() -> list[BaseRoute]:
    """Return the routes of files."""
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
    async with received_file(request, client) as upload:
        name = upload.value("system")
        system = service.systems.named(name) if name else service.systems.translating(None, None)[0]
        options = JobOptions(_glossary(upload.value("glossary")))
        submit = partial(service.jobs.submit, client, system, upload.path, upload.file_name, options)
        ticket = await to_thread.run_sync(submit)
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
