"""The DeepL API, version 2: texts, documents, glossaries, languages and usage.

Requests with unsupported options (styles, instructions, translation memories, other output formats) are
rejected with status 400, and the message names the option. The values `more` and `less` of `formality` are
rejected, too; the message names the value to use instead.
"""

import csv
import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cotext.data.documents import name_of
from cotext.serving.own_api import file_answer, received_file
from cotext.serving.record import RequestError
from cotext.serving.requests import Fields, client_of, header_key, read_fields, service_of
from cotext.serving.state import Entries, JobOptions, StoredGlossary, terminology_of
from cotext.serving.systems import System
from cotext.serving.translation import (
    SplitSentences,
    TagHandling,
    TranslationRequest,
    also_in_sessions,
    code_of,
    extension_of,
    translate_texts,
)


def routes() -> list[Route]:
    return also_in_sessions(
        [
            Route("/v2/translate", translate, methods=["POST"]),
            Route("/v2/document", send_document, methods=["POST"]),
            Route("/v2/document/{id}", get_document_status, methods=["POST"]),
            Route("/v2/document/{id}/result", fetch_document, methods=["POST"]),
            Route("/v2/languages", list_languages, methods=["GET"]),
            Route("/v2/usage", get_usage, methods=["GET"]),
            Route("/v2/glossary-language-pairs", list_glossary_pairs, methods=["GET"]),
            Route("/v2/glossaries", create_glossary, methods=["POST"]),
            Route("/v2/glossaries", list_glossaries, methods=["GET"]),
            Route("/v2/glossaries/{id}", get_glossary, methods=["GET"]),
            Route("/v2/glossaries/{id}", delete_glossary, methods=["DELETE"]),
            Route("/v2/glossaries/{id}/entries", get_glossary_entries, methods=["GET"]),
        ]
    )


# --- Fields that several requests of the DeepL API have: key, languages, glossaries, unsupported options.

_SCHEME: Final = "deepl-auth-key"


async def fields_and_client(request: Request) -> tuple[Fields, str]:
    fields = await read_fields(request)
    # Old clients send the key in a field.
    return fields, client_of(request, header_key(request, _SCHEME) or fields.text("auth_key") or None)


def systems_for(request: Request, fields: Fields, name: str | None = None) -> list[System]:
    """Return the systems for the languages of a request, or only the one with this name.

    Raises RequestError: 400, a language is missing or not supported; 404, the name is unknown.
    """
    target = code_of(fields.needed("target_lang"), "Value for 'target_lang' not supported.")
    source = fields.text("source_lang") or None
    if source is not None:
        source = code_of(source, "Value for 'source_lang' not supported.")
    return service_of(request).systems.translating(source, target, name)


UNSUPPORTED: Final = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)
FORMALITIES: Final = ("default", "more", "less", "prefer_more", "prefer_less")


def refuse_unsupported(fields: Fields, system: System) -> None:
    """Raise RequestError 400 if a request has an unsupported field, or the formality `more` or `less`."""
    for name in UNSUPPORTED:
        if name in fields:
            raise RequestError(400, f"Parameter '{name}' is not supported by this server")
    formality = fields.one_of("formality", FORMALITIES, "default")
    if formality in ("more", "less"):
        target = system.languages.target.upper()
        message = f"does not support formality; use prefer_{formality}"
        raise RequestError(400, f"Target language {target} {message}")


MAX_GLOSSARIES: Final = 5  # of a request


async def glossary_entries(
    request: Request, fields: Fields, client: str, system: System
) -> tuple[tuple[str, str], ...]:
    """Return the entries of the glossaries of a request; the first glossary with a term counts.

    Raises RequestError: 400, there are too many ids, the source language is missing, or a glossary is for
    other languages; 404, an id is unknown.
    """
    ids = [*fields.names("glossary_id"), *fields.names("glossary_ids")]
    if not ids:
        return ()
    if len(ids) > MAX_GLOSSARIES:
        raise RequestError(400, f"Parameter 'glossary_ids' may contain at most {MAX_GLOSSARIES} ids")
    fields.needed("source_lang")
    store, languages = service_of(request).glossaries, system.languages
    entries: dict[str, str] = {}
    for identity in reversed(ids):
        if store.get(client, identity).languages != languages:
            raise RequestError(400, f"the languages of the glossary are not {languages}")
        entries |= await to_thread.run_sync(store.entries, client, identity)
    return tuple(entries.items())


UNLIMITED: Final = 10**12  # characters; DeepL's value for no limit


async def get_usage(request: Request) -> Response:
    """`GET /v2/usage`: usage is not counted."""
    await fields_and_client(request)
    return JSONResponse({"character_count": 0, "character_limit": UNLIMITED})


# --- `POST /v2/translate`: texts with preceding context; each text is a document, or all are one document.
#
# An extension to DeepL is the field `{"cotext": {"document": true, "system": NAME}}`. It makes the texts one
# document, or selects the system. `session`, `segment` and `confirmed` in it are described in
# `cotext.serving.translation`; each document is a segment.

BEST: Final = "quality_optimized"
MODEL_TYPES: Final = (BEST, "latency_optimized", "prefer_quality_optimized")


async def translate(request: Request) -> Response:
    """`POST /v2/translate`: return a translation for each text."""
    fields, client = await fields_and_client(request)
    together, system, place = extension_of(request, fields)
    systems = systems_for(request, fields, system)
    refuse_unsupported(fields, systems[0])
    model_type = fields.one_of("model_type", MODEL_TYPES)
    tags = _tag_handling(fields)
    tags_version = fields.one_of("tag_handling_version", ("v1", "v2"), "v1")
    translation = TranslationRequest(
        fields.texts("text"),
        systems,
        together,
        place,
        _split_sentences(fields, tags),
        tags,
        fields.text("context"),
        terminology_of(await glossary_entries(request, fields, client, systems[0])),
    )
    if not translation.texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    results = await translate_texts(request, client, translation)
    shared: dict[str, Any] = {}
    if model_type:
        shared["model_type_used"] = BEST
    if tags is not None:
        shared["tag_handling_version"] = tags_version
    translations = [
        {
            "detected_source_language": result.source.language.upper(),
            "text": result.text,
            "billed_characters": len(text),
            **shared,
        }
        for text, result in zip(translation.texts, results, strict=True)
    ]
    return JSONResponse({"translations": translations})


def _tag_handling(fields: Fields) -> TagHandling | None:
    kind = fields.one_of("tag_handling", ("xml", "html"))
    if not kind:
        return None
    splitting, not_splitting, ignored = (
        frozenset(name.lower() for name in fields.names(field))
        for field in ("splitting_tags", "non_splitting_tags", "ignore_tags")
    )
    outline = fields.flag("outline_detection", True)
    return TagHandling(kind, outline, splitting, not_splitting, ignored)


def _split_sentences(fields: Fields, tags: TagHandling | None) -> SplitSentences:
    default = "nonewlines" if tags is not None and tags.kind == "html" else "1"
    value = fields.value("split_sentences")
    if isinstance(value, bool | int):
        value = str(int(value))
    if value is not None and value not in ("0", "1", "nonewlines"):
        raise RequestError(400, "Value for 'split_sentences' not supported; choose 0, 1 or nonewlines")
    return cast(SplitSentences, value or default)


# --- Languages.

# Clients request these only with a variant; all variants map to the language of the system.
VARIANTS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "en": (("en-GB", "English (British)"), ("en-US", "English (American)")),
    "pt": (("pt-BR", "Portuguese (Brazilian)"), ("pt-PT", "Portuguese (European)")),
}


async def list_languages(request: Request) -> Response:
    """`GET /v2/languages`; `type` may be in the query string or in a body."""
    fields, _ = await fields_and_client(request)
    kind = fields.one_of("type", ("source", "target"), "source")
    systems = service_of(request).systems
    if kind == "source":
        sources = sorted({system.languages.source for system in systems})
        return JSONResponse([{"language": code.upper(), "name": name_of(code)} for code in sources])
    targets = sorted({system.languages.target for system in systems})
    return JSONResponse(
        [
            {"language": code.upper(), "name": name, "supports_formality": False}
            for target in targets
            # The variants of a target language, or the language itself.
            for code, name in VARIANTS.get(target, ((target, name_of(target)),))
        ]
    )


# --- `/v2/document`: upload a file, query its status, and download the result once.

UNNAMED: Final = "file"  # name that clients give to a file without a name


async def send_document(request: Request) -> Response:
    """`POST /v2/document`: receive a file; the API key must be in the header, and is checked first."""
    client, service = client_of(request, header_key(request, _SCHEME)), service_of(request)
    async with received_file(request, client) as (file, fields, reservation):
        system, *others = systems_for(request, fields)
        if any(other.languages.source != system.languages.source for other in others):
            fields.needed("source_lang")  # the language of a file is not detected
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


async def get_document_status(request: Request) -> Response:
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


async def fetch_document(request: Request) -> Response:
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


# --- `/v2/glossaries`: glossaries with one language pair each.

TSV: Final = "text/tab-separated-values"


async def create_glossary(request: Request) -> Response:
    """`POST /v2/glossaries`, for the languages of a system."""
    fields, client = await fields_and_client(request)
    name, _ = fields.needed("name"), fields.needed("source_lang")
    languages, store = systems_for(request, fields)[0].languages, service_of(request).glossaries
    made = await to_thread.run_sync(lambda: store.create(client, name, languages, _entries(fields)))
    return JSONResponse(_described(made), 201)


async def list_glossaries(request: Request) -> Response:
    """`GET /v2/glossaries`."""
    _, client = await fields_and_client(request)
    glossaries = service_of(request).glossaries.all_of(client)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in glossaries]})


async def list_glossary_pairs(request: Request) -> Response:
    """`GET /v2/glossary-language-pairs`: languages of the systems that support terms."""
    await fields_and_client(request)
    systems = service_of(request).systems
    pairs = dict.fromkeys(system.languages for system in systems if system.opened.translator.supports_terms)
    listed = [{"source_lang": pair.source, "target_lang": pair.target} for pair in pairs]
    return JSONResponse({"supported_languages": listed})


async def get_glossary(request: Request) -> Response:
    """`GET /v2/glossaries/{id}`."""
    _, client = await fields_and_client(request)
    glossary = service_of(request).glossaries.get(client, request.path_params["id"])
    return JSONResponse(_described(glossary))


async def get_glossary_entries(request: Request) -> Response:
    """`GET /v2/glossaries/{id}/entries`."""
    _, client = await fields_and_client(request)
    accepted = request.headers.get("accept", TSV)
    if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
        raise RequestError(415, f"entries are available only as {TSV}")
    read = service_of(request).glossaries.entries
    entries = await to_thread.run_sync(read, client, request.path_params["id"])
    return Response("\n".join(map("\t".join, entries)), media_type=TSV)


async def delete_glossary(request: Request) -> Response:
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
    """Read `entries`, lines with a term and its translation; further CSV columns are skipped."""
    text, kind = fields.needed("entries"), fields.one_of("entries_format", ("tsv", "csv"), "tsv")
    options: dict[str, Any] = {} if kind == "csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), **options)
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
