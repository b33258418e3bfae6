"""Segments of a reference found in a text of other segments, by minimum error (Matusov et al., 2005).

The tokens of a hypothesis are cut into as many pieces as the reference has segments, so that the edits
(insertions, deletions, substitutions) which turn each piece into its segment are as few as can be in total.
Of several references each segment counts the fewest edits of any. It is one dynamic programme over
[reference tokens, hypothesis tokens], a row at a time:

    row[i]  fewest edits of the segments so far and hypothesis tokens 0..i, then (among equals) fewest cuts
            where none is preferred, then the latest beginning of the present segment

All three stand in one whole number, so that a minimum of numbers is the choice among all of them. Time is a
few operations on a row for each reference token (10,000 tokens on both sides: about a second); memory is
bounded by recomputing blocks of segments from the row in which they begin.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.runtime.errors import CotextError

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Bits of a number, from the right: where the segment begins (counted down), cuts not preferred, edits.
_START_BITS: Final = 22
_CUT_BITS: Final = 18
_CUT: Final = 1 << _START_BITS
_EDIT: Final = 1 << (_START_BITS + _CUT_BITS)
_START: Final = _CUT - 1
_NEVER: Final = 1 << 62
# So that sums stay below 2^63: _NEVER, and an edit for each token of both sides.
_MAX_TOKENS: Final = 1 << 20
_MAX_SEGMENTS: Final = 1 << _CUT_BITS
MAX_CELLS: Final = 10_000_000_000  # 100,000 tokens against as many: two minutes
_BLOCK_BYTES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class ErrorAlignment:
    """Where the hypothesis is cut, one more number than segments, and the edits in total."""

    cuts: tuple[int, ...]
    edits: int


def align_by_error(
    hypothesis: Integers, references: Sequence[Sequence[Integers]], may_cut: Flags, preferred: Flags
) -> ErrorAlignment:
    """Cut a hypothesis, tokens as numbers, at the segments of references.

    `references`: of each segment its tokens in every reference. `may_cut`, `preferred`: of the places before
    each token and behind the last, where a piece may end, and where it had better among equals.

    Raises:
        CotextError: more tokens than time allows (`MAX_CELLS`).
    """
    segments = len(references)
    rows = sum(len(tokens) + 1 for segment in references for tokens in segment)
    _check_size(len(hypothesis), rows, segments)
    table = _Table(hypothesis, references, may_cut, preferred)
    if not segments:
        return ErrorAlignment((0,), 0)
    # A block keeps a row for each of its segments, and each block the row in which it begins.
    size = max(math.isqrt(2 * segments), _BLOCK_BYTES // (4 * (len(hypothesis) + 1)))
    blocks = [range(first, min(first + size, segments)) for first in range(0, segments, size)]
    begins = [table.first()]
    for block in blocks[:-1]:
        row = begins[-1]
        for row in table.rows(begins[-1], block):  # noqa: B007 - the last one is wanted
            pass
        begins.append(row)
    cuts, edits = [len(hypothesis)], 0
    for block, begin in zip(reversed(blocks), reversed(begins), strict=True):
        starts = []
        for row in table.rows(begin, block):
            starts.append((_START - (row & _START)).astype(np.int32))
        if block is blocks[-1]:
            edits = (int(row[-1]) >> (_START_BITS + _CUT_BITS)) + len(hypothesis)
        for own in reversed(starts):
            cuts.append(int(own[cuts[-1]]))
    return ErrorAlignment(tuple(reversed(cuts)), edits)


class _Table:
    """The rows of the dynamic programme.

    They hold numbers less an edit for every hypothesis token up to them: then an insertion costs nothing, a
    deletion an edit, a substitution nothing, and a match gives an edit back.
    """

    def __init__(
        self,
        hypothesis: Integers,
        references: Sequence[Sequence[Integers]],
        may_cut: Flags,
        preferred: Flags,
    ) -> None:
        self._hypothesis, self._references = hypothesis, references
        self._begins = _START - np.arange(len(hypothesis) + 1, dtype=np.int64)
        self._penalty = np.where(preferred, 0, _CUT)
        self._closed = np.flatnonzero(~may_cut)

    def first(self) -> Integers:
        """The row before the first segment, which begins with the hypothesis."""
        row = np.full(len(self._hypothesis) + 1, _NEVER, dtype=np.int64)
        row[0] = 0
        return row

    def rows(self, row: Integers, segments: range) -> Iterator[Integers]:
        """The rows at the ends of segments, from the one at the end of the segment before."""
        for segment in segments:
            begin = row & ~_START | self._begins
            found = [self._after(begin, tokens) for tokens in self._references[segment]]
            row = np.minimum.reduce(found)
            if segment + 1 < len(self._references):
                row += self._penalty
                row[self._closed] = _NEVER
            yield row

    def _after(self, row: Integers, tokens: Integers) -> Integers:
        row = np.minimum.accumulate(row)
        other, gain = np.empty_like(row), np.empty(len(row) - 1, dtype=np.int64)
        for token in tokens:
            np.multiply(self._hypothesis == token, _EDIT, out=gain)
            np.subtract(row[:-1], gain, out=gain)
            np.add(row, _EDIT, out=other)
            np.minimum(other[1:], gain, out=other[1:])
            np.minimum.accumulate(other, out=row)
        return row


def _check_size(tokens: int, rows: int, segments: int) -> None:
    cells = (tokens + 1) * rows
    if cells > MAX_CELLS or max(tokens, rows) > _MAX_TOKENS or segments > _MAX_SEGMENTS:
        raise CotextError(
            f"{tokens:,} tokens to be aligned with {rows:,} of the reference would take too long (at most "
            f"{MAX_CELLS:,} for their product, and {_MAX_TOKENS:,} on a side); divide the document, on all "
            "sides at the same place"
        )
