"""Cotext's own API under `/api` (JSON and server-sent events), the web page, and health checks."""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, Final

from anyio import to_thread
from pydantic import StrictStr, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cotext.data.documents import name_of
from cotext.files.bilingual_page import least_sure
from cotext.files.table import file_suffixes
from cotext.serving import answers
from cotext.serving.keys import Admission
from cotext.serving.own_api.explanations import Explanations, Question, unexplained
from cotext.serving.record import CURRENT, RequestError, log_error, stopping
from cotext.serving.requests import (
    FILE_FIELD,
    Body,
    Fields,
    Form,
    asking,
    body_of,
    check_size,
    content_length,
    content_type,
    service_of,
    single,
    unless_gone,
)
from cotext.serving.service import Service, TextRequest
from cotext.serving.sharing import CancelledError, Work
from cotext.serving.state import JobOptions, attachment, disk_full, distinct, terminology_of
from cotext.serving.systems import System
from cotext.serving.translation import PlainText

# --- Server-sent events (`text/event-stream`).

KEEP_ALIVE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its kind, and content for JSON."""

    kind: str
    content: Any

    def encoded(self) -> bytes:
        """Return the bytes of the event. JSON in ASCII has no line break, so one `data` line is enough."""
        return f"event: {self.kind}\ndata: {json.dumps(self.content)}\n\n".encode()


Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Response that sends events; if the client disconnects, the generator is closed.

    `first`: an event that was already taken from the generator to check the request. An event is requested
    when the previous event has been sent. After KEEP_ALIVE_SECONDS without an event, a comment keeps the
    connection open. An exception of the generator is sent as the event `error`.
    """

    def __init__(self, events: Events, first: Event | None = None) -> None:
        # Proxies such as nginx must not buffer the response.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        self._events, self._first = events, first
        self._framed = self._frames()
        super().__init__(self._framed, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._framed.aclose()
            await self._events.aclose()

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        if self._first is not None:
            yield self._first.encoded()
        while True:
            awaited = asyncio.ensure_future(anext(self._events, None))
            try:
                while not (await asyncio.wait({awaited}, timeout=KEEP_ALIVE_SECONDS))[0]:
                    yield b": still at it\n\n"
                event = awaited.result()
            except Exception as error:
                event = _error(error)
            finally:
                awaited.cancel()
                await asyncio.gather(awaited, return_exceptions=True)
            if event is None:
                return
            yield event.encoded()


def _error(error: Exception) -> Event:
    if isinstance(error, CancelledError):
        error = stopping()
    message = error.message if isinstance(error, RequestError) else log_error(CURRENT.get(), error)
    return Event("error", {"message": message})


# --- Routes.


def routes() -> list[Route]:
    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/api/systems", systems, methods=["GET"]),
        Route("/api/translate", translate, methods=["POST"]),
        Route("/api/explain", partial(explain, Explanations()), methods=["POST"]),
        Route("/api/files", send_file, methods=["POST"]),
        Route("/api/files", list_files, methods=["GET"]),
        Route("/api/files/{id}", get_file_status, methods=["GET"]),
        Route("/api/files/{id}", delete_file, methods=["DELETE"]),
        Route("/api/files/{id}/result", fetch_file, methods=["GET"]),
        Route("/", page, methods=["GET"]),
        Route("/page/{file}", page, methods=["GET"]),
    ]


async def health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Return 503 while the server stops or is full."""
    admission: Admission = request.app.state.admission
    if admission.stopping:
        raise RequestError(503, "stopping")
    if admission.full:
        raise RequestError(503, "full", 1)
    return JSONResponse({"status": "ready"})


async def systems(request: Request) -> Response:
    """Return the systems with their features, and the limits of the server."""
    asking(request)
    service = service_of(request)
    settings = service.settings
    return JSONResponse(
        {
            "systems": [_described(system) for system in service.systems],
            "limits": {
                "text_bytes": settings.max_text_bytes,
                "file_bytes": settings.max_file_bytes,
                "sentences": settings.max_sentences,
            },
            "file_suffixes": file_suffixes(),
            "key_required": settings.keys is not None,
        }
    )


def _described(system: System) -> dict[str, Any]:
    translator, languages = system.opened.translator, system.languages
    view = translator.config.view
    kind = view.kind if view.kind in ("sentence", "window") else "document"
    return {
        "name": system.name,
        "source": {"code": languages.source, "name": name_of(languages.source)},
        "target": {"code": languages.target, "name": name_of(languages.target)},
        "view": kind,
        "context_sentences": view.before + view.after if kind == "window" else None,
        "takes_terms": translator.supports_terms,
        "explains": not unexplained(system),
        "controlled": system.opened.controlled,
        "signature": system.opened.signature,
    }


async def translate(request: Request) -> Response:
    """Translate a document; return an event for each sentence, or only the last event as JSON."""
    client = asking(request)
    body = await body_of(request, TranslateBody)
    service = service_of(request)
    system = service.systems.named(body.system)
    check_size(service.settings, [body.text])
    events = events_of(service, system, body, client)
    accepted = request.headers.get("accept", "")
    if "application/json" in accepted and "text/event-stream" not in accepted:
        return JSONResponse(await unless_gone(request, _last_of(events)))
    # Errors before the first event have an HTTP status.
    return EventStream(events, await unless_gone(request, anext(events)))


async def _last_of(events: Events) -> Any:
    return [event.content async for event in events][-1]


async def explain(explanations: Explanations, request: Request) -> Response:
    """Return which context sentences decided a word."""
    client = asking(request)
    question = await body_of(request, Question)
    service = service_of(request)
    system = service.systems.named(question.system)
    check_size(service.settings, [*question.sources, *question.targets])
    service.check_sentences(len(question.sources))
    return JSONResponse(await unless_gone(request, explanations.answer(service, system, question, client)))


# --- Translation of a document: lines are paragraphs, and each sentence is an event.


GlossaryEntries = tuple[tuple[StrictStr, StrictStr], ...]
_GLOSSARY: Final = TypeAdapter(GlossaryEntries)


class TranslateBody(Body):
    """Request to translate a text as one document."""

    system: StrictStr
    text: StrictStr
    glossary: GlossaryEntries = ()


async def events_of(service: Service, system: System, body: TranslateBody, client: str) -> Events:
    """Yield `start`, then `sentence` for each translated sentence, then `done`; closing cancels the work.

    Raises RequestError before the first event: an error of `Service.translate`; 400 for an invalid term.
    """
    begun = time.monotonic()
    lines = await service.in_thread(partial(PlainText, body.text, "1", ""), Work(client))
    terminology = terminology_of(distinct(body.glossary))
    request = TextRequest(system, (tuple(lines.blocks),), terminology)
    # Bounded by the number of sentences.
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def on_event(event: answers.Event) -> None:
        if isinstance(event, tuple):
            _, number, target = event
            queue.put_nowait(Event("sentence", {"number": number, "target": target}))
            return
        sentences = [
            {"number": s.number, "paragraph": s.block, "source": s.text, "before": s.before} for s in event
        ]
        start = {"system": system.name, "paragraphs": len(lines.blocks), "sentences": sentences}
        queue.put_nowait(Event("start", start))

    task = asyncio.ensure_future(service.translate(request, client, on_event))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        answer = await task
        done = _done(answer, system.opened.signature)
        text, seconds = lines.written(answer.documents[0]), round(time.monotonic() - begun, 3)
        yield Event("done", {**done, "text": text, "seconds": seconds})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _done(answer: answers.TextAnswer, signature: str) -> dict[str, Any]:
    """Return the content of the event `done`."""
    sure = [pair.confidence for pair in answer.pairs]
    sentences = [
        {
            "number": pair.number,
            "target": pair.target,
            "confidence": None if confidence is None else round(confidence, 4),
            "low": low,
            "terms": list(pair.terms),
            "context": [pair.visible.start, pair.visible.stop],
        }
        for pair, confidence, low in zip(answer.pairs, sure, least_sure(sure), strict=True)
    ]
    return {"sentences": sentences, "signature": signature}


# --- `/api/files`: files are uploaded, translated as jobs, and downloaded.

MAX_FIELDS: Final = 64  # of a form with a file
PIECE_BYTES: Final = 256 * 1024


@asynccontextmanager
async def received_file(request: Request, client: str) -> AsyncIterator[tuple[UploadFile, Fields, str]]:
    """Receive a form with a file in the field `file`; return the file, all fields, and a reservation.

    The file arrives in the folder of jobs. Meanwhile its size is reserved in the space of `client`: the
    declared size, or else the maximum. Raises RequestError: 400, the form is invalid, or does not have
    exactly one file. 413, the form is too large. 429 and 503, there is no space.
    """
    jobs, settings = service_of(request).jobs, service_of(request).settings
    if content_type(request) != "multipart/form-data":
        raise RequestError(400, "send a file as multipart/form-data, in the field `file`")
    most = settings.max_file_bytes
    reservation = await to_thread.run_sync(
        jobs.reserve, client, min(content_length(request.headers) or most, most)
    )
    form = Form(request, MAX_FIELDS, settings.max_body_bytes, jobs.table.root)
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


async def send_file(request: Request) -> Response:
    """Receive a file."""
    client, service = asking(request), service_of(request)
    async with received_file(request, client) as (file, fields, reservation):
        name = fields.text("system")
        system = service.systems.named(name) if name else service.systems.translating(None, None)[0]
        options = JobOptions(_glossary(fields.text("glossary")))
        ticket = await to_thread.run_sync(
            service.jobs.submit, client, system, file.file, file.filename or "", options, reservation
        )
    return JSONResponse({"id": ticket.id}, 201, {"Location": f"{request.url.path}/{ticket.id}"})


async def list_files(request: Request) -> Response:
    """Return the status of all files of a client, the newest first."""
    client = asking(request)
    statuses = service_of(request).jobs.of_client(client)
    return JSONResponse({"files": [asdict(status) for status in statuses]})


async def get_file_status(request: Request) -> Response:
    """Return the status of a file."""
    client = asking(request)
    return JSONResponse(asdict(service_of(request).jobs.status(request.path_params["id"], client)))


async def delete_file(request: Request) -> Response:
    """Cancel the translation of a file, and delete it."""
    client = asking(request)
    service_of(request).jobs.delete(request.path_params["id"], client)
    return Response(status_code=204)


async def fetch_file(request: Request) -> Response:
    """Return the translated file, as a download."""
    client = asking(request)
    return file_answer(*service_of(request).jobs.result(request.path_params["id"], client))


def file_answer(path: Path, name: str, on_end: Callable[[], None] = lambda: None) -> Response:
    """Return a file as a download; `on_end` is called before its last piece is sent.

    Raises RequestError: 404, the file has been deleted.
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


def _glossary(text: str) -> GlossaryEntries:
    """Read a glossary from a JSON list of pairs; raise RequestError 400 if it is invalid."""
    try:
        return tuple(distinct(_GLOSSARY.validate_json(text))) if text.strip() else ()
    except ValidationError:
        reason = 'give a glossary as a JSON list of pairs: [["term", "translation"], ...]'
        raise RequestError(400, reason) from None


# --- The web page: HTML, style, scripts and icon, all from the package.

INDEX: Final = "index.html"
TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# Pages load only content from this server: no inline scripts or styles, no frames.
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# In addition to `application.SECURITY`.
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # so that browsers load the new page after an update of the server
}


@cache
def parts() -> dict[str, tuple[bytes, str]]:
    """Return content and type of every file of the page."""
    folder = files("cotext.serving").joinpath("page")
    kinds = [(file, TYPES.get(file.name.rpartition(".")[2])) for file in folder.iterdir()]
    return {file.name: (file.read_bytes(), kind) for file, kind in kinds if kind is not None}


async def page(request: Request) -> Response:
    """Return a file of the page; raise RequestError 404 if it does not exist, or the page is disabled."""
    name = request.path_params.get("file", INDEX)
    if not service_of(request).settings.page or name not in parts():
        raise RequestError(404, "there is no such page")
    content, kind = parts()[name]
    return Response(content, media_type=kind, headers=HEADERS)
