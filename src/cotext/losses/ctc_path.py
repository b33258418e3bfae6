"""The most probable path of a text under CTC, by Viterbi's algorithm.

Shapes as in `ctc.py`: N positions of all units, M of them to be predicted; K units that fit; T most positions
of a unit, S states, C most classes; D model, V vocabulary.
"""

import torch
from torch import Tensor

from cotext.losses.ctc import Group, Lattices


def best_alignment(hidden_ND: Tensor, weight_VD: Tensor, lattices: Lattices) -> Tensor:
    """The token, blank included, that the most probable path has at every position: [N].

    It is -1 at all positions of a unit that does not fit, and of none. No normalisation is needed, hence
    nothing but the logits of the unit's own labels.
    """
    aligned_N = lattices.position.new_full((hidden_ND.size(0),), -1)
    kind = hidden_ND.device.type
    if torch.is_autocast_enabled(kind):
        hidden_ND = hidden_ND.to(torch.get_autocast_dtype(kind))
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        hidden_MD, matrix_VD = hidden_ND[lattices.position], weight_VD.to(hidden_ND.dtype)
        for group in lattices.groups:
            logits_KTC = group.spread(hidden_MD, hidden_MD.dtype) @ matrix_VD[group.token].mT
            class_KT = _best_path(group, group.scores(logits_KTC))
            aligned_N[group.frame] = group.token.gather(1, class_KT).flatten()[group.real_at]
    return aligned_N


def _best_path(group: Group, scores_KTC: Tensor) -> Tensor:
    """The class at every position of the best path, by Viterbi's algorithm: [K, T].

    States are blank, first label, blank, second label ... blank. A step stays, goes on by one, or by two to a
    label that differs from the one before it. Behind the end of a unit it stays.
    """
    lattices, positions, _ = scores_KTC.shape
    state_KS = group.label.new_zeros(lattices, 2 * group.label.size(1) + 1)
    state_KS[:, 1::2] = group.label
    leaps = torch.zeros_like(state_KS, dtype=torch.bool)
    leaps[:, 3::2] = state_KS[:, 3::2] != state_KS[:, 1:-2:2]
    best_KS = scores_KTC.new_full(state_KS.shape, -torch.inf)
    best_KS[:, :2] = scores_KTC[:, 0].gather(1, state_KS[:, :2])
    came_TKS = torch.zeros(positions, *state_KS.shape, dtype=torch.uint8, device=state_KS.device)
    for t in range(1, positions):
        from_3KS = best_KS.new_full((3, *best_KS.shape), -torch.inf)
        from_3KS[0] = best_KS
        from_3KS[1, :, 1:] = best_KS[:, :-1]
        from_3KS[2, :, 2:] = best_KS[:, :-2].masked_fill(~leaps[:, 2:], -torch.inf)
        reached_KS, came = from_3KS.max(dim=0)
        goes_on = t < group.length[:, None]
        came_TKS[t] = came.masked_fill_(~goes_on, 0)
        reached_KS = reached_KS + scores_KTC[:, t].gather(1, state_KS)
        best_KS = torch.where(goes_on, reached_KS, best_KS)
    last = 2 * group.label_length[:, None]
    ends = torch.cat([last, (last - 1).clamp(min=0)], dim=1)
    state = ends.gather(1, best_KS.gather(1, ends).argmax(dim=1, keepdim=True))
    path_KT = state.expand(-1, positions).clone()
    for t in range(positions - 1, 0, -1):
        state = state - came_TKS[t].gather(1, state).long()
        path_KT[:, t - 1] = state[:, 0]
    return state_KS.gather(1, path_KT)
