"""Beam search for the most probable text of a sentence, over all of its paths (Graves and Jaitly 2014).

The argmax path need not belong to the most probable text: a text has many paths. A beam holds the most
probable beginnings; of each it knows how likely its paths are that end in a blank, and those that end in its
last token.

    bos y1 y2 eos        the first place is `bos` and the last is `eos`; between them stands a path, which may
                         repeat either, and is one of the text if it leaves y1 y2
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

OF_BLANK, OF_TOKEN = 0, 1  # how the paths of a beginning end


@dataclass(frozen=True, slots=True)
class Place:
    """What may stand at a place: blank and its most probable symbols, with their log-probabilities."""

    blank: float
    symbols: Sequence[tuple[int, float]]


def _plus(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def prefix_beam(
    places: Sequence[Place], bos: int, eos: int, beam: int, most_tokens: int, length_penalty: float
) -> list[tuple[tuple[int, ...], float]]:
    """Texts of at most `most_tokens` with their log-probabilities, the best first.

    The best is that of the highest log-probability / (tokens + 1) ** length_penalty. `places` are those
    between the first and the last.
    """
    beams: dict[tuple[int, ...], tuple[float, float]] = {(bos,): (-math.inf, 0.0)}
    for place in places:
        following: dict[tuple[int, ...], list[float]] = {}

        def add(
            prefix: tuple[int, ...], which: int, log_p: float, into: dict[tuple[int, ...], list[float]]
        ) -> None:
            kept = into.setdefault(prefix, [-math.inf, -math.inf])
            kept[which] = _plus(kept[which], log_p)

        for prefix, (of_blank, of_token) in beams.items():
            both, last = _plus(of_blank, of_token), prefix[-1]
            add(prefix, OF_BLANK, both + place.blank, following)
            for symbol, log_p in place.symbols:
                if symbol == last:
                    add(prefix, OF_TOKEN, of_token + log_p, following)
                    start = of_blank  # another of the same needs a blank between them
                else:
                    start = both
                if _may_follow(symbol, prefix, bos, eos, most_tokens):
                    add((*prefix, symbol), OF_TOKEN, start + log_p, following)
        best = sorted(following.items(), key=lambda entry: -_plus(*entry[1]))[:beam]
        beams = {prefix: (kept[OF_BLANK], kept[OF_TOKEN]) for prefix, kept in best}
    texts: dict[tuple[int, ...], float] = {}
    for prefix, (of_blank, of_token) in beams.items():
        # The last place is `eos`: it closes what is open, and repeats an `eos` that stands right before it.
        closed = prefix[-1] == eos
        text, log_p = (prefix[1:-1], of_token) if closed else (prefix[1:], _plus(of_blank, of_token))
        texts[text] = _plus(texts.get(text, -math.inf), log_p)
    found = [(text, log_p) for text, log_p in texts.items() if log_p > -math.inf]
    return sorted(found, key=lambda entry: -entry[1] / (len(entry[0]) + 1) ** length_penalty)


def _may_follow(symbol: int, prefix: Collection[int], bos: int, eos: int, most_tokens: int) -> bool:
    """Whether a beginning may go on with a symbol: it has one `bos`, and nothing comes after `eos`."""
    if symbol == bos or eos in prefix:
        return False
    return symbol == eos or len(prefix) - 1 < most_tokens
