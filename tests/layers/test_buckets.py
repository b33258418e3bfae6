"""Attention inside sentences equals dense attention under the mask that says so, and costs less."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.buckets import BUCKET_RATIO, Sentences, sentence_spans
from cotext.layers.layout import Packed
from cotext.layers.masks import causal
from cotext.layers.multi_head import (
    AttentionSize,
    CrossAttention,
    Score,
    SelfAttention,
    merge_heads,
    split_heads,
)
from cotext.layers.sentence_spans import SentenceSpan
from cotext.layers.state import DecoderState, KeyValueCache, SourceSide
from tests.layers.layouts import layout, source_side

D, HEADS = 8, 2
Rows = list[list[int]]  # the lengths of the sentences of every row

rows_of_lengths = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4)


def sentences(rows: Rows, first: int = 0) -> Tensor:
    """Sentence indices [B, T], -1 on padding."""
    longest = max(map(sum, rows))
    out = torch.full((len(rows), longest), -1)
    for i, lengths in enumerate(rows):
        index = torch.arange(first, first + len(lengths)).repeat_interleave(torch.tensor(lengths))
        out[i, : len(index)] = index
    return out


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def local_self(dropout: float = 0.0) -> SelfAttention:
    size = AttentionSize(D, HEADS, dropout)
    return SelfAttention(size, SentenceSpan(), Score(size)).double()


def local_cross(dropout: float = 0.0) -> CrossAttention:
    size = AttentionSize(D, HEADS, dropout)
    return CrossAttention(size, SentenceSpan(), Score(size)).double()


def dense(query: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
    """Projected queries and keys and values of whole rows, under a mask of all tokens against all."""
    q = split_heads(query, HEADS)
    k, v = (split_heads(part, HEADS) for part in keys_values.chunk(2, dim=-1))
    return merge_heads(scaled_dot_product_attention(q, k, v, attn_mask=mask))


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((out * doubles(*out.shape, seed=9)).sum(), inputs)


# --- which tokens belong together


def test_spans_of_a_hand_written_case() -> None:
    spans = sentence_spans(sentences([[2, 1, 3], [4]]))
    assert spans.tolist() == [[[0, 2], [2, 3], [3, 6]], [[0, 4], [0, 4], [0, 4]]]


def test_buckets_of_a_hand_written_case() -> None:
    """Of two rows with sentences of 5, 2, 4 and 2, 3, 4 tokens: like lengths share a bucket."""
    found = Sentences(sentences([[5, 2, 4], [2, 3, 4]]))
    # log(5 / L) / log(1.5): 0 for 5 and 4, 1 for 3, 2 for 2
    assert [b.tokens for b in found.buckets] == [13, 3, 4]
    assert found.rows.index_N.tolist() == [
        *range(5),
        *range(7, 11),
        *range(16, 20),
        13,
        14,
        15,
        5,
        6,
        11,
        12,
    ]
    x_ND = torch.arange(20.0)[:, None]
    longest = found.split(x_ND)[0][1]
    assert longest[:, :, 0].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 0], [9, 10, 11, 12, 0]]
    assert found.buckets[0].mask is not None
    assert found.buckets[0].mask[:, 0, 0].tolist() == [
        [True] * 5,
        [True] * 4 + [False],
        [True] * 4 + [False],
    ]
    assert found.buckets[1].mask is None


@given(rows_of_lengths)
@settings(deadline=None, max_examples=60)
def test_every_token_is_in_one_bucket_with_its_whole_sentence(rows: Rows) -> None:
    sentence = sentences(rows)
    buckets = Sentences(sentence)
    numbers_BT = torch.arange(1.0, sentence.numel() + 1).view_as(sentence)[:, :, None]
    found = []
    for _, part_GL1 in buckets.split(buckets.rows.pack(numbers_BT)):
        groups = [[int(n) for n in group if n > 0] for group in part_GL1[:, :, 0]]
        assert max(map(len, groups)) <= BUCKET_RATIO * min(map(len, groups)) + 1e-6
        found += groups
    starts = [sum(lengths[:k]) for lengths in rows for k in range(len(lengths))]
    row = [i for i, lengths in enumerate(rows) for _ in lengths]
    flat = [n for lengths in rows for n in lengths]
    wanted = [
        list(range(i * sentence.size(1) + start + 1, i * sentence.size(1) + start + n + 1))
        for i, start, n in zip(row, starts, flat, strict=True)
    ]
    assert sorted(found) == wanted
    torch.testing.assert_close(
        buckets.rows.unpack(buckets.rows.pack(numbers_BT)), numbers_BT * (sentence >= 0)[..., None]
    )


def test_a_long_sentence_does_not_pad_short_ones() -> None:
    buckets = Sentences(sentences([[80, *[10] * 100]]))
    parts = buckets.split(torch.zeros(len(buckets.rows.index_N), 1))
    assert sum(part.shape[0] * part.shape[1] for _, part in parts) == 80 + 1000


# --- equal to dense attention


@given(rows_of_lengths, st.booleans())
@settings(deadline=None, max_examples=40)
def test_local_self_attention_is_dense_attention_under_a_mask(rows: Rows, is_causal: bool) -> None:
    torch.manual_seed(0)
    local, sentence = local_self(), sentences(rows)
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
@settings(deadline=None, max_examples=40)
def test_local_cross_attention_is_dense_attention_under_a_mask(
    source_rows: Rows, data: st.DataObject
) -> None:
    """Target rows may begin at a later sentence, and go on after the source's last."""
    torch.manual_seed(0)
    local = local_cross()
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


@pytest.mark.parametrize("build", [local_self, local_cross])
def test_local_attention_with_dropout_trains(
    build: Callable[[float], SelfAttention | CrossAttention],
) -> None:
    """Every draw is another, and their mean is what comes out without dropout."""
    torch.manual_seed(0)
    attention = build(0.3)
    sentence = sentences([[4, 2, 6], [3]])
    placed = layout(sentence, packed=Packed(by_sentence=True))
    x_ND = doubles(15, D).requires_grad_()

    def attend() -> Tensor:
        read = placed
        if isinstance(attention, CrossAttention):
            side = SourceSide([attention.project(x_ND, placed)], sentence)
            read = layout(sentence, packed=Packed(by_sentence=True, aligned=True), source=side)
        out: Tensor = attention(x_ND, read)
        return out

    assert not torch.equal(attend(), attend())
    mean = torch.stack([attend().detach() for _ in range(400)]).mean(dim=0)
    assert all(bool(g.isfinite().all()) for g in gradients(attend(), [x_ND, *attention.parameters()]))
    attention.eval()
    assert torch.equal(attend(), attend())
    torch.testing.assert_close(mean, attend(), rtol=0.2, atol=0.1)


# --- while decoding


def open_state(written: Tensor, slots: int = 12) -> DecoderState:
    """A state that has read rows of these sentence indices."""
    entries = written.size(0)
    keys = doubles(entries, 1, 2, 3)
    source = SourceSide([(keys, keys)], torch.zeros(entries, 2, dtype=torch.long))
    state = DecoderState(source, attentions=1)
    state.open(slots)
    state.step(written, torch.zeros_like(written))
    return state


def test_slots_of_the_own_sentence() -> None:
    """Rows that read a a b b b and a b c c and then write one more token each."""
    state = open_state(torch.tensor([[0, 0, 1, 1, 1], [0, 1, 2, 2, -1]]))
    new = torch.tensor([[1], [2]])
    seen = state.within_sentence(new, state.slot_mask(1, new.device))
    # The slots 2 .. 5 are looked at: 2 opens the first row's sentence, 5 is the new token.
    assert (seen.first, seen.stop, seen.start) == (2, 6, 5)
    assert seen.mask is not None
    assert seen.mask.int().tolist() == [[[[1, 1, 1, 1]]], [[[1, 1, 0, 1]]]]
    state.step(new, torch.zeros_like(new))
    opening = torch.tensor([[2], [2]])
    seen = state.within_sentence(opening, state.slot_mask(1, new.device))
    assert (seen.first, seen.stop) == (2, 7)
    assert seen.mask is not None
    assert seen.mask.int().tolist() == [[[[0, 0, 0, 0, 1]]], [[[1, 1, 0, 1, 1]]]]


def test_beams_of_an_entry_may_be_in_different_sentences() -> None:
    state = open_state(torch.tensor([[0, 0, 1]]))
    state.widen(2)
    for new in ([[1], [2]], [[1], [2]]):
        tokens = torch.tensor(new)
        seen = state.within_sentence(tokens, state.slot_mask(1, tokens.device))
        state.step(tokens, torch.zeros_like(tokens))
    # slots: a a b, then b c of the two beams, then b c again
    assert (seen.first, seen.stop) == (2, 7)
    assert seen.mask is not None
    assert seen.mask[0, 0].int().tolist() == [[1, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
    state.reorder(torch.tensor([1, 1]))  # both go on in the third sentence
    tokens = torch.tensor([[2], [2]])
    seen = state.within_sentence(tokens, state.slot_mask(1, tokens.device))
    assert seen.first == 4


def test_source_tokens_of_the_current_sentences() -> None:
    source = SourceSide([], sentences([[3, 2, 4], [2, 6]]))
    tokens, mask = source.within(torch.tensor([[1], [1]]))
    assert (tokens.start, tokens.stop) == (2, 8)
    assert mask[:, 0].int().tolist() == [[[0, 1, 1, 0, 0, 0]], [[1, 1, 1, 1, 1, 1]]]
    past_the_end, mask = source.within(torch.tensor([[7], [2]]))
    assert (past_the_end.start, past_the_end.stop) == (2, 9)
    assert mask[:, 0].int().tolist() == [[[0, 0, 0, 1, 1, 1, 1]], [[1, 1, 1, 1, 1, 1, 0]]]


def test_a_cache_is_read_from_where_it_is_needed() -> None:
    keys, values = doubles(1, 1, 5, 3), doubles(1, 1, 5, 3, seed=1)
    cache = KeyValueCache(1, 8, keys)
    cache.write(keys, values, 0)
    for got, want in zip(cache.read(5, 2), (keys, values), strict=True):
        assert torch.equal(got, want[:, :, 2:])
