"""Context that is encoded apart (DocT, Voita et al. 2018), on the equations, in plain products.

What holds of every system is in the cover.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance, make_batch
from cotext.data.views import Window
from cotext.layers.blocks import TransformerBlock
from cotext.layers.kernels.sdpa import watch_weights
from cotext.models.build_views import special_symbols
from cotext.models.doct import GatedSublayer, SeparateContext
from cotext.models.transformer import Transformer
from cotext.models.voita_2018 import BesideSelfAttention, SharedContext
from tests.golden import TOKENIZER
from tests.layers.layouts import attended
from tests.tiny import random_model, tiny_config, window

WORDS = [[4, 5, 6], [7], [8, 9], [4, 8]]
WRITTEN = [[5, 6], [9], [7, 4, 5], [6]]


def system(kind: str, **model: Any) -> tuple[Transformer, Config]:
    layers = {"encoder_layers": 3, "context_layers": 2 - (kind == "shared")}
    config = tiny_config(
        model={"context_encoder": kind, **layers, **model}, view={**window(2), "target_before": 0}
    )
    made = random_model(config, TOKENIZER)
    assert isinstance(made, Transformer)
    return made, config


def rows(config: Config, *current: int) -> Batch:
    """Windows of two sentences before each of the current ones."""
    made = [
        Instance(
            0, Window(range(max(0, j - 2), j + 1), range(j, j + 1), range(j, j + 1)), source, [WRITTEN[j]]
        )
        for j in current
        for source in [WORDS[max(0, j - 2) : j + 1]]
    ]
    return make_batch(made, special_symbols(TOKENIZER, config.view))


def embedded(model: Transformer, tokens: list[int], first: Tensor | None = None) -> Tensor:
    """Embeddings of a sequence with positions from its beginning, [T, D]; `first` comes before it."""
    x = model.embedding.weight[tokens] * math.sqrt(16)
    x = x if first is None else torch.cat((first[None], x))
    half = torch.exp(-torch.arange(8, dtype=torch.double) * math.log(10_000) / 7)
    angles = torch.arange(len(x), dtype=torch.double)[:, None] * half
    return x + torch.cat((angles.sin(), angles.cos()), dim=1)


def mixed(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Multi-head attention of [T, D] to [S, D], token by token."""
    seen = [slice(t + 1 if causal else len(k)) for t in range(len(q))]
    return torch.stack([attended(q[t], k[keys], v[keys]) for t, keys in enumerate(seen)])


def own(attention: Any, x: Tensor, causal: bool = False) -> Tensor:
    result: Tensor = attention.out(mixed(*attention.qkv(x).chunk(3, dim=1), causal=causal))
    return result


def other(attention: Any, x: Tensor, memory: Tensor) -> Tensor:
    result: Tensor = attention.out(mixed(attention.query(x), *attention.key_value(memory).chunk(2, dim=1)))
    return result


def behind(sublayer: nn.Module | None, x: Tensor, context: Tensor | None) -> Tensor:
    """DocT: x' = LayerNorm(g x + (1 - g) y), g = sigmoid(Wx x + Wy y)."""
    if context is None or not isinstance(sublayer, GatedSublayer):
        return x
    y = other(sublayer.attention, x, context)
    of_x, of_y = sublayer.gate.weight.chunk(2, dim=1)
    assert sublayer.gate.bias is None
    gate = (x @ of_x.T + y @ of_y.T).sigmoid()
    result: Tensor = sublayer.norm(gate * x + (1 - gate) * y)
    return result


def encoded(block: TransformerBlock, x: Tensor, context: Tensor | None) -> Tensor:
    states, sublayer = own(block.attention, x), block.context_attention
    if context is not None and isinstance(sublayer, BesideSelfAttention):
        c = other(sublayer.attention, x, context)
        gate = (sublayer.gate.weight @ torch.cat((states, c), dim=1).T).T + sublayer.gate.bias
        states = gate.sigmoid() * states + (1 - gate.sigmoid()) * c
    x = behind(sublayer, block.after_attention.norm(x + states), context)
    result: Tensor = block.after_feed_forward.norm(x + block.feed_forward(x))
    return result


def decoded(block: TransformerBlock, x: Tensor, memory: Tensor, context: Tensor | None) -> Tensor:
    x = block.after_attention.norm(x + own(block.attention, x, causal=True))
    x = behind(block.context_attention, x, context)
    x = block.after_cross.norm(x + other(block.cross, x, memory))
    result: Tensor = block.after_feed_forward.norm(x + block.feed_forward(x))
    return result


def plain(model: Transformer, batch: Batch, row: int) -> Tensor:
    """The hidden states of a row: [T, D]."""
    source = batch.source
    real, current = source.sentence[row] >= 0, source.current[row]
    is_current = (source.sentence[row] >= current[0]) & (source.sentence[row] < current[1])
    before = source.tokens[row][real & ~is_current].tolist()
    context = None
    if before:
        reader = model.context_encoder
        if isinstance(reader, SharedContext):
            context = embedded(model, before, reader.first)
            lower: list[Any] = [*list(model.encoder)[:-1], *reader.layers]
        else:
            assert isinstance(reader, SeparateContext)
            context, lower = embedded(model, before), [*reader.layers]
        for block in lower:
            context = encoded(block, context, None)
    x = embedded(model, source.tokens[row][is_current].tolist())
    for block in model.encoder:
        x = encoded(block, x, context)
    y = embedded(model, batch.target_input[row][batch.input_sentence[row] >= 0].tolist())
    for each in model.decoder:
        y = decoded(each, y, x, context)
    return y


@pytest.mark.parametrize("kind", ["separate", "shared"])
@torch.no_grad()
def test_blocks_attend_to_context_as_the_equations_say(kind: str) -> None:
    """Rows with two, one and no context sentences, in one batch."""
    model, config = system(kind)
    batch = rows(config, 3, 1, 0)
    found = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    for row in range(3):
        torch.testing.assert_close(found[row][batch.is_label[row]], plain(model, batch, row))


@torch.no_grad()
def test_both_parts_of_a_row_are_shifted_by_its_mean_sentence_length() -> None:
    states = []
    for shift in ("sequence", 3):  # with their closing symbols, the sentences have 4 and 2 tokens
        model, config = system("separate", positions="shifted", shift=shift)
        batch = rows(config, 1)
        states.append(model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source)))
    assert torch.equal(*states)


@pytest.mark.parametrize("kind", ["separate", "shared"])
@torch.no_grad()
def test_recorded_weights_leave_rows_without_context_out(kind: str) -> None:
    model, config = system(kind)
    shown: list[tuple[int, ...]] = []
    batch = rows(config, 3, 0)
    context = int((batch.source.sentence[0] < 2).sum()) + (kind == "shared")
    with watch_weights(lambda w, real, _: shown.append((w.size(3), int(real[-1].sum())))):
        model.encode(batch.source)
    assert (context, 0) in shown


def test_its_gate_starts_almost_closed_or_at_random() -> None:
    """As published: DocT's gates have no bias."""
    assert system("separate")[0].neutral_start() == {}
    starts = system("shared")[0].neutral_start()
    assert starts == {
        "encoder.2.context_attention.gate.weight": 0.0,
        "encoder.2.context_attention.gate.bias": 4.0,
    }
