"""LibreTranslate's interface: texts, files, languages and their detection.

Beyond it, `{"cotext": {...}}` of a JSON body may have `document` (true: the texts of a list are one
document), `system` (the name of the one that translates) and, of sessions, `session`, `segment` and
`confirmed`; forms and addresses have the same fields by themselves.
"""

import asyncio
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.data.languages import name_of
from cotext.files.table import file_formats
from cotext.serving.errors import RequestError
from cotext.serving.file_routes import Upload, file_answer, received_file
from cotext.serving.fragments import TagHandling
from cotext.serving.jobs import JobOptions, JobStatus, JobTicket
from cotext.serving.keys import Admission, own_name
from cotext.serving.requests import Fields, bearer_key, client_of, read_fields, service_of, unless_gone
from cotext.serving.service import Client, Service
from cotext.serving.sessions import also_in_sessions
from cotext.serving.systems import System
from cotext.serving.translation import Detected, TranslationRequest, code_of, detect, extension_of, translated

# --- LibreTranslate's files: sent, and fetched from the address that is answered.
#
# The answer waits until the file is translated, since programs fetch it at once. What takes longer than a
# request may is answered before: the address is 404 until the file is there, and tells how far it is.

LOOK_SECONDS: Final = 0.2  # between looks at a file
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
        system = _system(service, Fields.of_form(upload.fields))
        submit = partial(service.jobs.submit, client, system, upload.path, upload.file_name, JobOptions())
        ticket = await to_thread.run_sync(submit)
    try:
        status = await unless_gone(request, _waited(service, client, ticket))
    except RequestError:
        service.jobs.delete(ticket.id, client)
        raise
    if status.state == "error":
        service.jobs.delete(ticket.id, client)
        raise RequestError(400, status.message)
    address = f"{request.base_url}download_file/{ticket.id}{ticket.key}.{quote(status.file_name)}"
    return JSONResponse({"translatedFileUrl": address})


def _system(service: Service, wanted: Fields) -> System:
    """The system that a form asks for; of several source languages, one has to be named."""
    systems = _systems(service, wanted.needed("source"), wanted.needed("target"))
    known = {each.languages.source for each in systems}
    if len(known) > 1:
        raise RequestError(400, f"name the source language of a file: one of {', '.join(sorted(known))}")
    return systems[0]


async def _waited(service: Service, client: Client, ticket: JobTicket) -> JobStatus:
    """How far a file is when it is finished, or when waiting ends."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAITING_SHARE * service.settings.request_seconds
    while not (status := service.jobs.status(ticket.id, client)).finished:
        if service.is_stopping or loop.time() > deadline:
            break
        await asyncio.sleep(LOOK_SECONDS)
    return status


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


async def translate(request: Request) -> Response:
    """Translate a text, or a list of them; the answer has as many."""
    wanted = await read_fields(request)
    client, service = client_of(request, wanted.text("api_key") or None), service_of(request)
    texts, is_list = _texts(wanted, service.settings.max_sentences)
    kind = wanted.one_of("format", ("text", "html"), "text")
    alternatives = _alternatives(wanted)
    source, target = wanted.needed("source"), wanted.needed("target")
    extension = extension_of(request, wanted, by_themselves=True)
    asked = TranslationRequest(
        texts,
        _systems(service, source, target, extension.system),
        extension.document,
        extension.place,
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


def _texts(wanted: Fields, most: int) -> tuple[list[str], bool]:
    """The texts of a request, and whether they are a list; `most`: of a list."""
    if "q" not in wanted:
        raise RequestError(400, "Parameter 'q' not specified.")
    texts, is_list = wanted.texts("q"), isinstance(wanted.value("q"), list)
    if len(texts) > most:
        raise RequestError(413, f"{most:,} texts are taken at once; send several requests")
    return texts, is_list


def _alternatives(wanted: Fields) -> int:
    """How many are wanted; there are fewer than the beam is wide."""
    value = wanted.value("alternatives")
    text = "0" if value is None or value == "" else str(value)
    if isinstance(value, bool | float | list | dict) or not text.isascii() or not text.isdigit():
        raise RequestError(400, "Invalid request: alternatives has to be a number from 0 on")
    return int(text[:9])


def _told(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}


def _systems(service: Service, source: str, target: str, name: str | None = None) -> list[System]:
    """The systems for a request, of every source language where that is to be detected."""
    return service.systems.translating(None if source == AUTO else code_of(source), code_of(target), name)


async def detect_language(request: Request) -> Response:
    """The language of a text, among those of all systems, the likeliest alone."""
    wanted = await read_fields(request)
    client_of(request, wanted.text("api_key") or None)
    text = wanted.needed("q")
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
