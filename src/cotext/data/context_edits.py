"""Edits of the context of one sentence: removal, shuffling and replacement.

An excerpt contains a sentence and its context, as a separate document. So no other sentence becomes context
when one is removed. Source and target are edited alike, except by `one_sided`. The sentence itself is never
changed.

    document   a b c d e f        excerpt of d, with two sentences of context           b c d
    without c                                                                           b d
    alone                                                                               d
    shuffled                                                                            c b d
    replaced, by sentences of other documents                                           x y d
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Side
from cotext.runtime.errors import CotextError

Pair = tuple[str, str]  # a source sentence and its target


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A document with the index of the examined `sentence` and the indices of its `context`, in order.

    `numbers`: indices of the sentences in the original document; None for a sentence of another document.
    """

    document: ParallelDocument
    sentence: int
    context: tuple[int, ...]
    numbers: tuple[int | None, ...]

    def pairs(self) -> list[Pair]:
        """Return source and target of every sentence."""
        return list(zip(self.document.source, self.document.target, strict=True))


def excerpt(document: ParallelDocument, sees: range, number: int, whole: bool = False) -> Excerpt:
    """Return the excerpt of sentence `number`; `sees` is the range of visible sentences, including itself.

    With `whole`, the excerpt contains all sentences, but those outside of `sees` are not context. Blank
    sentence pairs are never context.

    Raises:
        CotextError: `number` is not in `sees`, or `sees` exceeds the document.
    """
    if number not in sees or sees.stop > len(document):
        raise CotextError(
            f"document {document.id!r}: sentence {number + 1} is not among {sees.start + 1} to {sees.stop} "
            f"of its {len(document)}"
        )
    kept = range(len(document)) if whole else sees
    pairs = [(document.source[j], document.target[j]) for j in kept]
    context = tuple(i for i, j in enumerate(kept) if j in sees and j != number and "".join(pairs[i]).strip())
    return _made(document.id, pairs, number - kept.start, context, tuple(kept))


def outside(found: Excerpt, near: range) -> Excerpt:
    """Restrict the context to sentences whose number in the original document is not in `near`."""
    far = tuple(index for index in found.context if found.numbers[index] not in near)
    return replace(found, context=far)


def without(found: Excerpt, index: int) -> Excerpt:
    """Remove one context sentence."""
    if index not in found.context:
        raise CotextError(
            f"document {found.document.id!r}: sentence {index + 1} is no context of its excerpt"
        )
    return _kept(found, [i for i in range(len(found.document)) if i != index])


def one_sided(found: Excerpt, index: int, side: Side) -> Excerpt:
    """Make one side of a context sentence empty."""
    pairs = found.pairs()
    source, target = pairs[index]
    pairs[index] = ("", target) if side == "source" else (source, "")
    return _made(found.document.id, pairs, found.sentence, found.context, found.numbers)


def alone(found: Excerpt) -> Excerpt:
    """Remove all context."""
    return _kept(found, [i for i in range(len(found.document)) if i not in found.context])


def shuffled(found: Excerpt, random: Random) -> Excerpt:
    """Shuffle the context sentences; the result differs from the original order if possible."""
    order = list(found.context)
    while len(order) > 1 and order == list(found.context):
        random.shuffle(order)
    pairs, numbers = found.pairs(), list(found.numbers)
    for to, origin in zip(found.context, order, strict=True):
        pairs[to], numbers[to] = found.pairs()[origin], found.numbers[origin]
    return _made(found.document.id, pairs, found.sentence, found.context, tuple(numbers))


def replaced(found: Excerpt, others: Sequence[Pair], random: Random) -> Excerpt:
    """Replace the context by sentence pairs drawn from `others`.

    Raises:
        CotextError: `others` is empty.
    """
    if found.context and not others:
        raise CotextError(
            f"document {found.document.id!r}: no sentences of other documents to replace its context by; "
            "give a file with several documents, or leave the random context out"
        )
    pairs, numbers = found.pairs(), list(found.numbers)
    for index in found.context:
        pairs[index], numbers[index] = random.choice(others), None
    return _made(found.document.id, pairs, found.sentence, found.context, tuple(numbers))


def _kept(found: Excerpt, indices: Sequence[int]) -> Excerpt:
    pairs = found.pairs()
    return _made(
        found.document.id,
        [pairs[i] for i in indices],
        indices.index(found.sentence),
        tuple(n for n, i in enumerate(indices) if i in found.context),
        tuple(found.numbers[i] for i in indices),
    )


def _made(
    id: str, pairs: Sequence[Pair], sentence: int, context: tuple[int, ...], numbers: tuple[int | None, ...]
) -> Excerpt:
    source, target = zip(*pairs, strict=True)
    return Excerpt(ParallelDocument(id, source, target), sentence, context, numbers)
