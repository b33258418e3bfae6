"""Spans: which tokens a token attends to, other than the whole row (`RowSpan` in `layers/multi_head.py`).

`SentenceSpan` and `NodeSpan` compute sentences as short rows of one product (`layers/buckets.py`). The cost
is the sum of their squared lengths, without a mask between all tokens. Target sentence k attends to source
sentence k. The nodes of a sentence are its first and last token.

The other spans weigh the own sentence and the other sentences of the row.

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
is one number per head and distance d in sentences, back or ahead. Distances from `FAR` on share a number. It
starts at 0.

**Biased.** One softmax over the row, with the same bias. The global attention of G-Transformer has a separate
gate (`GatedAttention`). Without the bias, it hardly learns to which sentence a pronoun refers.

**Projected** (long-short term masking; P. Zhang et al. 2020). Attention is computed twice, with the same
queries, keys and values. With the long mask, a token attends to the whole row; with the short mask, to its
own sentence. A projection combines the two outputs:

    out = W [long; short] + b = W_long long + W_short short + b

The authors published no code, and their paper was not available: the equation follows descriptions of it
(Lupo et al. 2022, section 2.3). W_short and b have the parameter names of an ordinary output projection. If
training starts from a sentence model, they are initialised from it. W_long then starts at 0.

Shapes: B rows or entries, W beams, N real tokens of all rows, n tokens of a group, G sentences of a bucket, L
tokens of its longest sentence, L' keys of the longest (source tokens in cross-attention), P tokens of all
source rows with padding, M nodes added to each sentence, T queries, S keys, H heads, K per head, D model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from cotext.layers.buckets import Bucket, ExtraTokens, Nodes, between_nodes
from cotext.layers.kernels.gated_others import FAR, Mixed, attend_apart, joined, mix_apart, with_gradients
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
        keys_values = source_tokens(layout, attention.index)
        query_ND, mixed = attention.score.project(attention.query, x, layout, x.size(-1)), []
        for bucket, query in layout.sentences.split(query_ND):
            source = bucket.source
            assert source is not None
            # Only the source sentence is fetched, so that no mask between sentences is needed.
            k, v = (split_heads(source.fetch(side), attention.heads) for side in keys_values)
            tokens = partial(bucket.token_indices, source.token_indices)
            keys = Keys(source.mask, positions=partial(aligned_of, tokens, layout), tokens=tokens)
            attended = attention.score.attend(attention.split(query), (k, v), keys, layout)
            mixed.append(bucket.pack(merge_heads(attended)))
        return torch.cat(mixed)

    def source(self, step: Step, index: int) -> tuple[KeysValues, Keys]:
        here, mask = step.source_range
        k, v = step.source.keys_values[index]

        def positions() -> tuple[Tensor, Tensor]:
            return step.aligned_position, torch.arange(here.start, here.stop, device=mask.device)[None]

        return (k[:, :, here], v[:, :, here]), Keys(mask, positions=positions)


def source_tokens(layout: Layout, index: int) -> list[Tensor]:
    """Return keys and values of complete source rows, row after row: two [P, D]."""
    return [merge_heads(side).flatten(0, 1) for side in layout.source.keys_values[index]]


def positions_of(tokens: Callable[[], TokenIndices], layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the positions in their rows of queries [G, L] and keys [G, L']; arbitrary on padding."""
    indices, position = tokens(), layout.position.flatten()
    return position[indices.query.clamp(min=0)], position[indices.key.clamp(min=0)]


def aligned_of(tokens: Callable[[], TokenIndices], layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the positions of queries and source keys; see `Layout.aligned_position`."""
    indices = tokens()
    query = layout.aligned_position.flatten()[indices.query.clamp(min=0)]
    return query, indices.key.clamp(min=0) % layout.source.tokens


class NodeSpan(RowSpan):
    """Attention to a token's sentence (in cross-attention, its source) and the nodes of all other sentences.

    This span supports only complete rows. Normally, the sentences of a row share its nodes as keys. Only
    `dropout` of attention weights and recording copy nodes to every sentence: they need the weights of all
    keys of a query in one tensor.
    """

    by_sentence = True

    def __init__(self, dropout: float = 0.0) -> None:
        where = "buckets" if dropout else "rows"
        self.answers, self.source_answers = (f"nodes.{where}",), (f"source_nodes.{where}",)

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        qkv_ND = score.project(attention.qkv, x, layout, 2 * x.size(-1))
        query_ND, *keys_values = qkv_ND.chunk(3, dim=-1)
        own = []
        for bucket, qkv in layout.sentences.split(qkv_ND):
            query, *sides = qkv.chunk(3, dim=-1)
            own.append(_Own(bucket, split_heads(query, attention.heads), sides, bucket.mask))
        if watched() or score.dropout:
            return _attend_copied(own, keys_values, layout.nodes, partial(score.attend, layout=layout))
        return _attend_shared(own, query_ND, keys_values, layout.nodes, layout)

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        source_PD = source_tokens(layout, attention.index)
        query_ND = score.project(attention.query, x, layout, x.size(-1))
        own = []
        for bucket, query in layout.sentences.split(query_ND):
            source = bucket.source
            assert source is not None
            sides = [source.fetch(side) for side in source_PD]
            own.append(_Own(bucket, attention.split(query), sides, source.mask, source.token_indices))
        if watched() or score.dropout:
            return _attend_copied(own, source_PD, layout.source_nodes, partial(score.attend, layout=layout))
        return _attend_shared(own, query_ND, source_PD, layout.source_nodes, layout)


@dataclass(frozen=True, slots=True)
class _Own:
    """The sentences of a bucket as queries, with the tokens of their own sentences as keys and values."""

    bucket: Bucket
    query: Tensor  # [G, H, L, K]
    sides: Sequence[Tensor]  # the keys and the values, [G, L', D] each
    mask: Tensor | None  # [G, 1, 1, L']
    token_indices: Tensor | None = None  # [G, L'], if the keys are source tokens


def _attend_copied(
    own: Sequence[_Own], all_sides: Sequence[Tensor], nodes: Nodes, attend: Callable[..., Tensor]
) -> Tensor:
    """Attend with nodes copied to every sentence: [N, D]. `all_sides`: keys and values of all tokens."""
    mixed = []
    for part, extra in zip(own, nodes.buckets, strict=True):
        heads = part.query.size(1)
        k, v = (
            split_heads(torch.cat((side, extra.fetch(whole)), dim=1), heads)
            for side, whole in zip(part.sides, all_sides, strict=True)
        )
        mask = _joined_mask(part.mask, extra, part.sides[0].size(1))
        keys = Keys(mask, tokens=partial(_token_indices, part.bucket, part.token_indices, extra))
        mixed.append(part.bucket.pack(merge_heads(attend(part.query, (k, v), keys))))
    return torch.cat(mixed)


def _attend_shared(
    own: Sequence[_Own], query_ND: Tensor, all_sides: Sequence[Tensor], nodes: Nodes, layout: Layout
) -> Tensor:
    """Attend to nodes that all sentences of a row share: [N, D]."""
    heads = own[0].query.size(1)
    groups = []
    for part in own:
        k, v = (split_heads(side, heads) for side in part.sides)
        # Here the keys of a sentence are only its tokens between its two nodes: nodes are keys of the row.
        mask, bucket = between_nodes(k, part.mask), part.bucket
        groups.append(_Group(part.query, (k, v), mask, bucket.pack, bucket.unpack))
    q, k, v = (
        split_heads(x, heads)
        for x in (layout.unpack(query_ND), *(nodes.rows.fetch(side) for side in all_sides))
    )
    return _attend_joined(groups, _Group(q, (k, v), nodes.rows.mask, layout.pack, layout.unpack))


class _Group:
    """Queries [B, H, T, K] and some of their keys [B, H, S, K]; `mask` as in `mix_apart`.

    `pack` and `unpack` convert between the order of these queries, [B, T, D], and that of tokens, [n, D].
    """

    def __init__(
        self,
        q: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None,
        pack: Callable[[Tensor], Tensor],
        unpack: Callable[[Tensor], Tensor],
    ) -> None:
        self.inputs = (q, *keys_values, mask)
        self.pack, self.unpack = pack, unpack
        self.heads = q.size(1)
        self.apart = mix_apart(*self.inputs)

    def packed(self) -> Mixed:
        """Return the values mixed over only these keys, and the log sum of their weights, by token."""
        out, total = self.apart
        packed = self.pack(out.flatten(2))
        return packed.view(len(packed), self.heads, -1), self.pack(total)

    def added(self, whole: Mixed) -> Tensor:
        """Return the contribution of these keys to the values mixed over all keys, with gradients: [n, D]."""
        out, total = (self.unpack(x.flatten(1)) for x in whole)
        whole = out.view(*total.shape, -1), total
        mixed = with_gradients(*self.inputs, self.apart, whole)
        return self.pack(mixed.flatten(2))


def _attend_joined(own: Sequence[_Group], shared: _Group) -> Tensor:
    """Combine attention to a sentence (`own`: one group per bucket) and to the nodes (`shared`): [N, D]."""
    parts = [group.packed() for group in own]
    inside = torch.cat([out for out, _ in parts]), torch.cat([total for _, total in parts])
    # The softmax over all keys, from the two softmaxes over own keys and nodes.
    whole = joined(inside, shared.packed())
    if not torch.is_grad_enabled():
        return whole[0].flatten(1).to(shared.inputs[0].dtype)
    sizes = [len(out) for out, _ in parts]
    wholes = zip(*(torch.split(x, sizes) for x in whole), strict=True)
    outputs = [group.added(part) for group, part in zip(own, wholes, strict=True)]
    return torch.cat(outputs) + shared.added(whole)


def _joined_mask(own: Tensor | None, nodes: ExtraTokens, tokens: int) -> Tensor:
    """Return the mask of the keys of a sentence and the nodes added to them: [G, 1, 1, L' + M]."""
    real = nodes.mask
    if real is None:
        real = torch.ones(nodes.sentences, 1, 1, nodes.tokens, dtype=torch.bool, device=nodes.index.device)
    if own is None:
        own = real.new_ones(nodes.sentences, 1, 1, tokens)
    return torch.cat((own, real), dim=-1)


def _token_indices(bucket: Bucket, own: Tensor | None, nodes: ExtraTokens) -> TokenIndices:
    indices = bucket.token_indices(own)
    return bucket.token_indices(torch.cat((indices.key, nodes.token_indices), dim=1))


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
        apart = keys.apart()
        if apart is not None:  # some row has several sentences
            bias = apart.bias(self.bias.to(q_BHTK.dtype)).masked_fill(apart.own, 0.0)
            keys = replace(keys, bias=bias)
        return score.attend(q_BHTK, kv, keys, layout)

    def neutral_start(self) -> Mapping[str, float]:
        return {"bias": 0.0}

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

    def neutral_start(self) -> Mapping[str, float]:
        return {"gate": 0.0, "bias": 0.0}


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
