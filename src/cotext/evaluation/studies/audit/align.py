"""Alignment of an output with its source, and the sentences that are in another place.

Word translations are learned from the audited text, as in `cotext.data.alignment`. Three things differ from
the alignment of a corpus:

1. Lost, added and merged sentences are less likely.
2. A text in the place of a translation is paired with the source sentence, however unlike they are, so that
   one fault is one bead.
3. Sentences may be in another place of their document.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotext.data import alignment
from cotext.data.alignment import PRIORS, Floats, Side

Path = Sequence[alignment.Bead]

_ROUNDS: Final = 2  # of learning words from the last alignment
# Scores are in nats.
_RARER: Final = 3.0  # added to both sentences of a pair, since lost and added ones are rarer than in a corpus
_REPLACED: Final = -6.0  # the lowest score of a pair in the same place
_SUSPECT: Final = 0.0  # the lowest score if the output sentence is unlikely to be a translation of anything
_MOVED: Final = 0.0  # the lowest score of a lost and an added sentence that are one moved sentence
_TAKEN: Final = 4.0  # the same, if one of them is in a bead with other sentences
_SWAPPED: Final = 6.0  # gain from which two neighbours have changed places
_LEAST_MERGED: Final = 0.01  # share of beads with merged sentences that is assumed of any text
_ALONE: Final = math.log(PRIORS[1, 0])


@dataclass(frozen=True, slots=True)
class Bead:
    """Source and output sentences that correspond, counted from 0; one of the sides may be empty.

    `score`: log-likelihood ratio of words and lengths, in nats. `confidence`: if a side is empty, the
    probability that the sentence is not a part of the bead before or after it. `moved`: the sentences are in
    different places.
    """

    source: tuple[int, ...]
    output: tuple[int, ...]
    score: float = 0.0
    confidence: float = 1.0
    moved: bool = False

    @property
    def is_replaced(self) -> bool:
        """Whether another text seems to be in the place of the translation."""
        return bool(self.source and self.output) and self.score <= _REPLACED


def align(
    source: Sequence[Sequence[str]],
    output: Sequence[Sequence[str]],
    suspects: Sequence[bool],
    reference: Sequence[Sequence[str]] | None = None,
) -> list[Bead]:
    """Align the documents of two texts; return beads in the order of the text, numbered over all documents.

    `suspects`: for each output sentence, whether it is unlikely to be a translation of anything, as repeated
    ones. `reference` has one line for each line of the source; its words are added to those of the source.
    """
    if reference is not None:
        source = [
            [f"{line} {other}" for line, other in zip(*both, strict=True)]
            for both in zip(source, reference, strict=True)
        ]
    documents = list(zip(source, output, strict=True))
    vocabulary = alignment.Vocabulary()
    sides = [(vocabulary.side(one), vocabulary.side(other)) for one, other in documents]
    paths: list[Path] = [found.beads for found in alignment.align_documents(documents)]
    stops = np.cumsum([len(other) for _, other in documents])
    floors = np.split(np.where(suspects, _SUSPECT, _REPLACED), stops[:-1])
    for _ in range(_ROUNDS):
        judge = _Judge(sides, paths, len(vocabulary))
        paths = [judge.path(*each) for each in zip(sides, floors, paths, strict=True)]
    beads, first, second = [], 0, 0
    for pair, floor, path in zip(sides, floors, paths, strict=True):
        for bead in judge.beads(*pair, floor, path):
            of_source, of_output = (
                tuple(i + first for i in bead.source),
                tuple(j + second for j in bead.output),
            )
            beads.append(replace(bead, source=of_source, output=of_output))
        first, second = first + len(pair[0]), second + len(pair[1])
    return beads


class _Judge:
    """Scores of words, lengths and merged sentences, learned from the paths of all documents."""

    def __init__(self, sides: Sequence[tuple[Side, Side]], paths: Sequence[Path], vocabulary: int) -> None:
        pairs = [
            (source, output, i, j)
            for (source, output), path in zip(sides, paths, strict=True)
            for i, j in path
            if i and j
        ]
        words = [(source.words_of(i), output.words_of(j)) for source, output, i, j in pairs]
        self._lexicon = alignment.Lexicon(words, vocabulary)
        self._lengths = alignment.Lengths.of(sides)
        merged = sum(len(i) + len(j) > 2 for _, _, i, j in pairs) / max(1, len(pairs))
        # Squared, as the few wrong ones of a text without merged sentences would lead to more of them.
        self._merged = math.log(max(merged, _LEAST_MERGED) ** 2 / 2 / PRIORS[1, 2])

    def path(self, sides: tuple[Side, Side], floors: Floats, before: Path) -> Path:
        """Return the best path, in long documents near an earlier one; `floors`: lowest scores, [M]."""
        source, output = sides

        def scores(i: range, j: range) -> Floats:
            found = self._scores(source.part(i), output.part(j))
            found[0] = np.maximum(found[0], floors[j.start : j.stop])
            found[1:] += self._merged
            return found + 2 * _RARER

        band = alignment.diagonal_band(source, output)
        if band.width > alignment.NARROW_WIDTH:
            band = alignment.path_band(before, len(source), len(output))
        return alignment.align_sides(source, output, band, scores)

    def beads(self, source: Side, output: Side, floors: Floats, path: Path) -> list[Bead]:
        """Return the beads of a path; sentences in other places are separate beads."""
        moved = self._moved(source, output, floors, path)
        apart: list[alignment.Bead] = []
        for i, j in path:
            apart += [((s,), (moved[s],)) for s in i if s in moved]
            rest = tuple(s for s in i if s not in moved), tuple(t for t in j if t not in moved.values())
            apart += [rest] if any(rest) else []
        fits = self._fits(source, output, apart)
        # Beads with an empty side, and their neighbours: how much more likely both are one bead.
        beside = [
            (b, n)
            for b, bead in enumerate(apart)
            for n in (b - 1, b + 1)
            if not all(bead) and 0 <= n < len(apart) and all(apart[n]) and apart[n][0][0] not in moved
        ]
        joined = [(apart[min(b, n)], apart[max(b, n)]) for b, n in beside]
        together = self._fits(source, output, [(one[0] + two[0], one[1] + two[1]) for one, two in joined])
        prior = math.log(PRIORS[1, 2] / PRIORS[1, 1]) + self._merged - _ALONE
        margins = {b: (-math.inf, b, 0.0) for b, bead in enumerate(apart) if not all(bead)}
        for (b, n), fit in zip(beside, together, strict=True):
            margins[b] = max(margins[b], (fit - max(fits[n], _REPLACED) + prior, n, fit))
        beads: list[Bead] = []
        for b, (i, j) in enumerate(apart):
            margin, n, fit = margins.get(b, (-math.inf, b, 0.0))
            if margin > 0 and n < b:
                beads[-1] = replace(
                    beads[-1], source=beads[-1].source + i, output=beads[-1].output + j, score=fit
                )
            elif margin > 0:
                apart[n], fits[n] = (i + apart[n][0], j + apart[n][1]), fit
            else:
                sure = 1 / (1 + math.exp(margin)) if not (i and j) else 1.0
                beads.append(Bead(i, j, fits[b], sure, bool(i) and i[0] in moved))
        return beads

    def _moved(self, source: Side, output: Side, floors: Floats, path: Path) -> dict[int, int]:
        """Return the source sentences whose translations are in another place, and their numbers."""
        fits = self._fits(source, output, path)
        moved = self._swapped(source, output, path, fits)
        loose = [b for b, (i, j) in enumerate(path) if len(i) != 1 or len(j) != 1 or fits[b] <= _REPLACED]
        settled = set(moved), set(moved.values())
        for at in range(0, len(loose), alignment.BLOCK // 2):
            block = loose[at : at + alignment.BLOCK]
            ours = [(i, b) for b in block for i in path[b][0]]
            theirs = [(j, b) for b in block for j in path[b][1]]
            scores = self._scores(
                source.joined([(i,) for i, _ in ours]), output.joined([(j,) for j, _ in theirs])
            )[0]
            scores[:, floors[[j for j, _ in theirs]] == _SUSPECT] = -np.inf
            for place in np.argsort(-scores, axis=None):
                row, column = divmod(int(place), len(theirs))
                if scores[row, column] < _MOVED:
                    break
                (i, own), (j, other) = ours[row], theirs[column]
                if (path[own][1] or path[other][0]) and scores[row, column] < _TAKEN:
                    continue
                if i not in settled[0] and j not in settled[1]:
                    settled[0].add(i)
                    settled[1].add(j)
                    if own != other:
                        moved[i] = j
        return moved

    def _swapped(self, source: Side, output: Side, path: Path, fits: Sequence[float]) -> dict[int, int]:
        """Return neighbours that changed places, as `_moved` does.

        What they are aligned with has taught words that speak for it, so that they may fit either way.
        """
        pairs = [
            b for b in range(len(path) - 1) if {len(side) for n in (b, b + 1) for side in path[n]} == {1}
        ]
        crossed = self._fits(
            source, output, [(path[n][0], path[m][1]) for b in pairs for n, m in ((b, b + 1), (b + 1, b))]
        )
        swapped: dict[int, int] = {}
        for b, one, other in zip(pairs, crossed[::2], crossed[1::2], strict=True):
            ((i,), (j,)), ((k,), (m,)) = path[b], path[b + 1]
            if one + other - fits[b] - fits[b + 1] > _SWAPPED and i not in swapped:
                swapped |= {i: m, k: j}
        return swapped

    def _scores(self, source: Side, output: Side) -> Floats:
        return self._lengths.scores(source, output) + self._lexicon.scores(source, output)

    def _fits(self, source: Side, output: Side, path: Path) -> list[float]:
        """Return the score of every bead; 0 if one of its sides is empty."""
        sides = source.joined([i for i, _ in path]), output.joined([j for _, j in path])
        found: list[float] = []
        for at in range(0, len(path), alignment.BLOCK):
            block = range(at, min(at + alignment.BLOCK, len(path)))
            found += np.diagonal(self._scores(*(side.part(block) for side in sides))[0]).tolist()
        return [score if i and j else 0.0 for (i, j), score in zip(path, found, strict=True)]
