"""Memory of the sentences before a sentence, in buckets: which tokens are remembered, and at which distances.

Shapes: G sentences of a bucket, L tokens of its longest, M tokens of its longest memory, N real tokens of all
rows, D model.
"""

import torch
from torch import Tensor

from cotext.layers.buckets import Bucket, Sentences
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.masks import causal


class BucketMemory:
    """Tokens of the past that the sentences of one bucket see: the same in all layers."""

    def __init__(self, bucket: Bucket, device: torch.device) -> None:
        self.bucket, self.memory = bucket, bucket.memory
        longest = bucket.tokens // bucket.sentences if bucket.own is None else bucket.own.tokens
        remembered = 0 if self.memory is None else self.memory.tokens
        keys = remembered + longest
        # Padding of a sentence stands to the right of everything that is real: causality already hides it.
        self.mask = causal(longest, keys, device)[None, None]
        if self.memory is not None and self.memory.mask is not None:
            real = torch.ones(bucket.sentences, 1, 1, keys, dtype=torch.bool, device=device)
            real[..., :remembered] = self.memory.mask
            self.mask = self.mask & real
        # Distances by key - query, ascending, with those of later keys, which nobody sees.
        self.distance = torch.arange(keys - 1, -longest, -1, device=device).clamp(min=0)

    def fetch(self, own: Tensor, detached: Tensor) -> Tensor:
        """Inputs of keys and values: [n, 2D] of the bucket and [N, 2D] of all -> [G, M + L, 2D]."""
        own = self.bucket.unpack(own)
        return own if self.memory is None else torch.cat((self.memory.fetch(detached), own), dim=1)

    def token_indices(self) -> TokenIndices:
        """Indices of queries and keys."""
        own = self.bucket.token_indices()
        if self.memory is None:
            return own
        return TokenIndices(own.query, torch.cat((self.memory.token_indices, own.key), dim=1))


class MemoryLayout:
    """Memories of the sentences of complete rows; distances count from 0 to below `distances`."""

    def __init__(self, sentences: Sentences) -> None:
        device = sentences.rows.index_N.device
        self.buckets = [BucketMemory(bucket, device) for bucket in sentences.buckets]
        self.distances = max(int(memory.distance[0]) for memory in self.buckets) + 1

    @property
    def empty(self) -> bool:
        """Whether no sentence has one before it to remember."""
        return all(each.memory is None for each in self.buckets)
