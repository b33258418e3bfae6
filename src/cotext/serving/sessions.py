"""Sessions: a client sends a document segment after segment, and each is translated in what came before.

A session has a name and belongs to a client and a system. It keeps the segments of a document in an order,
with the translation of each: that of the system, with the very subwords of its search, or one that a person
confirmed. What is kept before a segment is its context, on both sides.

    Where a segment stands   By its number, if the client gives one; so a text may come twice. Without
                             numbers, a text that is kept is the same segment, whenever it is asked for
                             again, and a new one stands behind the segment that was new before it.
    Asked again              The same answer, without search, as long as what stands before has not changed;
                             else it is translated anew. What stands behind it stays as it is.
    Another text             Under a number that is kept, it replaces the segment and its translation.
    Confirmed                A translation that is sent along is the segment's from then on, is answered, and
                             is the context of what follows; until another is sent.
    Refused, or given up     Nothing is kept of a request that was not answered.

Requests of one session are answered one after the other, in the order in which they come. Systems that
translate a sentence in a window over those before it (with the sentences of a document searched one by one)
translate a document segment by segment as they do the whole of it at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from cotext.data.documents import Document
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments, PairedSentence
from cotext.runtime.errors import CotextError
from cotext.serving.answers import TextAnswer
from cotext.serving.errors import RequestError
from cotext.serving.service import RETRY_SECONDS, Client, Service, TextRequest
from cotext.serving.session_memory import KEPT_SEGMENTS, Context, Segment, SessionMemory, Spoken
from cotext.serving.systems import System
from cotext.translation.document_state import FoundWindow, SentenceHypothesis

IN_SESSION: Final = "/session/{session}"
CONTEXT_SENTENCES: Final = 16  # that systems read which have no window of their own
LAST_SEGMENT: Final = 10**9


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where in a session the documents of a request stand, a segment each.

    `number`: of the first of them, the others follow it. `confirmed`: their translations, where known.
    """

    name: str
    number: int | None = None
    confirmed: tuple[str | None, ...] = ()


class _Replay:
    """The windows of a document that were found before, and those that are found now."""

    def __init__(self, sentences: Sequence[Spoken]) -> None:
        self._found = [FoundWindow(i, (each.hypothesis,), True) for i, each in enumerate(sentences)]
        self.noted: dict[int, FoundWindow] = {}

    def found(self, document: int) -> Sequence[FoundWindow]:
        """Those found before."""
        return self._found

    def note(self, document: int, window: FoundWindow) -> None:
        """One that is found now."""
        self.noted[window.number] = window


async def translate(
    service: Service, request: TextRequest, client: Client, place: SessionPlace | None
) -> TextAnswer:
    """Translate the documents of a request, in a session if there is one: a segment each, one after another.

    Their own blocks that are context are read behind what the session has. What a request gives of its
    sentences (`given`) is for requests without a session.

    Raises:
        RequestError: as `Service.translate`; 400, more translations confirmed than there are texts; 413, more
            texts than a session keeps.
    """
    if place is None:
        return await service.translate(request, client)
    if len(request.documents) > KEPT_SEGMENTS:
        raise RequestError(413, f"a request in a session has {KEPT_SEGMENTS} texts at most; send several")
    if len(place.confirmed) > len(request.documents):
        raise RequestError(400, "confirmed: more translations than texts; send one for each, or null")
    memory = service.sessions.of(client.name, place.name, request.system.name)
    seconds = service.settings.request_seconds
    try:
        async with asyncio.timeout(seconds):
            return await _one_by_one(service, request, client, place, memory)
    except TimeoutError:
        raise RequestError(
            503, f"not done within {seconds:g} seconds; send less at once", RETRY_SECONDS
        ) from None


async def _one_by_one(
    service: Service, request: TextRequest, client: Client, place: SessionPlace, memory: SessionMemory
) -> TextAnswer:
    documents: list[list[Block]] = []
    pairs: list[PairedSentence] = []
    confirmed = [*place.confirmed, *[None] * len(request.documents)]
    async with memory.lock, memory.unless_refused():
        for index, blocks in enumerate(request.documents):
            number = None if place.number is None else place.number + index
            one = _InSession(service, replace(request, documents=(blocks,)), client, memory)
            answer = await one.answer(number, confirmed[index])
            documents += answer.documents
            pairs += [replace(pair, document=index) for pair in answer.pairs]
    return TextAnswer(documents, pairs)


class _InSession:
    """A segment, asked for in a session."""

    def __init__(self, service: Service, request: TextRequest, client: Client, memory: SessionMemory) -> None:
        self._service, self._request, self._client, self._memory = service, request, client, memory
        [blocks] = request.documents
        # Where it stands in this request is no part of what is kept.
        self._blocks = tuple(replace(block, place="") for block in blocks)

    async def answer(self, number: int | None, confirmed: str | None) -> TextAnswer:
        """Its translation, which the session keeps."""
        memory = self._memory
        at, segment = memory.find(self._blocks, number)
        same = segment is not None and segment.blocks == self._blocks
        if number is None and segment is not None:
            number = segment.number
        if confirmed is None and segment is not None and same:
            confirmed = segment.confirmed
        if confirmed is not None:
            kept = Segment(self._blocks, number, self._confirmed(confirmed), confirmed=confirmed)
            memory.keep(at, kept, replaced=segment is not None)
            return TextAnswer([_written(self._blocks, confirmed)], [])
        context = memory.before(at, _context_sentences(self._request.system))
        after = (context, self._request.fast, self._request.wishes.settings, self._request.splitting)
        known = segment.sentences if segment is not None and same and segment.after == after else ()
        answer, sentences = await self._translated(context, known)
        if sentences:
            own = tuple(i for i, block in enumerate(self._blocks) if block.translate)
            as_context = Context(
                tuple(replace(self._blocks[i], translate=False) for i in own),
                tuple(replace(each, block=own.index(each.block)) for each in sentences if each.block in own),
            )
            kept = Segment(self._blocks, number, as_context, sentences, after)
            memory.keep(at, kept, replaced=segment is not None)
        return answer

    async def _translated(
        self, context: Context, known: tuple[Spoken, ...]
    ) -> tuple[TextAnswer, tuple[Spoken, ...]]:
        """The translation of the segment in a context, and its sentences; `known`: found before."""
        before = (*context.sentences, *known)
        system = self._request.system
        exact = _searches_each_alone(system) and all(each.exact for each in before)
        [own] = self._request.documents
        log = _Replay(before if exact else ())
        # A first pass is the context in place of what is found, and not of what is given.
        over_first_pass = system.opened.first_pass is not None
        given = {
            i: each.hypothesis.text
            for i, each in enumerate(before)
            if not exact or (each.confirmed and over_first_pass)
        }
        asked = replace(self._request, documents=((*context.blocks, *own),), given={0: given}, log=log)
        answer = await self._service.translate(asked, self._client)
        first, size = len(context.blocks), len(context.sentences)
        pairs = [
            replace(pair, block=pair.block - first, number=pair.number - size)
            for pair in answer.pairs
            if pair.block >= first
        ]
        # Windows count the sentences that have a token.
        counted = len(log.found(0)) + len(log.noted) == len(answer.pairs)
        spoken = tuple(
            known[i]
            if i < len(known)
            else _spoken(pair, log.noted.get(size + pair.number) if counted else None)
            for i, pair in enumerate(pairs)
        )
        return TextAnswer([answer.documents[0][first:]], pairs), spoken

    def _confirmed(self, text: str) -> Context:
        """The segment with a confirmed translation, as context of others.

        Its sentences one by one where source and translation have as many, else as one; nothing where that is
        longer than a sentence may be.
        """
        opened, request = self._request.system.opened, self._request
        source_splitter = request.splitting.splitter(opened.languages.source) if request.splitting else None
        own = [block for block in self._blocks if block.translate]
        documents = BlockDocuments(opened, Contents([own]), source_splitter).documents
        sources = [sentence for document in documents for sentence in document.sentences]
        targets = [text.strip()]
        if request.splitting is not None and len(sources) > 1:
            targets = request.splitting.splitter(opened.languages.target).sentences(text)
        if len(sources) != len(targets):
            sources, targets = [" ".join(sources)], [text.strip()]
        blocks = tuple(Block((source,), split=False, translate=False) for source in sources)
        spoken = tuple(_as_if_found(request.system, i, target) for i, target in enumerate(targets))
        within = all(map(_may_be_read, [request.system] * len(sources), sources, spoken))
        return Context(blocks, spoken) if within else Context()


def _spoken(pair: PairedSentence, window: FoundWindow | None) -> Spoken:
    if window is not None and len(window.sentences) == 1:
        return Spoken(pair.block, window.sentences[0], exact=True)
    return Spoken(pair.block, SentenceHypothesis((), pair.target), exact=False)


def _as_if_found(system: System, block: int, text: str) -> Spoken:
    tokens = tuple(system.opened.translator.tokenizer.encode(text, side="target"))
    return Spoken(block, SentenceHypothesis(tokens, text, labels=len(tokens) + 1), True, confirmed=True)


def _may_be_read(system: System, source: str, spoken: Spoken) -> bool:
    """Whether a sentence can be translated, and its translation is no longer than such a sentence may be."""
    translator = system.opened.translator
    try:
        translator.check([Document("", (source,))])
    except CotextError:
        return False
    return 0 < len(spoken.hypothesis.tokens) <= translator.config.decode.max_source_tokens


def _searches_each_alone(system: System) -> bool:
    """Whether what is found for a sentence stays what it is in a document that goes on."""
    plan = system.opened.translator.plan
    whole = system.opened.config.view.kind == "document" and plan.searched_view is plan.view
    return plan.group_windows == 1 and not whole


def _context_sentences(system: System) -> int:
    view = system.opened.config.view
    if view.kind == "sentence":
        return 0
    return view.before if view.kind == "window" else CONTEXT_SENTENCES


def _written(blocks: Sequence[Block], text: str) -> list[Block]:
    """The blocks with a confirmed translation: a line each where it has as many, else all in the first."""
    own = [i for i, block in enumerate(blocks) if block.translate]
    lines = text.split("\n")
    if len(lines) != len(own):
        lines = [text] + [""] * (len(own) - 1)
    found = list(blocks)
    for i, line in zip(own, lines, strict=True):
        found[i] = replace(blocks[i], pieces=(line,))
    return found


def refuse_confirmed_tags(place: SessionPlace | None) -> None:
    """Refuse a translation that is confirmed where texts have tags, of which it would have others.

    Raises:
        RequestError: 400.
    """
    if place is not None and any(text is not None for text in place.confirmed):
        raise RequestError(400, "confirmed: is plain text; send it without the handling of tags")


def also_in_sessions(routes: Sequence[Route]) -> list[BaseRoute]:
    """The routes, and the same behind `/session/NAME`, for tools that can set nothing but an address."""
    prefixed = [
        Route(IN_SESSION + route.path, route.endpoint, methods=list(route.methods or ())) for route in routes
    ]
    return [*routes, *prefixed]


def session_place(request: Request, named: Mapping[str, object]) -> SessionPlace | None:
    """The place in a session that a request names, None where it names no session.

    By `session`, `segment` and `confirmed` of what it has for Cotext, by the headers `X-Cotext-Session` and
    `X-Cotext-Segment`, and by its address, in this order.

    Raises:
        RequestError: 400, what is none.
    """
    headers = request.headers
    name = named.get("session") or headers.get("x-cotext-session") or request.path_params.get("session")
    if name is None:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise RequestError(400, "session: give it a name of 1 to 200 printable characters")
    number, confirmed = named.get("segment", headers.get("x-cotext-segment")), named.get("confirmed")
    if number is not None:
        text = str(number)
        if isinstance(number, bool) or not text.isascii() or not text.isdigit() or len(text) > 9:
            raise RequestError(400, f"segment: its number in the document, from 0 to {LAST_SEGMENT - 1:,}")
        number = int(text)
    texts: list[str | None] = []
    for each in confirmed if isinstance(confirmed, list) else [confirmed]:
        if each is not None and not isinstance(each, str):
            raise RequestError(400, "confirmed: the translation as a text; for several texts, a list of them")
        texts.append(each if each and each.strip() else None)  # forms send fields that are empty
    return SessionPlace(name, number, tuple(texts))
