"""Lexical constraints of the windows of documents: from the guide of a document to requests of search."""

from collections.abc import Sequence
from dataclasses import replace

from cotext.decoding.constraints import SearchRequest
from cotext.decoding.document_state import OpenDocument, SentenceHypothesis
from cotext.decoding.lexical import SentenceAutomaton, SentenceConstraints
from cotext.decoding.spelling import Spelling


def constrained(
    request: SearchRequest, opened: OpenDocument, number: int, spelling: Spelling
) -> SearchRequest:
    """The request of a window with the constraints of its sentences, and with room for them."""
    return _with(request, _constraints(opened, number, opened.texts), spelling)


def constrained_anew(
    request: SearchRequest,
    opened: OpenDocument,
    number: int,
    found: Sequence[SentenceHypothesis],
    spelling: Spelling,
) -> SearchRequest | None:
    """The request with constraints that follow from what was found for it; None: they are the same.

    Sentences that are searched together cannot wait for each other.
    """
    own = {opened.kept[j]: s.text for j, s in zip(opened.requested(number), found, strict=True)}
    anew = _constraints(opened, number, {**own, **opened.texts})
    before = [a.constraints if a is not None else SentenceConstraints() for a in request.automata]
    if anew == (before or [SentenceConstraints()] * len(anew)):
        return None
    rooms = [a.room if a is not None else 0 for a in request.automata] or [0] * request.sentences
    most = tuple(limit - room for limit, room in zip(request.max_tokens, rooms, strict=True))
    return _with(replace(request, max_tokens=most, automata=()), anew, spelling)


def _constraints(opened: OpenDocument, number: int, texts: dict[int, str]) -> list[SentenceConstraints]:
    assert opened.guide is not None
    sentences = (opened.kept[j] for j in opened.requested(number))
    return [opened.guide.constraints(opened.index, sentence, texts) for sentence in sentences]


def _with(
    request: SearchRequest, constraints: Sequence[SentenceConstraints], spelling: Spelling
) -> SearchRequest:
    if not any(constraints):
        return request
    automata = tuple(SentenceAutomaton(c, spelling) if c else None for c in constraints)
    rooms = (0 if automaton is None else automaton.room for automaton in automata)
    most = tuple(limit + room for limit, room in zip(request.max_tokens, rooms, strict=True))
    return replace(request, max_tokens=most, automata=automata)
