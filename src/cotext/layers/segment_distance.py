"""Attention over whole rows that depends on the distance of two tokens in sentences.

Zheng et al. 2020, section 4.1, with k_i and k_j the sentences of tokens i and j:

    logit of j      q_i . (k_j + gammaK[k_i - k_j]) / sqrt(K)
    output          sum over j of a_ij (v_j + gammaV[k_i - k_j])

All tokens of a sentence have the same distance from a query, so that no vector or number per pair of tokens
is needed. Keys and values get one additional number per sentence: 1 for their own sentence, 0 for others. In
these columns, the query contains its products with gammaK, and the output the total weight of each sentence:

    query           q_i    q_i . gammaK[k_i - 0]    q_i . gammaK[k_i - 1]    ...
    key, value      k_j    0    ...    1    ...
    output          z_i    weights of sentence 0    of sentence 1            ...

In rows of many sentences, queries are processed in chunks (`positions.py`), so that the number of columns
does not grow with the row. The tensors of a chunk are recomputed in the backward pass.

Shapes: B rows, S tokens, T queries of a chunk, C columns for sentences, H heads, K per head.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.checkpoint import checkpoint

from cotext.layers.kernels.sdpa import attend, watched
from cotext.layers.layout import AnyLayout, Keys, Layout
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.positions import CLIP, Chunk
from cotext.layers.state import KeysValues


class SegmentDistanceScore(Score):
    """Contents and distances between sentences; only for complete source rows.

    The vectors are shared by all heads and start at zero, as plain attention.
    """

    answers = ("segments",)

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        vectors = (torch.zeros(2 * CLIP + 1, size.dimension // size.heads) for _ in range(2))
        self.of_keys, self.of_values = (nn.Parameter(vector) for vector in vectors)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        assert isinstance(layout, Layout)
        segments = layout.segments
        # Weights are recorded for whole rows.
        chunks = [segments.whole] if watched() else segments.chunks
        attend_chunk = partial(self._attend_chunk, keys=keys, sentence=segments.sentence)
        if len(chunks) == 1:
            return attend_chunk(q_BHTK, *kv, chunks[0])
        recomputed = torch.is_grad_enabled()
        outputs = []
        for chunk in chunks:
            inputs = q_BHTK[:, :, chunk.first : chunk.stop], *kv, chunk
            outputs.append(
                checkpoint(attend_chunk, *inputs, use_reentrant=False)
                if recomputed
                else attend_chunk(*inputs)
            )
        return torch.cat(outputs, dim=2)

    def _attend_chunk(
        self, q_BHTK: Tensor, k: Tensor, v: Tensor, chunk: Chunk, keys: Keys, sentence: Tensor
    ) -> Tensor:
        """Attend from the queries of a chunk to whole rows: [B, H, T, K]."""
        size, heads = q_BHTK.size(-1), q_BHTK.size(1)
        distance = chunk.distance(sentence)[:, None].expand(-1, heads, -1, -1)
        column = one_hot(chunk.column(sentence), chunk.columns).to(q_BHTK.dtype)
        column = column[:, None].expand(-1, heads, -1, -1)
        mask, bias = (
            x if x is None or x.size(2) == 1 else x[:, :, chunk.first : chunk.stop]
            for x in (keys.mask, keys.bias)
        )
        # Under autocast, projected queries have a lower precision than the parameters.
        of_keys, of_values = self.of_keys.to(q_BHTK.dtype), self.of_values.to(q_BHTK.dtype)
        # Products with the distance vectors, looked up for the column of each sentence.
        products = (q_BHTK @ of_keys.T).gather(3, distance)
        query = torch.cat((q_BHTK, products), dim=3)
        # Attention divides by the root of the extended width; undo the difference.
        query = query * (query.size(-1) / size) ** 0.5
        k, v = (torch.cat((x, column), dim=3) for x in (k, v))
        output = attend(query, k, v, mask, keys.causal, self.dropout, keys.tokens, bias)
        mixed, mass = output[..., :size], output[..., size:]
        # Several sentences may have the same clipped distance: add up their weights.
        by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
        return mixed + by_distance @ of_values
