"""G-Transformer: who sees whom in local and global layers, and its equality with the baseline."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.layout import Packed
from cotext.layers.multi_head import AttentionSize, RowSpan, Score, SelfAttention
from cotext.layers.others import BiasedOthersSpan
from cotext.layers.sentence_spans import SentenceSpan
from cotext.layers.state import STEPS_BETWEEN_COLLECTIONS
from cotext.models.g_transformer import GatedAttention
from cotext.models.transformer import Transformer
from cotext.training.warm_start import inherit
from tests.layers.layouts import layout
from tests.layers.test_state import PREFIXES, VOCABULARY, Rows, search_at_random, source, system

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
    rows = list(rows)
    longest = max(map(sum, rows))
    sentence = torch.full((len(rows), longest), -1)
    for i, lengths in enumerate(rows):
        sentence[i, : sum(lengths)] = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
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


def changed(tokens: Tensor, t: int) -> Tensor:
    """The first row has another token t."""
    other = tokens.clone()
    other[0, t] = (other[0, t] + 1) % 10
    return other


def moved(before: Tensor, after: Tensor) -> list[bool]:
    """Which tokens of the first row, [B, T, ...], differ; in the other rows none may."""
    apart = (before - after).abs().flatten(2).amax(dim=2) > 1e-9
    assert not bool(apart[1:].any())
    return apart[0].tolist()


def with_source(given: Source, t: int) -> Source:
    """The first row has another source token t."""
    return replace(given, tokens=changed(given.tokens, t))


def with_gates(system: Transformer, bias: float) -> Transformer:
    """Gates that are fixed: a large bias means local, a small one global."""
    with torch.no_grad():
        for module in system.modules():
            if isinstance(module, GatedAttention):
                module.gate.weight.zero_()
                module.gate.bias.fill_(bias)
    return system


def keys(system: Transformer, given: Source, attention: int = 0) -> Tensor:
    """What the decoder sees of every source token: [B, S, H, K]."""
    return system.encode(given).source.keys_values[attention][0].transpose(1, 2)


# --- who sees whom: the first row has source sentences at 0-2, 3-4, 5-8, target sentences at 0-1, 2-5, 6-8

SOURCE_SENTENCE = [0, 0, 0, 1, 1, 2, 2, 2, 2]
TARGET_SENTENCE = [0, 0, 1, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(("bias", "local"), [(60.0, True), (-800.0, False)])
@torch.no_grad()
def test_a_closed_gate_keeps_one_of_the_two(bias: float, local: bool) -> None:
    """In a single layer: with the gate at global, nothing of the local attention is left, and vice versa."""
    system = with_gates(model(1, layers=1), bias)
    given, tokens, sentence = example()
    hidden = system.decode(tokens, sentence, system.encode(given))
    other = with_source(given, 4)
    of_source = system.decode(tokens, sentence, system.encode(other))
    assert moved(hidden, of_source) == [n == 1 if local else True for n in TARGET_SENTENCE]
    for name, parameter in system.named_parameters():
        if (".wide." if local else ".local.") in name:
            parameter.add_(1.0)
    assert torch.equal(system.decode(tokens, sentence, system.encode(given)), hidden)


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


@pytest.mark.parametrize("gates", [60.0, None])
@torch.no_grad()
def test_a_model_started_from_the_baseline_is_the_baseline_on_one_sentence(gates: float | None) -> None:
    """With the gate at local; and with any gate, as global attention starts as a copy of the local one."""
    plain, system = baseline(), model(1)
    found = inherit(system, plain.state_dict())
    assert {name.rsplit(".", 1)[0] for name in found.neutral} == {
        "encoder.1.attention.gate",
        "decoder.1.attention.gate",
        "decoder.1.cross.gate",
    }
    assert not found.unused
    assert not found.fresh
    if gates is not None:
        with_gates(system, gates)
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


@pytest.mark.parametrize(
    ("global_layers", "beam", "others"), [(1, 1, "joint"), (0, 3, "joint"), (1, 3, "gated")]
)
@torch.no_grad()
def test_every_step_equals_the_full_pass_through_reordering_and_departures(
    global_layers: int, beam: int, others: str
) -> None:
    """Beams fall into different sentences, and past the last one of the source."""
    system = baseline(attention={**attention_of(global_layers), "others": others})
    biases = [module.bias for module in system.modules() if isinstance(module, BiasedOthersSpan)]
    assert len(biases) == (3 if others == "gated" else 0)
    for bias in biases:
        torch.nn.init.normal_(bias, std=2.0)
    rows = Rows(system, source([7, 3, 9, 4]), PREFIXES, slots=80)
    search_at_random(rows, beam, 2 * STEPS_BETWEEN_COLLECTIONS + 4, {5: [0, 3, 2], 10: [2, 1]})
    assert rows.state.near > 0
