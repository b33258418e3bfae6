"""G-Transformer: the gate of its global layers, and examples of rows for other tests."""

from collections.abc import Iterable

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.layout import Packed
from cotext.layers.multi_head import AttentionSize, RowSpan, Score, SelfAttention
from cotext.layers.sentence_spans import SentenceSpan
from cotext.models.g_transformer import GatedAttention
from cotext.models.transformer import Transformer
from tests.layers.layouts import layout, sentences
from tests.layers.test_state import VOCABULARY

LENGTHS = ([3, 2, 4], [2, 1])  # of the source sentences of two rows
TARGET_LENGTHS = ([2, 4, 3], [5, 1])


def side(rows: Iterable[list[int]], seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens and their sentences, padded."""
    sentence = sentences(list(rows))
    tokens = torch.randint(0, 10, sentence.shape, generator=torch.Generator().manual_seed(seed))
    return tokens.where(sentence >= 0, torch.tensor(VOCABULARY - 1)), sentence


def example(
    lengths: Iterable[list[int]] = LENGTHS, target_lengths: Iterable[list[int]] = TARGET_LENGTHS
) -> tuple[Source, Tensor, Tensor]:
    tokens, sentence = side(lengths, 0)
    n = tokens.size(0)
    none = torch.zeros(n).long()
    current = torch.stack((none, sentence.max(dim=1).values + 1), dim=1)
    return Source(tokens, sentence, current, none, none), *side(target_lengths, 1)


def keys(system: Transformer, given: Source, attention: int = 0) -> Tensor:
    """What the decoder sees of every source token: [B, S, H, K]."""
    return system.encode(given).source.keys_values[attention][0].transpose(1, 2)


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
