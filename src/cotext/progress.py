"""What a person sees while something takes long: a live line on a terminal, now and then a line elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Standard output is for results, which may be piped; progress goes beside it.
console = Console(stderr=True, highlight=False)
SECONDS_BETWEEN_LINES = 20.0


class Meter:
    """Counts up to a total and shows how far it is, with figures beside it."""

    def __init__(self, what: str, total: int, live: Progress | None) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.live = live
        self.task = live.add_task(what, total=total, note="") if live else None
        self.started = time.monotonic()
        self.last_line = self.started

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
        self.done = done
        if self.live and self.task is not None:
            self.live.update(self.task, completed=done, note=note)
            return
        now = time.monotonic()
        if now - self.last_line >= SECONDS_BETWEEN_LINES or done >= self.total:
            self.last_line = now
            rate = done / max(now - self.started, 1e-9)
            left = (self.total - done) / rate if rate else 0.0
            console.print(f"{self.what} {done}/{self.total} {note} {_clock(left)} left", soft_wrap=True)


@contextmanager
def meter(what: str, total: int) -> Iterator[Meter]:
    """Show progress of one task."""
    if not sys.stderr.isatty():
        yield Meter(what, total, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as live:
        yield Meter(what, total, live)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
