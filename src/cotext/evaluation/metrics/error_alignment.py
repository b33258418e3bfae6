"""Segmentation of a text at the segments of a reference, by minimum error (Matusov et al., 2005).

The tokens of a hypothesis are divided into as many pieces as the reference has segments. The division
minimises the total number of edits (insertions, deletions, substitutions) that turn pieces into segments.
With several references, each segment counts the fewest edits of any. This is one dynamic programme over
[reference tokens, hypothesis tokens], one row at a time:

    row[i]  fewest edits of the segments so far and hypothesis tokens 0..i, then (among equals) fewest cuts
            at positions that are not preferred, then the latest beginning of the present segment

All three are stored in one integer, so a minimum of integers selects among them. Each reference token costs a
few operations on a row (10,000 tokens on both sides: about a second). Memory is bounded by recomputing blocks
of segments from the row in which they begin.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.runtime import CotextError

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Bits of an integer, from the right: begin of the segment (counted down), cuts not preferred, edits.
_START_BITS: Final = 22
_CUT_BITS: Final = 18
_CUT: Final = 1 << _START_BITS
_EDIT: Final = 1 << (_START_BITS + _CUT_BITS)
_START: Final = _CUT - 1
_NEVER: Final = 1 << 62
# Keeps sums below 2^63: _NEVER plus an edit for each token of both sides.
_MAX_TOKENS: Final = 1 << 20
_MAX_SEGMENTS: Final = 1 << _CUT_BITS
MAX_CELLS: Final = 10_000_000_000  # 100,000 tokens against as many: two minutes
_BLOCK_BYTES: Final = 1 << 26


def align_by_error(
    hypothesis: Integers, references: Sequence[Sequence[Integers]], may_cut: Flags, preferred: Flags
) -> tuple[int, ...]:
    """Return the positions where a hypothesis, given as token numbers, is cut; one more than segments.

    `references`: for each segment its tokens in every reference. `may_cut`, `preferred`: whether a piece may
    end, or preferably ends, before each token and after the last. Raises CotextError above `MAX_CELLS`.
    """
    segments = len(references)
    rows = sum(len(tokens) + 1 for segment in references for tokens in segment)
    tokens = len(hypothesis)
    if (tokens + 1) * rows > MAX_CELLS or max(tokens, rows) > _MAX_TOKENS or segments > _MAX_SEGMENTS:
        raise CotextError(
            f"{tokens:,} tokens to be aligned with {rows:,} of the reference would take too long (at most "
            f"{MAX_CELLS:,} for their product, and {_MAX_TOKENS:,} on a side); divide the document, on all "
            "sides at the same place"
        )
    table = _Table(hypothesis, references, may_cut, preferred)
    if not segments:
        return (0,)
    # One row is stored for each segment of a block, and the row in which each block begins.
    size = max(math.isqrt(2 * segments), _BLOCK_BYTES // (4 * (len(hypothesis) + 1)))
    blocks = [range(first, min(first + size, segments)) for first in range(0, segments, size)]
    begins = [table.first()]
    for block in blocks[:-1]:
        row = begins[-1]
        for row in table.rows(begins[-1], block):  # noqa: B007 - the last row is used
            pass
        begins.append(row)
    cuts = [len(hypothesis)]
    for block, begin in zip(reversed(blocks), reversed(begins), strict=True):
        starts = [(_START - (row & _START)).astype(np.int32) for row in table.rows(begin, block)]
        for start in reversed(starts):
            cuts.append(int(start[cuts[-1]]))
    return tuple(reversed(cuts))


class _Table:
    """The rows of the dynamic programme.

    Rows hold costs minus one edit for every hypothesis token up to them. An insertion then costs nothing, a
    deletion one edit, a substitution nothing, and a match gains one edit.
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
        """Return the row before the first segment, which begins with the hypothesis."""
        row = np.full(len(self._hypothesis) + 1, _NEVER, dtype=np.int64)
        row[0] = 0
        return row

    def rows(self, row: Integers, segments: range) -> Iterator[Integers]:
        """Yield the rows at the ends of segments, from the row at the end of the previous segment."""
        for segment in segments:
            begin = row & ~_START | self._begins
            rows_of_references = [self._after(begin, tokens) for tokens in self._references[segment]]
            row = np.minimum.reduce(rows_of_references)
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
