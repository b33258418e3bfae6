"""Probabilities of the beginnings of texts under CTC, and with them of tokens given those before them.

A path says a text; that the text begins with y1 ... yi is the sum over all positions at which yi is said for
the first time, behind y1 ... yi-1 and whatever follows (Graves 2012, *Supervised Sequence Labelling*, section
7.5). The probability of token i given those before it is the ratio of two beginnings, that of the end the
ratio of the text to its last beginning: the chain rule of the text's own likelihood, summed over all paths,
though nothing is predicted from left to right.

Shapes: G units, K that fit, T most positions, L most labels, S = L + 1 blanks around them, C
classes; N, M, D, V as in `ctc.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cotext.losses.ctc import Group, Lattices, Logits, Units, class_log_probabilities


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Log-probabilities, -inf where a unit does not fit.

    `begins` [G, L]: that the text of a unit begins with its labels up to this one; `whole` [G]: that it
    is the target and nothing more.
    """

    begins: Tensor
    whole: Tensor


@torch.no_grad()
def beginnings(hidden_ND: Tensor, logits: Logits, units: Units, blank: int, chunk: int = 512) -> Beginnings:
    """The beginnings of every unit's target, in double precision."""
    begins_GL = hidden_ND.new_full(units.target.shape, -torch.inf, dtype=torch.float64)
    whole_G = begins_GL.new_full(units.target.shape[:1], -torch.inf)
    lattices = Lattices.of(units, blank, hidden_ND.size(1))
    log_p_MC = class_log_probabilities(hidden_ND[lattices.position], logits, lattices, chunk)
    for group in lattices.groups:
        log_p_KTC = group.scores(group.spread(log_p_MC[:, : group.token.size(1)], torch.float64))
        begins_KL, whole_K = _forward(group, log_p_KTC)
        unit = lattices.unit[group.which]
        begins_GL[unit, : begins_KL.size(1)] = begins_KL
        whole_G[unit] = whole_K
    return Beginnings(begins_GL, whole_G)


def _forward(group: Group, log_p_KTC: Tensor) -> tuple[Tensor, Tensor]:
    """Forward probabilities of the states blank, first label, blank ...; [K, L] and [K]."""
    lattices, positions, _ = log_p_KTC.shape
    labels = group.label.size(1)
    nothing_K1 = log_p_KTC.new_full((lattices, 1), -torch.inf)
    differs = group.label.new_ones(group.label.shape, dtype=torch.bool)
    differs[:, 1:] = group.label[:, 1:] != group.label[:, :-1]
    # What is there before the first position: the blank in front of all labels.
    blank_KS = torch.cat([torch.zeros_like(nothing_K1), nothing_K1.expand(-1, labels)], dim=1)
    label_KL = nothing_K1.expand(-1, labels)
    begins_KL = label_KL
    for t in range(positions):
        of_label_KL = log_p_KTC[:, t].gather(1, group.label)
        before_KL = torch.cat([nothing_K1, label_KL[:, :-1]], dim=1).masked_fill(~differs, -torch.inf)
        first_KL = of_label_KL + torch.logaddexp(blank_KS[:, :-1], before_KL)
        goes_on = t < group.length[:, None]
        begins_KL = torch.where(goes_on, torch.logaddexp(begins_KL, first_KL), begins_KL)
        after_label_KS = torch.cat([nothing_K1, label_KL], dim=1)
        stays_KS = torch.logaddexp(blank_KS, after_label_KS) + log_p_KTC[:, t, :1]
        blank_KS = torch.where(goes_on, stays_KS, blank_KS)
        label_KL = torch.where(goes_on, torch.logaddexp(first_KL, label_KL + of_label_KL), label_KL)
    last = group.label_length[:, None]
    ends_KS = torch.logaddexp(blank_KS, torch.cat([nothing_K1, label_KL], dim=1))
    return begins_KL, ends_KS.gather(1, last)[:, 0]
