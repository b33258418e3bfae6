"""Attention to a sentence and the nodes of other sentences is attention over rows, with a mask."""

import pytest
import torch
from torch import Tensor

from cotext.layers.layout import Packed
from cotext.layers.multi_head import AttentionSize, CrossAttention, Score, SelfAttention, split_heads
from cotext.layers.spans import NodeSpan
from tests.layers.layouts import doubles, layout, sentences, source_side

D, HEADS = 8, 2
# Sentences of one, two and three tokens have nothing between their nodes, or one token.
ROWS = ([5, 1, 3, 8, 2], [4], [2, 2], [1, 1, 7])
SOURCE = ([3, 1, 6, 2, 4], [2], [5, 1], [3, 3, 1])


def masked(q: Tensor, k: Tensor, v: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Attention of rows [B, T, D] to keys in the same sentence, and to first and last tokens of others."""
    edge = torch.full_like(key[:, :1], -1)
    is_node = (key != torch.cat((edge, key[:, :-1]), 1)) | (key != torch.cat((key[:, 1:], edge), 1))
    seen = (query[:, :, None] == key[:, None]) | (is_node & (key >= 0))[:, None]
    q, k, v = (split_heads(x, HEADS) for x in (q, k, v))
    scores = (q @ k.transpose(2, 3) * (D // HEADS) ** -0.5).masked_fill(~seen[:, None], -torch.inf)
    return (scores.softmax(dim=3) @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("rows", [ROWS, ([6, 6, 6],)], ids=["uneven", "equal"])
def test_nodes_beside_every_sentence_are_a_mask_over_rows(rows: tuple[list[int], ...]) -> None:
    torch.manual_seed(0)
    size = AttentionSize(D, HEADS, 0.0)
    own, cross = (kind(size, NodeSpan(), Score(size)).double() for kind in (SelfAttention, CrossAttention))
    sentence, told = sentences(rows), sentences(SOURCE if len(rows) > 1 else rows)
    x, memory = (doubles(*each.shape, D, seed=n) for n, each in enumerate((sentence, told)))
    laid = layout(
        sentence, D, packed=Packed(by_sentence=True, aligned=True), source=source_side(cross, memory, told)
    )
    found = [laid.unpack(attention(laid.pack(x), laid)) for attention in (own, cross)]
    wanted = [
        own.out(masked(*own.qkv(x).chunk(3, dim=2), sentence, sentence)),
        cross.out(masked(cross.query(x), *cross.key_value(memory).chunk(2, dim=2), sentence, told)),
    ]
    for here, there in zip(found, wanted, strict=True):
        torch.testing.assert_close(here[sentence >= 0], there[sentence >= 0], rtol=1e-9, atol=1e-9)


def test_nodes_of_rows_by_hand() -> None:
    laid = layout(sentences(([2, 1, 3], [4])), D, packed=Packed(by_sentence=True))
    found = [set(row.tolist()) - {-1} for keys in laid.nodes for row in keys.token_indices]
    assert sorted(map(sorted, found)) == [[0, 1, 2, 3, 4, 5], *[[0, 1, 2, 3, 5]] * 2, [6, 7, 8, 9]]
