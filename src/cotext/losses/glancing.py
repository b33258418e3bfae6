"""Glancing training of non-autoregressive models (Qian et al. 2021; Yu et al. 2024, section 3).

A first decoding pass, without gradients, gives a hypothesis. It is compared, frame by frame, with the most
probable path to the target; at random, some tokens of that path are revealed at the decoder's input, the more
of them the more frames were wrong, and the loss is that of a second pass:

    revealed frames of a row = ratio * frames in which hypothesis and path differ
    loss                     = -log P(target), over all paths                with paths
                               mean cross-entropy of frames not revealed     without: a frame for every token

The ratio falls linearly over the training. Nothing is revealed in validation.

Shapes: B rows, T frames, N frames of all rows without padding, one row after the other, G units, D model,
V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from cotext.data.batch import Batch
from cotext.data.collate import bracketed_targets
from cotext.layers.glance import glanced
from cotext.losses.cross_entropy import LossParts, output_loss
from cotext.losses.ctc import Units, best_alignment, ctc_nll, fits
from cotext.losses.ctc_targets import units
from cotext.models.interface import NonAutoregressiveModel

CHUNK = 1024


class Glancing:
    """The glancing loss; `ratios` are at the start and at the end of training.

    `label_smoothing` is for models without paths. With paths, the count is that of the target's labels
    without `bos`, so that figures compare with those of other systems; sentences (rows, where they have one
    path) whose target does not fit into their frames are left out. Without, it is that of the frames not
    revealed, brackets included: the loss is their mean, as in the paper's code.
    """

    def __init__(self, ratios: tuple[float, float], label_smoothing: float) -> None:
        self.ratios = ratios
        self.label_smoothing = label_smoothing

    def __call__(self, model: NonAutoregressiveModel, batch: Batch, done: float = 0.0) -> LossParts:
        """Parts: `nll_current`; with paths, the share of units without one; in training, the share revealed.

        And in training, those of the model's auxiliary loss.
        """
        start, end = self.ratios
        ratio = start + (end - start) * min(done, 1.0)
        tokens, sentence = bracketed_targets(batch)
        lengths_B, labels_B = ((of >= 0).sum(dim=1) for of in (sentence, batch.label_sentence))
        draft = model.encode(batch.source, lengths_B if model.path == "length" else None)
        real = draft.sentence >= 0
        batch_units = None if model.path == "length" else units(model.path, draft, tokens, sentence)
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        revealed = auxiliary = None
        if model.training:
            with torch.no_grad():
                first_ND = model.decode(draft)[real]
                best_N = tokens[sentence >= 0] if batch_units is None else _best(first_ND, model, batch_units)
                wrong_N = _best_symbols(first_ND, model.output_weight) != best_N
                if batch_units is not None and batch_units.forced:  # brackets are given
                    wrong_N[batch_units.start] = wrong_N[batch_units.start + batch_units.length - 1] = False
                best = real.long().sub(1).masked_scatter(real, best_N)
                eligible = best >= 0
                shown = glanced((best >= 0).masked_scatter(real, wrong_N) & eligible, eligible, ratio)
                revealed = best.masked_fill(~shown, -1)
            parts["revealed"] = shown.sum().float(), real.sum()
            auxiliary = model.auxiliary_loss(draft, best, ratio)
        hidden_ND = model.decode(draft, revealed)[real]
        if batch_units is None:
            open_BT = real if revealed is None else real & (revealed < 0)
            loss = self._by_frame(model, hidden_ND, tokens[sentence >= 0], open_BT[real], parts)
            counted_B = open_BT.sum(dim=1)
            count = counted_B.sum().clamp(min=1)
        else:
            labels_G = batch_units.target_length - 1 if batch_units.forced else labels_B
            loss, count = _by_path(model, hidden_ND, batch_units, labels_G, parts)
            counted_B = labels_B
        if auxiliary is not None:
            loss = loss + (auxiliary.loss * counted_B).sum()
            parts |= auxiliary.parts
        return LossParts(loss=loss, count=count, parts=parts)

    def _by_frame(
        self,
        model: NonAutoregressiveModel,
        hidden_ND: Tensor,
        token_N: Tensor,
        open_N: Tensor,
        parts: dict[str, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Cross-entropy of the frames that were not revealed, summed."""
        loss, nll_N = output_loss(
            hidden_ND, model.output_weight, token_N, open_N.to(hidden_ND.dtype), self.label_smoothing
        )
        parts["nll_current"] = nll_N[open_N].sum(), open_N.sum().clamp(min=1)
        return loss


def _by_path(
    model: NonAutoregressiveModel,
    hidden_ND: Tensor,
    batch_units: Units,
    labels_G: Tensor,
    parts: dict[str, tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The likelihood of the units that fit, and the count of their labels."""
    weight_VD = model.output_weight if hidden_ND.requires_grad else model.output_weight.detach()
    nll_G = ctc_nll(hidden_ND, weight_VD, batch_units, model.blank)
    fit_G = fits(batch_units, model.blank)
    loss, count = nll_G.sum(), (labels_G * fit_G).sum().clamp(min=1)
    parts["nll_current"] = loss.detach(), count
    parts["without_path"] = (~fit_G).sum().float(), fit_G.new_tensor(fit_G.numel(), dtype=torch.long)
    return loss, count


def _best(hidden_ND: Tensor, model: NonAutoregressiveModel, batch_units: Units) -> Tensor:
    return best_alignment(hidden_ND, model.output_weight, batch_units, model.blank)


def _best_symbols(hidden_ND: Tensor, weight_VD: Tensor) -> Tensor:
    """The most probable symbol of every frame: [N]."""
    return torch.cat([linear(part, weight_VD).argmax(dim=1) for part in torch.split(hidden_ND, CHUNK)])
