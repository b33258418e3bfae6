"""Buckets of sentences of similar length, for attention restricted to sentences.

Each sentence becomes a short row of a batched product. The cost is the sum of squared sentence lengths,
without a mask between all tokens of a document. Sentences of similar length share a bucket, so that one long
sentence does not pad a hundred short ones. Tokens are stored in the order of their buckets:

    two rows    a a a a a b b c c c c          order    a a a a a c c c c f f f f  b b d d e e e
                d d e e e f f f f . .
                                               bucket   a a a a a      bucket  b b .
                                                        c c c c .              d d .
                                                        f f f f .              e e e

In cross-attention, sentence k of a target row attends to sentence k of its source row.

Shapes: B rows, T target tokens, S source tokens, P = B * S, N real tokens of all rows, G sentences of a
bucket, L tokens of its longest, D model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cotext.layers.kernels.common import Packing
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.positions import causal as causal_mask

BUCKET_RATIO = 1.5  # longest to shortest sentence of a bucket


def sentence_spans(sentence: Tensor) -> Tensor:
    """Return start and end of the sentences 0, 1 ... of every row: [B, S] -> [B, most sentences, 2].

    An index beyond the last sentence of a row denotes the last sentence.
    """
    last = sentence.max(dim=1, keepdim=True).values
    length = sentence.new_zeros(sentence.size(0), int(last.max()) + 1)
    length.scatter_add_(1, sentence.clamp(min=0), (sentence >= 0).long())
    stop = length.cumsum(dim=1)
    k = torch.arange(length.size(1), device=sentence.device).minimum(last)
    return torch.stack((stop - length, stop), dim=2).take_along_dim(k[:, :, None], dim=1)


class ExtraTokens:
    """Tokens outside a bucket that its sentences attend to, such as the tokens of their source sentences.

    `at_GL`: index of each token in the tensor that `fetch` reads. `token_GL`: its index in the batch. Both
    are -1 on padding.
    """

    def __init__(self, at_GL: Tensor, token_GL: Tensor) -> None:
        real_GL = at_GL >= 0
        self.mask = None if bool(real_GL.all()) else real_GL[:, None, None, :]
        self.sentences, self.tokens = at_GL.shape
        # On padding, any token is fetched; `mask` hides it, so it gets a gradient of zero.
        self.index = at_GL.clamp(min=0).flatten()
        self.token_indices = token_GL

    @classmethod
    def of_source(cls, start_G: Tensor, length_G: Tensor) -> "ExtraTokens":
        """Return the tokens in the given spans of the source rows, counted over all rows."""
        at_L = torch.arange(int(length_G.max()), device=start_G.device)
        at_GL = torch.where(at_L < length_G[:, None], start_G[:, None] + at_L, -1)
        return cls(at_GL, at_GL)

    def fetch(self, x_PD: Tensor) -> Tensor:
        """Fetch these tokens from x: [P, D] -> [G, L, D]."""
        return x_PD.index_select(0, self.index).view(self.sentences, -1, x_PD.size(1))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sentences of similar length."""

    sentences: int
    tokens: int  # of all sentences
    index: Tensor  # [N], of each token in the padded rows
    own: Packing | None  # [G, L]; None: all sentences have the same length
    mask: Tensor | None  # [G, 1, 1, L]
    source: ExtraTokens | None
    memory: ExtraTokens | None  # earlier sentences, padded on the left; fetched from x_ND of all buckets

    def unpack(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [G, L, D]."""
        return x_ND.view(self.sentences, -1, x_ND.size(1)) if self.own is None else self.own.unpack(x_ND)

    def token_indices(self, keys: Tensor | None = None) -> TokenIndices:
        """Return the token indices of the queries [G, L], and of the keys if they differ."""
        token_GL = self.index
        if self.own is not None:
            token_GL = self.index.new_full((self.own.rows * self.own.tokens,), -1)
            token_GL[self.own.index_N] = self.index
        token_GL = token_GL.view(self.sentences, -1)
        return TokenIndices(token_GL, token_GL if keys is None else keys)

    def pack(self, x_GLD: Tensor) -> Tensor:
        """[G, L, D] -> [N, D]."""
        return x_GLD.flatten(0, 1) if self.own is None else self.own.pack(x_GLD)


class _Rows:
    """Begin, length, index and row of every sentence, in row order: [G] each."""

    def __init__(self, sentence: Tensor, index_N: Tensor) -> None:
        self.index_N = index_N
        k_N, row_N = sentence.flatten()[index_N], index_N // sentence.size(1)
        opens_N = torch.ones_like(k_N, dtype=torch.bool)
        opens_N[1:] = (k_N.diff() != 0) | (row_N.diff() != 0)
        self.first_G = opens_N.nonzero()[:, 0]
        self.length_G = torch.diff(self.first_G, append=self.first_G.new_tensor([k_N.numel()]))
        self.k_G, self.row_G = k_N[self.first_G], row_N[self.first_G]

    def memory(self, sentences: int) -> Tensor:
        """Return the first token of the memory of every sentence; it ends where the sentence begins: [G]."""
        g = torch.arange(self.row_G.numel(), device=self.row_G.device)
        opens_G = torch.ones_like(self.row_G, dtype=torch.bool)
        opens_G[1:] = self.row_G.diff() != 0
        # A memory never reaches beyond the first sentence of its row.
        return self.first_G[(g - sentences).maximum(torch.where(opens_G, g, 0).cummax(dim=0).values)]

    def remembered(self, start_G: Tensor, here: Tensor, moved_N: Tensor) -> ExtraTokens | None:
        """Return the memory of the sentences `here`; token n is now at moved_N[n]. None if there is none."""
        start, stop = start_G[here, None], self.first_G[here, None]
        longest = int((stop - start).max())
        if longest == 0:
            return None
        # Padded on the left, a memory ends where its sentence begins, so distances do not depend on padding.
        at_GM = stop + torch.arange(-longest, 0, device=stop.device)
        real, at_GM = at_GM >= start, at_GM.clamp(min=0)
        return ExtraTokens(torch.where(real, moved_N[at_GM], -1), torch.where(real, self.index_N[at_GM], -1))


class Sentences:
    """The sentences of all rows in buckets; `rows` packs tokens in the order of the buckets.

    Sentence indices [B, T] never decrease within a row; padding is -1. With `spans` of the source sentences
    (`sentence_spans`, in rows of `source_tokens`), each sentence has the tokens of its source sentence.
    `memory_sentences`: each also has the tokens of this many earlier sentences of its row.
    """

    def __init__(
        self, sentence: Tensor, spans: Tensor | None = None, source_tokens: int = 0, memory_sentences: int = 0
    ) -> None:
        self.rows = Packing(sentence >= 0)
        by_row = _Rows(sentence, self.rows.index_N)
        length_G = longer_G = by_row.length_G
        start_G = counterpart_G = memory_G = None
        if spans is not None:
            # A search may write more sentences than the source has: they attend to the last source sentence.
            start_G, stop_G = spans[by_row.row_G, by_row.k_G.clamp(max=spans.size(1) - 1)].unbind(dim=1)
            counterpart_G = stop_G - start_G
            start_G = start_G + by_row.row_G * source_tokens
            # The bucket is chosen by the longer side, because both sides are padded.
            longer_G = length_G.maximum(counterpart_G)
        if memory_sentences:
            memory_G = by_row.memory(memory_sentences)
            longer_G = longer_G.maximum((by_row.first_G - memory_G) / memory_sentences)
        # Bucket i contains sentences of at most (longest length / BUCKET_RATIO^i) tokens.
        steps = (longer_G.max() / longer_G).log() / math.log(BUCKET_RATIO)
        which_G = steps.long()
        # A stable sort keeps the order of rows within a bucket.
        order = which_G.repeat_interleave(length_G).argsort(stable=True)
        moved_N = torch.empty_like(order)
        moved_N[order] = torch.arange(order.numel(), device=order.device)
        self.rows.index_N = self.rows.index_N[order]
        self.buckets: list[Bucket] = []
        tokens = 0
        for which in range(int(which_G.max()) + 1):
            here = (which_G == which).nonzero()[:, 0]
            if here.numel() == 0:
                continue
            lengths = length_G[here]
            real_GL = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
            own = None if bool(real_GL.all()) else Packing(real_GL)
            mask = None if own is None else real_GL[:, None, None, :]
            source = memory = None
            if start_G is not None and counterpart_G is not None:
                source = ExtraTokens.of_source(start_G[here], counterpart_G[here])
            if memory_G is not None:
                memory = by_row.remembered(memory_G, here, moved_N)
            index_N = self.rows.index_N[tokens : tokens + int(lengths.sum())]
            tokens += index_N.numel()
            self.buckets.append(Bucket(here.numel(), index_N.numel(), index_N, own, mask, source, memory))

    def split(self, x_ND: Tensor) -> list[tuple[Bucket, Tensor]]:
        """Return the tokens of every bucket, with one row per sentence: [G, L, D] each."""
        parts = torch.split(x_ND, [bucket.tokens for bucket in self.buckets])
        return [(b, b.unpack(part)) for b, part in zip(self.buckets, parts, strict=True)]


# --- Memories: for the sentences of a bucket, the tokens of earlier sentences, and their distances.
#
# Shapes: G sentences of a bucket, L tokens of its longest, M tokens of its longest memory, N real tokens of
# all rows, D model.


class BucketMemory:
    """The earlier tokens that the sentences of one bucket attend to; the same in all layers."""

    def __init__(self, bucket: Bucket, device: torch.device) -> None:
        self.bucket, self.memory = bucket, bucket.memory
        longest = bucket.tokens // bucket.sentences if bucket.own is None else bucket.own.tokens
        # Keys of the memory come before those of the sentence.
        remembered = 0 if self.memory is None else self.memory.tokens
        keys = remembered + longest
        # Padding is to the right of all real tokens, so the causal mask already hides it.
        self.mask = causal_mask(longest, keys, device)[None, None]
        if self.memory is not None and self.memory.mask is not None:
            real = torch.ones(bucket.sentences, 1, 1, keys, dtype=torch.bool, device=device)
            real[..., :remembered] = self.memory.mask
            self.mask = self.mask & real
        # Query - key, descending. Keys after the query are masked; clamping keeps their index valid.
        self.distance = torch.arange(keys - 1, -longest, -1, device=device).clamp(min=0)

    def fetch(self, own_ND: Tensor, detached: Tensor) -> Tensor:
        """Return keys and values: [n, 2D] of the bucket, [N, 2D] of all -> [G, M + L, 2D]."""
        own_ND = self.bucket.unpack(own_ND)
        return own_ND if self.memory is None else torch.cat((self.memory.fetch(detached), own_ND), dim=1)

    def token_indices(self) -> TokenIndices:
        own = self.bucket.token_indices()
        if self.memory is None:
            return own
        return TokenIndices(own.query, torch.cat((self.memory.token_indices, own.key), dim=1))


class MemoryLayout:
    """Memories of the sentences of complete rows; distances are in the range 0 to `distances` - 1."""

    def __init__(self, sentences: Sentences) -> None:
        device = sentences.rows.index_N.device
        self.buckets = [BucketMemory(bucket, device) for bucket in sentences.buckets]
        self.distances = max(int(memory.distance[0]) for memory in self.buckets) + 1

    @property
    def empty(self) -> bool:
        """Whether all memories are empty, because no sentence has an earlier sentence."""
        return all(bucket.memory is None for bucket in self.buckets)


# --- Nodes: the first and last tokens of sentences, to which the other sentences of their row attend.
#
# Nodes represent their sentences (Yu et al. 2024, section 3.2.2 and equation 15). They are copied to the keys
# of every other sentence of their row:
#
#     row     B a b E  B c E  B d e E        keys of sentence 1      B c E    B E . .  B E
#                                                                    its own  nodes of 0 and 2
#
# In cross-attention, all keys are source tokens. For target sentence k, they are the tokens of source
# sentence k, and the nodes of all other source sentences.
#
# In equation 14 as printed, nodes are the queries that attend to whole rows. Here they are keys, as in the
# text of the paper.
#
# Shapes: B rows, S tokens of a row, n most sentences of a row, G sentences of a bucket, L keys of each.


def tokens_and_nodes(sentences: Sentences, queries: Tensor, keys: Tensor, crosses: bool) -> list[ExtraTokens]:
    """Return for every bucket the tokens of its sentences, and the nodes of other sentences of their rows.

    `queries` and `keys` are the sentences of the tokens of rows, [B, T] and [B, S]. Tokens are in the order
    of the buckets. If attention `crosses` sides, the tokens are source tokens, in the order of the rows.
    """
    spans = sentence_spans(keys)
    first_Bn, last_Bn = spans[:, :, 0], spans[:, :, 1] - 1
    n = torch.arange(spans.size(1), device=keys.device)
    real_Bn = n <= keys.max(dim=1, keepdim=True).values
    # A sentence of a single token has one node.
    real = torch.cat((real_Bn, real_Bn & (last_Bn > first_Bn)), dim=1)
    rows = torch.arange(keys.size(0), device=keys.device)[:, None]
    index = torch.cat((first_Bn, last_Bn), dim=1) + rows * keys.size(1)
    at = torch.arange(keys.numel(), device=keys.device)
    if not crosses:  # the index of each token in the order of the buckets
        at[sentences.rows.index_N] = torch.arange(sentences.rows.index_N.numel(), device=keys.device)
    found = []
    for bucket in sentences.buckets:
        own_GL = bucket.token_indices().query
        # The first token gives the row and the index of its sentence.
        row_G, k_G = own_GL[:, 0] // queries.size(1), queries.flatten()[own_GL[:, 0]]
        others = real[row_G] & (torch.cat((n, n)) != k_G[:, None])
        if crosses and bucket.source is not None:
            own_GL = bucket.source.token_indices
        token_GL = torch.cat((own_GL, torch.where(others, index[row_G], -1)), dim=1)
        found.append(ExtraTokens(torch.where(token_GL < 0, -1, at[token_GL]), token_GL))
    return found
