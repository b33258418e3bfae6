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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotext.data import alignment
from cotext.data.alignment import PRIORS, Floats, Scores, Side
from cotext.evaluation.studies.audit.posteriors import posteriors

Path = Sequence[alignment.Bead]
Numbers = NDArray[np.floating[Any]]

_ROUNDS: Final = 2  # of learning words from the last alignment
# Scores are in nats.
_RARER: Final = 3.0  # added to both sentences of a pair, since lost and added ones are rarer than in a corpus
_REPLACED: Final = -6.0  # the lowest score of a pair in the same place
_SUSPECT: Final = 0.0  # the lowest score if the output sentence is unlikely to be a translation of anything
_UNRELATED: Final = -8.0  # the lowest score that is expected of unrelated sentences
_MOVED: Final = 4.0  # the lowest score of two sentences in different places
_NEARBY: Final = 0.0  # the same, at most `_NEAR` beads apart, and if none of the beads is merged
_NEAR: Final = 8
_ALONE: Final = -2.0  # the same, at most `_NEXT` beads apart, if no other sentence is in the place of either
_NEXT: Final = 4
_STAYS: Final = 3.0  # added to the score of a pair in the same place, beyond `_NEARBY`
_WINDOW: Final = 4 * alignment.BLOCK  # beads among which sentences in other places are looked for
_JOINS: Final = 3  # rounds of joining unaligned sentences to their neighbours; limits the time
_LEAST_MERGED: Final = 0.01  # share of beads with merged sentences that is assumed of any text
_SAMPLE: Final = 128  # sentences of each side from which the score of unrelated sentences is estimated


@dataclass(frozen=True, slots=True)
class Bead:
    """Source and output sentences that correspond, counted from 0; one of the sides may be empty.

    `score`: log-likelihood ratio of words and lengths, in nats. `confidence`: the probability that the
    sentence has no counterpart, or that at least two sentences of both sides correspond. `moved`: the
    sentences are in different places.
    """

    source: tuple[int, ...]
    output: tuple[int, ...]
    score: float = 0.0
    confidence: float = 1.0
    moved: bool = False


def align(
    source: Sequence[Sequence[str]],
    output: Sequence[Sequence[str]],
    reference: Sequence[Sequence[str]] | None = None,
    *,
    suspects: Sequence[bool],
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
    lines = [[line for document in side for line in document] for side in (source, output)]
    sample = tuple(vocabulary.side(every[:: 1 + len(every) // _SAMPLE]) for every in lines)
    for _ in range(_ROUNDS):
        judge = _Judge(sides, paths, len(vocabulary), sample)
        paths = [judge.path(*each) for each in zip(sides, floors, paths, strict=True)]
    beads, first, second = [], 0, 0
    for pair, floor, path in zip(sides, floors, paths, strict=True):
        for bead in judge.beads(*pair, floor, path):
            of_source = tuple(i + first for i in bead.source)
            of_output = tuple(j + second for j in bead.output)
            beads.append(replace(bead, source=of_source, output=of_output))
        first, second = first + len(pair[0]), second + len(pair[1])
    return beads


class _Judge:
    """Scores of words, lengths and merged sentences, learned from the paths of all documents."""

    def __init__(
        self,
        sides: Sequence[tuple[Side, Side]],
        paths: Sequence[Path],
        vocabulary: int,
        sample: Sequence[Side],
    ) -> None:
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
        # Weights of the numbers of words, and a constant: the score that is expected of unrelated sentences.
        self._unrelated = np.zeros(3)
        sizes = np.broadcast_arrays(*_sizes(*sample), 1.0)
        scores = self._scores(*sample)[0]
        self._unrelated = np.linalg.lstsq(np.stack(sizes).reshape(3, -1).T, scores.ravel(), rcond=None)[0]

    def path(self, sides: tuple[Side, Side], floors: Floats, before: Path) -> Path:
        """Return the best path, in long documents near an earlier one; `floors`: lowest scores, [M]."""
        source, output = sides
        band = alignment.diagonal_band(source, output)
        if band.width > alignment.NARROW_WIDTH:
            band = alignment.path_band(before, len(source), len(output))
        return alignment.align_sides(source, output, band, self._ranges(sides, floors))

    def _ranges(self, sides: tuple[Side, Side], floors: Floats) -> Scores:
        def scores(i: range, j: range) -> Floats:
            found = self._scores(sides[0].part(i), sides[1].part(j))
            found[0] = np.maximum(found[0], floors[j.start : j.stop])
            found[1:] += self._merged
            return found + 2 * _RARER

        return scores

    def beads(self, source: Side, output: Side, floors: Floats, path: Path) -> list[Bead]:
        """Return the beads of a path; sentences in other places are separate beads."""
        moved = self._moved(source, output, floors, path)
        gone = set(moved), {bead.output[0] for bead in moved.values()}
        kept = [
            [n for n in range(len(side)) if n not in out]
            for side, out in zip((source, output), gone, strict=True)
        ]
        source, output = (
            side.joined([(n,) for n in own]) for side, own in zip((source, output), kept, strict=True)
        )
        if moved:
            left = [
                (tuple(s for s in i if s not in gone[0]), tuple(t for t in j if t not in gone[1]))
                for i, j in path
            ]
            path = self.path((source, output), floors[kept[1]], left)
        band = alignment.path_band(path, len(source), len(output))
        sure = posteriors(source, output, band, self._ranges((source, output), floors[kept[1]]))
        path, fits, alone = self._joined(source, output, path)
        beads, last = [], -1.0
        for (i, j), fit, apart in zip(path, fits, alone, strict=True):
            ours, theirs = tuple(kept[0][s] for s in i), tuple(kept[1][t] for t in j)
            last = ours[0] if ours else last + 1e-6
            beads.append((last, Bead(ours, theirs, fit, min(apart, sure.of((i, j))))))
        return [bead for _, bead in sorted([*beads, *moved.items()], key=lambda each: each[0])]

    def _joined(
        self, source: Side, output: Side, path: Path, joins: int = _JOINS
    ) -> tuple[Path, Floats, list[float]]:
        """Join unaligned sentences to a bead beside them if the joined texts are more probable.

        So a sentence may correspond to three or more. Returns the beads, their scores, and for each the
        probability that it is not a part of a bead beside it (1 if it has both sides).
        """
        prior = math.log(PRIORS[1, 2] / PRIORS[1, 1] / PRIORS[1, 0]) + self._merged
        beside = [
            (b, n)
            for b, bead in enumerate(path)
            for n in (b - 1, b + 1)
            if not all(bead) and 0 <= n < len(path) and all(path[n])
        ]
        both = [(path[min(b, n)], path[max(b, n)]) for b, n in beside]
        pairs = [(one[0] + two[0], one[1] + two[1]) for one, two in both]
        fits = alignment.bead_scores(source, output, path, self._scores)
        together = alignment.bead_scores(source, output, pairs, self._scores)
        alone, joined = [1.0] * len(path), dict[int, alignment.Bead]()  # joined: by the first bead of a pair
        for (b, n), pair, fit in zip(beside, pairs, together, strict=True):
            apart, first = _sigmoid(max(fits[n], _REPLACED) - fit - prior), min(b, n)
            alone[b] = min(alone[b], apart)
            if apart < 1 / 2 and not {first - 1, first, first + 1} & joined.keys():
                joined[first] = pair
        if not joined or not joins:
            return path, fits, alone
        path = [joined.get(b, bead) for b, bead in enumerate(path) if b - 1 not in joined]
        return self._joined(source, output, path, joins - 1)

    def _moved(self, source: Side, output: Side, floors: Floats, path: Path) -> dict[int, Bead]:
        """Return the beads of translations in another place, by source sentence.

        Of the pairs of sentences of neighbouring beads, the best ones are taken first.
        """
        moved: dict[int, Bead] = {}
        for at in range(0, len(path), _WINDOW // 2):
            window = path[at : at + _WINDOW]
            gone = {bead.output[0] for bead in moved.values()}
            rows = [(s, b) for b, (i, _) in enumerate(window) for s in i if s not in moved]
            columns = [(t, b) for b, (_, j) in enumerate(window) for t in j if t not in gone]
            if not rows or not columns:
                continue
            (ours, of_ours), (theirs, of_theirs) = np.array(rows).T, np.array(columns).T
            sides = source.joined([(s,) for s in ours]), output.joined([(t,) for t in theirs])
            scores = self._scores(*sides)[0]
            apart = np.abs(of_ours[:, None] - of_theirs)
            sizes = np.array([(len(i), len(j)) for i, j in window])
            merged, full = sizes.max(axis=1) > 1, sizes.min(axis=1) > 0
            near = (apart <= _NEAR) & ~(merged[of_ours][:, None] | merged[of_theirs])
            alone = (apart <= _NEXT) & ~(full[of_ours][:, None] | full[of_theirs])
            values = scores - np.select([alone, near], [_ALONE, _NEARBY], _MOVED)
            values[(floors[theirs] == _SUSPECT) & ~near] = -np.inf
            values = np.where(apart == 0, np.maximum(scores, floors[theirs]) - _NEARBY + _STAYS, values)
            for r, c in _assigned(values):
                if apart[r, c]:
                    s, t = int(ours[r]), int(theirs[c])
                    moved[s] = Bead((s,), (t,), float(scores[r, c]), _sigmoid(values[r, c]), True)
        return moved

    def _scores(self, source: Side, output: Side) -> Floats:
        scores = self._lengths.scores(source, output) + self._lexicon.scores(source, output)
        of_source, of_output = _sizes(source, output)
        per_source, per_output, constant = self._unrelated
        expected = per_source * of_source + per_output * of_output + constant
        scores[0] = _calibrated(scores[0], expected)
        scores[1, :, 1:] = _calibrated(scores[1, :, 1:], expected[:, 1:] + per_output * of_output[:, :-1])
        scores[2, 1:] = _calibrated(scores[2, 1:], expected[1:] + per_source * of_source[:-1])
        return scores


def _sigmoid(value: float) -> float:
    return (1 + math.tanh(value / 2)) / 2


def _calibrated(scores: Numbers, unrelated: Numbers) -> Floats:
    """Return scores for which unrelated sentences are expected to have `_UNRELATED` at least.

    Deviations from the expectation grow with the square root of the number of words.
    """
    low = np.minimum(unrelated, _UNRELATED)
    calibrated: Floats = _UNRELATED + (scores - low) * np.sqrt(_UNRELATED / low)
    return calibrated


def _sizes(source: Side, output: Side) -> tuple[Floats, Floats]:
    """Return the numbers of words, [n, 1] and [1, m]."""
    return np.diff(source.bounds)[:, None].astype(np.float32), np.diff(output.bounds)[None].astype(np.float32)


def _assigned(values: Numbers) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns with positive values, highest first, each row and column once."""
    rows, columns = np.nonzero(values > 0)
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for n in np.argsort(-values[rows, columns], kind="stable"):
        if rows[n] not in pairs and columns[n] not in taken:
            pairs[int(rows[n])] = int(columns[n])
            taken.add(int(columns[n]))
    return [*pairs.items()]
