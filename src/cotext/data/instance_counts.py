"""Instances of a corpus: how many a mixture of views makes of it, and of which length; no token is read."""

from dataclasses import dataclass
from itertools import accumulate

from cotext.data.batch import SpecialSymbols
from cotext.data.store import TokenStore
from cotext.data.views import Mixture


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """The instances that an epoch has on average, and their mean lengths.

    Tokens are those of the rows that models read and write, with the symbols that set sentences apart, as
    limits on rows count them. Instances with a side over the limit are `too_long`, and count nowhere else.
    """

    instances: float
    too_long: float
    sentences: float  # of the source
    source_tokens: float
    target_tokens: float


def count_instances(
    store: TokenStore, mixture: Mixture, symbols: SpecialSymbols, max_row_tokens: int
) -> InstanceCounts:
    """The instances of a store, pairs without a token left out, as in training."""
    instances = too_long = sentences = source_tokens = target_tokens = 0.0
    for index in range(len(store)):
        source, target = store.lengths(index)
        kept = source + target > 0
        sides = source[kept].tolist(), target[kept].tolist()
        # Tokens of a row up to each sentence, so that a window is a difference.
        source_ends, target_ends = (
            list(accumulate((length + extra for length in side), initial=0))
            for side, extra in zip(sides, (symbols.per_source_sentence, 1), strict=True)
        )
        for windows, weight in mixture.weighted(*sides):
            for window in windows:
                read = source_ends[window.source.stop] - source_ends[window.source.start]
                written = target_ends[window.target.stop] - target_ends[window.target.start]
                if max(read, written) > max_row_tokens:
                    too_long += weight
                    continue
                instances += weight
                sentences += weight * len(window.source)
                source_tokens += weight * read
                target_tokens += weight * written
    count = max(instances, 1e-9)
    return InstanceCounts(
        instances, too_long, sentences / count, source_tokens / count, target_tokens / count
    )
