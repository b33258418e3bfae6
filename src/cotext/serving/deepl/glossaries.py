"""Glossaries in DeepL's way: `/v2/glossaries`, of one dictionary each, and `/v3/glossaries`, of any number.

Both are the same store: a glossary of one dictionary is there for both.
"""

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
from cotext.serving.deepl.asked import Asked, asked, language_of
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import Entries, StoredGlossary
from cotext.serving.requests import service_of

FORMATS: Final = ("tsv", "csv")
TSV: Final = "text/tab-separated-values"


# --- one dictionary: v2


async def create(request: Request) -> Response:
    """`POST /v2/glossaries`."""
    wanted, client = await asked(request)
    name, languages, entries = wanted.needed("name"), _languages(wanted), _entries(wanted)
    store = service_of(request).glossaries
    made = await to_thread.run_sync(partial(store.create, client.name, name, {languages: entries}))
    return JSONResponse(_of_one(made), 201)


async def list_all(request: Request) -> Response:
    """`GET /v2/glossaries`."""
    _, client = await asked(request)
    found = service_of(request).glossaries.all_of(client.name)
    return JSONResponse({"glossaries": [_of_one(each) for each in found if len(each.dictionaries) == 1]})


async def get(request: Request) -> Response:
    """`GET /v2/glossaries/{id}`."""
    return JSONResponse(_of_one(await _one(request)))


async def get_entries(request: Request) -> Response:
    """`GET /v2/glossaries/{id}/entries`."""
    _, client = await asked(request)
    accepted = request.headers.get("accept", TSV)
    if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
        raise RequestError(415, f"entries are told as {TSV} alone")
    found = await _one(request)
    languages = found.dictionaries[0].languages
    entries = service_of(request).glossaries.entries(client.name, found.id, languages)
    return Response(_as_tsv(entries), media_type=TSV)


async def delete(request: Request) -> Response:
    """`DELETE /v2/glossaries/{id}` and `/v3/glossaries/{id}`."""
    _, client = await asked(request)
    service_of(request).glossaries.delete(client.name, request.path_params["id"])
    return Response(status_code=204)


async def _one(request: Request) -> StoredGlossary:
    _, client = await asked(request)
    found = service_of(request).glossaries.get(client.name, request.path_params["id"])
    if len(found.dictionaries) != 1:
        raise RequestError(404, "this glossary has several dictionaries, or none: see /v3/glossaries")
    return found


def _of_one(found: StoredGlossary) -> dict[str, Any]:
    [dictionary] = found.dictionaries
    return {
        "glossary_id": found.id,
        "name": found.name,
        "ready": True,
        "source_lang": dictionary.languages.source,
        "target_lang": dictionary.languages.target,
        "creation_time": found.created,
        "entry_count": dictionary.entries,
    }


# --- any number of dictionaries: v3


async def create_multilingual(request: Request) -> Response:
    """`POST /v3/glossaries`."""
    wanted, client = await asked(request)
    name, dictionaries = wanted.needed("name"), dict(_dictionaries(wanted))
    store = service_of(request).glossaries
    made = await to_thread.run_sync(partial(store.create, client.name, name, dictionaries))
    return JSONResponse(_of_any(made), 201)


async def list_multilingual(request: Request) -> Response:
    """`GET /v3/glossaries`."""
    _, client = await asked(request)
    found = service_of(request).glossaries.all_of(client.name)
    return JSONResponse({"glossaries": [_of_any(each) for each in found]})


async def get_multilingual(request: Request) -> Response:
    """`GET /v3/glossaries/{id}`."""
    _, client = await asked(request)
    return JSONResponse(_of_any(service_of(request).glossaries.get(client.name, request.path_params["id"])))


async def edit_multilingual(request: Request) -> Response:
    """`PATCH /v3/glossaries/{id}`: another name, entries that are added to a dictionary or replace some."""
    wanted, client = await asked(request)
    store, identity = service_of(request).glossaries, request.path_params["id"]
    dictionaries = _dictionaries(wanted)
    if len(dictionaries) > 1:
        raise RequestError(400, "Parameter 'dictionaries' may hold one dictionary here")
    name = wanted.needed("name") if "name" in wanted else None
    for languages, entries in dictionaries:
        put = partial(store.put, client.name, identity, languages, entries, merge=True, name=name)
        await to_thread.run_sync(put)
    if name is not None and not dictionaries:
        store.rename(client.name, identity, name)
    return JSONResponse(_of_any(store.get(client.name, identity)))


async def get_dictionary(request: Request) -> Response:
    """`GET /v3/glossaries/{id}/entries`: those of one language pair."""
    wanted, client = await asked(request)
    languages = _languages(wanted)
    entries = service_of(request).glossaries.entries(client.name, request.path_params["id"], languages)
    told = {**_pair(languages), "entries": _as_tsv(entries), "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [told]})


async def replace_dictionary(request: Request) -> Response:
    """`PUT /v3/glossaries/{id}/dictionaries`: all entries of a language pair."""
    wanted, client = await asked(request)
    languages, entries = _languages(wanted), _entries(wanted)
    store = service_of(request).glossaries
    put = partial(store.put, client.name, request.path_params["id"], languages, entries)
    await to_thread.run_sync(put)
    return JSONResponse({**_pair(languages), "entry_count": len(entries)})


async def delete_dictionary(request: Request) -> Response:
    """`DELETE /v3/glossaries/{id}/dictionaries`."""
    wanted, client = await asked(request)
    service_of(request).glossaries.remove(client.name, request.path_params["id"], _languages(wanted))
    return Response(status_code=204)


def _of_any(found: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": found.id,
        "name": found.name,
        "dictionaries": [
            {**_pair(each.languages), "entry_count": each.entries} for each in found.dictionaries
        ],
        "creation_time": found.created,
    }


def _pair(languages: Languages) -> dict[str, str]:
    return {"source_lang": languages.source, "target_lang": languages.target}


def _dictionaries(wanted: Asked) -> list[tuple[Languages, Entries]]:
    return [(_languages(each), _entries(each)) for each in wanted.objects("dictionaries")]


# --- entries


def _languages(wanted: Asked) -> Languages:
    source, target = (
        language_of(wanted.needed(name), name).lower() for name in ("source_lang", "target_lang")
    )
    return Languages(source, target)


def _entries(wanted: Asked) -> Entries:
    text = wanted.needed("entries")
    kind = wanted.one_of("entries_format", FORMATS, "tsv")
    entries = list(_of_tsv(text) if kind == "tsv" else _of_csv(text))
    if not entries:
        raise RequestError(400, "Parameter 'entries' holds no entry")
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
    """Rows of a term and its translation; columns with their languages may follow."""
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in rows:
            if not "".join(row).strip():
                continue
            if len(row) < 2:
                raise _malformed(rows.line_num, ",".join(row), "a term, a comma and its translation")
            yield row[0], row[1]
    except csv.Error as error:
        raise RequestError(400, f"Parameter 'entries' is no CSV: {error}") from None


def _malformed(line: int, content: str, wanted: str) -> RequestError:
    return RequestError(400, f"Parameter 'entries', line {line}: {shown(content)} is not {wanted}")


def _as_tsv(entries: Entries) -> str:
    return "\n".join(f"{source}\t{target}" for source, target in entries)
