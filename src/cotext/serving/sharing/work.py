"""A piece of work of a client, as whoever does it sees it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class CancelledError(Exception):
    """Nobody waits for this any more."""


@dataclass(slots=True, eq=False)
class Work:
    """A piece of work of a client: it can be cancelled from any thread, and hears of sentences as they come.

    `on_sentence` is called with the index of the document, of the sentence in it, and its translation, as
    soon as the sentence is finished, in the thread of the model: it must not wait for anything. `background`:
    of files, which give way to texts that somebody waits for.
    """

    client: str = ""
    background: bool = False
    on_sentence: Callable[[int, int, str], None] = lambda document, sentence, target: None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop it, at the next batch at the latest."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled.is_set()
