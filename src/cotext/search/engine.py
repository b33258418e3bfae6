"""CTranslate2 as an engine: systems that `cotext export --to ctranslate2` has written.

The package is optional; what runs is compiled, on a CPU or a GPU, in the precision that was exported.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from cotext.data.batch import Batch, Source, SpecialSymbols
from cotext.data.tokenizer import load_tokenizer
from cotext.models.checkpoint import LoadedModel
from cotext.models.engine_folder import CTRANSLATE2, INSTALL, EngineDescription, read_engine
from cotext.models.interface import Engine, EngineHypothesis, EngineRules
from cotext.runtime.devices import choose_threads
from cotext.runtime.errors import CotextError
from cotext.search.beam_search import Hypothesis, SearchOptions, length_divisor
from cotext.search.constraints import SearchRequest, SearchSymbols, check_requests, truncated
from cotext.search.likelihood import sentence_sums
from cotext.search.nbest_beam import Alternative

MODEL: Final = "model.bin"  # the engine's file with the weights


def load_engine(folder: Path, device: torch.device, threads: int | None = None) -> LoadedModel:
    """Load the system of an engine folder; `threads` not given: as its configuration says.

    Raises:
        CotextError: a damaged or foreign folder, CTranslate2 is not installed or does not take it.
    """
    described = read_engine(folder)
    tokenizer = load_tokenizer(folder / "tokenizer")
    if tokenizer.fingerprint != described.fingerprint:
        raise CotextError(
            f"{folder}: was exported with another tokenizer than the one in it; export it again"
        )
    config = described.config
    chosen = threads or choose_threads(config.model.dimension, config.train.threads)
    model = CTranslate2Engine(folder, described, device, chosen)
    return LoadedModel(model, config, tokenizer, described.updates)


class CTranslate2Engine(Engine):
    """A plain Transformer in CTranslate2, whose tokens are named by their ids.

    `translator` is the engine's own object. `patience`: a beam search ends with so many times `beam`
    finished hypotheses; ours goes on while another can be better.
    """

    patience = 1.0

    def __init__(
        self, folder: Path, described: EngineDescription, device: torch.device, threads: int
    ) -> None:
        if described.engine != CTRANSLATE2:
            raise CotextError(
                f"{folder}: is of an engine that this version does not know: {described.engine}"
            )
        if find_spec("ctranslate2") is None:
            raise CotextError(f"{folder}: needs CTranslate2: {INSTALL}")
        import ctranslate2

        self.positions, self.parameters = described.positions, described.parameters
        self._names = _Names()
        self.name = f"engine:ctranslate2-{ctranslate2.__version__}|quantization:{described.quantization}"
        try:
            self.translator: Any = ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            raise CotextError(f"{folder}: CTranslate2 does not take it: {error}") from None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: EngineRules,
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        """See `Engine.search`."""
        end = str(rules.end)
        results = self.translator.translate_batch(
            self._named(sources),
            self._named(prefixes),
            beam_size=beam,
            num_hypotheses=beam,
            patience=self.patience,
            length_penalty=length_penalty,
            max_input_length=0,
            max_decoding_length=rules.most,
            min_decoding_length=rules.least,
            suppress_sequences=[[str(i)] for i in rules.never] or None,
            end_token=end,
            return_end_token=True,
            return_scores=True,
        )
        found = []
        for result, prefix in zip(results, prefixes, strict=True):
            hypotheses = []
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                divisor = length_divisor(len(tokens), length_penalty, "power")  # CTranslate2's own form
                hypotheses.append(_hypothesis(tokens[len(prefix) :], end, score * divisor))
            found.append(hypotheses)
        return found

    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        named = self._named(sources), self._named(labels)
        results = self.translator.score_batch(*named, max_input_length=0)
        return [list(result.log_probs) for result in results]

    def _named(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [list(map(self._names.__getitem__, row)) for row in rows]


class _Names(dict[int, str]):
    """The names of tokens, each made once: rows repeat most of them, and of what was written before all."""

    def __missing__(self, token: int) -> str:
        return self.setdefault(token, str(token))


def _hypothesis(tokens: Sequence[str], end: str, log_probability: float) -> EngineHypothesis:
    ended = bool(tokens) and tokens[-1] == end
    written = tokens[:-1] if ended else tokens
    return EngineHypothesis(tuple(map(int, written)), log_probability, ended)


# --- Search and scoring in engines: what `beam_search` and `likelihood` do for models of ours.
#
# An engine knows no sentences; it writes tokens up to a symbol that ends them. Hence, to get exactly the
# sentences requested:
#
#     free      all sentences of a row at once, nothing forbidden; kept where the hypothesis has them
#     forced    the rows that have not: sentence by sentence, each up to its separator, the last up to `eos`,
#               with what was written before as the prefix; where a sentence comes out empty, too long, or
#               with a symbol that no output holds, it is searched once more with these forbidden
#
# A row of one sentence, as windows with a forced prefix are, is searched once if all is well. What an engine
# tells of a search holds for the model only where nothing was forbidden, and divides by the length of the
# prefix too; so hypotheses are ranked by their log-probabilities, and what is reported is that, or is scored.


def search_engine(
    model: Engine,
    source: Source,
    requests: Sequence[SearchRequest],
    symbols: SearchSymbols,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Return the best hypothesis found for every row of the source: as `beam_search.search`.

    Raises:
        CotextError: as there, or a row with more tokens than the engine has positions.
    """
    check_requests(requests, symbols, options.align)
    sources = _rows(source.tokens, source.sentence)
    _require_room(model, sources)
    free = options.align == "free"
    rows = [
        _Row(tokens, symbols.special.target_prefix, _within(model, request, symbols.special, free))
        for tokens, request in zip(sources, requests, strict=True)
    ]
    search = _EngineSearch(model, symbols, options)
    if free:
        search.free(rows)
    else:
        search.whole([row for row in rows if row.request.sentences > 1])
    while open_rows := [row for row in rows if not row.done]:
        search.next_sentences(open_rows)
    search.score([row for row in rows if row.log_probabilities is None])
    return [row.hypothesis(symbols.special, options) for row in rows]


def engine_label_nll(model: Engine, batch: Batch) -> Tensor:
    """Negative log-likelihoods of the labels of current sentences: as `likelihood.label_nll`."""
    sources = _rows(batch.source.tokens, batch.source.sentence)
    # What follows `bos` are the labels but the last, behind the symbols of a language.
    inputs = _rows(batch.target_input, batch.input_sentence)
    _require_room(model, [*sources, *inputs])
    nll = torch.zeros(batch.target_label.shape)
    for row, found in zip(nll, model.score(sources, [row[1:] for row in inputs]), strict=True):
        row[: len(found)] = -torch.tensor(found)
    return nll[batch.is_current.cpu()]


def engine_nll(model: Engine, batch: Batch) -> Tensor:
    """Negative log-likelihoods of the current sentences of all rows, one after the other, in float64."""
    return sentence_sums(batch, engine_label_nll(model, batch))


def _rows(tokens: Tensor, sentence: Tensor) -> list[list[int]]:
    """The tokens of rows without their padding."""
    lengths = (sentence >= 0).sum(dim=1).tolist()
    return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]


def _require_room(model: Engine, rows: Sequence[Sequence[int]]) -> None:
    longest = max(map(len, rows), default=0)
    if longest > model.positions:
        raise CotextError(
            f"a row has {longest:,} tokens, and the engine has {model.positions:,} positions; split long "
            "sentences, or export the run with a larger decode.max_source_tokens"
        )


def _within(model: Engine, request: SearchRequest, special: SpecialSymbols, free: bool) -> SearchRequest:
    """A request whose limits the engine has positions for."""
    room = model.positions - 1 - len(special.target_prefix) - len(request.prefix)
    if sum(request.max_tokens) <= room:
        return request
    most = room if free else room // request.sentences
    if most < 2:
        raise CotextError(
            f"a row has {len(request.prefix):,} tokens of target context, and the engine has "
            f"{model.positions:,} positions; export the run with a larger decode.max_source_tokens"
        )
    limits = (min(limit, most) for limit in request.max_tokens)
    return replace(request, max_tokens=(most,) if free else tuple(limits))


@dataclass(slots=True)
class _Row:
    """A row and what is written of it: labels after the prefix, the final `eos` not included.

    `language` are symbols that stand before all labels; `closed` counts its sentences that are finished.
    """

    source: list[int]
    language: tuple[int, ...]
    request: SearchRequest
    tokens: list[int] = field(default_factory=list)
    closed: int = 0
    log_probabilities: list[float] | None = None
    done: bool = False
    others: list[Alternative] = field(default_factory=list)

    @property
    def prefix(self) -> list[int]:
        """Decoder inputs so far, but `bos`."""
        return [*self.language, *self.request.prefix, *self.tokens]

    @property
    def limit(self) -> int:
        """Of the next sentence: its tokens and the symbol that closes it."""
        return self.request.max_tokens[self.closed]

    def end(self, tokens: Sequence[int], log_probability: float | None) -> None:
        """Take the last tokens; the log-probability of all that was written, where it is known."""
        self.tokens += tokens
        self.done = True
        if log_probability is not None:
            self.log_probabilities = [*([0.0] * len(self.tokens)), log_probability]

    def hypothesis(self, special: SpecialSymbols, options: SearchOptions) -> Hypothesis:
        """What search returns."""
        assert self.log_probabilities is not None
        total = sum(self.log_probabilities)
        return Hypothesis(
            tokens=self.tokens,
            token_log_probabilities=self.log_probabilities,
            log_probability=total,
            score=total / options.divisor(len(self.log_probabilities)),
            truncated=truncated(self.tokens, self.request, special, options.align == "free"),
            others=(tuple(self.others),) if options.nbest > 1 and self.request.sentences == 1 else (),
        )


class _EngineSearch:
    """The calls of an engine for the rows of a batch."""

    def __init__(self, model: Engine, symbols: SearchSymbols, options: SearchOptions) -> None:
        self.model, self.symbols, self.options = model, symbols, options
        special = symbols.special
        self._blank = set(symbols.blank)
        self._closing = {*special.separators, special.eos}
        unwritten = {special.pad, special.bos, symbols.unk, *special.numbers, *symbols.unused}
        self._never = unwritten - self._closing
        self._symbols = unwritten | self._closing

    def whole(self, rows: Sequence[_Row]) -> None:
        """Search whole rows, and finish those whose best hypotheses have the sentences requested."""
        for row, hypotheses in self._searched(rows, self.symbols.special.eos, _whole):
            if best := next((h for h in hypotheses if self._fits(row, h)), None):
                row.end(best.tokens, None)

    def free(self, rows: Sequence[_Row]) -> None:
        """Search whole rows, and finish them with whatever is written."""
        eos, never = self.symbols.special.eos, tuple(sorted(self._never))
        long: list[_Row] = []
        for row, hypotheses in self._searched(rows, eos, _whole, never):
            if len(hypotheses[0].tokens) < _whole(row):
                row.end(hypotheses[0].tokens, None)
            else:
                long.append(row)
        for group in _grouped(long, lambda row: (len(row.prefix), _whole(row))):
            for row, hypotheses in self._searched(group, eos, _whole, never):
                row.end(hypotheses[0].tokens, None)

    def next_sentences(self, rows: Sequence[_Row]) -> None:
        """Write one more sentence of every row."""
        for group in _grouped(rows, self._end):
            end = self._end(group[0])
            refused: list[_Row] = []
            for row, hypotheses in self._searched(group, end, _next):
                best = hypotheses[0]
                if row.limit == 1:  # the prefix has all of the sentence
                    self._close(row, end, (), None)
                elif not self._can_be(row, row.closed, best.tokens[: row.limit - 1]):
                    refused.append(row)
                elif all(h.ended and len(h.tokens) < row.limit for h in hypotheses):
                    self._list(row, ((h.tokens, h.log_probability) for h in hypotheses[1:]))
                    self._close(row, end, best.tokens, best.log_probability)
                elif self.options.beam == 1:
                    self._close(row, end, best.tokens[: row.limit - 1], None)
                else:  # up to its own limit, not that of a longer row beside it, the search ends otherwise
                    refused.append(row)
            self._force(refused, end)

    def score(self, rows: Sequence[_Row]) -> None:
        """Fill in the log-probabilities of rows that are finished."""
        if rows:
            labels = [[*row.prefix, *self._closer(row)] for row in rows]
            scores = self.model.score([row.source for row in rows], labels)
            for row, found in zip(rows, scores, strict=True):
                start = len(row.language) + len(row.request.prefix)
                row.log_probabilities = found[start : start + len(row.tokens) + 1]

    def _closer(self, row: _Row) -> list[int]:
        """What closes the last sentence of a row, unless `eos` does."""
        end = self._end(row, row.request.sentences - 1)
        return [] if end == self.symbols.special.eos else [end]

    def _list(self, row: _Row, found: Iterable[tuple[tuple[int, ...], float]]) -> None:
        """Note further hypotheses of a row for one sentence, best first, with their log-probabilities."""
        divisor = self.options.divisor
        row.others = [
            Alternative(tokens, log_probability, log_probability / divisor(len(tokens) + 1))
            for tokens, log_probability in found
            if self._can_be(row, row.closed, tokens)
        ]

    def _searched(
        self,
        rows: Sequence[_Row],
        end: int,
        limit: Callable[[_Row], int],
        never: tuple[int, ...] = (),
        least: int = 0,
    ) -> Iterator[tuple[_Row, list[EngineHypothesis]]]:
        """Rows with their hypotheses, best first: by log-probability over length, as in `SearchOptions`.

        `limit` counts tokens that are still to come, `end` included: the longest of the rows holds for all.
        """
        if not rows:
            return
        prefixes = [row.prefix for row in rows]
        most = max(len(row.prefix) + limit(row) for row in rows) - 1
        beam, penalty, divisor = self.options.beam, self.options.length_penalty, self.options.divisor
        rules = EngineRules(end, most, least, never)
        found = self.model.search([row.source for row in rows], prefixes, rules, beam, penalty)
        for row, hypotheses in zip(rows, found, strict=True):
            yield row, sorted(hypotheses, key=lambda h: -h.log_probability / divisor(len(h.tokens) + 1))

    def _force(self, rows: Sequence[_Row], end: int) -> None:
        """Write a sentence of every row, with all that it must not hold forbidden."""
        never = self._never | (self._closing - {end})
        for forbidden in (never, never | self._blank):
            found: list[tuple[_Row, list[tuple[int, ...]]]] = []
            for group in _grouped(rows, lambda row: (len(row.prefix), row.limit, self._least(row))):
                least = self._least(group[0])
                for row, hypotheses in self._searched(group, end, _next, tuple(sorted(forbidden)), least):
                    possible = [h.tokens for h in hypotheses if self._can_be(row, row.closed, h.tokens)]
                    found.append((row, possible))
            rows = [row for row, candidates in found if not candidates]
            for row, tokens in self._best(found, end):
                self._close(row, end, tokens, None)
        if rows:
            raise CotextError(
                "no allowed token has a probability above zero; the output may hold NaN, or the vocabulary "
                "no token but blanks; check the run that was exported with the loss on known text"
            )

    def _best(
        self, found: Sequence[tuple[_Row, list[tuple[int, ...]]]], end: int
    ) -> list[tuple[_Row, tuple[int, ...]]]:
        """Of the candidates of every row that has any, the best as a sentence that is closed by `end`."""
        pairs = [(row, tokens) for row, candidates in found for tokens in candidates]
        closer = [] if end == self.symbols.special.eos else [end]
        labels = [[*row.prefix, *tokens, *closer] for row, tokens in pairs]
        scores = self.model.score([row.source for row, _ in pairs], labels) if pairs else []
        ranked: dict[int, tuple[_Row, list[Alternative]]] = {}
        for (row, tokens), log_probabilities in zip(pairs, scores, strict=True):
            length, start = len(tokens) + 1, len(row.prefix)
            total = sum(log_probabilities[start : start + length])
            each = Alternative(tokens, total, total / self.options.divisor(length))
            ranked.setdefault(id(row), (row, []))[1].append(each)
        best = []
        for row, each_of_row in ranked.values():
            first, *others = sorted(each_of_row, key=lambda each: -each.score)
            row.others = others
            best.append((row, first.tokens))
        return best

    def _end(self, row: _Row, k: int | None = None) -> int:
        """What closes sentence `k` of those requested, or the next one."""
        request, special = row.request, self.symbols.special
        k = row.closed if k is None else k
        if k + 1 == request.sentences and not request.goes_on:
            return special.eos
        return special.separator(request.first_sentence + request.closed_before(self.symbols) + k)

    def _begun(self, row: _Row, k: int) -> bool:
        """Whether the prefix of the request holds a word of sentence `k`."""
        return k == 0 and row.request.has_begun(self.symbols)

    def _least(self, row: _Row) -> int:
        """Tokens of a row at the end of its next sentence at least: without a word yet, there is one more."""
        return len(row.prefix) + (not self._begun(row, row.closed))

    def _close(self, row: _Row, end: int, tokens: Sequence[int], log_probability: float | None) -> None:
        if row.closed + 1 == row.request.sentences:
            # Of several sentences, those before this one are not counted in.
            row.end(tokens, log_probability if row.closed == 0 else None)
        else:
            row.tokens += [*tokens, end]
            row.closed += 1

    def _can_be(self, row: _Row, k: int, tokens: Sequence[int]) -> bool:
        """Whether tokens can be sentence `k`: with a word, within the limit, no symbol among them."""
        if len(tokens) >= row.request.max_tokens[k] or not self._symbols.isdisjoint(tokens):
            return False
        return not self._blank.issuperset(tokens) or self._begun(row, k)

    def _fits(self, row: _Row, hypothesis: EngineHypothesis) -> bool:
        """Whether a hypothesis has exactly the sentences requested, each as it must be."""
        rest, last = list(hypothesis.tokens), row.request.sentences - 1
        for k in range(last):
            end = self._end(row, k)
            if end not in rest or not self._can_be(row, k, rest[: rest.index(end)]):
                return False
            rest = rest[rest.index(end) + 1 :]
        return hypothesis.ended and self._can_be(row, last, rest)


def _whole(row: _Row) -> int:
    """How long all sentences of a row may be."""
    return sum(row.request.max_tokens)


def _next(row: _Row) -> int:
    """How long the next sentence of a row may be."""
    return row.limit


def _grouped(rows: Iterable[_Row], key: Callable[[_Row], Hashable]) -> list[list[_Row]]:
    groups: dict[Hashable, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())
