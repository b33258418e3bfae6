"""`/v2/glossaries`: glossaries with one language pair each."""

import csv
import io
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.serving.deepl.translate import fields_and_client, systems_for
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import StoredGlossary
from cotext.serving.requests import Fields, service_of
from cotext.serving.terms import Entries

TSV: Final = "text/tab-separated-values"


async def create(request: Request) -> Response:
    """`POST /v2/glossaries`, for the languages of a system."""
    fields, client = await fields_and_client(request)
    name, _ = fields.needed("name"), fields.needed("source_lang")
    languages, store = systems_for(request, fields)[0].languages, service_of(request).glossaries
    made = await to_thread.run_sync(lambda: store.create(client, name, languages, _entries(fields)))
    return JSONResponse(_described(made), 201)


async def list_all(request: Request) -> Response:
    """`GET /v2/glossaries`."""
    _, client = await fields_and_client(request)
    glossaries = service_of(request).glossaries.all_of(client)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in glossaries]})


async def list_pairs(request: Request) -> Response:
    """`GET /v2/glossary-language-pairs`: languages of the systems that support terms."""
    await fields_and_client(request)
    systems = service_of(request).systems
    pairs = dict.fromkeys(system.languages for system in systems if system.opened.translator.takes_guides)
    listed = [{"source_lang": pair.source, "target_lang": pair.target} for pair in pairs]
    return JSONResponse({"supported_languages": listed})


async def get(request: Request) -> Response:
    """`GET /v2/glossaries/{id}`."""
    _, client = await fields_and_client(request)
    glossary = service_of(request).glossaries.get(client, request.path_params["id"])
    return JSONResponse(_described(glossary))


async def get_entries(request: Request) -> Response:
    """`GET /v2/glossaries/{id}/entries`."""
    _, client = await fields_and_client(request)
    accepted = request.headers.get("accept", TSV)
    if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
        raise RequestError(415, f"entries are available only as {TSV}")
    read = service_of(request).glossaries.entries
    entries = await to_thread.run_sync(read, client, request.path_params["id"])
    return Response("\n".join(map("\t".join, entries)), media_type=TSV)


async def delete(request: Request) -> Response:
    """`DELETE /v2/glossaries/{id}`."""
    _, client = await fields_and_client(request)
    await to_thread.run_sync(service_of(request).glossaries.delete, client, request.path_params["id"])
    return Response(status_code=204)


def _described(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "ready": True,
        "source_lang": glossary.languages.source,
        "target_lang": glossary.languages.target,
        "creation_time": glossary.created,
        "entry_count": glossary.entries,
    }


def _entries(fields: Fields) -> Entries:
    """Read `entries`, lines with a term and its translation; CSV may have further columns, the languages."""
    text, kind = fields.needed("entries"), fields.one_of("entries_format", ("tsv", "csv"), "tsv")
    options: dict[str, Any] = {} if kind == "csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    rows = csv.reader(io.StringIO(text, newline=""), **options)
    entries: list[tuple[str, str]] = []
    try:
        for row in rows:
            if not "".join(row).strip():
                continue
            if len(row) < 2 or (kind == "tsv" and len(row) > 2):
                message = f"line {rows.line_num} is not a term and its translation in {kind.upper()}"
                raise RequestError(400, f"Parameter 'entries': {message}")
            entries.append((row[0], row[1]))
    except csv.Error as error:
        raise RequestError(400, f"Parameter 'entries' is not {kind.upper()}: {error}") from None
    return entries
