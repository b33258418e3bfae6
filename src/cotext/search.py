"""Search for a probable translation, token by token: greedy and beam.

Search knows the model's `decode` and a bag of state, no more. What makes an output acceptable is enforced
while searching: exactly the sentences that were asked for, none of them empty.

Shapes: B entries (one per request still being written), W beam, R rows (R = B * W), C candidates of a step,
V vocabulary, D model, M most new tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from cotext.data.batch import Source
from cotext.errors import CotextError
from cotext.models.base import AutoregressiveModel


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How widely to search, and what to call best.

    The score of a hypothesis is its log-probability / length ** length_penalty, where length counts the new
    tokens including `eos`. A beam of 1 is greedy search.
    """

    beam: int = 4
    length_penalty: float = 0.6

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise CotextError(f"beam is {self.beam}; it must be at least 1")
        if not self.length_penalty >= 0:
            raise CotextError(f"length_penalty is {self.length_penalty}; it must be 0 or more")


@dataclass(frozen=True, slots=True)
class SearchSymbols:
    """The ids that search must know; `blank` are those that decode to an empty string."""

    pad: int
    bos: int
    eos: int
    sep: int
    unk: int
    blank: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What to write for one row of the source.

    `prefix` holds target labels already decided, for instance `y1 sep y2 sep`; `first_sentence` is the
    sentence index of the first of them (see `cotext.data.batch`). `sentences` are then to be produced: that
    many less one separators, and `eos`. A sentence that the prefix has begun counts as the first of them.
    `max_tokens` bounds all new tokens together, `eos` included.
    """

    prefix: Sequence[int]
    first_sentence: int
    sentences: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The best that was found for a request.

    `tokens` are the new labels including separators, without `eos`; `log_probability` is the model's own, of
    these tokens and `eos`. `complete` is False where the length limit decided when to stop.
    """

    tokens: list[int]
    log_probability: float
    score: float
    complete: bool


@dataclass(slots=True)
class _Frontier:
    """The hypotheses being written and, for every entry, the best one already closed."""

    entry: Tensor  # [B], which request
    max_tokens: Tensor  # [B]
    largest_divisor: Tensor  # [B], that of the score of a hypothesis of max_tokens tokens
    tokens: Tensor  # [B, W, M]
    log_probability: Tensor  # [B, W]; -inf: nothing is written here
    separators: Tensor  # [B, W], still to be written
    sentence: Tensor  # [B, W], sentence index of the next decoder input
    worded: Tensor  # [B, W], True once the sentence being written holds a token that is not blank
    best_tokens: Tensor  # [B, M]
    best_length: Tensor  # [B]
    best_log_probability: Tensor  # [B]
    best_score: Tensor  # [B]

    def select(self, entries: Tensor) -> "_Frontier":
        """Keep the given entries, in the given order."""
        return _Frontier(*(getattr(self, f.name).index_select(0, entries) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class _Rules:
    """Which token may follow, as index tensors on the right device."""

    symbols: SearchSymbols
    never: Tensor  # ids that no output holds, and those that close a sentence: allowed one by one
    blank: Tensor
    wordless: Tensor  # [V], True for ids that leave a sentence empty

    @classmethod
    def of(cls, symbols: SearchSymbols, vocabulary: int, device: torch.device) -> "_Rules":
        """Prepare the rules for a vocabulary."""
        never = torch.tensor([symbols.pad, symbols.bos, symbols.unk, symbols.sep, symbols.eos], device=device)
        blank = torch.tensor(symbols.blank, dtype=torch.long, device=device)
        wordless = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        wordless[never] = True
        wordless[blank] = True
        return cls(symbols, never, blank, wordless)

    def forbid(self, next_RV: Tensor, frontier: _Frontier, spare: Tensor | None) -> None:
        """Set the log-probabilities of tokens that may not follow to -inf, in place.

        `spare` [R] counts the tokens that a hypothesis may still waste before its limit; None: enough.
        """
        separators, worded = frontier.separators.flatten(), frontier.worded.flatten()
        closer = torch.where(separators > 0, self.symbols.sep, self.symbols.eos)[:, None]
        closing = next_RV.gather(1, closer).masked_fill(~worded[:, None], -torch.inf)
        next_RV.index_fill_(1, self.never, -torch.inf)
        if spare is not None:
            # At the limit a sentence that has a word is closed, and one that has none gets a word.
            last = spare <= 0
            next_RV.masked_fill_((last & worded)[:, None], -torch.inf)
            next_RV[:, self.blank] = next_RV[:, self.blank].masked_fill(last[:, None], -torch.inf)
        next_RV.scatter_(1, closer, closing)


def search(
    model: AutoregressiveModel,
    source: Source,
    requests: Sequence[Request],
    symbols: SearchSymbols,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Return the best hypothesis found for every row of the source; the model must be in eval mode.

    An entry stops as soon as nothing that is still being written can beat its best closed hypothesis, however
    long it became. Raises CotextError when a request cannot be met, or the model's output is not a number.
    """
    _check(source, requests, symbols)
    with torch.inference_mode():
        state = model.encode(source)
        most_tokens = max(r.max_tokens for r in requests)
        # `bos` and the prefixes, padded to equal length, and the new tokens but the last, never read.
        state.open(max(len(r.prefix) for r in requests) + most_tokens)
        hidden_RD = _read_prefixes(model, state, requests, symbols, source.tokens.device)
        state.widen(options.beam)
        hidden_RD = hidden_RD.repeat_interleave(options.beam, dim=0)
        weight = model.output_weight
        rules = _Rules.of(symbols, weight.size(0), weight.device)
        frontier = _start(requests, symbols, options, hidden_RD)
        found: dict[int, Hypothesis] = {}
        # Beyond this many tokens, a hypothesis somewhere may stand at its limit; before, no need to ask.
        first_limit = min(r.max_tokens - 2 * r.sentences for r in requests)
        for written in range(most_tokens):
            next_RV = _next_log_probabilities(hidden_RD, weight)
            spare = _spare_tokens(frontier, written) if written >= first_limit else None
            rules.forbid(next_RV, frontier, spare)
            origin = _advance(frontier, next_RV, written, rules, options)
            goes_on = (frontier.log_probability > -torch.inf).any(dim=1)
            if origin is not None:
                state.reorder(origin)
            if not bool(goes_on.all()):
                _collect(frontier, ~goes_on, found)
                if not bool(goes_on.any()):
                    break
                entries = _closing_ranks(goes_on)
                frontier = frontier.select(entries)
                state.select(entries, options.beam)
            tokens_R1 = frontier.tokens[:, :, written].reshape(-1, 1)
            hidden_RD = model.decode(tokens_R1, frontier.sentence.view(-1, 1), state)[:, 0]
    return [found[i] for i in range(len(requests))]


def _check(source: Source, requests: Sequence[Request], symbols: SearchSymbols) -> None:
    if not requests or len(requests) != source.tokens.size(0):
        raise CotextError(
            f"{len(requests)} requests for {source.tokens.size(0)} source rows; give one per row"
        )
    for i, request in enumerate(requests):
        if request.sentences < 1:
            raise CotextError(f"request {i} asks for {request.sentences} sentences; ask for at least 1")
        need = 2 * request.sentences - _begins_worded(request, symbols)
        if request.max_tokens < need:
            raise CotextError(
                f"request {i}: {request.sentences} sentences need at least {need} tokens, "
                f"but max_tokens is {request.max_tokens}; raise the limit"
            )


def _begins_worded(request: Request, symbols: SearchSymbols) -> bool:
    """Whether the prefix has begun the first sentence to be produced, with a token that is not blank."""
    for token in reversed(request.prefix):
        if token == symbols.sep:
            return False
        if token not in symbols.blank:
            return True
    return False


def _read_prefixes(
    model: AutoregressiveModel,
    state: Any,
    requests: Sequence[Request],
    symbols: SearchSymbols,
    device: torch.device,
) -> Tensor:
    """Decode `bos` and the prefixes of all rows in one call: the hidden states that follow, [B, D]."""
    lengths = [1 + len(r.prefix) for r in requests]
    tokens = torch.full((len(requests), max(lengths)), symbols.pad)
    sentence = torch.full_like(tokens, -1)
    for i, request in enumerate(requests):
        row = torch.tensor([symbols.bos, *request.prefix])
        tokens[i, : len(row)] = row
        sentence[i, : len(row)] = request.first_sentence + (row == symbols.sep).cumsum(dim=0)
    hidden_BTD = model.decode(tokens.to(device), sentence.to(device), state)
    last = torch.tensor(lengths, device=hidden_BTD.device) - 1
    return hidden_BTD[torch.arange(len(requests), device=hidden_BTD.device), last]


def _start(
    requests: Sequence[Request], symbols: SearchSymbols, options: SearchOptions, like: Tensor
) -> _Frontier:
    """Nothing written yet: one hypothesis per entry, the others of its beam impossible."""
    entries, beam, device = len(requests), options.beam, like.device
    max_tokens = torch.tensor([r.max_tokens for r in requests], device=device)
    dtype = torch.promote_types(like.dtype, torch.float32)
    longest = max(r.max_tokens for r in requests)

    def wide(values: list[int]) -> Tensor:
        return torch.tensor(values, device=device)[:, None].repeat(1, beam)

    log_probability = torch.full((entries, beam), -torch.inf, dtype=dtype, device=device)
    log_probability[:, 0] = 0
    return _Frontier(
        entry=torch.arange(entries, device=device),
        max_tokens=max_tokens,
        largest_divisor=max_tokens**options.length_penalty,
        tokens=torch.zeros(entries, beam, longest, dtype=torch.long, device=device),
        log_probability=log_probability,
        separators=wide([r.sentences - 1 for r in requests]),
        sentence=wide([r.first_sentence + list(r.prefix).count(symbols.sep) for r in requests]),
        worded=wide([_begins_worded(r, symbols) for r in requests]).bool(),
        best_tokens=torch.zeros(entries, longest, dtype=torch.long, device=device),
        best_length=torch.zeros(entries, dtype=torch.long, device=device),
        best_log_probability=torch.full((entries,), -torch.inf, dtype=dtype, device=device),
        best_score=torch.full((entries,), -torch.inf, dtype=dtype, device=device),
    )


def _spare_tokens(frontier: _Frontier, written: int) -> Tensor:
    """How many tokens each hypothesis may write beyond those that it must: [R].

    It must close the sentence being written, which needs a word, and then write a word and its closing
    symbol for every sentence left.
    """
    must = 2 * (frontier.separators + 1) - frontier.worded.long()
    return (frontier.max_tokens[:, None] - written - must).flatten()


def _next_log_probabilities(hidden_RD: Tensor, weight_VD: Tensor) -> Tensor:
    """The output layer: the log-probability of every token to come next, [R, V]."""
    if hidden_RD.device.type == "cpu" and 4 <= hidden_RD.size(0) < 16:
        # For so few rows the whole matrix would be re-packed in memory before it is multiplied; in parts that
        # stay in the cache (half a megabyte) the product is 1.2 to 2.4 times as fast.
        part_size = max(1, 2**17 // weight_VD.size(1))
        parts = [linear(hidden_RD, part) for part in torch.split(weight_VD, part_size)]
        logits_RV = torch.cat(parts, dim=1)
    else:
        logits_RV = linear(hidden_RD, weight_VD)
    return logits_RV.log_softmax(dim=1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))


def _advance(
    frontier: _Frontier,
    next_RV: Tensor,
    written: int,
    rules: _Rules,
    options: SearchOptions,
) -> Tensor | None:
    """Write one more token everywhere, in place.

    Returns for every row the row that it continues [R], or None where that is the row itself.
    """
    entries, beam = frontier.log_probability.shape
    # Each hypothesis closes in one way at most, so that of 2 * beam candidates beam go on. With a beam of 1
    # the first to close is the answer.
    each = min(2 * beam, next_RV.size(1)) if beam > 1 else 1
    next_RC, token_RC = next_RV.topk(each, dim=1) if each > 1 else next_RV.max(dim=1, keepdim=True)
    total_RC = next_RC + frontier.log_probability.view(-1, 1)
    if beam > 1:
        candidate, at = total_RC.view(entries, -1).topk(min(2 * beam, beam * each), dim=1)
        origin, token = at // each, token_RC.view(entries, -1).gather(1, at)
    else:
        candidate, origin, token = total_RC, torch.zeros_like(token_RC), token_RC
    closes = token == rules.symbols.eos
    _close(frontier, candidate.masked_fill(~closes, -torch.inf), origin, written, options)

    going = candidate.masked_fill(closes, -torch.inf)
    if beam > 1:
        on = closes.byte().argsort(dim=1, stable=True)[:, :beam]
        going, origin, token = going.gather(1, on), origin.gather(1, on), token.gather(1, on)
    # Log-probabilities only fall and lengths only grow up to the limit: nothing below this can still win.
    hope = going / frontier.largest_divisor[:, None]
    frontier.log_probability = going.masked_fill(~(hope > frontier.best_score[:, None]), -torch.inf)
    if beam > 1:
        frontier.tokens = frontier.tokens.take_along_dim(origin[:, :, None], dim=1)
        for name in ("separators", "sentence", "worded"):
            setattr(frontier, name, getattr(frontier, name).gather(1, origin))
    frontier.tokens[:, :, written] = token
    separates = token == rules.symbols.sep
    frontier.separators = frontier.separators - separates.long()
    frontier.sentence = frontier.sentence + separates.long()
    frontier.worded = (frontier.worded & ~separates) | ~rules.wordless[token]
    if beam == 1:
        return None
    return (origin + beam * torch.arange(entries, device=origin.device)[:, None]).flatten()


def _close(frontier: _Frontier, closed: Tensor, origin: Tensor, written: int, options: SearchOptions) -> None:
    """Keep the best of the hypotheses that close now, [B, C] each, where it beats what the entry had."""
    log_probability, which = closed.max(dim=1)
    score = log_probability / (written + 1) ** options.length_penalty
    better = score > frontier.best_score
    row = origin.gather(1, which[:, None])[:, :, None]
    tokens = frontier.tokens.take_along_dim(row, dim=1)[:, 0]
    frontier.best_tokens = torch.where(better[:, None], tokens, frontier.best_tokens)
    frontier.best_length = torch.where(better, written + 1, frontier.best_length)
    frontier.best_log_probability = torch.where(better, log_probability, frontier.best_log_probability)
    frontier.best_score = torch.where(better, score, frontier.best_score)


def _closing_ranks(stays: Tensor) -> Tensor:
    """Order the entries that stay so that few of them move: the last ones fill the gaps. [B] -> [B']."""
    kept = int(stays.sum())
    order = torch.arange(kept, device=stays.device)
    order[~stays[:kept]] = stays[kept:].nonzero().flatten() + kept
    return order


def _collect(frontier: _Frontier, done: Tensor, found: dict[int, Hypothesis]) -> None:
    """Take the results of the entries that are done, [B], out of the frontier."""
    for i in done.nonzero().flatten().tolist():
        entry, length = int(frontier.entry[i]), int(frontier.best_length[i])
        if length == 0:
            raise CotextError(
                f"request {entry}: no allowed token has a probability above zero; the output may hold "
                "NaN, or the vocabulary no token but blanks; check the model with the loss on known text"
            )
        found[entry] = Hypothesis(
            tokens=frontier.best_tokens[i, : length - 1].tolist(),
            log_probability=float(frontier.best_log_probability[i]),
            score=float(frontier.best_score[i]),
            complete=length < int(frontier.max_tokens[i]),
        )
