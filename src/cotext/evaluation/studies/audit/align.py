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
from itertools import pairwise
from operator import itemgetter
from typing import Final

import numpy as np

from cotext.data import alignment
from cotext.data.alignment import PRIORS, Floats, Side

Text = Sequence[Sequence[str]]  # documents of sentences
Path = Sequence[alignment.Bead]

_ROUNDS: Final = 2  # of learning words from the last alignment
# Scores are in nats.
_RARER: Final = 6.0  # added to the score of a pair, since lost and added sentences are rarer than in a corpus
_REPLACED: Final = -6.0  # the lowest score of a pair in the same place
_UNRELATED: Final = -8.0  # the lowest score that is expected of unrelated sentences
# Subtracted from the score of a moved pair: a penalty, and a factor of the log of the distance in beads.
_MOVED: Final = 10.0
_DISTANCE: Final = 2.0
_WINDOW: Final = 4 * alignment.BLOCK  # beads among which they are looked for
_JOINS: Final = 3  # rounds of joining unaligned sentences to their neighbours; limits the time
_LEAST_MERGED: Final = 0.01  # share of beads with merged sentences that is assumed of any text
_SIZES: Final = np.array([[[1.0]], [[1.5]], [[1.5]]])  # of 1-1, 1-2 and 2-1 beads
_SAMPLE: Final = 128  # sentences of each side from which the score of unrelated sentences is estimated


@dataclass(frozen=True, slots=True)
class Bead:
    """Source and output sentences that correspond, counted from 0; one of the sides may be empty.

    `score`: log-likelihood ratio of words and lengths, in nats. `confidence`: the probability of the bead,
    compared with other beads of the same sentences. `moved`: the sentences are in different places.
    """

    source: tuple[int, ...]
    output: tuple[int, ...]
    score: float = 0.0
    confidence: float = 1.0
    moved: bool = False


def align(source: Text, output: Text, reference: Text = ()) -> list[Bead]:
    """Align the documents of two texts; return beads in the order of the text, numbered over all documents.

    `reference` has one line for each line of the source; its words are added to those of the source.
    """
    if reference:
        source = [
            list(map(" ".join, zip(*both, strict=True))) for both in zip(source, reference, strict=True)
        ]
    documents = list(zip(source, output, strict=True))
    vocabulary = alignment.Vocabulary()
    sides = [(vocabulary.side(one), vocabulary.side(other)) for one, other in documents]
    paths: list[Path] = [found.beads for found in alignment.align_documents(documents)]
    lines = [[line for document in text for line in document] for text in (source, output)]
    sample = tuple(vocabulary.side(every[:: 1 + len(every) // _SAMPLE]) for every in lines)
    for _ in range(_ROUNDS):
        judge = _Judge(list(zip(sides, paths, strict=True)), len(vocabulary), sample)
        paths = [judge.path(*each) for each in zip(sides, paths, strict=True)]
    beads, first, second = [], 0, 0
    for pair, path in zip(sides, paths, strict=True):
        for bead in judge.beads(*pair, path):
            of_source = tuple(i + first for i in bead.source)
            of_output = tuple(j + second for j in bead.output)
            beads.append(replace(bead, source=of_source, output=of_output))
        first, second = first + len(pair[0]), second + len(pair[1])
    return beads


class _Judge:
    """Scores of words, lengths and merged sentences, learned from aligned documents."""

    def __init__(
        self, aligned: Sequence[tuple[tuple[Side, Side], Path]], vocabulary: int, sample: Sequence[Side]
    ) -> None:
        beads = [(source, output, i, j) for (source, output), path in aligned for i, j in path if i and j]
        pairs = [(source.words_of(i), output.words_of(j)) for source, output, i, j in beads]
        self._lexicon = alignment.Lexicon(pairs, vocabulary)
        self._lengths = alignment.Lengths.of(sides for sides, _ in aligned)
        merged = sum(len(i) + len(j) > 2 for _, _, i, j in beads) / max(1, len(beads))
        # Squared: otherwise a few wrongly merged beads would lead to more.
        self._merged = math.log(max(merged, _LEAST_MERGED) ** 2 / 2 / PRIORS[1, 2])
        self._unrelated = 0.0  # the score that is expected of unrelated sentences, for each of their words
        words = sum(len(side.words) / max(1, len(side)) for side in sample)
        self._unrelated = float(self._scores(*sample)[0].mean() / max(1.0, words))

    def path(self, sides: tuple[Side, Side], before: Path) -> Path:
        """Return the best path; in long documents, only near `before`."""
        band = alignment.diagonal_band(*sides)
        if band.width > alignment.NARROW_WIDTH:
            band = alignment.path_band(before, *map(len, sides))

        def scores(i: range, j: range) -> Floats:
            found = self._scores(sides[0].part(i), sides[1].part(j))
            found[0] = np.maximum(found[0], _REPLACED)
            found[1:] += self._merged
            return found + _RARER

        return alignment.align_sides(*sides, band, scores)

    def beads(self, source: Side, output: Side, path: Path) -> list[Bead]:
        """Return the beads of a path by source; sentences in other places are separate beads."""
        moved = self._moved(source, output, path)
        gone = {bead.output[0] for bead in moved.values()}
        kept = [
            [n for n in range(len(side)) if n not in out] for side, out in ((source, moved), (output, gone))
        ]
        if moved:  # the other sentences are aligned once more, without them
            source, output = source.joined([(s,) for s in kept[0]]), output.joined([(t,) for t in kept[1]])
            left = [
                (tuple(s for s in i if s not in moved), tuple(t for t in j if t not in gone)) for i, j in path
            ]
            path = self.path((source, output), left)
        beads, place = [(float(s), bead) for s, bead in moved.items()], -1.0
        for (i, j), fit, sure in zip(*self._joined(source, output, path), strict=True):
            ours, theirs = tuple(kept[0][s] for s in i), tuple(kept[1][t] for t in j)
            place = ours[0] if ours else place + 1e-6
            beads.append((place, Bead(ours, theirs, fit, sure)))
        return [bead for _, bead in sorted(beads, key=itemgetter(0))]

    def _joined(
        self, source: Side, output: Side, path: Path, joins: int = _JOINS
    ) -> tuple[Path, list[float], list[float]]:
        """Join unaligned sentences to a bead beside them if they are more probably a part of it.

        So a sentence may correspond to three or more. Returns beads, their scores and probabilities.
        """
        fits: list[float] = alignment.bead_scores(source, output, path, self._scores).tolist()
        sure, chosen = [sigmoid(fit + _RARER) for fit in fits], dict[int, alignment.Bead]()
        firsts = [n for n, (one, two) in enumerate(pairwise(path)) if all(one) != all(two)]
        joined = [(path[n][0] + path[n + 1][0], path[n][1] + path[n + 1][1]) for n in firsts]
        prior = math.log(PRIORS[1, 2] / PRIORS[1, 1] / PRIORS[1, 0]) + self._merged
        together = alignment.bead_scores(source, output, joined, self._scores)
        for n, bead, fit in zip(firsts, joined, together, strict=True):
            b, other = (n + 1, n) if all(path[n]) else (n, n + 1)
            apart = sigmoid(max(fits[other], _REPLACED) - fit - prior)
            sure[b] = min(sure[b], apart)
            if apart < 1 / 2 and not {n - 1, n, n + 1} & chosen.keys():
                chosen[n] = bead
        if not (chosen and joins):
            return path, fits, sure
        path = [chosen.get(n, bead) for n, bead in enumerate(path) if n - 1 not in chosen]
        return self._joined(source, output, path, joins - 1)

    def _moved(self, source: Side, output: Side, path: Path) -> dict[int, Bead]:
        """Return the beads of translations in another place, by source sentence.

        A pair is moved if the score of the path increases by more than the penalty of the distance. Of all
        moves in a window, the best ones are made first, at most one from each bead.
        """
        moved: dict[int, Bead] = {}
        for at in range(0, len(path), _WINDOW):
            window = path[at : at + _WINDOW]
            rows = [(s, b) for b, (i, _) in enumerate(window) for s in i]
            columns = [(t, b) for b, (_, j) in enumerate(window) for t in j]
            if not rows or not columns:
                continue
            (ours, of_ours), (theirs, of_theirs) = np.array(rows).T, np.array(columns).T
            scores = self._scores(source.joined(ours[:, None]), output.joined(theirs[:, None]))[0]
            apart = np.abs(of_ours[:, None] - of_theirs)
            gains = self._gains(source, output, window, scores)
            gains -= _MOVED + _DISTANCE * np.log(np.maximum(1, apart))
            gains[apart == 0] = -np.inf
            while (gain := float(gains.max())) > 0:
                r, c = map(int, np.unravel_index(gains.argmax(), gains.shape))
                s, t = rows[r][0], columns[c][0]
                moved[s] = Bead((s,), (t,), float(scores[r, c]), sigmoid(gain), True)
                for bead in (rows[r][1], columns[c][1]):
                    gains[of_ours == bead] = gains[:, of_theirs == bead] = -np.inf
        return moved

    def _gains(self, source: Side, output: Side, path: Path, scores: Floats) -> Floats:
        """Return by how much the score of a path increases if a pair is taken out of it, [n, m].

        `scores`: of all pairs of sentences of the path.
        """
        pair = scores + _RARER + math.log(PRIORS[1, 1])
        placed = np.maximum(pair, _REPLACED + _RARER + math.log(PRIORS[1, 1]))
        fits = alignment.bead_scores(source, output, path, self._scores) + _RARER + self._merged
        gains, r, c = pair, 0, 0

        def score(rows: Sequence[int], columns: Sequence[int]) -> float:
            if rows and columns:
                return float(placed[rows[0], columns[0]])
            return math.log(PRIORS[1, 0]) * len([*rows, *columns])

        for b, (i, j) in enumerate(path):
            rows, columns = [*range(r, r + len(i))], [*range(c, c + len(j))]
            r, c = r + len(i), c + len(j)
            value = score(rows, columns)
            if len(i) + len(j) > 2:
                value = float(fits[b]) + math.log(PRIORS[len(i), len(j)])
            for row in rows:
                gains[row] -= value - score([each for each in rows if each != row], columns)
            for column in columns:
                gains[:, column] -= value - score(rows, [each for each in columns if each != column])
            # Two neighbours that changed places: when one is moved, the others are a pair.
            after = path[b + 1 : b + 2]
            if len(i) == len(j) == 1 and [tuple(map(len, bead)) for bead in after] == [(1, 1)]:
                alone = score((), (0, 0))
                gains[r - 1, c] += max(0.0, placed[r, c - 1] - alone)
                gains[r, c - 1] += max(0.0, placed[r - 1, c] - alone)
        return gains

    def _scores(self, source: Side, output: Side) -> Floats:
        """As `alignment.Lengths.scores`; unrelated sentences are expected to have `_UNRELATED` at least.

        Deviations from the expectation grow with the square root of the number of words.
        """
        scores = self._lengths.scores(source, output) + self._lexicon.scores(source, output)
        words = _SIZES * (np.diff(source.bounds)[:, None] + np.diff(output.bounds))
        low = np.minimum(self._unrelated * words, _UNRELATED).astype(np.float32)
        calibrated: Floats = _UNRELATED + (scores - low) * np.sqrt(_UNRELATED / low)
        return calibrated


def sigmoid(value: float) -> float:
    return (1 + math.tanh(value / 2)) / 2
