"""The LibreTranslate API: texts, languages and language detection.

The API is extended by the field `cotext` of a JSON body. Its keys are `document` (true: the texts of a list
are one document), `system` (name of the system) and, for sessions, `session`, `segment` and `confirmed`. In
forms and query strings, these are separate fields.
"""

from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cotext.data.documents import name_of
from cotext.serving.record import RequestError
from cotext.serving.requests import client_of, read_fields, service_of, whole_number
from cotext.serving.service import Service
from cotext.serving.translation import (
    Detected,
    TagHandling,
    TranslationRequest,
    also_in_sessions,
    code_of,
    detect,
    extension_of,
    translate_texts,
)

AUTO: Final = "auto"


def routes() -> list[Route]:
    """Return the routes of this API; `/health` is common to all APIs."""
    return also_in_sessions(
        [
            Route("/translate", translate, methods=["POST"]),
            Route("/languages", languages, methods=["GET"]),
            Route("/detect", detect_language, methods=["POST"]),
        ]
    )


async def translate(request: Request) -> Response:
    """Translate a text or a list of texts."""
    fields = await read_fields(request)
    client, service = client_of(request, fields.text("api_key") or None), service_of(request)
    if "q" not in fields:
        raise RequestError(400, "Parameter 'q' not specified.")
    texts, is_list = fields.texts("q"), isinstance(fields.value("q"), list)
    kind = fields.one_of("format", ("text", "html"), "text")
    alternatives = whole_number(fields.value("alternatives") or 0, "alternatives")
    source, target = fields.needed("source"), fields.needed("target")
    together, system, place = extension_of(request, fields)
    code = None if source == AUTO else code_of(source)
    translation = TranslationRequest(
        texts,
        service.systems.translating(code, code_of(target), system),
        together,
        place,
        "nonewlines" if kind == "html" else "1",
        TagHandling("html") if kind == "html" else None,
        detects=source == AUTO,
        alternatives=alternatives,
    )
    results = await translate_texts(request, client, translation)
    answers = [result.text for result in results]
    answer: dict[str, Any] = {"translatedText": answers if is_list else answers[0]}
    if source == AUTO:
        detected = [_described(result.source) for result in results]
        answer["detectedLanguage"] = detected if is_list else detected[0]
    if alternatives:
        others = [result.alternatives for result in results]
        answer["alternatives"] = others if is_list else others[0]
    return JSONResponse(answer)


def _described(detected: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * detected.confidence, 1), "language": detected.language}


async def detect_language(request: Request) -> Response:
    """Return the most probable language of a text among those of all systems."""
    fields = await read_fields(request)
    client_of(request, fields.text("api_key") or None)
    text = fields.needed("q")
    codes = _languages(service_of(request))
    return JSONResponse([_described(await to_thread.run_sync(detect, text, list(codes)))])


async def languages(request: Request) -> Response:
    """Return all languages, each with its target languages (possibly none)."""
    codes = _languages(service_of(request))
    return JSONResponse(
        [{"code": code, "name": name_of(code), "targets": targets} for code, targets in codes.items()]
    )


def _languages(service: Service) -> dict[str, list[str]]:
    pairs = [system.languages for system in service.systems]
    codes = dict.fromkeys([*(pair.source for pair in pairs), *(pair.target for pair in pairs)])
    return {code: list(dict.fromkeys(p.target for p in pairs if p.source == code)) for code in codes}
