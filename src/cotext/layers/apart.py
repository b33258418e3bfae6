"""Which keys are of a query's own sentence, and which of others: in rows, caches and sources.

Shapes: B rows or entries, T queries, S keys.
"""

import torch
from torch import Tensor

from cotext.layers.kernels.gated_others import Apart
from cotext.layers.masks import causal as causal_mask
from cotext.layers.state import SourceSide


def apart_by_sentence(query_BT: Tensor, key_BS: Tensor, mask: Tensor | None, causal: bool) -> Apart:
    """Keys on the side of the queries, by the sentences of both; `mask` and `causal` as in `Keys`."""
    same = (query_BT[:, :, None] == key_BS[:, None, :])[:, None]
    seen = causal_mask(same.size(2), same.size(3), same.device) if causal else mask
    if seen is None:
        seen = torch.ones_like(same)
    return Apart.of(same & seen, seen & ~same, causal and same.size(2) == same.size(3))


def apart_from_source(source: SourceSide, sentence_BT: Tensor) -> Apart | None:
    """Source tokens of the sentences that are translated, and of others; None where rows are one sentence."""
    if source.spans.size(1) == 1:
        return None
    start, stop = source.span_of(sentence_BT)
    at = torch.arange(source.tokens, device=sentence_BT.device)
    own = ((at >= start[:, :, None]) & (at < stop[:, :, None]))[:, None]
    return Apart.of(own, ~own if source.mask is None else ~own & source.mask)
