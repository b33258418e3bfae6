"""Timing of alternatives, run in turn: medians of their times, and ratios within each round.

On a shared machine, alternatives of the same round see similar noise. So ratios are computed per round, and
tables show the median ratio with the smallest and the largest.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Clock = Callable[[], float]
Way = Callable[[], float | None]  # does the work; returns the number of items to divide the time by, or None
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Format the median, the smallest and the largest of some values."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each alternative, one number per round: for all work, or per item."""

    seconds: Mapping[str, Sequence[float]]

    def __getitem__(self, name: str) -> Sequence[float]:
        return self.seconds[name]

    def rate(self, name: str, form: str = "{:.2f}") -> str:
        """Format the number of items per second."""
        return spread([1.0 / seconds for seconds in self.seconds[name]], form)

    def ratios(self, name: str, to: str) -> list[float]:
        """Return the time of an alternative divided by the time of another alternative, for each round."""
        return [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]

    def ratio(self, name: str, to: str, form: str = "{:.2f}") -> str:
        """Format `ratios`; above 1, `name` is slower than `to`."""
        return spread(self.ratios(name, to), form)


def in_turn(
    ways: Mapping[str, Way] | Callable[[int], Mapping[str, Way]],
    rounds: int,
    clock: Clock = time.process_time,
    warm_up: int = 1,
) -> Times:
    """Time all alternatives one after the other, in several rounds.

    `ways` may be a function of the number of the round. The first `warm_up` rounds are not counted.
    """
    seconds: dict[str, list[float]] = {}
    for number in range(warm_up + rounds):
        for name, way in (ways(number) if callable(ways) else ways).items():
            before = clock()
            things = way()
            took = clock() - before
            if number >= warm_up:
                seconds.setdefault(name, []).append(took / (1.0 if things is None else things))
    return Times(seconds)
