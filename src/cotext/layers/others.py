"""How a token weighs its own sentence and the other sentences of its row.

**Gated.** A first softmax is over the token's own sentence, a second one with a gate is over all others. A
document system that starts from a sentence model keeps the attention of that model inside every sentence.
For a query i of sentence s, with the same queries, keys and values in both terms:

    out_i =             sum over j in s     of softmax over s      (q_i k_j / sqrt(K)) v_j
          + tanh(a_h) * sum over j not in s of softmax over others (q_i k_j / sqrt(K) + b_hd) v_j

There is one number a_h per head and attention. It starts at 0, so that the output at the start of training is
the output of the sentence model. In cross-attention, s is the source sentence that the query translates.
The second term gives queries and keys no gradient before the gates open. Gates therefore need a higher
learning rate than other weights (`model.attention.gate_rate`).

Positions restart in every sentence, so that contents do not show where another sentence is. The bias b_hd
does, a number per head for each distance d in sentences, back and ahead. From `FAR` sentences on they share
it. It starts at 0.

**Biased.** One softmax over the row, with the same bias. The global attention of G-Transformer has a gate of
its own (`models/g_transformer.py`). Without the bias, it hardly learns to which sentence a pronoun refers.

**Projected** (long-short term masking; P. Zhang et al. 2020). Attention is computed twice, with the same
queries, keys and values. With the long mask, a token attends to the whole row; with the short mask, to its
own sentence. A projection combines the two outputs:

    out = W [long; short] + b = W_long long + W_short short + b

The authors published no code, and their paper was not available: the equation follows descriptions of it
(Lupo et al. 2022, section 2.3). W_short and b have the parameter names of an ordinary output projection. If
training starts from a sentence model, they are initialised from it. W_long then starts at 0.

Shapes: B rows, H heads, T queries, S keys, K dimensions per head.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from cotext.layers.kernels.gated_others import FAR, Apart, attend_apart
from cotext.layers.kernels.sdpa import show_together, watched
from cotext.layers.layout import AnyLayout, Keys
from cotext.layers.multi_head import RowSpan, Score
from cotext.layers.start import StartsFromOthers
from cotext.layers.state import KeysValues


class BiasedOthersSpan(nn.Module, RowSpan, StartsFromOthers):
    """Attention over whole rows in one softmax, with a bias of other sentences by their distance."""

    answers = ("has_several",)
    source_answers = ("source.spans",)

    def __init__(self, heads: int, rate: float) -> None:
        """Create the span; `rate` is the learning rate of gates and biases, relative to other parameters."""
        super().__init__()
        self.rate = rate
        self.bias = nn.Parameter(torch.zeros(heads, 2 * FAR))

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        return score.attend(q_BHTK, kv, self._biased(keys, layout.apart, q_BHTK), layout)

    def source_product(
        self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout
    ) -> Tensor:
        return score.attend_source(q_BHTK, kv, self._biased(keys, layout.source_apart, q_BHTK))

    def neutral_start(self) -> Mapping[str, float]:
        return {"bias": 0.0}

    def rates(self) -> Mapping[str, float]:
        return {"bias": self.rate}

    def _biased(self, keys: Keys, apart: Apart | None, q_BHTK: Tensor) -> Keys:
        if apart is None:  # every row is one sentence
            return keys
        bias = apart.bias(self.bias.to(q_BHTK.dtype)).masked_fill(apart.own, 0.0)
        return replace(keys, bias=bias)


class GatedOthersSpan(BiasedOthersSpan):
    """Attention over whole rows in two softmaxes: one for a token's own sentence, a gated one for others."""

    def __init__(self, heads: int, rate: float) -> None:
        super().__init__(heads, rate)
        self.gate = nn.Parameter(torch.zeros(heads))

    @property
    def open(self) -> Tensor:
        """The factor of other sentences, between -1 and 1: [H]."""
        return self.gate.float().tanh()

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        def attend(keys: Keys) -> Tensor:
            return score.attend(q_BHTK, kv, keys, layout)

        # One kernel for both softmaxes has no positions of tokens and no dropout.
        fast = type(score).attend is Score.attend and not score.dropout
        return self._attend(attend, fast, q_BHTK, kv, keys, layout.apart)

    def source_product(
        self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout
    ) -> Tensor:
        def attend(keys: Keys) -> Tensor:
            return score.attend_source(q_BHTK, kv, keys)

        fast = type(score).attend_source is Score.attend_source and not score.dropout
        return self._attend(attend, fast, q_BHTK, kv, keys, layout.source_apart)

    def neutral_start(self) -> Mapping[str, float]:
        return {"gate": 0.0, "bias": 0.0}

    def rates(self) -> Mapping[str, float]:
        """Return a higher learning rate: while a gate is closed, gated keys and biases have no gradient."""
        return {"gate": self.rate, "bias": self.rate}

    def _attend(
        self,
        attend: Callable[[Keys], Tensor],
        fast: bool,
        q_BHTK: Tensor,
        kv: KeysValues,
        keys: Keys,
        apart: Apart | None,
    ) -> Tensor:
        """`fast`: whether one kernel can compute both products, because scores depend only on contents."""
        if apart is None:  # every row is one sentence
            return attend(keys)
        if fast and not watched():
            return attend_apart(q_BHTK, *kv, self.open, self.bias, apart)
        # Queries without keys in other sentences attend to an arbitrary key (`Apart`): its share is 0.
        share = self.open.to(q_BHTK.dtype)[:, None, None] * apart.seen
        with show_together(self.open, apart.seen):
            own = attend(replace(keys, mask=apart.own, causal=False))
            bias = apart.bias(self.bias.to(q_BHTK.dtype))
            others = attend(replace(keys, mask=apart.others, causal=False, bias=bias))
        return own + share * others


class ProjectedOthersSpan(nn.Module, RowSpan, StartsFromOthers):
    """Attention over the whole row and attention inside a token's own sentence, joined by a projection."""

    answers = ("has_several",)
    source_answers = ("source.spans",)

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.long = nn.Linear(dimension, dimension, bias=False)

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """Both products, as twice as many heads: [B, 2 H, T, K]."""
        return self._both(lambda keys: score.attend(q_BHTK, kv, keys, layout), keys, layout.apart)

    def source_product(
        self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout
    ) -> Tensor:
        """Both products, as twice as many heads: [B, 2 H, T, K]."""
        return self._both(lambda keys: score.attend_source(q_BHTK, kv, keys), keys, layout.source_apart)

    def output(self, out: nn.Linear, mixed: Tensor) -> Tensor:
        long, short = mixed.chunk(2, dim=-1)
        projected: Tensor = out(short) + self.long(long)
        return projected

    def neutral_start(self) -> Mapping[str, float]:
        return {"long.weight": 0.0}

    @staticmethod
    def _both(attend: Callable[[Keys], Tensor], keys: Keys, apart: Apart | None) -> Tensor:
        if apart is None:  # every row is one sentence, so that the two masks are equal
            return attend(keys).repeat(1, 2, 1, 1)
        one = torch.ones(1, device=apart.seen.device)
        with show_together(one, one):  # recorded as one attention, the mean of the two
            long, short = attend(keys), attend(replace(keys, mask=apart.own, causal=False))
        return torch.cat((long, short), dim=1)
