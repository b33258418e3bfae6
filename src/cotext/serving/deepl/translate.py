"""`POST /v2/translate`: texts, each a document of its own or all together one, with context before them.

What Cotext cannot do is refused, not passed over: formality, styles, instructions, translation memories.
Beyond DeepL, `{"cotext": {"document": true, "system": NAME}}` makes the texts one document, or names the
system that translates; `session`, `segment` and `confirmed` there are those of `serving.sessions`, in which
each document is a segment.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.decoding.wishes import Wishes
from cotext.files.blocks import Block
from cotext.serving.deepl.asked import (
    Asked,
    asked,
    check_formality,
    refuse_unsupported,
    systems_for,
)
from cotext.serving.deepl.formatting import formatted_as
from cotext.serving.deepl.terms import glossary_entries
from cotext.serving.deepl.usage import check_quota
from cotext.serving.detection import detect
from cotext.serving.errors import RequestError
from cotext.serving.fragments import Fragment, PlainText, SplitSentences, TagHandling, fragment
from cotext.serving.glossary_store import wishes_of
from cotext.serving.requests import check_size, service_of, unless_gone
from cotext.serving.service import Client, Service, TextRequest
from cotext.serving.sessions import SessionPlace, refuse_confirmed_tags, session_place
from cotext.serving.sessions import translate as translate_in_session
from cotext.serving.systems import System

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


@dataclass(frozen=True, slots=True)
class _Document:
    """Texts that share their context, and the system that translates them."""

    system: System
    fragments: Sequence[Fragment]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of all texts, in order."""
        return tuple(block for each in self.fragments for block in each.blocks)

    def written(self, blocks: Sequence[Block], formatted: bool) -> Iterator[str]:
        """The texts with other blocks in the places of their own; `formatted`: in the form of these."""
        at = 0
        for each in self.fragments:
            others = blocks[at : at + len(each.blocks)]
            at += len(others)
            if formatted:
                language = self.system.languages.target
                others = [formatted_as(*pair, language) for pair in zip(each.blocks, others, strict=True)]
            yield each.written(others)


async def translate(request: Request) -> Response:
    """Answer a request for translations, as many as it has texts and in their order."""
    wanted, client = await asked(request)
    extension, service = _extension(request, wanted), service_of(request)
    systems = systems_for(request, wanted, extension.system)
    refuse_unsupported(wanted, UNSUPPORTED)
    check_formality(wanted, systems[0])
    model_type = wanted.one_of("model_type", MODEL_TYPES)
    tags = _tag_handling(wanted)
    if tags is not None:
        refuse_confirmed_tags(extension.place)
    split = _split_sentences(wanted, tags)
    formatted = wanted.flag("preserve_formatting")
    texts = _texts(request, wanted)
    if extension.place is not None:
        systems = await to_thread.run_sync(_of_one_language, systems, texts)
    wishes = wishes_of(glossary_entries(service, wanted, client, systems[0]))
    check_quota(service, client)
    documents = await to_thread.run_sync(_documents, texts, systems, extension.document, split, tags)
    answer = _answer(
        service, client, documents, _context(wanted), wishes, model_type == FAST, extension.place
    )
    found = await unless_gone(request, answer)
    service.usage.add(client.name, sum(map(len, texts)))
    targets = await to_thread.run_sync(_written, documents, found, formatted)
    shared: dict[str, Any] = {}
    if model_type:
        shared["model_type_used"] = FAST if model_type == FAST else BEST
    if tags is not None:
        shared["tag_handling_version"] = tags.version
    translations = [
        {"detected_source_language": source.upper(), "text": target, "billed_characters": len(text), **shared}
        for text, (target, source) in zip(texts, targets, strict=True)
    ]
    return JSONResponse({"translations": translations})


def _documents(
    texts: Sequence[str],
    systems: Sequence[System],
    together: bool,
    split: SplitSentences,
    tags: TagHandling | None,
) -> list[_Document]:
    """The documents of a request; of several source languages, each has the system of its own."""
    fragments = [fragment(text, split, tags, f"text {number}") for number, text in enumerate(texts, 1)]
    parts = [fragments] if together else [[each] for each in fragments]
    by_source = {each.languages.source: each for each in reversed(systems)}
    if len(by_source) == 1:
        return [_Document(systems[0], part) for part in parts]
    sources = list(dict.fromkeys(each.languages.source for each in systems))
    read = ["\n".join(block.text for each in part for block in each.blocks) for part in parts]
    return [
        _Document(by_source[detect(text, sources).language], part)
        for text, part in zip(read, parts, strict=True)
    ]


def _written(
    documents: Sequence[_Document], found: Sequence[Sequence[Block]], formatted: bool
) -> list[tuple[str, str]]:
    """The texts of a request with their translations in place, and the source language of each."""
    return [
        (text, document.system.languages.source)
        for document, blocks in zip(documents, found, strict=True)
        for text in document.written(blocks, formatted)
    ]


def _of_one_language(systems: Sequence[System], texts: Sequence[str]) -> list[System]:
    """The systems for the language of all texts together, as those of a session are in one."""
    sources = list(dict.fromkeys(each.languages.source for each in systems))
    source = detect("\n".join(texts), sources).language if len(sources) > 1 else sources[0]
    return [each for each in systems if each.languages.source == source]


async def _answer(
    service: Service,
    client: Client,
    documents: Sequence[_Document],
    context: tuple[Block, ...],
    wishes: Wishes,
    fast: bool,
    place: SessionPlace | None,
) -> list[Sequence[Block]]:
    """The blocks of the documents, translated with what comes before each, by the system of each."""
    found: dict[int, Sequence[Block]] = {}
    for name in dict.fromkeys(each.system.name for each in documents):
        chosen = {number: each for number, each in enumerate(documents) if each.system.name == name}
        blocks = tuple((*context, *each.blocks) for each in chosen.values())
        asked_for = TextRequest(service.systems.named(name), blocks, wishes, fast=fast)
        answer = await translate_in_session(service, asked_for, client, place)
        found |= {n: each[len(context) :] for n, each in zip(chosen, answer.documents, strict=True)}
    return [found[number] for number in range(len(documents))]


def _texts(request: Request, wanted: Asked) -> list[str]:
    texts = wanted.texts("text")
    if not texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    check_size(service_of(request).settings, (*texts, wanted.text("context")))
    return texts


def _context(wanted: Asked) -> tuple[Block, ...]:
    """The blocks of what is read before each document and left out of the answer."""
    text = wanted.text("context")
    blocks = PlainText(text, "1", "context").blocks if text.strip() else []
    return tuple(Block(block.pieces, block.place, translate=False) for block in blocks)


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
