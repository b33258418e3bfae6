"""Edits of the context of one sentence of a document: removal, shuffling and replacement.

An excerpt is what a sentence can be translated in sight of, as a document of its own: nothing moves up into
the place of what is taken away. Both sides are edited alike, unless one alone is taken away (`one_sided`),
and the sentence itself stays as it is.

    document   a b c d e f        excerpt of d, which sees two sentences before it      b c d
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
    """A document, the indices of the `sentence` in question and of its `context`, in order.

    `numbers` tell where the sentences stood in the document that the excerpt is from; None for a sentence
    that was not there.
    """

    document: ParallelDocument
    sentence: int
    context: tuple[int, ...]
    numbers: tuple[int | None, ...]

    def pairs(self) -> list[Pair]:
        """Source and target of every sentence."""
        return list(zip(self.document.source, self.document.target, strict=True))


def excerpt(document: ParallelDocument, sees: range, number: int, whole: bool = False) -> Excerpt:
    """The sentences that sentence `number` of a document sees, which `sees` holds, itself included.

    With `whole`, what it does not see stays too, but is no context. Sentences without a visible character on
    both sides are never context.
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
    """The same, of whose context are only sentences whose number in the document is not among `near`."""
    far = tuple(index for index in found.context if found.numbers[index] not in near)
    return replace(found, context=far)


def without(found: Excerpt, index: int) -> Excerpt:
    """Take one context sentence away."""
    if index not in found.context:
        raise CotextError(
            f"document {found.document.id!r}: sentence {index + 1} is no context of its excerpt"
        )
    return _kept(found, [i for i in range(len(found.document)) if i != index])


def one_sided(found: Excerpt, index: int, side: Side) -> Excerpt:
    """Take away one side of a context sentence; the other stays in its place."""
    pairs = found.pairs()
    source, target = pairs[index]
    pairs[index] = ("", target) if side == "source" else (source, "")
    return _made(found.document.id, pairs, found.sentence, found.context, found.numbers)


def alone(found: Excerpt) -> Excerpt:
    """Take all context away."""
    return _kept(found, [i for i in range(len(found.document)) if i not in found.context])


def shuffled(found: Excerpt, random: Random) -> Excerpt:
    """Put the context sentences in another order; one alone stays where it is."""
    order = list(found.context)
    while len(order) > 1 and order == list(found.context):
        random.shuffle(order)
    pairs, numbers = found.pairs(), list(found.numbers)
    for to, origin in zip(found.context, order, strict=True):
        pairs[to], numbers[to] = found.pairs()[origin], found.numbers[origin]
    return _made(found.document.id, pairs, found.sentence, found.context, tuple(numbers))


def replaced(found: Excerpt, others: Sequence[Pair], random: Random) -> Excerpt:
    """Put sentences drawn from `others`, each with its target, for the context sentences.

    Raises:
        CotextError: there are no others.
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
