"""The OPUS-CAT API for its plugins in OmegaT, Wordfast, memoQ and Trados, which send single segments.

`tokenCode` is the key, and `modelTag` the name of a system. With an empty or unknown tag, the server chooses,
because plugins may send tags of other models. A translation stored in a session is a confirmed translation.
"""

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.runtime.xml import taken
from cotext.serving.errors import RequestError
from cotext.serving.requests import client_of, service_of
from cotext.serving.service import Client
from cotext.serving.sessions import also_in_sessions, session_place
from cotext.serving.systems import System, Systems
from cotext.serving.translation import TranslationRequest, code_of, translated

BASE: Final = "/MTRestService"
# XML of .NET services for strings and lists of strings.
_STRING: Final = '<string xmlns="http://schemas.microsoft.com/2003/10/Serialization/">{}</string>'
_STRINGS: Final = (
    '<ArrayOfstring xmlns="http://schemas.microsoft.com/2003/10/Serialization/Arrays">{}</ArrayOfstring>'
)


def routes() -> list[BaseRoute]:
    return also_in_sessions(
        [
            Route(f"{BASE}/TranslateJson", translate_json, methods=["GET"]),
            Route(f"{BASE}/Translate", translate_xml, methods=["GET"]),
            Route(f"{BASE}/ListSupportedLanguagePairs", language_pairs, methods=["GET"]),
            Route(f"{BASE}/GetLanguagePairModelTags", model_tags, methods=["GET"]),
            Route(f"{BASE}/StoreTranslation", store, methods=["GET"]),
        ]
    )


def refusal(error: RequestError) -> Response:
    """Return an error; the plugins show only its status."""
    return PlainTextResponse(error.message, error.status)


async def translate_json(request: Request) -> Response:
    return JSONResponse({"translation": await _translated(request)})


async def translate_xml(request: Request) -> Response:
    text = _STRING.format(escape(taken(await _translated(request))))
    return Response(text, media_type="application/xml")


async def language_pairs(request: Request) -> Response:
    """Return the language pairs, such as `en-de`."""
    _client(request)
    return _strings(str(system.languages) for system in service_of(request).systems)


async def model_tags(request: Request) -> Response:
    """Return the names of the systems for a language pair."""
    _client(request)
    systems, pair = service_of(request).systems, _pair(request)
    return _strings(s.name for s in systems if (s.languages.source, s.languages.target) == pair)


async def store(request: Request) -> Response:
    """Store a confirmed translation in a session; without a session, do nothing."""
    client = _client(request)
    named = {**request.query_params, "confirmed": _field(request, "target")}
    place = session_place(request, named)
    if place is not None:
        translation = TranslationRequest([_field(request, "source")], [_system(request)], place=place)
        await translated(request, client, translation)
    return Response(status_code=200)


async def _translated(request: Request) -> str:
    client = _client(request)
    place = session_place(request, request.query_params)
    translation = TranslationRequest([_field(request, "input")], [_system(request)], place=place)
    [result] = await translated(request, client, translation)
    return result.text


def _client(request: Request) -> Client:
    return client_of(request, request.query_params.get("tokenCode") or None)


def _field(request: Request, name: str) -> str:
    if (value := request.query_params.get(name)) is None:
        raise RequestError(400, f"the address lacks the parameter {name}")
    return value


def _pair(request: Request) -> tuple[str, str]:
    return code_of(_field(request, "srcLangCode")), code_of(_field(request, "trgLangCode"))


def _system(request: Request) -> System:
    systems: Systems = service_of(request).systems
    pair, tag = _pair(request), request.query_params.get("modelTag")
    named = [s for s in systems if s.name == tag and (s.languages.source, s.languages.target) == pair]
    return named[0] if named else systems.translating(*pair)[0]


def _strings(texts: Iterable[str]) -> Response:
    items = "".join(f"<string>{escape(text)}</string>" for text in dict.fromkeys(texts))
    return Response(_STRINGS.format(items), media_type="application/xml")
