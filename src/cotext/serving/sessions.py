"""Sessions: a client sends a document segment by segment, and preceding segments are context.

A session has a name, a client and a system. It stores the segments in order, each with its translation by the
system (and its subwords) or a confirmed translation. Preceding segments are context on both sides.

    Order             By segment number, if given; then equal texts may be different segments. Without
                  numbers, an equal text is the same segment. A new text follows the text added last.
    Repeated request  The same answer, without search, unless the preceding segments have changed. Following
                      segments are not changed.
    Other text        With the number of a stored segment, it replaces the segment.
    Confirmed         A translation in the request becomes the translation of the segment. It is returned, and
                  is context of following segments.
    Failed request    Nothing is stored.

Requests of one session are processed in order. If the windows of a system contain only preceding sentences,
translating segment by segment gives the same result as translating the whole document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.routing import Route

from cotext.data.documents import Document
from cotext.data.splitting import Splitting
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments, PairedSentence
from cotext.runtime import CotextError
from cotext.serving.answers import KEPT_SEGMENTS, Context, Segment, SessionMemory, Spoken, TextAnswer
from cotext.serving.record import RequestError
from cotext.serving.requests import whole_number
from cotext.serving.service import Service, TextRequest
from cotext.translation.document_state import FoundWindow, SentenceHypothesis

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
    """A log of the windows of a document: known windows, and new windows."""

    def __init__(self, sentences: Sequence[Spoken]) -> None:
        self._found = [FoundWindow(i, (spoken.hypothesis,), True) for i, spoken in enumerate(sentences)]
        self.noted: dict[int, FoundWindow] = {}

    def found(self, document: int) -> Sequence[FoundWindow]:
        """Return the known windows."""
        return self._found

    def note(self, document: int, window: FoundWindow) -> None:
        """Collect a new window."""
        self.noted[window.number] = window


async def translate(
    service: Service, request: TextRequest, client: str, place: SessionPlace | None
) -> TextAnswer:
    """Translate the documents of a request; in a session, one after the other as segments.

    In a session, the context of a document is the preceding segments, then the context blocks of the request.
    `request.given` is used only without a session.

    Raises:
        RequestError: the errors of `Service.translate`; 400, more confirmed translations than texts; 413, too
            many texts for a session.
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
    async with service.in_time(), memory.lock, memory.unless_refused():
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
        # Without `place`, which differs between requests: stored blocks are compared with new ones.
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
        after = (context, self._request.wishes.settings)
        if segment is not None and same and segment.after == after:
            return segment.answer
        answer, sentences = await self._translated(context)
        if sentences:
            own = tuple(i for i, block in enumerate(self._blocks) if block.translate)
            as_context = Context(
                tuple(replace(self._blocks[i], translate=False) for i in own),
                tuple(replace(s, block=own.index(s.block)) for s in sentences if s.block in own),
            )
            kept = Segment(self._blocks, number, as_context, answer, after)
            memory.keep(at, kept, replaced=segment is not None)
        return answer

    async def _translated(self, context: Context) -> tuple[TextAnswer, list[Spoken]]:
        """Translate the segment in a context; also return its sentences."""
        before, system = context.sentences, self._request.system
        plan = system.opened.translator.plan
        whole = system.opened.config.view.kind == "document" and plan.searched_view is plan.view
        # Whether no translation depends on following sentences, and all known windows are those of a search.
        exact = plan.group_windows == 1 and not whole and all(spoken.exact for spoken in before)
        [blocks] = self._request.documents
        log = _Replay(before if exact else ())
        # With a first pass, its translations are the context, not the known windows. So that confirmed
        # translations are context, they are `given`.
        over_first_pass = system.opened.first_pass is not None
        given = {
            i: spoken.hypothesis.text
            for i, spoken in enumerate(before)
            if not exact or (spoken.confirmed and over_first_pass)
        }
        request = replace(self._request, documents=((*context.blocks, *blocks),), given={0: given}, log=log)
        answer = await self._service.translate(request, self._client)
        first, size = len(context.blocks), len(context.sentences)
        pairs = [
            replace(pair, block=pair.block - first, number=pair.number - size)
            for pair in answer.pairs
            if pair.block >= first
        ]
        # Windows are numbered without sentences that have no token. If there are any, numbers differ.
        counted = len(log.found(0)) + len(log.noted) == len(answer.pairs)
        spoken = [_spoken(pair, log.noted.get(size + pair.number) if counted else None) for pair in pairs]
        return TextAnswer([answer.documents[0][first:]], pairs), spoken

    def _confirmed(self, text: str) -> Context:
        """Return the segment as context, with its confirmed translation.

        If source and translation have the same number of sentences, these are paired. Otherwise the segment
        is one sentence of context; if it is too long, it is not used as context.
        """
        opened, splitting = self._request.system.opened, Splitting()
        translator, source_splitter = opened.translator, splitting.splitter(opened.languages.source)
        blocks_to_translate = [block for block in self._blocks if block.translate]
        documents = BlockDocuments(opened, Contents([blocks_to_translate]), source_splitter).documents
        sources = [sentence for document in documents for sentence in document.sentences]
        targets = [text.strip()]
        if len(sources) > 1:
            targets = splitting.splitter(opened.languages.target).sentences(text)
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
        spoken = [
            Spoken(i, SentenceHypothesis(ids, target, labels=len(ids) + 1), exact=True, confirmed=True)
            for i, (ids, target) in enumerate(zip(tokens, targets, strict=True))
        ]
        return Context(blocks, tuple(spoken))


def _spoken(pair: PairedSentence, window: FoundWindow | None) -> Spoken:
    if window is not None and len(window.sentences) == 1:
        return Spoken(pair.block, window.sentences[0], exact=True)
    return Spoken(pair.block, SentenceHypothesis((), pair.target), exact=False)


def _written(blocks: Sequence[Block], text: str) -> list[Block]:
    """Return the blocks with a confirmed translation: one line per block, or all of it in the first block."""
    indices = [i for i, block in enumerate(blocks) if block.translate]
    lines = text.split("\n")
    if len(lines) != len(indices):
        lines = [text] + [""] * (len(indices) - 1)
    translated = list(blocks)
    for i, line in zip(indices, lines, strict=True):
        translated[i] = replace(blocks[i], pieces=(line,))
    return translated


def refuse_confirmed_tags(place: SessionPlace | None) -> None:
    """Raise RequestError 400 for a confirmed translation of a text with tags: it may lack the tags."""
    if place is not None and any(text is not None for text in place.confirmed):
        raise RequestError(400, "confirmed: has to be plain text; send it without tag_handling")


def also_in_sessions(routes: Sequence[Route]) -> list[Route]:
    """Return the routes, and copies under `/session/NAME` for tools in which only an address can be set."""
    prefixed = [
        Route(IN_SESSION + route.path, route.endpoint, methods=list(route.methods or ())) for route in routes
    ]
    return [*routes, *prefixed]


def session_place(request: Request, named: Mapping[str, object]) -> SessionPlace | None:
    """Return the position of a request in a session; None without a session.

    Read from the fields `session`, `segment` and `confirmed` in `named`, from the headers `X-Cotext-Session`
    and `X-Cotext-Segment`, and from the address, in this order.

    Raises:
        RequestError: 400, a value is invalid.
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
