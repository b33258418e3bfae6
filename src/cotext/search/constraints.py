"""Constraints of search: the sentences requested for a row, and the tokens that may follow.

The labels of three sentences y1, y2 and y3, for each value of `view.separators`:

    plain     y1 sep y2 sep y3 eos            indexed   y1 sep1 y2 sep2 y3 eos
    bracket   y1 eos y2 eos y3 eos, where the input after each `eos` except the last is `bos`
    numbered  like bracket, but the input is a symbol with the number of the sentence instead of `bos`

Constrained search returns exactly the requested sentences. No sentence is empty. Each ends with the separator
of its sentence index, and is truncated at its length limit. In free search, the model decides how many
sentences it writes, and where they end.

Shapes: B entries (searched rows), W beam size, R = B * W hypotheses, C candidates of a step, N largest number
of requested sentences, S separators, V vocabulary, U columns of the output layer (`OutputLayer`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cotext.config.recipe import Align
from cotext.data.batch import Ids, SpecialSymbols, headed
from cotext.models.output_layer import OutputLayer


@dataclass(frozen=True, slots=True)
class SearchSymbols:
    """The token ids that constraints use.

    `blank` ids decode to an empty string. `unused` ids, such as special symbols of other recipes and language
    symbols, are never written.
    """

    special: SpecialSymbols
    unk: int
    blank: tuple[int, ...] = ()
    unused: tuple[int, ...] = ()

    @property
    def closing(self) -> tuple[int, ...]:
        return (*self.special.separators, self.special.eos)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The sentences to search for one row of the source, and the labels before them.

    `prefix`: target labels that are given, for instance `y1 sep y2 sep`. `first_sentence`: the sentence index
    of the first label of the prefix (see `cotext.data.batch`). `sentence_offset`: the index in the document
    of sentence 0 of the row, for numbered sentences. `max_tokens`: for every sentence to search, the limit of
    its new tokens, at least 2 with the closing symbol; free search uses only the sum. If the prefix ends
    inside a sentence, this sentence is the first of `max_tokens`. `row_continues`: further sentences follow
    in the row, so the last requested sentence ends with its separator, not with `eos`; only in constrained
    search. `barred`: sequences of tokens that must not be written. `shortlist`: the allowed tokens in
    ascending order; None allows every token. `seed`: numbers that determine the random numbers of sampling.
    """

    prefix: Sequence[int]
    first_sentence: int
    max_tokens: tuple[int, ...]
    sentence_offset: int = 0
    row_continues: bool = False
    barred: tuple[tuple[int, ...], ...] = ()
    shortlist: Tensor | None = field(default=None, compare=False)
    seed: tuple[int, ...] = (0,)

    @property
    def sentences(self) -> int:
        return len(self.max_tokens)

    def closed_before(self, symbols: SearchSymbols) -> int:
        """Return the number of sentences that the prefix closes."""
        return sum(map(self.prefix.count, symbols.special.separators))

    def closed(self, sentences: Iterable[Sequence[int]], symbols: SearchSymbols) -> list[int]:
        """Return the prefix, followed by the tokens of sentences with their separators."""
        tokens = list(self.prefix)
        for number, sentence in enumerate(sentences, start=self.first_sentence + self.closed_before(symbols)):
            tokens += (*sentence, symbols.special.separator(number))
        return tokens

    def has_begun(self, symbols: SearchSymbols) -> bool:
        """Whether the prefix contains a visible token of the first sentence to search."""
        for token in reversed(self.prefix):
            if token in symbols.special.separators:
                return False
            if token not in symbols.blank:
                return True
        return False


@dataclass(slots=True)
class SentenceProgress:
    """The sentence that each hypothesis is in, and the limits that remain.

    In free search, the whole output is treated like one requested sentence: it needs no content token, and
    has one length limit. `is_single`: one sentence is requested for every row, so its closing symbol and its
    limit are the same in all steps.
    """

    first: Tensor  # [B], sentence index of the first new decoder input
    sentence_offset: Tensor  # [B], index in the document of sentence 0
    last_index: Tensor  # [B], index of the last requested sentence among the requested ones
    row_continues: Tensor  # [B], whether the last requested sentence is closed by its separator
    limits: Tensor  # [B, N]
    closed: Tensor  # [B, W], sentences closed so far
    stop: Tensor  # [B, W], number of tokens at which the current sentence must be closed
    has_content_token: Tensor  # [B, W], True once the current sentence may be closed
    sentence: Tensor  # [B, W], sentence index of the next decoder input
    is_single: bool
    any_row_continues: bool
    may_close: bool = False  # all sentences may be closed from now on; only if `is_single`
    closer: Tensor | None = None  # [B, W], column of the symbol that closes the sentence, once computed

    @classmethod
    def start(
        cls,
        requests: Sequence[SearchRequest],
        symbols: SearchSymbols,
        align: Align,
        beam: int,
        device: torch.device,
    ) -> "SentenceProgress":
        free = align == "free"
        limits = [(sum(r.max_tokens),) if free else r.max_tokens for r in requests]
        most = max(map(len, limits))
        # The limits of sentences beyond those requested are never read.
        limits_BN = torch.tensor([[*row, *row[-1:] * (most - len(row))] for row in limits], device=device)
        has_content_token = torch.tensor([free or r.has_begun(symbols) for r in requests], device=device)
        first = torch.tensor([r.first_sentence + r.closed_before(symbols) for r in requests], device=device)
        return cls(
            first=first,
            sentence_offset=torch.tensor([r.sentence_offset for r in requests], device=device),
            last_index=torch.tensor([0 if free else r.sentences - 1 for r in requests], device=device),
            row_continues=torch.tensor([r.row_continues for r in requests], device=device),
            limits=limits_BN,
            closed=torch.zeros(len(requests), beam, dtype=torch.long, device=device),
            stop=limits_BN[:, :1].repeat(1, beam),
            has_content_token=has_content_token[:, None].repeat(1, beam),
            sentence=first[:, None].repeat(1, beam),
            is_single=most == 1 and not free,
            any_row_continues=any(r.row_continues for r in requests),
        )

    def select(self, entries: Tensor) -> "SentenceProgress":
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        selected: dict[str, Any] = {
            name: value.index_select(0, entries)
            for name, value in values.items()
            if isinstance(value, Tensor)
        }
        return replace(self, **selected)

    def reorder(self, origin: Tensor) -> None:
        """Reorder beams: beam w of entry b continues the former beam `origin[b, w]`; `origin` is [B, W]."""
        if self.may_close:
            return
        of_sentences = () if self.is_single else ("closed", "stop", "sentence")
        for name in ("has_content_token", *of_sentences):
            setattr(self, name, getattr(self, name).gather(1, origin))


def as_rows(values_BW: Tensor) -> Tensor:
    """[B, W] -> [R, 1]."""
    return values_BW if values_BW.size(1) == 1 else values_BW.reshape(-1, 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """The constraints as index tensors: which tokens may follow, and how they change the progress.

    Forbidden tokens are given as columns of the output layer.
    """

    special: SpecialSymbols
    free: bool
    # Columns that `forbid` sets to -inf. It then restores the one closing symbol that may follow.
    forbidden: Tensor
    blank: Tensor  # columns of tokens that decode to an empty string
    separators: Tensor  # [S], columns that close sentence 0, 1 ...
    forbidden_except_eos: Tensor  # `forbidden` without the column of `eos`
    end: int  # column of `eos`
    separates: Tensor  # [V], True for separators
    # With `numbered`, symbols that open sentence 0, 1 ... of a document; with `bracket`, only `bos`.
    opening_symbols: Tensor
    words: Tensor  # [V], True for content tokens, after which a sentence may be closed

    @classmethod
    def of(cls, symbols: SearchSymbols, align: Align, output: OutputLayer, device: torch.device) -> "Rules":
        """Return the rules for an output layer."""
        if output.has_full_vocabulary:
            return _rules_of_whole(symbols, align, output.vocabulary, device)
        return cls._with_columns(symbols, align, output.vocabulary, output.columns, device)

    @classmethod
    def _with_columns(
        cls,
        symbols: SearchSymbols,
        align: Align,
        vocabulary: int,
        columns: Callable[[Tensor], Tensor],
        device: torch.device,
    ) -> "Rules":
        special, free = symbols.special, align == "free"
        closing = () if free else symbols.closing
        unwritten = (special.pad, special.bos, symbols.unk, *special.numbers, *symbols.unused)
        # Closing symbols are forbidden in general and allowed one at a time: see `forbid`.
        tokens = torch.tensor([*unwritten, *closing], device=device)
        blank = torch.tensor(symbols.blank, dtype=torch.long, device=device)
        separators = torch.tensor(special.separators, device=device)
        separates = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        separates[separators] = True
        words = torch.ones_like(separates)
        if not free:
            words[tokens] = False
            words[blank] = False
        opening_symbols = torch.tensor(special.numbers or (special.bos,), device=device)
        end = int(columns(torch.tensor([special.eos], device=device)))
        forbidden = columns(tokens)
        column_fields = columns(blank), columns(separators), forbidden[forbidden != end], end
        return cls(special, free, forbidden, *column_fields, separates, opening_symbols, words)

    def forbid(self, next_RU: Tensor, progress: SentenceProgress, written: int, near_a_limit: bool) -> None:
        """Set the log-probabilities of tokens that may not follow to -inf, in place.

        `near_a_limit`: whether some hypothesis may be at a length limit.
        """
        if progress.may_close and not progress.any_row_continues and not near_a_limit:
            next_RU.index_fill_(1, self.forbidden_except_eos, -torch.inf)
            return
        # Only the closing symbol of the current sentence is allowed, and only after a content token. Save its
        # value, forbid all closing symbols, then restore it.
        closer = self._closer(progress)
        closing = next_RU.gather(1, closer)
        if not progress.may_close:
            closing = closing.masked_fill(~as_rows(progress.has_content_token), -torch.inf)
        next_RU.index_fill_(1, self.forbidden, -torch.inf)
        if near_a_limit:
            has_content_token = progress.has_content_token.flatten()
            # A sentence still needs its closing symbol, and a content token if it has no content token yet.
            at_limit = progress.stop.flatten() - written <= 2 - has_content_token.long()
            if bool(at_limit.any()):
                # After a content token, only the closing symbol is allowed; before it, only a content token.
                next_RU.masked_fill_((at_limit & has_content_token)[:, None], -torch.inf)
                next_RU[:, self.blank] = next_RU[:, self.blank].masked_fill(at_limit[:, None], -torch.inf)
        next_RU.scatter_(1, closer, closing)

    def _closer(self, progress: SentenceProgress) -> Tensor:
        """Return the column of the symbol that closes the current sentence of every row: [R, 1]."""
        if progress.closer is None:
            index = progress.sentence.clamp(max=self.separators.numel() - 1)
            more = (progress.closed < progress.last_index[:, None]) | progress.row_continues[:, None]
            progress.closer = torch.where(more, self.separators[index], self.end)
        return as_rows(progress.closer)

    def ends(self, progress: SentenceProgress, origin: Tensor, token: Tensor) -> Tensor:
        """Return whether each token ends the hypothesis `origin` that it continues: [B, C] each."""
        # A separator ends a hypothesis only if the row continues after the request.
        closes = token == self.special.eos
        if progress.any_row_continues:
            closes |= self.separates[token] & progress.row_continues[:, None]
        if progress.is_single:
            return closes
        return closes & (progress.closed.gather(1, origin) >= progress.last_index[:, None])

    def follow(self, progress: SentenceProgress, token: Tensor, written: int) -> Tensor:
        """Update the progress with the chosen tokens, [B, W]; return them as decoder inputs, [R, 1]."""
        if progress.is_single:
            # A hypothesis with a closing symbol has ended: what follows is never read.
            if not progress.may_close:
                progress.has_content_token = progress.has_content_token | self.words[token]
                progress.may_close = bool(progress.has_content_token.all())
            return as_rows(token)
        separates = self.separates[token]
        progress.closed = progress.closed + separates.long()
        if not self.free:
            # Beams of probability 0 may contain any tokens: keep their counters valid.
            progress.closed = torch.minimum(progress.closed, progress.last_index[:, None])
            stop = progress.limits.gather(1, progress.closed) + written + 1
            progress.stop = torch.where(separates, stop, progress.stop)
        progress.has_content_token = (progress.has_content_token & ~separates) | self.words[token]
        progress.sentence, progress.closer = progress.first[:, None] + progress.closed, None
        following = token
        if self.special.bracket:
            index = progress.sentence_offset[:, None] + progress.sentence
            opening = self.opening_symbols[index.clamp(max=self.opening_symbols.numel() - 1)]
            following = torch.where(separates, opening, token)
        return as_rows(following)


@lru_cache(maxsize=8)
def _rules_of_whole(symbols: SearchSymbols, align: Align, vocabulary: int, device: torch.device) -> Rules:
    """Return the rules over the full vocabulary, which are the same for all windows of all documents."""
    return Rules._with_columns(symbols, align, vocabulary, lambda tokens: tokens, device)


def truncated(
    tokens: Sequence[int], request: SearchRequest, special: SpecialSymbols, free: bool
) -> tuple[int, ...]:
    """Return the positions of closing symbols (also of the final `eos`) that a length limit forced."""
    if free:
        return (len(tokens),) if len(tokens) + 1 == sum(request.max_tokens) else ()
    closing = set(special.separators)
    closers = [*(i for i, token in enumerate(tokens) if token in closing), len(tokens)]
    lengths = (stop - start for start, stop in zip([-1, *closers], closers, strict=False))
    limits = zip(closers, lengths, request.max_tokens, strict=True)
    return tuple(i for i, length, limit in limits if length == limit)


# --- Recovery of sentences from labels, by the separators that the model wrote in free search.
#
# Only `recover` assigns the labels of free search to sentences. A chunk is the text up to a closing symbol.
# Every label belongs to one sentence, so the log-probabilities of the sentences add up to that of the row.
#
#   plain     a sep b sep c eos     Chunk i is sentence i. Missing chunks are those of the last sentences;
#                                   surplus chunks belong to the last sentence.
#   from end  a sep b sep c eos     Chunks count from the end, if only the last sentence is used.
#   indexed   a sep1 b sep3 c eos   A separator has the index of the sentence that it closes, in any order: a
#                                   is sentence 1, b is 3, 2 is missing. `eos` has no index: c is the sentence
#                                   after the last index or, from the end, the last sentence.
#
# With brackets, and in constrained search, the chunks are the sentences.


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sentence of each label, counted from the first requested.

    `exact`: the chunks are exactly the requested sentences, in order. A chunk may still have no text.
    """

    sentence: tuple[int, ...]
    exact: bool


def recover(
    labels: Sequence[int], symbols: SpecialSymbols, count: int, first: int = 0, from_end: bool = False
) -> Recovered:
    """Recover `count` sentences from labels that end with `eos`; `first`: index of the first sentence.

    If there are more chunks than sentences, a separator directly before the final `eos` is ignored.
    """
    closing = {*symbols.separators, symbols.eos}
    stops = [i + 1 for i, label in enumerate(labels) if label in closing]
    closers = [labels[stop - 1] for stop in stops]
    # The model closed the last sentence twice, with a separator and with `eos`.
    if len(stops) > count and stops[-1] - stops[-2] == 1:
        del stops[-2]
        del closers[-1]
    named: list[int] = []
    for chunk, closer in enumerate(closers):
        following = named[-1] + 1 if named else 0
        if len(symbols.separators) == 1:
            named.append(chunk + count - len(stops) if from_end else chunk)
        elif closer not in symbols.separators:
            named.append(count - 1 if from_end else following)
        elif closer == symbols.separators[-1]:  # shared by all later sentences
            named.append(max(following, len(symbols.separators) - 1 - first))
        else:
            named.append(symbols.separators.index(closer) - first)
    lengths = [stop - start for start, stop in pairwise([0, *stops])]
    sentences = (min(max(k, 0), count - 1) for k in named)
    return Recovered(
        sentence=tuple(k for k, length in zip(sentences, lengths, strict=True) for _ in range(length)),
        exact=named == list(range(count)),
    )


def begun_input(
    labels: Sequence[int], symbols: SpecialSymbols, first: int, first_sentence: int
) -> tuple[Ids, Ids]:
    """Return decoder inputs for the labels written so far, and their sentences, `bos` included: [T] each.

    `first` is the sentence index of the first label in its row, `first_sentence` that of the row in its
    document. Language symbols follow `bos`.
    """
    # Python lists, as rows of windows are short: array operations would take longer.
    opens = [False, *(label in symbols.separators for label in labels)]
    sentence = [first + k for k in accumulate(opens)]
    tokens = [symbols.bos, *labels]
    if symbols.bracket:
        for t in (0, *(t for t, does in enumerate(opens) if does)):
            tokens[t] = symbols.opening(first_sentence + sentence[t])
    ids, sentences = np.array(tokens, np.int64), np.array(sentence, np.int64)
    return headed(symbols.target_prefix, ids, sentences, behind=1)


# --- Progress of searches: a listener is called after every step, as batches of long rows take many steps.


Listener = Callable[[Sequence[int]], None]
_listener: ContextVar[Listener | None] = ContextVar("steps", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` after every search step in this context, with the requests that ended with it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part_of_search(members: Sequence[int]) -> Iterator[None]:
    """Report the steps of a search that contains only some requests; `members`: their indices among all."""
    if (listener := _listener.get()) is None:
        yield
        return
    with listening(lambda ended: listener([members[n] for n in ended])):
        yield


class Steps:
    """The steps of one search."""

    def __init__(self) -> None:
        self._listener, self._reported = _listener.get(), 0

    def tell(self, ended: Iterable[int]) -> None:
        """Report a step; `ended` are all requests that have ended so far, in the order of their ends."""
        if self._listener is not None:
            new = list(islice(ended, self._reported, None))
            self._reported += len(new)
            self._listener(new)
