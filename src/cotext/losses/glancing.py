"""Glancing training of non-autoregressive models (Qian et al. 2021; Yu et al. 2024, section 3).

A first decoding pass, without gradients, predicts a token or blank for every frame (position of the decoder).
Some tokens of the most probable path to the target, chosen at random, are revealed at the decoder's input.
The more predictions differ from this path, the more are revealed. The loss is computed in a second pass:

    revealed frames of a sequence = ratio * frames in which prediction and path differ
    loss                          = -log P(target), over all paths              with paths
                                    mean cross-entropy of frames not revealed   without: one frame per token

The ratio decreases linearly during training. Nothing is revealed in validation.

Shapes: B sequences, T frames, N frames of all sequences without padding, one sequence after the other, G
units, D model, V vocabulary.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import linear

from cotext.data.batch import Batch, bracketed_targets
from cotext.layers.embedding import glanced
from cotext.layers.kernels.common import Packing
from cotext.losses.cross_entropy import LossParts, output_loss
from cotext.losses.ctc import Lattices, best_alignment, ctc_loss, fits, units
from cotext.models.interface import NonAutoregressiveModel

CHUNK = 1024


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
            batch_units = units(model.path, frames_of, tokens, sentence)
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
