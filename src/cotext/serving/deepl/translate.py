"""`POST /v2/translate`: texts, each a document of its own or all together one, with context before them.

What Cotext cannot do is refused, not passed over: formality, styles, instructions, translation memories.
Beyond DeepL, `{"cotext": {"document": true, "system": NAME}}` makes the texts one document, or names the
system that translates; `session`, `segment` and `confirmed` there are those of `serving.sessions`, in which
each document is a segment.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import name_of
from cotext.serving.deepl.asked import (
    Asked,
    asked,
    check_formality,
    check_quota,
    glossary_entries,
    refuse_unsupported,
    systems_for,
)
from cotext.serving.errors import RequestError
from cotext.serving.fragments import SplitSentences, TagHandling
from cotext.serving.glossary_store import wishes_of
from cotext.serving.requests import service_of
from cotext.serving.sessions import SessionPlace, session_place
from cotext.serving.systems import System
from cotext.serving.translation import TranslationRequest, translated

FAST: Final = "latency_optimized"
BEST: Final = "quality_optimized"
MODEL_TYPES: Final = (BEST, FAST, "prefer_quality_optimized")
OF_SESSIONS: Final = ("session", "segment", "confirmed")
UNSUPPORTED: Final = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)


@dataclass(frozen=True, slots=True)
class _Extension:
    """What is asked beyond DeepL."""

    document: bool = False
    system: str | None = None
    place: SessionPlace | None = None


async def translate(request: Request) -> Response:
    """Answer a request for translations, as many as it has texts and in their order."""
    wanted, client = await asked(request)
    extension, service = _extension(request, wanted), service_of(request)
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
        formatted=wanted.flag("preserve_formatting"),
    )
    if not translation.texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    check_quota(service, client)
    found = await translated(request, client, translation)
    service.usage.add(client.name, sum(map(len, translation.texts)))
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


def _extension(request: Request, wanted: Asked) -> _Extension:
    """The field `cotext`, an object, in a form as JSON; and the session that headers and address name."""
    value = {} if (found := wanted.value("cotext")) is None else found
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    known = {"document": bool, "system": str}
    if not isinstance(value, dict) or not all(
        name in OF_SESSIONS or (name in known and isinstance(each, known[name]))
        for name, each in value.items()
    ):
        raise RequestError(
            400,
            "Parameter 'cotext' has to be an object of document (true or false), system, and of sessions "
            f"{', '.join(OF_SESSIONS)}",
        )
    place = session_place(request, value)
    return _Extension(value.get("document", False), value.get("system"), place)


def _tag_handling(wanted: Asked) -> TagHandling | None:
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


def _split_sentences(wanted: Asked, tags: TagHandling | None) -> SplitSentences:
    default = "nonewlines" if tags is not None and tags.kind == "html" else "1"
    value = wanted.value("split_sentences")
    if isinstance(value, bool | int):
        value = str(int(value))
    if value is not None and value not in ("0", "1", "nonewlines"):
        raise RequestError(400, "Value for 'split_sentences' not supported; choose 0, 1 or nonewlines")
    return cast(SplitSentences, value or default)


# --- The languages of the systems, as DeepL lists them: `/v2/languages` and `/v3/languages`.

# Clients refuse to ask for these without a variant; the system translates into the language that it knows.
VARIANTS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "en": (("en-GB", "English (British)"), ("en-US", "English (American)")),
    "pt": (("pt-BR", "Portuguese (Brazilian)"), ("pt-PT", "Portuguese (European)")),
}
_TRANSLATION: Final = ("translate_text", "translate_document")
# What DeepL has and Cotext has not: lists of nothing.
_WITHOUT: Final = ("voice", "write", "style_rules", "translation_memory")
RESOURCES: Final = (*_TRANSLATION, "glossary", *_WITHOUT)


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
            for code, name in _variants(target)
        ]
    )


async def list_languages_of_resource(request: Request) -> Response:
    """`GET /v3/languages`."""
    wanted, _ = await asked(request)
    resource = wanted.one_of("resource", RESOURCES)
    if not resource:
        raise RequestError(400, f"Parameter 'resource' not specified; choose {', '.join(RESOURCES)}")
    systems = service_of(request).systems
    chosen = [] if resource in _WITHOUT else _with_terms(systems) if resource == "glossary" else list(systems)
    return JSONResponse(list(_described(chosen, resource)))


async def list_resources(request: Request) -> Response:
    """`GET /v3/languages/resources`."""
    await asked(request)
    both = {"needs_source_support": True, "needs_target_support": True}
    glossary, tags = {"name": "glossary", **both}, {"name": "tag_handling", **both}
    return JSONResponse(
        [
            {"name": "translate_text", "features": [tags, glossary]},
            {"name": "translate_document", "features": [glossary]},
            {"name": "glossary", "features": []},
        ]
    )


async def list_glossary_languages(request: Request) -> Response:
    """`GET /v2/glossary-language-pairs`."""
    await asked(request)
    pairs = dict.fromkeys(system.languages for system in _with_terms(service_of(request).systems))
    return JSONResponse(
        {"supported_languages": [{"source_lang": p.source, "target_lang": p.target} for p in pairs]}
    )


def _with_terms(systems: Iterable[System]) -> list[System]:
    """The systems whose search keeps terms."""
    return [system for system in systems if system.opened.translator.takes_guides]


def _variants(code: str) -> tuple[tuple[str, str], ...]:
    """A target language as clients ask for it: each variant by code and name, itself where it has none."""
    return VARIANTS.get(code, ((code, name_of(code)),))


def _described(systems: list[System], resource: str) -> Iterator[dict[str, Any]]:
    pairs = [system.languages for system in systems]
    sources, targets = {pair.source for pair in pairs}, {pair.target for pair in pairs}
    of_terms = {
        code for each in _with_terms(systems) for code in (each.languages.source, each.languages.target)
    }
    for base in sorted(sources | targets):
        names = dict(_variants(base)) if base in targets and resource in _TRANSLATION else {}
        if base in sources or not names:
            names[base] = name_of(base)
        features = ["tag_handling"] if resource == "translate_text" else []
        features += ["glossary"] if resource in _TRANSLATION and base in of_terms else []
        for code, name in names.items():
            yield {
                "lang": code,
                "name": name,
                "usable_as_source": code in sources,
                "usable_as_target": base in targets and (code != base or base not in VARIANTS),
                "features": {feature: {"status": "stable"} for feature in features},
                "status": "stable",
            }
