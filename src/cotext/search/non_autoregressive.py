"""Search with non-autoregressive models: the most probable symbol of every frame, collapsed to tokens.

    path     - a a - b - b b      blank is -: repeats become one token, blanks are removed      a b b

With one CTC path per sentence, the output has exactly the requested sentences by construction. With one path
per row, or none, sentences are recovered from the `eos` symbols (`recover`). A sentence without
a content token gets the token that lowers its probability least, so that no sentence is empty, as in
constrained search.

Shapes: B rows, T frames, N frames of all rows, concatenated without padding, D model dimension, V vocabulary.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.models.interface import NonAutoregressiveModel
from cotext.models.output_layer import OutputLayer, best_column
from cotext.runtime import CotextError
from cotext.search.constraints import SearchRequest, SearchSymbols, Steps, recover
from cotext.search.hypotheses import Hypothesis, SearchOptions

CHUNK = 128  # frames whose logits are computed at once, so that they stay in the cache of a CPU
PASS_TOKENS = 1024  # source tokens per pass on a CPU; larger passes are not faster per token


@dataclass(slots=True)
class _Text:
    """The tokens of a sentence with their log-probabilities; `rest`: log-probability of the closing symbol.

    The log-probability of a token includes the blanks before it and its repeats.
    """

    tokens: list[int] = field(default_factory=list)
    log_p: list[float] = field(default_factory=list)
    rest: float = 0.0

    def within(self, most_tokens: int) -> "_Text":
        """Truncate to this many tokens; add the log-probability of the rest to the closing symbol."""
        rest = self.rest + sum(self.log_p[most_tokens:])
        return _Text(self.tokens[:most_tokens], self.log_p[:most_tokens], rest)


@dataclass(frozen=True, slots=True)
class _Row:
    """The frames of a row and the best symbol of each."""

    output: OutputLayer
    hidden: Tensor  # [T, D]
    sentences: dict[int, list[int]]  # frames by sentence
    symbol: list[int]
    log_p: list[float]

    def frames(self, k: int) -> list[int]:
        """Return the frames of sentence k, or all frames if it has none."""
        return self.sentences.get(k) or list(range(len(self.hidden)))


def search_frames(
    model: NonAutoregressiveModel,
    source: Source,
    requests: Sequence[SearchRequest],
    symbols: SearchSymbols,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Return the hypothesis for every row of the source; the model must be in eval mode.

    Raises CotextError if the beam is above 1, or the model output is NaN.
    """
    if options.beam > 1:
        raise CotextError(
            f"decode.beam = {options.beam}: a non-autoregressive model decides all positions at once and has "
            "no beam; choose decode.beam = 1"
        )
    with torch.inference_mode():
        frames, steps = _FrameSearch(model, symbols, options), Steps()
        hypotheses: list[Hypothesis] = []
        for row, request in zip(frames.rows(source, requests), requests, strict=True):
            hypotheses.append(frames.hypothesis(row, request))
            steps.tell(range(len(hypotheses)))
        return hypotheses


class _FrameSearch:
    """A search over frames.

    No frame may have a `forbidden` symbol. Every sentence needs a symbol that is not in `without_content`.
    """

    def __init__(self, model: NonAutoregressiveModel, symbols: SearchSymbols, options: SearchOptions) -> None:
        special = symbols.special
        self.model, self.symbols, self.options = model, symbols, options
        self.forbidden = {symbols.unk, *special.numbers, *symbols.unused}
        if model.path == "length":
            self.forbidden.add(model.blank)
        # Symbols that are not tokens of a sentence.
        self.non_content = {model.blank, special.bos}
        self.without_content = {*self.forbidden, *self.non_content, special.eos, *symbols.blank}

    def rows(self, source: Source, requests: Sequence[SearchRequest]) -> Iterator[_Row]:
        """Decode in passes of limited size and yield row after row."""
        rows, tokens = source.tokens.shape
        # On a CPU, small passes fit into the cache; on a GPU, one pass is fastest.
        at_once = rows if source.tokens.device.type != "cpu" else max(1, PASS_TOKENS // tokens)
        for chosen in torch.split(torch.arange(rows, device=source.tokens.device), at_once):
            some = source if len(chosen) == rows else source.select(chosen)
            yield from self._pass(some, [requests[i] for i in chosen.tolist()])

    def _pass(self, source: Source, requests: Sequence[SearchRequest]) -> Iterator[_Row]:
        """Yield the rows of one pass, with log-probabilities, or logits if the search is not scored."""
        draft, special = self.model.encode(source), self.symbols.special
        real = draft.sentence >= 0
        sizes = real.sum(dim=1).tolist()
        hidden = torch.split(self.model.decode(draft)[real], sizes)
        outputs = [OutputLayer(self.model, [], ())] * len(requests)
        if requests[0].shortlist is not None:  # then every row has a separate shortlist
            always = {*self.symbols.closing, *self.non_content, *self.symbols.blank}
            outputs = [OutputLayer(self.model, [request.shortlist], always) for request in requests]
        # Consecutive rows with the same output layer are computed together.
        results = [
            self._best(
                output, torch.cat([hidden_TD for _, hidden_TD in rows]), self.forbidden, self.options.scored
            )
            for output, rows in groupby(zip(outputs, hidden, strict=True), key=itemgetter(0))
        ]
        log_p, symbol = (torch.split(torch.cat(parts), sizes) for parts in zip(*results, strict=True))
        sentences = torch.split(draft.sentence[real], sizes)
        for output, hidden_TD, sentence_T, log_p_T, symbol_T in zip(
            outputs, hidden, sentences, log_p, symbol, strict=True
        ):
            if not bool(log_p_T.isfinite().all()):
                raise CotextError(
                    "the model's output is not a number; check the model with the loss on known text"
                )
            frames: dict[int, list[int]] = {}
            for i, k in enumerate(sentence_T.tolist()):
                frames.setdefault(k, []).append(i)
            row = _Row(output, hidden_TD, frames, symbol_T.tolist(), log_p_T.tolist())
            if self.model.path == "sentences":
                # Brackets are known: the first and last frames of a sentence are not searched.
                for own in frames.values():
                    row.symbol[own[0]], row.symbol[own[-1]] = special.bos, special.eos
                    row.log_p[own[0]] = row.log_p[own[-1]] = 0.0
            yield row

    def hypothesis(self, row: _Row, request: SearchRequest) -> Hypothesis:
        """Return the hypothesis of a row, with a text for every requested sentence."""
        special = self.symbols.special
        texts = self._texts(row, request)
        tokens: list[int] = []
        log_p: list[float] = []
        truncated = []
        for k, (text, limit) in enumerate(zip(texts, request.max_tokens, strict=True)):
            own = text.within(limit - 1)
            if self.without_content.issuperset(own.tokens):
                own = self._content_token(row, k)
            tokens += own.tokens
            log_p += [*own.log_p, own.rest]
            if len(own.tokens) + 1 == limit:
                truncated.append(len(tokens))
            tokens.append(special.separator(k))
        tokens.pop()  # hypotheses do not contain the last `eos`
        total = sum(log_p)
        score = total / self.options.divisor(len(tokens) + 1)
        hypothesis = Hypothesis(tokens, log_p, total, score, tuple(truncated))
        return hypothesis if self.options.scored else hypothesis.unscored()

    def _texts(self, row: _Row, request: SearchRequest) -> list[_Text]:
        """Return the text of every requested sentence."""
        if self.model.path != "sentences":
            return self._recovered(row, request.sentences)
        non_content = {*self.non_content, self.symbols.special.eos}
        texts = []
        for k in range(request.sentences):
            here = row.frames(k)
            path = [row.symbol[i] for i in here], [row.log_p[i] for i in here]
            texts.append(collapse(*path, non_content))
        return texts

    def _recovered(self, row: _Row, count: int) -> list[_Text]:
        """Return the sentences of a row, divided at the `eos` symbols that the model wrote."""
        special = self.symbols.special
        whole = collapse(row.symbol, row.log_p, self.non_content, repeats=self.model.path == "row")
        labels, log_p = whole.tokens, whole.log_p
        if not labels or labels[-1] != special.eos:
            labels.append(special.eos)
            log_p.append(0.0)
        log_p[-1] += whole.rest
        texts = [_Text() for _ in range(count)]
        owners = recover(labels, special, count).sentence
        for k, label, probability in zip(owners, labels, log_p, strict=True):
            if label == special.eos:
                texts[k].rest += probability
            else:
                texts[k].tokens.append(label)
                texts[k].log_p.append(probability)
        return texts

    def _content_token(self, row: _Row, k: int) -> _Text:
        """Return the content token that lowers the probability of sentence k least, as its only token.

        The other frames of the path do not change.
        """
        here = row.frames(k)
        if self.model.path == "sentences":
            here = here[1:-1]
        before, _ = self._best(row.output, row.hidden[here], self.forbidden)
        log_p, word = self._best(row.output, row.hidden[here], self.without_content)
        # The frame at which a content token costs least compared with the best symbol.
        at = int((log_p - before).argmax())
        if not bool(log_p[at].isfinite()):
            raise CotextError("the vocabulary contains only blanks; there is nothing to write")
        others = float(before.sum() - before[at])
        return _Text([int(word[at])], [float(log_p[at])], others)

    def _best(
        self, output: OutputLayer, hidden_ND: Tensor, forbidden: Collection[int], scored: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability and symbol of the best allowed symbol of every frame, [N] each.

        If not `scored`, return logits instead of log-probabilities.
        """
        columns, results = output.columns(torch.tensor(sorted(forbidden), device=hidden_ND.device)), []
        for chunk in torch.split(hidden_ND, CHUNK):
            log_p_NU = output.log_probabilities(chunk) if scored else output.logits(chunk)
            results.append(best_column(log_p_NU.index_fill_(1, columns, -torch.inf)))
        log_p, column = (torch.cat(result).squeeze(1) for result in zip(*results, strict=True))
        return log_p, output.tokens(column)


def collapse(
    path: Sequence[int], log_p: Sequence[float], non_content: Collection[int], repeats: bool = True
) -> _Text:
    """Collapse a path to tokens: `repeats` of a symbol are one token, `non_content` symbols are removed."""
    text, before = _Text(), None
    for symbol, probability in zip(path, log_p, strict=True):
        if symbol in non_content:
            text.rest += probability
        elif repeats and symbol == before:
            text.log_p[-1] += probability
        else:
            text.tokens.append(symbol)
            text.log_p.append(text.rest + probability)
            text.rest = 0.0
        before = symbol
    return text
