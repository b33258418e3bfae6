"""What the benchmarks of speed share: options, tables, child processes and memory."""

import argparse
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from cotext.runtime.devices import choose_device
from cotext.runtime.progress import CLOCKS, Clock
from cotext.runtime.rendering import render_rows

P = ParamSpec("P")
R = TypeVar("R")
Way = Callable[[], float | None]  # does the work; returns the number of items to divide the time by, or None


class Times(dict[str, list[float]]):
    """Seconds of each alternative, one number per round: for all work, or per item."""

    def ratios(self, name: str, to: str) -> list[float]:
        """Return the ratio of two alternatives' times for each round, whose noise they share."""
        return [a / b for a, b in zip(self[name], self[to], strict=True)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns."""
    print(render_rows([head, *rows], left=1), flush=True)


def timed(ways: Mapping[str, Way], rounds: int, clock: Clock) -> Times:
    """Time all ways in turn; each round starts with another one, since later ones find warmer caches."""
    names = list(ways)
    seconds = Times({name: [] for name in names})
    for number in range(1 + rounds):  # the first round warms up, and is not counted
        first = number % len(names)
        for name in names[first:] + names[:first]:
            before = clock()
            things = ways[name]()
            took = clock() - before
            if number:
                seconds[name].append(took / (1.0 if things is None else things))
    return seconds


class PeakMemory:
    """Samples the anonymous resident set of this process until `stop`, so that mapped files do not count."""

    def __init__(self) -> None:
        self.kibibytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the peak in KiB."""
        self._stopped.set()
        self._thread.join()
        return self.kibibytes

    def _sample(self) -> None:
        while not self._stopped.wait(0.01):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.kibibytes = max(self.kibibytes, int(line.split()[1]))


def added_mebibytes(work: Callable[[], object]) -> float:
    """Return the MiB that `work` adds to this process at its peak."""
    memory = PeakMemory()
    while not memory.kibibytes:  # until the first sample
        time.sleep(0.01)
    before = memory.kibibytes
    work()
    return max(0, memory.stop() - before) / 1024


def in_own_process(work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Return the result of a call in a new process, whose memory holds nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **options).result()


def load() -> str:
    """Return the load of the machine over the last minute, as text."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def parser(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks of speed; `apply` puts them into force."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--clock", choices=sorted(CLOCKS), default="cpu", help="processor or elapsed time")
    made.add_argument("--device", default="cpu", help="cpu or cuda; on a GPU, elapsed time counts")
    return made


def apply(options: argparse.Namespace) -> tuple[torch.device, Clock]:
    """Set the number of threads, print the state of the machine, and return the device and its clock."""
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    gpu = device.type == "cuda"
    on = torch.cuda.get_device_name(device) if gpu else f"{options.threads} threads, {options.clock} clock"
    print(f"torch {torch.__version__}, {on}, {load()}", flush=True)
    return device, _after_the_gpu if gpu else CLOCKS[options.clock]


def _after_the_gpu() -> float:
    """Return the elapsed time once the GPU has finished what it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()
