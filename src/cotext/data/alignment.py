"""Alignment of the sentences of two documents that are translations of each other.

A document is cut into beads (Gale and Church 1993): 1 and 1, 1 and 2, or 2 and 1 sentences that translate
each other, or an unaligned sentence. The best beads maximise the likelihood ratio between translations and
unrelated sentences (after Moore 2002, "Fast and accurate sentence alignment of bilingual corpora"):

    log prior of the bead + log p(lengths | translation) / p(lengths) + log p(words | translation) / p(words)

Probabilities of words are those of IBM Model 1 in both directions (see `cotext.data.shortlist`). It is
learned from the documents, aligned by a first pass that uses only lengths and rare words that occur on both
sides.

Shapes: n source and m target sentences. Node (i, j) comes after i source and j target sentences. Of row i,
only a band of W nodes is searched, from column `low[i]`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.words import word_texts

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Links = NDArray[np.float64]

# Aligned source and target sentences, counted from 0 (a bead of Gale and Church 1993).
Bead = tuple[tuple[int, ...], tuple[int, ...]]

# Prior probability of a bead by its numbers of source and target sentences (Gale and Church 1993, table 5).
# Those of unaligned sentences are higher, because they are more frequent in uncurated texts.
PRIORS: Final = {(1, 1): 0.89, (1, 2): 0.0445, (2, 1): 0.0445, (1, 0): 0.02, (0, 1): 0.02}
KINDS: Final = tuple(PRIORS)
VARIANCE: Final = 6.8  # of target characters per source character, section 3.2 there
NARROW: Final = 40  # half width of the band around an earlier path
NARROW_WIDTH: Final = 601  # largest band that is searched directly, without an earlier path
NEAR: Final = 2  # half width of the band around a path in which a system scores sentences
MOST_NEAR: Final = 20  # nats by which such a score may be worse than the mean
WIDE: Final = (200, 1500)  # smallest and largest half width of the band around the diagonal
BLOCK: Final = 64  # source sentences whose words are compared at once
OUTLIERS: Final = 0.05  # share of beads with arbitrary lengths
EXPLAINED: Final = 0.9  # largest probability that a word of a translation is explained by the other side
SAME: Final = 0.3  # probability that a word is translated by itself
DISCOUNT: Final = 0.75  # subtracted from counts of the lexicon: single occurrences are unreliable
STEM: Final = 5  # letters of a word that are compared, so that inflected forms and cognates are equal
MOST_CELLS: Final = 10_000_000  # word pairs from which the lexicon is learned
MOST_WORDS: Final = 200  # longest sentence from which the lexicon is learned
MOST_LIKELIER: Final = 1000  # largest likelihood ratio of a word
_ROUNDS: Final = 4  # of expectation and maximisation


@dataclass(frozen=True, slots=True)
class Band:
    """The searched nodes: in row i, columns `low[i]` to `low[i] + width - 1`."""

    low: Ints  # [n + 1]
    width: int


# Returns, for row i, the scores of 1-1, 1-2 and 2-1 beads that end at its nodes, [3, W].
RowScores = Callable[[int], Floats]


def best_path(n: int, m: int, band: Band, row_scores: RowScores, skip: float) -> list[Bead]:
    """Return the beads with the highest sum of scores; an empty list if the band contains no path.

    `skip`: score of an unaligned sentence; minus infinity if all sentences must be aligned.
    """
    steps = np.full((n + 1, band.width), -1, np.int8)
    columns = np.arange(band.width)
    rows: list[NDArray[np.float64]] = []
    for i in range(n + 1):
        ways = np.full((4, band.width), -np.inf)
        if i == 0:
            ways[0, -int(band.low[0])] = 0.0
        else:
            scores = row_scores(i)
            for kind, (k, m_of) in enumerate(KINDS[:4]):
                if i >= k:
                    before = _moved(rows[-k], int(band.low[i] - band.low[i - k]) - m_of)
                    ways[kind] = before + (scores[kind] if kind < 3 else skip)
        best = ways.argmax(axis=0)
        row = ways.max(axis=0)
        if skip > -np.inf:
            # Unaligned target sentences: a running maximum along the row.
            level = row - skip * columns
            reached = np.maximum.accumulate(level)
            best = np.where(reached > level, 4, best)
            row = reached + skip * columns
        steps[i] = np.where(np.isfinite(row), best, -1)
        rows = [*rows[-1:], row]
    beads: list[Bead] = []
    i, j = n, m
    while (i, j) != (0, 0):
        at = j - int(band.low[i])
        if not 0 <= at < band.width or steps[i, at] < 0:
            return []
        k, m_of = KINDS[steps[i, at]]
        i, j = i - k, j - m_of
        beads.append((tuple(range(i, i + k)), tuple(range(j, j + m_of))))
    return beads[::-1]


def _moved(row: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    """Shift a row: entry c of the result is entry c + by, or minus infinity outside."""
    width = len(row)
    moved = np.full(width, -np.inf)
    first, last = max(0, -by), min(width, width - by)
    if first < last:
        moved[first:last] = row[first + by : last + by]
    return moved


@dataclass(frozen=True, slots=True)
class Side:
    """The sentences of a side: their numbers of characters, and their concatenated word ids."""

    lengths: Floats  # [n]
    words: Ints
    bounds: Ints  # [n + 1]

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self.lengths)

    def part(self, sentences: range) -> "Side":
        """Return a range of sentences."""
        first, last = sentences.start, sentences.stop
        start, stop = self.bounds[first], self.bounds[last]
        return Side(self.lengths[first:last], self.words[start:stop], self.bounds[first : last + 1] - start)

    def words_of(self, sentences: Sequence[int]) -> Ints:
        """Return the words of consecutive sentences."""
        if not sentences:
            return self.words[:0]
        return self.words[self.bounds[sentences[0]] : self.bounds[sentences[-1] + 1]]

    def joined(self, groups: Sequence[Sequence[int]]) -> "Side":
        """Join each group of consecutive sentences to one sentence."""
        words = [self.words_of(group) for group in groups]
        lengths = np.array([self.lengths[[*group]].sum() for group in groups], np.float32)
        return Side(lengths, np.concatenate([*words, _NONE]), np.cumsum([0, *map(len, words)]))


class Vocabulary:
    """Ids of lower-case word stems; a stem that occurs in both languages has one id."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        """Count the words."""
        return len(self._ids)

    def side(self, sentences: Sequence[str]) -> Side:
        """Convert a side of a document, and add its words to the vocabulary."""
        words = [dict.fromkeys(w[:STEM] for w in word_texts(sentence.lower())) for sentence in sentences]
        ids = [[self._ids.setdefault(word, len(self._ids)) for word in sentence] for sentence in words]
        lengths = np.array([*map(len, sentences)], np.float32)
        return Side(lengths, np.array([*chain(*ids)], np.int64), np.cumsum([0, *map(len, ids)]))


# --- Scores of beads by lengths and words: log likelihood ratios.


@dataclass(frozen=True, slots=True)
class Lengths:
    """A model of lengths: target characters per source character, and log-normal target lengths."""

    ratio: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[Side, Side]]) -> "Lengths":
        """Estimate the model from documents; the ratio is the median of their ratios."""
        documents = [(s, t) for s, t in pairs if len(s) and len(t)]
        ratios = [float(t.lengths.sum() / max(1, s.lengths.sum())) for s, t in documents]
        logs = np.log1p(np.concatenate([t.lengths for _, t in documents] or [np.ones(1, np.float32)]))
        ratio = float(np.clip(np.median(ratios or [1.0]), 0.1, 10))
        return cls(ratio, float(logs.mean()), max(0.5, float(logs.std())))

    def scores(self, source: Side, target: Side) -> Floats:
        """Return the scores of 1-1, 1-2 and 2-1 beads that end at each pair of sentences, [3, n, m]."""
        s, t = source.lengths[:, None] * self.ratio, target.lengths[None, :]
        alone = self._alone(t)
        both = t[:, 1:] + t[:, :-1]
        scores = np.full((3, len(source), len(target)), -np.inf, np.float32)
        scores[0] = self._ratio(s, t, alone)
        # log1p(both): all cuts into two sentences are equally probable.
        scores[1, :, 1:] = self._ratio(s, both, alone[:, 1:] + alone[:, :-1] + np.log1p(both))
        scores[2, 1:] = self._ratio(s[1:] + s[:-1], t, alone)
        return scores

    def _alone(self, t: Floats) -> Floats:
        logs = np.log1p(t)
        density = -(((logs - self.mean) / self.deviation) ** 2) / 2 - logs - math.log(self.deviation)
        return density.astype(np.float32)

    def _ratio(self, expected: Floats, t: Floats, alone: Floats) -> Floats:
        variance = VARIANCE * np.maximum(5, (expected + t) / 2)
        together = -((t - expected) ** 2) / (2 * variance) - np.log(variance) / 2
        ratio: Floats = np.logaddexp(math.log(1 - OUTLIERS) + together - alone, math.log(OUTLIERS))
        return ratio


def learned_links(entry: Ints, place: Ints, own: Ints, rounds: int) -> tuple[Links, Links, Links]:
    """Learn IBM Model 1 by expectation and maximisation (Brown et al. 1993, section 4.1).

    A cell is an occurrence of a word with a word of the other side of the sentence pair that may generate it.
    An entry is a pair of words of the lexicon. `entry`: the entry of each cell. `place`: the generated
    occurrence of each cell. `own`: the generating word of each entry. Returns the probability and the
    expected count of each entry, and the posterior of each cell.
    """
    probability: Links = np.ones(len(own))
    expected, shares = probability, probability[entry]
    for _ in range(rounds):
        shares = probability[entry]
        shares /= np.bincount(place, shares)[place]
        expected = np.bincount(entry, shares, minlength=len(own)).astype(np.float64, copy=False)
        probability = expected / np.bincount(own, expected)[own]
    return probability, expected, shares


class Words:
    """p(word of one side | words of the other): IBM Model 1, and words that are equal on both sides.

    All cells of words that occur in at least two pairs are in memory. This is fast for the few pairs that
    suffice here; `cotext.data.shortlist` learns from more.
    """

    def __init__(self, pairs: Sequence[tuple[Ints, Ints]], vocabulary: int) -> None:
        source, given, sizes = _frequent([s for s, _ in pairs], vocabulary)
        target, counts, targets = _frequent([t for _, t in pairs], vocabulary)
        # A cell: the position of a target word, and a source word of its pair.
        pair = np.repeat(np.arange(len(pairs)), targets)
        place = np.repeat(np.arange(len(target)), sizes[pair])
        cells = source[_stretches((np.cumsum(sizes) - sizes)[pair], sizes[pair])] * vocabulary + target[place]
        entries, entry = np.unique(cells, return_inverse=True)
        own, theirs = entries // vocabulary, entries % vocabulary
        probability, _, _ = learned_links(entry, place, own, _ROUNDS)
        values = np.maximum(0, probability - DISCOUNT / given[own]).astype(np.float32)
        self._same = (2 * SAME / (given + 2)).astype(np.float32)
        self._frequency = (np.maximum(counts, 1) / max(1, counts.sum())).astype(np.float32)
        explained = (values + np.where(own == theirs, self._same[own], 0))[entry]
        likelier = np.bincount(place, explained, minlength=len(target)) / np.maximum(1, sizes[pair])
        likelier /= self._frequency[target]
        # How often a word is explained by the other side, by expectation and maximisation; smoothed, so that
        # rare words are considered less reliable.
        share = np.full(vocabulary, EXPLAINED)
        for _ in range(_ROUNDS):
            by = share[target] * likelier
            share = np.bincount(target, by / (by + 1 - share[target]), minlength=vocabulary) / (counts + 2)
        once = np.where(given > 0, EXPLAINED / 3, 0)
        self._share = np.where(counts > 1, np.minimum(share, EXPLAINED), once).astype(np.float32)
        kept = values > 0
        own, self._columns, self._values = own[kept], theirs[kept], values[kept]
        self._starts = np.cumsum([0, *np.bincount(own, minlength=vocabulary)])
        self.likeliest = np.arange(vocabulary)
        order = np.argsort(self._values, kind="stable")
        self.likeliest[own[order]] = self._columns[order]
        self._place = np.full(vocabulary, -1, np.int64)

    def scores(self, given: Side, other: Side) -> tuple[Floats, Floats]:
        """Return the scores of sentence pairs [n, m], and of two `given` sentences with one [n - 1, m]."""
        own, own_index = np.unique(given.words, return_inverse=True)
        theirs, their_index = np.unique(other.words, return_inverse=True)
        table = self._table(own, theirs)
        counts = _incidence(own_index, given.bounds, len(own))
        sizes = np.diff(given.bounds).astype(np.float32)[:, None]
        of_others = _incidence(their_index, other.bounds, len(theirs)).T
        explained = counts @ table
        share, frequency = self._share[theirs], self._frequency[theirs]

        def ratios(explained: Floats, sizes: Floats) -> Floats:
            likelier = explained / np.maximum(sizes, 1) / frequency
            logs: Floats = np.log(1 - share + share * np.minimum(likelier, MOST_LIKELIER))
            return logs @ of_others

        joined = ratios(explained[1:] + explained[:-1], sizes[1:] + sizes[:-1])
        return ratios(explained, sizes), joined

    def _table(self, own: Ints, theirs: Ints) -> Floats:
        self._place[theirs] = np.arange(len(theirs))
        sizes = self._starts[own + 1] - self._starts[own]
        rows = np.repeat(np.arange(len(own)), sizes)
        at = _stretches(self._starts[own], sizes)
        columns = self._place[self._columns[at]]
        table = np.zeros((len(own), len(theirs)), np.float32)
        occurs = columns >= 0
        table[rows[occurs], columns[occurs]] = self._values[at[occurs]]
        same = self._place[own]
        shared = np.flatnonzero(same >= 0)
        table[shared, same[shared]] += self._same[own[shared]]
        self._place[theirs] = -1
        return table


_NONE: Final = np.zeros(0, np.int64)


def _frequent(sentences: Sequence[Ints], vocabulary: int) -> tuple[Ints, Ints, Ints]:
    """Return the words that occur in several sentences; the counts of all words; the sizes of sentences."""
    words = np.concatenate([*sentences, _NONE])
    sentence = np.repeat(np.arange(len(sentences)), [*map(len, sentences)])
    counts = np.bincount(words, minlength=vocabulary)
    kept = counts[words] > 1
    return words[kept], counts, np.bincount(sentence[kept], minlength=len(sentences))


def _stretches(starts: Ints, sizes: Ints) -> Ints:
    """Return the concatenated indices of stretches."""
    return np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())


def _incidence(index: Ints, bounds: Ints, size: int) -> Floats:
    """Count the words of each sentence, [n, size]."""
    rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    flat = np.bincount(rows * size + index, minlength=(len(bounds) - 1) * size)
    return flat.reshape(len(bounds) - 1, size).astype(np.float32)


class Lexicon:
    """`Words` in both directions, learned from sentence pairs; from a sample, if there are many."""

    def __init__(self, pairs: Sequence[tuple[Ints, Ints]], vocabulary: int) -> None:
        short = [(s, t) for s, t in pairs if max(len(s), len(t)) <= MOST_WORDS]
        every = 1 + sum(len(s) * len(t) for s, t in short) // MOST_CELLS
        sample = short[::every]
        self._forward = Words(sample, vocabulary)
        self._backward = Words([(t, s) for s, t in sample], vocabulary)

    def translated(self, source: Side) -> Side:
        """Replace each word of a source side by its most probable translation, if one is known."""
        return replace(source, words=self._forward.likeliest[source.words])

    def scores(self, source: Side, target: Side) -> Floats:
        """As `Lengths.scores`."""
        one, two_sources = self._forward.scores(source, target)
        back, two_targets = self._backward.scores(target, source)
        back, two_targets = back.T, two_targets.T
        scores = np.zeros((3, len(source), len(target)), np.float32)
        scores[0] = one + back
        scores[1, :, 1:] = one[:, 1:] + one[:, :-1] + two_targets
        scores[2, 1:] = two_sources + back[1:] + back[:-1]
        scores /= 2
        return scores

    def evidence(self, source: Side, target: Side, path: Sequence[Bead]) -> Floats:
        """Return the score of every bead; 0 for unaligned sentences."""
        sides = source.joined([bead[0] for bead in path]), target.joined([bead[1] for bead in path])
        blocks = [range(at, min(at + BLOCK, len(path))) for at in range(0, len(path), BLOCK)]
        scores = [np.diagonal(self.scores(*(side.part(block) for side in sides))[0]) for block in blocks]
        both = np.array([bool(i and j) for i, j in path])
        return np.where(both, np.concatenate(scores), 0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class SharedWords:
    """Rare words that occur on both sides of a document."""

    pairs: Ints  # [2, k], source and target sentences, sorted by source
    weights: Floats

    @classmethod
    def of(cls, source: Side, target: Side, vocabulary: int) -> "SharedWords":
        """Find the words with at most three occurrences on each side."""
        counts = [np.bincount(side.words, minlength=vocabulary) for side in (source, target)]
        rare = (counts[0] > 0) & (counts[1] > 0) & (counts[0] <= 3) & (counts[1] <= 3)
        occurrences: list[dict[int, list[int]]] = [{}, {}]
        for by_word, side in zip(occurrences, (source, target), strict=True):
            sentences = np.repeat(np.arange(len(side)), np.diff(side.bounds))
            for at in np.flatnonzero(rare[side.words]):
                by_word.setdefault(int(side.words[at]), []).append(int(sentences[at]))
        pairs, weights = [], []
        for word, in_source in occurrences[0].items():
            in_target = occurrences[1][word]
            weight = math.log(max(1, len(target) / len(in_target)))
            pairs += [(i, j) for i in in_source for j in in_target]
            weights += [weight] * (len(in_source) * len(in_target))
        order = sorted(range(len(pairs)), key=pairs.__getitem__)
        return cls(
            np.array([pairs[k] for k in order], np.int64).reshape(-1, 2).T,
            np.array([weights[k] for k in order], np.float32),
        )

    def scores(self, sources: range, targets: range) -> Floats:
        """As `Lengths.scores`, for ranges of sentences."""
        first, last = np.searchsorted(self.pairs[0], [sources.start, sources.stop])
        i, j = self.pairs[:, first:last]
        inside = (j >= targets.start) & (j < targets.stop)
        one = np.zeros((len(sources), len(targets)), np.float32)
        cells = i[inside] - sources.start, j[inside] - targets.start
        np.add.at(one, cells, self.weights[first:last][inside])
        scores = np.zeros((3, *one.shape), np.float32)
        scores[0], scores[1, :, 1:], scores[2, 1:] = one, one[:, 1:] + one[:, :-1], one[1:] + one[:-1]
        return scores


Scores = Callable[[range, range], Floats]  # as `Lengths.scores`, for ranges of source and target sentences
# Returns log p(target | source) of each pair of texts, according to a translation system.
Probabilities = Callable[[Sequence[tuple[str, str]]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The beads of a document in order, and the evidence of words for each, in nats.

    Evidence is above 0 for translations, and 0 for unaligned sentences.
    """

    beads: Sequence[Bead]
    evidence: Sequence[float]


def align_documents(
    documents: Sequence[tuple[Sequence[str], Sequence[str]]], probabilities: Probabilities | None = None
) -> list[Alignment]:
    """Align documents, given as source and target sentences; no side may be empty.

    The lexicon is learned from all documents. `probabilities` of a translation system are used, too, if
    given.
    """
    vocabulary = Vocabulary()
    sides = [(vocabulary.side(source), vocabulary.side(target)) for source, target in documents]
    lengths, size = Lengths.of(sides), len(vocabulary)

    def by_shared_words(source: Side, target: Side, own: Side) -> list[Bead]:
        shared = SharedWords.of(own, target, size)

        def scores(i: range, j: range) -> Floats:
            return lengths.scores(source.part(i), target.part(j)) + shared.scores(i, j)

        return align_sides(source, target, diagonal_band(source, target), scores)

    paths = [by_shared_words(source, target, source) for source, target in sides]
    pairs = [
        (source.words_of(of_source), target.words_of(of_target))
        for (source, target), path in zip(sides, paths, strict=True)
        for of_source, of_target in path
        if of_source and of_target
    ]
    lexicon = Lexicon(pairs, size)
    alignments = []
    for texts, (source, target) in zip(documents, sides, strict=True):

        def scores(i: range, j: range, source: Side = source, target: Side = target) -> Floats:
            one, other = source.part(i), target.part(j)
            return lengths.scores(one, other) + lexicon.scores(one, other)

        band = diagonal_band(source, target)
        if band.width > NARROW_WIDTH:
            path = by_shared_words(source, target, lexicon.translated(source))
            band = path_band(path, len(source), len(target))
        path = align_sides(source, target, band, scores)
        evidence = lexicon.evidence(source, target, path)
        if probabilities is not None:
            near = NearScores.of(*texts, path, probabilities)
            narrow = path_band(path, len(source), len(target))

            def both(i: range, j: range, by_words: Scores = scores, near: NearScores = near) -> Floats:
                return by_words(i, j) + near.scores(i, j)

            path = align_sides(source, target, narrow, both)
            evidence = lexicon.evidence(source, target, path) + near.evidence(path)
        alignments.append(Alignment(path, evidence.tolist()))
    return alignments


def diagonal_band(source: Side, target: Side) -> Band:
    """Return a band around the diagonal, on which equal shares of the characters of both sides precede."""
    m = len(target)
    before = [
        np.cumsum([0, *side.lengths]) / max(1.0, float(side.lengths.sum())) for side in (source, target)
    ]
    centre = np.searchsorted(before[1], before[0])
    half = min(max(WIDE[0], m // 8), WIDE[1]) + int(np.diff(centre, append=m).max(initial=0))
    return _band_around(centre, half, m)


def path_band(path: Sequence[Bead], n: int, m: int) -> Band:
    """Return a band around a path."""
    first, last = np.full(n + 1, m), np.zeros(n + 1, np.int64)
    i = j = 0
    for of_source, of_target in [((), ()), *path]:
        # A bead of two source sentences also crosses the row between them.
        for row in range(i + min(1, len(of_source)), i + len(of_source) + 1):
            first[row], last[row] = min(first[row], j), max(last[row], j + len(of_target))
        i, j = i + len(of_source), j + len(of_target)
    half = NARROW + int((last - first).max() / 2) + 1
    return _band_around((first + last) // 2, half, m)


def _band_around(centre: Ints, half: int, m: int) -> Band:
    width = min(2 * half + 1, m + 1)
    low = np.clip(centre - half, 0, m + 1 - width)
    low[0], low[-1] = 0, m + 1 - width
    return Band(low, width)


def align_sides(source: Side, target: Side, band: Band, scores: Scores) -> list[Bead]:
    """Return the best path of a document in a band; scores are computed for blocks of rows."""
    n, m, block = len(source), len(target), _Block()
    priors = np.log(np.array([PRIORS[kind] for kind in KINDS[:3]], np.float32))

    def row_scores(i: int) -> Floats:
        if i > block.sources.stop:
            last = min(n, i - 1 + BLOCK)
            columns = band.low[i], band.low[i : last + 1].max() + band.width
            block.sources = range(max(0, i - 2), last)
            block.targets = range(max(0, int(columns[0]) - 2), min(m, int(columns[1])))
            block.scores = scores(block.sources, block.targets) + priors[:, None, None]
        row = np.full((3, band.width), -np.inf, np.float32)
        shift = int(band.low[i]) - 1 - block.targets.start
        first, last = max(0, -shift), min(band.width, len(block.targets) - shift)
        row[:, first:last] = block.scores[:, i - 1 - block.sources.start, first + shift : last + shift]
        return row

    return best_path(n, m, band, row_scores, math.log(PRIORS[1, 0]))


@dataclass(slots=True)
class _Block:
    sources: range = range(0)
    targets: range = range(0)
    scores: Floats = field(default_factory=lambda: np.zeros((3, 0, 0), np.float32))


@dataclass(frozen=True, slots=True)
class NearScores:
    """log p(target | source) of a system, minus the log mean over the sources near the path.

    Stored by the first source sentence, then by the number of source sentences and the target sentence.
    """

    by_source: dict[int, dict[tuple[int, int], float]]

    @classmethod
    def of(
        cls, source: Sequence[str], target: Sequence[str], path: Sequence[Bead], probabilities: Probabilities
    ) -> "NearScores":
        """Score one or two source sentences with one target sentence, within `NEAR` of a path."""
        cells: list[tuple[int, int, int]] = []
        at = 0
        for of_source, of_target in path:
            at += len(of_source)
            low, high = max(0, at - len(of_source) - NEAR), min(len(source), at + NEAR)
            cells += [(i, k, j) for j in of_target for k in (1, 2) for i in range(low, high - k + 1)]
        texts = [(" ".join(source[i : i + k]), target[j]) for i, k, j in cells]
        by_target: dict[int, list[tuple[tuple[int, int, int], float]]] = {}
        for cell, score in zip(cells, probabilities(texts), strict=True):
            by_target.setdefault(cell[2], []).append((cell, score))
        by_source: dict[int, dict[tuple[int, int], float]] = {}
        for scored in by_target.values():
            usual = float(np.logaddexp.reduce([score for _, score in scored])) - math.log(len(scored))
            for (i, k, j), score in scored:
                by_source.setdefault(i, {})[k, j] = max(-MOST_NEAR, score - usual)
        return cls(by_source)

    def scores(self, sources: range, targets: range) -> Floats:
        """As `Lengths.scores`, for ranges of sentences."""
        scores = np.full((3, len(sources), len(targets)), -MOST_NEAR, np.float32)
        for i in sources:
            for (k, j), score in self.by_source.get(i, {}).items():
                if i + k - 1 in sources and j in targets:
                    scores[2 * k - 2, i + k - 1 - sources.start, j - targets.start] = score
        scores[1, :, 1:] = scores[0, :, 1:] + scores[0, :, :-1]
        return scores

    def evidence(self, path: Sequence[Bead]) -> Floats:
        """Return the score of every bead; 0 for unaligned sentences."""
        scores = []
        for i, j in path:
            near = self.by_source.get(i[0], {}) if i else {}
            scores.append(sum(near.get((len(i), target), -MOST_NEAR) for target in j) if i else 0.0)
        return np.array(scores, np.float32)
