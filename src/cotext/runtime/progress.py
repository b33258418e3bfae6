"""Progress display: a live line on a terminal, now and then a line elsewhere.

The live line has a clock, which goes on by itself, and a mark that turns whenever the work tells something,
if only that it goes on: so a person sees a process that hangs by its mark, which stands still.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from cotext.runtime.errors import visible


class _Notes(Console):
    """Standard error; with `timed`, each note begins with the time of day."""

    timed = False

    def print(self, *objects: Any, **options: Any) -> None:
        if self.timed and objects and isinstance(objects[0], str):
            objects = (f"{datetime.now():%H:%M:%S}  {objects[0]}", *objects[1:])
        super().print(*objects, **options)


# Standard output is for results, which may be piped; progress goes beside it.
# No markup: a name such as runs/[a] is shown as it is.
console = _Notes(stderr=True, highlight=False, markup=False, emoji=False)
# Logs are kept, and read afterwards: a line every two seconds would be 1,800 of an hour.
SECONDS_BETWEEN_LINES = 20.0
MARKS = "|/-\\"
NARROW = 60  # columns of a terminal without room for a bar


@contextmanager
def reporting(quiet: bool, timed: bool) -> Iterator[None]:
    """In the block, `console` prints nothing if `quiet`; if `timed`, also times, and the duration last."""
    before, began = (console.quiet, console.timed), time.monotonic()
    console.quiet, console.timed = quiet, timed
    try:
        yield
    finally:
        if timed:
            say(f"took {_clock(time.monotonic() - began)}")
        console.quiet, console.timed = before


def is_live() -> bool:
    """Whether progress is one moving line: on a terminal that can move its cursor."""
    # A process without a terminal may have no standard error at all.
    return sys.stderr is not None and sys.stderr.isatty() and not console.is_dumb_terminal


def say(line: str) -> None:
    """Print a line beside results and progress, in printable characters."""
    console.print(visible(line), soft_wrap=True)


class Meter:
    """Counts up to a total and shows how far it is, with figures beside it and the time that is left."""

    def __init__(self, what: str, total: int, live: Progress | None, shown: bool = True) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.live = live
        self.task = live.add_task(what, total=total, note="", mark=" ") if live else None
        self.told = 0
        self.shown = shown
        self.ended = False  # whether the line of the end has been shown
        self.last_line = time.monotonic()
        # The first figure may be what an interrupted job had done: it says nothing about speed.
        self.first: tuple[float, int] | None = None
        self.stage_began: tuple[str, float, int] | None = None

    def restart(self, total: int) -> None:
        """Set the total once it is known."""
        self.total, self.ended = total, False
        if self.live and self.task is not None:
            self.live.update(self.task, total=total)

    def start(self, done: int) -> None:
        """Note that work begins now, where `done` were done before."""
        self.done, self.first = done, (time.monotonic(), done)
        if self.live and self.task is not None:
            self.live.reset(self.task, total=self.total, completed=done)

    def advance(self, count: int, note: str = "") -> None:
        """Note that `count` more are done."""
        self.advance_to(self.done + count, note)

    def advance_to(self, done: int, note: str = "") -> None:
        """Note that `done` are done in all."""
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
        """Note that so many are done of a task that follows the one before."""
        if (what, total) != (self.what, self.total):
            self.what, self.total, self.first, self.ended = what, total, None, False
            if self.live and self.task is not None:
                self.live.update(self.task, description=what)
        self.advance_to(done)

    def stage(self, what: str, done: int, total: int) -> None:
        """Note how far something is that goes on between two steps."""
        now = time.monotonic()
        if self.stage_began is None or self.stage_began[0] != what or done < self.stage_began[2]:
            self.stage_began = what, now, done
        _, began, before = self.stage_began
        left = time_left(now - began, done - before, total - done)
        self._show(now, _joined(f"{what} {done:,}/{total:,}", left), False)

    def _show(self, now: float, note: str, whatever_the_time: bool, repeated: bool = False) -> None:
        """A live line, or elsewhere a line of its own if the last one is old enough, and not `repeated`."""
        if self.live and self.task is not None:
            self.told += 1
            mark = MARKS[self.told % len(MARKS)] if self.done < self.total else " "
            self.live.update(self.task, completed=self.done, note=note, mark=mark)
        elif (
            self.shown
            and not repeated
            and (whatever_the_time or now - self.last_line >= SECONDS_BETWEEN_LINES)
        ):
            self.last_line = now
            note = note or self._since_then(now)
            console.print(_joined(f"{self.what} {self.done}/{self.total}", note), soft_wrap=True)

    def _since_then(self, now: float) -> str:
        """As in "for 0:20", where nothing has been done yet: else line after line would say the same."""
        if self.first is None or self.first[1] < self.done or self.done >= self.total:
            return ""
        return f"for {_clock(now - self.first[0])}"


def time_left(seconds: float, done: int, remaining: int) -> str:
    """As in "4:05 left", where `done` took so many seconds; empty where nobody can say."""
    return f"{_clock(seconds * remaining / done)} left" if done > 0 and remaining > 0 else ""


def _joined(*parts: str) -> str:
    return "  ".join(part for part in parts if part)


@contextmanager
def meter(what: str, total: int, shown: bool = True) -> Iterator[Meter]:
    """Show progress of one task; not `shown` where another process shows it."""
    if not shown or not is_live():
        yield Meter(what, total, None, shown)
        return
    with display(console) as live:
        yield Meter(what, total, live)


def display(terminal: Console) -> Progress:
    """The live lines of meters on a terminal: where it is narrow, texts are cut and the bar is left out."""
    description = Column(no_wrap=True, max_width=terminal.width // 3)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=description),
        *([BarColumn(bar_width=12)] if terminal.width >= NARROW else []),
        MofNCompleteColumn(),
        TextColumn("{task.fields[mark]}", markup=False),
        _ElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    # Time is looked up when it is asked for, as meters do.
    return Progress(*columns, console=terminal, get_time=lambda: time.monotonic(), expand=True)


class _ElapsedColumn(ProgressColumn):
    """How long a task has been under way, written as what is left of it."""

    def render(self, task: Task) -> Text:
        return Text(_clock(task.elapsed or 0.0))


@contextmanager
def stages() -> Iterator[Callable[[str, int], None]]:
    """Show what is being done and how many documents are done, where nobody knows how many there are."""
    if is_live():
        with console.status("starting") as status:
            yield lambda stage, documents: status.update(escape(_counted(stage, documents)))
        return
    shown: set[str] = set()

    def show(stage: str, documents: int) -> None:
        if stage not in shown:
            shown.add(stage)
            console.print(_counted(stage, documents), soft_wrap=True)

    yield show


def _counted(stage: str, documents: int) -> str:
    return f"{stage}, {documents:,} documents" if documents else stage


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
