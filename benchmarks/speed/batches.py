"""Batches of random tokens whose sentences are as long as those of real text."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.data.views import Window

VOCABULARY = 32_000
SYMBOLS = SpecialSymbols(pad=31_996, bos=31_997, eos=31_998, separators=(31_999,))


def instance(sentences: list[tuple[int, int]], random: np.random.Generator) -> Instance:
    """An instance of random tokens, given source and target lengths of its sentences."""
    source, target = (
        [random.integers(0, SYMBOLS.pad, pair[side]).astype(np.int32) for pair in sentences]
        for side in (0, 1)
    )
    everything = range(len(sentences))
    return Instance(0, Window(everything, everything, everything), source, target)


def instance_of(
    window: Window, source: Sequence[NDArray[np.int64]], target: Sequence[NDArray[np.int64]]
) -> Instance:
    """The instance of a window on a document."""
    return Instance(0, window, [source[j] for j in window.source], [target[j] for j in window.target])


def lengths(random: np.random.Generator) -> tuple[int, int]:
    """Source and target length of a sentence, about 25 tokens in the mean."""
    source = int(np.clip(random.lognormal(3.05, 0.58), 2, 120))
    return source, int(np.clip(source * random.normal(1.05, 0.15), 2, 120))


def sentence_batches(max_tokens: int, random: np.random.Generator) -> Iterator[Batch]:
    """Batches of sentences sorted by length within a pool, as a sampler would make them."""
    while True:
        pool = sorted((lengths(random) for _ in range(2000)), key=lambda pair: (max(pair), pair))
        batches: list[list[tuple[int, int]]] = [[]]
        for pair in pool:
            if (max(pair) + 1) * (len(batches[-1]) + 1) > max_tokens:
                batches.append([])
            batches[-1].append(pair)
        for i in random.permutation(len(batches) - 1):
            yield make_batch([instance([pair], random) for pair in batches[i]], SYMBOLS)


def document_batches(rows: int, random: np.random.Generator) -> Iterator[Batch]:
    """Batches of documents of sentences, whose longer side has close to 512 tokens."""
    while True:
        documents = []
        for _ in range(rows):
            sentences: list[tuple[int, int]] = []
            totals: NDArray[np.int64] = np.zeros(2, dtype=np.int64)
            while max(totals + (pair := np.array(lengths(random)) + 1)) <= 512:
                sentences.append((int(pair[0]) - 1, int(pair[1]) - 1))
                totals += pair
            # The last sentence fills the document up, so that rows differ on one side only.
            rest = 512 - int(totals.max()) - 1
            if rest > 0:
                sentences.append((rest, rest))
            documents.append(instance(sentences, random))
        yield make_batch(documents, SYMBOLS)


def packed(rows: Sequence[Instance], symbols: SpecialSymbols, max_tokens: int) -> list[Batch]:
    """Batches of rows in their order, as many in each as the budget takes, padding counted."""
    groups: list[list[Instance]] = []
    longest = 0
    for row in rows:
        longest = max(longest, row.row_tokens(symbols)) if groups else row.row_tokens(symbols)
        if not groups or (len(groups[-1]) + 1) * longest > max_tokens:
            groups.append([])
            longest = row.row_tokens(symbols)
        groups[-1].append(row)
    return [make_batch(group, symbols) for group in groups]
