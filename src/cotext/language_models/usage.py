"""Requests, tokens and costs of a job: what its result took, and what of it was asked for now."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotext.language_models.config import Prices


@dataclass(slots=True)
class Usage:
    """Counts of answers; tokens are those that the API reports, 0 where it reports none."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    without_usage: int = 0  # answers that report no tokens

    def add(self, answer: Mapping[str, Any]) -> None:
        """Count an answer."""
        self.requests += 1
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        tokens = [_whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens"))]
        self.without_usage += None in tokens
        self.input_tokens += tokens[0] or 0
        self.output_tokens += tokens[1] or 0

    def cost(self, prices: Prices | None) -> float | None:
        """The price of these tokens; None without prices, or where answers report no tokens."""
        if prices is None or self.without_usage:
            return None
        return (self.input_tokens * prices.input + self.output_tokens * prices.output) / 1e6


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


@dataclass(slots=True)
class Counts:
    """Usage of all answers of a job, of those asked for now, and the days on which they came."""

    all: Usage = field(default_factory=Usage)
    now: Usage = field(default_factory=Usage)
    sent_again: int = 0  # requests that were refused for the moment, or not answered
    days: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)  # as the answers call them
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answer: Mapping[str, Any], day: str, kept: bool) -> None:
        """Count an answer, which was `kept` or came now."""
        with self._lock:
            self.all.add(answer)
            if not kept:
                self.now.add(answer)
            self.days.add(day)
            model = answer.get("model")
            if isinstance(model, str) and model:
                self.models.add(model[:200])

    def count_sent_again(self) -> None:
        """Count a request that has to be sent again."""
        with self._lock:
            self.sent_again += 1

    def in_words(self, prices: Prices | None) -> str:
        """For a person: requests, tokens, and what they cost where prices are known."""
        every, now = self.all, self.now
        words = (
            f"{every.requests:,} requests ({every.requests - now.requests:,} answers were there), "
            f"{every.input_tokens:,} tokens in, {every.output_tokens:,} out"
        )
        costs = [usage.cost(prices) for usage in (every, now)]
        if None not in costs:
            words += f"; cost {costs[0]:.4f}, of which now {costs[1]:.4f}"
        if self.sent_again:
            words += f"; {self.sent_again:,} were not answered at first, and sent again"
        if every.without_usage:
            words += f"; {every.without_usage:,} answers say nothing of tokens, which are not counted"
        return words

    @property
    def period(self) -> str:
        """The days on which the answers came, as in 2026-11-23 or 2026-11-23..2026-11-25."""
        return "..".join(dict.fromkeys((min(self.days), max(self.days)))) if self.days else ""
