"""`POST /v2/translate`: texts with preceding context; each text is a document, or all are one document.

An extension to DeepL is the field `{"cotext": {"document": true, "system": NAME}}`. It makes the texts one
document, or selects the system. `session`, `segment` and `confirmed` in it are described in
`cotext.serving.sessions`; each document is a segment.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.documents import name_of
from cotext.serving.errors import RequestError
from cotext.serving.fragments import SplitSentences, TagHandling
from cotext.serving.requests import Fields, client_of, read_fields, service_of
from cotext.serving.systems import System
from cotext.serving.terms import terminology_of
from cotext.serving.translation import TranslationRequest, code_of, extension_of, translate_texts

# --- Fields that several requests of the DeepL API have: key, languages, glossaries, unsupported options.

_SCHEME = "deepl-auth-key "


async def fields_and_client(request: Request) -> tuple[Fields, str]:
    fields = await read_fields(request)
    # Old clients send the key in a field.
    return fields, client_of(request, header_key(request) or fields.text("auth_key") or None)


def header_key(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None


def systems_for(request: Request, fields: Fields, name: str | None = None) -> list[System]:
    """Return the systems for the languages of a request, or only the one with this name.

    Raises:
        RequestError: 400, a language is missing or not supported; 404, the name is unknown.
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
    """Return the entries of the glossaries in `glossary_id` and `glossary_ids`; the first with a term counts.

    Raises:
        RequestError: 400, there are too many ids, the source language is missing, or a glossary is for other
            languages; 404, an id is unknown.
    """
    ids = [*fields.names("glossary_id"), *fields.names("glossary_ids")]
    if not ids:
        return ()
    if len(ids) > MAX_GLOSSARIES:
        raise RequestError(400, f"Parameter 'glossary_ids' may contain {MAX_GLOSSARIES} ids at most")
    fields.needed("source_lang")
    store, languages = service_of(request).glossaries, system.languages
    entries: dict[str, str] = {}
    for identity in reversed(ids):
        if store.get(client, identity).languages != languages:
            raise RequestError(400, f"the languages of the glossary are not {languages}")
        entries |= await to_thread.run_sync(store.entries, client, identity)
    return tuple(entries.items())


UNLIMITED: Final = 10**12  # characters; DeepL's value for no limit


async def tell_usage(request: Request) -> Response:
    """`GET /v2/usage`: usage is not counted."""
    await fields_and_client(request)
    return JSONResponse({"character_count": 0, "character_limit": UNLIMITED})


# --- Texts.

BEST: Final = "quality_optimized"
MODEL_TYPES: Final = (BEST, "latency_optimized", "prefer_quality_optimized")


async def translate(request: Request) -> Response:
    """`POST /v2/translate`: return a translation for each text."""
    fields, client = await fields_and_client(request)
    extension = extension_of(request, fields)
    systems = systems_for(request, fields, extension.system)
    refuse_unsupported(fields, systems[0])
    model_type = fields.one_of("model_type", MODEL_TYPES)
    tags = _tag_handling(fields)
    tags_version = fields.one_of("tag_handling_version", ("v1", "v2"), "v1")
    translation = TranslationRequest(
        fields.texts("text"),
        systems,
        extension.document,
        extension.place,
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
    """`GET /v2/languages`; `type` may be in the address or in a body."""
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
