"""The languages of the systems, as DeepL lists them: `/v2/languages` and `/v3/languages`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import name_of
from cotext.serving.deepl.asked import asked
from cotext.serving.errors import RequestError
from cotext.serving.requests import service_of
from cotext.serving.systems import System

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
