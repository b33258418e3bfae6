"""`/v2/document`: upload a file, query its status, and download the result once."""

from functools import partial
from pathlib import Path
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.serving.deepl.translate import (
    fields_and_client,
    glossary_entries,
    header_key,
    refuse_unsupported,
    systems_for,
)
from cotext.serving.errors import RequestError
from cotext.serving.file_routes import file_answer, received_file
from cotext.serving.jobs.table import JobOptions
from cotext.serving.requests import client_of, service_of

UNNAMED: Final = "file"  # name that clients give to a file without a name


async def send(request: Request) -> Response:
    """`POST /v2/document`: receive a file; the API key must be in the header, and is checked first."""
    client, service = client_of(request, header_key(request)), service_of(request)
    async with received_file(request, client) as (file, fields, reservation):
        system = systems_for(request, fields)[0]
        refuse_unsupported(fields, system)
        name = file.filename or ""
        name = fields.text("filename", name) if name in ("", UNNAMED) else name
        output = fields.text("output_format").lower().removeprefix(".")
        if output and Path(name).suffix.lower() != f".{output}":
            raise RequestError(400, "Value for 'output_format' not supported: it has to be that of the input")
        options = JobOptions(await glossary_entries(request, fields, client, system))
        ticket = await to_thread.run_sync(
            service.jobs.submit, client, system, file.file, name or UNNAMED, options, reservation
        )
    return JSONResponse({"document_id": ticket.id, "document_key": ticket.key})


async def tell_status(request: Request) -> Response:
    """`POST /v2/document/{id}`: return the status of a file."""
    fields, client = await fields_and_client(request)
    identity = request.path_params["id"]
    status = service_of(request).jobs.status(identity, client, fields.needed("document_key"))
    answer: dict[str, str | int] = {"document_id": identity, "status": status.state}
    if status.state == "translating" and status.seconds_remaining is not None:
        answer["seconds_remaining"] = round(status.seconds_remaining)
    if status.state == "done":
        answer["billed_characters"] = status.billed_characters
    if status.state == "error":
        answer["error_message"] = status.message
    return JSONResponse(answer)


async def fetch(request: Request) -> Response:
    """`POST /v2/document/{id}/result`: return the translated file, and delete it."""
    fields, client = await fields_and_client(request)
    jobs, identity = service_of(request).jobs, request.path_params["id"]
    key = fields.needed("document_key")
    status = jobs.status(identity, client, key)
    if not status.finished:
        raise RequestError(503, "Document not ready; query its status until it is done")
    if status.state != "done":
        raise RequestError(404, f"Document not found: it was not translated. {status.message}")
    delete = partial(jobs.delete, identity, client, key)
    return file_answer(*jobs.result(identity, client, key), on_end=delete)
