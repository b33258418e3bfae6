"""ALiBi (Press et al. 2022, section 3), synchronised at sentence separators (Post and Junczys-Dowmunt 2023).

Instead of positions at the input, every score is lowered by the distance of query and key, times a slope. The
slope is 2^(-8 h / H) for the heads h = 1 ... H:

    self     q . k / sqrt(K) - slope * |i - j|
    cross    q . k / sqrt(K) - slope * |a(i) - j|           a(i) = start of source sentence k + i - start of k

Token r of target sentence k is aligned with token r of source sentence k. The distance between the two sides
restarts at each separator, and so does not grow with the number of sentences.

Shapes: B rows, H heads, T queries, S keys, K per head.
"""

import torch
from torch import Tensor

from cotext.layers.kernels.sdpa import attend
from cotext.layers.layout import AnyLayout, Keys
from cotext.layers.multi_head import Score
from cotext.layers.start import Blended
from cotext.layers.state import KeysValues


class AlibiScore(Score, Blended):
    """Contents minus distances."""

    what = "score"
    source_answers = ("aligned_position",)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        bias = self._bias(keys, q_BHTK)
        return attend(q_BHTK, *kv, keys.mask, keys.causal, self.dropout, keys.tokens, bias)

    def attend_source(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys) -> Tensor:
        return attend(q_BHTK, *kv, keys.mask, False, self.dropout, keys.tokens, self._bias(keys, q_BHTK))

    def _bias(self, keys: Keys, like: Tensor) -> Tensor:
        """[B, H, T, S]."""
        head = torch.arange(1, self.size.heads + 1, device=like.device, dtype=torch.float32)
        # In float32: bfloat16 has no numbers for neighbouring distances above 256.
        slope = self.in_force * 2 ** (-8 * head / self.size.heads)
        lower = (-slope[:, None, None] * keys.distance.abs()[:, None]).to(like.dtype)
        return lower if keys.bias is None else lower + keys.bias
