"""LibreTranslate's interface: texts, files, languages and their detection.

Beyond it, `{"cotext": {...}}` of a JSON body may have `document` (true: the texts of a list are one
document), `system` (the name of the one that translates) and, of sessions, `session`, `segment` and
`confirmed`; forms and addresses have the same fields by themselves.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.data.languages import name_of
from cotext.files.table import file_formats
from cotext.runtime.errors import shown
from cotext.serving.errors import RequestError
from cotext.serving.file_routes import Upload, file_answer, received_file
from cotext.serving.fragments import TagHandling
from cotext.serving.jobs import JobOptions, JobStatus, JobTicket
from cotext.serving.keys import Admission, own_name
from cotext.serving.requests import bearer_key, client_of, fields, service_of, unless_gone
from cotext.serving.service import Client, Service
from cotext.serving.sessions import also_in_sessions, session_place
from cotext.serving.systems import System
from cotext.serving.translation import Detected, TranslationRequest, code_of, detect, translated

# --- LibreTranslate's files: sent, and fetched from the address that is answered.
#
# The answer waits until the file is translated, since programs fetch it at once. What takes longer than a
# request may is answered before: the address is 404 until the file is there, and tells how far it is.

WAITING_SHARE: Final = 0.8  # of the time that a request may take
BEFORE_KEY_BYTES: Final = 1 << 20  # of a file that are read before a key is shown
ID_CHARACTERS: Final = 32


def supported_suffixes() -> list[str]:
    """The endings of the files that are translated."""
    return sorted({suffix for format in file_formats().values() for suffix in format.suffixes})


async def translate_file(request: Request) -> Response:
    """Take a file, and answer where its translation is.

    The key may stand in the form behind the file, as pages in a browser put it: then the file is read for a
    while before anybody knows whose it is.
    """
    service = service_of(request)
    settings = service.settings
    admission: Admission = request.app.state.admission
    shown = bearer_key(request) or request.query_params.get("api_key")

    def owner(upload: Upload, size: int) -> Client | None:
        key = shown or upload.value("api_key")
        if shown or (admission.key_required and (key or size > BEFORE_KEY_BYTES)):
            return client_of(request, key or None)
        return None if admission.key_required else Client(own_name(key))

    async with received_file(
        request, service.jobs, settings.max_file_bytes, settings.max_text_bytes, owner
    ) as upload:
        client = client_of(request, shown or upload.value("api_key") or None)
        system = _system(service, upload)
        submit = partial(service.jobs.submit, client, system, upload.path, upload.file_name, JobOptions())
        ticket = await to_thread.run_sync(submit)
    try:
        status = await unless_gone(request, _waited(service, client, ticket))
    except RequestError:
        service.jobs.delete(ticket.id, client)
        raise
    if status.state not in ("queued", "translating", "done"):
        service.jobs.delete(ticket.id, client)
        raise RequestError(400, status.message or "the file was not translated")
    address = f"{request.base_url}download_file/{ticket.id}{ticket.key}.{quote(status.file_name)}"
    return JSONResponse({"translatedFileUrl": address})


def _system(service: Service, upload: Upload) -> System:
    """The system that a form asks for; of several source languages, one has to be named."""
    for name in ("source", "target"):
        if not upload.value(name):
            raise RequestError(400, f"Invalid request: missing {name} parameter")
    target = code_of(upload.value("target"))
    if upload.value("source") != "auto":
        return service.systems.choose(code_of(upload.value("source")), target)
    known = {each.languages.source for each in service.systems if each.languages.target == target}
    if len(known) > 1:
        raise RequestError(400, f"name the source language of a file: one of {', '.join(sorted(known))}")
    return service.systems.choose(None, target)


async def _waited(service: Service, client: Client, ticket: JobTicket) -> JobStatus:
    """How far a file is when it is finished, or when waiting ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WAITING_SHARE * service.settings.request_seconds):
            async for _ in service.jobs.watch(ticket.id, client):
                pass
    return service.jobs.status(ticket.id, client)


async def download_file(request: Request) -> Response:
    """A translated file; whoever knows its address may fetch it, as programs send no key here."""
    name: str = request.path_params["name"]
    secret = name.partition(".")[0]
    job, key, jobs = secret[:ID_CHARACTERS], secret[ID_CHARACTERS:], service_of(request).jobs
    owner = jobs.owner_of(job, key)
    status = jobs.status(job, owner)
    if not status.finished:
        raise RequestError(
            404, f"not ready: {status.sentences_done:,} of {status.sentences:,} sentences; ask again", 5.0
        )
    return file_answer(*jobs.result(job, owner))


AUTO: Final = "auto"
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
EXTENSION: Final = ("document", "system", "session", "segment", "confirmed")


def routes() -> list[BaseRoute]:
    """The routes of the dialect; `/health` is for all dialects."""
    return [
        *also_in_sessions(
            [
                Route("/translate", translate, methods=["POST"]),
                Route("/languages", languages, methods=["GET"]),
                Route("/detect", detect_language, methods=["POST"]),
            ]
        ),
        Route("/translate_file", translate_file, methods=["POST"]),
        Route("/download_file/{name}", download_file, methods=["GET"]),
        Route("/frontend/settings", frontend_settings, methods=["GET"]),
        Route("/suggest", suggest, methods=["POST"]),
    ]


def refusal(error: RequestError) -> Response:
    """An error as LibreTranslate writes it."""
    return JSONResponse({"error": error.message}, error.status)


class _Asked:
    """The fields of a request by name."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def value(self, name: str) -> Any:
        """A field; None where it is not there."""
        return self._found.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A field that is a text.

        Raises:
            RequestError: 400, it is missing, or something else.
        """
        value = self._found.get(name)
        if value is None or value == "":
            if default is None:
                raise RequestError(400, f"Invalid request: missing {name} parameter")
            return default
        if not isinstance(value, str):
            raise RequestError(400, f"Invalid request: {name} has to be a text")
        return value

    @property
    def extension(self) -> Mapping[str, Any]:
        """What is asked beyond LibreTranslate."""
        found = self._found.get("cotext")
        if found is None:
            return {name: self._found[name] for name in EXTENSION if name in self._found}
        if not isinstance(found, dict) or not found.keys() <= set(EXTENSION):
            raise RequestError(400, f"Invalid request: cotext has to be an object of {', '.join(EXTENSION)}")
        return found


async def _asked(request: Request) -> _Asked:
    """The fields of a JSON body, or of a form, and those of the address."""
    found = await fields(request)
    address = {name: request.query_params.getlist(name) for name in request.query_params}
    if request.headers.get("content-type", "").startswith(FORMS):
        address, found = {**address, **found}, {}
    single = {name: values[0] if len(values) == 1 else values for name, values in address.items()}
    return _Asked({**single, **found})


async def translate(request: Request) -> Response:
    """Translate a text, or a list of them; the answer has as many."""
    wanted = await _asked(request)
    client, service = client_of(request, wanted.text("api_key", "") or None), service_of(request)
    texts, is_list = _texts(wanted, service.settings.max_sentences)
    kind = wanted.text("format", "text")
    if kind not in ("text", "html"):
        raise RequestError(400, f"Invalid request: format {shown(kind)} is neither text nor html")
    alternatives = _alternatives(wanted)
    source, target = wanted.text("source"), wanted.text("target")
    extension = wanted.extension
    asked = TranslationRequest(
        texts,
        _systems(service, source, target, extension.get("system")),
        extension.get("document") in (True, "true", "1"),
        session_place(request, extension),
        "nonewlines" if kind == "html" else "1",
        TagHandling("html") if kind == "html" else None,
        detects=source == AUTO,
        alternatives=alternatives,
    )
    found = await translated(request, client, asked)
    answers = [each.text for each in found]
    answer: dict[str, Any] = {"translatedText": answers if is_list else answers[0]}
    if source == AUTO:
        told = [_told(each.source) for each in found]
        answer["detectedLanguage"] = told if is_list else told[0]
    if alternatives:
        others = [list(each.alternatives) for each in found]
        answer["alternatives"] = others if is_list else others[0]
    return JSONResponse(answer)


def _texts(wanted: _Asked, most: int) -> tuple[list[str], bool]:
    """The texts of a request, and whether they are a list; `most`: of a list."""
    value = wanted.value("q")
    if isinstance(value, list):
        if len(value) > most:
            raise RequestError(413, f"{most:,} texts are taken at once; send several requests")
        if not all(isinstance(each, str) for each in value):
            raise RequestError(400, "Invalid request: q has to be a text, or a list of texts")
        return value, True
    if value == "":
        return [""], False
    return [wanted.text("q")], False


def _alternatives(wanted: _Asked) -> int:
    """How many are wanted; there are fewer than the beam is wide."""
    value = wanted.value("alternatives")
    text = "0" if value is None or value == "" else str(value)
    if isinstance(value, bool | float | list | dict) or not text.isascii() or not text.isdigit():
        raise RequestError(400, "Invalid request: alternatives has to be a number from 0 on")
    return int(text[:9])


def _told(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}


def _code(text: str) -> str:
    try:
        return code_of(text)
    except RequestError:
        raise RequestError(400, f"{shown(text)} is not supported") from None


def _systems(service: Service, source: str, target: str, name: Any) -> list[System]:
    """The systems for a request, of every source language where that is to be detected."""
    candidates = list(service.systems) if name is None else [service.systems.named(str(name))]
    pairs = ", ".join(dict.fromkeys(str(each.languages) for each in candidates))
    # Each language by itself, so that the one which nothing translates is named.
    kept = candidates
    for code, side in ((source, "source"), (target, "target")):
        if code == AUTO and side == "source":
            continue
        wanted = _code(code)
        if not any(getattr(each.languages, side) == wanted for each in candidates):
            raise RequestError(400, f"{shown(code)} is not supported; there are {pairs}")
        kept = [each for each in kept if getattr(each.languages, side) == wanted]
    if not kept:
        raise RequestError(400, f"no system translates these languages; there are {pairs}")
    return kept


async def detect_language(request: Request) -> Response:
    """The language of a text, among those of all systems, the likeliest alone."""
    wanted = await _asked(request)
    client_of(request, wanted.text("api_key", "") or None)
    text = wanted.text("q")
    codes = _languages(service_of(request))
    found = await to_thread.run_sync(detect, text, list(codes))
    return JSONResponse([_told(found)])


async def languages(request: Request) -> Response:
    """The languages that something is translated from, each with those that it is translated into.

    A language that is a target alone is there too, with no targets: programs that want the list of all ask
    here.
    """
    codes = _languages(service_of(request))
    return JSONResponse(
        [{"code": code, "name": name_of(code), "targets": targets} for code, targets in codes.items()]
    )


def _languages(service: Service) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for system in service.systems:
        targets = found.setdefault(system.languages.source, [])
        if system.languages.target not in targets:
            targets.append(system.languages.target)
    for targets in list(found.values()):
        for code in targets:
            found.setdefault(code, [])
    return found


async def frontend_settings(request: Request) -> Response:
    """What programs ask before they show a form."""
    service = service_of(request)
    first, has_keys = next(iter(service.systems)).languages, service.settings.keys is not None
    return JSONResponse(
        {
            "charLimit": service.settings.max_text_bytes,
            "frontendTimeout": 500,
            "apiKeys": has_keys,
            "keyRequired": has_keys,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": supported_suffixes(),
            "language": {
                "source": {"code": first.source, "name": name_of(first.source)},
                "target": {"code": first.target, "name": name_of(first.target)},
            },
        }
    )


async def suggest(request: Request) -> Response:
    """Suggestions of translations, which are not taken."""
    raise RequestError(403, "Suggestions are disabled on this server.")
