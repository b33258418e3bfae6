"""Cotext's own API under `/api`, which the web page uses (JSON and server-sent events), and health checks."""

import asyncio
import time
from functools import partial
from typing import Any

from pydantic import StrictStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cotext.data.documents import name_of
from cotext.files.bilingual_page import least_sure
from cotext.files.table import file_suffixes
from cotext.serving import answers
from cotext.serving.errors import RequestError
from cotext.serving.event_stream import Event, Events, EventStream
from cotext.serving.fragments import PlainText
from cotext.serving.keys import Admission
from cotext.serving.own_api.explanations import Explanations, Question, unexplained
from cotext.serving.requests import Body, asking, body_of, check_size, service_of, unless_gone
from cotext.serving.service import Service, TextRequest
from cotext.serving.sharing.turns import Work
from cotext.serving.systems import System
from cotext.serving.terms import distinct, terminology_of


def routes() -> list[Route]:
    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/api/systems", systems, methods=["GET"]),
        Route("/api/translate", translate, methods=["POST"]),
        Route("/api/explain", partial(explain, Explanations()), methods=["POST"]),
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
        "takes_terms": translator.takes_guides,
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


class TranslateBody(Body):
    """Request to translate a text as one document."""

    system: StrictStr
    text: StrictStr
    glossary: tuple[tuple[StrictStr, StrictStr], ...] = ()


async def events_of(service: Service, system: System, body: TranslateBody, client: str) -> Events:
    """Yield the events `start`, `sentence` (for each translated one) and `done`; closing cancels the work.

    Raises:
        RequestError: before the first event: the errors of `Service.translate`; 400, a term is invalid.
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
