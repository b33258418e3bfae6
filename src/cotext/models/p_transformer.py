"""Position-aware attention (P-Transformer; Li et al. 2022): positions in every layer.

In a plain Transformer, positions are added once, to the embeddings. In long rows, such as documents, they are
lost in the upper encoder layers, and cross-attention can no longer use them. Here every layer makes queries
and keys from X + P and values from X, and self-attention adds relative positions:

    self     softmax(((X + P) Wq ((X + P) Wk)^T + (X + P) Wq R^T) / sqrt(K)) X Wv          equations 10, 11
    cross    softmax((Xt + Pt) Wq ((Xs + Ps) Wk)^T / sqrt(K)) Xs Wv                       equation 7

X: hidden states (H in the paper) of the layer; t: target; s: source. P: sinusoidal position embeddings,
without parameters. R: a table of relative positions, shared by all heads, layers and both stacks. The paper
divides by sqrt(D); Cotext divides by sqrt(K), because every head has size K.

Shapes: B entries, H heads, T queries, S keys, N real tokens of all rows, D model, K per head.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from cotext.layers.kernels.relative import attend_at_distances, attend_relative, relative_bias
from cotext.layers.layout import AnyLayout, Keys
from cotext.layers.linear import outputs
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.start import ZeroGate
from cotext.layers.state import KeysValues


def relative_table(size: AttentionSize, span: int) -> nn.Parameter:
    """Return R, [2 * span + 1, K], with zeros, so that relative positions have no effect at the start.

    Larger distances share the vectors at the ends. The paper does not clip distances: a span of 512 covers
    its rows of up to 512 tokens (section III-C; 1,025 vectors in table V). Table XI and figure 7, with
    sequences of up to 2,048 tokens, need a span of 2,048.
    """
    return nn.Parameter(torch.zeros(2 * span + 1, size.dimension // size.heads))


class AbsoluteScore(Score):
    """Scores with absolute positions in queries and keys.

    If training starts from a model without positions in its layers, a gate that starts at zero scales them.
    """

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        self.gate = ZeroGate(size.dimension) if size.neutral_start else None

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Project queries and keys from X + P, values from X: see `Score`."""
        aware = x + layout.absolute.to(x.dtype)
        if self.gate is not None:
            aware = self.gate(x, aware)
        if compared == fused.out_features:
            projected: Tensor = fused(aware)
            return projected
        return torch.cat((outputs(fused, aware, 0, compared), outputs(fused, x, compared)), dim=-1)


class RelativeScore(Score):
    """Scores with relative positions in self-attention, whose table starts at zero."""

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        table = layout.shared.relative
        assert table is not None
        if not keys.in_order:
            return attend_at_distances(q_BHTK, *kv, table, keys.mask, keys.distance, keys.bias)
        if keys.bias is None:
            return attend_relative(q_BHTK, *kv, table, keys.mask, keys.causal, self.dropout, keys.tokens)
        bias = relative_bias(q_BHTK, table.to(q_BHTK.dtype), kv[0].size(2)) + keys.bias
        return super().attend(q_BHTK, kv, replace(keys, bias=bias), layout)


class PositionScore(RelativeScore, AbsoluteScore):
    """Scores with absolute and relative positions."""
