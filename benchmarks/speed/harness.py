"""What benchmarks of speed share: options, the line of the machine, tables, own processes, memory of work.

Ways are timed by `cotext.runtime.timing`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from cotext.runtime.tables import render_rows
from cotext.runtime.timing import CLOCKS, Clock

SETTLING_SECONDS = 0.05  # until the sampler of memory has seen what is there


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns."""
    print(render_rows([head, *rows], left=1), flush=True)


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


def load() -> str:
    """The load of the machine over the last minute."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def parser(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Options that all benchmarks of speed have; `apply` puts them into force."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--clock", choices=sorted(CLOCKS), default="cpu", help="processor time, or the wall's")
    return made


def apply(options: argparse.Namespace) -> Clock:
    """Set the number of threads, and print what the machine is doing beside this; give the clock."""
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, {options.clock} clock, {load()}", flush=True)
    return CLOCKS[options.clock]
