"""Training losses: sums over labels, and values to report.

Glancing (Qian et al. 2021; Yu et al. 2024, section 3) trains non-autoregressive models. A first decoding
pass, without gradients, predicts a token or blank for every frame (position of the decoder).
Some tokens of the most probable path to the target, chosen at random, are revealed at the decoder's input.
The more predictions differ from this path, the more are revealed. The loss is computed in a second pass:

    revealed frames of a sequence = ratio * frames in which prediction and path differ
    loss                          = -log P(target), over all paths              with paths
                                    mean cross-entropy of frames not revealed   without: one frame per token

The ratio decreases linearly during training. Nothing is revealed in validation.

Shapes: B sequences, T labels or frames, N labels, or frames of all sequences without padding, one sequence
after the other, G units, D model, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from cotext.config.recipe import LossConfig
from cotext.data.batch import Batch, Labels, bracketed_targets
from cotext.layers.ctc import Lattices, best_alignment, ctc_loss, fits, units
from cotext.layers.embedding import glanced
from cotext.layers.kernels.common import Packing
from cotext.layers.kernels.output_loss import output_loss
from cotext.models.interface import NonAutoregressiveModel, TranslationModel

CHUNK = 1024  # frames whose logits are in memory at a time
MARGIN = 1.0  # nats by which a sentence is to be more probable in true than in foreign context


@dataclass(frozen=True, slots=True)
class LossParts:
    """A summed loss, the number of labels it is summed over, and named sums to report.

    Each entry of `parts` is a pair: a sum, and the count to divide it by.
    """

    loss: Tensor
    count: Tensor
    parts: Mapping[str, tuple[Tensor, Tensor]]


class Loss(Protocol):
    """A training loss: (model, batch, share of the training done) -> sum, count, named parts.

    The combination of model and loss is checked when the model is built.
    """

    def laid_out(self, model: Any, batch: Batch, training: bool) -> Batch:
        """Return the batch with all index tensors that model and loss need, such as layouts.

        All tensors are made on the device of the batch, and `Batch.to` moves them with it.
        """

    def __call__(self, model: Any, batch: Batch, done: float = 0.0) -> LossParts:
        """Return the summed loss of a batch; the trainer divides it by the total count."""


class CrossEntropy:
    """loss = context_discount * (context labels) + (current labels), Lupo et al. 2022, equation 2.

    The separator that closes a context sentence is a context label. The count is the number of all labels,
    without discount, so a discount of 1 gives exactly the plain loss. The paper does not specify the count.

    `foreign_weight` adds a hinge loss on true against foreign context (contrastive context regularisation,
    Hwang et al. 2021), for sentences that a batch also has in the context of another document. The hinge is
    per sentence: few words depend on context, and foreign context need not make the other words less likely.
    """

    def __init__(self, label_smoothing: float, context_discount: float, foreign_weight: float = 0.0) -> None:
        self.label_smoothing = label_smoothing
        self.context_discount = context_discount
        self.foreign_weight = foreign_weight

    def laid_out(self, model: TranslationModel, batch: Batch, training: bool) -> Batch:
        """See `Loss`."""
        layouts = model.layouts(batch.source, batch.input_sentence, training)
        batch = replace(batch, source=replace(batch.source, layouts=layouts))
        batch.labels = Labels.of(batch)
        if batch.foreign is not None:
            batch.foreign = self.laid_out(model, batch.foreign, training)
        return batch

    def __call__(self, model: TranslationModel, batch: Batch, done: float = 0.0) -> LossParts:
        """Return the loss with the parts `nll_current` and `nll_context`, without smoothing or discount.

        A third part, `undiscounted`, is the smoothed loss of all labels without discount.
        """
        labels, hidden_ND = batch.labels, _hidden(model, batch)
        factor_N = torch.where(labels.is_current, 1.0, self.context_discount)
        loss, nll_N, smoothed_N = output_loss(
            hidden_ND,
            model.output_weight,
            labels.token,
            factor_N,
            self.label_smoothing,
            bias_V=model.loss_bias,
        )
        parts = {
            name: (nll_N[which].sum(), torch.full((), which.numel(), device=which.device))
            for name, which in (("nll_current", labels.current), ("nll_context", labels.context))
        }
        count = torch.full((), labels.count, device=labels.index.device)
        parts["undiscounted"] = smoothed_N.sum(), count
        if batch.foreign is not None:
            chosen = labels.examined
            hinge, parts["true_minus_foreign"] = _foreign_loss(
                model, batch.foreign, hidden_ND[chosen], labels.token[chosen], nll_N[chosen]
            )
            loss = loss + self.foreign_weight * hinge
        return LossParts(loss=loss, count=count, parts=parts)


def _hidden(model: TranslationModel, batch: Batch) -> Tensor:
    """Return the last hidden states of all labels: [N, D]."""
    state = model.encode(batch.source)
    hidden_BTD = model.decode(batch.target_input, batch.input_sentence, state)
    return hidden_BTD.flatten(0, 1).index_select(0, batch.labels.index)


def _foreign_loss(
    model: TranslationModel, foreign: Batch, true_CD: Tensor, label_C: Tensor, true_nll_C: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the summed hinge loss, and the summed gain of true over foreign context with the number of rows.

    `true_CD`: hidden states, in true context, of the C labels of the sentences examined in `foreign`. Rows
    without context do not count, nor does the symbol that ends a sentence if it differs between the rows.
    """
    weight, bias, labels = model.output_weight, model.loss_bias, foreign.labels
    foreign_CD = _hidden(model, foreign)[labels.examined]
    row_C = labels.index[labels.examined] // foreign.label_sentence.size(1)
    has_context = foreign.source.sentence.amax(1) > 0
    with torch.no_grad():
        _, nll_C, _ = output_loss(foreign_CD, weight, label_C, torch.ones_like(true_nll_C), 0, bias_V=bias)
    counts_C = (label_C == labels.token[labels.examined]) & has_context[row_C]
    gain_B = true_nll_C.new_zeros(len(has_context)).index_add(0, row_C, counts_C * (nll_C - true_nll_C))
    is_active = has_context & (gain_B < MARGIN)
    # The hinge is linear where it is not 0, so signed weights of the labels give it and its gradient.
    sign_C = (counts_C & is_active[row_C]).to(nll_C.dtype)
    both = torch.cat((true_CD, foreign_CD)), weight, label_C.repeat(2), torch.cat((sign_C, -sign_C))
    total, _, _ = output_loss(*both, 0, bias_V=bias)
    return total + MARGIN * is_active.sum(), (gain_B.sum(), has_context.sum())


@dataclass(frozen=True, slots=True)
class Paths:
    """The lattices of a batch, and the first and last frames of its units.

    `forced`: the tokens of `edges` are given. `without`: number of units without a path. `count`: number of
    labels of the other units.
    """

    lattices: Lattices
    edges: Tensor  # [2G], indices among the N
    forced: bool
    without: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True)
class Targets:
    """Frames and targets of a batch, computed from its indices; `paths` is None if every frame is a token."""

    token: Tensor  # tokens of the targets, brackets included, one sequence after the other
    lengths: Tensor  # [B], lengths of the targets
    labels: Tensor  # [B], number of labels as autoregressive systems count them
    frames_of: Tensor  # [B, T], the sentence of each frame, -1 on padding
    frames: Packing
    paths: Paths | None


class Glancing:
    """The glancing loss; `ratios` are the ratios at the start and at the end of training.

    With paths, the count is the number of target labels without `bos`, so that the loss can be compared with
    the loss of other systems. Units (sentences, or sequences with one path) whose target does not fit into
    their frames do not count. Without paths, the count is the number of frames not revealed, brackets
    included: the loss is their mean, as in the paper's code. `label_smoothing` is for models without paths.
    """

    def __init__(self, ratios: tuple[float, float], label_smoothing: float) -> None:
        self.ratios = ratios
        self.label_smoothing = label_smoothing

    def laid_out(self, model: NonAutoregressiveModel, batch: Batch, training: bool) -> Batch:
        """See `Loss`."""
        tokens, sentence = bracketed_targets(batch)
        lengths_B = (sentence >= 0).sum(dim=1)
        labels_B = (batch.label_sentence >= 0).sum(dim=1)
        rows = model.layouts(batch.source, lengths_B if model.path == "length" else None)
        assert rows.target is not None
        frames_of, written = rows.target.sentence, Packing(sentence >= 0).index_N
        paths = None
        if model.path != "length":
            batch_units = units(model.path == "sentences", frames_of, tokens, sentence)
            labels_G = batch_units.target_length - 1 if batch_units.forced else labels_B
            fit_G = fits(batch_units, model.blank)
            paths = Paths(
                Lattices.of(batch_units, model.blank, model.output_weight.size(1)),
                torch.cat((batch_units.start, batch_units.start + batch_units.length - 1)),
                batch_units.forced,
                (~fit_G).sum().float(),
                (labels_G * fit_G).sum().clamp(min=1),
            )
        token_N = tokens.flatten()[written]
        targets = Targets(token_N, lengths_B, labels_B, frames_of, Packing(frames_of >= 0), paths)
        return replace(batch, source=replace(batch.source, layouts=rows), targets=targets)

    def __call__(self, model: NonAutoregressiveModel, batch: Batch, done: float = 0.0) -> LossParts:
        """Return the loss with the part `nll_current` and, with paths, the share of units without a path.

        In training, additional parts are the share of revealed frames and the parts of the model's auxiliary
        loss.
        """
        start, end = self.ratios
        ratio = start + (end - start) * min(done, 1.0)
        if batch.targets is None:
            batch = self.laid_out(model, batch, model.training)
        targets = batch.targets
        assert isinstance(targets, Targets)
        paths, frames, real = targets.paths, targets.frames, targets.frames_of >= 0
        draft = model.encode(batch.source, targets.lengths if paths is None else None)
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        revealed = auxiliary = None
        if model.training:
            with torch.no_grad():
                first_ND = frames.pack(model.decode(draft))
                weight_VD = model.output_weight
                best_N = (
                    targets.token if paths is None else best_alignment(first_ND, weight_VD, paths.lattices)
                )
                first = [linear(part, weight_VD).argmax(dim=1) for part in torch.split(first_ND, CHUNK)]
                wrong_N = torch.cat(first) != best_N
                if paths is not None and paths.forced:  # brackets are given, and never wrong
                    wrong_N[paths.edges] = False
                # -1 on padding and in units without a path: their frames are never revealed.
                best = real.long().sub(1).masked_scatter(real, best_N)
                eligible = best >= 0
                # Any frame of a path may be revealed, not only wrong ones.
                reveal = glanced((best >= 0).masked_scatter(real, wrong_N) & eligible, eligible, ratio)
                revealed = best.masked_fill(~reveal, -1)
            parts["revealed"] = reveal.sum().float(), real.sum()
            auxiliary = model.auxiliary_loss(draft, best, ratio)
        hidden_ND = frames.pack(model.decode(draft, revealed))
        if paths is None:
            open_BT = real if revealed is None else real & (revealed < 0)
            open_N = open_BT.flatten()[frames.index_N]
            loss, nll_N, _ = output_loss(
                hidden_ND,
                model.output_weight,
                targets.token,
                open_N.to(hidden_ND.dtype),
                self.label_smoothing,
            )
            parts["nll_current"] = (nll_N * open_N).sum(), open_N.sum().clamp(min=1)
            counted_B = open_BT.sum(dim=1)
            count = counted_B.sum().clamp(min=1)
        else:
            # In validation no gradient is needed, so none is computed for the weight.
            weight_VD = model.output_weight if hidden_ND.requires_grad else model.output_weight.detach()
            loss, count = ctc_loss(hidden_ND, weight_VD, paths.lattices), paths.count
            parts["nll_current"] = loss.detach(), count
            parts["without_path"] = paths.without, torch.full((), len(paths.edges) // 2, device=loss.device)
            counted_B = targets.labels
        if auxiliary is not None:
            loss = loss + (auxiliary.loss * counted_B).sum()
            parts |= auxiliary.parts
        return LossParts(loss=loss, count=count, parts=parts)


def build_loss(config: LossConfig) -> Loss:
    """Return the loss that a configuration names."""
    if config.name == "glancing":
        return Glancing(config.glancing, config.label_smoothing)
    return CrossEntropy(config.label_smoothing, config.context_discount, config.foreign_weight)
