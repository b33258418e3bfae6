"""Progress display: a live line on a terminal, otherwise a line from time to time. Timing of alternatives.

The live line has a running clock, and a spinner that turns only when progress is reported. So the spinner of
a process that hangs does not turn.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from cotext.runtime import visible


class _Notes(Console):
    """Standard error; if `timed`, each note begins with the time of day."""

    timed = False

    def print(self, *objects: Any, **options: Any) -> None:
        if self.timed and objects and isinstance(objects[0], str):
            objects = (f"{datetime.now():%H:%M:%S}  {objects[0]}", *objects[1:])
        super().print(*objects, **options)


# Progress goes to standard error, because results on standard output may be piped.
# Without markup, a name such as runs/[a] is printed unchanged.
console = _Notes(stderr=True, highlight=False, markup=False, emoji=False)
# Log files are read later: a line every two seconds would be 1,800 lines per hour.
SECONDS_BETWEEN_LINES = 20.0
SECONDS_BETWEEN_UPDATES = 0.25  # of the clock of a live line
MARKS = "|/-\\"
NARROW = 60  # columns of a terminal without room for a bar


@contextmanager
def reporting(quiet: bool, timed: bool) -> Iterator[None]:
    """If `quiet`, `console` prints nothing; if `timed`, it adds times of day, and at the end the duration."""
    before, began = (console.quiet, console.timed), time.monotonic()
    console.quiet, console.timed = quiet, timed
    try:
        yield
    finally:
        if timed:
            say(f"took {_clock(time.monotonic() - began)}")
        console.quiet, console.timed = before


def is_live() -> bool:
    """Return whether standard error is a terminal that can move its cursor, for live progress."""
    # A process without a terminal may have no standard error at all.
    return sys.stderr is not None and sys.stderr.isatty() and not console.is_dumb_terminal


def say(line: str) -> None:
    """Print a line to standard error; unprintable characters are escaped."""
    console.print(visible(line), soft_wrap=True)


class Meter:
    """Progress of one task: shows the count, a note, and the remaining time."""

    def __init__(self, what: str, total: int, live: Progress | None, shown: bool = True) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.live = live
        self.task = live.add_task(what, total=total, note="", mark=" ") if live else None
        self.updates = 0
        self.shown = shown
        self.ended = False  # whether the final line was printed
        self.last_line = time.monotonic()
        # The first count may come from an interrupted job, and is useless for measuring speed.
        self.first: tuple[float, int] | None = None
        self.stage_began: tuple[str, float, int] | None = None

    def restart(self, total: int) -> None:
        """Set the total when it becomes known."""
        self.total, self.ended = total, False
        if self.live and self.task is not None:
            self.live.update(self.task, total=total)

    def start(self, done: int) -> None:
        """Start the clock; `done` steps were done before."""
        self.done, self.first = done, (time.monotonic(), done)
        if self.live and self.task is not None:
            self.live.reset(self.task, total=self.total, completed=done)

    def advance(self, count: int, note: str = "") -> None:
        """Report `count` more steps."""
        self.advance_to(self.done + count, note)

    def advance_to(self, done: int, note: str = "") -> None:
        """Report that `done` steps are done in total."""
        now = time.monotonic()
        if self.first is None:
            self.start(done)
        began, before = self.first or (now, done)
        first = self.done == before < done
        self.done, self.stage_began = done, None
        left = time_left(now - began, done - before, self.total - done)
        at_end, ended = done >= self.total, self.ended
        self.ended = ended or at_end
        self._show(now, _joined(note, left), first or at_end, at_end and ended)

    def next_task(self, what: str, done: int, total: int) -> None:
        """Report progress of a task; a new name or total starts the next task."""
        if (what, total) != (self.what, self.total):
            self.what, self.total, self.first, self.ended = what, total, None, False
            if self.live and self.task is not None:
                self.live.update(self.task, description=what)
        self.advance_to(done)

    def stage(self, what: str, done: int, total: int) -> None:
        """Report progress of an operation between two steps, such as validation."""
        now = time.monotonic()
        if self.stage_began is None or self.stage_began[0] != what or done < self.stage_began[2]:
            self.stage_began = what, now, done
        _, began, before = self.stage_began
        left = time_left(now - began, done - before, total - done)
        self._show(now, _joined(f"{what} {done:,}/{total:,}", left), False)

    def _show(self, now: float, note: str, whatever_the_time: bool, repeated: bool = False) -> None:
        """Update the live line. Without a terminal, print a line, unless one was printed recently."""
        if self.live and self.task is not None:
            self.updates += 1
            mark = MARKS[self.updates % len(MARKS)] if self.done < self.total else " "
            self.live.update(self.task, completed=self.done, note=note, mark=mark)
        elif (
            self.shown
            and not repeated
            and (whatever_the_time or now - self.last_line >= SECONDS_BETWEEN_LINES)
        ):
            self.last_line = now
            # If no step was made, the elapsed time is shown, so that successive lines differ.
            if not note and self.first is not None and self.done < self.total and self.done <= self.first[1]:
                note = f"for {_clock(now - self.first[0])}"
            console.print(_joined(f"{self.what} {self.done}/{self.total}", note), soft_wrap=True)


def time_left(seconds: float, done: int, remaining: int) -> str:
    """Return "4:05 left", given the seconds that `done` steps took; empty if unknown."""
    return f"{_clock(seconds * remaining / done)} left" if done > 0 and remaining > 0 else ""


def _joined(*parts: str) -> str:
    return "  ".join(part for part in parts if part)


@contextmanager
def meter(what: str, total: int, shown: bool = True) -> Iterator[Meter]:
    """Show progress of one task; `shown` is False in processes that must not print."""
    if not shown or not is_live():
        yield Meter(what, total, None, shown)
        return
    with display(console) as live:
        yield Meter(what, total, live)


def display(terminal: Console) -> Progress:
    """Return the live display of meters; on a narrow terminal, texts are cut and the bar is omitted."""
    description = Column(no_wrap=True, max_width=terminal.width // 3)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=description),
        *([BarColumn(bar_width=12)] if terminal.width >= NARROW else []),
        MofNCompleteColumn(),
        TextColumn("{task.fields[mark]}", markup=False),
        _ElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    # `time.monotonic` is looked up at each call, so that tests can replace it; `Meter` does the same.
    return Progress(*columns, console=terminal, get_time=lambda: time.monotonic(), expand=True)


class _ElapsedColumn(ProgressColumn):
    """Elapsed time of a task, in the format of the remaining time."""

    def render(self, task: Task) -> Text:
        return Text(_clock(task.elapsed or 0.0))


@contextmanager
def stages() -> Iterator[Callable[[str, int], None]]:
    """Show the current stage, its time and the number of documents done, if the total is unknown.

    The clock runs even in stages that report nothing while they last, such as the training of a tokenizer.
    """
    stage, text, began = "", "starting", time.monotonic()
    shown: set[str] = set()

    def show(current: str, documents: int) -> None:
        nonlocal stage, text, began
        if current != stage:
            stage, began = current, time.monotonic()
        text = f"{stage}, {documents:,} documents" if documents else stage
        if not live and stage not in shown:
            console.print(text, soft_wrap=True)
        shown.add(stage)

    def repeat() -> None:
        line = f"{text}  for {_clock(time.monotonic() - began)}"
        if status is None:
            console.print(line, soft_wrap=True)
        else:
            status.update(escape(line))

    live = is_live()
    seconds = SECONDS_BETWEEN_UPDATES if live else SECONDS_BETWEEN_LINES
    with console.status(text) if live else nullcontext() as status, _calling(repeat, seconds):
        yield show


@contextmanager
def _calling(act: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function again and again, in another thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# --- Timing of alternatives, run in turn.


Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Format the median, the smallest and the largest of some values."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"
