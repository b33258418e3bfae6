"""Hierarchical attention, on its equations token by token; what holds of every system is in the cover."""

import torch
from torch import Tensor

from cotext.config.recipe import load_config
from cotext.layers.layout import Layout, Packed
from cotext.models.han import HierarchicalAttention
from cotext.models.transformer import Transformer
from tests.golden import SETTINGS, TOKENIZER
from tests.layers.layouts import attended
from tests.tiny import random_model

SENTENCES = torch.tensor([[0, 0, 1, 1, 1, 2, 3, 3, 4], [0, 1, 1, 2, -1, -1, -1, -1, -1]])


def model_of(recipe: str) -> Transformer:
    model = random_model(load_config(recipe, overrides=SETTINGS), TOKENIZER)
    assert isinstance(model, Transformer)
    return model


def layer_of(model: Transformer) -> HierarchicalAttention:
    layer = model.source_document
    assert isinstance(layer, HierarchicalAttention)
    return layer


def product(query: Tensor, memory: Tensor, layer: HierarchicalAttention, words: bool) -> Tensor:
    """Multi-head attention of one vector [D] to several [n, D], projected and normalised."""
    part = layer.words if words else layer.of_sentences
    keys, values = part.key_value(memory).chunk(2, dim=-1)
    normalised: Tensor = part.norm(part.out(attended(part.query(query), keys, values)))
    return normalised


@torch.no_grad()
def test_a_token_reads_each_sentence_then_the_sentences() -> None:
    """Equations 1 to 6 of section 2.2, one token after the other."""
    model = model_of("han/joint")
    layer = layer_of(model)
    x = torch.randn(2, SENTENCES.size(1), 16, dtype=torch.double)
    layout = Layout(SENTENCES, Packed())
    found = layout.unpack(layer(layout.pack(x), layout))
    for b, row in enumerate(SENTENCES.tolist()):
        for t, k in enumerate(row):
            if k < 0:
                continue
            h = x[b, t]
            before = list(range(max(0, k - 3), k))
            if not before:
                assert torch.equal(found[b, t], h)
                continue
            answers = [product(h, x[b][SENTENCES[b] == j], layer, words=True) for j in before]
            d = layer.norm(layer.feed_forward(product(h, torch.stack(answers), layer, words=False)))
            gate = layer.gate(torch.cat((h, d))).sigmoid()
            torch.testing.assert_close(found[b, t], gate * h + (1 - gate) * d)


def test_its_gate_starts_almost_closed() -> None:
    starts = model_of("han/joint").neutral_start()
    assert starts["source_document.gate.bias"] == starts["target_document.gate.bias"] == 4.0
    assert set(starts.values()) == {0.0, 4.0}


@torch.no_grad()
def test_attention_dropout_also_drops_sentences() -> None:
    layer = layer_of(model_of("han/joint")).train()
    layer.attention_dropout = 0.5
    h, results = torch.randn(1, 4, 16, dtype=torch.double), torch.randn(1, 4, 3, 16, dtype=torch.double)
    one, other = (layer._chosen(h, results, torch.ones(1, 4, 3, dtype=torch.bool)) for _ in range(2))
    assert not torch.equal(one, other)
