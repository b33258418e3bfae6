"""The request for a translation that all APIs build, and the function that answers it."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Literal

from anyio import to_thread
from starlette.requests import Request

from cotext.data.documents import language_code, language_identifier
from cotext.files.blocks import Block
from cotext.files.markup import BLOCKS, ElementRules, Markup, tokens
from cotext.runtime import CotextError
from cotext.serving.record import RequestError
from cotext.serving.requests import IN_LOOP_BYTES, Fields, check_size, service_of, unless_gone
from cotext.serving.service import TextRequest
from cotext.serving.sessions import SessionPlace, refuse_confirmed_tags, session_place, translate
from cotext.serving.systems import System
from cotext.translation.open import Wishes

# --- Texts of a request as blocks, with or without tags.
#
# In plain text, each line is a block. Text with tags is read like pages (`files.markup`). XML is divided at
# the given tags. With outline detection, it is also divided at other elements, unless they are next to text
# or inside an element next to text. Such elements are part of a sentence.

SplitSentences = Literal["0", "1", "nonewlines"]
_LINE_ENDS: Final = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class TagHandling:
    """Options for tags; `kind`: "xml" or "html"; names in lower case."""

    kind: str
    outline: bool = True
    splitting: frozenset[str] = frozenset()
    not_splitting: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


class PlainText:
    """Text without tags: one block, or one block per line if lines end sentences."""

    def __init__(self, text: str, split: SplitSentences, place: str) -> None:
        self._parts = _LINE_ENDS.split(text) if split == "1" else [text]
        self.blocks = [
            Block((line,), place or f"line {number}", split=split != "0")
            for number, line in enumerate(self._parts[::2], 1)
        ]

    def written(self, blocks: Sequence[Block]) -> str:
        ends = [*self._parts[1::2], ""]
        return "".join(block.text + end for block, end in zip(blocks, ends, strict=True))


class TaggedText:
    """A document or fragment of XML or HTML."""

    def __init__(self, text: str, split: SplitSentences, tags: TagHandling, place: str) -> None:
        self._markup = Markup(text, tags.kind == "xml", _rules(text, split, tags))
        self.blocks = [replace(block, place=place, split=split != "0") for block in self._markup.blocks]

    def written(self, blocks: Sequence[Block]) -> str:
        return self._markup.written(blocks)


Fragment = PlainText | TaggedText


def fragment(text: str, split: SplitSentences, tags: TagHandling | None, place: str) -> Fragment:
    """Read a text of a request; `place`: its name in messages."""
    return PlainText(text, split, place) if tags is None else TaggedText(text, split, tags, place)


def _rules(text: str, split: SplitSentences, tags: TagHandling) -> ElementRules:
    if tags.kind == "html":
        blocks = (BLOCKS | tags.splitting) - tags.not_splitting
        return ElementRules(blocks, ignored=tags.ignored, attributes=False, lines=split == "1")
    outline = _outline(text) if tags.outline else frozenset()
    nothing: frozenset[str] = frozenset()
    return ElementRules(
        (outline | tags.splitting) - tags.not_splitting,
        copied=nothing,
        left=nothing,
        ignored=tags.ignored,
        attributes=False,
        spaced=True,
        lines=split == "1",
        html=False,
    )


@dataclass(slots=True)
class _Element:
    name: str
    around: int  # index of the parent element
    has_text: bool = False  # whether text is a direct child


def _outline(text: str) -> frozenset[str]:
    """Return the names of elements that are never next to text or inside an element next to text."""
    elements = [_Element("", 0)]
    inside, names = [0], Counter[str]()
    for token in tokens(text, xml=True, html=False):
        name = token.name.lower()
        if token.kind in ("start", "empty"):
            elements.append(_Element(name, inside[-1]))
            if token.kind == "start":
                inside.append(len(elements) - 1)
                names[name] += 1
        elif token.kind == "end" and names[name]:
            while (closed := elements[inside.pop()].name) != name:
                names[closed] -= 1
            names[name] -= 1
        elif token.kind == "text" and not text[token.start : token.stop].isspace():
            elements[inside[-1]].has_text = True
    beside = [False] * len(elements)
    for number, element in enumerate(elements[1:], 1):
        beside[number] = beside[element.around] or elements[element.around].has_text
    inline = {element.name for element, is_beside in zip(elements, beside, strict=True) if is_beside}
    return frozenset(element.name for element in elements[1:]) - inline


# --- Language detection.

MOST_CHARACTERS: Final = 4_096  # maximum used for detection


@dataclass(frozen=True, slots=True)
class Detected:
    """A language code, and its probability among all languages.

    Probability 0: the language was not detected, and the code is the first candidate.
    """

    language: str
    confidence: float


def detect(text: str, candidates: Sequence[str]) -> Detected:
    """Return the most probable candidate; the first candidate if no language is recognised."""
    ranked = language_identifier().rank(text[:MOST_CHARACTERS]) if any(map(str.isalpha, text)) else []
    known = [(language, float(probability)) for language, probability in ranked if language in candidates]
    return Detected(*max(known, key=lambda pair: pair[1])) if known else Detected(candidates[0], 0.0)


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """Texts to translate, each a separate document.

    `systems`: candidates with one target language; the source language is detected if there are several, or
    if `detects`. `together`: the texts are one document. `context`: context before each document. `place`:
    position in a session; all texts have one language. `alternatives`: maximum number of other translations
    of each text; none in a session.
    """

    texts: Sequence[str]
    systems: Sequence[System]
    together: bool = False
    place: SessionPlace | None = None
    split: SplitSentences = "1"
    tags: TagHandling | None = None
    context: str = ""
    wishes: Wishes = field(default_factory=Wishes)
    detects: bool = False
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text, its source language, and alternatives."""

    text: str
    source: Detected
    alternatives: list[str]


@dataclass(frozen=True, slots=True)
class _Document:
    """Texts that are one document, with its language and system."""

    fragments: Sequence[Fragment]
    system: System
    source: Detected

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for text in self.fragments for block in text.blocks)

    def written(self, versions: Sequence[Sequence[Block]], most: int) -> Iterator[TranslatedText]:
        """Yield the texts of the first version; at most `most` different texts of others are alternatives."""
        remaining = [iter(blocks) for blocks in versions]
        for text in self.fragments:
            texts = (text.written(list(islice(blocks, len(text.blocks)))) for blocks in remaining)
            first, *others = dict.fromkeys(texts)
            yield TranslatedText(first, self.source, others[:most])


EXTENSION: Final = ("document", "system", "session", "segment", "confirmed")


@dataclass(frozen=True, slots=True)
class Extension:
    """Extensions of an API: whether the texts are one document, the system, the position in a session."""

    document: bool = False
    system: str | None = None
    place: SessionPlace | None = None


def extension_of(request: Request, wanted: Fields, by_themselves: bool = False) -> Extension:
    """Read the field `cotext` (an object; in a form, as JSON), and the session from headers and address.

    `by_themselves`: if this field is missing, read its members from the fields of the request.

    Raises:
        RequestError: 400, a value is invalid; the errors of `session_place`.
    """
    value = wanted.value("cotext")
    if value is None:
        value = {name: wanted.value(name) for name in EXTENSION if by_themselves and name in wanted}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    inner = Fields(value) if isinstance(value, dict) and value.keys() <= set(EXTENSION) else None
    if inner is None:
        raise RequestError(400, f"Parameter 'cotext' has to be an object of {', '.join(EXTENSION)}")
    place = session_place(request, value)
    return Extension(inner.flag("document"), inner.text("system") or None, place)


def code_of(text: str, message: str = "give a language code, such as en, de or zh") -> str:
    """Return the code of a language such as `de-AT` or `DE`; raise RequestError 400 if it is unknown."""
    try:
        return language_code(text, "language")
    except CotextError:
        raise RequestError(400, message) from None


async def translated(request: Request, client: str, wanted: TranslationRequest) -> list[TranslatedText]:
    """Return the translations of texts, in order; the work is cancelled if the client disconnects.

    Raises:
        RequestError: 413, too much text; the errors of `sessions.translate`.
    """
    service = service_of(request)
    size = check_size(service.settings, (*wanted.texts, wanted.context))
    if wanted.tags is not None:
        refuse_confirmed_tags(wanted.place)
    # Texts that take long are read and written in a thread: a text may have a hundred thousand blocks.
    in_loop = size <= IN_LOOP_BYTES and not wanted.detects and len(wanted.systems) == 1
    documents = _documents(wanted) if in_loop else await to_thread.run_sync(_documents, wanted)
    preceding = PlainText(wanted.context, "1", "context").blocks if wanted.context.strip() else []
    context = tuple(replace(block, translate=False) for block in preceding)  # before each document

    async def translated_blocks() -> dict[int, list[Sequence[Block]]]:
        """Return the translated blocks of each document, and its alternatives."""
        blocks: dict[int, list[Sequence[Block]]] = {}
        lists = wanted.alternatives > 0 and wanted.place is None
        for name in dict.fromkeys(document.system.name for document in documents):
            chosen = {number: d for number, d in enumerate(documents) if d.system.name == name}
            parts = tuple((*context, *document.blocks) for document in chosen.values())
            of_system = TextRequest(service.systems.named(name), parts, wanted.wishes, alternatives=lists)
            answer = await translate(service, of_system, client, wanted.place)
            for number, *versions in zip(chosen, answer.documents, *answer.alternatives, strict=True):
                blocks[number] = [version[len(context) :] for version in versions]
        return blocks

    blocks = await unless_gone(request, translated_blocks())

    def texts() -> list[TranslatedText]:
        return [
            text
            for number, document in enumerate(documents)
            for text in document.written(blocks[number], wanted.alternatives)
        ]

    return texts() if in_loop else await to_thread.run_sync(texts)


def _documents(wanted: TranslationRequest) -> list[_Document]:
    fragments = [
        fragment(text, wanted.split, wanted.tags, f"text {number}")
        for number, text in enumerate(wanted.texts, 1)
    ]
    parts = [fragments] if wanted.together else [[text] for text in fragments]
    by_source = {system.languages.source: system for system in reversed(wanted.systems)}
    sources = list(dict.fromkeys(system.languages.source for system in wanted.systems))
    if len(sources) == 1 and not wanted.detects:
        languages = [Detected(sources[0], 0.0)] * len(parts)
    else:
        read = ["\n".join(block.text for text in part for block in text.blocks) for part in parts]
        # All documents of a session have one language.
        one = wanted.place is not None and len(read) > 1
        languages = [detect(text, sources) for text in (["\n".join(read)] if one else read)]
        languages = languages * len(parts) if one else languages
    return [
        _Document(part, by_source[language.language], language)
        for part, language in zip(parts, languages, strict=True)
    ]
