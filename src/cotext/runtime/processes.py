"""Parallel child processes with dependencies and progress display; worker processes.

A job is skipped if its result exists, so a repeated list of jobs runs only the missing jobs. If a job fails
or this process is interrupted, all other jobs are terminated; training then saves a checkpoint.
"""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from cotext.runtime import CotextError
from cotext.runtime.progress import Meter, console, display, is_live
from cotext.runtime.signals import termination_interrupts

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0  # time to save a checkpoint before a child is killed
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Job:
    """One child process.

    `finished` returns whether the result exists; it is called before the start and after the end. `progress`
    returns the number of finished steps of `total`, and a short note to display.
    """

    name: str
    command: tuple[str, ...]
    log: Path
    finished: Callable[[], bool]
    total: int
    progress: Callable[[], tuple[int, str]]
    after: tuple[str, ...] = ()  # names of jobs that must finish first


@dataclass(slots=True)
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    meter: Meter


def run_jobs(jobs: Sequence[Job], at_once: int) -> None:
    """Run all jobs in order, at most `at_once` at the same time.

    If a job fails, or ends without its result, raises CotextError with the end of its log.
    """
    waiting = list(jobs)
    finished: set[str] = set()
    running: list[_Child] = []
    on_terminal = is_live()
    with display(console) if on_terminal else nullcontext() as live, termination_interrupts():
        meters = {job.name: Meter(job.name, job.total, live) for job in jobs} if live else {}
        try:
            while waiting or running:
                for job in _startable(waiting, finished)[: at_once - len(running)]:
                    waiting.remove(job)
                    meter = meters.get(job.name) or Meter(job.name, job.total, None)
                    if job.finished():
                        finished.add(job.name)
                        meter.advance_to(job.total, "already there")
                    else:
                        running.append(_Child(job, _start(job), meter))
                for child in list(running):
                    if child.process.poll() is None:
                        done, note = child.job.progress()
                        # The last step is reported at the end, so that its line is not printed twice.
                        if (done, note) != (0, ""):
                            child.meter.advance_to(min(done, child.job.total - 1), note)
                        continue
                    _require_success(child)
                    running.remove(child)
                    finished.add(child.job.name)
                    child.meter.advance_to(child.job.total, child.job.progress()[1])
                if running:
                    time.sleep(POLL_SECONDS)
        finally:
            _stop([child.process for child in running])


def _startable(waiting: Sequence[Job], finished: set[str]) -> list[Job]:
    startable = [job for job in waiting if finished.issuperset(job.after)]
    if waiting and not startable and not {name for job in waiting for name in job.after} - finished:
        raise AssertionError(f"jobs that wait for each other: {[job.name for job in waiting]}")
    return startable


def _start(job: Job) -> subprocess.Popen[bytes]:
    # The models are small: a second thread would only slow down the other children.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("wb") as log:
            return subprocess.Popen(
                job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
    except OSError as error:
        raise CotextError(f"{job.name}: cannot be started: {error}") from None


def _require_success(child: _Child) -> None:
    code, job = child.process.returncode, child.job
    if code == 0 and job.finished():
        return
    how = f"failed with exit code {code}" if code else "stopped before it was finished"
    lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines()
    tail = "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
    raise CotextError(
        f"{job.name}: {how}; the end of {job.log}:\n{tail}\nWhen this is corrected, the same command resumes."
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate processes, wait, and kill the processes that have not stopped."""
    if processes:
        console.print("stopping; training writes a checkpoint, from which the same command resumes")
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- Parallel processing of a stream of items by worker processes; results are in the order of the items.
#
# Workers are spawned, not forked, because this process may have threads. A script that calls this needs the
# usual `if __name__ == "__main__"`. Workers ignore Ctrl-C. They exit when this process ends or is killed.


def usable_cores() -> int:
    """Return the number of cores that this process may use; a batch system may assign fewer than exist."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 3  # submitted items per worker; bounds memory
_work: list[Callable[[Any], Any]] = []  # in a worker process: its function


def in_order(
    make: Callable[[], Callable[[T], R]], items: Iterable[T], workers: int, alone: int
) -> Iterator[R]:
    """Yield the result of each item, in order.

    `make` is called once per process and returns the function to apply. `make`, items and results must be
    picklable. The first `alone` items are processed here; workers are started only if there are more.
    Exceptions of the function are re-raised; if a worker was killed, raises CotextError.
    """
    work, rest = make(), iter(items)
    if workers < 2:
        yield from map(work, rest)
        return
    yield from map(work, islice(rest, alone))
    for item in rest:  # workers are needed
        yield from _side_by_side(make, chain([item], rest), workers)


def _side_by_side(make: Callable[[], Callable[[T], R]], items: Iterable[T], workers: int) -> Iterator[R]:
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawning, initializer=_begin, initargs=(make,))
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(_do, item))
            if len(under_way) >= AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool:
        raise CotextError(
            "a worker process was ended from outside; memory may have run out: use fewer workers (--workers)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(make: Callable[[], Callable[[Any], Any]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work.append(make())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    return _work[0](item)
