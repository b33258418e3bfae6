"""The hypotheses of a beam beside the best one: what n-best lists are made of.

The search for the best hypothesis goes on as it does without a list. A place in the beam is empty there once
its hypothesis cannot win any more; with a list, the most probable of all others stand in such places (the
reserve): no place is taken from one that can still win, and nothing in the reserve can beat the best one. An
entry is finished as soon as nothing in its beam can get into its list.

Shapes: B entries that are not finished, W beam, R rows (R = B * W), C candidates of a step, M most new
tokens.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import NamedTuple

import torch
from torch import Tensor


class Alternative(NamedTuple):
    """The tokens of a further hypothesis for a sentence, without what closes it.

    `log_probability` is that of these and of what closes the sentence, `score` what ranks it.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float


class Candidates(NamedTuple):
    """Continuations of hypotheses by one token, [B, C] each.

    `total` is the log-probability, -inf where there is none, `own` that of the token alone; `origin` says
    which hypothesis of the beam is continued.
    """

    total: Tensor
    origin: Tensor
    token: Tensor
    own: Tensor

    def first(self, count: int) -> "Candidates":
        """The first of every entry, [B, count]."""
        return Candidates(*(x[:, :count] for x in self))

    def chosen(self, at: Tensor) -> "Candidates":
        """Those at `at`, [B, C']."""
        return Candidates(*(x.gather(1, at) for x in self))

    def where(self, mask: Tensor) -> "Candidates":
        """The same, with a log-probability of -inf where the mask is False."""
        return self._replace(total=self.total.masked_fill(~mask, -torch.inf))


class NBestBeam:
    """The reserve of every entry, and what has ended for every request so far.

    `wanted`: how many hypotheses of each request, 0 where no list is made; `divisor`: as that of
    `SearchOptions`; `start`: log-probabilities of the beams before the first step, [B, W]. Without a reserve,
    lists hold what ends in the search for the best.
    """

    def __init__(
        self, wanted: Sequence[int], divisor: Callable[[int], float], start: Tensor, has_reserve: bool
    ) -> None:
        self._wanted, self._divisor, self._has_reserve = wanted, divisor, has_reserve
        self._found: list[dict[tuple[int, ...], Alternative]] = [{} for _ in wanted]
        self._total = torch.full_like(start, -torch.inf)  # of the hypotheses in the reserve
        # What a hypothesis has to beat to get into the list of its request.
        limits = [-torch.inf if number else torch.inf for number in wanted]
        self._bar = torch.tensor(limits, dtype=start.dtype, device=start.device)

    def candidates(self, own: Tensor, token: Tensor) -> Candidates | None:
        """The most probable continuations of the reserve, by the best tokens of all rows, [R, K] both."""
        if not self._has_reserve:
            return None
        entries, beam = self._total.shape
        of_all = (own + self._total.view(-1, 1)).view(entries, -1)
        total, at = of_all.topk(min(2 * beam, of_all.size(1)), dim=1)
        flat = (x.view(entries, -1).gather(1, at) for x in (token, own))
        return Candidates(total, at // own.size(1), *flat)

    def note(self, entry: Tensor, ending: Candidates, tokens_BWM: Tensor, written: int) -> None:
        """Keep the candidates that end now.

        `entry` [B] says which request, `tokens_BWM` what the beams hold.
        """
        divisor = self._divisor(written + 1)
        at_N, candidate_N = (ending.total / divisor > self._bar[entry][:, None]).nonzero(as_tuple=True)
        if not len(at_N):
            return
        tokens = tokens_BWM[at_N, ending.origin[at_N, candidate_N], :written].tolist()
        values = ending.total[at_N, candidate_N].tolist()
        changed = entry[at_N].tolist()
        for request, labels, value in zip(changed, tokens, values, strict=True):
            own = tuple(labels)
            self._found[request][own] = Alternative(own, value, value / divisor)
        for request in set(changed):
            found = self._found[request].values()
            best = nlargest(self._wanted[request], found, key=lambda each: each.score)
            self._found[request] = {each.tokens: each for each in best}
            if len(best) == self._wanted[request]:
                self._bar[request] = best[-1].score

    def fill(
        self,
        entry: Tensor,
        first: Candidates,
        hopeful: Tensor,
        others: Sequence[Candidates],
        divisor: Tensor,
    ) -> tuple[Candidates, Tensor]:
        """Put the best of `others`, [B, C] each, into the places of the beam that are not `hopeful`, [B, W].

        `first` [B, W] goes on as far as it is hopeful; it may be among the others, too. `divisor` [B] is that
        of the score of the longest hypothesis. Returns what goes on, and where anything does.
        """
        pool = Candidates(*(torch.cat(each, dim=1) for each in zip(*others, strict=True)))
        beam = hopeful.size(1)
        taken = (first.token * beam + first.origin).masked_fill(~hopeful, -1)
        is_taken = ((pool.token * beam + pool.origin)[:, :, None] == taken[:, None, :]).any(dim=2)
        may_enter = pool.total / divisor[:, None] > self._bar[entry][:, None]
        total, order = pool.total.masked_fill(is_taken | ~may_enter, -torch.inf).sort(
            dim=1, descending=True, stable=True
        )
        rank = ((~hopeful).cumsum(dim=1) - 1).clamp(min=0)  # of a place among those that are empty
        filling = pool.chosen(order.gather(1, rank))._replace(total=total.gather(1, rank))
        self._total = filling.total.masked_fill(hopeful, -torch.inf)
        merged = Candidates(*(torch.where(hopeful, a, b) for a, b in zip(first, filling, strict=True)))
        return merged, hopeful | (self._total > -torch.inf)

    def select(self, entries: Tensor) -> "NBestBeam":
        """Keep the given entries, in the given order."""
        self._total = self._total.index_select(0, entries)
        return self

    def others(self, request: int, best: Sequence[int]) -> tuple[tuple[Alternative, ...], ...]:
        """The hypotheses of a request beside the best one, best first; as in `Hypothesis.others`."""
        if not self._wanted[request]:
            return ()
        found = self._found[request].values()
        return (tuple(each for each in found if each.tokens != tuple(best)),)
