"""Likelihoods of the current sentences of a batch, for all kinds of models.

Shapes: B rows; T tokens, or frames of a non-autoregressive decoder; N labels or frames of all rows,
concatenated without padding; D model dimension; V vocabulary size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cotext.data.batch import Batch, Instance, SpecialSymbols, bracketed_targets, make_batch, pack
from cotext.layers.ctc import beginnings, ctc_scores, fits, units
from cotext.layers.kernels.output_loss import output_loss
from cotext.models.interface import Draft, Engine, Model, NonAutoregressiveModel, TranslationModel
from cotext.models.language_model import WithLanguageModel
from cotext.models.output_layer import output_logits

CHUNK = 512  # labels whose logits are in memory at a time


@dataclass(frozen=True, slots=True)
class RowsToRead:
    """Rows to read in batches with a model, which must be in eval mode.

    `groups`: the rows, by index, that must share a batch; None: no restriction.
    """

    model: Model | Engine
    instances: Sequence[Instance]
    symbols: SpecialSymbols
    max_tokens: int
    device: torch.device
    groups: Sequence[Sequence[int]] | None = None

    def batches(self) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches, each with the indices of its rows."""
        lengths = [(i.row_tokens(self.symbols), i.source_tokens(self.symbols)) for i in self.instances]
        groups = [[i] for i in range(len(lengths))] if self.groups is None else self.groups
        # Rows of similar length share a batch, which limits padding.
        together = sorted(groups, key=lambda group: max(lengths[i] for i in group))
        rows = [[lengths[i][0] for i in group] for group in together]
        for packed in pack(rows, self.max_tokens):
            members = [i for g in packed for i in together[g]]
            yield members, make_batch([self.instances[i] for i in members], self.symbols).to(self.device)


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


def forced_pass(model: Model, batch: Batch) -> ForcedPass:
    """Return the forced pass of a model of any type."""
    if isinstance(model, NonAutoregressiveModel):
        return parallel_pass(model, batch)
    return autoregressive_pass(model, batch)


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
        batch_units = units(model.path == "sentences", draft.sentence, tokens, sentence)
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
    batch_units = units(model.path == "sentences", draft.sentence, tokens, sentence)
    begins, whole = beginnings(hidden_ND, partial(output_logits, model), batch_units, model.blank)
    place = torch.arange(batch_units.target.size(1), device=tokens.device)
    end = place == batch_units.target_length[:, None] - 1
    log_p = torch.where(end, whole[:, None], begins)
    nll = (log_p[:, :-1] - log_p[:, 1:]).masked_fill(~fits(batch_units, model.blank)[:, None], math.inf)
    # The first label, the bracket that opens a sentence, is not predicted.
    return nll[batch_units.is_label[:, 1:]]
