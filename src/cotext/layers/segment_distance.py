"""Attention over a whole row that knows how many sentences apart two tokens are.

Zheng et al. 2020, section 4.1, with k_i and k_j the sentences of tokens i and j:

    logit of j      q_i . (k_j + gammaK[k_i - k_j]) / sqrt(K)
    output          sum over j of a_ij (v_j + gammaV[k_i - k_j])

All tokens of a sentence are equally far from a query, so that neither a vector nor a number per pair of
tokens is needed: keys and values grow by one number per sentence, 1 for their own and 0 for the others. There
the query holds its products with the vectors, and there the weights that each sentence gets come out:

    query           q_i    q_i . gammaK[k_i - 0]    q_i . gammaK[k_i - 1]    ...
    key, value      k_j    0    ...    1    ...
    output          z_i    weights of sentence 0    of sentence 1            ...

In rows of many sentences, queries come in chunks (`layout.py`), so that those numbers do not grow with the
row; what a chunk needs for its gradients is made anew when they are.

Shapes: B rows, S tokens, T queries of a chunk, C columns for sentences, H heads, K per head.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.checkpoint import checkpoint

from cotext.layers.kernels.sdpa import attend, watched
from cotext.layers.layout import CLIP, AnyLayout, Chunk, Keys, Layout
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.state import KeysValues


class SegmentDistanceScore(Score):
    """Contents and distances between sentences; complete rows of a source only.

    The vectors are shared by all heads and start at zero, so that it starts as plain attention.
    """

    answers = ("segments",)

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        vectors = (torch.zeros(2 * CLIP + 1, size.dimension // size.heads) for _ in range(2))
        self.of_keys, self.of_values = (nn.Parameter(vector) for vector in vectors)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """One product of a self-attention: [B, H, T, K]."""
        assert isinstance(layout, Layout)
        segments = layout.segments
        # Whoever watches is shown the weights of whole rows.
        chunks = [segments.whole] if watched() else segments.chunks
        attend_chunk = partial(self._attend_chunk, keys=keys, sentence=segments.sentence)
        if len(chunks) == 1:
            return attend_chunk(q_BHTK, *kv, chunks[0])
        again = torch.is_grad_enabled()
        seen = []
        for chunk in chunks:
            inputs = q_BHTK[:, :, chunk.first : chunk.stop], *kv, chunk
            seen.append(
                checkpoint(attend_chunk, *inputs, use_reentrant=False) if again else attend_chunk(*inputs)
            )
        return torch.cat(seen, dim=2)

    def _attend_chunk(
        self, q_BHTK: Tensor, k: Tensor, v: Tensor, chunk: Chunk, keys: Keys, sentence: Tensor
    ) -> Tensor:
        """The queries of a chunk, to whole rows: [B, H, T, K]."""
        size, heads = q_BHTK.size(-1), q_BHTK.size(1)
        distance = chunk.distance(sentence)[:, None].expand(-1, heads, -1, -1)
        own = one_hot(chunk.column(sentence), chunk.columns).to(q_BHTK.dtype)
        own = own[:, None].expand(-1, heads, -1, -1)
        mask = keys.mask
        if mask is not None and mask.size(2) > 1:
            mask = mask[:, :, chunk.first : chunk.stop]
        # With mixed precision, projections come in less of it than parameters have.
        of_keys, of_values = self.of_keys.to(q_BHTK.dtype), self.of_values.to(q_BHTK.dtype)
        products = (q_BHTK @ of_keys.T).gather(3, distance)
        query = torch.cat((q_BHTK, products), dim=3)
        # Attention divides by the root of the width that it sees.
        query = query * (query.size(-1) / size) ** 0.5
        k, v = (torch.cat((x, own), dim=3) for x in (k, v))
        seen = attend(query, k, v, mask, keys.causal, self.dropout, keys.tokens)
        mixed, mass = seen[..., :size], seen[..., size:]
        by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
        out: Tensor = mixed + by_distance @ of_values
        return out
