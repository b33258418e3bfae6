"""LibreTranslate's files: sent, and fetched from the address that is answered.

The answer waits until the file is translated, since programs fetch it at once. What takes longer than a
request may is answered before: the address is 404 until the file is there, and tells how far it is.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.files.table import file_formats
from cotext.serving.errors import RequestError
from cotext.serving.file_routes import file_answer
from cotext.serving.jobs import JobOptions, JobStatus, JobTicket
from cotext.serving.keys import own_name
from cotext.serving.limits import Admission
from cotext.serving.requests import bearer_key, client_of, service_of, unless_gone
from cotext.serving.service import Client, Service
from cotext.serving.systems import System
from cotext.serving.translation import code_of
from cotext.serving.uploads import Upload, received_file

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
