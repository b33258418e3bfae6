"""Edits of the context of one sentence: removal, shuffling and replacement.

An excerpt is a separate document that contains a sentence and its context. So no other sentence becomes
context when a context sentence is removed. Both sides are edited alike. The examined
sentence never changes.

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
from cotext.runtime import CotextError

Pair = tuple[str, str]  # a source sentence and its target


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A document with the index of the examined `sentence` and the indices of its `context`, in order.

    `numbers` contains the indices of the sentences in the original document, or None for a sentence of
    another document.
    """

    document: ParallelDocument
    sentence: int
    context: tuple[int, ...]
    numbers: tuple[int | None, ...]

    def pairs(self) -> list[Pair]:
        return list(zip(self.document.source, self.document.target, strict=True))


def excerpt(document: ParallelDocument, sees: range, number: int, whole: bool = False) -> Excerpt:
    """Return the excerpt of sentence `number`.

    `sees` is the range of visible sentences, including `number`. With `whole`, the excerpt contains all
    sentences, but only sentences in `sees` are context. Blank sentence pairs are never context.

    Raises CotextError if `number` is not in `sees`, or `sees` exceeds the document.
    """
    if number not in sees or sees.stop > len(document):
        raise CotextError(
            f"document {document.id!r} of {len(document)} sentences: sentence {number + 1} is not among the "
            f"visible sentences {sees.start + 1} to {sees.stop}"
        )
    kept = range(len(document)) if whole else sees
    pairs = [(document.source[j], document.target[j]) for j in kept]
    context = tuple(i for i, j in enumerate(kept) if j in sees and j != number and "".join(pairs[i]).strip())
    return _excerpt(document.id, pairs, number - kept.start, context, tuple(kept))


def outside(original: Excerpt, near: range) -> Excerpt:
    """Restrict the context to sentences whose number in the original document is not in `near`."""
    far = tuple(index for index in original.context if original.numbers[index] not in near)
    return replace(original, context=far)


def without(original: Excerpt, index: int) -> Excerpt:
    """Remove one context sentence."""
    if index not in original.context:
        raise CotextError(f"document {original.document.id!r}: sentence {index + 1} is not context")
    return _kept(original, [i for i in range(len(original.document)) if i != index])


def alone(original: Excerpt) -> Excerpt:
    """Remove all context."""
    return _kept(original, [i for i in range(len(original.document)) if i not in original.context])


def shuffled(original: Excerpt, random: Random) -> Excerpt:
    """Shuffle the context sentences; the result differs from the original order if possible."""
    order = list(original.context)
    while len(order) > 1 and order == list(original.context):
        random.shuffle(order)
    pairs, numbers = original.pairs(), list(original.numbers)
    for to, origin in zip(original.context, order, strict=True):
        pairs[to], numbers[to] = original.pairs()[origin], original.numbers[origin]
    return _excerpt(original.document.id, pairs, original.sentence, original.context, tuple(numbers))


def replaced(original: Excerpt, others: Sequence[Pair], random: Random) -> Excerpt:
    """Replace the context by sentence pairs drawn from `others`; raises CotextError if there are none."""
    if original.context and not others:
        raise CotextError(
            f"document {original.document.id!r}: no sentences of other documents to replace its context; "
            "pass a file with several documents, or omit the random context"
        )
    pairs, numbers = original.pairs(), list(original.numbers)
    for index in original.context:
        pairs[index], numbers[index] = random.choice(others), None
    return _excerpt(original.document.id, pairs, original.sentence, original.context, tuple(numbers))


def _kept(original: Excerpt, indices: Sequence[int]) -> Excerpt:
    pairs = original.pairs()
    return _excerpt(
        original.document.id,
        [pairs[i] for i in indices],
        indices.index(original.sentence),
        tuple(n for n, i in enumerate(indices) if i in original.context),
        tuple(original.numbers[i] for i in indices),
    )


def _excerpt(
    id: str, pairs: Sequence[Pair], sentence: int, context: tuple[int, ...], numbers: tuple[int | None, ...]
) -> Excerpt:
    source, target = zip(*pairs, strict=True)
    return Excerpt(ParallelDocument(id, source, target), sentence, context, numbers)
