"""The most probable texts of one sentence or row by prefix beam search for CTC (Graves 2012, section 7.5).

The most probable path says one text; the most probable text is that whose paths sum to most. The search goes
from position to position with the best beginnings of texts and the probability of all their paths so far.

Shapes: T positions, C candidate tokens of each, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, inf, log1p

import torch
from torch import Tensor

from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class TextRules:
    """What may be said: at least one token that is not `non_content`, and none of `never`.

    With `brackets` the first and the last position are these two for certain, and they stand nowhere else in
    the text; positions between may repeat them.
    """

    blank: int
    non_content: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()
    brackets: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens, brackets included, and the log-probability of all paths that were followed to them."""

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(slots=True)
class _Beginning:
    """A text so far: the log-probabilities of its paths that end in blank and in its last token."""

    has_content_token: bool
    blank: float = -inf
    label: float = -inf
    total: float = field(default=-inf)


def candidates(log_p_TV: Tensor, count: int, rules: TextRules) -> tuple[Tensor, Tensor]:
    """The best words of every position, with blank, brackets and non_content tokens beside them.

    Returns log-probabilities and tokens, [T, C] each; a token is among those of a position once.
    """
    beside = sorted({rules.blank, *rules.non_content, *(rules.brackets or ())} - rules.never)
    apart = torch.tensor(sorted({*beside, *rules.never}), device=log_p_TV.device)
    beside_C = torch.tensor(beside, device=log_p_TV.device)
    words_TV = log_p_TV.index_fill(1, apart, -torch.inf)
    count = min(count, log_p_TV.size(1) - len(apart))
    best_TC, token_TC = words_TV.topk(count, dim=1)
    tokens_TC = torch.cat([beside_C.expand(len(log_p_TV), -1), token_TC], dim=1)
    return torch.cat([log_p_TV[:, beside_C], best_TC], dim=1), tokens_TC


def prefix_beam(log_p_TC: Tensor, token_TC: Tensor, beam: int, rules: TextRules) -> list[Text]:
    """The texts found, at most `beam`, the most probable first.

    What is not among a position's candidates has no probability there, so blank should be one everywhere.
    Where no kept beginning has a word, the best that has one stays beside them: where the positions hold a
    word at all, there is an outcome. Raises CotextError where they do not.
    """
    steps = _steps(log_p_TC, token_TC, rules)
    beginnings: dict[tuple[int, ...], _Beginning] = {
        (): _Beginning(has_content_token=False, blank=0.0, total=0.0)
    }
    for step in steps:
        beginnings = _best(_extended(beginnings, step, rules), beam)
    closing = rules.brackets[1] if rules.brackets else None
    texts = [
        Text(tokens, it.total)
        for tokens, it in beginnings.items()
        if it.has_content_token and (closing is None or tokens[-1] == closing)
    ]
    if not texts:
        raise CotextError(
            f"no text with a word in it fits {len(steps)} positions; give it more positions, or candidates "
            "that hold a blank and a word at each (NaN in the model's output leaves none)"
        )
    return sorted(texts, key=lambda text: -text.log_probability)[:beam]


def _steps(log_p_TC: Tensor, token_TC: Tensor, rules: TextRules) -> list[list[tuple[int, float]]]:
    """The candidates of every position that are possible, brackets at either end."""
    scores, tokens = log_p_TC.double().tolist(), token_TC.tolist()
    steps = [
        [(token, score) for token, score in zip(*pair, strict=True) if score > -inf]
        for pair in zip(tokens, scores, strict=True)
    ]
    if rules.brackets:
        opening, closing = rules.brackets
        return [[(opening, 0.0)], *steps[1:-1], [(closing, 0.0)]]
    return steps


def _extended(
    beginnings: dict[tuple[int, ...], _Beginning], step: Iterable[tuple[int, float]], rules: TextRules
) -> dict[tuple[int, ...], _Beginning]:
    """All that the beginnings may become with one more position."""
    opening, closing = rules.brackets or (None, None)
    following: dict[tuple[int, ...], _Beginning] = {}
    for tokens, before in beginnings.items():
        last = tokens[-1] if tokens else None
        closed = last is not None and last == closing
        for token, score in step:
            if token == rules.blank:
                # A bracket that closes the text is the last position's: after a blank there were two of them.
                if not closed:
                    same = following.setdefault(tokens, _Beginning(before.has_content_token))
                    same.blank = _plus(same.blank, before.total + score)
                continue
            if token == last:
                same = following.setdefault(tokens, _Beginning(before.has_content_token))
                same.label = _plus(same.label, before.label + score)
            reached = before.blank if token == last else before.total
            if closed or reached == -inf or token in rules.never:
                continue
            if (token == opening and tokens) or (token == closing and not before.has_content_token):
                continue
            has_content_token = before.has_content_token or not (
                token in rules.non_content or token == opening
            )
            longer = following.setdefault((*tokens, token), _Beginning(has_content_token))
            longer.label = _plus(longer.label, reached + score)
    return following


def _best(beginnings: dict[tuple[int, ...], _Beginning], beam: int) -> dict[tuple[int, ...], _Beginning]:
    """The most probable, and one that has a word."""
    for it in beginnings.values():
        it.total = _plus(it.blank, it.label)
    order = sorted(beginnings, key=lambda tokens: -beginnings[tokens].total)
    kept = order[:beam]
    if not any(beginnings[tokens].has_content_token for tokens in kept):
        kept += [tokens for tokens in order[beam:] if beginnings[tokens].has_content_token][:1]
    return {tokens: beginnings[tokens] for tokens in kept if beginnings[tokens].total > -inf}


def _plus(a: float, b: float) -> float:
    """log(exp a + exp b)."""
    low, high = (a, b) if a < b else (b, a)
    return high if low == -inf else high + log1p(exp(low - high))
