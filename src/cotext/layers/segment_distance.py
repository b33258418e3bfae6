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

Distances are clipped: sentences that are at least `CLIP` before or after a query share a vector.

Shapes: B rows, T queries, S keys, C columns for sentences, H heads, K per head.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cotext.layers.kernels.sdpa import attend
from cotext.layers.layout import AnyLayout, Keys, Layout
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.positions import CLIP
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
        sentence, size, heads = layout.segments.sentence, q_BHTK.size(-1), q_BHTK.size(1)
        # From each query to the sentence of each column, counted from 0: [B, H, T, C].
        apart = sentence[:, :, None] - torch.arange(layout.segments.count, device=sentence.device)
        distance = (apart.clamp(-CLIP, CLIP) + CLIP)[:, None].expand(-1, heads, -1, -1)
        column = one_hot(sentence, layout.segments.count).to(q_BHTK.dtype)[:, None].expand(-1, heads, -1, -1)
        # Under autocast, projected queries have a lower precision than the parameters.
        of_keys, of_values = self.of_keys.to(q_BHTK.dtype), self.of_values.to(q_BHTK.dtype)
        # Products with the distance vectors, looked up for the column of each sentence.
        products = (q_BHTK @ of_keys.T).gather(3, distance)
        query = torch.cat((q_BHTK, products), dim=3)
        # Attention divides by the root of the extended width; undo the difference.
        query = query * (query.size(-1) / size) ** 0.5
        k, v = (torch.cat((x, column), dim=3) for x in kv)
        output = attend(query, k, v, keys.mask, keys.causal, self.dropout, keys.tokens, keys.bias)
        mixed, mass = output[..., :size], output[..., size:]
        # Several sentences may have the same clipped distance: add up their weights.
        by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
        return mixed + by_distance @ of_values
