"""Attention inside sentences equals dense attention under the mask that says so, and costs less."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.buckets import Sentences, sentence_spans
from cotext.layers.layout import Packed
from cotext.layers.multi_head import (
    AttentionSize,
    CrossAttention,
    Score,
    SelfAttention,
    merge_heads,
    split_heads,
)
from cotext.layers.positions import causal
from cotext.layers.spans import SentenceSpan
from tests.layers.layouts import doubles, layout, sentences, source_side

D, HEADS = 8, 2
SIZE = AttentionSize(D, HEADS, 0.0)
Rows = list[list[int]]  # the lengths of the sentences of every row

rows_of_lengths = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4)


def dense(query: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
    """Projected queries and keys and values of whole rows, under a mask of all tokens against all."""
    q = split_heads(query, HEADS)
    k, v = (split_heads(part, HEADS) for part in keys_values.chunk(2, dim=-1))
    return merge_heads(scaled_dot_product_attention(q, k, v, attn_mask=mask))


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((out * doubles(*out.shape, seed=9)).sum(), inputs)


def test_spans_of_a_hand_written_case() -> None:
    spans = sentence_spans(sentences([[2, 1, 3], [4]]))
    assert spans.tolist() == [[[0, 2], [2, 3], [3, 6]], [[0, 4], [0, 4], [0, 4]]]


def test_buckets_of_a_hand_written_case() -> None:
    """Of two rows with sentences of 5, 2, 4 and 2, 3, 4 tokens: like lengths share a bucket."""
    found = Sentences(sentences([[5, 2, 4], [2, 3, 4]]))
    # log(5 / L) / log(1.5): 0 for 5 and 4, 1 for 3, 2 for 2
    assert [b.tokens for b in found.buckets] == [13, 3, 4]
    first = [*range(5), *range(7, 11), *range(16, 20)]
    assert found.rows.index_N.tolist() == [*first, 13, 14, 15, 5, 6, 11, 12]
    x_ND = torch.arange(20.0)[:, None]
    longest = found.split(x_ND)[0][1]
    assert longest[:, :, 0].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 0], [9, 10, 11, 12, 0]]
    assert found.buckets[0].mask is not None
    assert found.buckets[0].mask[:, 0, 0].tolist() == [[True] * 5, *[[True] * 4 + [False]] * 2]
    assert found.buckets[1].mask is None


def test_a_long_sentence_does_not_pad_short_ones() -> None:
    buckets = Sentences(sentences([[80, *[10] * 100]]))
    parts = buckets.split(torch.zeros(len(buckets.rows.index_N), 1))
    assert sum(part.shape[0] * part.shape[1] for _, part in parts) == 80 + 1000


@given(rows_of_lengths, st.booleans())
@settings(max_examples=40)
def test_local_self_attention_is_dense_attention_under_a_mask(rows: Rows, is_causal: bool) -> None:
    torch.manual_seed(0)
    local, sentence = SelfAttention(SIZE, SentenceSpan(), Score(SIZE)).double(), sentences(rows)
    x_BTD = doubles(*sentence.shape, D).requires_grad_()
    placed = layout(sentence, packed=Packed(by_sentence=True), causal=is_causal)
    got = placed.unpack(local(placed.pack(x_BTD), placed))

    mask = (sentence[:, :, None] == sentence[:, None])[:, None]
    if is_causal:
        mask &= causal(sentence.size(1), sentence.size(1), mask.device)
    query, keys_values = local.qkv(x_BTD).split((D, 2 * D), dim=-1)
    want = local.out(dense(query, keys_values, mask)) * (sentence >= 0)[..., None]
    torch.testing.assert_close(got, want)
    inputs = [x_BTD, *local.parameters()]
    torch.testing.assert_close(gradients(got, inputs), gradients(want, inputs))


@given(rows_of_lengths, st.data())
@settings(max_examples=40)
def test_local_cross_attention_is_dense_attention_under_a_mask(
    source_rows: Rows, data: st.DataObject
) -> None:
    """Target rows may begin at a later sentence, and go on after the source's last."""
    torch.manual_seed(0)
    local = CrossAttention(SIZE, SentenceSpan(), Score(SIZE)).double()
    many = len(source_rows)
    target_rows = data.draw(
        st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=many, max_size=many)
    )
    source = sentences(source_rows)
    target = sentences(target_rows, first=data.draw(st.integers(0, 1)))
    memory = doubles(*source.shape, D).requires_grad_()
    x_BTD = doubles(*target.shape, D, seed=1).requires_grad_()

    side = source_side(local, memory, source)
    placed = layout(target, packed=Packed(by_sentence=True, aligned=True), causal=True, source=side)
    got = placed.unpack(local(placed.pack(x_BTD), placed))

    last = source.max(dim=1, keepdim=True).values
    mask = (target.clamp(min=0).minimum(last)[:, :, None] == source[:, None])[:, None]
    want = local.out(dense(local.query(x_BTD), local.key_value(memory), mask)) * (target >= 0)[..., None]
    torch.testing.assert_close(got, want)
    inputs = [memory, x_BTD, *local.parameters()]
    torch.testing.assert_close(gradients(got, inputs), gradients(want, inputs))
