"""The request for a translation that all APIs build, and the function that answers it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from anyio import to_thread
from starlette.requests import Request

from cotext.data.documents import language_code, language_identifier
from cotext.files.blocks import Block
from cotext.runtime import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.fragments import Fragment, PlainText, SplitSentences, TagHandling, fragment
from cotext.serving.requests import IN_LOOP_BYTES, Fields, check_size, service_of, unless_gone
from cotext.serving.service import TextRequest
from cotext.serving.sessions import SessionPlace, refuse_confirmed_tags, session_place, translate
from cotext.serving.systems import System
from cotext.translation.open import Terminology

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
    terminology: Terminology = field(default_factory=Terminology)
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


async def translate_texts(request: Request, client: str, wanted: TranslationRequest) -> list[TranslatedText]:
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
            of_system = TextRequest(
                service.systems.named(name), parts, wanted.terminology, alternatives=lists
            )
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
