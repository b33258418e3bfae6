"""Alignment of an output with its source, sentence by sentence, without a dictionary.

Which words translate each other is learned from the audited text alone (IBM model 1, Brown et al. 1993,
section 4.1). A sentence is scored without what was learned from itself, so that a wrong pair cannot explain
itself. As in Moore (2002), lengths align the text first, then words and lengths together. Scores are
log-likelihood ratios against sentences that have nothing to do with each other.

Shapes: N source sentences, M output sentences, V words.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.alignment import learned_links
from cotext.data.words import is_letter, words_of

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Kind = tuple[int, int]  # numbers of source and output sentences of a bead

_STEM: Final = 5  # letters by which forms of a word are one
_LONGEST: Final = 100  # words of a sentence that are read
_MOST_PAIRS: Final = 20_000  # sentences from which words are learned
_ITERATIONS: Final = 5
_KNOWN: Final = 0.7  # share of a sentence's words that its translation explains; the rest is as in any text
_PRIOR: Final = 1.0  # occurrences that the frequencies of words count for
_SAME: Final = 2.0  # occurrences that a word of the same letters counts for
_SPREAD: Final = 0.8  # how far the lengths of nine in ten pairs are apart, at most, before it is known
_UNLIKE: Final = -10.0  # the least score of lengths
_VARIANCE: Final = 6.8  # of characters, Gale and Church (1993), section 3.2
_MOST_MERGED: Final = 4
# Logarithms of how often a sentence is lost or added, sentences are merged or divided, or change places.
_LOST: Final = -6.0
_MERGED: Final = -8.0
_SWAPPED: Final = -7.0
_ROUNDS: Final = 2  # of learning words from the last alignment
_WINDOW: Final = 400  # source sentences that are aligned at once; half of them are kept
CROSSED: Final[Kind] = (2, 2)
_NOTHING: Final = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class Bead:
    """Source and output sentences that belong together, from 0; one of the sides may be empty.

    `confidence`: the probability of this bead; `score`: of its words, in nats. `moved`: two that crossed.
    """

    source: tuple[int, ...]
    output: tuple[int, ...]
    confidence: float
    score: float = 0.0
    moved: bool = False


def tokens(text: str) -> list[str]:
    """The stems of words, the signs, and pairs of characters of scripts without spaces, of a text."""
    words = words_of(unicodedata.normalize("NFKC", text).casefold())[:_LONGEST]
    found = []
    for word, after in pairwise([*words, *words_of(".")]):
        found.append(word.text[:_STEM])
        joint = word.text.isalpha() and not is_letter(word.text[0]) and after.start == word.stop
        found += [word.text + after.text] if joint and after.text.isalpha() else []
    return found


def _joined(words: Iterable[Ids]) -> Ids:
    return np.concatenate([np.empty(0, np.int64), *words])


class Lexicon:
    """Which target words translate a source word, learned from pairs of sentences by the source's number."""

    def __init__(self, pairs: Mapping[int, tuple[Ids, Ids]], frequencies: Floats) -> None:
        self._q_V = frequencies
        size = len(frequencies)
        kept = dict(list(pairs.items())[:_MOST_PAIRS])
        s = _joined(np.repeat(s, len(t)) for s, t in kept.values())
        t = _joined(np.tile(t, len(s)) for s, t in kept.values())
        sizes = [len(s) * len(t) for s, t in kept.values()]
        starts = np.cumsum([0, *sizes])
        of_pair = {n: slice(a, b) for n, (a, b) in zip(kept, pairwise(starts.tolist()), strict=True)}
        # A position of a target sentence: where its pair starts, and its place in it.
        place = [
            np.tile(np.arange(len(t)), len(s)) + a
            for (s, t), a in zip(kept.values(), starts.tolist(), strict=False)
        ]
        place_P = _joined(place)
        keys, unique_P = np.unique(s * size + t, return_inverse=True)
        s_U, self._t_U = keys // size, keys % size
        _, self._counts_U, share_P = learned_links(unique_P, place_P, s_U, _ITERATIONS)
        self._totals_V = np.bincount(s_U, self._counts_U, size)
        self._rows = np.searchsorted(s_U, np.arange(size + 1))
        self._own = {n: (s[each], t[each], share_P[each]) for n, each in of_pair.items()}

    def ratios(self, number: int, words: Ids) -> Floats:
        """How much likelier each word is in the translation of a sentence than anywhere: [V].

        What was learned from the pair of that number does not count.
        """
        own_s, own_t, own = self._own.get(number, _NOTHING)
        size = len(self._q_V)
        totals = self._totals_V[words] - np.bincount(own_s, own, size)[words]
        weights = 1 / (len(words) * (totals + _SAME + _PRIOR))
        weights_V = np.bincount(words, weights, size)  # once for each occurrence in the sentence
        p_V = weights_V * _SAME
        for word, weight in zip(words.tolist(), weights.tolist(), strict=True):
            row = slice(self._rows[word], self._rows[word + 1])
            p_V[self._t_U[row]] += weight * self._counts_U[row]
        p_V -= np.bincount(own_t, weights_V[own_s] * own, size)
        # What the other side never has as it is, is no evidence against other words.
        flat = _PRIOR * weights.sum() + _SAME * weights_V[self._q_V == 0].sum()
        ratios_V: Floats = np.maximum(p_V, 0) / np.maximum(self._q_V, 1e-12) + flat
        return ratios_V


class Aligner:
    """Documents of two texts, aligned; `reference` has a line for each of the source and is read with it."""

    def __init__(
        self,
        source: Sequence[Sequence[str]],
        output: Sequence[Sequence[str]],
        reference: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self._ids: dict[str, int] = {}
        self._sizes = [(len(one), len(other)) for one, other in zip(source, output, strict=True)]
        source_lines, output_lines = (
            [line for document in each for line in document] for each in (source, output)
        )
        self._source = [self._words(line) for line in source_lines]
        self._output = [self._words(line) for line in output_lines]
        if reference is not None:
            more = [self._words(line) for document in reference for line in document]
            self._source = [np.concatenate(each) for each in zip(self._source, more, strict=True)]
        sizes = [np.array([_length(line) for line in each]) for each in (source_lines, output_lines)]
        # In characters of the longer text.
        ratio = max(1.0, sizes[1].sum()) / max(1.0, sizes[0].sum())
        self._lengths = sizes[0] * max(1.0, ratio), sizes[1] * max(1.0, 1 / ratio)
        self._spread, self._merged = _SPREAD, _MERGED
        self._words_of_source = max(1, sum(map(len, self._source)))
        self._words_of_output = max(1, sum(map(len, self._output)))
        self._learn([])

    def _words(self, text: str) -> Ids:
        return np.array([self._ids.setdefault(each, len(self._ids)) for each in tokens(text)], dtype=np.int64)

    def beads(self) -> list[Bead]:
        """The beads of all documents in order; sentences are numbered over the whole text."""
        for _ in range(_ROUNDS):
            self._learn([bead for bead in self._all() if bead.source and bead.output])
        return list(self._all())

    def _learn(self, beads: Sequence[Bead]) -> None:
        """Learn which words belong together, and how far lengths are apart, from what is aligned."""
        one, other = self._lengths
        if beads:
            # Where many sentences are merged, the next one is more likely merged than lost.
            merged = sum(len(bead.source) != len(bead.output) for bead in beads) / len(beads)
            self._merged = max(_MERGED, 2 * math.log(max(merged, 1e-9)))
            sums = [(one[list(bead.source)].sum(), other[list(bead.output)].sum()) for bead in beads]
            self._spread = max(_SPREAD / 2, float(np.quantile(_unlike(*np.array(sums).T), 0.9)))
        of_source, of_output = self._source, self._output
        forward = {
            i: (of_source[i], _joined(of_output[j] for j in bead.output))
            for bead in beads
            for i in bead.source
        }
        backward = {
            j: (of_output[j], _joined(of_source[i] for i in bead.source))
            for bead in beads
            for j in bead.output
        }
        counts = [np.bincount(_joined(words), minlength=len(self._ids)) for words in (of_source, of_output)]
        self._forward = Lexicon(forward, counts[1] / max(1, counts[1].sum()))
        self._backward = Lexicon(backward, counts[0] / max(1, counts[0].sum()))

    def _all(self) -> Iterator[Bead]:
        first, second = 0, 0
        for n, m in self._sizes:
            yield from self._document(range(first, first + n), range(second, second + m))
            first, second = first + n, second + m

    def _document(self, source: range, output: range) -> Iterator[Bead]:
        """The beads of a document, a window after the other."""
        while len(source) > _WINDOW:
            found = _best(self._scores(source[:_WINDOW], output[: 2 * _WINDOW]), source.start, output.start)
            kept = list(takewhile(partial(_begins_before, source[_WINDOW // 2]), found))
            yield from kept
            source = range(1 + max(i for bead in kept for i in bead.source), source.stop)
            output = range(
                max((j + 1 for bead in kept for j in bead.output), default=output.start), output.stop
            )
        yield from _best(self._scores(source, output), source.start, output.start)

    def score(self, source: range, output: range) -> Floats:
        """The scores of sentences as pairs, lengths included: [N, M]."""
        return self._scores(source, output)[1, 1][:-1, :-1]

    def _scores(self, source: range, output: range) -> dict[Kind, Floats]:
        """The scores of beads of each kind by the sentences with which they begin: [N + 1, M + 1]."""
        n, m = len(source), len(output)
        forward = _directed(self._forward, source, self._source, [self._output[j] for j in output])
        backward = _directed(self._backward, output, self._output, [self._source[i] for i in source])
        # A side that is cut into more words tells no more than the other.
        forward = [each * min(1.0, self._words_of_source / self._words_of_output) for each in forward]
        backward = [each * min(1.0, self._words_of_output / self._words_of_source) for each in backward]
        lengths = self._lengths[0][source.start : source.stop], self._lengths[1][output.start : output.stop]
        found: dict[Kind, Floats] = {}
        for k, g in [
            (1, 1),
            *((k, 1) for k in range(2, _MOST_MERGED + 1)),
            *((1, k) for k in range(2, _MOST_MERGED + 1)),
        ]:
            if k > n or g > m:
                continue
            score_NM = np.full((n + 1, m + 1), -np.inf)
            of_output = _windows(forward[k - 1][: n - k + 1], g, 1)
            of_source = _windows(backward[g - 1][: m - g + 1].T, k, 0)
            # Of merged sentences each has to explain words of its own, so that the single side alone tells.
            of_words = (of_output + of_source) / 2 if k == g else of_output if k > g else of_source
            sums = _windows(lengths[0], k, 0)[:, None], _windows(lengths[1], g, 0)[None]
            score_NM[: n - k + 1, : m - g + 1] = (
                of_words + np.maximum(1 - _unlike(*sums) / self._spread, _UNLIKE) + (k + g - 2) * self._merged
            )
            found[k, g] = score_NM
        if n > 1 and m > 1:
            crossed_NM = np.full((n + 1, m + 1), -np.inf)
            pairs = found[1, 1]
            crossed_NM[: n - 1, : m - 1] = pairs[: n - 1, 1:m] + pairs[1:n, : m - 1] + _SWAPPED
            found[CROSSED] = crossed_NM
        found[1, 0] = np.full((n + 1, m + 1), _LOST)
        found[1, 0][n:] = -np.inf
        return found


def _length(text: str) -> float:
    """The length of a text in letters; a character of a script without spaces is as long as a short word."""
    return len(text) + 2.0 * sum(letter.isalpha() and not is_letter(letter) for letter in text)


def _unlike(one: Floats, other: Floats) -> Floats:
    """How far lengths are apart, squared, as that of their mean would vary (Gale and Church 1993)."""
    return (one - other) ** 2 / (_VARIANCE * (one + other) / 2 + 1)


def _begins_before(stop: int, bead: Bead) -> bool:
    return not bead.source or bead.source[-1] < stop


def _windows(values: Floats, size: int, axis: int) -> Floats:
    """Sums of so many neighbours."""
    sums: Floats = np.lib.stride_tricks.sliding_window_view(values, size, axis).sum(-1)
    return sums


def _directed(lexicon: Lexicon, numbers: range, words: Sequence[Ids], others: Sequence[Ids]) -> list[Floats]:
    """How well one to four sentences explain the words of each other: of each number, [sentences, others]."""
    ends = np.cumsum([0, *map(len, others)])
    flat = _joined(others)
    ratios = [len(words[n]) * lexicon.ratios(n, words[n])[flat] for n in numbers]
    sizes = [len(words[n]) for n in numbers]
    found = []
    for k in range(1, _MOST_MERGED + 1):
        rows = np.zeros((len(numbers), len(others)))
        for i in range(len(numbers) - k + 1):
            block = sum(ratios[i : i + k]) / max(1, sum(sizes[i : i + k]))
            explained = np.cumsum(np.log(_KNOWN * block + 1 - _KNOWN))
            rows[i] = np.diff(np.concatenate([[0.0], explained])[ends])
        found.append(rows)
    return found


def _best(scores: Mapping[Kind, Floats], first: int, second: int) -> Iterator[Bead]:
    """The beads from the start, each the likeliest behind those before it, with their probabilities."""
    after = _rest(scores)
    n, m = (size - 1 for size in after.shape)
    flipped = {}
    for (k, g), each in scores.items():
        flipped[k, g] = np.full(each.shape, -np.inf)
        flipped[k, g][: n - k + 1, : m - g + 1] = each[: n - k + 1, : m - g + 1][::-1, ::-1]
    before = _rest(flipped)[::-1, ::-1]
    i = j = 0
    while (i, j) != (n, m):
        ways = [
            (each[i, j] + after[i + k, j + g], (k, g), each[i, j])
            for (k, g), each in scores.items()
            if i + k <= n and j + g <= m
        ]
        ways += [(_LOST + after[i, j + 1], (0, 1), _LOST)] if j < m else []
        rest, (k, g), score = max(ways)
        # Where a lost sentence stands among added ones makes no difference.
        paths = (
            before[i, j] + rest
            if k and g
            else before[i] + after[i + 1] + _LOST
            if k
            else before[:, j] + after[:, j + 1] + _LOST
        )
        sure = float(np.exp(min(0.0, np.logaddexp.reduce(paths, axis=None) - after[0, 0])))
        source, output = tuple(range(first + i, first + i + k)), tuple(range(second + j, second + j + g))
        if (k, g) == CROSSED:
            yield Bead(source[:1], output[1:], sure, score, moved=True)
            yield Bead(source[1:], output[:1], sure, score, moved=True)
        else:
            yield Bead(source, output, sure, score)
        i, j = i + k, j + g


def _rest(scores: Mapping[Kind, Floats]) -> Floats:
    """The log-likelihood of all that follows a place in both texts: [N + 1, M + 1]."""
    n, m = (size - 1 for size in scores[1, 0].shape)
    found = np.full((n + 1, m + 1), -np.inf)
    found[n, m] = 0.0
    added = _LOST * np.arange(m + 1)
    for i in range(n, -1, -1):
        row = found[i]
        for (k, g), each in scores.items():
            if i + k <= n and g <= m:
                stop = m + 1 - g
                np.logaddexp(row[:stop], each[i, :stop] + found[i + k, g:], out=row[:stop])
        # Output sentences that stand for nothing.
        row[:] = np.logaddexp.accumulate((row + added)[::-1])[::-1] - added
    return found
