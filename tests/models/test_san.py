"""Selective attention, on its equations token by token; what holds of every system is in the cover."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.layers.layout import Layout, Packed
from cotext.layers.multi_head import Size
from cotext.models.interface import DocumentSettings
from cotext.models.san import SelectiveAttention, softmax_inside, sparsemax, sparsemax_inside

SENTENCES = torch.tensor([[0, 0, 1, 1, 1, 2, 3, 3, 4], [0, 1, 1, 2, -1, -1, -1, -1, -1], [0] * 4 + [-1] * 5])
SIZE = Size(16, 32, heads=2, encoder_layers=1, decoder_layers=1)


def test_sparsemax_of_a_hand_worked_case() -> None:
    """Of 3, 2.6, 0 two are in the support: the threshold is (5.6 - 1) / 2 = 2.3."""
    x = torch.tensor([[3.0, 2.6, 0.0], [0.1, 0.1, 0.1], [5.0, 1.0, 1.0]], dtype=torch.double)
    wanted = torch.tensor([[0.7, 0.3, 0.0], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]], dtype=torch.double)
    torch.testing.assert_close(sparsemax(x), wanted)
    nothing = torch.full((2, 3), torch.finfo(torch.float32).min)
    torch.testing.assert_close(sparsemax(nothing), torch.full((2, 3), 1 / 3))


def test_inside_each_sentence_weights_are_those_of_the_sentence_alone() -> None:
    scores = torch.randn(3, 2, 4, SENTENCES.size(1), dtype=torch.double) * 3
    scores[..., 3] = torch.finfo(torch.double).min  # a word of another beam
    scores = scores.masked_fill((SENTENCES < 0)[:, None, None], torch.finfo(torch.double).min)
    member = (SENTENCES[:, :, None] == torch.arange(5)).to(scores)[:, None]
    for inside, alone in ((softmax_inside, lambda x: x.softmax(dim=-1)), (sparsemax_inside, sparsemax)):
        found = inside(scores, member)
        for b, row in enumerate(SENTENCES.tolist()):
            for j in set(row) - {-1}:
                words = [t for t, k in enumerate(row) if k == j]
                torch.testing.assert_close(found[b][..., words], alone(scores[b][..., words]))


@pytest.mark.parametrize("sparse", [False, True])
def test_its_weights_have_the_gradient_of_the_equations(sparse: bool) -> None:
    layer = SelectiveAttention(SIZE, DocumentSettings(word_weights="sparsemax" if sparse else "softmax"))
    layer = layer.double()
    x = torch.randn(1, 6, 16, dtype=torch.double, requires_grad=True)
    layout = Layout(torch.tensor([[0, 0, 1, 1, 2, 2]]), Packed(answers=layer.answers))
    assert torch.autograd.gradcheck(lambda x: layer(x, layout), x)


def sparse(x: Tensor) -> Tensor:
    """Sparsemax of a vector: the threshold that leaves a sum of one, found by bisection."""
    low, high = float(x.max()) - 1, float(x.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((x - middle).clamp(min=0).sum()) > 1 else (low, middle)
    return (x - low).clamp(min=0)


def parts(linear: torch.nn.Linear, x: Tensor, count: int, heads: int) -> list[list[Tensor]]:
    """Projections of states [n, D]: by letter, by head."""
    return [list(part.chunk(heads, dim=-1)) for part in linear(x).chunk(count, dim=-1)]


def context(layer: SelectiveAttention, h: Tensor, sentences: list[Tensor]) -> Tensor:
    """The context of one token with state h [D], of the states [n, D] of other sentences, head by head."""
    found = []
    for head in range(layer.heads):
        qs, *qw = (each[head] for each in parts(layer.query, h, layer.caches, layer.heads))
        keys, values, counts = [], [], []
        for states in sentences:
            *each, v = (p[head] for p in parts(layer.key_value, states, layer.caches + 1, layer.heads))
            keys.append(each)
            values.append(v)
            counts.append(len(states))
        scale = 1 / math.sqrt(len(qs))
        if layer.level == "words":
            weights = (torch.cat([k[0] for k in keys]) @ qs * scale).softmax(dim=0)
            found.append(weights @ torch.cat(values))
            continue
        of_sentences = torch.stack([k[0].mean(dim=0) for k in keys]) @ qs * scale
        if layer.level == "sentences":
            found.append(of_sentences.softmax(dim=0) @ torch.stack([v.mean(dim=0) for v in values]))
            continue
        inside = sparse if layer.sparse_words else lambda x: x.softmax(dim=0)
        answers = [inside(k[1] @ qw[0] * scale) @ v for k, v in zip(keys, values, strict=True)]
        found.append(sparse(of_sentences) @ torch.stack(answers))
    return torch.cat(found)


VARIANTS: dict[str, dict[str, Any]] = {
    "sparse-soft": {},
    "sparse-sparse": {"word_weights": "sparsemax"},
    "sentences": {"level": "sentences"},
    "words": {"level": "words"},
    "earlier alone": {"later": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_token_chooses_sentences_then_their_words(variant: str, causal: bool) -> None:
    torch.manual_seed(3)
    layer = SelectiveAttention(SIZE, DocumentSettings(**VARIANTS[variant])).double()
    for parameter in layer.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.4)
    x = torch.randn(*SENTENCES.shape, 16, dtype=torch.double)
    layout = Layout(SENTENCES, Packed(answers=layer.answers), causal=causal)
    found = layout.unpack(layer(layout.pack(x), layout))
    zeros = 0
    for b, row in enumerate(SENTENCES.tolist()):
        for t, k in enumerate(row):
            if k < 0:
                continue
            h, later = x[b, t], layer.later and not causal
            others = [j for j in range(max(row) + 1) if (j != k if later else j < k)]
            if not others:
                assert torch.equal(found[b, t], h)
                continue
            c = context(layer, h, [x[b][SENTENCES[b] == j] for j in others])
            d = layer.output_norm(layer.feed_forward(layer.norm(layer.out(c))))
            of_state, of_context = layer.gate.weight.chunk(2, dim=1)
            gate = (of_state @ h + of_context @ d).sigmoid()
            torch.testing.assert_close(found[b, t], gate * h + (1 - gate) * d)
            zeros += 1
    assert zeros > 5


def test_parameters_are_as_many_as_published() -> None:
    """4.2 million more than the sentence model (Zheng et al. 2020, table 1), at 512 and 2,048 dimensions."""
    layer = SelectiveAttention(Size(512, 2048, 8, 1, 1), DocumentSettings())
    assert round(sum(each.numel() for each in layer.parameters()) / 1e6, 1) == 4.2
