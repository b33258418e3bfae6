"""Attention inside sentences: all tokens of a sentence see each other and nothing else.

Sentences stand side by side as short rows of one product, so that the cost is the sum of their squared
lengths and there is never a mask of all tokens against all. So that one long sentence does not pad a hundred
short ones, sentences of like length share a bucket, and tokens are kept in the order of their buckets:

    two rows    a a a a a b b c c c c          order    a a a a a c c c c f f f f  b b d d e e e
                d d e e e f f f f . .
                                               bucket   a a a a a      bucket  b b .
                                                        c c c c .              d d .
                                                        f f f f .              e e e

Between source and target, sentence k of a row's target sees sentence k of the row's source.

Shapes: B rows, T target tokens, S source tokens, P = B * S, N real tokens of all rows, G sentences of a
bucket, L tokens of its longest, D model.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cotext.layers.attend import Places, attend
from cotext.layers.attention import CrossAttention, SelfAttention, merge_heads, split_heads
from cotext.layers.ragged import Ragged
from cotext.layers.state import KeyValueCache, SelfReach

BUCKET_RATIO = 1.5  # between the longest sentence of a bucket and the shortest


def sentence_spans(sentence: Tensor) -> Tensor:
    """Where sentences 0, 1 ... of every row begin and end: [B, S] -> [B, most sentences, 2].

    An index past a row's last sentence stands for that one.
    """
    last = sentence.max(dim=1, keepdim=True).values
    length = sentence.new_zeros(sentence.size(0), int(last.max()) + 1)
    length.scatter_add_(1, sentence.clamp(min=0), (sentence >= 0).long())
    stop = length.cumsum(dim=1)
    k = torch.arange(length.size(1), device=sentence.device).minimum(last)
    return torch.stack((stop - length, stop), dim=2).take_along_dim(k[:, :, None], dim=1)


class _Fetch(Function):
    @staticmethod
    def forward(ctx: Any, x_PD: Tensor, index: Tensor, place_M: Tensor, distinct: bool) -> Tensor:
        ctx.save_for_backward(index, place_M)
        ctx.places, ctx.distinct = x_PD.size(0), distinct
        return x_PD.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        index, place_M = ctx.saved_tensors
        grad_MD, origin_M = grads[0].index_select(0, place_M), index[place_M]
        grad_PD = grad_MD.new_zeros(ctx.places, grad_MD.size(1))
        if ctx.distinct:  # nothing has to be added up, which is slow
            grad_PD.index_copy_(0, origin_M, grad_MD)
        else:
            grad_PD.index_add_(0, origin_M, grad_MD)
        return grad_PD, None, None, None


class Counterparts:
    """The source sentences that the sentences of a bucket are translations of."""

    def __init__(self, start_G: Tensor, length_G: Tensor) -> None:
        at_L = torch.arange(int(length_G.max()), device=start_G.device)
        real_GL = at_L < length_G[:, None]
        self.mask = None if bool(real_GL.all()) else real_GL[:, None, None, :]
        self.sentences = start_G.numel()
        self.index = torch.where(real_GL, start_G[:, None] + at_L, 0).flatten()
        self.places = torch.where(real_GL, start_G[:, None] + at_L, -1)
        self.place_M = real_GL.flatten().nonzero()[:, 0]
        self.distinct = torch.unique(start_G).numel() == start_G.numel()

    def fetch(self, x_PD: Tensor) -> Tensor:
        """[P, D], the source rows one after the other -> [G, L, D]."""
        fetched: Tensor = _Fetch.apply(  # type: ignore[no-untyped-call]
            x_PD, self.index, self.place_M, self.distinct
        )
        return fetched.view(self.sentences, -1, x_PD.size(1))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sentences of like length."""

    sentences: int
    tokens: int  # of all of them
    place: Tensor  # [N], where they stand in the rows
    own: Ragged | None  # [G, L]; None: all are equally long
    mask: Tensor | None  # [G, 1, 1, L]
    source: Counterparts | None

    def unpack(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [G, L, D]."""
        return x_ND.view(self.sentences, -1, x_ND.size(1)) if self.own is None else self.own.unpack(x_ND)

    def places(self, key_places: Tensor | None = None) -> Places:
        """Who the queries are, and the keys, if not the same."""
        place_GL = self.place
        if self.own is not None:
            place_GL = self.place.new_full((self.own.rows * self.own.tokens,), -1)
            place_GL[self.own.place_N] = self.place
        place_GL = place_GL.view(self.sentences, -1)
        return Places(place_GL, place_GL if key_places is None else key_places)

    def pack(self, x_GLD: Tensor) -> Tensor:
        """[G, L, D] -> [N, D]."""
        return x_GLD.flatten(0, 1) if self.own is None else self.own.pack(x_GLD)


class Sentences:
    """The sentences of all rows in buckets; `rows` packs tokens in their order.

    Sentence indices [B, T] never fall within a row; padding is -1. Given the spans of the source's sentences
    (`sentence_spans`), in rows of `source_tokens`, every sentence knows its counterpart there.
    """

    def __init__(self, sentence: Tensor, spans: Tensor | None = None, source_tokens: int = 0) -> None:
        self.rows = Ragged(sentence >= 0)
        k_N, row_N = sentence.flatten()[self.rows.place_N], self.rows.place_N // sentence.size(1)
        opens_N = torch.ones_like(k_N, dtype=torch.bool)
        opens_N[1:] = (k_N.diff() != 0) | (row_N.diff() != 0)
        first_G = opens_N.nonzero()[:, 0]
        length_G = torch.diff(first_G, append=first_G.new_tensor([k_N.numel()]))
        start_G = counterpart_G = None
        longer_G = length_G
        if spans is not None:
            row_G, k_G = row_N[first_G], k_N[first_G].clamp(max=spans.size(1) - 1)
            start_G, stop_G = spans[row_G, k_G].unbind(dim=1)
            counterpart_G = stop_G - start_G
            start_G = start_G + row_G * source_tokens
            longer_G = length_G.maximum(counterpart_G)
        steps = (longer_G.max() / longer_G).log() / math.log(BUCKET_RATIO)
        which_G = steps.long()
        order = which_G.repeat_interleave(length_G).argsort(stable=True)
        self.rows.place_N = self.rows.place_N[order]
        self.buckets: list[Bucket] = []
        tokens = 0
        for which in range(int(which_G.max()) + 1):
            here = (which_G == which).nonzero()[:, 0]
            if here.numel() == 0:
                continue
            lengths = length_G[here]
            real_GL = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
            own = None if bool(real_GL.all()) else Ragged(real_GL)
            mask = None if own is None else real_GL[:, None, None, :]
            source = None
            if start_G is not None and counterpart_G is not None:
                source = Counterparts(start_G[here], counterpart_G[here])
            place_N = self.rows.place_N[tokens : tokens + int(lengths.sum())]
            tokens += place_N.numel()
            self.buckets.append(Bucket(here.numel(), place_N.numel(), place_N, own, mask, source))

    def split(self, x_ND: Tensor) -> list[tuple[Bucket, Tensor]]:
        """The tokens of every bucket, a row per sentence: [G, L, D] each."""
        parts = torch.split(x_ND, [bucket.tokens for bucket in self.buckets])
        return [(b, b.unpack(part)) for b, part in zip(self.buckets, parts, strict=True)]


class LocalSelfAttention(SelfAttention):
    """Self-attention that stays inside sentences over complete rows; with a cache, `reach` sees to that."""

    def forward(
        self,
        x_RTD: Tensor,
        reach: SelfReach,
        ragged: Sentences | Ragged | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Of `Sentences`, [N, D] -> [N, D], and `reach` only tells whether attention is causal."""
        if not isinstance(ragged, Sentences):
            return super().forward(x_RTD, reach, ragged, cache)
        dropout = self.dropout if self.training else 0.0
        mixed = []
        for bucket, qkv in ragged.split(self.qkv(x_RTD)):
            q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
            # Padding stands to the right of everything that is real: causality already hides it.
            mask = None if reach.causal else bucket.mask
            out = attend(q, k, v, mask, reach.causal, dropout, bucket.places)
            mixed.append(bucket.pack(merge_heads(out)))
        out_ND: Tensor = self.out(torch.cat(mixed))
        return out_ND


class LocalCrossAttention(CrossAttention):
    """Attention of target sentences to their counterparts in complete rows; else, `mask` sees to that."""

    def forward(
        self,
        x_RTD: Tensor,
        keys_values: tuple[Tensor, Tensor],
        mask: Tensor | None,
        ragged: Sentences | Ragged | None = None,
    ) -> Tensor:
        """Of `Sentences`, [N, D] -> [N, D], and `mask` tells nothing."""
        if not isinstance(ragged, Sentences):
            return super().forward(x_RTD, keys_values, mask, ragged)
        dropout = self.dropout if self.training else 0.0
        keys_PD, values_PD = (merge_heads(x).flatten(0, 1) for x in keys_values)
        mixed = []
        for bucket, query in ragged.split(self.query(x_RTD)):
            source = bucket.source
            assert source is not None
            q = split_heads(query, self.heads)
            k, v = (split_heads(source.fetch(x), self.heads) for x in (keys_PD, values_PD))
            places = partial(bucket.places, source.places)
            mixed.append(bucket.pack(merge_heads(attend(q, k, v, source.mask, False, dropout, places))))
        out_ND: Tensor = self.out(torch.cat(mixed))
        return out_ND
