"""Processes side by side: results in order, errors as they are, and nobody left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotext.runtime import CotextError
from cotext.runtime.processes import in_order
from tests.refusals import must_raise


def squaring() -> Callable[[int], tuple[int, int]]:
    return square


def square(number: int) -> tuple[int, int]:
    """The square, and the process that made it; odd ones take longer."""
    if number == 13:
        raise CotextError("corpus.en:13: no such number")
    if number == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01 * (number % 2))
    return number * number, os.getpid()


def test_results_are_in_order_and_made_elsewhere() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100, 140):
            taken.append(number)
            yield number

    results = in_order(squaring, items(), 2, alone=3)
    first = [next(results) for _ in range(4)]
    assert len(taken) <= 3 + 2 * 3  # no more is read than is under way
    found = [*first, *results]
    assert [result for result, _ in found] == [number * number for number in range(100, 140)]
    assert [process == os.getpid() for _, process in found] == [True] * 3 + [False] * 37
    assert len({process for _, process in found}) <= 3


def test_few_items_start_no_process() -> None:
    for workers, alone in ((1, 0), (4, 3)):
        found = list(in_order(squaring, range(3), workers, alone))
        assert found == [(number * number, os.getpid()) for number in range(3)]


@pytest.mark.parametrize(
    ("last", "message"), [(13, "corpus.en:13: no such number"), (99, "ended from outside; memory may have")]
)
def test_what_goes_wrong_in_a_worker_arrives(last: int, message: str) -> None:
    must_raise(message, list, in_order(squaring, [1, 2, last], 2, alone=0))


PROGRAM = """
import signal, sys, time
# What runs in the background of a shell is started with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {folder!r})
from tests.runtime.test_workers import squaring
from cotext.runtime.processes import in_order
if __name__ == "__main__":
    def endless():
        while True:
            yield 2
    for _, process in in_order(squaring, endless(), 2, alone=0):
        print(process, flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_nobody_is_left_when_the_first_process_ends(tmp_path: Path, by: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parents[2])))
    with subprocess.Popen(
        [sys.executable, str(program)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        workers = {int(process.stdout.readline()) for _ in range(20)}
        identities = [(worker, started(worker)) for worker in workers]
        process.send_signal(by)
        error = process.communicate(timeout=60)[1]
    assert error.count("Traceback") == (by == signal.SIGINT)  # of the first process alone
    for _ in range(200):
        left = [pid for pid, start in identities if started(pid) == start]
        if not left:
            break
        time.sleep(0.05)
    assert not left


def started(pid: int) -> str:
    """The moment at which a process that still runs was started; empty where it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19] if fields[0] != "Z" else ""
