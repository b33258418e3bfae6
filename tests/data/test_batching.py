"""Packing: batches within the budget, nothing left out, order and groups kept."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.collate import pack, pack_apart


@given(st.lists(st.integers(1, 50), max_size=40).map(sorted), st.integers(1, 200))
def test_pack_keeps_order_and_budget(lengths: list[int], max_tokens: int) -> None:
    groups = pack([[length] for length in lengths], max_tokens)
    assert [i for group in groups for i in group] == list(range(len(lengths)))
    for group in groups:
        cost = len(group) * max(lengths[i] for i in group)
        assert cost <= max_tokens or len(group) == 1
    for group, following in pairwise(groups):  # nothing that would still have fitted opens a new group
        assert (len(group) + 1) * lengths[following[0]] > max_tokens


def test_groups_share_batches_as_far_as_the_budget_goes() -> None:
    assert pack([[2, 3], [1, 4], [4], [5]], 20) == [[0, 1, 2], [3]]
    assert pack([[2, 3], [1, 4], [4], [5]], 30) == [[0, 1, 2, 3]]
    # A group that exceeds it is not split.
    assert pack([[2, 3], [9, 9, 9], [10]], 12) == [[0], [1], [2]]
    assert pack([], 12) == []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=9).map(
        lambda groups: sorted(groups, key=max)
    ),
    budget=st.integers(1, 60),
)
def test_batches_hold_every_group_once_in_order(lengths: list[list[int]], budget: int) -> None:
    batches = pack(lengths, budget)
    assert [g for batch in batches for g in batch] == list(range(len(lengths)))
    for batch in batches:
        rows = [length for g in batch for length in lengths[g]]
        assert len(batch) == 1 or len(rows) * max(rows) <= budget


@given(
    st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(1, 30), min_size=1, max_size=8)), max_size=60),
    st.integers(1, 120),
)
def test_items_of_one_key_are_apart(drawn: list[tuple[int, list[int]]], max_tokens: int) -> None:
    batches = pack_apart([lengths for _, lengths in drawn], [d for d, _ in drawn], max_tokens)
    assert sorted(r for batch in batches for r in batch) == list(range(len(drawn)))
    for batch in batches:
        assert len({drawn[r][0] for r in batch}) == len(batch)
        rows = [length for r in batch for length in drawn[r][1]]
        assert len(rows) * max(rows) <= max_tokens or len(batch) == 1
