"""How far a job is while it is worked at, and how long the rest will take."""

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Final

from cotext.serving.jobs.values import JobStatus
from cotext.serving.sharing import Work

AT_ONCE_SECONDS: Final = 0.1  # what is done by then was done before the server was started again


@dataclass(slots=True)
class Running:
    """A job that a thread works at; `done` counts its sentences."""

    work: Work
    client: str
    sentences: int = 0
    characters: int = 0
    done: int = 0
    _begun: float = 0.0
    _done_before: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, sentences: int, characters: int) -> None:
        """What the file holds."""
        self.sentences, self.characters = sentences, characters

    def advance(self, count: int) -> None:
        """So many sentences more are done."""
        now = time.monotonic()
        with self._lock:
            self._begun = self._begun or now
            self.done += count
            if now - self._begun < AT_ONCE_SECONDS:
                self._done_before = self.done

    @property
    def seconds_remaining(self) -> float | None:
        """By the speed since the job was begun; None before there is one."""
        with self._lock:
            seconds, count = time.monotonic() - self._begun, self.done - self._done_before
            if not self._begun or not count:
                return None
            return round(max(self.sentences - self.done, 0) * seconds / count, 1)

    def told(self, status: JobStatus) -> JobStatus:
        """A status with what is known by now."""
        return replace(
            status,
            sentences=self.sentences,
            sentences_done=min(self.done, self.sentences),
            seconds_remaining=self.seconds_remaining,
            billed_characters=self.characters,
        )
