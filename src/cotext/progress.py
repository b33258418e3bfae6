"""What a person sees while something takes long: a live line on a terminal, now and then a line elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Standard output is for results, which may be piped; progress goes beside it.
# No markup: a name such as runs/[a] is shown as it is.
console = Console(stderr=True, highlight=False, markup=False, emoji=False)
SECONDS_BETWEEN_LINES = 20.0


class Meter:
    """Counts up to a total and shows how far it is, with figures beside it."""

    def __init__(self, what: str, total: int, live: Progress | None) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.live = live
        self.task = live.add_task(what, total=total, note="") if live else None
        self.last_line = time.monotonic()
        # The first figure may be what an interrupted job had done: it says nothing about speed.
        self.first: tuple[float, int] | None = None

    def restart(self, total: int) -> None:
        """Set the total once it is known."""
        self.total = total
        if self.live and self.task is not None:
            self.live.update(self.task, total=total)

    def advance(self, count: int, note: str = "") -> None:
        """Note that `count` more are done."""
        self.reach(self.done + count, note)

    def reach(self, done: int, note: str = "") -> None:
        """Note that `done` are done in all."""
        now, self.done = time.monotonic(), done
        if self.live and self.task is not None:
            if self.first is None:
                self.live.reset(self.task, total=self.total, completed=done)
            self.live.update(self.task, completed=done, note=note)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES or done >= self.total:
            self.last_line = now
            parts = [f"{self.what} {done}/{self.total}", note, self._left(now)]
            console.print("  ".join(part for part in parts if part), soft_wrap=True)
        self.first = self.first or (now, done)

    def _left(self, now: float) -> str:
        """The time that is left at the speed since the first figure; empty where nobody can say."""
        started, before = self.first or (now, self.done)
        if self.done <= before or self.done >= self.total:
            return ""
        return f"{_clock((now - started) * (self.total - self.done) / (self.done - before))} left"


@contextmanager
def meter(what: str, total: int) -> Iterator[Meter]:
    """Show progress of one task."""
    if not sys.stderr.isatty():
        yield Meter(what, total, None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as live:
        yield Meter(what, total, live)


@contextmanager
def stages() -> Iterator[Callable[[str, int], None]]:
    """Show what is being done and how many documents are done, where nobody knows how many there are."""
    if sys.stderr.isatty():
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
