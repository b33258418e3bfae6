"""Sentences that a translation leaves out, and lines that it adds, by the words shared with a reference.

A reference sentence counts as *omitted* where the piece of the translation that is aligned with it has fewer
than half as many words, and shares fewer than a quarter of its words. A line of the translation counts as
*added* the other way round: it shares fewer than a quarter of its words with the sentences with which they
are aligned, and the pieces of these sentences have more words than they, by half of the line's at least.
Words are tokens with a letter or a digit, in lower case; a word counts as often as it occurs on both sides.
Of several references every one has to say so.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from cotext.evaluation.metrics.token_cuts import CutText

Tokens = Sequence[str]
MOST_SHARED: Final = 0.25  # of the words of what is said to be left out or added
LEAST_GAP: Final = 0.5  # of these words, how many have nothing to stand against


def omitted_sentences(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """The numbers, from 0, of the sentences that a text omits, which is cut at `cuts`.

    `references`: the tokens of every sentence of each.
    """
    found = []
    for sentence, (start, end) in enumerate(pairwise(cuts)):
        piece = words(text.tokens[start:end])
        if all(_lacks(words(reference[sentence]), piece) for reference in references):
            found.append(sentence)
    return tuple(found)


def added_lines(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """The numbers, from 0, of the lines that a text adds."""
    found = []
    ends = np.flatnonzero(text.line_ends)
    for line, (first, last) in enumerate(pairwise(ends.tolist())):
        parts = list(_parts(cuts, first, last))
        if all(_adds(text, parts, cuts, reference) for reference in references):
            found.append(text.lines[line])
    return tuple(found)


def shared_words(text: CutText, cuts: Sequence[int], reference: Sequence[Tokens]) -> int:
    """How many words the pieces of a text share with the sentences in their places."""
    return sum(
        _shared(words(text.tokens[start:end]), words(sentence))
        for (start, end), sentence in zip(pairwise(cuts), reference, strict=True)
    )


def words(tokens: Tokens) -> list[str]:
    """The tokens that have a letter or a digit."""
    return [token for token in tokens if any(map(str.isalnum, token))]


def _lacks(sentence: Tokens, piece: Tokens) -> bool:
    least = (1 - LEAST_GAP) * len(sentence)
    return len(piece) < least and _shared(sentence, piece) < MOST_SHARED * len(sentence)


def _parts(cuts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Of a line from `first` to `last`, what lies in each piece: its sentence, and from where to where."""
    sentence = int(np.searchsorted(cuts, first, side="right")) - 1
    while sentence + 1 < len(cuts) and cuts[sentence] < last:
        start, end = max(first, cuts[sentence]), min(last, cuts[sentence + 1])
        if start < end:
            yield sentence, start, end
        sentence += 1


def _adds(
    text: CutText, parts: Sequence[tuple[int, int, int]], cuts: Sequence[int], reference: Sequence[Tokens]
) -> bool:
    size = shared = gap = 0
    for sentence, start, end in parts:
        own, theirs = words(text.tokens[start:end]), words(reference[sentence])
        size += len(own)
        shared += _shared(own, theirs)
        gap += len(words(text.tokens[cuts[sentence] : cuts[sentence + 1]])) - len(theirs)
    return size > 0 and gap >= LEAST_GAP * size and shared < MOST_SHARED * size


def _shared(one: Tokens, other: Tokens) -> int:
    return (Counter(one) & Counter(other)).total()
