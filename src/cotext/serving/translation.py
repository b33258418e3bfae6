"""The request for a translation that all APIs build, and the function that answers it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Literal

from anyio import to_thread
from starlette.requests import Request
from starlette.routing import Route

from cotext.data.documents import Document, language_code, language_identifier
from cotext.data.splitting import Splitter
from cotext.files.blocks import Block, Contents
from cotext.files.markup import BLOCKS, ElementRules, Markup, tokens
from cotext.files.translate_blocks import BlockDocuments, PairedSentence
from cotext.runtime import CotextError, parse_json
from cotext.serving.answers import KEPT_SEGMENTS, Context, ContextSentence, Segment, SessionMemory, TextAnswer
from cotext.serving.record import RequestError
from cotext.serving.requests import IN_LOOP_BYTES, Fields, check_size, service_of, unless_gone, whole_number
from cotext.serving.service import Service, TextRequest
from cotext.serving.systems import System
from cotext.translation.document_state import FoundWindow, SentenceHypothesis
from cotext.translation.open import Terminology

# --- Sessions: a client sends a document segment by segment, and preceding segments are context.
#
# A session has a name, a client and a system. It stores the segments in order, each with its translation by
# the system (and its subwords) or a confirmed translation. Preceding segments are context on both sides.
#
#     Order             By segment number, if given; then equal texts may be different segments. Without
#                       numbers, an equal text is the same segment. A new text follows the text added last.
#     Repeated request  The same answer, without search, unless the terms or the preceding segments have
#                       changed. Following segments are not changed.
#     Other text        With the number of a stored segment, it replaces the segment.
#     Confirmed         A translation in the request becomes the translation of the segment. It is returned,
#                       and is context of following segments.
#     Failed request    Nothing is stored.
#
# Requests of one session are processed in order. If the windows of a system contain only preceding sentences,
# translating segment by segment gives the same result as translating the whole document.

IN_SESSION: Final = "/session/{session}"
CONTEXT_SENTENCES: Final = 16  # number of context sentences for systems without a window


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The position of the documents of a request in a session; each document is a segment.

    `number`: segment number of the first document; the others follow it. `confirmed`: confirmed translations,
    or None.
    """

    name: str
    number: int | None = None
    confirmed: tuple[str | None, ...] = ()


class _Replay:
    """A log that passes known windows of a document to the search, and collects the new windows."""

    def __init__(self, sentences: Sequence[ContextSentence]) -> None:
        self._found = [FoundWindow(i, (sentence.hypothesis,), True) for i, sentence in enumerate(sentences)]
        self.noted: dict[int, FoundWindow] = {}

    def found(self, document: int) -> Sequence[FoundWindow]:
        """Return the known windows."""
        return self._found

    def note(self, document: int, window: FoundWindow) -> None:
        """Collect a new window."""
        self.noted[window.number] = window


async def translate_documents(
    service: Service, request: TextRequest, client: str, place: SessionPlace | None
) -> TextAnswer:
    """Translate the documents of a request; in a session, one after the other as segments.

    In a session, the context of a document is the preceding segments, then the context blocks of the request.
    `request.given` is used only without a session. Raises RequestError: 400, more confirmed translations than
    texts; 413, too many texts for a session; the errors of `Service.translate`.
    """
    if place is None:
        return await service.translate(request, client)
    if len(request.documents) > KEPT_SEGMENTS:
        raise RequestError(413, f"more than {KEPT_SEGMENTS} texts in a session; send several requests")
    if len(place.confirmed) > len(request.documents):
        raise RequestError(400, "confirmed: more translations than texts; send one, or null, for each")
    memory = service.sessions.of(client, place.name, request.system.name)
    documents: list[list[Block]] = []
    pairs: list[PairedSentence] = []
    confirmed = [*place.confirmed, *[None] * len(request.documents)]
    async with service.in_time(), memory.lock, memory.restored_on_error():
        for index, blocks in enumerate(request.documents):
            number = None if place.number is None else place.number + index
            segment = _InSession(service, replace(request, documents=(blocks,)), client, memory)
            answer = await segment.answer(number, confirmed[index])
            documents += answer.documents
            pairs += [replace(pair, document=index) for pair in answer.pairs]
    return TextAnswer(documents, pairs)


class _InSession:
    """The translation of one segment in a session."""

    def __init__(self, service: Service, request: TextRequest, client: str, memory: SessionMemory) -> None:
        self._service, self._request, self._client, self._memory = service, request, client, memory
        [blocks] = request.documents
        # `place` is removed: it differs between requests, and stored blocks are compared with new ones.
        self._blocks = tuple(replace(block, place="") for block in blocks)

    async def answer(self, number: int | None, confirmed: str | None) -> TextAnswer:
        """Return the translation, and store it in the session."""
        memory = self._memory
        at, segment = memory.find(self._blocks, number)
        same = segment is not None and segment.blocks == self._blocks
        if number is None and segment is not None:
            number = segment.number
        if confirmed is None and segment is not None and same:
            confirmed = segment.confirmed
        if confirmed is not None:
            answer = TextAnswer([_written(self._blocks, confirmed)], [])
            kept = Segment(self._blocks, number, self._confirmed(confirmed), answer, confirmed=confirmed)
            memory.keep(at, kept, replaced=segment is not None)
            return answer
        view = self._request.system.opened.config.view
        sentences_before = {"sentence": 0, "window": view.before}.get(view.kind, CONTEXT_SENTENCES)
        context = memory.before(at, sentences_before)
        made_with = (context, self._request.terminology.settings)
        if segment is not None and same and segment.made_with == made_with:
            return segment.answer
        answer, sentences = await self._translate(context)
        if sentences or segment is not None:
            own = tuple(i for i, block in enumerate(self._blocks) if block.translate)
            as_context = Context(
                tuple(replace(self._blocks[i], translate=False) for i in own),
                tuple(replace(s, block=own.index(s.block)) for s in sentences if s.block in own),
            )
            kept = Segment(self._blocks, number, as_context, answer, made_with)
            memory.keep(at, kept, replaced=segment is not None)
        return answer

    async def _translate(self, context: Context) -> tuple[TextAnswer, list[ContextSentence]]:
        """Translate the segment in a context; also return its sentences."""
        before, system = context.sentences, self._request.system
        plan = system.opened.translator.plan
        whole = system.opened.config.view.kind == "document" and plan.searched_view is plan.view
        # True if no translation depends on following sentences, and known windows were searched or confirmed.
        exact = plan.group_windows == 1 and not whole and all(sentence.exact for sentence in before)
        [blocks] = self._request.documents
        log = _Replay(before if exact else ())
        # With a first pass, its translations are the context, not those of known windows. Confirmed
        # translations are therefore passed as `given`, so that they are context.
        over_first_pass = system.opened.first_pass is not None
        given = {
            i: sentence.hypothesis.text
            for i, sentence in enumerate(before)
            if not exact or (sentence.confirmed and over_first_pass)
        }
        request = replace(self._request, documents=((*context.blocks, *blocks),), given={0: given}, log=log)
        answer = await self._service.translate(request, self._client)
        first, size = len(context.blocks), len(context.sentences)
        pairs = [
            replace(pair, block=pair.block - first, number=pair.number - size)
            for pair in answer.pairs
            if pair.block >= first
        ]
        # Sentences without tokens have no window. If there are any, there are fewer windows than pairs.
        counted = len(log.found(0)) + len(log.noted) == len(answer.pairs)
        sentences = [
            _as_context(pair, log.noted.get(size + pair.number) if counted else None) for pair in pairs
        ]
        return TextAnswer([answer.documents[0][first:]], pairs), sentences

    def _confirmed(self, text: str) -> Context:
        """Return the segment as context, with its confirmed translation.

        If source and translation have the same number of sentences, these are paired. Otherwise the segment
        is one sentence of context; if it is too long or has no sentence, it is not used as context.
        """
        opened = self._request.system.opened
        translator, source_splitter = opened.translator, Splitter(opened.languages.source)
        blocks_to_translate = [block for block in self._blocks if block.translate]
        documents = BlockDocuments(opened, Contents([blocks_to_translate]), source_splitter).documents
        sources = [sentence for document in documents for sentence in document.sentences]
        if not sources:  # such as a number
            return Context()
        targets = [text.strip()]
        if len(sources) > 1:
            targets = Splitter(opened.languages.target).sentences(text)
        if len(sources) != len(targets):
            sources, targets = [" ".join(sources)], [text.strip()]
        tokens = [tuple(translator.tokenizer.encode(target, side="target")) for target in targets]
        most = translator.config.decode.max_source_tokens
        try:
            translator.check([Document("", (source,)) for source in sources])
        except CotextError:
            return Context()
        if not all(0 < len(each) <= most for each in tokens):
            return Context()
        blocks = tuple(Block((source,), split=False, translate=False) for source in sources)
        sentences = [
            ContextSentence(
                i, SentenceHypothesis(ids, target, labels=len(ids) + 1), exact=True, confirmed=True
            )
            for i, (ids, target) in enumerate(zip(tokens, targets, strict=True))
        ]
        return Context(blocks, tuple(sentences))


def _as_context(pair: PairedSentence, window: FoundWindow | None) -> ContextSentence:
    if window is not None and len(window.sentences) == 1:
        return ContextSentence(pair.block, window.sentences[0], exact=True)
    return ContextSentence(pair.block, SentenceHypothesis((), pair.target), exact=False)


def _written(blocks: Sequence[Block], text: str) -> list[Block]:
    """Return the blocks with one confirmed line each, without those for which there is no line.

    Too many lines are all written to the first block.
    """
    lines, count = _LINE_ENDS.split(text)[::2], sum(block.translate for block in blocks)
    own = [block for block in blocks if block.translate]
    kept = [block for block in blocks if not block.translate]
    written = zip(own, lines if len(lines) <= count else [text], strict=False)
    return [*kept, *(replace(block, pieces=(line,)) for block, line in written)]


def also_in_sessions(routes: Sequence[Route]) -> list[Route]:
    """Return the routes, and copies under `/session/NAME` for tools in which only an address can be set."""
    prefixed = [
        Route(IN_SESSION + route.path, route.endpoint, methods=list(route.methods or ())) for route in routes
    ]
    return [*routes, *prefixed]


def session_place(request: Request, named: Mapping[str, object]) -> SessionPlace | None:
    """Return the position of a request in a session; None without a session.

    Read from the fields `session`, `segment` and `confirmed` in `named`, from the headers `X-Cotext-Session`
    and `X-Cotext-Segment`, and from the address, in this order. Raises RequestError: 400, a value is invalid.
    """
    headers = request.headers
    name = named.get("session") or headers.get("x-cotext-session") or request.path_params.get("session")
    if name is None:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise RequestError(400, "session: give a name of 1 to 200 printable characters")
    number, confirmed = named.get("segment", headers.get("x-cotext-segment")), named.get("confirmed")
    number = None if number is None else whole_number(number, "segment")
    texts: list[str | None] = []
    for text in confirmed if isinstance(confirmed, list) else [confirmed]:
        if text is not None and not isinstance(text, str):
            raise RequestError(400, "confirmed: give a string, or a list of strings for several texts")
        texts.append(text if text and text.strip() else None)  # forms send empty fields
    return SessionPlace(name, number, tuple(texts))


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
        """Return the text of the blocks; a confirmed translation may have fewer."""
        ends = [*self._parts[1::2][: len(blocks) - 1], ""]
        return "".join(block.text + end for block, end in zip(blocks, ends, strict=False))


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


def extension_of(request: Request, wanted: Fields) -> tuple[bool, str | None, SessionPlace | None]:
    """Read the field `cotext` (an object; in a form, as JSON), and the session from headers and address.

    Return whether the texts are one document, the system, and the position in a session. If this field is
    missing, read its members from the fields of the request. Raises RequestError: 400, a value is invalid;
    the errors of `session_place`.
    """
    value = wanted.value("cotext")
    if value is None:
        value = {name: wanted.value(name) for name in EXTENSION if name in wanted}
    if isinstance(value, str):
        try:
            value = parse_json(value, "cotext", unique=True)
        except CotextError:
            value = None
    inner = Fields(value) if isinstance(value, dict) and value.keys() <= set(EXTENSION) else None
    if inner is None:
        raise RequestError(400, f"Parameter 'cotext' has to be an object of {', '.join(EXTENSION)}")
    return inner.flag("document"), inner.text("system") or None, session_place(request, value)


def code_of(text: str, message: str = "give a language code, such as en, de or zh") -> str:
    """Return the code of a language such as `de-AT` or `DE`; raise RequestError 400 if it is unknown."""
    try:
        return language_code(text, "language")
    except CotextError:
        raise RequestError(400, message) from None


async def translate_texts(request: Request, client: str, wanted: TranslationRequest) -> list[TranslatedText]:
    """Return the translations of texts, in order; the work is cancelled if the client disconnects.

    Raises RequestError: 413, too much text; the errors of `translate_documents`.
    """
    service = service_of(request)
    if len(wanted.texts) > (most := service.settings.max_sentences):
        raise RequestError(413, f"a request may have at most {most:,} texts; send several requests")
    size = check_size(service.settings, (*wanted.texts, wanted.context))
    # The context is read before each document.
    if not wanted.together and len(wanted.texts) * len(wanted.context) > service.settings.max_body_bytes:
        raise RequestError(413, "too much context for so many texts; send fewer texts at a time")
    confirmed = () if wanted.place is None else wanted.place.confirmed
    if wanted.tags is not None and any(text is not None for text in confirmed):
        # A confirmed translation may lack the tags.
        raise RequestError(400, "confirmed: has to be plain text; send it without tag_handling")
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
            answer = await translate_documents(service, of_system, client, wanted.place)
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
