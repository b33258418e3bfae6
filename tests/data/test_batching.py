"""Packing: batches within the budget, nothing left out, order and groups kept."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.collate import pack, pack_apart

GROUPS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=20)


def test_groups_share_batches_as_far_as_the_budget_goes() -> None:
    assert pack([[2, 3], [1, 4], [4], [5]], 20) == [[0, 1, 2], [3]]
    assert pack([[2, 3], [1, 4], [4], [5]], 30) == [[0, 1, 2, 3]]
    # A group that exceeds it is not split.
    assert pack([[2, 3], [9, 9, 9], [10]], 12) == [[0], [1], [2]]
    assert pack([], 12) == []


@settings(max_examples=100)
@given(GROUPS, st.booleans(), st.integers(1, 60))
def test_batches_hold_every_group_once_in_order_within_the_budget(
    lengths: list[list[int]], single: bool, budget: int
) -> None:
    lengths = sorted([group[:1] for group in lengths] if single else lengths, key=max)
    batches = pack(lengths, budget)
    assert [g for batch in batches for g in batch] == list(range(len(lengths)))
    rows = [[length for g in batch for length in lengths[g]] for batch in batches]
    assert all(len(b) == 1 or len(r) * max(r) <= budget for b, r in zip(batches, rows, strict=True))
    for own, following in zip(rows, batches[1:], strict=False):
        more = [*own, *lengths[following[0]]]
        assert len(more) * max(more) > budget  # what would have fitted opens no other batch


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
