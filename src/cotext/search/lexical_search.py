"""Beam search of rows with lexical constraints.

After Post and Vilar (2018, "Fast lexically constrained decoding with dynamic beam allocation"). The
candidates of a hypothesis are its most probable tokens, and the tokens that begin or continue an unmet
phrase. The beam is divided among banks of hypotheses that have met the same number of constraints. Hypotheses
with a phrase therefore do not compete with those without. Differences:

    banks    Banks count phrases, with one for hypotheses inside a phrase. By tokens, a URL of twenty tokens
             would take twenty banks.
    inside   Hypotheses inside a phrase are compared as if the model had predicted the tokens after the first.
             Every translation must contain these tokens; only their place is chosen.
    width    The beam is widened to the number of banks.
    end      A sentence cannot be closed before its requirements are met. Near its length limit, only tokens
             that leave enough room are allowed.

If nothing may follow (a required phrase contains a forbidden one), the constraints of the sentence are
dropped. Translations are checked afterwards (`cotext.translation.terms.terms`).

Shapes: B entries, W beam, R rows (R = B * W), C candidates of a step (C = 2 * W), V vocabulary.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from cotext.search.constraints import SearchRequest, SearchSymbols, SentenceProgress
from cotext.search.lexical import SentenceAutomaton, Written

MIN_WIDTH: Final = 4
MAX_WIDTH: Final = 16
_MORE: Final = 16  # tokens of each hypothesis beyond twice the beam, as some may be rejected


def search_width(beam: int, automata: Sequence[SentenceAutomaton | None]) -> int:
    """Return the beam for a row: one place per bank, in steps of four, so that rows can share batches."""
    most = max((automaton.size for automaton in automata if automaton is not None), default=None)
    if most is None:
        return beam
    places = -(-(2 * most + 1) // MIN_WIDTH) * MIN_WIDTH
    return max(beam, min(max(places, MIN_WIDTH), MAX_WIDTH))


class _Path(NamedTuple):
    """The state of a hypothesis: closed sentences, and the automaton and the text of the current one.

    `state` None: the sentence has no constraints, or they were dropped. `spared`: log-probability by which
    the tokens of the current phrase fell short of the model's best tokens. `of_sentence`, `of_row`: its sum
    over all phrases of the sentence or row.
    """

    closed: int
    state: tuple[SentenceAutomaton, Written] | None
    spared: float = 0.0
    of_sentence: float = 0.0
    of_row: float = 0.0


class _Candidate(NamedTuple):
    total: float
    origin: int
    token: int
    own: float
    path: _Path
    ends: bool


class LexicalBeam:
    """The hypotheses of entries with constraints, parallel to the frontier of beam search."""

    def __init__(self, requests: Sequence[SearchRequest], symbols: SearchSymbols, beam: int) -> None:
        self.width = max(search_width(beam, request.automata) for request in requests)
        self._closing = {*symbols.special.separators, symbols.special.eos}
        self._automata = [request.automata for request in requests]
        self._paths = [self._started(i, request, symbols) for i, request in enumerate(requests)]

    @classmethod
    def of(cls, requests: Sequence[SearchRequest], symbols: SearchSymbols, beam: int) -> "LexicalBeam | None":
        """Return the lexical beam of a search; None if no request has constraints."""
        constrained = any(any(request.automata) for request in requests)
        return cls(requests, symbols, beam) if constrained else None

    def _started(self, entry: int, request: SearchRequest, symbols: SearchSymbols) -> list[_Path]:
        """Return the hypothesis of an entry before its first step; none if it has no constraints."""
        if not any(request.automata):
            return []
        begun: list[int] = []
        for token in request.prefix:
            begun = [] if token in symbols.special.separators else [*begun, token]
        path = self._opened(entry, _Path(0, None))
        if path.state is None:
            return [path]
        # The prefix may have begun the sentence: replay its tokens.
        automaton = path.state[0]
        after = automaton.replay(begun)
        return [path._replace(state=None if after is None else (automaton, after))]

    def _opened(self, entry: int, path: _Path) -> _Path:
        """Return a path at the start of its sentence."""
        automata = self._automata[entry]
        automaton = automata[path.closed] if path.closed < len(automata) else None
        return path._replace(state=None if automaton is None else (automaton, automaton.start))

    def select(self, entries: Tensor) -> "LexicalBeam":
        indices = entries.tolist()
        self._automata = [self._automata[i] for i in indices]
        self._paths = [self._paths[i] for i in indices]
        return self

    def choose(
        self,
        next_RV: Tensor,
        log_probability: Tensor,
        progress: SentenceProgress,
        written: int,
        found: Sequence[Tensor],
    ) -> None:
        """Choose the candidates of entries with constraints, in place.

        `found`: log-probability, origin, token and the token's log-probability of the candidates, [B, C]
        each. Chosen candidates come in this order: ending, continuing, impossible.
        """
        entries = [i for i, paths in enumerate(self._paths) if paths]
        if not entries:
            return
        at = torch.tensor(entries, device=next_RV.device)
        rows_EWV = next_RV.view(*log_probability.shape, -1)[at]
        totals = log_probability[at].tolist()
        tokens_left = (progress.stop[at] - written).tolist()
        best = rows_EWV.topk(min(2 * self.width + _MORE, next_RV.size(1)), dim=2)
        values, tokens = best.values.tolist(), best.indices.tolist()
        offers = self._offers(entries, rows_EWV)
        for e, entry in enumerate(entries):
            rows = [
                _Row(
                    w,
                    totals[e][w],
                    tokens_left[e][w],
                    list(zip(values[e][w], tokens[e][w], strict=True)),
                    offers[e][w],
                )
                for w in range(len(self._paths[entry]))
                if totals[e][w] > -torch.inf
            ]
            chosen = self._candidates(entry, rows)
            if not chosen:
                # Nothing may follow: drop the constraints, so that the search can continue.
                self._paths[entry] = [path._replace(state=None) for path in self._paths[entry]]
                chosen = self._candidates(entry, rows)
            self._take(entry, chosen, found)

    def _offers(self, entries: Sequence[int], rows_EWV: Tensor) -> list[list[list[tuple[float, int]]]]:
        """Return the tokens that begin or continue a phrase, of every hypothesis, with log-probabilities."""
        where: list[tuple[int, int, int]] = []
        for e, entry in enumerate(entries):
            for w, path in enumerate(self._paths[entry]):
                if path.state is not None:
                    automaton, written = path.state
                    where += [(e, w, token) for token in automaton.offers(written)]
        offers: list[list[list[tuple[float, int]]]] = [[[] for _ in range(self.width)] for _ in entries]
        if where:
            e_N, w_N, token_N = torch.tensor(where, device=rows_EWV.device).T
            for (e, w, token), value in zip(where, rows_EWV[e_N, w_N, token_N].tolist(), strict=True):
                offers[e][w].append((value, token))
        return offers

    def _candidates(self, entry: int, rows: Sequence["_Row"]) -> list[_Candidate]:
        """Return all allowed continuations of the hypotheses of an entry, each once."""
        candidates: list[_Candidate] = []
        for row in rows:
            path = self._paths[entry][row.number]
            likely = row.likely
            if path.state is not None:
                # Near the limit, only tokens of phrases have room.
                automaton, written = path.state
                missing = automaton.standing(written).tokens_missing
                has_room = not missing or written.joined or row.left > missing + 1
                likely = row.likely if has_room else ()
            seen: set[int] = set()
            for own, token in (*row.offers, *likely):
                if len(seen) >= 2 * self.width + len(row.offers):
                    break
                if own == -torch.inf or token in seen:
                    continue
                followed = self._followed(entry, path, row, own, token)
                if followed is not None:
                    seen.add(token)
                    ends = token in self._closing and path.closed + 1 == len(self._automata[entry])
                    candidates.append(_Candidate(row.total + own, row.number, token, own, followed, ends))
        return candidates

    def _followed(self, entry: int, path: _Path, row: "_Row", own: float, token: int) -> _Path | None:
        """Return the hypothesis after one more token; None: the token is rejected."""
        if token in self._closing:
            if path.state is not None and not path.state[0].may_close(path.state[1]):
                return None
            return self._opened(entry, _Path(path.closed + 1, None, of_row=path.of_row))
        if path.state is None:
            return path
        automaton, before = path.state
        after = automaton.step(before, token)
        if after is None or automaton.standing(after).need + 1 > row.left - 1:
            return None
        # Inside a phrase, give back what the token costs compared with the best one: see the module.
        inside = 0 < len(before.tail) < len(after.tail) and after.tail.startswith(before.tail)
        inside = inside and automaton.standing(after).begun and automaton.standing(before).begun
        more = row.likely[0][0] - own if inside else 0.0
        return path._replace(
            state=(automaton, after),
            spared=path.spared + more if inside else 0.0,
            of_sentence=path.of_sentence + more,
            of_row=path.of_row + more,
        )

    def _take(self, entry: int, candidates: Sequence[_Candidate], found: Sequence[Tensor]) -> None:
        """Write the chosen candidates of an entry into `found`, and keep their hypotheses."""
        ended = sorted((c for c in candidates if c.ends), key=lambda c: -c.total)[: self.width]
        going = self._shared_out(entry, [c for c in candidates if not c.ends])
        self._paths[entry] = [c.path for c in going] or [_Path(0, None)]
        chosen = [*ended, *going]
        device, dtype = found[0].device, found[0].dtype
        for tensor in found:
            tensor[entry] = 0
        found[0][entry] = -torch.inf
        if not chosen:
            return
        n = len(chosen)
        found[0][entry, :n] = torch.tensor([c.total for c in chosen], device=device, dtype=dtype)
        found[1][entry, :n] = torch.tensor([c.origin for c in chosen], device=device)
        found[2][entry, :n] = torch.tensor([c.token for c in chosen], device=device)
        found[3][entry, :n] = torch.tensor([c.own for c in chosen], device=device, dtype=dtype)

    def _shared_out(self, entry: int, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Return the candidates that continue, divided among the banks of the sentence of the best candidate.

        Candidates that are ahead of this sentence compete with those that have met all of it, whatever they
        have met of the next sentence. Otherwise each would keep a place, however early it has closed a
        sentence.
        """
        if not candidates:
            return []
        # The best candidate decides which sentence the banks are for.
        leading = max(candidates, key=lambda c: c.total + c.path.of_row).path.closed
        automaton = self._automata[entry][leading]
        size = 0 if automaton is None else automaton.size
        banks: dict[int, list[tuple[float, _Candidate]]] = {}
        for candidate in candidates:
            path = candidate.path
            if path.closed > leading:
                bank, rank = 2 * size, candidate.total + path.of_sentence
            elif path.closed < leading:
                bank, rank = -1, candidate.total
            else:
                bank = 2 * size if path.state is None else path.state[0].standing(path.state[1]).bank
                rank = candidate.total + path.spared
            banks.setdefault(bank, []).append((rank, candidate))
        behind = banks.pop(-1, [])
        chosen = _shared_out(banks, self.width)
        behind.sort(key=lambda ranked: -ranked[0])
        chosen += [candidate for _, candidate in behind[: self.width - len(chosen)]]
        return sorted(chosen, key=lambda c: -c.total)


class _Row(NamedTuple):
    """A hypothesis at a step: the tokens left for its sentence, and candidates for the next token."""

    number: int
    total: float
    left: int
    likely: Sequence[tuple[float, int]]
    offers: Sequence[tuple[float, int]]


def _shared_out(banks: dict[int, list[tuple[float, _Candidate]]], width: int) -> list[_Candidate]:
    """Choose `width` ranked candidates, the same number from every bank if it has them, fullest banks first.

    If there are more banks than places, the fullest and the emptiest take turns.
    """
    for bank in banks.values():
        bank.sort(key=lambda ranked: -ranked[0])
    full = sorted(banks, reverse=True)
    order = [full[i // 2] if i % 2 == 0 else full[-1 - i // 2] for i in range(len(full))]
    chosen: list[_Candidate] = []
    for rank in range(width):
        for key in order:
            if rank < len(banks[key]) and len(chosen) < width:
                chosen.append(banks[key][rank][1])
    return chosen
