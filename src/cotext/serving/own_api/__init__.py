"""Cotext's own API under `/api`, which the web page uses (JSON and server-sent events), and health checks."""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.data.languages import name_of
from cotext.files.table import file_suffixes
from cotext.models.run_folder import noted_data
from cotext.serving.errors import RequestError
from cotext.serving.event_stream import EventStream
from cotext.serving.keys import Admission
from cotext.serving.own_api.explanations import Explanations, Question, unexplained
from cotext.serving.own_api.texts import TranslateBody, events_of, last_of
from cotext.serving.requests import asking, body_of, check_size, service_of, unless_gone
from cotext.serving.systems import System


def routes() -> list[BaseRoute]:
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
        "controlled": noted_data(system.opened.folder).get("controlled", False),
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
        return JSONResponse(await unless_gone(request, last_of(events)))
    # Errors before the first event have an HTTP status.
    return EventStream(events, await unless_gone(request, anext(events)))


async def explain(explanations: Explanations, request: Request) -> Response:
    """Return which context sentences decided a word."""
    client = asking(request)
    question = await body_of(request, Question)
    service = service_of(request)
    system = service.systems.named(question.system)
    check_size(service.settings, [*question.sources, *question.targets])
    service.check_sentences(len(question.sources))
    return JSONResponse(await unless_gone(request, explanations.answer(service, system, question, client)))
