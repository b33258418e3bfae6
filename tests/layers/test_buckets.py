"""Attention inside sentences equals dense attention under the mask that says so, and costs less."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.layers.buckets import (
    BUCKET_RATIO,
    LocalCrossAttention,
    LocalSelfAttention,
    Sentences,
    sentence_spans,
)
from cotext.layers.masks import causal
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.state import DecoderState, KeyValueCache, SelfReach

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


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((out * doubles(*out.shape, seed=9)).sum(), inputs)


# --- which tokens belong together


def test_spans_of_a_hand_written_case() -> None:
    spans = sentence_spans(sentences([[2, 1, 3], [4]]))
    assert spans.tolist() == [[[0, 2], [2, 3], [3, 6]], [[0, 4], [0, 4], [0, 4]]]


def test_buckets_of_a_hand_written_case() -> None:
    """Of two rows with sentences of 5, 2, 4 and 2, 3, 4 tokens: like lengths share a bucket."""
    layout = Sentences(sentences([[5, 2, 4], [2, 3, 4]]))
    # log(5 / L) / log(1.5): 0 for 5 and 4, 1 for 3, 2 for 2
    assert [b.tokens for b in layout.buckets] == [13, 3, 4]
    assert layout.rows.place_N.tolist() == [
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
    longest = layout.split(x_ND)[0][1]
    assert longest[:, :, 0].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 0], [9, 10, 11, 12, 0]]
    assert layout.buckets[0].mask is not None
    assert layout.buckets[0].mask[:, 0, 0].tolist() == [
        [True] * 5,
        [True] * 4 + [False],
        [True] * 4 + [False],
    ]
    assert layout.buckets[1].mask is None


@given(rows_of_lengths)
@settings(deadline=None, max_examples=60)
def test_every_token_is_in_one_bucket_with_its_whole_sentence(rows: Rows) -> None:
    sentence = sentences(rows)
    layout = Sentences(sentence)
    numbers_BT = torch.arange(1.0, sentence.numel() + 1).view_as(sentence)[:, :, None]
    found = []
    for _, part_GL1 in layout.split(layout.rows.pack(numbers_BT)):
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
        layout.rows.unpack(layout.rows.pack(numbers_BT)), numbers_BT * (sentence >= 0)[..., None]
    )


def test_a_long_sentence_does_not_pad_short_ones() -> None:
    layout = Sentences(sentences([[80, *[10] * 100]]))
    places = sum(
        part.shape[0] * part.shape[1] for _, part in layout.split(torch.zeros(len(layout.rows.place_N), 1))
    )
    assert places == 80 + 1000


# --- equal to dense attention


@given(rows_of_lengths, st.booleans())
@settings(deadline=None, max_examples=40)
def test_local_self_attention_is_dense_attention_under_a_mask(rows: Rows, is_causal: bool) -> None:
    torch.manual_seed(0)
    local = LocalSelfAttention(D, HEADS, 0.0).double()
    dense = SelfAttention(D, HEADS, 0.0).double()
    dense.load_state_dict(local.state_dict())
    sentence = sentences(rows)
    x_BTD = doubles(*sentence.shape, D).requires_grad_()
    layout = Sentences(sentence)
    got = layout.rows.unpack(local(layout.rows.pack(x_BTD), SelfReach(None, causal=is_causal), layout))

    mask = (sentence[:, :, None] == sentence[:, None])[:, None]
    if is_causal:
        mask &= causal(sentence.size(1), sentence.size(1), mask.device)
    want = dense(x_BTD, SelfReach(mask)) * (sentence >= 0)[..., None]
    torch.testing.assert_close(got, want)
    for one, other in zip(
        gradients(got, [x_BTD, *local.parameters()]),
        gradients(want, [x_BTD, *dense.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@given(rows_of_lengths, st.data())
@settings(deadline=None, max_examples=40)
def test_local_cross_attention_is_dense_attention_under_a_mask(
    source_rows: Rows, data: st.DataObject
) -> None:
    """Target rows may begin at a later sentence, and go on after the source's last."""
    torch.manual_seed(0)
    local = LocalCrossAttention(D, HEADS, 0.0).double()
    dense = CrossAttention(D, HEADS, 0.0).double()
    dense.load_state_dict(local.state_dict())
    many = len(source_rows)
    target_rows = data.draw(
        st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=many, max_size=many)
    )
    source = sentences(source_rows)
    target = sentences(target_rows, first=data.draw(st.integers(0, 1)))
    memory = doubles(*source.shape, D).requires_grad_()
    x_BTD = doubles(*target.shape, D, seed=1).requires_grad_()

    layout = Sentences(target, sentence_spans(source), source.size(1))
    packed = local(layout.rows.pack(x_BTD), local.project(memory), None, layout)
    got = layout.rows.unpack(packed)

    last = source.max(dim=1, keepdim=True).values
    mask = (target.clamp(min=0).minimum(last)[:, :, None] == source[:, None])[:, None]
    want = dense(x_BTD, dense.project(memory), mask) * (target >= 0)[..., None]
    torch.testing.assert_close(got, want)
    inputs = [memory, x_BTD]
    for one, other in zip(
        gradients(got, [*inputs, *local.parameters()]),
        gradients(want, [*inputs, *dense.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", [LocalSelfAttention, LocalCrossAttention])
def test_local_attention_with_dropout_trains(
    kind: type[LocalSelfAttention] | type[LocalCrossAttention],
) -> None:
    """Every draw is another, and their mean is what comes out without dropout."""
    torch.manual_seed(0)
    attention = kind(D, HEADS, 0.3).double()
    sentence = sentences([[4, 2, 6], [3]])
    spans = sentence_spans(sentence)
    layout = Sentences(sentence, spans, sentence.size(1))
    x_ND = doubles(15, D).requires_grad_()

    def attend() -> Tensor:
        if isinstance(attention, LocalSelfAttention):
            out: Tensor = attention(x_ND, SelfReach(None), layout)
        else:
            out = attention(x_ND, attention.project(x_ND, layout.rows), None, layout)
        return out

    assert not torch.equal(attend(), attend())
    mean = torch.stack([attend().detach() for _ in range(400)]).mean(dim=0)
    assert all(bool(g.isfinite().all()) for g in gradients(attend(), [x_ND, *attention.parameters()]))
    attention.eval()
    assert torch.equal(attend(), attend())
    torch.testing.assert_close(mean, attend(), rtol=0.2, atol=0.1)


# --- while decoding


def open_state(written: Tensor, places: int = 12, spans: Tensor | None = None) -> DecoderState:
    """A state that has read rows of these sentence indices."""
    entries = written.size(0)
    keys = doubles(entries, 1, 2, 3)
    state = DecoderState(cross=[(keys, keys)], cross_mask=None, cross_spans=spans)
    state.open(places)
    state.step(written, torch.zeros_like(written))
    return state


def test_places_of_the_own_sentence() -> None:
    """Rows that read a a b b b and a b c c and then write one more token each."""
    state = open_state(torch.tensor([[0, 0, 1, 1, 1], [0, 1, 2, 2, -1]]))
    new = torch.tensor([[1], [2]])
    reach = state.reach_within(new, state.reach(1, new.device))
    # The places 2 .. 5 are looked at: 2 opens the first row's sentence, 5 is the new token.
    assert (reach.first, reach.places, reach.start) == (2, 6, 5)
    assert reach.mask is not None
    assert reach.mask.int().tolist() == [[[[1, 1, 1, 1]]], [[[1, 1, 0, 1]]]]
    state.step(new, torch.zeros_like(new))
    opening = torch.tensor([[2], [2]])
    reach = state.reach_within(opening, state.reach(1, new.device))
    assert (reach.first, reach.places) == (2, 7)
    assert reach.mask is not None
    assert reach.mask.int().tolist() == [[[[0, 0, 0, 0, 1]]], [[[1, 1, 0, 1, 1]]]]


def test_beams_of_an_entry_may_be_in_different_sentences() -> None:
    state = open_state(torch.tensor([[0, 0, 1]]))
    state.widen(2)
    assert state.place_sentence is not None
    for new in ([[1], [2]], [[1], [2]]):
        tokens = torch.tensor(new)
        reach = state.reach_within(tokens, state.reach(1, tokens.device))
        state.step(tokens, torch.zeros_like(tokens))
    # places: a a b, then b c of the two beams, then b c again
    assert (reach.first, reach.places) == (2, 7)
    assert reach.mask is not None
    assert reach.mask[0, 0].int().tolist() == [[1, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
    state.reorder(torch.tensor([1, 1]))  # both go on in the third sentence
    tokens = torch.tensor([[2], [2]])
    reach = state.reach_within(tokens, state.reach(1, tokens.device))
    assert reach.first == 4


def test_source_places_of_the_current_sentences() -> None:
    spans = sentence_spans(sentences([[3, 2, 4], [2, 6]]))
    state = DecoderState(cross=[], cross_mask=None, cross_spans=spans)
    places, mask = state.source_within(torch.tensor([[1], [1]]))
    assert (places.start, places.stop) == (2, 8)
    assert mask[:, 0].int().tolist() == [[[0, 1, 1, 0, 0, 0]], [[1, 1, 1, 1, 1, 1]]]
    past_the_end, mask = state.source_within(torch.tensor([[7], [2]]))
    assert (past_the_end.start, past_the_end.stop) == (2, 9)
    assert mask[:, 0].int().tolist() == [[[0, 0, 0, 1, 1, 1, 1]], [[1, 1, 1, 1, 1, 1, 0]]]


def test_a_cache_is_read_from_where_it_is_needed() -> None:
    keys, values = doubles(1, 1, 5, 3), doubles(1, 1, 5, 3, seed=1)
    cache = KeyValueCache(1, 8, keys)
    cache.write(keys, values, 0)
    for got, want in zip(cache.read(5, 2), (keys, values), strict=True):
        assert torch.equal(got, want[:, :, 2:])
