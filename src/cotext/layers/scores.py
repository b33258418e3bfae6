"""Attention scores with positions: ALiBi, rotary, distances of sentences. Base class: `layers/multi_head.py`.

Shapes: B rows or entries, W beams, R rows, G sentences of a bucket, L tokens of its longest, N real tokens of
all rows, T tokens or queries, S keys, C columns for sentences, n distances, D model, H heads, K per head.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cotext.layers.layout import AnyLayout, Keys, Layout
from cotext.layers.multi_head import AttentionSize, Score
from cotext.layers.positions import CLIP
from cotext.layers.start import Blended
from cotext.layers.state import KeysValues


class AlibiScore(Score, Blended):
    """ALiBi (Press et al. 2022, section 3), synchronised at separators (Post and Junczys-Dowmunt 2023).

    Instead of positions at the input, every score is lowered by the distance of query and key, times a slope.
    The slope is 2^(-8 h / H) for the heads h = 1 ... H:

        self     q . k / sqrt(K) - slope * |i - j|
        cross    q . k / sqrt(K) - slope * |a(i) - j|       a(i) = start of source sentence k + i - start of k

    Token r of target sentence k is aligned with token r of source sentence k. The distance between the two
    sides restarts at each separator, and so does not grow with the number of sentences.
    """

    what = "score"
    source_answers = ("aligned_position",)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        head = torch.arange(1, self.size.heads + 1, device=q_BHTK.device, dtype=torch.float32)
        # Computed in float32, because bfloat16 rounds distances above 256.
        slope = self.in_force * 2 ** (-8 * head / self.size.heads)
        bias = (-slope[:, None, None] * keys.distance.abs()[:, None]).to(q_BHTK.dtype)
        if keys.bias is not None:
            bias = bias + keys.bias
        return super().attend(q_BHTK, kv, replace(keys, bias=bias), layout)


BASE = 10_000.0


class RotaryScore(Score, Blended):
    """Rotary positions (Su et al. 2021, equation 34): queries and keys are rotated by their positions.

    Each pair of numbers (x_n, x_{n + K/2}) of a head is rotated by the angle position / 10,000^(2n / K). The
    product of a query and a key then depends on their distance, but not on their absolute positions.

    This score supports only self-attention, with an even number K per head.
    """

    what = "score"

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Project, then rotate queries and keys but not values: see `Score`."""
        projected = super().project(fused, x, layout, compared)
        position = layout.packed_position if self.in_force == 1 else layout.packed_position * self.in_force
        turned = rotated(projected[..., :compared], position, self.size.dimension // self.size.heads)
        return torch.cat((turned, projected[..., compared:]), dim=-1)


def rotated(x: Tensor, position: Tensor, size: int) -> Tensor:
    """Rotate heads of `size` K: [..., n * K] at positions [...]."""
    # Computed in float32: half precision would round the angles of far positions.
    half = torch.arange(size // 2, device=x.device, dtype=torch.float32)
    angle = position[..., None].float() * BASE ** (-2 * half / size)
    cos, sin = (values.to(x.dtype)[..., None, :] for values in (angle.cos(), angle.sin()))
    # Pairs of the two halves, where equation 34 has neighbours: only the order of numbers differs.
    first, second = x.view(*x.shape[:-1], -1, size).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)


class SegmentDistanceScore(Score):
    """Attention over whole rows that depends on the distance of two tokens in sentences.

    Zheng et al. 2020, section 4.1, with attention weights a_ij; s_i and s_j are the sentences of i and j:

        logit of j      q_i . (k_j + gammaK[s_i - s_j]) / sqrt(K)
        output          sum over j of a_ij (v_j + gammaV[s_i - s_j])

    All tokens of a sentence have the same distance from a query, so no vector or number per pair of tokens is
    needed. Keys and values get one additional number per sentence: 1 for their own sentence, 0 for others. In
    these columns, the query contains its products with gammaK, and the output the total weight of each
    sentence:

        query           q_i    q_i . gammaK[s_i - 0]    q_i . gammaK[s_i - 1]    ...
        key, value      k_j    0    ...    1    ...
        output          z_i    weights of sentence 0    of sentence 1            ...

    Distances are clipped: sentences that are at least `CLIP` before or after a query share a vector.

    This score supports only complete source rows. The vectors are shared by all heads. They start at zero, so
    the first output is that of plain attention.
    """

    answers = ("segments",)

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        vectors = (torch.zeros(2 * CLIP + 1, size.dimension // size.heads) for _ in range(2))
        self.of_keys, self.of_values = (nn.Parameter(vector) for vector in vectors)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        assert isinstance(layout, Layout)
        sentence, size, heads = layout.segments.sentence, q_BHTK.size(-1), q_BHTK.size(1)
        # Distances from each query to the sentence of each column, counted from 0: [B, H, T, C].
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
        output = super().attend(query, (k, v), keys, layout)
        mixed, mass = output[..., :size], output[..., size:]
        # Several sentences may have the same clipped distance: add up their weights.
        by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
        return mixed + by_distance @ of_values
