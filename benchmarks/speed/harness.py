"""Timing of several ways to do the same: in turn, by processor time, told as medians and ratios of a round.

On a machine that others use too, neighbours in one round meet the same noise: ratios are taken there, and
tables show their median with the smallest and the largest.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cotext.runtime.tables import render_rows

Clock = Callable[[], float]
Way = Callable[[], float | None]  # does the work; gives how many things it did, where their number matters
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}
SETTLING_SECONDS = 0.05  # until the sampler of memory has seen what is there


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Median, smallest and largest."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns."""
    print(render_rows([head, *rows], left=1), flush=True)


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


class PeakMemory:
    """Samples the anonymous resident set of this process until stopped, so that mapped files do not count."""

    def __init__(self) -> None:
        self.kibibytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The peak so far, in KiB."""
        self._stopped.set()
        self._thread.join()
        return self.kibibytes

    def _sample(self) -> None:
        while not self._stopped.wait(0.01):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.kibibytes = max(self.kibibytes, int(line.split()[1]))


def added_mebibytes(work: Callable[[], object]) -> float:
    """MiB that some work adds to this process at its peak."""
    memory = PeakMemory()
    time.sleep(SETTLING_SECONDS)
    resting = memory.kibibytes
    work()
    return max(0, memory.stop() - resting) / 1024


def in_child(module: str, *arguments: str) -> object:
    """The JSON that a module prints last when called in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.speed.{module}", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: object = json.loads(done.stdout.splitlines()[-1])
    return found


def number_in_child(module: str, *arguments: str) -> float:
    """The number that a module prints last when called in a process of its own."""
    found = in_child(module, *arguments)
    assert isinstance(found, int | float)
    return float(found)


def parser(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Options that all benchmarks of speed have; `apply` puts them into force."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--clock", choices=sorted(CLOCKS), default="cpu", help="processor time, or the wall's")
    return made


def apply(options: argparse.Namespace) -> Clock:
    """Set the number of threads; give the clock."""
    torch.set_num_threads(options.threads)
    return CLOCKS[options.clock]
