"""`/v2/document`: a file is sent, asked after, and fetched once, with the key that its client was given."""

from functools import partial
from pathlib import Path
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.files.translate_files import format_of
from cotext.runtime.errors import shown
from cotext.serving.deepl.asked import (
    asked,
    check_formality,
    glossary_entries,
    header_key,
    refuse_unsupported,
    systems_for,
)
from cotext.serving.errors import RequestError
from cotext.serving.file_routes import file_answer, received_file
from cotext.serving.jobs import JobOptions
from cotext.serving.requests import Fields, client_of, service_of

UNSUPPORTED: Final = ("style_id", "translation_memory_id", "translation_memory_threshold")
UNNAMED: Final = "file"  # what clients call a file without a name


async def send(request: Request) -> Response:
    """`POST /v2/document`: take a file; the key stands in the header, so that nobody else's is read."""
    client, service = client_of(request, header_key(request)), service_of(request)
    settings = service.settings
    async with received_file(
        request, service.jobs, settings.max_file_bytes, settings.max_text_bytes, lambda upload, size: client
    ) as received:
        wanted = Fields.of_form(received.fields)
        system = systems_for(request, wanted)[0]
        refuse_unsupported(wanted, UNSUPPORTED)
        check_formality(wanted, system)
        name = received.file_name
        name = wanted.text("filename", name) if name in ("", UNNAMED) else name
        _check_output(wanted.text("output_format"), received.path, name)
        options = JobOptions(tuple(glossary_entries(service, wanted, client, system)))
        submit = partial(service.jobs.submit, client, system, received.path, name or UNNAMED, options)
        ticket = await to_thread.run_sync(submit)
    return JSONResponse({"document_id": ticket.id, "document_key": ticket.key})


async def tell_status(request: Request) -> Response:
    """`POST /v2/document/{id}`: how far it is."""
    wanted, client = await asked(request)
    identity = request.path_params["id"]
    status = service_of(request).jobs.status(identity, client, wanted.needed("document_key"))
    told: dict[str, str | int] = {"document_id": identity, "status": status.state}
    if status.state == "translating" and status.seconds_remaining is not None:
        told["seconds_remaining"] = round(status.seconds_remaining)
    if status.state == "done":
        told["billed_characters"] = status.billed_characters
    if status.state == "error":
        told["error_message"] = status.message
    return JSONResponse(told)


async def fetch(request: Request) -> Response:
    """`POST /v2/document/{id}/result`: the translated file, which is then deleted."""
    wanted, client = await asked(request)
    jobs, identity = service_of(request).jobs, request.path_params["id"]
    key = wanted.needed("document_key")
    status = jobs.status(identity, client, key)
    if not status.finished:
        raise RequestError(503, "Document not ready; ask for its status until it is done")
    if status.state != "done":
        raise RequestError(404, f"Document not found: it was not translated. {status.message}")

    return file_answer(
        *jobs.result(identity, client, key), on_end=partial(jobs.delete, identity, client, key)
    )


def _check_output(wanted: str, path: Path, name: str) -> None:
    """Refuse another format than that of the file, which is in its name, or else in what it holds."""
    if not wanted:
        return
    ending = f".{wanted.lower().removeprefix('.')}"
    endings = (Path(name).suffix.lower(),) if Path(name).suffix else _endings(path)
    if ending not in endings:
        raise RequestError(
            400, f"Value for 'output_format' not supported: {shown(wanted)}; files stay in their format"
        )


def _endings(path: Path) -> tuple[str, ...]:
    found = format_of(path)
    return (f".{found}",) if isinstance(found, str) else found.suffixes
