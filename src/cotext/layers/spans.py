"""Spans: which tokens a token attends to, other than the whole row (`RowSpan` in `layers/multi_head.py`).

`SentenceSpan` and `NodeSpan` compute sentences as short rows of one product (`layers/buckets.py`). The cost
is the sum of their squared lengths, without a mask between all tokens. Target sentence k attends to source
sentence k. The nodes of a sentence are its first and last token.

The other spans treat the sentence of the query and other sentences of the row differently.

**Gated.** A first softmax is over the token's own sentence, a second one with a gate is over all others. A
document system that starts from a sentence model keeps the attention of that model inside every sentence.
For a query i of sentence s, with the same queries, keys and values in both terms:

    out_i =             sum over j in s     of softmax over s      (q_i k_j / sqrt(K)) v_j
          + tanh(a_h) * sum over j not in s of softmax over others (q_i k_j / sqrt(K) + b_hd) v_j

There is one number a_h per head and attention. It starts at 0, so the output at the start of training is the
output of the sentence model. In cross-attention, s is the source sentence that the query translates. The
second term gives queries and keys no gradient before the gates open. Gates therefore need a higher learning
rate than other weights (`model.attention.gate_rate`).

Positions restart in every sentence, so contents do not show where another sentence is. The bias b_hd does. It
is one number per head and distance d in sentences, back or ahead. Distances from `FAR` on share a number.
All these numbers start at 0.

**Biased.** One softmax over the row, with the same bias, for the global attention of G-Transformer, which has
a separate gate. Without the bias, this attention hardly learns to which sentence a pronoun refers.

**Projected** (long-short term masking; P. Zhang et al. 2020). Attention is computed twice, with the same
queries, keys and values. With the long mask, a token attends to the whole row; with the short mask, to its
own sentence. A projection combines the two outputs:

    out = W [long; short] + b = W_long long + W_short short + b

The authors published no code, and their paper was not available: the equation follows descriptions of it
(Lupo et al. 2022, section 2.3). W_short and b have the parameter names of an ordinary output projection. If
training starts from a sentence model, they are initialised from it. W_long then starts at 0.

Shapes: B rows or entries, W beams, N real tokens of all rows, G sentences of a bucket, L
tokens of its longest sentence, L' keys of the longest (source tokens in cross-attention), P tokens of all
source rows with padding, T queries, S keys, H heads, K per head, D model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from cotext.layers.buckets import ExtraTokens
from cotext.layers.kernels.gated_others import FAR, attend_apart
from cotext.layers.kernels.sdpa import TokenIndices, show_together, watched
from cotext.layers.layout import AnyLayout, Keys, Layout, Step
from cotext.layers.multi_head import CrossAttention, RowSpan, Score, SelfAttention, merge_heads, split_heads
from cotext.layers.start import StartsFromOthers
from cotext.layers.state import KeysValues, SlotMask


class SentenceSpan(RowSpan):
    """The own sentence; in cross-attention, the source sentence that is translated."""

    by_sentence = True

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        projected = score.project(attention.qkv, x, layout, 2 * x.size(-1))
        mixed = []
        for bucket, qkv in layout.sentences.split(projected):
            q, k, v = attention.split(qkv)
            # Padding is to the right of all real tokens, so the causal mask already hides it.
            keys = Keys(
                None if layout.causal else bucket.mask,
                layout.causal,
                in_order=True,
                positions=partial(positions_of, bucket.token_indices, layout),
                tokens=bucket.token_indices,
            )
            mixed.append(bucket.pack(merge_heads(score.attend(q, (k, v), keys, layout))))
        return torch.cat(mixed)

    def slots(self, step: Step) -> SlotMask:
        return step.within(self.memory_sentences)

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        # Only the source sentence is fetched, so that no mask between sentences is needed.
        query_ND = attention.score.project(attention.query, x, layout, x.size(-1))
        sides = [merge_heads(side).flatten(0, 1) for side in layout.source.keys_values[attention.index]]
        return _attend_in_buckets(attention, query_ND, sides, self.sources(layout), layout)

    def sources(self, layout: Layout) -> Sequence[ExtraTokens | None]:
        """Return for every bucket the source tokens that its sentences attend to."""
        return [bucket.source for bucket in layout.sentences.buckets]

    def source(self, step: Step, index: int) -> tuple[KeysValues, Keys]:
        here, mask = step.source_range
        k, v = step.source.keys_values[index]

        def positions() -> tuple[Tensor, Tensor]:
            return step.aligned_position, torch.arange(here.start, here.stop, device=mask.device)[None]

        return (k[:, :, here], v[:, :, here]), Keys(mask, positions=positions)


def positions_of(tokens: Callable[[], TokenIndices], layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the positions in their rows of queries [G, L] and keys [G, L']; arbitrary on padding."""
    indices, position = tokens(), layout.position.flatten()
    return position[indices.query.clamp(min=0)], position[indices.key.clamp(min=0)]


def aligned_of(tokens: Callable[[], TokenIndices], layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the positions of queries and source keys; see `Layout.aligned_position`."""
    indices = tokens()
    query = layout.aligned_position.flatten()[indices.query.clamp(min=0)]
    return query, indices.key.clamp(min=0) % layout.source.tokens


class NodeSpan(SentenceSpan):
    """Attention to a token's sentence (in cross-attention, its source) and the nodes of all other sentences.

    This span supports only complete rows.
    """

    answers = ("nodes",)
    source_answers = ("source_nodes",)

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        projected = attention.score.project(attention.qkv, x, layout, 2 * x.size(-1))
        query_ND, *keys_values = projected.chunk(3, dim=-1)
        return _attend_in_buckets(attention, query_ND, keys_values, layout.nodes, layout)

    def sources(self, layout: Layout) -> Sequence[ExtraTokens | None]:
        return layout.source_nodes


def _attend_in_buckets(
    attention: SelfAttention | CrossAttention,
    query_ND: Tensor,
    keys_values: Sequence[Tensor],
    keys_of: Sequence[ExtraTokens | None],
    layout: Layout,
) -> Tensor:
    """Attend from sentences to tokens of `keys_values`, which `keys_of` selects for every bucket: [N, D]."""
    mixed = []
    for (bucket, query), selected in zip(layout.sentences.split(query_ND), keys_of, strict=True):
        assert selected is not None
        k, v = (split_heads(selected.fetch(side), attention.heads) for side in keys_values)
        tokens = partial(bucket.token_indices, selected.token_indices)
        keys = Keys(selected.mask, positions=partial(aligned_of, tokens, layout), tokens=tokens)
        attended = attention.score.attend(split_heads(query, attention.heads), (k, v), keys, layout)
        mixed.append(bucket.pack(merge_heads(attended)))
    return torch.cat(mixed)


class BiasedOthersSpan(nn.Module, RowSpan, StartsFromOthers):
    """Attention over whole rows in one softmax, with a bias of other sentences by their distance."""

    spares_parameters = True  # batches of single sentences do not use biases and gates
    answers = ("has_several",)
    source_answers = ("source.spans",)

    def __init__(self, heads: int, rate: float) -> None:
        """Create the span; `rate` is the learning rate of gates and biases, relative to other parameters."""
        super().__init__()
        self.rate = rate
        self.bias = nn.Parameter(torch.zeros(heads, 2 * FAR))

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        apart = keys.apart()
        if apart is not None:  # some row has several sentences
            bias = apart.bias(self.bias.to(q_BHTK.dtype)).masked_fill(apart.own, 0.0)
            keys = replace(keys, bias=bias)
        return score.attend(q_BHTK, kv, keys, layout)

    def neutral_start(self) -> Mapping[str, float]:
        return {name: 0.0 for name, _ in self.named_parameters()}

    def rates(self) -> Mapping[str, float]:
        """Return a higher learning rate: while a gate is closed, gated keys and biases have no gradient."""
        return dict.fromkeys(self.neutral_start(), self.rate)


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
        apart = keys.apart()
        if apart is None:  # every row is one sentence
            return score.attend(q_BHTK, kv, keys, layout)
        # The kernel for both softmaxes supports only `Score.attend`, without dropout or recorded weights.
        if type(score).attend is Score.attend and not score.dropout and not watched():
            return attend_apart(q_BHTK, *kv, self.open, self.bias, apart)
        # Queries without keys in other sentences attend to an arbitrary key (`Apart`): its share is 0.
        share = self.open.to(q_BHTK.dtype)[:, None, None] * apart.seen
        with show_together(self.open, apart.seen):
            own = score.attend(q_BHTK, kv, replace(keys, mask=apart.own, causal=False), layout)
            bias = apart.bias(self.bias.to(q_BHTK.dtype))
            keys = replace(keys, mask=apart.others, causal=False, bias=bias)
            others = score.attend(q_BHTK, kv, keys, layout)
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
        apart = keys.apart()
        if apart is None:  # every row is one sentence, so the two masks are equal
            return score.attend(q_BHTK, kv, keys, layout).repeat(1, 2, 1, 1)
        one = torch.ones(1, device=apart.seen.device)
        with show_together(one, one):  # recorded as one attention, the mean of the two
            long = score.attend(q_BHTK, kv, keys, layout)
            short = score.attend(q_BHTK, kv, replace(keys, mask=apart.own, causal=False), layout)
        return torch.cat((long, short), dim=1)

    def output(self, out: nn.Linear, mixed: Tensor) -> Tensor:
        long, short = mixed.chunk(2, dim=-1)
        projected: Tensor = out(short) + self.long(long)
        return projected

    def neutral_start(self) -> Mapping[str, float]:
        return {"long.weight": 0.0}
