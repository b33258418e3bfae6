"""Beam search and greedy search of autoregressive models, with the rules of `cotext.search.constraints`.

Search calls `encode` and `decode` of a model; it never reads the model's state.

Shapes: B entries (unfinished requests), W beam size, R = B * W rows (hypotheses), C candidates of a step, U
columns of the output layer, D model dimension, M largest number of new tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cotext.config.recipe import SamplingConfig
from cotext.data.batch import Source, padded
from cotext.models.interface import TranslationModel
from cotext.models.output_layer import OutputLayer, best_column, best_columns
from cotext.runtime import CotextError
from cotext.search.constraints import (
    Rules,
    SearchRequest,
    SearchSymbols,
    SentenceProgress,
    Steps,
    as_rows,
    begun_input,
    truncated,
)
from cotext.search.hypotheses import Candidates, Hypothesis, NBestBeam, SearchOptions

# --- Sampling: every token is drawn from the distribution of the model, with random numbers of its row.
#
# A row has one random number per token, made from the seed of its request. So the drawn tokens depend neither
# on the batch nor on other rows. Shapes here: R = B.


LARGEST = 1 - 1e-12  # upper bound of random numbers, so that rounding does not make them 1


def distribution(log_probability_RU: Tensor, settings: SamplingConfig) -> Tensor:
    """Return the probabilities with which tokens are drawn, float64: [R, U] -> [R, U].

    A constant added to all log-probabilities of a row has no effect. They are divided by the temperature.
    Then only the `top_k` most probable tokens remain. Of these, only the smallest set remains whose share of
    their probability is at least `top_p`. If tokens are equally probable, earlier ones remain first.
    """
    scaled_RU = log_probability_RU.double() / settings.temperature
    p_RU = scaled_RU.softmax(dim=1)
    if not settings.top_k and settings.top_p == 1:
        return p_RU
    ordered_RU, order_RU = p_RU.sort(dim=1, descending=True, stable=True)
    if settings.top_k:
        ordered_RU[:, settings.top_k :] = 0
    # A token remains if those before it do not reach `top_p` yet.
    before_RU = ordered_RU.cumsum(dim=1) - ordered_RU
    ordered_RU[before_RU >= settings.top_p * ordered_RU.sum(dim=1, keepdim=True)] = 0
    kept_RU = torch.zeros_like(p_RU).scatter_(1, order_RU, ordered_RU)
    return kept_RU / kept_RU.sum(dim=1, keepdim=True)


def only_drawn(log_probability_RU: Tensor, uniform_R: Tensor, settings: SamplingConfig) -> Tensor:
    """Draw a token in every row with its random number; return the values, -inf for other tokens: [R, U]."""
    p_RU = distribution(log_probability_RU, settings)
    upto_RU = p_RU.cumsum(dim=1)
    drawn_R1 = torch.searchsorted(upto_RU, uniform_R[:, None] * upto_RU[:, -1:], right=True)
    drawn_R1 = drawn_R1.clamp(max=p_RU.size(1) - 1)  # too large if all are NaN: `search` reports this
    is_other = torch.ones_like(p_RU, dtype=torch.bool).scatter_(1, drawn_R1, False)
    return log_probability_RU.masked_fill(is_other, -torch.inf)


@dataclass(slots=True)
class _Frontier:
    """The hypotheses in the beam and, for every entry, the best finished hypothesis."""

    entry: Tensor  # [B], index of the request
    progress: SentenceProgress
    largest_divisor: Tensor  # [B], length penalty of the longest allowed hypothesis
    tokens: Tensor  # [B, W, M]
    token_log_probability: Tensor  # [B, W, M]
    log_probability: Tensor  # [B, W]; -inf: no hypothesis
    best_tokens: Tensor  # [B, M]
    best_token_log_probability: Tensor  # [B, M]
    best_length: Tensor  # [B]
    best_log_probability: Tensor  # [B]
    best_score: Tensor  # [B]
    ended: Tensor  # [B], number of hypotheses that ended among the `beam` best of all steps
    uniform: Tensor  # [B, M], random numbers for sampling
    first: Tensor  # [B, 1], first row of every entry; in greedy search 0

    def select(self, entries: Tensor) -> "_Frontier":
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "progress"}
        selected: dict[str, Any] = {name: value.index_select(0, entries) for name, value in values.items()}
        selected["first"] = self.first[: entries.numel()]
        return _Frontier(progress=self.progress.select(entries), **selected)


def search(
    model: TranslationModel,
    source: Source,
    requests: Sequence[SearchRequest],
    symbols: SearchSymbols,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Return the best hypothesis for every row of the source; the model must be in eval mode.

    An entry ends when no hypothesis can beat its best finished one. With a language model, it ends when
    `beam` hypotheses are finished. Raises CotextError for NaN in the output.
    """
    with torch.inference_mode():
        results, steps = dict[int, Hypothesis](), Steps()
        state = model.encode(source)
        steps.tell(results)  # encoding takes longest: report it as a step
        most_tokens = max(sum(r.max_tokens) for r in requests)
        # Slots for `bos`, language symbols, prefixes and new tokens except the last, which is never read.
        longest = max(len(r.prefix) for r in requests) + len(symbols.special.target_prefix)
        state.open(longest + most_tokens)
        output = OutputLayer(model, [r.shortlist for r in requests], symbols.closing)
        rules = Rules.of(symbols, options.align, output, model.output_weight.device)
        hidden_RD = _read_prefixes(model, state, requests, rules, source.tokens.device)
        state.widen(options.beam)
        hidden_RD = hidden_RD.repeat_interleave(options.beam, dim=0)
        frontier = _start(requests, symbols, options, hidden_RD)
        nbest = _nbest_beam(model, output, requests, options, frontier)
        is_barred = any(request.barred for request in requests)
        # Before this many tokens, no hypothesis can be at a length limit.
        first_limit = int(frontier.progress.limits.min()) - 2
        for written in range(most_tokens):
            next_RU = _values(output, hidden_RD, frontier, written, rules, written >= first_limit, options)
            if is_barred:
                _bar(next_RU, frontier, written, requests, output)
            origin, tokens_R1, goes_on = _advance(frontier, next_RU, written, rules, options, output, nbest)
            if origin is not None:
                state.reorder(origin)
            if goes_on is not None:
                _collect(frontier, ~goes_on, requests, rules, results, nbest, options.scored)
            steps.tell(results)
            if goes_on is not None:
                if not bool(goes_on.any()):
                    break
                # Later rows of a document may attend to the tokens of finished rows.
                if model.sees_other_rows:
                    ended = (~goes_on).nonzero().flatten()
                    finished = [(requests[i], results[i].tokens) for i in frontier.entry[ended].tolist()]
                    state.finish(ended, *_decoder_inputs(finished, rules, ended.device))
                entries = _closing_ranks(goes_on)
                frontier = frontier.select(entries)
                nbest = nbest and nbest.select(entries)
                output.select(entries)
                state.select(entries, options.beam)
                tokens_R1 = tokens_R1.view(-1, options.beam)[entries].view(-1, 1)
            hidden_RD = model.decode(tokens_R1, as_rows(frontier.progress.sentence), state)[:, 0]
    return [results[i] for i in range(len(requests))]


def _read_prefixes(
    model: TranslationModel, state: Any, requests: Sequence[SearchRequest], rules: Rules, device: torch.device
) -> Tensor:
    """Decode `bos` and the prefixes of all rows in one call; return the hidden states after them, [B, D]."""
    tokens, sentence = _decoder_inputs([(request, ()) for request in requests], rules, device)
    hidden_BTD = model.decode(tokens, sentence, state)
    last = (sentence >= 0).sum(dim=1).to(hidden_BTD.device) - 1
    return hidden_BTD[torch.arange(len(requests), device=hidden_BTD.device), last]


def _decoder_inputs(
    rows: Sequence[tuple[SearchRequest, Sequence[int]]], rules: Rules, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return decoder inputs of prefixes followed by new labels, and the sentence of each input.

    Both are [len(rows), longest]; padding has sentence -1.
    """
    sides = [
        begun_input(
            (*request.prefix, *labels), rules.special, request.first_sentence, request.sentence_offset
        )
        for request, labels in rows
    ]
    tokens, sentence = padded(sides, rules.special.pad)
    return tokens.to(device), sentence.to(device)


def _start(
    requests: Sequence[SearchRequest], symbols: SearchSymbols, options: SearchOptions, like: Tensor
) -> _Frontier:
    """Return the first frontier: one empty hypothesis per entry; the others have probability 0."""
    entries, beam, device = len(requests), options.beam, like.device
    dtype = torch.promote_types(like.dtype, torch.float32)  # of the output layer
    most_tokens = [sum(request.max_tokens) for request in requests]
    largest_divisors = [options.divisor(length) for length in most_tokens]
    tokens = torch.zeros(entries, beam, max(most_tokens), dtype=torch.long, device=device)
    uniform = tokens.new_empty(entries, 0)
    if options.sampling is not None:
        numbers = [np.random.default_rng(request.seed).random(max(most_tokens)) for request in requests]
        uniform = torch.from_numpy(np.array(numbers).clip(max=LARGEST)).to(device)
    log_probability = torch.full((entries, beam), -torch.inf, dtype=dtype, device=device)
    # Identical beams would stay identical: only the first one starts.
    log_probability[:, 0] = 0
    return _Frontier(
        entry=torch.arange(entries, device=device),
        progress=SentenceProgress.start(requests, symbols, options.align, beam, device),
        largest_divisor=torch.tensor(largest_divisors, dtype=dtype, device=device),
        tokens=tokens,
        token_log_probability=torch.zeros_like(tokens, dtype=dtype),
        log_probability=log_probability,
        best_tokens=torch.zeros_like(tokens[:, 0]),
        best_token_log_probability=torch.zeros_like(tokens[:, 0], dtype=dtype),
        best_length=torch.zeros(entries, dtype=torch.long, device=device),
        best_log_probability=torch.full((entries,), -torch.inf, dtype=dtype, device=device),
        best_score=torch.full((entries,), -torch.inf, dtype=dtype, device=device),
        ended=torch.zeros(entries, dtype=torch.long, device=device),
        uniform=uniform,
        first=torch.arange(entries, device=device)[:, None] * (beam if beam > 1 else 0),
    )


def _nbest_beam(
    model: TranslationModel,
    output: OutputLayer,
    requests: Sequence[SearchRequest],
    options: SearchOptions,
    frontier: _Frontier,
) -> NBestBeam | None:
    """Return the n-best beam if lists are requested, for requests of one sentence; else None."""
    list_sizes = [options.nbest if request.sentences == 1 else 0 for request in requests]
    if options.nbest == 1 or not any(list_sizes):
        return None
    # There is no reserve (extra hypotheses in free places of the beam) in two cases. If other rows attend to
    # the first beam, its history must not depend on whether there is a list. If scores may rise, a hypothesis
    # of the reserve could become better than the best one.
    has_reserve = not model.sees_other_rows and not output.values_may_be_positive
    return NBestBeam(list_sizes, options.divisor, frontier.log_probability, has_reserve)


def _values(
    output: OutputLayer,
    hidden_RD: Tensor,
    frontier: _Frontier,
    written: int,
    rules: Rules,
    near_a_limit: bool,
    options: SearchOptions,
) -> Tensor:
    """Return the log-probability of every token that may follow (in sampling: of the drawn token), [R, U]."""
    next_RU = output.log_probabilities(hidden_RD) if options.scored else output.logits(hidden_RD)
    rules.forbid(next_RU, frontier.progress, written, near_a_limit)
    if options.sampling is None:
        return next_RU
    return only_drawn(next_RU, frontier.uniform[:, written], options.sampling)


def _bar(
    next_RU: Tensor, frontier: _Frontier, written: int, requests: Sequence[SearchRequest], output: OutputLayer
) -> None:
    """Set the log-probability of every token that would complete a barred sequence to -inf, in place."""
    beam, device = frontier.log_probability.size(1), next_RU.device
    for place, entry in enumerate(frontier.entry.tolist()):
        for *before, last in requests[entry].barred:
            if len(before) <= written:
                column = output.columns(torch.tensor([last], device=device))
                end_BW = frontier.tokens[place, :, written - len(before) : written]
                completes = (end_BW == torch.tensor(before, device=device)).all(dim=1)
                next_RU[place * beam + completes.nonzero(), column] = -torch.inf


def _advance(
    frontier: _Frontier,
    next_RU: Tensor,
    written: int,
    rules: Rules,
    options: SearchOptions,
    output: OutputLayer,
    nbest: NBestBeam | None,
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Extend every hypothesis by one token, in place.

    Returns, for each next row, the row that it continues, [R] (None: itself); the next inputs, [R, 1]; and
    whether each entry continues, [B] (None: all entries continue).
    """
    entries, beam = frontier.log_probability.shape
    # At most one candidate of each hypothesis ends it. Therefore at least `beam` of the 2 * beam candidates
    # continue. With a beam of 1, the first hypothesis that ends is the result.
    per_row = min(2 * beam, next_RU.size(1)) if beam > 1 else 1
    own, column = best_columns(next_RU, per_row) if per_row > 1 else best_column(next_RU)
    token = output.tokens(column)
    reserve = None if nbest is None else nbest.candidates(own, token)
    candidate, origin = own + as_rows(frontier.log_probability), frontier.first
    if beam > 1:
        candidate, at = candidate.view(entries, -1).topk(min(2 * beam, beam * per_row), dim=1)
        token, own = (x.view(entries, -1).gather(1, at) for x in (token, own))
        origin = at // per_row
    ends = rules.ends(frontier.progress, origin, token)
    candidates = Candidates(candidate, origin, token, own)
    going = candidates if beam == 1 else Candidates(*(x[:, :beam] for x in candidates))
    some_end = bool(ends.any())  # not in most steps
    if some_end:
        _end(frontier, candidates.where(ends), written, options)
        going = candidates.where(~ends)
        going = going if beam == 1 else going.chosen(ends.byte().argsort(dim=1, stable=True)[:, :beam])
    # In greedy search, entries stop at their first end: if none ends now, all continue.
    goes_on: Tensor | None = None
    frontier.log_probability = going.total
    if beam > 1 or some_end:
        goes_on = _may_win(frontier, going.total, output.values_may_be_positive)
        frontier.log_probability = going.total.masked_fill(~goes_on, -torch.inf)
    if nbest is not None:
        nbest.note(frontier.entry, candidates.where(ends), frontier.tokens, written)
    if nbest is not None and reserve is not None and goes_on is not None:
        reserve_ends = rules.ends(frontier.progress, reserve.origin, reserve.token)
        nbest.note(frontier.entry, reserve.where(reserve_ends), frontier.tokens, written)
        others = candidates.where(~ends), reserve.where(~reserve_ends)
        going, goes_on = nbest.fill(frontier.entry, going, goes_on, others, frontier.largest_divisor)
    if beam > 1:
        frontier.progress.reorder(going.origin)
        for history in (frontier.tokens, frontier.token_log_probability):
            past = history[:, :, :written]
            past.copy_(past.take_along_dim(going.origin[:, :, None], dim=1))
    frontier.tokens[:, :, written] = going.token
    if options.scored:
        frontier.token_log_probability[:, :, written] = going.own
    following = rules.follow(frontier.progress, going.token, written)
    row = None if beam == 1 else (going.origin + frontier.first).flatten()  # indices in the whole batch
    some_B = None if goes_on is None else goes_on.any(dim=1)
    return row, following, None if some_B is None or bool(some_B.all()) else some_B


def _may_win(frontier: _Frontier, total_BW: Tensor, values_may_be_positive: bool) -> Tensor:
    """Return whether hypotheses with these log-probabilities may still win: [B, W]."""
    if values_may_be_positive:  # every hypothesis may win: search ends after `beam` finished hypotheses
        return (total_BW > -torch.inf) & (frontier.ended < total_BW.size(1))[:, None]
    # Log-probabilities can only decrease, and lengths are limited: this is the highest score they can reach.
    return total_BW / frontier.largest_divisor[:, None] > frontier.best_score[:, None]


def _end(frontier: _Frontier, ended: Candidates, written: int, options: SearchOptions) -> None:
    """Keep the best hypothesis that ends now, [B, C], if it beats the best one of its entry so far."""
    frontier.ended = frontier.ended + (ended.total[:, : options.beam] > -torch.inf).sum(dim=1)
    log_probability, which = ended.total.max(dim=1)
    score = log_probability / options.divisor(written + 1)
    better = score > frontier.best_score
    row = ended.origin.gather(1, which[:, None])[:, :, None]

    def best(before: Tensor, history: Tensor) -> Tensor:
        return torch.where(better[:, None], history.take_along_dim(row, dim=1)[:, 0], before)

    frontier.best_tokens = best(frontier.best_tokens, frontier.tokens)
    histories = frontier.best_token_log_probability, frontier.token_log_probability
    frontier.best_token_log_probability = best(*histories)
    last = ended.own.gather(1, which[:, None])[:, 0]
    at_end = frontier.best_token_log_probability[:, written]
    frontier.best_token_log_probability[:, written] = torch.where(better, last, at_end)
    frontier.best_length = torch.where(better, written + 1, frontier.best_length)
    frontier.best_log_probability = torch.where(better, log_probability, frontier.best_log_probability)
    frontier.best_score = torch.where(better, score, frontier.best_score)


def _closing_ranks(stays: Tensor) -> Tensor:
    """Return the order of the entries that stay; the last ones fill gaps, so that few move: [B] -> [B']."""
    count = int(stays.sum())
    order = torch.arange(count, device=stays.device)
    order[~stays[:count]] = stays[count:].nonzero().flatten() + count
    return order


def _collect(
    frontier: _Frontier,
    done: Tensor,
    requests: Sequence[SearchRequest],
    rules: Rules,
    results: dict[int, Hypothesis],
    nbest: NBestBeam | None,
    scored: bool,
) -> None:
    """Store the results of finished entries, [B]."""
    for i in done.nonzero().flatten().tolist():
        entry, length = int(frontier.entry[i]), int(frontier.best_length[i])
        if length == 0:
            raise CotextError(
                f"request {entry}: no allowed token has a probability above zero; the output may contain "
                "NaN, or the vocabulary only blanks; check the loss of the model on known text"
            )
        tokens = frontier.best_tokens[i, : length - 1].tolist()
        hypothesis = Hypothesis(
            tokens=tokens,
            token_log_probabilities=frontier.best_token_log_probability[i, :length].tolist(),
            log_probability=float(frontier.best_log_probability[i]),
            score=float(frontier.best_score[i]),
            truncated=truncated(tokens, requests[entry], rules.special, rules.free),
            others=() if nbest is None else nbest.others(entry, tokens),
        )
        results[entry] = hypothesis if scored else hypothesis.unscored()
