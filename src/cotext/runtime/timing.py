"""Timing of several ways to do the same: in turn, told as medians and ratios of a round.

On a machine that others use too, neighbours in one round meet the same noise: ratios are taken there, and
tables show their median with the smallest and the largest.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Clock = Callable[[], float]
Way = Callable[[], float | None]  # does the work; gives how many things it did, where their number matters
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Median, smallest and largest."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds by way, a number a round: for the whole of the work, or for each thing done."""

    seconds: Mapping[str, Sequence[float]]

    def __getitem__(self, name: str) -> Sequence[float]:
        return self.seconds[name]

    def median(self, name: str) -> float:
        """Seconds of a way."""
        return statistics.median(self.seconds[name])

    def took(self, name: str, form: str = "{:.2f}") -> str:
        """Seconds of a way, as a cell."""
        return spread(self.seconds[name], form)

    def rate(self, name: str, form: str = "{:.2f}", things: float = 1.0) -> str:
        """Things done a second, as a cell."""
        return spread([things / seconds for seconds in self.seconds[name]], form)

    def ratios(self, name: str, to: str) -> list[float]:
        """Time of a way over that of another, round by round."""
        return [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]

    def ratio(self, name: str, to: str, form: str = "{:.2f}") -> str:
        """The same as a cell: above 1, the way is slower."""
        return spread(self.ratios(name, to), form)

    def speed_rows(self, form: str, things: float = 1.0) -> list[tuple[str, str, str]]:
        """What is done a second, and that against the first way: above 1, the way is faster."""
        first = next(iter(self.seconds))
        return [(n, self.rate(n, form, things), spread(self.ratios(first, n))) for n in self.seconds]


def in_turn(
    ways: Mapping[str, Way] | Callable[[int], Mapping[str, Way]],
    rounds: int,
    clock: Clock = time.process_time,
    warm_up: int = 1,
) -> Times:
    """Time all ways one after the other, again and again; a function gives those of a round by its number.

    Rounds of the warm-up, numbered first, do not count.
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
