"""`POST /v2/translate`: texts, each a document of its own or all together one, with context before them.

What Cotext cannot do is refused, not passed over: formality, styles, instructions, translation memories.
Beyond DeepL, `{"cotext": {"document": true, "system": NAME}}` makes the texts one document, or names the
system that translates; `session`, `segment` and `confirmed` there are those of `serving.sessions`, in which
each document is a segment.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import name_of
from cotext.serving.deepl.asked import (
    asked,
    check_formality,
    glossary_entries,
    refuse_unsupported,
    systems_for,
)
from cotext.serving.errors import RequestError
from cotext.serving.fragments import SplitSentences, TagHandling
from cotext.serving.glossary_store import wishes_of
from cotext.serving.requests import Fields, service_of
from cotext.serving.translation import TranslationRequest, extension_of, translated

FAST: Final = "latency_optimized"
BEST: Final = "quality_optimized"
MODEL_TYPES: Final = (BEST, FAST, "prefer_quality_optimized")
UNSUPPORTED: Final = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)


async def translate(request: Request) -> Response:
    """Answer a request for translations, as many as it has texts and in their order."""
    wanted, client = await asked(request)
    extension, service = extension_of(request, wanted), service_of(request)
    systems = systems_for(request, wanted, extension.system)
    refuse_unsupported(wanted, UNSUPPORTED)
    check_formality(wanted, systems[0])
    model_type = wanted.one_of("model_type", MODEL_TYPES)
    tags = _tag_handling(wanted)
    translation = TranslationRequest(
        wanted.texts("text"),
        systems,
        extension.document,
        extension.place,
        _split_sentences(wanted, tags),
        tags,
        wanted.text("context"),
        wishes_of(glossary_entries(service, wanted, client, systems[0])),
        fast=model_type == FAST,
    )
    if not translation.texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    found = await translated(request, client, translation)
    shared: dict[str, Any] = {}
    if model_type:
        shared["model_type_used"] = FAST if model_type == FAST else BEST
    if tags is not None:
        shared["tag_handling_version"] = tags.version
    translations = [
        {
            "detected_source_language": each.source.language.upper(),
            "text": each.text,
            "billed_characters": len(text),
            **shared,
        }
        for text, each in zip(translation.texts, found, strict=True)
    ]
    return JSONResponse({"translations": translations})


def _tag_handling(wanted: Fields) -> TagHandling | None:
    kind = wanted.one_of("tag_handling", ("xml", "html"))
    version = wanted.one_of("tag_handling_version", ("v1", "v2"), "v1")
    if not kind:
        return None
    splitting, not_splitting, ignored = (
        frozenset(name.lower() for name in wanted.names(field))
        for field in ("splitting_tags", "non_splitting_tags", "ignore_tags")
    )
    outline = wanted.flag("outline_detection", True)
    return TagHandling(kind, version == "v2", outline, splitting, not_splitting, ignored)


def _split_sentences(wanted: Fields, tags: TagHandling | None) -> SplitSentences:
    default = "nonewlines" if tags is not None and tags.kind == "html" else "1"
    value = wanted.value("split_sentences")
    if isinstance(value, bool | int):
        value = str(int(value))
    if value is not None and value not in ("0", "1", "nonewlines"):
        raise RequestError(400, "Value for 'split_sentences' not supported; choose 0, 1 or nonewlines")
    return cast(SplitSentences, value or default)


# --- The languages of the systems, as DeepL lists them.

# Clients refuse to ask for these without a variant; the system translates into the language that it knows.
VARIANTS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "en": (("en-GB", "English (British)"), ("en-US", "English (American)")),
    "pt": (("pt-BR", "Portuguese (Brazilian)"), ("pt-PT", "Portuguese (European)")),
}


async def list_languages(request: Request) -> Response:
    """`GET /v2/languages`; `type` comes in the address, or in a body."""
    wanted, _ = await asked(request)
    kind = wanted.one_of("type", ("source", "target"), "source")
    systems = service_of(request).systems
    if kind == "source":
        sources = sorted({system.languages.source for system in systems})
        return JSONResponse([{"language": code.upper(), "name": name_of(code)} for code in sources])
    targets = sorted({system.languages.target for system in systems})
    return JSONResponse(
        [
            {"language": code.upper(), "name": name, "supports_formality": False}
            for target in targets
            # A target language as clients ask for it: each variant, itself where it has none.
            for code, name in VARIANTS.get(target, ((target, name_of(target)),))
        ]
    )


async def list_glossary_languages(request: Request) -> Response:
    """`GET /v2/glossary-language-pairs`."""
    await asked(request)
    systems = service_of(request).systems
    # Those whose search keeps terms.
    pairs = dict.fromkeys(each.languages for each in systems if each.opened.translator.takes_guides)
    return JSONResponse(
        {"supported_languages": [{"source_lang": p.source, "target_lang": p.target} for p in pairs]}
    )
