"""Position-aware attention (P-Transformer; Li et al. 2022): positions in every layer.

In a plain Transformer positions enter once, at the bottom, and have vanished at the top of the encoder when a
row is a whole document: cross-attention cannot find its place any more. Here queries and keys are made from
H + P in every layer, values from H alone, and self-attention adds relative positions:

    self     softmax(((H + P) Wq ((H + P) Wk)^T + (H + P) Wq R^T) / sqrt(K)) H Wv          equations 10, 11
    cross    softmax((Ht + Pt) Wq ((Hs + Ps) Wk)^T / sqrt(K)) Hs Wv                       equation 7

P is sinusoidal and adds no parameters; R is one table for all heads, layers and both stacks. The printed
scale is sqrt(D); heads of size K are scaled by sqrt(K), as everywhere.

Shapes: B entries, H heads, T queries, S keys, N real tokens of all rows, D model, K per head.
"""

import torch
from torch import Tensor, nn

from cotext.layers.int8_linear import outputs
from cotext.layers.kernels.relative import attend_at_distances, attend_relative
from cotext.layers.layout import AnyLayout, Keys
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.start import ZeroGate
from cotext.layers.state import KeysValues


def relative_table(size: AttentionSize, span: int) -> nn.Parameter:
    """R: [2 * span + 1, K]. Zeros: relative positions are learned from the baseline's start.

    Distances beyond the span share the vectors at its ends. The paper does not clip distances: a span of 512
    is that of its rows of up to 512 tokens (section III-C; 1,025 vectors in table V), and rows of table XI
    and figure 7 with up to 2,048 tokens need one of 2,048.
    """
    return nn.Parameter(torch.zeros(2 * span + 1, size.dimension // size.heads))


class PositionScore(Score):
    """Contents, with `absolute` positions in queries and keys, with `relative` ones, or with both.

    Where training starts from a model without them, absolute positions pass a gate that begins at zero, as
    the table of relative ones does.
    """

    def __init__(self, size: AttentionSize, absolute: bool, relative: bool) -> None:
        super().__init__(size)
        self.absolute, self.relative = absolute, relative
        self.gate = ZeroGate(size.dimension) if absolute and size.neutral_start else None

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Queries and keys from H + P, values from H: see `Score`."""
        if not self.absolute:
            return super().project(fused, x, layout, compared)
        aware = x + layout.absolute.to(x.dtype)
        if self.gate is not None:
            aware = self.gate(x, aware)
        if compared == fused.out_features:
            whole: Tensor = fused(aware)
            return whole
        return torch.cat((outputs(fused, aware, 0, compared), outputs(fused, x, compared)), dim=-1)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """One product of a self-attention: [B, H, T, K]."""
        table = layout.shared.relative
        if not self.relative or table is None:
            return super().attend(q_BHTK, kv, keys, layout)
        if keys.in_order:
            return attend_relative(q_BHTK, *kv, table, keys.mask, keys.causal, self.dropout, keys.tokens)
        return attend_at_distances(q_BHTK, *kv, table, keys.mask, keys.distance())
