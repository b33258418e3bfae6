"""G-Transformer: the gate of its global layers; what holds of every system is in the cover."""

import torch

from cotext.layers.layout import Packed
from cotext.layers.multi_head import AttentionSize, RowSpan, Score, SelfAttention
from cotext.layers.spans import GatedAttention, SentenceSpan
from tests.layers.layouts import layout


@torch.no_grad()
def test_the_gate_by_its_equation() -> None:
    size = AttentionSize(4, 2, 0.0)
    spans = (SentenceSpan(), RowSpan())
    gate = GatedAttention(4, *(SelfAttention(size, span, Score(size)) for span in spans)).double()
    rows = layout(torch.tensor([[0, 0, 1]]), 4, packed=Packed(by_sentence=True))
    x = torch.randn(3, 4, dtype=torch.float64)
    near, far = gate.local(x, rows), gate.wide(x, rows)
    g = torch.sigmoid(torch.cat((near, far), dim=1) @ gate.gate.weight.T + gate.gate.bias)
    torch.testing.assert_close(gate(x, rows), g * near + (1 - g) * far)
