"""Options of a search, its hypotheses, and n-best lists: hypotheses in addition to the best one.

With a list, the search for the best hypothesis does not change. Without a list, a place in the beam becomes
empty when its hypothesis can no longer win. With a list, the most probable other hypotheses fill these places
(the reserve). No hypothesis that can still win loses its place, and no hypothesis of the reserve can beat the
best one. An entry is finished as soon as no hypothesis in its beam can enter its list.

Shapes: B entries (unfinished requests), W beam size, R = B * W rows (hypotheses), C candidates of a step, K
tokens of a row, M maximum number of new tokens.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from cotext.config.recipe import Align, LengthPenaltyForm, SamplingConfig
from cotext.runtime import CotextError


def length_divisor(length: int, exponent: float, form: LengthPenaltyForm) -> float:
    """Return the number by which the log-probability of a hypothesis of `length` tokens is divided.

    `power` is `length ** exponent`, as in fairseq, Marian, CTranslate2 and transformers. `gnmt` is `((5 +
    length) / 6) ** exponent` (Wu et al. 2016, equation 14), as in Vaswani et al. 2017. Zheng et al. 2020 also
    use it: src/decoding/beam_search.py of Blickwinkel1107/making-the-most-of-context-nmt (82f684f).

    With an exponent of at least 0, both grow with the length; beam search relies on this to prune.
    """
    base = length if form == "power" else (5 + length) / 6
    divisor: float = base**exponent
    return divisor


class Alternative(NamedTuple):
    """The tokens of an alternative hypothesis for a sentence, without its closing symbol.

    `log_probability`: of the tokens and the closing symbol; `score`: the value by which hypotheses are
    ranked.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Beam size, length penalty and constraints of a search.

    The score of a hypothesis is its log-probability / `divisor(length)`, where length counts the new tokens
    including `eos`. With a language model, values of tokens may be above 0, so their sum is not a
    log-probability. A beam of 1 is greedy search.

    `align`: `constrained` returns exactly the requested sentences. In `free` search, any separator or `eos`
    may follow at any time.

    `nbest` above 1: also return lists of this length, for requests of one sentence. The best hypothesis does
    not change.

    `scored`: whether hypotheses have log-probabilities; without them, a beam of 1 finds the same tokens,
    faster.

    `sampling`: draw every token at random; None: search.
    """

    beam: int = 4
    length_penalty: float = 0.6
    align: Align = "constrained"
    nbest: int = 1
    scored: bool = True
    length_penalty_form: LengthPenaltyForm = "power"
    sampling: SamplingConfig | None = None

    def __post_init__(self) -> None:
        if self.nbest > self.beam:
            kind = "greedy search has only one hypothesis" if self.beam == 1 else "a beam has no more of them"
            raise CotextError(
                f"decode.nbest = {self.nbest}: {kind} (decode.beam = {self.beam}); choose decode.beam = "
                f"{self.nbest} or more"
            )
        if self.beam > 1 and not self.scored:
            raise CotextError(
                f"decode.scores = false: a beam of {self.beam} ranks hypotheses by their log-probabilities; "
                "choose decode.beam = 1, or remove decode.scores"
            )
        if self.beam > 1 and self.sampling is not None:
            raise CotextError(
                f"decode.sampling draws one translation, but decode.beam = {self.beam}; choose decode.beam = "
                "1, or remove decode.sampling"
            )

    def divisor(self, length: int) -> float:
        return length_divisor(length, self.length_penalty, self.length_penalty_form)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The best hypothesis for a request.

    `tokens`: the new labels including separators, without the final `eos`. `token_log_probabilities`: of
    these tokens and the final `eos`; `log_probability`: their sum; NaN if the search was not `scored`.
    If an engine returns only the sum, the `eos` has this value, and the tokens have 0. `truncated`: the
    positions of closing symbols (also of the final `eos`) that a length limit forced. `others`: the
    alternatives of every requested sentence, best first. It is empty without lists, and for requests of
    several sentences.
    """

    tokens: list[int]
    token_log_probabilities: list[float]
    log_probability: float
    score: float
    truncated: tuple[int, ...]
    others: tuple[tuple[Alternative, ...], ...] = ()

    def unscored(self) -> "Hypothesis":
        """Return a copy with NaN for log-probabilities and score, which are sums of logits here."""
        without = [math.nan] * len(self.token_log_probabilities)
        return replace(self, token_log_probabilities=without, log_probability=math.nan, score=math.nan)


class Candidates(NamedTuple):
    """Continuations of hypotheses by one token, [B, C] each.

    `total`: log-probability of the hypothesis, -inf if there is none. `own`: log-probability of the token.
    `origin`: the continued beam.
    """

    total: Tensor
    origin: Tensor
    token: Tensor
    own: Tensor

    def chosen(self, at: Tensor) -> "Candidates":
        """Return the candidates at the indices `at`, [B, C']."""
        return Candidates(*(x.gather(1, at) for x in self))

    def where(self, mask: Tensor) -> "Candidates":
        """Set the log-probability to -inf where the mask is False."""
        return self._replace(total=self.total.masked_fill(~mask, -torch.inf))


class NBestBeam:
    """The reserve of every entry, and the finished hypotheses of every request.

    `wanted`: number of hypotheses of each request, 0 for no list. `divisor`: as in `SearchOptions`. `start`:
    log-probabilities of the beams before the first step, [B, W]. Without a reserve, lists contain the
    hypotheses that end in the search for the best one.
    """

    def __init__(
        self, wanted: Sequence[int], divisor: Callable[[int], float], start: Tensor, has_reserve: bool
    ) -> None:
        self._wanted, self._divisor, self._has_reserve = wanted, divisor, has_reserve
        self._found: list[dict[tuple[int, ...], Alternative]] = [{} for _ in wanted]
        self._total = torch.full_like(start, -torch.inf)  # log-probabilities of the reserve
        # For each request, the score that a hypothesis must exceed to enter its list.
        limits = [-torch.inf if number else torch.inf for number in wanted]
        self._bar = torch.tensor(limits, dtype=start.dtype, device=start.device)

    def candidates(self, own: Tensor, token: Tensor) -> Candidates | None:
        """Return the best continuations of the reserve by tokens of log-probability `own`, [R, K] each."""
        if not self._has_reserve:
            return None
        entries, beam = self._total.shape
        totals = (own + self._total.view(-1, 1)).view(entries, -1)
        total, at = totals.topk(min(2 * beam, totals.size(1)), dim=1)
        flat = (x.view(entries, -1).gather(1, at) for x in (token, own))
        return Candidates(total, at // own.size(1), *flat)

    def note(self, entry: Tensor, ending: Candidates, tokens_BWM: Tensor, written: int) -> None:
        """Add the candidates that end now to the lists.

        `entry` [B] is the request of each entry, `tokens_BWM` the tokens of the beams.
        """
        # Only hypotheses above the lowest score of a full list are worth storing.
        divisor = self._divisor(written + 1)
        at_N, candidate_N = (ending.total / divisor > self._bar[entry][:, None]).nonzero(as_tuple=True)
        if not len(at_N):
            return
        tokens = tokens_BWM[at_N, ending.origin[at_N, candidate_N], :written].tolist()
        values = ending.total[at_N, candidate_N].tolist()
        changed = entry[at_N].tolist()
        for request, labels, value in zip(changed, tokens, values, strict=True):
            tokens_of_one = tuple(labels)
            self._found[request][tokens_of_one] = Alternative(tokens_of_one, value, value / divisor)
        for request in set(changed):
            hypotheses = self._found[request].values()
            best = nlargest(self._wanted[request], hypotheses, key=attrgetter("score"))
            self._found[request] = {hypothesis.tokens: hypothesis for hypothesis in best}
            if len(best) == self._wanted[request]:
                self._bar[request] = best[-1].score

    def fill(
        self, entry: Tensor, first: Candidates, hopeful: Tensor, others: Sequence[Candidates], divisor: Tensor
    ) -> tuple[Candidates, Tensor]:
        """Fill the places of the beam that are not `hopeful`, [B, W], with the best of `others`, [B, C] each.

        A place is hopeful if its candidate in `first`, [B, W], can still win; such a candidate may also be
        among the others. `divisor` [B]: of the longest possible hypothesis. Returns the candidates that
        continue, and a mask of the places that have one.
        """
        pool = Candidates(*(torch.cat(fields, dim=1) for fields in zip(*others, strict=True)))
        beam = hopeful.size(1)
        taken = (first.token * beam + first.origin).masked_fill(~hopeful, -1)
        # Exclude candidates that are in the beam already, and those that could not enter the list.
        is_taken = ((pool.token * beam + pool.origin)[:, :, None] == taken[:, None, :]).any(dim=2)
        may_enter = pool.total / divisor[:, None] > self._bar[entry][:, None]
        total, order = pool.total.masked_fill(is_taken | ~may_enter, -torch.inf).sort(
            dim=1, descending=True, stable=True
        )
        rank = ((~hopeful).cumsum(dim=1) - 1).clamp(min=0)  # number of each place among the empty ones
        filling = pool.chosen(order.gather(1, rank))._replace(total=total.gather(1, rank))
        self._total = filling.total.masked_fill(hopeful, -torch.inf)
        merged = Candidates(*(torch.where(hopeful, a, b) for a, b in zip(first, filling, strict=True)))
        return merged, hopeful | (self._total > -torch.inf)

    def select(self, entries: Tensor) -> "NBestBeam":
        self._total = self._total.index_select(0, entries)
        return self

    def others(self, request: int, best: Sequence[int]) -> tuple[tuple[Alternative, ...], ...]:
        """Return the hypotheses of a request other than the best one, best first: see `Hypothesis.others`."""
        if not self._wanted[request]:
            return ()
        hypotheses = self._found[request].values()
        return (tuple(hypothesis for hypothesis in hypotheses if hypothesis.tokens != tuple(best)),)
