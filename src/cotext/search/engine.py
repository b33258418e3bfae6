"""Search and scoring with CTranslate2 engines, which `cotext export --to ctranslate2` writes.

CTranslate2 is an optional package: compiled code for CPU or GPU, in the precision of the export.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from cotext.data.batch import Batch, Source, SpecialSymbols, pack
from cotext.data.tokenizer import load_tokenizer
from cotext.models.checkpoint import LoadedModel
from cotext.models.interface import Engine, EngineHypothesis, EngineRules
from cotext.models.run_folder import CTRANSLATE2, INSTALL, EngineDescription, read_engine
from cotext.runtime import CotextError
from cotext.runtime.devices import choose_threads
from cotext.search.constraints import SearchRequest, SearchSymbols, Steps, truncated
from cotext.search.hypotheses import Alternative, Hypothesis, SearchOptions, length_divisor

MODEL: Final = "model.bin"  # the engine's file with the weights
STEP_SECONDS: Final = 0.5  # time between signs of progress, because an engine does not report its steps
# Maximum number of probabilities that a call of scoring computes: CTranslate2 keeps them all in memory.
PROBABILITIES: Final = 2**25
# Sources of FEW to MANY tokens may be padded, because attention does not change (measured with AVX-512).
FEW, MANY = 16, 64

Item = TypeVar("Item")


def load_engine(folder: Path, device: torch.device, threads: int | None = None) -> LoadedModel:
    """Load an engine with this number of threads (None: as configured); raise CotextError if that fails."""
    described = read_engine(folder)
    tokenizer = load_tokenizer(folder / "tokenizer")
    if tokenizer.fingerprint != described.fingerprint:
        raise CotextError(
            f"{folder}: its tokenizer differs from the one that it was exported with; export it again"
        )
    config = described.config
    chosen = threads or choose_threads(config.model.dimension, config.train.threads)
    model = CTranslate2Engine(folder, described, device, chosen, tokenizer.vocabulary_size)
    return LoadedModel(model, config, tokenizer, described.updates)


class CTranslate2Engine(Engine):
    """A plain Transformer in CTranslate2, whose tokens are named by their ids.

    `translator` is the object of CTranslate2, `vocabulary` the number of output tokens. During a search, the
    listener of `constraints.listening` is called about twice a second. `patience`: a beam search ends with
    `patience * beam` finished hypotheses, but `beam_search` continues while an unfinished one can be better.
    So with a patience of 1, more outputs differ from those of `beam_search` (docs/results/decoding-speed.md).

    In int8 on a CPU, the rows of a call have prefixes of equal length. Their sources have equal length, or
    `FEW` to `MANY` tokens. Other padding would change the last digits of attention, which are then rounded to
    other integers, so a translation would depend on its batch.
    """

    patience = 2.0

    def __init__(
        self, folder: Path, described: EngineDescription, device: torch.device, threads: int, vocabulary: int
    ) -> None:
        if described.engine != CTRANSLATE2:
            raise CotextError(f"{folder}: this version does not support the engine {described.engine}")
        if find_spec("ctranslate2") is None:
            raise CotextError(f"{folder}: needs CTranslate2: {INSTALL}")
        import ctranslate2

        self.positions, self.parameters = described.positions, described.parameters
        self._most_scored = PROBABILITIES // vocabulary
        self._pads = device.type != "cpu" or not described.quantization.startswith("int8")
        self._waiting = ThreadPoolExecutor(1)  # so that this thread reports progress, and notices Ctrl-C
        self.name = f"engine:ctranslate2-{ctranslate2.__version__}|quantization:{described.quantization}"
        try:
            self.translator: Any = ctranslate2.Translator(
                str(folder), device=device.type, device_index=device.index or 0, intra_threads=threads
            )
        except (RuntimeError, ValueError) as error:
            raise CotextError(f"{folder}: CTranslate2 cannot load it: {error}") from None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: EngineRules,
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        end, steps = str(rules.end), Steps()
        found: list[list[EngineHypothesis]] = [[] for _ in sources]
        for group in self._calls(sources, prefixes):
            future = self._waiting.submit(
                self.translator.translate_batch,
                _named([sources[n] for n in group]),
                _named([prefixes[n] for n in group]),
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
            steps.tell(())
            while not wait([future], STEP_SECONDS).done:
                steps.tell(())
            for n, result in zip(group, future.result(), strict=True):
                for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                    divisor = length_divisor(len(tokens), length_penalty, "power")  # CTranslate2's own form
                    new = tokens[len(prefixes[n]) :]
                    ended = new[-1:] == [end]
                    ids = tuple(map(int, new[: len(new) - ended]))
                    found[n].append(EngineHypothesis(ids, score * divisor, ended))
        return found

    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in labels]
        for group in self._calls(sources, labels):
            lengths = [[1 + max(len(sources[n]), len(labels[n]))] for n in group]
            for batch in pack(lengths, self._most_scored):
                rows = [[side[group[n]] for n in batch] for side in (sources, labels)]
                results = self.translator.score_batch(*map(_named, rows), max_input_length=0)
                for n, result in zip(batch, results, strict=True):
                    found[group[n]] = list(result.log_probs)
        return found

    def _calls(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the indices of the rows of each call."""
        if self._pads:
            return [list(range(len(sources)))]

        def kind(n: int) -> tuple[int, int]:
            length = len(sources[n])
            return FEW if FEW <= length <= MANY else length, len(targets[n])

        return _grouped(range(len(sources)), kind)


def _named(rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [list(map(str, row)) for row in rows]


# --- Search and scoring with engines, like `beam_search` and `likelihood` with models.
#
# An engine generates tokens up to an end symbol, without regard to sentences. To get exactly the requested
# sentences, a row is searched in up to two ways:
#
#     free      All sentences at once, without constraints. The hypothesis is kept if it has exactly the
#               requested sentences.
#     forced    Otherwise, one sentence after the other: each up to its separator, the last up to `eos`, with
#               the previous sentences as the prefix. A sentence that is empty, too long, or contains a
#               forbidden symbol is searched again with these symbols suppressed.
#
# A row of one sentence, such as a window with a forced prefix, normally takes one search. The scores of an
# engine are those of the model only if nothing was forbidden, and they divide by a length that includes the
# prefix. Hypotheses are therefore ranked by the score of `SearchOptions`. If the log-probability
# of the engine is not that of the model, it is computed by scoring.


def search_engine(
    model: Engine,
    source: Source,
    requests: Sequence[SearchRequest],
    symbols: SearchSymbols,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Return the best hypothesis for every row of the source, like `beam_search.search`.

    Raises the errors of `beam_search.search`, and CotextError if a row has more tokens than the engine has
    positions.
    """
    sources = _rows(source.tokens, source.sentence)
    _require_room(model, sources)
    rows = [
        _Row(tokens, symbols.special.target_prefix, _within(model, request, symbols.special))
        for tokens, request in zip(sources, requests, strict=True)
    ]
    search = _EngineSearch(model, symbols, options)
    search.whole([row for row in rows if row.request.sentences > 1])
    while open_rows := [row for row in rows if not row.done]:
        search.next_sentences(open_rows)
    search.score([row for row in rows if row.log_probabilities is None])
    return [row.hypothesis(symbols.special, options) for row in rows]


def engine_label_nll(model: Engine, batch: Batch) -> Tensor:
    """Return negative log-likelihoods of the labels of current sentences, like `label_nll`."""
    sources = _rows(batch.source.tokens, batch.source.sentence)
    # Language symbols follow `bos`, then all labels except the last.
    inputs = _rows(batch.target_input, batch.input_sentence)
    _require_room(model, [*sources, *inputs])
    nll = torch.zeros(batch.target_label.shape)
    for row, log_probabilities in zip(nll, model.score(sources, [row[1:] for row in inputs]), strict=True):
        row[: len(log_probabilities)] = -torch.tensor(log_probabilities)
    return nll[batch.is_current.cpu()]


def _rows(tokens: Tensor, sentence: Tensor) -> list[list[int]]:
    """Return the tokens of rows without their padding."""
    lengths = (sentence >= 0).sum(dim=1).tolist()
    return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]


def _require_room(model: Engine, rows: Sequence[Sequence[int]]) -> None:
    longest = max(map(len, rows), default=0)
    if longest > model.positions:
        raise CotextError(
            f"a row has {longest:,} tokens, and the engine has {model.positions:,} positions; split long "
            "sentences, or export the run with a larger decode.max_source_tokens"
        )


def has_room(model: Engine, source_tokens: int, request: SearchRequest, special: SpecialSymbols) -> bool:
    """Whether the engine has positions for this number of source tokens, and for the longest output."""
    target = 1 + len(special.target_prefix) + len(request.prefix) + sum(request.max_tokens)
    return max(source_tokens, target) <= model.positions


def _within(model: Engine, request: SearchRequest, special: SpecialSymbols) -> SearchRequest:
    """Return the request with limits for which the engine has positions."""
    room = model.positions - 1 - len(special.target_prefix) - len(request.prefix)
    if sum(request.max_tokens) <= room:
        return request
    most = room // request.sentences
    if most < 2:
        raise CotextError(
            f"a row has {len(request.prefix):,} tokens of target context, and the engine has "
            f"{model.positions:,} positions; export the run with a larger decode.max_source_tokens"
        )
    return replace(request, max_tokens=tuple(min(limit, most) for limit in request.max_tokens))


@dataclass(slots=True)
class _Row:
    """A row and the labels written so far after its prefix, without the final `eos`.

    `language`: symbols before all labels. `closed`: the number of finished sentences.
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
        """Decoder inputs so far, without `bos`."""
        return [*self.language, *self.request.prefix, *self.tokens]

    @property
    def limit(self) -> int:
        """Largest number of tokens of the next sentence, its closing symbol included."""
        return self.request.max_tokens[self.closed]

    def end(self, tokens: Sequence[int], log_probability: float | None) -> None:
        """Add the last tokens, and the log-probability of all labels, if it is known."""
        self.tokens += tokens
        self.done = True
        if log_probability is not None:
            self.log_probabilities = [*([0.0] * len(self.tokens)), log_probability]

    def hypothesis(self, special: SpecialSymbols, options: SearchOptions) -> Hypothesis:
        assert self.log_probabilities is not None
        total = sum(self.log_probabilities)
        return Hypothesis(
            tokens=self.tokens,
            token_log_probabilities=self.log_probabilities,
            log_probability=total,
            score=total / options.divisor(len(self.log_probabilities)),
            truncated=truncated(self.tokens, self.request, special, free=False),
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
        """Search complete rows; finish those with a hypothesis that has exactly the requested sentences."""
        eos = self.symbols.special.eos
        for row, hypotheses in self._search(rows, eos, lambda row: sum(row.request.max_tokens)):
            if best := next((h for h in hypotheses if self._fits(row, h)), None):
                row.end(best.tokens, None)

    def next_sentences(self, rows: Sequence[_Row]) -> None:
        """Write the next sentence of every row."""
        for group in _grouped(rows, self._end):
            end = self._end(group[0])
            rejected: list[_Row] = []
            for row, hypotheses in self._search(group, end, lambda row: row.limit):
                best = hypotheses[0]
                if row.limit == 1:  # the prefix contains the sentence
                    self._close(row, end, (), None)
                elif not self._can_be(row, row.closed, best.tokens[: row.limit - 1]):
                    rejected.append(row)
                elif all(h.ended and len(h.tokens) < row.limit for h in hypotheses):
                    row.others = [
                        Alternative(h.tokens, h.log_probability, self._rank(h))
                        for h in hypotheses[1:]
                        if self._can_be(row, row.closed, h.tokens)
                    ]
                    self._close(row, end, best.tokens, best.log_probability)
                elif self.options.beam == 1:
                    self._close(row, end, best.tokens[: row.limit - 1], None)
                else:  # longer than the limit of this row; with this limit, the search would end differently
                    rejected.append(row)
            self._force(rejected, end)

    def score(self, rows: Sequence[_Row]) -> None:
        """Compute the log-probabilities of finished rows."""
        if rows:
            ends = [self._end(row, row.request.sentences - 1) for row in rows]
            labels = [[*row.prefix, *self._closer(end)] for row, end in zip(rows, ends, strict=True)]
            scores = self.model.score([row.source for row in rows], labels)
            for row, log_probabilities in zip(rows, scores, strict=True):
                start = len(row.language) + len(row.request.prefix)
                row.log_probabilities = log_probabilities[start : start + len(row.tokens) + 1]

    def _closer(self, end: int) -> list[int]:
        """Return a closing symbol as labels for scoring, which adds `eos` itself."""
        return [] if end == self.symbols.special.eos else [end]

    def _rank(self, hypothesis: EngineHypothesis) -> float:
        """Return the score of `SearchOptions`."""
        return hypothesis.log_probability / self.options.divisor(len(hypothesis.tokens) + 1)

    def _search(
        self, rows: Sequence[_Row], end: int, limit: Callable[[_Row], int], never: tuple[int, ...] = ()
    ) -> Iterator[tuple[_Row, list[EngineHypothesis]]]:
        """Yield rows with their hypotheses, best first by the score of `SearchOptions`.

        `limit` returns the largest number of tokens to come, with the end symbol. With `never`, hypotheses
        end at this limit, and their next sentence is not empty; else they may be longer, or empty.
        """

        def limits(row: _Row) -> tuple[int, int]:
            # Limits of an engine include the prefix. The upper limit decides which hypotheses compete. It is
            # that of the row itself, rounded so that rows can share calls, never that of another row.
            exact = len(row.prefix) + limit(row) - 1
            if never:
                return exact, len(row.prefix) + (not self._begun(row, row.closed))
            return min(2 ** exact.bit_length(), self.model.positions - 2), 0

        beam, penalty = self.options.beam, self.options.length_penalty
        for group in _grouped(rows, limits):
            rules, prefixes = EngineRules(end, *limits(group[0]), never), [row.prefix for row in group]
            results = self.model.search([row.source for row in group], prefixes, rules, beam, penalty)
            for row, hypotheses in zip(group, results, strict=True):
                yield row, sorted(hypotheses, key=self._rank, reverse=True)

    def _force(self, rows: Sequence[_Row], end: int) -> None:
        """Write a sentence of every row with all forbidden symbols suppressed."""
        never = self._never | (self._closing - {end})
        # First with blank tokens, which visible ones may need; then without them.
        for forbidden in map(sorted, (never, never | self._blank)):
            candidates_by_row = [
                (row, [h.tokens for h in hypotheses if self._can_be(row, row.closed, h.tokens)])
                for row, hypotheses in self._search(rows, end, lambda row: row.limit, tuple(forbidden))
            ]
            rows = [row for row, candidates in candidates_by_row if not candidates]
            for row, tokens in self._best(candidates_by_row, end):
                self._close(row, end, tokens, None)
        if rows:
            raise CotextError(
                "no allowed token has a probability above zero; the output may contain NaN, or the "
                "vocabulary only blanks; check the loss of the exported run on known text"
            )

    def _best(
        self, candidates_by_row: Sequence[tuple[_Row, list[tuple[int, ...]]]], end: int
    ) -> list[tuple[_Row, tuple[int, ...]]]:
        """Return the best candidate of every row that has any, as a sentence closed by `end`."""
        pairs = [(row, tokens) for row, candidates in candidates_by_row for tokens in candidates]
        labels = [[*row.prefix, *tokens, *self._closer(end)] for row, tokens in pairs]
        scores = iter(self.model.score([row.source for row, _ in pairs], labels) if pairs else [])
        best = []
        for row, candidates in candidates_by_row:
            alternatives = []
            for tokens in candidates:
                length, start = len(tokens) + 1, len(row.prefix)
                total = sum(next(scores)[start : start + length])
                alternatives.append(Alternative(tokens, total, total / self.options.divisor(length)))
            if alternatives:
                first, *row.others = sorted(alternatives, key=lambda alternative: -alternative.score)
                best.append((row, first.tokens))
        return best

    def _end(self, row: _Row, k: int | None = None) -> int:
        """Return the symbol that closes requested sentence `k`, or the next sentence."""
        request, special = row.request, self.symbols.special
        k = row.closed if k is None else k
        if k + 1 == request.sentences and not request.row_continues:
            return special.eos
        return special.separator(request.first_sentence + request.closed_before(self.symbols) + k)

    def _begun(self, row: _Row, k: int) -> bool:
        """Whether the prefix of the request contains a visible token of sentence `k`."""
        return k == 0 and row.request.has_begun(self.symbols)

    def _close(self, row: _Row, end: int, tokens: Sequence[int], log_probability: float | None) -> None:
        if row.closed + 1 == row.request.sentences:
            # This is the log-probability of one sentence; rows of several sentences are scored later.
            row.end(tokens, log_probability if row.closed == 0 else None)
        else:
            row.tokens += [*tokens, end]
            row.closed += 1

    def _can_be(self, row: _Row, k: int, tokens: Sequence[int]) -> bool:
        """Whether tokens can be sentence `k`: a visible token, within the limit, no special symbol."""
        if len(tokens) >= row.request.max_tokens[k] or not self._symbols.isdisjoint(tokens):
            return False
        return not self._blank.issuperset(tokens) or self._begun(row, k)

    def _fits(self, row: _Row, hypothesis: EngineHypothesis) -> bool:
        """Whether a hypothesis has exactly the requested sentences, each of them valid."""
        rest, last = list(hypothesis.tokens), row.request.sentences - 1
        for k in range(last):
            end = self._end(row, k)
            if end not in rest or not self._can_be(row, k, rest[: rest.index(end)]):
                return False
            rest = rest[rest.index(end) + 1 :]
        return hypothesis.ended and self._can_be(row, last, rest)


def _grouped(rows: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())
