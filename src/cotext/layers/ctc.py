"""Connectionist temporal classification of many short texts at once, without all logits (Graves et al. 2006).

A unit is the text of one CTC loss: a sentence (sentence-aligned CTC: Yu et al. 2024, equations 7 to 11) or a
sequence. A path assigns a token or blank to every position of a unit. Removing first repetitions and then
blanks from a path gives the target. Fix the first and last position of every sentence to its brackets. Then
the CTC loss of the document is the sum of the losses of its sentences.

    positions   B  B  -  y  y  E        forced: the first is B and the last is E, with probability 1,
    target      B        y     E        so these two positions add nothing to the loss

The lattice of a unit (all its paths) needs only the probabilities of the labels of this unit. They are
gathered into classes, one for each different token. Only the normalisation runs over the vocabulary.

Shapes: N positions of all units, one unit after the other; M of them whose token is predicted; G units, K
with a path. T, L and C are the largest numbers of positions, labels and classes of a unit; S = 2L + 1 states.
D model, V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from cotext.layers.buckets import sentence_spans
from cotext.layers.kernels.common import TensorFunction, precise_dtype
from cotext.layers.kernels.output_loss import OutputProducts, in_autocast_dtype

Logits = Callable[[Tensor], Tensor]  # hidden states [N, D] -> logits [N, V]
GROUP_CELLS = 2**24  # elements of the padded tensors of a group


@dataclass(frozen=True, slots=True)
class Units:
    """The span of positions of each unit, and its target.

    Forced: the first and last position of every unit are its first and last label, with probability 1.
    """

    start: Tensor  # [G], the first position of a unit
    length: Tensor  # [G], the number of its positions
    target: Tensor  # [G, L]; the padding is arbitrary
    target_length: Tensor  # [G]
    forced: bool

    @property
    def is_label(self) -> Tensor:
        """Return the mask of targets, False on padding: [G, L]."""
        return torch.arange(self.target.size(1), device=self.target.device) < self.target_length[:, None]


def fits(units: Units, blank: int) -> Tensor:
    """Return whether a path exists: [G]. Two equal labels in a row need a blank between them.

    Targets that contain a blank have no path. Forced units need at least one label.
    """
    is_label = units.is_label
    repeats = ((units.target[:, 1:] == units.target[:, :-1]) & is_label[:, 1:]).sum(dim=1)
    no_blank = ~((units.target == blank) & is_label).any(dim=1)
    return no_blank & (units.target_length + repeats <= units.length) & (units.target_length >= units.forced)


@dataclass(frozen=True, slots=True)
class Lattices:
    """The units that have a path and at least one position, with their labels as classes.

    Class 0 is blank. Lattices depend on lengths and targets only, not on the predictions of a model.
    """

    unit: Tensor  # [K], indices among the G
    token: Tensor  # [K, C], the token of each class
    position: Tensor  # [M], indices among the N
    of_position: Tensor  # [M], the lattice of each position
    groups: "tuple[Group, ...]"

    @classmethod
    def of(cls, units: Units, blank: int, dimension: int) -> "Lattices":
        """Build the lattices of the units with a path, in groups for hidden states of size `dimension`."""
        unit = (fits(units, blank) & (units.length > 0)).nonzero().flatten()
        length, device, start = units.length[unit], unit.device, units.start[unit]
        # An additional blank and all padding are sorted first, so that they become class 0.
        key = units.target[unit].masked_fill(~units.is_label[unit], -1)
        ordered, order = torch.cat([key.new_full((len(unit), 1), -1), key], dim=1).sort(dim=1)
        rank = torch.zeros_like(ordered)
        rank[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(dim=1)
        label = torch.empty_like(rank).scatter_(1, order, rank)[:, 1:]
        most = int(rank.max()) + 1 if len(unit) else 1
        token = rank.new_full((len(unit), most), blank)
        token.scatter_(1, rank, ordered.masked_fill(ordered < 0, blank))
        # Forced positions, at both ends of a unit, are not predicted.
        margin = int(units.forced)
        inner = (length - 2 * margin).clamp(min=0)
        inner_start = inner.cumsum(dim=0) - inner
        of_position = torch.arange(len(unit), device=device).repeat_interleave(inner)
        first = start + margin - inner_start
        position = first[of_position] + torch.arange(len(of_position), device=device)
        classes = rank[:, -1] + 1
        fitting = Units(start, length, label, units.target_length[unit], units.forced)
        groups = [
            _group(which, fitting, token[which, : int(classes[which].max())], inner_start)
            for which in _similar(length, classes, dimension)
        ]
        return cls(unit, token, position, of_position, tuple(groups))


def _similar(length: Tensor, classes: Tensor, dimension: int) -> Iterator[Tensor]:
    """Divide lattices into groups of similar length, which are padded to the longest; yield their indices."""
    order = length.argsort(descending=True, stable=True)
    lengths, widths = length[order].tolist(), classes[order].tolist()
    begin, widest = 0, 0
    for end in range(len(lengths)):
        widest = max(widest, widths[end])
        longest = lengths[begin]
        # Elements after padding: the lattices, the hidden states and the weights of the classes.
        cells = (end + 1 - begin) * (longest * widest + (longest + widest) * dimension)
        if end > begin and cells > GROUP_CELLS:
            yield order[begin:end]
            begin, widest = end, widths[end]
    if lengths:
        yield order[begin:]


def _group(which: Tensor, fitting: Units, token: Tensor, inner_start: Tensor) -> "Group":
    """Build the group of the units `which`; `fitting`: all units with a path, with classes as targets.

    `inner_start` [K]: the index of the first position of each unit among the M.
    """
    margin = int(fitting.forced)
    length, label_length = fitting.length[which], fitting.target_length[which]
    lengths, label_lengths = (tuple(counts.tolist()) for counts in (length, label_length))
    time = torch.arange(max(lengths), device=which.device)
    inside = (time >= margin) & (time < length[:, None] - margin)
    real_at, inside_at = (mask.flatten().nonzero()[:, 0] for mask in (time < length[:, None], inside))
    # At forced positions, which are not predicted, `row` is wrong; `inside_at` skips them.
    row = inner_start[which, None] - margin + time
    frame = fitting.start[which, None] + time
    return Group(
        which,
        length,
        fitting.target[which, : max(1, *label_lengths, 0)],
        label_length,
        token,
        inside,
        inside_at,
        row.flatten()[inside_at],
        real_at,
        frame.flatten()[real_at],
        fitting.forced,
        (lengths, label_lengths),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """K lattices that are computed together, with Q predicted positions and P positions in all.

    `sizes`: the lengths of units and of their labels, as numbers on the CPU.
    """

    which: Tensor  # [K], indices among all units with a path
    length: Tensor  # [K]
    label: Tensor  # [K, L]
    label_length: Tensor  # [K]
    token: Tensor  # [K, C]
    inside: Tensor  # [K, T], positions that are predicted
    inside_at: Tensor  # [Q], the same positions as indices in the flattened [K, T]
    row: Tensor  # [Q], their indices among the M
    real_at: Tensor  # [P], all positions, as indices in the flattened [K, T]
    frame: Tensor  # [P], their indices among the N
    forced: bool
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    def spread(self, packed_MX: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the rows of these lattices in padded form, 0 elsewhere: [K, T, X]."""
        spread_AX = packed_MX.new_zeros(self.inside.numel(), packed_MX.size(1), dtype=dtype)
        spread_AX.index_copy_(0, self.inside_at, packed_MX.index_select(0, self.row).to(dtype))
        return spread_AX.view(*self.inside.shape, -1)

    def scores(self, predicted_KTC: Tensor) -> Tensor:
        """Return log-probabilities, or logits, of the classes, with those of forced positions: [K, T, C].

        In double precision: with log-probabilities of -10,000, single precision rounds posteriors to 0.1 %.
        """
        scores_KTC = predicted_KTC.double().masked_fill_(~self.inside[:, :, None], -torch.inf)
        if self.forced:
            every = torch.arange(len(self.length), device=self.length.device)
            scores_KTC[every, 0, self.label[:, 0]] = 0
            scores_KTC[every, self.length - 1, self.label[every, self.label_length - 1]] = 0
        return scores_KTC

    def nll_and_posterior(self, log_p_MC: Tensor, wants_posterior: bool) -> tuple[Tensor, Tensor | None]:
        """Return negative log-likelihoods [K] and, given the target, class probabilities [K, T, C]."""
        log_p_KTC = self.scores(self.spread(log_p_MC[:, : self.token.size(1)], torch.float64))
        # Only the gradient of the lattice is needed; it stops at the log-probabilities.
        with torch.enable_grad():
            log_p_TKC = log_p_KTC.transpose(0, 1).requires_grad_(wants_posterior)
            nll = torch.ctc_loss(log_p_TKC, self.label, *self.sizes, reduction=0)  # one for each lattice
            if not wants_posterior:
                return nll, None
            # The gradient in torch is p - posterior, as if it went through a log-softmax.
            (grad_TKC,) = torch.autograd.grad(nll.sum(), log_p_TKC)
        posterior_KTC = log_p_KTC.detach().exp_() - grad_TKC.transpose(0, 1)
        # At forced positions the gradient is NaN.
        return nll.detach(), posterior_KTC.masked_fill_(~self.inside[:, :, None], 0)


def class_log_probabilities(hidden_MD: Tensor, logits: Logits, lattices: Lattices, chunk: int) -> Tensor:
    """Return log-probabilities of the classes, [M, C], without gradients."""
    precise = precise_dtype(hidden_MD)
    log_p_MC = hidden_MD.new_empty(len(hidden_MD), lattices.token.size(1), dtype=precise)
    # Chunks prevent that the logits of all positions exist at once.
    for start in range(0, len(hidden_MD), chunk):
        rows = slice(start, start + chunk)
        logits_NV = logits(hidden_MD[rows])
        of_classes = logits_NV.gather(1, lattices.token[lattices.of_position[rows]]).to(precise)
        log_p_MC[rows] = of_classes - logits_NV.to(precise).logsumexp(dim=1, keepdim=True)
    return log_p_MC


def _output_layer(
    hidden_MD: Tensor, matrix_VD: Tensor, lattices: Lattices, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of the classes [M, C], and the parts of both gradients from the log-sum-exp.

    These parts do not depend on the lattice. Therefore, the logits of a chunk exist only once and become
    probabilities in place.
    """
    precise = precise_dtype(hidden_MD)
    count = hidden_MD.size(0)
    log_p_MC = hidden_MD.new_empty(count, lattices.token.size(1), dtype=precise)
    grad_hidden = hidden_MD.new_empty(hidden_MD.shape, dtype=precise)
    grad_weight = torch.zeros_like(matrix_VD, dtype=precise)
    buffer = hidden_MD.new_empty(min(chunk, count), matrix_VD.size(0))
    products = OutputProducts(buffer)
    for start in range(0, count, chunk):
        rows = slice(start, start + chunk)
        hidden = hidden_MD[rows]
        logits = buffer[: len(hidden)]
        torch.mm(hidden, matrix_VD.T, out=logits)
        # Read before `normalise` overwrites the logits.
        log_p = logits.gather(1, lattices.token[lattices.of_position[rows]]).to(precise)
        log_p_MC[rows] = log_p - products.normalise(logits)[:, None]
        grad_hidden[rows] = products.of_hidden(logits, matrix_VD)
        products.add_of_weight(grad_weight, logits, hidden.to(precise))
    return log_p_MC, grad_hidden, grad_weight


class _CTC(TensorFunction):
    """Output layer and CTC in one; the gradient of the summed loss is computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, lattices: Lattices, chunk: int) -> Tensor:
        """Return the summed negative log-likelihood."""
        hidden_MD, matrix_VD = hidden_ND[lattices.position], weight_VD.to(hidden_ND.dtype)
        precise, wants = precise_dtype(hidden_ND), any(ctx.needs_input_grad[:2])
        grad_hidden = grad_weight = None
        if wants:
            log_p_MC, grad_hidden, grad_weight = _output_layer(hidden_MD, matrix_VD, lattices, chunk)
        else:
            log_p_MC = class_log_probabilities(hidden_MD, partial(linear, weight=matrix_VD), lattices, chunk)
        nll_K = log_p_MC.new_empty(len(lattices.unit))
        for group in lattices.groups:
            nll, posterior_KTC = group.nll_and_posterior(log_p_MC, wants)
            nll_K[group.which] = nll.to(precise)
            if posterior_KTC is None or grad_hidden is None or grad_weight is None:
                continue
            # The gradient of a logit is its probability, added by `_output_layer`, minus its posterior.
            posterior_KTC = posterior_KTC.to(precise)
            of_hidden_KTD = posterior_KTC @ matrix_VD[group.token].to(precise)
            grad_hidden[group.row] -= of_hidden_KTD.flatten(0, 1).index_select(0, group.inside_at)
            of_weight_KCD = posterior_KTC.mT @ group.spread(hidden_MD, precise)
            grad_weight.index_add_(0, group.token.flatten(), of_weight_KCD.flatten(0, 1), alpha=-1)
        ctx.position, ctx.positions = lattices.position, len(hidden_ND)
        ctx.dtypes = hidden_ND.dtype, weight_VD.dtype
        ctx.save_for_backward(grad_hidden, grad_weight)
        return nll_K.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight = (
            (grad * grads[0]).to(dtype) for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        of_hidden_ND = hidden.new_zeros(ctx.positions, hidden.size(1))
        of_hidden_ND[ctx.position] = hidden
        return of_hidden_ND, weight, None, None


def ctc_loss(hidden_ND: Tensor, weight_VD: Tensor, lattices: Lattices, chunk: int = 512) -> Tensor:
    """Return the negative log-likelihood of the targets of all units with a path, summed.

    The precision is that of `OutputProducts`.
    """
    hidden_ND = in_autocast_dtype(hidden_ND)
    # The function chooses the precision of each of its products itself.
    with torch.autocast(hidden_ND.device.type, enabled=False):
        return _CTC.apply(hidden_ND, weight_VD, lattices, chunk)


def ctc_scores(hidden_ND: Tensor, logits: Logits, units: Units, blank: int, chunk: int = 512) -> Tensor:
    """Return the negative log-likelihood of each target, 0 without a path, without gradients: [G]."""
    lattices = Lattices.of(units, blank, hidden_ND.size(1))
    log_p_MC = class_log_probabilities(hidden_ND[lattices.position], logits, lattices, chunk)
    nll_G = log_p_MC.new_zeros(len(units.length))
    for group in lattices.groups:
        nll, _ = group.nll_and_posterior(log_p_MC, False)
        nll_G[lattices.unit[group.which]] = nll.to(nll_G.dtype)
    return nll_G


def units(aligned: bool, frames_of: Tensor, tokens: Tensor, sentence: Tensor) -> Units:
    """Return the CTC units: every sentence in order if sentences are `aligned`, else every sequence.

    `frames_of` [B, T]: sentence of each position, -1 on padding. `tokens`, `sentence`: `bracketed_targets`.
    """
    # Without alignment, all positions of a sequence belong to one sentence, 0.
    texts = (frames_of, sentence) if aligned else (frames_of.clamp(max=0), sentence.clamp(max=0))
    frames, target = map(sentence_spans, texts)
    last_B1 = texts[1].max(dim=1, keepdim=True).values
    real = torch.arange(target.size(1), device=target.device) <= last_B1
    lengths_B = (frames_of >= 0).sum(dim=1)
    frames = frames[:, : real.size(1)] + (lengths_B.cumsum(dim=0) - lengths_B)[:, None, None]
    start, stop = frames[real].unbind(dim=1)
    first, end = target[real].unbind(dim=1)
    row = real.nonzero()[:, 0]
    at = first[:, None] + torch.arange(int((end - first).max()), device=first.device)
    labels = tokens[row[:, None], at.clamp(max=tokens.size(1) - 1)]
    return Units(start, stop - start, labels, end - first, forced=aligned)


def best_alignment(hidden_ND: Tensor, weight_VD: Tensor, lattices: Lattices) -> Tensor:
    """Return the token, possibly blank, of the most probable path at every position: [N].

    -1 at all positions of a unit without a path. No normalisation is needed, so only the logits of the unit's
    own labels are computed.
    """
    aligned_N = lattices.position.new_full((hidden_ND.size(0),), -1)
    hidden_ND = in_autocast_dtype(hidden_ND)
    with torch.no_grad(), torch.autocast(hidden_ND.device.type, enabled=False):
        hidden_MD, matrix_VD = hidden_ND[lattices.position], weight_VD.to(hidden_ND.dtype)
        for group in lattices.groups:
            logits_KTC = group.spread(hidden_MD, hidden_MD.dtype) @ matrix_VD[group.token].mT
            class_KT = _best_path(group, group.scores(logits_KTC))
            aligned_N[group.frame] = group.token.gather(1, class_KT).flatten()[group.real_at]
    return aligned_N


def _best_path(group: Group, scores_KTC: Tensor) -> Tensor:
    """Return the class at every position of the best path, by Viterbi's algorithm: [K, T].

    States are blank, first label, blank, second label ... blank. A path stays in a state, advances by one or,
    to a label that differs from the previous label, by two. After the end of a unit, it stays.
    """
    lattices, positions, _ = scores_KTC.shape
    state_KS = group.label.new_zeros(lattices, 2 * group.label.size(1) + 1)
    state_KS[:, 1::2] = group.label
    leaps = torch.zeros_like(state_KS, dtype=torch.bool)
    leaps[:, 3::2] = state_KS[:, 3::2] != state_KS[:, 1:-2:2]
    best_KS = scores_KTC.new_full(state_KS.shape, -torch.inf)
    best_KS[:, :2] = scores_KTC[:, 0].gather(1, state_KS[:, :2])
    # The step into each state (0, 1 or 2), to trace the best path back.
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
    # A path ends in the blank after the last label, or in the last label.
    last = 2 * group.label_length[:, None]
    ends = torch.cat([last, (last - 1).clamp(min=0)], dim=1)
    state = ends.gather(1, best_KS.gather(1, ends).argmax(dim=1, keepdim=True))
    path_KT = state.expand(-1, positions).clone()
    for t in range(positions - 1, 0, -1):
        state = state - came_TKS[t].gather(1, state).long()
        path_KT[:, t - 1] = state[:, 0]
    return state_KS.gather(1, path_KT)


# Prefix probabilities (Graves 2012, *Supervised Sequence Labelling*, section 7.5). The probability that the
# text begins with y1 ... yi is the sum, over all positions, of the probability of the paths that emit yi for
# the first time at that position, after y1 ... yi-1. The probability of token i given those before it is the
# ratio of two prefix probabilities. For the end of the text it is the ratio of the full text to its last
# prefix. This is the chain rule, although nothing is predicted from left to right. S = L + 1 blanks here.


@torch.no_grad()
def beginnings(
    hidden_ND: Tensor, logits: Logits, units: Units, blank: int, chunk: int = 512
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the beginnings of targets, in double precision; -inf without a path.

    Returns:
        [G, L]: the text of a unit begins with its labels up to this one; [G]: the text is the whole target.
    """
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
    return begins_GL, whole_G


def _forward(group: Group, log_p_KTC: Tensor) -> tuple[Tensor, Tensor]:
    """Run the forward algorithm over the states blank, first label, blank ...; return [K, L] and [K]."""
    lattices, positions, _ = log_p_KTC.shape
    labels = group.label.size(1)
    nothing_K1 = log_p_KTC.new_full((lattices, 1), -torch.inf)
    # Between equal labels a blank is required: the path cannot come directly from the previous label.
    differs = group.label.new_ones(group.label.shape, dtype=torch.bool)
    differs[:, 1:] = group.label[:, 1:] != group.label[:, :-1]
    # Before the first position, the path is in the blank in front of all labels.
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
