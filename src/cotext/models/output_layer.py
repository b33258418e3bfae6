"""The output layer of a model: logits of all symbols or of shortlists, and the best columns of every row.

All rows of a batch use the same output columns: the union of their shortlists. So one matrix product
computes all logits. A token that is not in a row's own list gets probability 0 in this row. The translation
of a document therefore depends only on its own lists, whatever the batch contains. Log-probabilities are
normalised over the tokens of the row's own list.

With a language model (`models/language_model.py`), the value of a token is the signed sum of three
log-probabilities, which are computed in three rows.

Shapes: B entries (searched rows), W beam size, R = B * W hypotheses, N states, D model dimension, V
vocabulary size, U columns: the full vocabulary, or the union of the shortlists.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from cotext.layers.kernels.common import precise
from cotext.models.interface import Model
from cotext.models.language_model import WithLanguageModel


def output_logits(model: Model, hidden_ND: Tensor) -> Tensor:
    """Return the logits of all symbols, in int8 without gradients: [N, D] -> [N, V]."""
    if model.int8_output is None:
        return linear(hidden_ND, model.output_weight, model.output_bias)
    logits_NV: Tensor = model.int8_output(hidden_ND)
    return logits_NV


def output_of(model: Model, symbols_U: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the output layer of only some symbols, without gradients: [N, D] -> [N, U]."""
    if model.int8_output is not None:
        return model.int8_output.of(symbols_U)
    bias_U = None if model.output_bias is None else model.output_bias.detach()[symbols_U]
    return partial(linear, weight=model.output_weight.detach()[symbols_U], bias=bias_U)


class OutputLayer:
    """The output layer of a model for the rows of a search.

    `shortlists`: for each entry, the allowed tokens in ascending order. Without shortlists, all items are
    None, and every token is allowed. `always`: tokens that are added to every list.
    """

    def __init__(self, model: Model, shortlists: Sequence[Tensor | None], always: Iterable[int]) -> None:
        self._model = model
        self.vocabulary = len(model.output_weight)
        self._product: Callable[[Tensor], Tensor] = self._whole
        self._terms: list[tuple[OutputLayer, int]] = []
        if isinstance(model, WithLanguageModel):
            self._terms = [(OutputLayer(term, (), ()), sign) for term, sign in model.terms()]
            self._product = self._sum
        self._tokens: Tensor | None = None
        self._column: Tensor | None = None
        self._outside: Tensor | None = None
        given = [tokens for tokens in shortlists if tokens is not None]
        if given:
            assert len(given) == len(shortlists), "either all rows have a shortlist, or none has"
            self._restrict(given, torch.tensor(sorted(set(always))))

    def _restrict(self, shortlists: Sequence[Tensor], always: Tensor) -> None:
        device = self._model.output_weight.device
        inside = torch.zeros(len(shortlists), self.vocabulary, dtype=torch.bool)
        inside[:, always] = True
        for row, tokens in zip(inside, shortlists, strict=True):
            row[tokens] = True
        # The columns are the union of all lists; each row masks those that are not in its own.
        tokens = inside.any(dim=0).nonzero().flatten()
        outside = ~inside[:, tokens]
        column = torch.full((self.vocabulary,), -1)
        column[tokens] = torch.arange(len(tokens))
        self._tokens, self._column = tokens.to(device), column.to(device)
        self._outside = outside.to(device) if bool(outside.any()) else None
        self._product = output_of(self._model, self._tokens)

    @property
    def values_may_be_positive(self) -> bool:
        """Whether values of tokens may be above 0, so that a longer hypothesis may have a better score."""
        return bool(self._terms)

    @property
    def has_full_vocabulary(self) -> bool:
        """Whether the columns are the full vocabulary, so that the column of a token is its id."""
        return self._tokens is None

    def columns(self, tokens: Tensor) -> Tensor:
        """Return the columns of tokens; tokens without a column are skipped."""
        if self._column is None:
            return tokens
        columns = self._column[tokens]
        return columns[columns >= 0]

    def tokens(self, columns: Tensor) -> Tensor:
        return columns if self._tokens is None else self._tokens[columns]

    def select(self, entries: Tensor) -> None:
        if self._outside is not None:
            self._outside = self._outside.index_select(0, entries)

    def log_probabilities(self, hidden_ND: Tensor) -> Tensor:
        """Return log-probabilities of the next token, [N, U]. Beams of an entry are consecutive rows."""
        logits_NU = self.logits(hidden_ND)
        if self._terms:
            return logits_NU
        # In place: new memory of this size would be mapped page by page in every step.
        return torch.log_softmax(logits_NU, dim=1, out=logits_NU)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Return log-probabilities plus an unknown constant per row; the best column is the same."""
        logits_NU = self._product(hidden_ND)
        if self._outside is not None:
            beams_BWU = logits_NU.view(len(self._outside), -1, logits_NU.size(1))
            beams_BWU.masked_fill_(self._outside[:, None], -torch.inf)
        return precise(logits_NU)

    def _sum(self, hidden_ND: Tensor) -> Tensor:
        """Return the signed sum of the log-probabilities of the three rows; it is not a log-probability."""
        assert isinstance(self._model, WithLanguageModel)
        rows = zip(self._terms, self._model.split(hidden_ND), strict=True)
        return torch.stack([sign * layer.log_probabilities(row) for (layer, sign), row in rows]).sum(dim=0)

    def _whole(self, hidden_ND: Tensor) -> Tensor:
        model, device = self._model, hidden_ND.device.type
        if model.int8_output is not None or device != "cpu" or not 4 <= hidden_ND.size(0) < 16:
            return output_logits(model, hidden_ND)
        # For so few rows, torch re-packs the full matrix in memory. In parts that fit into the cache (half a
        # megabyte), the product is 1.2 to 2.4 times as fast.
        part_size = max(1, 2**17 // hidden_ND.size(1))
        parts = [linear(hidden_ND, part) for part in torch.split(model.output_weight, part_size)]
        logits_NV = torch.cat(parts, dim=1)
        if model.output_bias is not None:
            logits_NV += model.output_bias
        return logits_NV


# --- The best columns of the output layer for every row: `max` and `topk`, but faster on a CPU.
#
# Shapes: R rows, U columns, N blocks of columns, S columns of a block, C best blocks.


BLOCK_TOKENS = 64  # columns of a block
FEW_VALUES = 2**16  # below this number of values, blocks are not faster


def best_column(values_RU: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest value of every row, the first of equal values, and its column: [R, 1] each.

    `max` tracks a column for every value that it reads, which is slow. Here, this is done only for the maxima
    of blocks and for the values of one block.
    """
    size = BLOCK_TOKENS
    blocks = values_RU.size(1) // size
    if values_RU.device.type != "cpu" or values_RU.numel() < FEW_VALUES or blocks == 0:
        return values_RU.max(dim=1, keepdim=True)
    blocks_RNS = values_RU[:, : blocks * size].view(-1, blocks, size)
    # The largest value is in the block with the largest maximum, or in the incomplete last block.
    block = blocks_RNS.amax(dim=2).argmax(dim=1, keepdim=True)
    in_best = blocks_RNS.gather(1, block[:, :, None].expand(-1, -1, size)).flatten(1)
    best, at = torch.cat([in_best, values_RU[:, blocks * size :]], dim=1).max(dim=1, keepdim=True)
    return best, at + size * torch.where(at < size, block, blocks - 1)


def best_columns(values_RU: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of every row, in descending order, and their columns: [R, count] each.

    `topk` is among the slowest steps of a beam on a CPU. The largest values are in the blocks with the
    largest maxima, so that most blocks are read only once. The order of equal values may
    differ from that of `topk`.
    """
    size = BLOCK_TOKENS
    blocks = values_RU.size(1) // size
    if values_RU.device.type != "cpu" or blocks < 4 * count:
        return values_RU.topk(count, dim=1)
    blocks_RNS = values_RU[:, : blocks * size].view(-1, blocks, size)
    best_RC = blocks_RNS.amax(dim=2).topk(count, dim=1, sorted=False).indices
    in_best = blocks_RNS.gather(1, best_RC[:, :, None].expand(-1, -1, size)).flatten(1)
    rest = values_RU[:, blocks * size :]
    best, at = torch.cat([in_best, rest], dim=1).topk(count, dim=1)
    block = best_RC.gather(1, (at // size).clamp(max=count - 1))
    return best, torch.where(at < count * size, block * size + at % size, at - count * size + blocks * size)
