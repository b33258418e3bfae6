"""Likelihoods of the current sentences of a batch, for all kinds of models, and the output layer in search.

Shapes: B rows; T tokens, or frames of a non-autoregressive decoder; N labels or frames of all rows,
concatenated without padding; D model dimension; V vocabulary size.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from cotext.data.batch import Batch, bracketed_targets
from cotext.layers.kernels.common import precise
from cotext.losses.cross_entropy import output_loss
from cotext.losses.ctc import beginnings, ctc_scores, fits, units
from cotext.models.checkpoint import output_logits, output_of
from cotext.models.interface import Draft, Model, NonAutoregressiveModel, TranslationModel
from cotext.models.language_model import WithLanguageModel

CHUNK = 512  # labels whose logits are in memory at a time


@dataclass(frozen=True, slots=True)
class ForcedPass:
    """A batch with an encoded source and given targets, ready to decode (teacher forcing).

    `sentence` [B, T]: sentence index of every token or position, -1 on padding. `decode` runs the decoder and
    returns the hidden states [B, T, D].
    """

    sentence: Tensor
    decode: Callable[[], Tensor]


def autoregressive_pass(model: TranslationModel, batch: Batch) -> ForcedPass:
    """Return a forced pass whose decoder inputs are the target."""
    state = model.encode(batch.source)
    decode = partial(model.decode, batch.target_input, batch.input_sentence, state)
    return ForcedPass(batch.input_sentence, decode)


def forced_draft(model: NonAutoregressiveModel, batch: Batch) -> tuple[Draft, Tensor, Tensor]:
    """Encode a batch with its target; return the draft (its decoder positions) and `bracketed_targets`."""
    tokens, sentence = bracketed_targets(batch)
    lengths = (sentence >= 0).sum(dim=1) if model.path == "length" else None
    return model.encode(batch.source, lengths), tokens, sentence


def parallel_pass(model: NonAutoregressiveModel, batch: Batch) -> ForcedPass:
    """Return a forced pass that decodes all positions in parallel."""
    draft, *_ = forced_draft(model, batch)
    return ForcedPass(draft.sentence, partial(model.decode, draft))


def sentence_of_label(batch: Batch) -> Tensor:
    """Return, for every current label, the index of its sentence among all current sentences: [N]."""
    counts = batch.source.current[:, 1] - batch.source.current[:, 0]
    first = counts.cumsum(dim=0) - counts
    current = batch.is_current
    row_N, _ = current.nonzero(as_tuple=True)
    return first[row_N] + batch.label_sentence[current] - batch.source.current[row_N, 0]


def negative_log_likelihood(model: Model, hidden_ND: Tensor, label_N: Tensor) -> Tensor:
    """Return negative log-likelihoods of labels, given their hidden states: [N]."""
    if isinstance(model, WithLanguageModel):
        rows = zip(model.terms(), model.split(hidden_ND), strict=True)
        terms = [sign * negative_log_likelihood(term, row_ND, label_N) for (term, sign), row_ND in rows]
        return torch.stack(terms).sum(dim=0)
    if model.int8_output is not None:
        parts = zip(torch.split(hidden_ND, CHUNK), torch.split(label_N, CHUNK), strict=True)
        nll = [cross_entropy(output_logits(model, h), label, reduction="none") for h, label in parts]
        return torch.cat(nll) if nll else hidden_ND.new_empty(0)
    # The loss kernel computes logits in chunks, so that they are never all in memory.
    ones = torch.ones_like(label_N).to(hidden_ND.dtype)
    _, nll_N, _ = output_loss(hidden_ND, model.output_weight, label_N, ones, 0.0, bias_V=model.output_bias)
    return nll_N


def label_nll(model: TranslationModel, batch: Batch) -> Tensor:
    """Return negative log-likelihoods of the labels of current sentences, one row after the other: [N]."""
    hidden_BTD = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    label_N = batch.target_label[batch.is_current]
    return negative_log_likelihood(model, hidden_BTD[batch.is_current], label_N)


def sentence_sums(batch: Batch, nll_N: Tensor) -> Tensor:
    """Sum the values of current labels by sentence, in float64."""
    counts = batch.source.current[:, 1] - batch.source.current[:, 0]
    nll = torch.zeros(int(counts.sum()), dtype=torch.float64, device=batch.source.tokens.device)
    return nll.index_add_(0, sentence_of_label(batch), nll_N.double())


def non_autoregressive_nll(model: NonAutoregressiveModel, batch: Batch) -> Tensor:
    """Return negative log-likelihoods of all sentences of all rows, in order; all must be current.

    With one CTC path per sentence, the likelihood sums over all alignments of the text. The value is infinite
    if the text has too many labels for its frames. Other models (`NonAutoregressiveModel.path`) have only one
    likelihood per row, which is divided equally among the row's sentences. So, whichever sentences are
    selected, their sum ranks two versions of a row in the same order.
    """
    draft, tokens, sentence = forced_draft(model, batch)
    real = draft.sentence >= 0
    hidden_ND = model.decode(draft)[real]
    sentences = sentence.max(dim=1).values + 1
    if model.path == "length":
        label_N = tokens[sentence >= 0]
        nll_N = negative_log_likelihood(model, hidden_ND, label_N)
        row_N = real.nonzero()[:, 0]
        nll = torch.zeros(len(sentences), dtype=torch.float64, device=row_N.device)
        nll = nll.index_add_(0, row_N, nll_N.double()) + model.length_nll(draft).double()
    else:
        batch_units = units(model.path, draft.sentence, tokens, sentence)
        nll = ctc_scores(hidden_ND, partial(output_logits, model), batch_units, model.blank).double()
        nll = nll.masked_fill(~fits(batch_units, model.blank), math.inf)
    return nll if model.path == "sentences" else (nll / sentences).repeat_interleave(sentences)


def path_token_nll(model: NonAutoregressiveModel, batch: Batch) -> Tensor:
    """Return negative log-likelihoods of labels given those before them in their sentence: [N].

    Only for models with one CTC path per sentence. The sum over a sentence is its likelihood over all
    alignments. Values are infinite if the text has too many labels. The order is that of `label_nll`.
    """
    draft, tokens, sentence = forced_draft(model, batch)
    hidden_ND = model.decode(draft)[draft.sentence >= 0]
    batch_units = units(model.path, draft.sentence, tokens, sentence)
    begins, whole = beginnings(hidden_ND, partial(output_logits, model), batch_units, model.blank)
    place = torch.arange(batch_units.target.size(1), device=tokens.device)
    end = place == batch_units.target_length[:, None] - 1
    log_p = torch.where(end, whole[:, None], begins)
    nll = (log_p[:, :-1] - log_p[:, 1:]).masked_fill(~fits(batch_units, model.blank)[:, None], math.inf)
    # The first label, the bracket that opens a sentence, is not predicted.
    return nll[batch_units.is_label[:, 1:]]


# --- Output layer in search, over the full vocabulary or over the shortlists of its rows.
#
# All rows of a batch use the same output columns: the union of their shortlists. So one matrix product
# computes all logits. A token that is not in a row's own list gets probability 0 in this row. The translation
# of a document therefore depends only on its own lists, whatever the batch contains. Log-probabilities are
# normalised over the tokens of the row's own list.
#
# With a language model (`models/language_model.py`), the value of a token is the signed sum of three
# log-probabilities, which are computed in three rows.
#
# Shapes: B entries (searched rows), W beam size, R = B * W hypotheses, N states, D model dimension, V
# vocabulary size, U columns: the full vocabulary, or the union of the shortlists.


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
