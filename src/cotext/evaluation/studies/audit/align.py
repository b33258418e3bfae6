"""Alignment of an output with its source, and the sentences that were moved.

Word translations are learned from the audited text, as in `cotext.data.alignment`; but lost, added and merged
sentences have a lower probability. A text in the place of a translation is paired with the source sentence
even if no words correspond, so that one fault is one bead. Moved sentences are found in their document.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from cotext.data import alignment
from cotext.data.alignment import PRIORS, Floats, Ints, Side

Text = Sequence[Sequence[str]]  # documents of sentences
Path = Sequence[alignment.Bead]
Aligned = Sequence[tuple[tuple[Side, Side], Path]]  # the sides of documents

# Scores are in nats.
_RARER: Final = 6.0  # added to the score of a pair, since lost and added sentences are rarer than in a corpus
_PAIR: Final = _RARER + math.log(PRIORS[1, 1])  # added to the score of words and lengths of a pair
_ALONE: Final = math.log(PRIORS[1, 0])  # the score of an unaligned sentence
_REPLACED: Final = -6.0  # the lowest score of a pair in the same place
_UNRELATED: Final = -8.0  # the lowest score that is expected of unrelated sentences
# Subtracted from the gain of a move:
_MOVED: Final = 10.0
_SHIFTED: Final = 2.0  # instead of _MOVED, if all pairs between the two places shift by one
_DISTANCE: Final = 2.0  # times the log of the distance in beads
_WINDOW: Final = 4 * alignment.BLOCK  # beads among which moved sentences are looked for
_JOINS: Final = 3  # rounds of joining unaligned sentences to their neighbours; limits the time
_LEAST_MERGED: Final = 0.01  # minimum share of beads with merged sentences that is assumed
_SIZES: Final = np.array([[[1.0]], [[1.5]], [[1.5]]])  # relative lengths of 1-1, 1-2 and 2-1 beads
_SAMPLE: Final = 128  # sentences of each side from which the score of unrelated sentences is estimated


@dataclass(frozen=True, slots=True)
class Bead:
    """Source and output sentences that correspond, counted from 0; one of the sides may be empty.

    `score`: log-likelihood ratio in nats. `confidence`: the probability of the bead, relative to other beads
    of the same sentences. `moved`: the sentences are in different places.
    """

    source: tuple[int, ...]
    output: tuple[int, ...]
    score: float = 0.0
    confidence: float = 1.0
    moved: bool = False


def align(source: Text, output: Text, reference: Text = ()) -> list[Bead]:
    """Align the documents of two texts; return beads in the order of the text, numbered over all documents.

    The words of each line of `reference` are added to those of the source line.
    """
    if reference:
        sides = zip(source, reference, strict=True)
        source = [list(map(" ".join, zip(*both, strict=True))) for both in sides]
    documents = list(zip(source, output, strict=True))
    vocabulary = alignment.Vocabulary()
    pairs = [(vocabulary.side(one), vocabulary.side(other)) for one, other in documents]
    aligned = [found.beads for found in alignment.align_documents(documents)]
    lines = [[line for document in text for line in document] for text in (source, output)]
    sample = tuple(vocabulary.side(every[:: 1 + len(every) // _SAMPLE]) for every in lines)
    judge = _Judge(list(zip(pairs, aligned, strict=True)), len(vocabulary), sample)
    beads, first, second = [], 0, 0
    for pair, path in zip(pairs, aligned, strict=True):
        for bead in judge.beads(*pair, path):
            of_source = tuple(i + first for i in bead.source)
            of_output = tuple(j + second for j in bead.output)
            beads.append(replace(bead, source=of_source, output=of_output))
        first, second = first + len(pair[0]), second + len(pair[1])
    return beads


class _Judge:
    """Scores of words, lengths and merged sentences, learned from aligned documents."""

    def __init__(self, aligned: Aligned, vocabulary: int, sample: Sequence[Side]) -> None:
        beads = [(source, output, i, j) for (source, output), path in aligned for i, j in path if i and j]
        pairs = [(source.words_of(i), output.words_of(j)) for source, output, i, j in beads]
        self._lexicon = alignment.Lexicon(pairs, vocabulary)
        self._lengths = alignment.Lengths.of(sides for sides, _ in aligned)
        merged = sum(len(i) + len(j) > 2 for _, _, i, j in beads) / max(1, len(beads))
        # Squared, because otherwise a few wrongly merged beads would lead to more of them.
        self._merged = math.log(max(merged, _LEAST_MERGED) ** 2 / 2 / PRIORS[1, 2])
        self._unrelated = 0.0  # the expected score of unrelated sentences, per word
        words = sum(len(side.words) / max(1, len(side)) for side in sample)
        self._unrelated = float(self._scores(*sample)[0].mean() / max(1.0, words))

    def _path(self, source: Side, output: Side, before: Path) -> Path:
        """Return the best path; in long documents, only near `before`."""
        band = alignment.diagonal_band(source, output)
        if band.width > alignment.NARROW_WIDTH:
            band = alignment.path_band(before, len(source), len(output))

        def scores(i: range, j: range) -> Floats:
            found = self._scores(source.part(i), output.part(j))
            found[0] = np.maximum(found[0], _REPLACED)
            found[1:] += self._merged
            return found + _RARER

        return alignment.align_sides(source, output, band, scores)

    def beads(self, source: Side, output: Side, before: Path) -> list[Bead]:
        """Return the beads of a document; moved sentences are put back, and the document is aligned again."""
        path = self._path(source, output, before)
        moved = self._moved(source, output, path)
        places = [moved.get(t, (float(t), 0, 1.0)) for t in range(len(output))]
        order = sorted(range(len(output)), key=places.__getitem__)
        if moved:
            output = output.joined([(t,) for t in order])
            path = self._path(source, output, path)
        beads = []
        for (i, j), fit, sure in zip(*self._joined(source, output, path), strict=True):
            ours = tuple(order[t] for t in j)
            confidence = min([sure, *(places[t][2] for t in ours)])
            beads.append(Bead(i, ours, fit, confidence, not moved.keys().isdisjoint(ours)))
        return beads

    def _joined(self, source: Side, output: Side, path: Path) -> tuple[Path, list[float], list[float]]:
        """Join each unaligned sentence to an adjacent bead if it is more probable that it is a part of it.

        Returns beads, their scores and probabilities.
        """
        prior = math.log(PRIORS[1, 2] / PRIORS[1, 1] / PRIORS[1, 0]) + self._merged
        for joins in reversed(range(_JOINS + 1)):
            fits: list[float] = alignment.bead_scores(source, output, path, self._scores).tolist()
            sure, chosen = [sigmoid(fit + _RARER) for fit in fits], dict[int, alignment.Bead]()
            firsts = [n for n, (one, two) in enumerate(pairwise(path)) if all(one) != all(two)]
            joined = [(path[n][0] + path[n + 1][0], path[n][1] + path[n + 1][1]) for n in firsts]
            together = alignment.bead_scores(source, output, joined, self._scores)
            for n, bead, fit in zip(firsts, joined, together, strict=True):
                alone, other = (n + 1, n) if all(path[n]) else (n, n + 1)
                apart = sigmoid(max(fits[other], _REPLACED) - fit - prior)
                sure[alone] = min(sure[alone], apart)
                if apart < 1 / 2 and not {n - 1, n, n + 1} & chosen.keys():
                    chosen[n] = bead
            if not (chosen and joins):
                break
            path = [chosen.get(n, bead) for n, bead in enumerate(path) if n - 1 not in chosen]
        return path, fits, sure

    def _moved(self, source: Side, output: Side, path: Path) -> dict[int, tuple[float, int, float]]:
        """Return the output sentences that are in another place.

        Moves in a window that increase the score of the path are made, the best first. For each sentence,
        the place where it belongs, its source sentence and the confidence are returned.
        """
        moved = {}
        starts = np.cumsum([0, *(len(j) for _, j in path)])  # first output sentence of each bead
        for at in range(0, len(path), _WINDOW):
            window = enumerate(path[at : at + _WINDOW], at)
            single = [(b, bead) for b, bead in window if max(map(len, bead)) == 1]  # merged ones stay
            rows, columns = ([(n, b) for b, bead in single for n in bead[side]] for side in (0, 1))
            if not rows or not columns:
                continue
            (ours, of_ours), (theirs, of_theirs) = np.array(rows).T, np.array(columns).T
            scores = self._scores(source.joined(ours[:, None]), output.joined(theirs[:, None]))[0]
            alone, shifted = self._gains(scores, of_ours, of_theirs)
            gains = np.maximum(alone, shifted)
            while (gain := float(gains.max())) > 0:
                r, c = map(int, np.unravel_index(gains.argmax(), gains.shape))
                ends = sorted((of_ours[r], of_theirs[c]))
                after = len(path[of_ours[r]][1]) * (of_ours[r] == ends[1])
                moved[int(theirs[c])] = float(starts[of_ours[r]]) + after - 0.5, int(ours[r]), sigmoid(gain)
                used = range(ends[0], ends[1] + 1) if shifted[r, c] == gain else ends
                gains[np.isin(of_ours, used)] = gains[:, np.isin(of_theirs, used)] = -np.inf
        return moved

    @staticmethod
    def _gains(scores: Floats, of_ours: Ints, of_theirs: Ints) -> tuple[Floats, Floats]:
        """Return by how much the score of a path increases if a pair is moved, in two ways, [n, m].

        First: the former counterparts of the two sentences are left unaligned. Second: all pairs between the
        two places shift by one. `scores`: of all pairs. `of_ours`, `of_theirs`: the bead of each sentence.
        """
        apart = np.abs(of_ours[:, None] - of_theirs)
        placed = np.maximum(scores, _REPLACED) + _PAIR
        r, c = np.nonzero(apart == 0)
        value = np.full(1 + max(of_ours.max(), of_theirs.max()), _ALONE)
        value[of_ours[r]] = placed[r, c] - _ALONE
        pair: Floats = scores + _PAIR - _DISTANCE * np.log(np.maximum(1, apart))
        alone = pair - value[of_ours][:, None] - value[of_theirs] - _MOVED
        here, later, earlier = (
            np.cumsum([0.0, *placed[cells]]) for cells in ((r, c), (r[1:], c[:-1]), (r[:-1], c[1:]))
        )
        place = np.arange(len(r))
        low, high = np.minimum(place[:, None], place), np.maximum(place[:, None], place)
        change = np.where(place[:, None] < place, later[high] - later[low], earlier[high] - earlier[low])
        change -= here[high + 1] - here[low]
        stretch = np.cumsum(np.diff(of_ours[r], prepend=0) > 1)  # numbers of the runs of adjacent pairs
        change[stretch[:, None] != stretch] = -np.inf
        shifted = np.full_like(pair, -np.inf)
        shifted[np.ix_(r, c)] = pair[np.ix_(r, c)] + change - _SHIFTED
        alone[r, c] = shifted[r, c] = -np.inf
        return alone, shifted

    def _scores(self, source: Side, output: Side) -> Floats:
        """Return scores of all beads by lengths and words; unrelated sentences are expected at `_UNRELATED`.

        Deviations from the expectation grow with the square root of the number of words.
        """
        scores = self._lengths.scores(source, output) + self._lexicon.scores(source, output)
        words = _SIZES * (np.diff(source.bounds)[:, None] + np.diff(output.bounds))
        low = np.minimum(self._unrelated * words, _UNRELATED).astype(np.float32)
        calibrated: Floats = _UNRELATED + (scores - low) * np.sqrt(_UNRELATED / low)
        return calibrated


def sigmoid(value: float) -> float:
    return (1 + math.tanh(value / 2)) / 2
