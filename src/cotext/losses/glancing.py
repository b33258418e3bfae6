"""Glancing training of models that write all at once (Qian et al. 2021; Yu et al. 2024, section 3).

The model writes once without learning from it. The most probable path to the target then says what should
have stood at every place; of these tokens, at random, some are shown at the decoder's input, the more of them
the more places were wrong, and the model learns to write again in their sight:

    revealed places of a row = ratio * places where the first writing and the path differ
    loss                     = -log P(target), over all paths                with paths
                               mean cross-entropy of places not revealed     without, where a place is a token

The ratio falls in a straight line over the training. Nothing is revealed in validation.

Shapes: B rows, T places, N real places of all rows, one row after the other, G units, D model, V vocabulary.
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
from cotext.models.interface import Model, NonAutoregressiveModel

CHUNK = 1024


class Glancing:
    """`ratios`: at the start and at the end of training; `label_smoothing` is for models without paths.

    With paths, the count is that of the target's labels, of which `bos` is none: figures compare with those
    of other systems. Sentences (rows, where they have one path) whose target does not fit on their places
    count for nothing. Without, it is that of the places that were not revealed, the brackets' among them: the
    loss is their mean, as in the paper's code.
    """

    def __init__(self, ratios: tuple[float, float], label_smoothing: float) -> None:
        self.ratios = ratios
        self.label_smoothing = label_smoothing

    def __call__(self, model: Model, batch: Batch, done: float = 0.0) -> LossParts:
        """Parts: `nll_current`; with paths, the share of units that have none; in training, that revealed.

        And in training, what the model tells of what it had to predict.
        """
        assert isinstance(model, NonAutoregressiveModel)
        start, end = self.ratios
        ratio = start + (end - start) * min(done, 1.0)
        tokens, sentence = bracketed_targets(batch)
        lengths_B, labels_B = ((of >= 0).sum(dim=1) for of in (sentence, batch.label_sentence))
        draft = model.encode(batch.source, lengths_B if model.path == "length" else None)
        real = draft.sentence >= 0
        asked = None if model.path == "length" else units(model.path, draft, tokens, sentence)
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        revealed = beside = None
        if model.training:
            with torch.no_grad():
                first_ND = model.decode(draft)[real]
                best_N = tokens[sentence >= 0] if asked is None else _best(first_ND, model, asked)
                wrong_N = _written(first_ND, model.output_weight) != best_N
                if asked is not None and asked.forced:  # nothing is written there
                    wrong_N[asked.start] = wrong_N[asked.start + asked.length - 1] = False
                best = real.long().sub(1).masked_scatter(real, best_N)
                eligible = best >= 0
                shown = glanced((best >= 0).masked_scatter(real, wrong_N) & eligible, eligible, ratio)
                revealed = best.masked_fill(~shown, -1)
            parts["revealed"] = shown.sum().float(), real.sum()
            beside = model.auxiliary_loss(draft, best, ratio)
        hidden_ND = model.decode(draft, revealed)[real]
        if asked is None:
            open_BT = real if revealed is None else real & (revealed < 0)
            loss = self._by_place(model, hidden_ND, tokens[sentence >= 0], open_BT[real], parts)
            counted_B = open_BT.sum(dim=1)
            count = counted_B.sum().clamp(min=1)
        else:
            labels_G = asked.target_length - 1 if asked.forced else labels_B
            loss, count = _by_path(model, hidden_ND, asked, labels_G, parts)
            counted_B = labels_B
        if beside is not None:
            loss = loss + (beside.loss * counted_B).sum()
            parts |= beside.parts
        return LossParts(loss=loss, count=count, parts=parts)

    def _by_place(
        self,
        model: NonAutoregressiveModel,
        hidden_ND: Tensor,
        token_N: Tensor,
        open_N: Tensor,
        parts: dict[str, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Cross-entropy of the places that were not revealed, summed."""
        loss, nll_N = output_loss(
            hidden_ND, model.output_weight, token_N, open_N.to(hidden_ND.dtype), self.label_smoothing
        )
        parts["nll_current"] = nll_N[open_N].sum(), open_N.sum().clamp(min=1)
        return loss


def _by_path(
    model: NonAutoregressiveModel,
    hidden_ND: Tensor,
    asked: Units,
    labels_G: Tensor,
    parts: dict[str, tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The likelihood of the units that fit, and the count of their labels."""
    weight_VD = model.output_weight if hidden_ND.requires_grad else model.output_weight.detach()
    nll_G = ctc_nll(hidden_ND, weight_VD, asked, model.blank)
    fit_G = fits(asked, model.blank)
    loss, count = nll_G.sum(), (labels_G * fit_G).sum().clamp(min=1)
    parts["nll_current"] = loss.detach(), count
    parts["without_path"] = (~fit_G).sum().float(), fit_G.new_tensor(fit_G.numel(), dtype=torch.long)
    return loss, count


def _best(hidden_ND: Tensor, model: NonAutoregressiveModel, asked: Units) -> Tensor:
    return best_alignment(hidden_ND, model.output_weight, asked, model.blank)


def _written(hidden_ND: Tensor, weight_VD: Tensor) -> Tensor:
    """The most probable symbol of every place: [N]."""
    return torch.cat([linear(part, weight_VD).argmax(dim=1) for part in torch.split(hidden_ND, CHUNK)])
