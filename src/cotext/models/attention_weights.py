"""Attention weights of given translations, by sentence, and the tokens of a batch identified in them.

    autoregressive      the cross-attention of the decoder step that writes a target token
    non-autoregressive  the cross-attention of the positions that the best CTC path assigns to the token

Shapes of the attention of a batch: B rows, H heads, T queries or tokens, S keys. Shapes of a sentence: T
target tokens, F queries, S source tokens. B' and T' are the rows and places of a recorded attention, which
may have another layout.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from cotext.data.batch import Batch, Instance, Source, SpecialSymbols
from cotext.layers.ctc import Lattices, best_alignment, units
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import CrossAttention
from cotext.layers.positions import is_current
from cotext.models.interface import NonAutoregressiveModel
from cotext.models.likelihood import RowsToRead, autoregressive_pass, forced_draft
from cotext.runtime import CotextError

NOWHERE: Final = -1  # index of a key that is not a token of a row
# Decoder layers whose attention is read, counted from the last. These have the lowest alignment error on
# development documents of the controlled corpus, over systems of two and three layers
# (docs/results/sentences-and-files.md).
LAYERS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens of one side of a batch, with their sentences; extra tokens belong to no sentence."""

    sentence: Tensor  # [B, T] within the row, -1 on padding
    document: Tensor  # [B, T] within the document
    current: Tensor  # [B, T], True for tokens of current sentences

    @classmethod
    def of(cls, source: Source, extra: int, sentence_BT: Tensor) -> "RowTokens":
        """Create from the sentence of each token within its row, -1 on padding; `extra`: tokens in front."""
        sentence = torch.cat((sentence_BT[:, :extra], sentence_BT), dim=1)
        document = torch.where(sentence >= 0, sentence + source.first_sentence[:, None], NOWHERE)
        document[:, :extra] = NOWHERE
        return cls(sentence, document, is_current(sentence, source.current))

    def places(self, shown: Tensor) -> Tensor:
        """Return the index of the token at each place of an attention: [B', T'].

        `shown` [B', T'] is True for places that are not padding; tokens are in order. An attention may have
        all tokens of the rows, or only those of current sentences; and all rows may be joined to one.

        Raises CotextError if the number of places fits none of these layouts.
        """
        real = self.sentence >= 0
        place = torch.arange(real.numel(), device=real.device).view_as(real)
        counts, token_of_place = shown.sum(dim=1), torch.full(shown.shape, NOWHERE, device=shown.device)
        for tokens in (real, self.current):
            if torch.equal(counts, tokens.sum(dim=1)) or (len(counts) == 1 and counts == tokens.sum()):
                token_of_place[shown] = place[tokens]
                return token_of_place
        raise CotextError(
            f"attention over rows of {counts.tolist()} tokens, but the rows of the batch have "
            f"{real.sum(dim=1).tolist()}: their sentences cannot be identified"
        )

    def sentences(self, index: Tensor, counted: Tensor) -> Tensor:
        """Return the sentence, in the document, of each token; NOWHERE if it is not `counted` [B, T]."""
        sentences = torch.where(counted, self.document, NOWHERE).flatten()
        return torch.where(index >= 0, sentences[index.clamp(min=0)], NOWHERE)


def token_indices(weights_BHTS: Tensor, real_BT: Tensor, own: RowTokens, keys: RowTokens) -> TokenIndices:
    """Identify the tokens of an attention by its weights; raise the same errors as `places`."""
    visible = (weights_BHTS > 0) & real_BT[:, None, :, None]
    return TokenIndices(own.places(real_BT), keys.places(visible.any(dim=2).any(dim=1)))


def distributions(weights: Tensor) -> Tensor:
    """Scale the rows of weights to a sum of one, except for rows of zeros."""
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


@torch.inference_mode()
def attention_of(rows: RowsToRead) -> list[list[Tensor]]:
    """Return the weights of the current sentences of every row, [T, S] each: see `scorer.Reading`."""
    weights: list[list[Tensor]] = [[] for _ in rows.instances]
    read = _read_parallel if isinstance(rows.model, NonAutoregressiveModel) else _read_forced
    model: Any = rows.model
    for members, batch in rows.batches():
        sentences = _sentences([rows.instances[i] for i in members], batch, rows.symbols, model.extra_tokens)
        read(model, batch, sentences)
        for sentence in sentences:
            weights[members[sentence.row]].append(distributions(sentence.weights.cpu()))
    return weights


@dataclass(slots=True)
class _Sentence:
    """A current sentence of a row: the indices of its source tokens and labels in `RowTokens`.

    `queries` [F]: indices of the positions whose attention is read. `weights` [F, S]: sum of their attention
    over the layers so far.
    """

    row: int
    index: int
    source: Tensor  # [S]
    labels: Tensor  # [T]
    queries: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    weights: Tensor = field(default_factory=lambda: torch.empty(0))

    def set_queries(self, queries: Tensor) -> None:
        """Set the queries whose attention is read."""
        self.queries = queries
        shape = len(queries), len(self.source)
        self.weights = torch.zeros(shape, dtype=torch.float64, device=queries.device)


def _sentences(
    instances: Sequence[Instance], batch: Batch, symbols: SpecialSymbols, extra: tuple[int, int]
) -> list[_Sentence]:
    """Return the current sentences of the rows of a batch, in order; `extra`: see `System.extra_tokens`."""
    source, widths = batch.source, (batch.source.tokens.size(1), batch.label_sentence.size(1))
    # Special symbols get no weight.
    is_subword = symbols.are_subwords(source.tokens)
    sentences = []
    for row, instance in enumerate(instances):
        for j in instance.window.current:
            k = j - instance.window.source.start
            source_tokens = ((source.sentence[row] == k) & is_subword[row]).nonzero()[:, 0]
            labels = (batch.label_sentence[row] == k).nonzero()[:-1, 0]  # without the closing symbol
            firsts = (front + row * (front + width) for front, width in zip(extra, widths, strict=True))
            sentences.append(_Sentence(row, k, source_tokens + next(firsts), labels + next(firsts)))
    return sentences


def _read_forced(model: Any, batch: Batch, sentences: Sequence[_Sentence]) -> None:
    """Read, with teacher forcing, the attention of the query that predicts each label."""
    for sentence in sentences:
        sentence.set_queries(sentence.labels)
    forced, source = autoregressive_pass(model, batch), batch.source
    of_both = zip(model.extra_tokens, (source.sentence, forced.sentence), strict=True)
    keys, own = (RowTokens.of(source, extra, sentence) for extra, sentence in of_both)
    with _watched(model, partial(_gather, (own, keys), sentences)):
        forced.decode()


def _read_parallel(model: NonAutoregressiveModel, batch: Batch, sentences: Sequence[_Sentence]) -> None:
    """Read the attention of all positions; a token gets the mean over its positions on the best CTC path."""
    draft, tokens, sentence = forced_draft(model, batch)
    real, aligned = draft.sentence >= 0, model.path == "sentences"
    for one in sentences:
        here = draft.sentence[one.row] == one.index if aligned else real[one.row]
        one.set_queries(here.nonzero()[:, 0] + one.row * real.size(1))
    own = RowTokens.of(batch.source, 0, draft.sentence)
    keys = RowTokens.of(batch.source, 0, batch.source.sentence)
    with _watched(model, partial(_gather, (own, keys), sentences)):
        hidden_ND = model.decode(draft)[real]
    path = torch.full_like(draft.sentence, -1)
    if model.path == "length":
        # There are no blanks. Every position gets a different symbol, so it counts as a separate token.
        path[real] = model.blank + 1 + torch.arange(len(hidden_ND), device=path.device)
    else:
        batch_units = units(model.path == "sentences", draft.sentence, tokens, sentence)
        lattices = Lattices.of(batch_units, model.blank, hidden_ND.size(1))
        path[real] = best_alignment(hidden_ND, model.output_weight, lattices)
    for one in sentences:
        symbols_F = path.flatten()[one.queries]
        begins = (symbols_F >= 0) & (symbols_F != model.blank)
        begins[1:] &= symbols_F[1:] != symbols_F[:-1]
        token = begins.cumsum(dim=0) - 1  # index of the token in the unit
        token[symbols_F == model.blank] = -1
        places = (sentence[one.row] == one.index).nonzero()[1:-1, 0]  # without bos, eos
        token_index = torch.arange(1, len(places) + 1, device=path.device) if aligned else places
        is_token = (token == token_index[:, None]).double()
        one.weights = is_token / is_token.sum(dim=1, keepdim=True).clamp(min=1.0) @ one.weights


@contextmanager
def _watched(
    model: nn.Module, watcher: Callable[[Tensor, Tensor, TokenIndices | None], None]
) -> Iterator[None]:
    """Pass the cross-attention of the decoder layers `LAYERS` to `watcher`."""
    decoder = model.get_submodule("decoder")
    assert isinstance(decoder, nn.ModuleList)
    blocks = list(decoder)[::-1]
    chosen = (module for layer in LAYERS if layer < len(blocks) for module in blocks[layer].modules())
    with ExitStack() as hooks, ExitStack() as recording:  # recording: while one of these attentions runs
        for module in chosen:
            if isinstance(module, CrossAttention):
                begin = module.register_forward_pre_hook(
                    lambda *_: recording.enter_context(watch_weights(watcher))
                )
                hooks.callback(begin.remove)
                hooks.callback(module.register_forward_hook(lambda *_: recording.close()).remove)
        yield


def _gather(
    sides: tuple[RowTokens, RowTokens],
    sentences: Sequence[_Sentence],
    weights_BHTS: Tensor,
    real_BT: Tensor,
    places: TokenIndices | None,
) -> None:
    """Add the weights of one attention, averaged over heads, to the weights of the sentences."""
    places = places or token_indices(weights_BHTS, real_BT, *sides)
    mean_BTS = weights_BHTS.mean(dim=1)
    # The place of each query of the batch in the recorded weights.
    shown_N = mean_BTS.new_full(sides[0].sentence.shape, NOWHERE, dtype=torch.long).flatten()
    shown = places.query >= 0
    shown_N[places.query[shown]] = torch.arange(shown.numel(), device=shown.device).view_as(shown)[shown]
    # The column of each key in the current sentence; reset after each sentence.
    column = torch.full_like(sides[1].sentence.flatten(), NOWHERE)
    for sentence in sentences:
        at = shown_N[sentence.queries]
        row, place = at // mean_BTS.size(1), at % mean_BTS.size(1)
        rank = torch.arange(len(sentence.source), device=column.device)
        column[sentence.source] = rank
        key_FS = places.key[row]
        # Keys outside the sentence are added to one more column, which is dropped.
        to_FS = torch.where(key_FS >= 0, column[key_FS.clamp(min=0)], NOWHERE)
        column[sentence.source] = NOWHERE
        gathered = sentence.weights.new_zeros(len(at), len(sentence.source) + 1)
        gathered.scatter_add_(1, to_FS % gathered.size(1), mean_BTS[row, place])
        sentence.weights += torch.where((at >= 0)[:, None], gathered[:, :-1], 0.0)
