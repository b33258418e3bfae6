"""Beam search of rows whose sentences have lexical constraints.

After Post and Vilar (2018, "Fast lexically constrained decoding with dynamic beam allocation"): beside the
most probable tokens of a hypothesis stand those that begin or continue a phrase that is still unmet, and the
places in the beam are shared out among banks of hypotheses that have met equally much, so that those which
have written a phrase do not compete with those which have not. What differs:

    banks    by phrases, with one for hypotheses in the midst of a phrase, not by tokens: a URL of twenty
             tokens would take twenty banks
    midst    such hypotheses compare as if the model had agreed to the tokens after the first of their
             phrase, which every translation has to write somewhere: it is the place that is chosen
    width    the beam is as wide as its banks need, where the options' own is narrower
    end      a sentence cannot be closed before its requirements are met; near its length limit, only
             tokens follow that leave room for them

Where nothing may follow (a forbidden phrase that a required one makes), the constraints of that sentence are
given up; what a translation holds is checked on its text afterwards (`cotext.translation.terms.terms`).

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
# Beyond twice the beam, the tokens looked at of each hypothesis: some may be refused.
_MORE: Final = 16


def search_width(beam: int, automata: Sequence[SentenceAutomaton | None]) -> int:
    """The beam in which a row is searched: a place for each bank, by fours, so that rows share batches."""
    most = max((automaton.size for automaton in automata if automaton is not None), default=None)
    if most is None:
        return beam
    places = -(-(2 * most + 1) // MIN_WIDTH) * MIN_WIDTH
    return max(beam, min(max(places, MIN_WIDTH), MAX_WIDTH))


class _Path(NamedTuple):
    """What is known of a hypothesis: sentences closed, and what was written of its sentence.

    `written` None: the sentence has no constraints, or they were given up. `spared`: log-probability that the
    phrase in the midst of which it is has cost beyond the model's own choices; `of_sentence`, `of_row`: that
    of all phrases so far.
    """

    closed: int
    written: Written | None
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
    """The hypotheses of entries with constraints, beside those of the frontier of search."""

    def __init__(self, requests: Sequence[SearchRequest], symbols: SearchSymbols, beam: int) -> None:
        self.width = max(search_width(beam, request.automata) for request in requests)
        self._closing = {*symbols.special.separators, symbols.special.eos}
        self._automata = [request.automata for request in requests]
        self._paths = [self._started(request, symbols) for request in requests]

    @classmethod
    def of(cls, requests: Sequence[SearchRequest], symbols: SearchSymbols, beam: int) -> "LexicalBeam | None":
        """Those of a search; None where no request has constraints."""
        constrained = any(any(request.automata) for request in requests)
        return cls(requests, symbols, beam) if constrained else None

    def _started(self, request: SearchRequest, symbols: SearchSymbols) -> list[_Path]:
        """The hypotheses of an entry before its first step: one; none where it has no constraints."""
        if not any(request.automata):
            return []
        automaton = request.automata[0]
        written = None if automaton is None else automaton.start
        begun: list[int] = []
        for token in request.prefix:
            begun = [] if token in symbols.special.separators else [*begun, token]
        for token in begun:
            if automaton is not None and written is not None:
                written = automaton.step(written, token)
        return [_Path(0, written)]

    def select(self, entries: Tensor) -> "LexicalBeam":
        """Keep the given entries, in the given order."""
        kept = entries.tolist()
        self._automata = [self._automata[i] for i in kept]
        self._paths = [self._paths[i] for i in kept]
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

        `found`: log-probability, origin, token and own log-probability of the candidates, [B, C] each; those
        chosen stand in this order: that end, that go on, and impossible ones.
        """
        entries = [i for i, paths in enumerate(self._paths) if paths]
        if not entries:
            return
        at = torch.tensor(entries, device=next_RV.device)
        rows_EWV = next_RV.view(*log_probability.shape, -1)[at]
        totals = log_probability[at].tolist()
        left = (progress.stop[at] - written).tolist()
        best = rows_EWV.topk(min(2 * self.width + _MORE, next_RV.size(1)), dim=2)
        values, tokens = best.values.tolist(), best.indices.tolist()
        offers = self._offers(entries, rows_EWV)
        for e, entry in enumerate(entries):
            rows = [
                _Row(
                    w,
                    totals[e][w],
                    left[e][w],
                    list(zip(values[e][w], tokens[e][w], strict=True)),
                    offers[e][w],
                )
                for w in range(len(self._paths[entry]))
                if totals[e][w] > -torch.inf
            ]
            chosen = self._candidates(entry, rows)
            if not chosen:
                self._paths[entry] = [path._replace(written=None) for path in self._paths[entry]]
                chosen = self._candidates(entry, rows)
            self._take(entry, chosen, found)

    def _offers(self, entries: Sequence[int], rows_EWV: Tensor) -> list[list[list[tuple[float, int]]]]:
        """The tokens that begin or continue a phrase, of every hypothesis, with their log-probabilities."""
        where: list[tuple[int, int, int]] = []
        for e, entry in enumerate(entries):
            for w, path in enumerate(self._paths[entry]):
                automaton = self._automaton(entry, path)
                if automaton is not None and path.written is not None:
                    where += [(e, w, token) for token in automaton.offers(path.written)]
        offers: list[list[list[tuple[float, int]]]] = [[[] for _ in range(self.width)] for _ in entries]
        if where:
            e_N, w_N, token_N = torch.tensor(where, device=rows_EWV.device).T
            for (e, w, token), value in zip(where, rows_EWV[e_N, w_N, token_N].tolist(), strict=True):
                offers[e][w].append((value, token))
        return offers

    def _automaton(self, entry: int, path: _Path) -> SentenceAutomaton | None:
        automata = self._automata[entry]
        return automata[path.closed] if path.closed < len(automata) else None

    def _candidates(self, entry: int, rows: Sequence["_Row"]) -> list[_Candidate]:
        """All continuations of the hypotheses of an entry that may follow, each once."""
        found: list[_Candidate] = []
        for row in rows:
            path = self._paths[entry][row.number]
            automaton = self._automaton(entry, path) if path.written is not None else None
            likely = row.likely if automaton is None else self._with_room(automaton, path, row)
            seen: set[int] = set()
            for own, token in (*row.offers, *likely):
                if len(seen) >= 2 * self.width + len(row.offers):
                    break
                if own == -torch.inf or token in seen:
                    continue
                followed = self._followed(entry, path, automaton, row, own, token)
                if followed is not None:
                    seen.add(token)
                    ends = token in self._closing and path.closed + 1 == len(self._automata[entry])
                    found.append(_Candidate(row.total + own, row.number, token, own, followed, ends))
        return found

    def _with_room(
        self, automaton: SentenceAutomaton, path: _Path, row: "_Row"
    ) -> Sequence[tuple[float, int]]:
        """The likely tokens; none where nothing but a phrase has room."""
        assert path.written is not None
        missing = automaton.tokens_missing(path.written)
        room = not missing or path.written.joined or row.left > missing + 1
        return row.likely if room else ()

    def _followed(
        self,
        entry: int,
        path: _Path,
        automaton: SentenceAutomaton | None,
        row: "_Row",
        own: float,
        token: int,
    ) -> _Path | None:
        """The hypothesis with one token more; None: refused."""
        if token in self._closing:
            if automaton is not None and path.written is not None and not automaton.may_close(path.written):
                return None
            after = path._replace(closed=path.closed + 1)
            following = self._automaton(entry, after)
            return _Path(after.closed, following.start if following else None, of_row=path.of_row)
        if automaton is None or path.written is None:
            return path
        written = automaton.step(path.written, token)
        if written is None or automaton.need(written) + 1 > row.left - 1:
            return None
        before, tail = path.written.tail, written.tail
        goes_on = 0 < len(before) < len(tail) and tail.startswith(before)
        goes_on = goes_on and automaton.is_begun(written) and automaton.is_begun(path.written)
        more = row.likely[0][0] - own if goes_on else 0.0
        return path._replace(
            written=written,
            spared=path.spared + more if goes_on else 0.0,
            of_sentence=path.of_sentence + more,
            of_row=path.of_row + more,
        )

    def _take(self, entry: int, candidates: Sequence[_Candidate], found: Sequence[Tensor]) -> None:
        """Write those chosen of the candidates of an entry, and keep their hypotheses."""
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
        """Those that go on, in the midst of the sentence in which the best of them is.

        Those ahead of it compete with those that are done with it, whatever they have met of the next one:
        else each would keep a place, however early it has closed a sentence.
        """
        if not candidates:
            return []
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
                bank, rank = self._bank(entry, path), candidate.total + path.spared
            banks.setdefault(bank, []).append((rank, candidate))
        behind = banks.pop(-1, [])
        chosen = _shared_out(banks, self.width)
        behind.sort(key=lambda each: -each[0])
        chosen += [candidate for _, candidate in behind[: self.width - len(chosen)]]
        return sorted(chosen, key=lambda c: -c.total)

    def _bank(self, entry: int, path: _Path) -> int:
        automaton = self._automaton(entry, path)
        if automaton is None:
            return 0
        return 2 * automaton.size if path.written is None else automaton.bank(path.written)


class _Row(NamedTuple):
    """A hypothesis at a step: how many tokens are left to its sentence, and candidates for the next."""

    number: int
    total: float
    left: int
    likely: Sequence[tuple[float, int]]
    offers: Sequence[tuple[float, int]]


def _shared_out(banks: dict[int, list[tuple[float, _Candidate]]], width: int) -> list[_Candidate]:
    """So many ranked candidates, as many of every bank as far as it has them, the fuller banks first.

    Of more banks than places, the fullest and the emptiest in turn.
    """
    for bank in banks.values():
        bank.sort(key=lambda each: -each[0])
    full = sorted(banks, reverse=True)
    order = [full[i // 2] if i % 2 == 0 else full[-1 - i // 2] for i in range(len(full))]
    chosen: list[_Candidate] = []
    for rank in range(width):
        for key in order:
            if rank < len(banks[key]) and len(chosen) < width:
                chosen.append(banks[key][rank][1])
    return chosen
