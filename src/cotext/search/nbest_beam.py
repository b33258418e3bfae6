"""N-best lists: hypotheses of a beam in addition to the best one.

With a list, the search for the best hypothesis does not change. Without a list, a place in the beam becomes
empty when its hypothesis can no longer win. With a list, the most probable of all other hypotheses fill these
places (the reserve). No hypothesis that can still win loses its place, and no hypothesis of the reserve can
beat the best one. An entry is finished as soon as nothing in its beam can enter its list.

Shapes: B entries that are not finished, W beam, R rows (R = B * W), C candidates of a step, K tokens of a
row, M maximum number of new tokens.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor


class Alternative(NamedTuple):
    """The tokens of an alternative hypothesis for a sentence, without its closing symbol.

    `log_probability`: of the tokens and the closing symbol; `score`: the value by which hypotheses are
    ranked.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float


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
        # The score that a hypothesis must exceed to enter the list of its request.
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
