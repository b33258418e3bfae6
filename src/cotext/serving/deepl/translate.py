"""`POST /v2/translate`: texts, each a document of its own or all together one, with context before them.

What Cotext cannot do is refused, not passed over: formality, styles, instructions, translation memories.
Beyond DeepL, `{"cotext": {"document": true, "system": NAME}}` makes the texts one document, or names the
system that translates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.files.blocks import Block
from cotext.serving.deepl.asked import (
    Asked,
    asked,
    check_formality,
    refuse_unsupported,
    system_for,
)
from cotext.serving.deepl.formatting import formatted_as
from cotext.serving.deepl.fragments import Fragment, PlainText, SplitSentences, TagHandling, fragment
from cotext.serving.deepl.terms import glossary_entries
from cotext.serving.deepl.usage import check_quota, usage_of
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import wishes_of
from cotext.serving.requests import service_of, unless_gone
from cotext.serving.service import TextRequest

FAST: Final = "latency_optimized"
BEST: Final = "quality_optimized"
MODEL_TYPES: Final = (BEST, FAST, "prefer_quality_optimized")
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


async def translate(request: Request) -> Response:
    """Answer a request for translations, as many as it has texts and in their order."""
    wanted, client = await asked(request)
    extension = _extension(wanted)
    system = system_for(request, wanted, extension.system)
    refuse_unsupported(wanted, UNSUPPORTED)
    check_formality(wanted, system)
    model_type = wanted.one_of("model_type", MODEL_TYPES)
    tags = _tag_handling(wanted)
    split = _split_sentences(wanted, tags)
    formatted_for = system.languages.target if wanted.flag("preserve_formatting") else None
    texts = _texts(request, wanted)
    check_quota(request, client.name)
    fragments = await to_thread.run_sync(_fragments, texts, split, tags)
    context = _context(wanted)
    ends = [len(fragments)] if extension.document else range(1, len(fragments) + 1)
    parts = [fragments[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
    service = service_of(request)
    text_request = TextRequest(
        system,
        tuple((*context, *(block for each in part for block in each.blocks)) for part in parts),
        wishes_of(glossary_entries(service, wanted, client, system)),
        fast=model_type == FAST,
    )
    answer = await unless_gone(request, service.translate(text_request, client))
    translated = [
        text
        for part, blocks in zip(parts, answer.documents, strict=True)
        for text in _written(part, blocks[len(context) :], formatted_for)
    ]
    usage_of(request).add(client.name, sum(map(len, texts)))
    shared: dict[str, Any] = {"detected_source_language": system.languages.source.upper()}
    if model_type:
        shared["model_type_used"] = FAST if model_type == FAST else BEST
    if tags is not None:
        shared["tag_handling_version"] = tags.version
    return JSONResponse(
        {
            "translations": [
                {**shared, "text": target, "billed_characters": len(text)}
                for text, target in zip(texts, translated, strict=True)
            ]
        }
    )


def _fragments(texts: Sequence[str], split: SplitSentences, tags: TagHandling | None) -> list[Fragment]:
    return [fragment(text, split, tags, f"text {number}") for number, text in enumerate(texts, 1)]


def _written(fragments: Sequence[Fragment], blocks: Sequence[Block], language: str | None) -> Iterator[str]:
    """The texts of a document with their translations; in a `language`, formatted as their sources."""
    at = 0
    for each in fragments:
        own = blocks[at : at + len(each.blocks)]
        at += len(own)
        if language is not None:
            own = [formatted_as(*pair, language) for pair in zip(each.blocks, own, strict=True)]
        yield each.written(own)


def _texts(request: Request, wanted: Asked) -> list[str]:
    texts = wanted.texts("text")
    if not texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    most = service_of(request).settings.max_text_bytes
    try:
        size = sum(len(text.encode()) for text in (*texts, wanted.text("context")))
    except UnicodeEncodeError:
        raise RequestError(400, "Parameter 'text' holds half characters, which are no Unicode") from None
    if size > most:
        raise RequestError(
            413, f"{size:,} bytes of text, and {most:,} at most; send fewer texts, or a file to /v2/document"
        )
    return texts


def _context(wanted: Asked) -> tuple[Block, ...]:
    """The blocks of what is read before each document and left out of the answer."""
    text = wanted.text("context")
    blocks = PlainText(text, "1", "context").blocks if text.strip() else []
    return tuple(Block(block.pieces, block.place, translate=False) for block in blocks)


def _extension(wanted: Asked) -> _Extension:
    """The field `cotext`, of JSON alone."""
    value = wanted.value("cotext")
    if value is None:
        return _Extension()
    known = {"document": bool, "system": str}
    if not isinstance(value, dict) or not all(
        name in known and isinstance(each, known[name]) for name, each in value.items()
    ):
        raise RequestError(400, "Parameter 'cotext' has to be an object of document (true or false), system")
    return _Extension(value.get("document", False), value.get("system"))


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
