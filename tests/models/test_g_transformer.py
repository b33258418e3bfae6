"""G-Transformer: who sees whom in local and global layers, and its equality with the baseline."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.layout import Packed
from cotext.layers.multi_head import AttentionSize, RowSpan, Score, SelfAttention
from cotext.layers.sentence_spans import SentenceSpan
from cotext.models.g_transformer import GatedAttention
from cotext.models.transformer import Transformer
from cotext.training.warm_start import inherit
from tests.layers.layouts import layout, sentences
from tests.layers.test_state import VOCABULARY, system

LENGTHS = ([3, 2, 4], [2, 1])  # of the source sentences of two rows
TARGET_LENGTHS = ([2, 4, 3], [5, 1])


def model(global_layers: int, layers: int = 2, **settings: Any) -> Transformer:
    return baseline(layers, attention=attention_of(global_layers), **settings)


def baseline(layers: int = 2, **settings: Any) -> Transformer:
    return system(encoder_layers=layers, decoder_layers=layers, **settings)


def attention_of(global_layers: int) -> dict[str, Any]:
    return {"span": "sentence", "top": {"layers": global_layers, "span": "row", "mix": "gated"}}


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


# --- who sees whom: the first row has source sentences at 0-2, 3-4, 5-8, target sentences at 0-1, 2-5, 6-8


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


# --- the baseline


@torch.no_grad()
def test_a_model_started_from_the_baseline_is_the_baseline_on_one_sentence() -> None:
    """With any gate, as global attention starts as a copy of the local one."""
    plain, system = baseline(), model(1)
    found = inherit(system, plain.state_dict())
    assert {name.rsplit(".", 1)[0] for name in found.neutral} == {
        "encoder.1.attention.gate",
        "decoder.1.attention.gate",
        "decoder.1.cross.gate",
    }
    assert not found.unused
    assert not found.fresh
    given, tokens, sentence = example(([4], [7]), ([6], [3]))
    want = plain.decode(tokens, sentence, plain.encode(given))
    got = system.decode(tokens, sentence, system.encode(given))
    torch.testing.assert_close(got[sentence >= 0], want[sentence >= 0], rtol=1e-12, atol=1e-12)
    given, tokens, sentence = example()
    assert not torch.allclose(
        system.decode(tokens, sentence, system.encode(given)),
        plain.decode(tokens, sentence, plain.encode(given)),
    )


# --- while decoding
