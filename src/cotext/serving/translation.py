"""The request for a translation that the dialects build, and the one function that answers it.

A dialect reads its fields into a `TranslationRequest`, and writes the translations in its own form.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from anyio import to_thread
from starlette.requests import Request

from cotext.data.languages import language_code, language_identifier
from cotext.files.blocks import Block
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.fragments import Fragment, PlainText, SplitSentences, TagHandling, fragment
from cotext.serving.requests import Fields, check_size, service_of, unless_gone
from cotext.serving.service import Client, TextRequest
from cotext.serving.sessions import SessionPlace, refuse_confirmed_tags, session_place, translate
from cotext.serving.systems import System
from cotext.translation.wishes import Wishes

# --- The language of a text, among those that the systems of a server know.

MOST_CHARACTERS: Final = 4_096  # that are looked at


@dataclass(frozen=True, slots=True)
class Detected:
    """A language by its code, and how sure that is: a probability among all languages, not those asked for.

    0: nothing was measured, and the language is the first.
    """

    language: str
    confidence: float


def detect(text: str, candidates: Sequence[str]) -> Detected:
    """The likeliest of some languages; the first of them for a text without letters, or of others."""
    ranked = language_identifier().rank(text[:MOST_CHARACTERS]) if any(map(str.isalpha, text)) else []
    known = [(language, float(probability)) for language, probability in ranked if language in candidates]
    return Detected(*max(known, key=lambda pair: pair[1])) if known else Detected(candidates[0], 0.0)


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """Texts to be translated, each a document of its own.

    `systems`: candidates of one target language. The language of each document is detected if they have
    several source languages, or if `detects`. `together`: the texts are one document. `context` is read
    before each document. `place`: in a session, where each document is a segment, and all have one language.
    `fast`: greedy search. `alternatives`: how many further translations of each text, at most; none in a
    session.
    """

    texts: Sequence[str]
    systems: Sequence[System]
    together: bool = False
    place: SessionPlace | None = None
    split: SplitSentences = "1"
    tags: TagHandling | None = None
    context: str = ""
    wishes: Wishes = field(default_factory=Wishes)
    fast: bool = False
    alternatives: int = 0
    detects: bool = False


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text, other translations, and the language that the text is in."""

    text: str
    source: Detected
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Document:
    """Texts that share their context, their language, and the system that translates them."""

    fragments: Sequence[Fragment]
    system: System
    source: Detected

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of all texts, in order."""
        return tuple(block for each in self.fragments for block in each.blocks)

    def written(self, blocks: Sequence[Block]) -> Iterator[TranslatedText]:
        """The texts with other blocks in the places of their own."""
        at = 0
        for each in self.fragments:
            others = blocks[at : at + len(each.blocks)]
            at += len(others)
            yield TranslatedText(each.written(others), self.source)


EXTENSION: Final = ("document", "system", "session", "segment", "confirmed")


@dataclass(frozen=True, slots=True)
class Extension:
    """What is asked beyond a dialect: that the texts are one document, a system, a place in a session."""

    document: bool = False
    system: str | None = None
    place: SessionPlace | None = None


def extension_of(request: Request, wanted: Fields, by_themselves: bool = False) -> Extension:
    """The field `cotext`, an object, in a form as JSON; and the session that headers and address name.

    `by_themselves`: without that field, the same fields by themselves count.

    Raises:
        RequestError: 400, something else, or as `session_place`.
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


def code_of(text: str) -> str:
    """The code of a language as programs write it, such as `de-AT` or `DE`.

    Raises:
        RequestError: 400, it is none.
    """
    try:
        return language_code(text, "language")
    except CotextError:
        raise RequestError(400, "a language is given by its code, as in en, de or zh") from None


async def translated(request: Request, client: Client, asked: TranslationRequest) -> list[TranslatedText]:
    """The translations of texts, in their order; the work stops when the client hangs up.

    Raises:
        RequestError: 413, too much text; else as `sessions.translate`.
    """
    service = service_of(request)
    check_size(service.settings, (*asked.texts, asked.context))
    if asked.tags is not None:
        refuse_confirmed_tags(asked.place)
    # In threads, as a text may have a hundred thousand blocks.
    documents = await to_thread.run_sync(_documents, asked)
    context = _context(asked.context)

    async def found() -> dict[int, list[Sequence[Block]]]:
        """The blocks of each document, translated by its system, and translated otherwise."""
        blocks: dict[int, list[Sequence[Block]]] = {}
        for name in dict.fromkeys(each.system.name for each in documents):
            chosen = {number: each for number, each in enumerate(documents) if each.system.name == name}
            parts = tuple((*context, *each.blocks) for each in chosen.values())
            system, lists = service.systems.named(name), asked.alternatives > 0 and asked.place is None
            of_system = TextRequest(system, parts, asked.wishes, fast=asked.fast, alternatives=lists)
            answer = await translate(service, of_system, client, asked.place)
            versions = zip(answer.documents, *answer.alternatives, strict=True)
            for number, each in zip(chosen, versions, strict=True):
                blocks[number] = [version[len(context) :] for version in each]
        return blocks

    blocks = await unless_gone(request, found())
    return await to_thread.run_sync(
        lambda: [
            _with_others(versions, asked.alternatives)
            for number, document in enumerate(documents)
            for versions in zip(*(document.written(each) for each in blocks[number]), strict=True)
        ]
    )


def _with_others(versions: Sequence[TranslatedText], most: int) -> TranslatedText:
    """The first of several versions of a text, with what differs among the others."""
    others = dict.fromkeys(each.text for each in versions if each.text != versions[0].text)
    return replace(versions[0], alternatives=tuple(others)[:most])


def _documents(asked: TranslationRequest) -> list[_Document]:
    fragments = [
        fragment(text, asked.split, asked.tags, f"text {number}")
        for number, text in enumerate(asked.texts, 1)
    ]
    parts = [fragments] if asked.together else [[each] for each in fragments]
    by_source = {each.languages.source: each for each in reversed(asked.systems)}
    sources = list(dict.fromkeys(each.languages.source for each in asked.systems))
    if len(sources) == 1 and not asked.detects:
        languages = [Detected(sources[0], 0.0)] * len(parts)
    else:
        read = ["\n".join(block.text for each in part for block in each.blocks) for part in parts]
        # The documents of a session are in one language.
        one = asked.place is not None and len(read) > 1
        languages = [detect(text, sources) for text in (["\n".join(read)] if one else read)]
        languages = languages * len(parts) if one else languages
    return [
        _Document(part, by_source[language.language], language)
        for part, language in zip(parts, languages, strict=True)
    ]


def _context(text: str) -> tuple[Block, ...]:
    """The blocks of what is read before each document and left out of the answer."""
    blocks = PlainText(text, "1", "context").blocks if text.strip() else []
    return tuple(replace(block, translate=False) for block in blocks)
