"""Spans of attention restricted to sentences.

Sentences are short rows of one product (`layers/buckets.py`), so that the cost is the sum of their squared
lengths, without a mask between all tokens. Target sentence k attends to source sentence k.

Shapes: G sentences of a bucket, L tokens of the longest, N real tokens of all rows, P tokens of all source
rows with padding, B entries, W beams, T tokens, S source tokens, D model.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.layout import Keys, Layout, Step
from cotext.layers.multi_head import CrossAttention, RowSpan, SelfAttention, merge_heads, split_heads
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
            mixed.append(
                bucket.pack(merge_heads(attention.score.attend_source(attention.split(query), (k, v), keys)))
            )
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
    """Return the positions of source keys and queries; see `Layout.aligned_position`."""
    indices = tokens()
    query = layout.aligned_position.flatten()[indices.query.clamp(min=0)]
    return query, indices.key.clamp(min=0) % layout.source.tokens
