"""DeepLX's interface, which Zotero and others ask.

POST /deeplx   {"text", "source_lang", "target_lang"}     {"code": 200, "data": ..., ...}
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.serving.detection import detect
from cotext.serving.errors import RequestError
from cotext.serving.requests import client_of, fields, service_of
from cotext.serving.sessions import also_in_sessions, session_place
from cotext.serving.simple_texts import Texts, code_of, translated
from cotext.serving.systems import System, Systems


def routes() -> list[BaseRoute]:
    """The route, also in sessions."""
    return also_in_sessions([Route("/deeplx", deeplx, methods=["POST"])])


def refusal(error: RequestError) -> Response:
    """An error: its status, as `code` too, and a text."""
    return JSONResponse({"code": error.status, "message": error.message}, error.status)


async def deeplx(request: Request) -> Response:
    """Translate the text in the body; the key is a bearer's, or `token` in the address."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    bearer = key.strip() if kind.lower() == "bearer" else ""
    client = client_of(request, bearer or request.query_params.get("token") or None)
    body = await fields(request)
    text, source, target = (body.get(name) for name in ("text", "source_lang", "target_lang"))
    extension = body.get("cotext") or {}
    if not isinstance(text, str) or not isinstance(target, str):
        raise RequestError(400, "send JSON with text, source_lang and target_lang, each a text")
    if not isinstance(extension, dict):
        raise RequestError(400, "cotext has to be an object: session, segment, confirmed")
    system = _system(service_of(request).systems, text, source, code_of(target))
    place = session_place(request, extension)
    [translation] = await translated(request, client, system, Texts([text], place=place))
    return JSONResponse(
        {
            "code": 200,
            "data": translation,
            "alternatives": [],
            "source_lang": system.languages.source.upper(),
            "target_lang": system.languages.target.upper(),
        }
    )


def _system(systems: Systems, text: str, source: Any, target: str) -> System:
    """The system for a text; a source language that is missing, empty or `auto` is detected."""
    if isinstance(source, str) and source.lower() not in ("", "auto"):
        return systems.choose(code_of(source), target)
    known = [each.languages.source for each in systems if each.languages.target == target]
    return systems.choose(detect(text, known).language if known else None, target)
