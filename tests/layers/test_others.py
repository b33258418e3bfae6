"""Own sentences and others behind gates: the equations, query by query, without the package's kernels."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from cotext.data.batch import Instance, make_batch
from cotext.data.views import Window
from cotext.layers.kernels import gated_others
from cotext.layers.kernels.gated_others import FAR, Apart, attend_apart, bias_column
from cotext.layers.kernels.sdpa import watch_weights
from cotext.layers.layout import Layout, Packed
from cotext.layers.multi_head import (
    AttentionSize,
    CrossAttention,
    Score,
    SelfAttention,
    merge_heads,
    split_heads,
)
from cotext.layers.spans import BiasedOthersSpan, GatedOthersSpan, ProjectedOthersSpan
from cotext.models.build import SCORES
from cotext.models.build_views import special_symbols
from tests.layers.layouts import attended, doubles, layout, source_side
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window

TOKENIZER = PlainWordTokenizer([*"abcdefgh"])


# Of each head, by sentences back; negative: ahead.
BIAS: list[dict[int, float]] = [
    {-2: 0.5, -1: -1.0, 1: 2.0, 2: -0.5},
    {-2: 0.1, -1: 0.3, 1: -2.0, 2: 1.0},
    {-2: 0, -1: 0, 1: 0, 2: 0},
]


def columns(bias: list[dict[int, float]]) -> Tensor:
    """The parameter of these biases: from 4 ahead to 4 back."""
    distances = (-4, -3, -2, -1, 1, 2, 3, 4)
    return torch.tensor([[head.get(d, 7.0) for d in distances] for head in bias], dtype=torch.float64)


def mixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    own: Tensor,
    others: Tensor,
    sentence: Tensor,
    of_query: Tensor | None = None,
) -> Tensor:
    """One query after the other: [B, H, T, K]. `sentence` is that of keys, `of_query` that of queries."""
    q, k, v = (x.detach() for x in (q, k, v))
    of_query = sentence if of_query is None else of_query
    out = torch.zeros_like(q)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        scores = [float(q[b, h, t] @ k[b, h, s]) / math.sqrt(q.size(3)) for s in range(k.size(2))]
        for mask, share in ((own, 1.0), (others, float(gate[h]))):
            far = [int(of_query[b, t] - sentence[b, s]) for s in range(k.size(2))]
            seen = {
                s: math.exp(scores[s] + BIAS[h].get(far[s], 0)) for s in range(k.size(2)) if mask[b, 0, t, s]
            }
            for s, weight in seen.items():
                out[b, h, t] += share * weight / sum(seen.values()) * v[b, h, s]
    return out


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_others, "CHUNK_NUMBERS", 24)


def rows(causal: bool) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Queries, keys and values of two rows, the second padded, masks of own keys and others, sentences."""
    torch.manual_seed(1)
    sentence = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, -1, -1]])
    same = (sentence[:, :, None] == sentence[:, None])[:, None]
    seen = (sentence >= 0)[:, None, None].expand_as(same)
    if causal:
        seen = torch.ones(7, 7, dtype=torch.bool).tril().expand_as(same)
    q_k_v = [torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    return q_k_v, same & seen, ~same & seen, sentence


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_both_softmaxes(causal: bool, cpu: bool, small_chunks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_others, "on_cpu", lambda x: cpu)
    q_k_v, own, others, sentence = rows(causal)
    gate = torch.tensor([0.5, 0.6, -0.8], dtype=torch.float64)
    apart = Apart.of(own, others, sentence, sentence, causal)
    found = attend_apart(*q_k_v, gate, columns(BIAS), apart)
    expected = mixed(*q_k_v, gate, own, others, sentence)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1, :, :5], expected[1, :, :5])
    assert bool(found.isfinite().all())  # on padding, too


@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal: bool, small_chunks: None) -> None:
    q_k_v, own, others, sentence = rows(causal)
    apart = Apart.of(own, others, sentence, sentence, causal)
    gate = torch.tensor([0.5, 0.0, -0.8], dtype=torch.float64, requires_grad=True)
    bias = columns(BIAS).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *given: attend_apart(*given, apart), (*q_k_v, gate, bias), fast_mode=True
    )


def test_distances_are_clipped() -> None:
    sentences = torch.arange(12)
    column = bias_column(sentences[:, None], sentences[None])
    assert column[6].tolist() == [7, 7, 7, 6, 5, 4, 4, 3, 2, 1, 0, 0]  # for the sentence itself, any
    assert column.size() == (12, 12)
    assert set(column.flatten().tolist()) == set(range(2 * FAR))


SENTENCES = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, -1, -1, -1]])
SIZE = AttentionSize(8, 2, 0.0)


@pytest.mark.parametrize("score", ["content", "relative", "alibi", "segment_distance"])
@torch.no_grad()
def test_every_score_has_the_bias(score: str) -> None:
    """A very low bias hides all sentences but the one before."""
    torch.manual_seed(1)
    span, made = GatedOthersSpan(2, 1.0), SCORES[score](SIZE)
    attention = SelfAttention(SIZE, span, made).double()
    span.gate[:], span.bias[:], span.bias[:, FAR] = 0.5, -1e4, 0.0
    packed = Packed(answers=(*span.answers, *made.answers))
    rows = layout(SENTENCES, packed=packed, relative=doubles(5, 4), causal=score != "segment_distance")
    x = doubles(2, 6, 8)
    other = x.clone()
    other[0, :2] += 1  # the first sentence
    for watched in (False, True):
        with watch_weights(lambda *_: None) if watched else nullcontext():
            changed = ~torch.isclose(*(rows.unpack(attention(rows.pack(each), rows)) for each in (x, other)))
        assert changed.any(dim=2).tolist() == [[True] * 5 + [False], [False] * 6]


@torch.no_grad()
def test_cross_attention_counts_from_the_translated_sentence(small_chunks: None) -> None:
    torch.manual_seed(1)
    span = GatedOthersSpan(2, 1.0)
    attention = CrossAttention(SIZE, span, Score(SIZE)).double()
    span.gate[:], span.bias[:] = torch.tensor([0.4, -0.9]).atanh(), columns(BIAS[:2])
    memory, x, target = (
        doubles(2, 6, 8),
        doubles(2, 4, 8, seed=1),
        torch.tensor([[0, 1, 2, 3], [0, 1, 1, -1]]),
    )
    side = source_side(attention, memory, SENTENCES)
    made = layout(target, packed=Packed(answers=span.source_answers), source=side)
    q = split_heads(attention.query(x), 2)
    of_target = target.minimum(torch.tensor([[2], [1]]))  # the last stands for those beyond it
    same = (of_target[:, :, None] == SENTENCES[:, None])[:, None]
    others = ~same & (SENTENCES >= 0)[:, None, None]
    wanted = mixed(q, *side.keys_values[0], span.open, same, others, SENTENCES, of_target)
    for watched in (False, True):
        with watch_weights(lambda *_: None) if watched else nullcontext():
            found = made.unpack(attention(made.pack(x), made))
        expected = attention.out(merge_heads(wanted))
        torch.testing.assert_close(found[target >= 0], expected[target >= 0])


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_one_softmax_with_the_bias_of_others(causal: bool) -> None:
    torch.manual_seed(1)
    span = BiasedOthersSpan(2, 1.0)
    attention = SelfAttention(SIZE, span, Score(SIZE)).double()
    span.bias[:] = columns(BIAS[:2])
    x, made = doubles(2, 6, 8), layout(SENTENCES, packed=Packed(answers=span.answers), causal=causal)
    q, k, v = attention.split(attention.qkv(x))
    seen = (SENTENCES >= 0)[:, None, None].expand(2, 1, 6, 6)
    seen = seen.tril() if causal else seen
    wanted = attention.out(merge_heads(mixed(q, k, v, torch.zeros(2), seen, seen, SENTENCES)))
    found = made.unpack(attention(made.pack(x), made))
    torch.testing.assert_close(found[SENTENCES >= 0], wanted[SENTENCES >= 0])


@torch.no_grad()
def test_one_softmax_over_the_source_with_the_bias_of_others() -> None:
    torch.manual_seed(1)
    span = BiasedOthersSpan(2, 1.0)
    attention = CrossAttention(SIZE, span, Score(SIZE)).double()
    span.bias[:] = columns(BIAS[:2])
    side = source_side(attention, doubles(2, 6, 8), SENTENCES)
    x, target = doubles(2, 4, 8, seed=1), torch.tensor([[0, 1, 2, 2], [0, 1, 1, -1]])
    made = layout(target, packed=Packed(answers=span.source_answers), source=side)
    seen = (SENTENCES >= 0)[:, None, None].expand(2, 1, 4, 6)
    q = split_heads(attention.query(x), 2)
    wanted = mixed(q, *side.keys_values[0], torch.zeros(2), seen, seen, SENTENCES, target)
    found = made.unpack(attention(made.pack(x), made))
    torch.testing.assert_close(found[target >= 0], attention.out(merge_heads(wanted))[target >= 0])


def test_rows_of_one_sentence_beside_rows_of_several_without_padding() -> None:
    config = tiny_config(
        model={"attention": {"others": "gated"}, "positions": "reset"},
        view={**window(1), "separators": "bracket", "open_source": False},
    )
    model = random_model(config, TOKENIZER)
    symbols = special_symbols(TOKENIZER, config.view)
    one = Instance(0, Window(range(1), range(1), range(1)), [[4, 5, 6, 7]], [[8, 7, 4, 5]])
    two = Instance(0, Window(range(2), range(2), range(1, 2)), [[4], [5, 6]], [[6, 7], [8]])
    together = make_batch([one, two], symbols)
    assert bool((together.input_sentence >= 0).all())
    assert bool((together.source.sentence >= 0).all())
    with torch.no_grad():
        both = model.decode(together.target_input, together.input_sentence, model.encode(together.source))
        for row, instance in enumerate((one, two)):
            batch = make_batch([instance], symbols)
            alone = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
            torch.testing.assert_close(both[row], alone[0])


def joined(attention: SelfAttention | CrossAttention, long: Tensor, short: Tensor) -> Tensor:
    """W [long; short] + b with one matrix W."""
    span = attention.span
    assert isinstance(span, ProjectedOthersSpan)
    both = torch.cat((span.long.weight, attention.out.weight), dim=1)
    return both @ torch.cat((long, short)) + attention.out.bias


def assert_joined(
    attention: SelfAttention | CrossAttention, made: Layout, x: Tensor, q_k_v: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Compare with two attentions token by token, to all keys and to those of the own sentence."""
    found, causal = made.unpack(attention(made.pack(x), made)), made.causal
    keys = SENTENCES.tolist()
    for b, row in enumerate(made.sentence.tolist()):
        q, k, v = (side[b] for side in q_k_v)
        for t, own in enumerate(row):
            if own < 0:
                continue
            seen = [s for s, other in enumerate(keys[b]) if other >= 0 and (s <= t or not causal)]
            short = [s for s in seen if keys[b][s] == own]
            wanted = joined(attention, attended(q[t], k[seen], v[seen]), attended(q[t], k[short], v[short]))
            torch.testing.assert_close(found[b, t], wanted)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_long_and_a_short_mask_are_joined_by_a_projection(causal: bool) -> None:
    attention, x = SelfAttention(SIZE, ProjectedOthersSpan(8), Score(SIZE)).double(), doubles(2, 6, 8)
    made = layout(SENTENCES, packed=Packed(answers=ProjectedOthersSpan.answers), causal=causal)
    assert_joined(attention, made, x, attention.qkv(x).chunk(3, dim=-1))


@torch.no_grad()
def test_the_short_mask_of_cross_attention_is_the_translated_sentence() -> None:
    attention = CrossAttention(SIZE, ProjectedOthersSpan(8), Score(SIZE)).double()
    memory, x = doubles(2, 6, 8), doubles(2, 3, 8, seed=1)
    side = source_side(attention, memory, SENTENCES)
    made = layout(
        torch.tensor([[0, 1, 2], [0, 1, -1]]), packed=Packed(answers=("source.spans",)), source=side
    )
    assert_joined(attention, made, x, (attention.query(x), *attention.key_value(memory).chunk(2, dim=-1)))


def test_it_starts_as_the_attention_inside_sentences() -> None:
    assert ProjectedOthersSpan(8).neutral_start() == {"long.weight": 0.0}
