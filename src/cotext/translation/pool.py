"""Pools: the documents that a system is translating, which come and go between batches.

Whoever owns a pool decides which windows share its next batch; what is found for a document does not depend
on that.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from cotext.translation.document_state import OpenDocument
from cotext.translation.window_search import RowGroup, WindowSearch


class Pool(Protocol):
    """Open documents as `translate` sees them."""

    @property
    def documents(self) -> Sequence[OpenDocument]:
        """The documents that have not left."""
        ...

    def add(self, opened: OpenDocument) -> None:
        """Take up a document, before its first window is searched."""
        ...

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search some of what is ready; the number of sentences that are finished is told as they are.

        While a batch is searched, 0 is told now and then: work goes on.
        """
        ...

    def take_finished(self) -> Sequence[OpenDocument]:
        """The documents whose windows are all searched, which leave."""
        ...

    def close(self) -> None:
        """Give up the documents that are left."""
        ...


class DocumentPool:
    """The documents of one system, and what is ready of each and not searched yet.

    They may be added and removed between any two batches.
    """

    def __init__(self, search: WindowSearch) -> None:
        self._search = search
        self._ready: dict[OpenDocument, dict[RowGroup, None]] = {}

    @property
    def documents(self) -> Sequence[OpenDocument]:
        """The documents, in the order in which they came."""
        return list(self._ready)

    def add(self, opened: OpenDocument) -> None:
        """As `Pool.add`."""
        self._ready[opened] = {}

    def remove(self, opened: OpenDocument) -> None:
        """Give up a document, finished or not; nothing happens where it is not here."""
        self._ready.pop(opened, None)

    def settle(self, opened: OpenDocument) -> int:
        """Finish what is given of a document, as far as it is ready; how many sentences."""
        return self._search.settle(opened)

    def ready(self, opened: OpenDocument, tokens: float = inf) -> list[RowGroup]:
        """The windows of a document that are ready: all, or as many as take so many tokens in a batch."""
        found = self._ready[opened]
        missing = tokens - sum(group.cost for group in found)
        fresh = self._search.groups(opened)
        while missing > 0 and (group := next(fresh, None)) is not None:
            found[group] = None
            missing -= group.cost
        return list(found)

    def waits(self, group: RowGroup) -> bool:
        """Whether a group that was ready has not been searched, and its document is here."""
        return group in self._ready.get(group.document, ())

    def search(
        self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None] = lambda count: None
    ) -> int:
        """Search a batch of windows of one width; the number of sentences that are finished with them.

        `on_sentences` is told after every step how many have ended. Where the search fails, those that were
        finished before are ready no more.
        """
        try:
            return self._search.search(batch, on_sentences)
        finally:
            for group in batch:
                if all(group.document.is_finished(row.number) for row in group.rows):
                    # Whoever owns the pool may have removed the document meanwhile.
                    self._ready.get(group.document, {}).pop(group, None)

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search all that is ready now, in batches of `decode.max_tokens`."""
        for opened in self._ready:
            if settled := self.settle(opened):
                on_sentences(settled)
        groups = [group for opened in self._ready for group in self.ready(opened)]
        for batch in self._search.batches(groups):
            self._advance(batch, on_sentences)

    def _advance(self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None]) -> None:
        """Search a batch; what no step has told is told at the end, as of engines, which take no steps."""
        told = 0

        def on_step(count: int) -> None:
            nonlocal told
            told += count
            on_sentences(count)

        on_sentences(self.search(batch, on_step) - told)

    def take_finished(self) -> list[OpenDocument]:
        """As `Pool.take_finished`."""
        finished = [opened for opened in self._ready if opened.done]
        for opened in finished:
            self.remove(opened)
        return finished

    def close(self) -> None:
        """As `Pool.close`."""
        self._ready.clear()
