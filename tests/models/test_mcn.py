"""MCN: segment-level attention, fusion, memory; side by side equals sentence after sentence."""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cotext.data.batch import Source
from cotext.layers.blocks import Size, TransformerBlock
from cotext.layers.buckets import Sentences
from cotext.layers.kernels.relative import attend_from_memory
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.layout import Layout, Packed
from cotext.layers.multi_head import AttentionSize, CrossAttention, RowSpan, Score, SelfAttention, split_heads
from cotext.layers.positions import CLIP, sinusoidal
from cotext.layers.scores import SegmentDistanceScore
from cotext.layers.state import DecoderState
from cotext.layers.transformer_xl import TransformerXLScore
from cotext.models.interface import DocumentSettings
from cotext.models.mcn import SegmentGate
from cotext.models.transformer import Transformer
from tests.layers.layouts import doubles, layout, sentences
from tests.layers.test_state import VOCABULARY
from tests.layers.test_state import system as system_of
from tests.tiny import shake

# Three rows: of three sentences, of one, of five. Source sentences of the first: at 0-2, 3-4, 5-8.
LENGTHS = ([3, 2, 4], [4], [2, 1, 3, 1, 2])
TARGET_LENGTHS = ([2, 4, 3], [6], [1, 5, 2, 1, 3])
MCN: dict[str, Any] = {
    "encoder": {"span": "sentence"},
    "document_layer": "segment_gate",
    "decoder": {"span": "memory", "score": "transformer_xl"},
    "cross": {"span": "sentence"},
    "positions": "reset",
    "segments": "learned",
    "target_positions": "none",
    "target_segments": "none",
}
# What is left out, and the slots that leave it out.
WITHOUT_LOCAL = {"encoder": {"score": "segment_distance"}, "document_layer": "none"}


def model(layers: int = 2, memory: int = 1, context: int | None = None, **slots: Any) -> Transformer:
    """One of which no part is neutral."""
    filled = {**MCN, "source_sentences": context, "encoder_layers": layers, "decoder_layers": layers, **slots}
    if filled["decoder"]["span"] == "memory":
        filled["decoder"] = {**filled["decoder"], "memory_sentences": memory}
    built = system_of(4, **filled)
    shake(built)
    return built


def side(rows: Iterable[list[int]], seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens and their sentences, padded."""
    sentence = sentences(list(rows))
    tokens = torch.randint(0, 10, sentence.shape, generator=torch.Generator().manual_seed(seed))
    return tokens.where(sentence >= 0, torch.tensor(VOCABULARY - 1)), sentence


def example(
    lengths: Iterable[list[int]], target_lengths: Iterable[list[int]]
) -> tuple[Source, Tensor, Tensor]:
    tokens, sentence = side(lengths, 0)
    n = tokens.size(0)
    none = torch.zeros(n).long()
    current = torch.stack((none, sentence.max(dim=1).values + 1), dim=1)
    return Source(tokens, sentence, current, none, none), *side(target_lengths, 1)


def keys(system: Transformer, given: Source) -> Tensor:
    """What the decoder sees of every source token: [B, S, H, K]."""
    return system.encode(given).source.keys_values[0][0].transpose(1, 2)


def random(*shape: int, seed: int = 0) -> Tensor:
    return doubles(*shape, seed=seed).requires_grad_()


def naive_weights(q: Tensor, k: Tensor, of_keys: Tensor, sentence: Tensor, context: int | None) -> Tensor:
    """By the paper's equation 1, with a vector for every pair of tokens: [B, H, S, S]."""
    apart = sentence[:, :, None] - sentence[:, None, :]
    pairs = of_keys[apart.clamp(-CLIP, CLIP) + CLIP]  # [B, S, S, K]
    logits = torch.einsum("bhik,bhijk->bhij", q, k[:, :, None] + pairs[:, None]) / math.sqrt(q.size(-1))
    hidden = (sentence < 0)[:, None, :].expand_as(apart).clone()
    if context is not None:
        hidden |= apart.abs() > context
    return logits.masked_fill(hidden[:, None], -math.inf).softmax(dim=-1)


def naive(attention: SelfAttention, x: Tensor, sentence: Tensor, context: int | None) -> Tensor:
    """The paper's equations, one by one."""
    q, k, v = (split_heads(part, attention.heads) for part in attention.qkv(x).chunk(3, dim=-1))
    of_keys = of_values = x.new_zeros(2 * CLIP + 1, q.size(-1))
    if isinstance(attention.score, SegmentDistanceScore):
        of_keys, of_values = attention.score.of_keys, attention.score.of_values
    weights = naive_weights(q, k, of_keys, sentence, context)
    apart = (sentence[:, :, None] - sentence[:, None, :]).clamp(-CLIP, CLIP) + CLIP
    z = torch.einsum("bhij,bhijk->bhik", weights, v[:, :, None] + of_values[apart][:, None])
    mixed: Tensor = attention.out(z.transpose(1, 2).flatten(2))
    return mixed


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("context", [None, 2, 30])
@pytest.mark.parametrize("packed", [True, False])
def test_segment_attention_by_its_equations(relative: bool, context: int | None, packed: bool) -> None:
    """With gradients; one row has more sentences than there are vectors on either side, one has a single."""
    check_segment_attention(sentences([[2, 1, 3], [1] * 24, [5]]), relative, context, packed)


def check_segment_attention(sentence: Tensor, relative: bool, context: int | None, packed: bool) -> None:
    torch.manual_seed(0)
    size, kind = AttentionSize(8, 2, 0.0), SegmentDistanceScore if relative else Score
    attention = SelfAttention(size, RowSpan(), kind(size)).double()
    shake(attention, 1.0)
    real = sentence >= 0
    rows = layout(sentence, source_sentences=context)
    if not packed:
        rows.__dict__["packing"] = None
    x = random(3, sentence.size(1), 8)
    found = attention(rows.pack(x), rows)
    found = found if packed else found[real]
    expected = naive(attention, x, sentence, context)[real]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(found)
    inputs = [x, *attention.parameters()]
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_fusion_by_its_equations() -> None:
    """The layer is a whole one, by its own equations, or its attention alone."""
    size = Size(8, 16, 2, 2, 2)
    rows = layout(torch.tensor([[0, 0, 1, 1, 2]]), packed=Packed(by_sentence=True))
    local = torch.randn(5, 8, dtype=torch.float64)
    for feed_forward in (True, False):
        gated = SegmentGate(size, DocumentSettings(feed_forward=feed_forward)).double()
        assert gated.gate is not None
        gated.gate.bias.normal_()
        wide = of_the_row(gated, local, rows)
        g = torch.sigmoid(torch.cat((local, wide), dim=1) @ gated.gate.weight.T + gated.gate.bias)
        torch.testing.assert_close(gated(local, rows), gated.norm((1 - g) * local + g * wide))
        plain = SegmentGate(size, DocumentSettings(gate=False, feed_forward=feed_forward)).double()
        wide = of_the_row(plain, local, rows)
        torch.testing.assert_close(plain(local, rows), plain.norm(local + wide))


def of_the_row(top: SegmentGate, local: Tensor, rows: Layout) -> Tensor:
    if isinstance(top.layer, SelfAttention):
        mixed: Tensor = top.layer(local, rows)
        return mixed
    layer = top.layer
    x = layer.after_attention.norm(local + layer.attention(local, rows))
    wide: Tensor = layer.after_feed_forward.norm(x + layer.feed_forward(x))
    return wide


@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_one_sentence_takes_the_local_path_exactly_beside_longer_documents(pre_norm: bool) -> None:
    """Nothing of the global layer reaches it, not even what is no number."""
    system = model(pre_norm=pre_norm)
    given, _, _ = example(LENGTHS, TARGET_LENGTHS)
    before = keys(system, given)
    assert system.source_document is not None
    for parameter in system.source_document.parameters():
        parameter.fill_(math.nan)
    after = keys(system, given)
    assert torch.equal(after[1], before[1])
    real = given.sentence >= 0
    assert bool(after[0][real[0]].isnan().all())
    assert bool(after[2][real[2]].isnan().all())
    single, _, _ = example((LENGTHS[1], [7]), ([1], [1]))
    assert bool(keys(system, single).isfinite().all())


def test_attention_from_a_memory_by_its_equation() -> None:
    """Against loops over pairs, gradients included."""
    batch, queries, size, heads = 2, 3, 8, 2
    total = 5
    q, k, v = random(batch, queries, size, seed=1), *(random(batch, total, size, seed=s) for s in (2, 3))
    biases, r = random(2, size, seed=4), random(total + queries - 1, size, seed=5)
    mask = torch.ones(batch, 1, queries, total, dtype=torch.bool).tril(total - queries)
    mask[1, :, :, 0] = False  # a memory that is shorter
    out = torch.zeros(batch, queries, size, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            at = slice(4 * h, 4 * h + 4)
            for i in range(queries):
                seen = [j for j in range(total) if mask[b, 0, i, j]]
                scores = []
                for j in seen:
                    distance = r[j - (i + total - queries) + total - 1, at]
                    content = (q[b, i, at] + biases[0, at]) @ k[b, j, at]
                    scores.append((content + (q[b, i, at] + biases[1, at]) @ distance) / 2)
                weights = torch.stack(scores).softmax(dim=0)
                row = torch.zeros(size, dtype=torch.float64)
                row = row.index_add(0, torch.arange(8)[at], weights @ v[b, seen][:, at])
                out = out.index_put((torch.tensor(b), torch.tensor(i)), row, accumulate=True)
    inputs = [q, k, v, biases, r]
    upstream = torch.randn_like(out)
    expected = torch.autograd.grad((out * upstream).sum(), inputs)
    found = attend_from_memory(q, k, v, biases, r, mask, heads, 0.0)
    torch.testing.assert_close(found, out, rtol=1e-9, atol=1e-9)
    grads = torch.autograd.grad((found * upstream).sum(), inputs)
    torch.testing.assert_close(grads, expected, rtol=1e-9, atol=1e-9)


def sequential(system: Transformer, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
    """The decoder by its equations, row after row and sentence after sentence, with a detached memory."""
    hidden = torch.zeros(*tokens.shape, 16, dtype=torch.float64)
    for row in range(tokens.size(0)):
        memory: list[list[Tensor]] = [[] for _ in system.decoder]
        for k in range(int(sentence[row].max()) + 1):
            at = (sentence[row] == k).nonzero()[:, 0]
            x = system.embedding.weight[tokens[row, at]] * system.embedding.scale
            for i, block in enumerate(system.decoder):
                m, read = block.attention.span.memory_sentences, list[Tensor]()
                remembered = memory[i][len(memory[i]) - min(len(memory[i]), m) :]
                x = block.after_attention(x, partial(_own, block.attention, remembered, read))
                memory[i].append(read[0].detach())
                x = block.after_cross(x, partial(_cross, block.cross, state, i, row, k))
                x = block.after_feed_forward(x, block.feed_forward)
            hidden = hidden.index_put((torch.tensor(row), at), system.decoder_norm(x))
    return hidden


def _own(attention: SelfAttention, remembered: list[Tensor], read: list[Tensor], x: Tensor) -> Tensor:
    read.append(x)
    score = attention.score
    assert isinstance(score, TransformerXLScore)
    both = torch.cat((*remembered, x))
    of_q, of_k, of_v = attention.qkv.weight.chunk(3)
    b_q, b_k, b_v = attention.qkv.bias.chunk(3)
    q, k, v = x @ of_q.T + b_q, both @ of_k.T + b_k, both @ of_v.T + b_v
    before = len(both) - len(x)
    heads = []
    for h in range(2):
        at = slice(8 * h, 8 * h + 8)
        content = (q + score.content_bias)[:, at] @ k[:, at].T
        rows = []
        for i in range(len(x)):
            distance = i + before - torch.arange(len(both))
            r = sinusoidal(distance.clamp(min=0), 16).double() @ score.distance.weight.T
            by_distance = (q[i] + score.distance_bias)[at] @ r[:, at].T
            rows.append(((content[i] + by_distance) / math.sqrt(8)).masked_fill(distance < 0, -math.inf))
        heads.append(torch.stack(rows).softmax(dim=1) @ v[:, at])
    mixed: Tensor = attention.out(torch.cat(heads, dim=1))
    return mixed


def _cross(attention: CrossAttention, state: DecoderState, i: int, row: int, k: int, x: Tensor) -> Tensor:
    """To the source sentence k alone."""
    first, stop = state.source.spans[row, k].tolist()
    keys, values = (side[row, :, first:stop] for side in state.source.keys_values[i])
    q = attention.query(x).view(len(x), 2, 8).transpose(0, 1)
    mixed = scaled_dot_product_attention(q[None], keys[None], values[None])[0]
    out: Tensor = attention.out(mixed.transpose(0, 1).flatten(1))
    return out


@pytest.mark.parametrize("memory", [0, 1, 2])
@pytest.mark.parametrize("pre_norm", [False, True])
def test_training_side_by_side_equals_sentence_after_sentence(memory: int, pre_norm: bool) -> None:
    """Values, and gradients of all parameters, those of the encoder included."""
    system = model(layers=3, memory=memory, pre_norm=pre_norm)
    given, tokens, sentence = example(LENGTHS, TARGET_LENGTHS)
    real = sentence >= 0
    together = system.decode(tokens, sentence, system.encode(given))[real]
    apart = sequential(system, tokens, sentence, system.encode(given))[real]
    torch.testing.assert_close(together, apart, rtol=1e-9, atol=1e-9)
    upstream = torch.randn_like(together)
    names, parameters = zip(*system.named_parameters(), strict=True)
    grads = torch.autograd.grad((together * upstream).sum(), parameters)
    expected = torch.autograd.grad((apart * upstream).sum(), parameters)
    for name, one, other in zip(names, grads, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("memory", [0, 1, 2])
@torch.no_grad()
def test_no_more_is_read_than_the_memory(memory: int) -> None:
    """Forty sentences of four tokens: what is read does not grow with what was written."""
    system = model(memory=memory)
    given, _, _ = example(([3] * 40,), ([1],))
    state = system.encode(given)
    state.open(160)
    for t in range(160):
        k = torch.tensor([[t // 4]])
        seen = state.within_sentence(k, state.slot_mask(1, k.device), memory)
        assert seen.stop - seen.first == 4 * min(memory, t // 4) + t % 4 + 1
        read, _ = state.source.within(k)
        assert (read.start, read.stop) == (3 * (t // 4), 3 * (t // 4) + 3)
        system.decode(torch.tensor([[t % 10]]), k, state)
    assert len(state.kept) == 2
    assert all(len(r) <= 8 * (memory + 1) for r in state.kept.values())


@torch.no_grad()
def test_shown_weights_are_those_of_the_equation() -> None:
    system = model()
    top = system.source_document
    assert isinstance(top, SegmentGate)
    assert isinstance(top.layer, TransformerBlock)
    attention = top.layer.attention
    assert isinstance(attention, SelfAttention)
    assert isinstance(attention.score, SegmentDistanceScore)
    given, _, _ = example(LENGTHS, TARGET_LENGTHS)
    shown: list[tuple[Tensor, TokenIndices | None]] = []
    local: list[Tensor] = []
    top.register_forward_hook(lambda module, given, out: local.append(given[0]))
    with watch_weights(lambda weights, real, tokens: shown.append((weights, tokens))):
        system.encode(given)
    weights, indices = shown[-1]
    assert indices is None  # the tokens of the rows in order
    sentence, length = given.sentence, given.sentence.size(1)
    real, order = sentence >= 0, Sentences(sentence).rows.index_N
    x = torch.zeros(3, length, 16, dtype=torch.float64)
    x[order // length, order % length] = local[0]
    q, k, _ = (split_heads(part, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    expected = naive_weights(q, k, attention.score.of_keys, sentence, None)
    compared = real[:, None].expand(weights.shape[:3])
    torch.testing.assert_close(weights[compared], expected[compared], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("slots", [{}, WITHOUT_LOCAL], ids=["local", "row"])
def test_mixed_precision_is_close_and_trains(slots: dict[str, Any]) -> None:
    """Products in bfloat16: complete rows and steps, and gradients that are numbers."""
    system = model(**slots).float()
    given, tokens, sentence = example(LENGTHS, TARGET_LENGTHS)
    expected = system.decode(tokens, sentence, system.encode(given)).detach()
    with torch.autocast("cpu", torch.bfloat16):
        found = system.decode(tokens, sentence, system.encode(given))
        with torch.no_grad():
            state = system.encode(given)
            state.open(9)
            for t in range(9):
                at = slice(t, t + 1)
                first = [side[:1, at].expand(3, 1) for side in (tokens, sentence)]
                step = system.decode(*first, state)
                torch.testing.assert_close(step[0].float(), expected[0, at], rtol=0, atol=0.15)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.15)
    found.float().pow(2).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in system.parameters() if p.grad is not None)


@torch.no_grad()
def test_no_context_is_every_sentence_by_itself() -> None:
    system = model(context=0, segments="none")
    given, _, _ = example(([3, 2, 4],), ([1],))
    together = keys(system, given)[0]
    for first, stop in pairwise((0, 3, 5, 9)):
        one = torch.zeros(1, stop - first, dtype=torch.long)
        alone = replace(given, tokens=given.tokens[:, first:stop], sentence=one)
        torch.testing.assert_close(keys(system, alone)[0], together[first:stop], rtol=1e-9, atol=1e-9)
