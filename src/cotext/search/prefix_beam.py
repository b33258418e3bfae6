"""The most probable texts of one sentence or row by prefix beam search for CTC (Graves 2012, section 7.5).

The most probable text is that whose paths have the largest sum of probabilities, not that of the most
probable path. The search goes from frame to frame with the best prefixes of texts and the probability of all
paths to each so far.

Shapes: T frames, C candidate tokens of each, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, inf, log1p

import torch
from torch import Tensor

from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class TextRules:
    """Constraints on a text: at least one token that is not `non_content`, and none of `never`.

    With `brackets` the first and the last frame are these two for certain, and they stand nowhere else in the
    text; frames between may repeat them.
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
class _Prefix:
    """A prefix of a text: the log-probabilities of its paths that end in blank and in its last token."""

    has_content_token: bool
    blank: float = -inf
    label: float = -inf
    total: float = field(default=-inf)


def candidates(log_p_TV: Tensor, count: int, rules: TextRules) -> tuple[Tensor, Tensor]:
    """The best content tokens of every frame, with blank, brackets and non-content tokens added.

    Returns log-probabilities and tokens, [T, C] each; a token is among those of a frame once.
    """
    added = sorted({rules.blank, *rules.non_content, *(rules.brackets or ())} - rules.never)
    apart = torch.tensor(sorted({*added, *rules.never}), device=log_p_TV.device)
    added_C = torch.tensor(added, device=log_p_TV.device)
    content_TV = log_p_TV.index_fill(1, apart, -torch.inf)
    count = min(count, log_p_TV.size(1) - len(apart))
    best_TC, token_TC = content_TV.topk(count, dim=1)
    tokens_TC = torch.cat([added_C.expand(len(log_p_TV), -1), token_TC], dim=1)
    return torch.cat([log_p_TV[:, added_C], best_TC], dim=1), tokens_TC


def prefix_beam(log_p_TC: Tensor, token_TC: Tensor, beam: int, rules: TextRules) -> list[Text]:
    """The most probable texts, at most `beam`, best first.

    What is not among a frame's candidates has no probability there, so blank should be one everywhere.
    Where no kept prefix has a content token, the best one that has stays in the beam too. Raises CotextError
    where the frames hold none at all.
    """
    steps = _steps(log_p_TC, token_TC, rules)
    prefixes: dict[tuple[int, ...], _Prefix] = {(): _Prefix(has_content_token=False, blank=0.0, total=0.0)}
    for step in steps:
        prefixes = _best(_extended(prefixes, step, rules), beam)
    closing = rules.brackets[1] if rules.brackets else None
    texts = [
        Text(tokens, it.total)
        for tokens, it in prefixes.items()
        if it.has_content_token and (closing is None or tokens[-1] == closing)
    ]
    if not texts:
        raise CotextError(
            f"no text with a content token fits {len(steps)} frames; give it more frames, or candidates "
            "that hold a blank and a content token at each (NaN in the model's output leaves none)"
        )
    return sorted(texts, key=lambda text: -text.log_probability)[:beam]


def _steps(log_p_TC: Tensor, token_TC: Tensor, rules: TextRules) -> list[list[tuple[int, float]]]:
    """The candidates of every frame that are possible, brackets at either end."""
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
    prefixes: dict[tuple[int, ...], _Prefix], step: Iterable[tuple[int, float]], rules: TextRules
) -> dict[tuple[int, ...], _Prefix]:
    """All extensions of the prefixes by one more frame."""
    opening, closing = rules.brackets or (None, None)
    following: dict[tuple[int, ...], _Prefix] = {}
    for tokens, before in prefixes.items():
        last = tokens[-1] if tokens else None
        closed = last is not None and last == closing
        for token, score in step:
            if token == rules.blank:
                # The closing bracket is that of the last frame: after a blank there were two of them.
                if not closed:
                    same = following.setdefault(tokens, _Prefix(before.has_content_token))
                    same.blank = _plus(same.blank, before.total + score)
                continue
            if token == last:
                same = following.setdefault(tokens, _Prefix(before.has_content_token))
                same.label = _plus(same.label, before.label + score)
            reached = before.blank if token == last else before.total
            if closed or reached == -inf or token in rules.never:
                continue
            if (token == opening and tokens) or (token == closing and not before.has_content_token):
                continue
            has_content_token = before.has_content_token or not (
                token in rules.non_content or token == opening
            )
            longer = following.setdefault((*tokens, token), _Prefix(has_content_token))
            longer.label = _plus(longer.label, reached + score)
    return following


def _best(prefixes: dict[tuple[int, ...], _Prefix], beam: int) -> dict[tuple[int, ...], _Prefix]:
    """The most probable, and one that has a content token."""
    for it in prefixes.values():
        it.total = _plus(it.blank, it.label)
    order = sorted(prefixes, key=lambda tokens: -prefixes[tokens].total)
    kept = order[:beam]
    if not any(prefixes[tokens].has_content_token for tokens in kept):
        kept += [tokens for tokens in order[beam:] if prefixes[tokens].has_content_token][:1]
    return {tokens: prefixes[tokens] for tokens in kept if prefixes[tokens].total > -inf}


def _plus(a: float, b: float) -> float:
    """log(exp a + exp b)."""
    low, high = (a, b) if a < b else (b, a)
    return high if low == -inf else high + log1p(exp(low - high))
