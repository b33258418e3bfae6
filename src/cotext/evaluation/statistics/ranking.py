"""Systems in the order of a score, and which of them are apart: rank ranges and clusters by paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.evaluation.statistics.flips import SIGNIFICANT
from cotext.evaluation.statistics.significance import PairedTest

LOWER_IS_BETTER: Final = frozenset({"ter"})


@dataclass(frozen=True, slots=True)
class Place:
    """A system in a ranking.

    It is significantly worse than `first` - 1 systems, and than all but the `last` significantly better: its
    rank is one of `first` to `last`. Every system of a `cluster`, counted from 1, is significantly better
    than every one of the clusters behind it.
    """

    system: str
    first: int
    last: int
    cluster: int

    @property
    def ranks(self) -> str:
        """As in 3 or 2-4."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


def ranked(scores: Mapping[str, float], protocol: str) -> list[str]:
    """The systems, the best first; equals in the order given."""
    sign = 1 if protocol in LOWER_IS_BETTER else -1
    return sorted(scores, key=lambda name: sign * scores[name])


def places(order: Sequence[str], test: PairedTest | None, protocol: str) -> list[Place]:
    """The places of systems in this order, by tests of all pairs; without tests nobody is apart."""
    better = _better(test, protocol)
    count = len(order)
    found, cluster = [], 1
    for index, system in enumerate(order):
        apart = all((above, below) in better for above in order[:index] for below in order[index:])
        cluster += index > 0 and apart
        above = sum((other, system) in better for other in order)
        below = sum((system, other) in better for other in order)
        found.append(Place(system, 1 + above, count - below, cluster))
    return found


def _better(test: PairedTest | None, protocol: str) -> set[tuple[str, str]]:
    """Pairs of which the first system is significantly better than the second."""
    pairs = set()
    for each in test.comparisons if test is not None else ():
        if each.p_corrected < SIGNIFICANT and each.difference:
            up = (each.difference > 0) != (protocol in LOWER_IS_BETTER)
            pairs.add((each.system, each.baseline) if up else (each.baseline, each.system))
    return pairs
