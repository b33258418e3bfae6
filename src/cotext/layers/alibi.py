"""ALiBi (Press et al. 2022, section 3), synchronised at sentence separators (Post and Junczys-Dowmunt 2023).

Every score is lowered by the distance between query and key times the slope of its head, 2^(-8 h / H) for
heads h = 1 ... H, in place of positions at the input:

    self     q . k / sqrt(K) - slope * |i - j|
    cross    q . k / sqrt(K) - slope * |a(i) - j|           a(i) = begin of source sentence k + i - begin of k

A target token at i, the r-th of sentence k, stands beside the r-th token of source sentence k: each separator
sets the distance between the two sides anew, so that it never grows with the number of sentences.

Shapes: B rows, H heads, T queries, S keys, K per head.
"""

import torch
from torch import Tensor

from cotext.layers.kernels.sdpa import attend_with_bias
from cotext.layers.layout import AnyLayout, Keys
from cotext.layers.multi_head import Score
from cotext.layers.start import Blended
from cotext.layers.state import KeysValues


class AlibiScore(Score, Blended):
    """Contents less distances."""

    what = "score"
    source_answers = ("aligned_position",)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """One product of a self-attention: [B, H, T, K]."""
        return attend_with_bias(
            q_BHTK, *kv, self._bias(keys, q_BHTK), keys.mask, keys.causal, self.dropout, keys.tokens
        )

    def attend_source(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys) -> Tensor:
        """One product of a cross-attention: [B, H, T, K]."""
        return attend_with_bias(
            q_BHTK, *kv, self._bias(keys, q_BHTK), keys.mask, False, self.dropout, keys.tokens
        )

    def _bias(self, keys: Keys, like: Tensor) -> Tensor:
        """[B, H, T, S]."""
        head = torch.arange(1, self.size.heads + 1, device=like.device, dtype=torch.float32)
        slope = self.in_force * 2 ** (-8 * head / self.size.heads)
        return (-slope[:, None, None] * keys.distance().abs()[:, None]).to(like.dtype)
