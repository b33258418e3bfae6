"""`/v2/glossaries`: glossaries with one language pair each."""

import csv
import io
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import Languages
from cotext.runtime.errors import shown
from cotext.serving.deepl.translate import fields_and_client, language_of
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import Entries, StoredGlossary
from cotext.serving.requests import Fields, service_of

FORMATS: Final = ("tsv", "csv")
TSV: Final = "text/tab-separated-values"


async def create(request: Request) -> Response:
    """`POST /v2/glossaries`."""
    fields, client = await fields_and_client(request)
    name, languages, entries = fields.needed("name"), _languages(fields), _entries(fields)
    store = service_of(request).glossaries
    made = await to_thread.run_sync(partial(store.create, client.name, name, languages, entries))
    return JSONResponse(_described(made), 201)


async def list_all(request: Request) -> Response:
    """`GET /v2/glossaries`."""
    _, client = await fields_and_client(request)
    glossaries = service_of(request).glossaries.all_of(client.name)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in glossaries]})


async def get(request: Request) -> Response:
    """`GET /v2/glossaries/{id}`."""
    _, client = await fields_and_client(request)
    return JSONResponse(
        _described(service_of(request).glossaries.get(client.name, request.path_params["id"]))
    )


async def get_entries(request: Request) -> Response:
    """`GET /v2/glossaries/{id}/entries`."""
    _, client = await fields_and_client(request)
    accepted = request.headers.get("accept", TSV)
    if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
        raise RequestError(415, f"entries are available only as {TSV}")
    entries = service_of(request).glossaries.entries(client.name, request.path_params["id"])
    content = "\n".join(f"{source}\t{target}" for source, target in entries)
    return Response(content, media_type=TSV)


async def delete(request: Request) -> Response:
    """`DELETE /v2/glossaries/{id}`."""
    _, client = await fields_and_client(request)
    service_of(request).glossaries.delete(client.name, request.path_params["id"])
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


def _languages(fields: Fields) -> Languages:
    source, target = (
        language_of(fields.needed(name), name).lower() for name in ("source_lang", "target_lang")
    )
    return Languages(source, target)


def _entries(fields: Fields) -> Entries:
    text = fields.needed("entries")
    kind = fields.one_of("entries_format", FORMATS, "tsv")
    entries = list(_of_tsv(text) if kind == "tsv" else _of_csv(text))
    if not entries:
        raise RequestError(400, "Parameter 'entries' contains no entry")
    return entries


def _of_tsv(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 2:
            raise _malformed(number, line, "a term, a tab and its translation")
        yield cells[0], cells[1]


def _of_csv(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a CSV text; further columns may contain the languages."""
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in rows:
            if not "".join(row).strip():
                continue
            if len(row) < 2:
                raise _malformed(rows.line_num, ",".join(row), "a term, a comma and its translation")
            yield row[0], row[1]
    except csv.Error as error:
        raise RequestError(400, f"Parameter 'entries' is not CSV: {error}") from None


def _malformed(line: int, content: str, expected: str) -> RequestError:
    return RequestError(400, f"Parameter 'entries', line {line}: {shown(content)} is not {expected}")
