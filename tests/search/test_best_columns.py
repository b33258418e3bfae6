import torch

from cotext.search.beam_search import best_column, best_columns
from tests.loops import loop_over


@loop_over("vocabulary", [64, 1_000, 4 * 8 * 64, 4 * 8 * 64 + 1, 4_133])
@loop_over("count", [2, 8])
def test_best_columns_are_those_of_topk(vocabulary: int, count: int) -> None:
    """Of small vocabularies and large ones, whose size no block divides; impossible tokens among them."""
    values = torch.randn(5, vocabulary)
    values[1, 3:] = -torch.inf
    values[2, : vocabulary - 1] = -torch.inf  # the best one stands behind the last block
    values[3, 7:40] += 100  # all of the best in one block
    values[4, ::70] += 100  # each in another
    found, tokens = best_columns(values, count)
    assert torch.equal(found, values.topk(count, dim=1).values)
    assert torch.equal(values.gather(1, tokens), found)
    assert all(len(set(row)) == count for row in tokens.tolist())


@loop_over("vocabulary", [3, 64, 200 * 64, 200 * 64 + 1, 10_007])
def test_best_column_is_that_of_max(vocabulary: int) -> None:
    """And the first of equal ones, in one block, in several, and behind the last."""
    values = torch.randn(7, vocabulary)
    values[1] = -torch.inf
    values[2, : vocabulary - 1] = -torch.inf  # the best one stands behind the last block
    values[3, ::2] = 100
    values[4, vocabulary // 2 :: 70] = 100
    values[5, -2:] = 100
    values[6, vocabulary // 3] = torch.nan
    found, column = best_column(values)
    best, first = values.max(dim=1)
    assert torch.equal(found[:6, 0], best[:6])
    assert bool(found[6].isnan())
    assert column[:, 0].tolist() == first.tolist()
    assert column[3].item() == 0
    assert column[4].item() == vocabulary // 2
    assert column[5].item() == max(vocabulary - 2, 0)
