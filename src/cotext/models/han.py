"""Hierarchical attention (HAN; Miculicich et al. 2018) to earlier sentences, on either side.

On top of a stack, every token first attends to each of the earlier sentences separately, then to the results.
A gate mixes the outcome into its state h (section 2.2):

    q_w = f_w(h)      s_j = MultiHead(q_w, states of sentence j)        words: equations 1 and 2
    q_s = f_s(h)      d = FFN(MultiHead(q_s, s_1 ... s_m))              sentences: equations 3 and 4
    g = sigmoid(W [h; d] + b)         h' = g * h + (1 - g) * d          gate: equations 5 and 6

Each result before the gate passes a layer norm. In the encoder, the states belong to source sentences. In the
decoder, they are the states that predict the words of target sentences; earlier sentences are complete. The
states of the first sentence of a row do not change.

Shapes: B entries, W beams, R rows, T tokens (while decoding, tokens of all beams of an entry), S keys, m
sentences, H heads, K per head, D model.
"""

import torch
from torch import Tensor, nn

from cotext.layers.blocks import Size
from cotext.layers.kernels.common import Dropout, dropout
from cotext.layers.kernels.sdpa import attend
from cotext.layers.layout import AnyLayout, Step, tokens_where
from cotext.layers.linear import gated
from cotext.layers.multi_head import merge_heads, projection, split_heads
from cotext.layers.start import AlmostClosed, ZeroGate
from cotext.layers.state import KeysValues
from cotext.models.interface import DocumentLayer, DocumentSettings, Reach


class _Product(nn.Module):
    """The projections of one multi-head attention."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query = projection(size.dimension)
        self.key_value = projection(size.dimension, 2)
        self.out = projection(size.dimension)
        self.norm = nn.LayerNorm(size.dimension)

    def queries(self, h_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, H, T, K]."""
        return split_heads(self.query(h_BTD), self.heads)

    def keys_values(self, h_BSD: Tensor) -> KeysValues:
        """[B, S, D] -> two [B, H, S, K]."""
        k, v = (split_heads(part, self.heads) for part in self.key_value(h_BSD).chunk(2, dim=-1))
        return k, v

    def result(self, mixed_BHTK: Tensor) -> Tensor:
        """[B, H, T, K] -> [B, T, D]."""
        normalised: Tensor = self.norm(self.out(merge_heads(mixed_BHTK)))
        return normalised


class HierarchicalAttention(DocumentLayer, AlmostClosed):
    """Attention to the words of each earlier sentence, then to these sentences."""

    caches = 1
    on_target = True
    settings = ("sentences",)

    def __init__(self, size: Size, settings: DocumentSettings) -> None:
        super().__init__(size, settings)
        self.sentences = settings.before
        self.attention_dropout = size.attention_dropout
        self.words, self.of_sentences = _Product(size), _Product(size)
        self.feed_forward = size.feed_forward_layer()
        self.norm = nn.LayerNorm(size.dimension)
        self.gate = nn.Linear(2 * size.dimension, size.dimension)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        self.dropout = Dropout(size.dropout)

    @classmethod
    def reach(cls, settings: DocumentSettings, row: Reach) -> Reach:
        return Reach(settings.before)

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        if not isinstance(layout, Step):
            h = layout.unpack(x)
            return layout.pack(self._mixed(h, self.words.keys_values(h), layout.sentence, None, layout))
        state, slots = layout.state, layout.row
        slot_sentence = state.sentences_of_slots(layout.sentence)
        state.caches[0].write(self.index, *self.words.keys_values(x), slots.start)
        kv = state.caches[0].read(self.index, slots.stop)
        return self._mixed(x, kv, slot_sentence, slots.mask, layout)

    def _mixed(
        self, h_BTD: Tensor, kv: KeysValues, key_sentence: Tensor, visible: Tensor | None, layout: AnyLayout
    ) -> Tensor:
        """Return states [B, T, D] mixed with the attention to earlier sentences.

        `key_sentence` [B, S] are sentence indices, -1 on padding; `visible` broadcasts to [B, 1, T, S].
        """
        sentence = layout.packed_sentence if isinstance(layout, Step) else layout.sentence
        query, rate = self.words.queries(h_BTD), self.attention_dropout if self.training else 0.0
        exists, results = [], []
        for distance in range(1, self.sentences + 1):
            earlier = sentence[:, :, None] - distance
            mask = ((earlier == key_sentence[:, None]) & (key_sentence >= 0)[:, None])[:, None]
            mask = mask if visible is None else mask & visible
            has_key = mask.any(dim=3)  # [B, 1, T]
            # A query without such a sentence attends to all keys: a softmax over no keys would be NaN.
            tokens = tokens_where(layout, has_key[:, 0])
            mixed = attend(query * has_key[..., None], *kv, mask | ~has_key[..., None], False, rate, tokens)
            exists.append(has_key[:, 0])
            results.append(self.words.result(mixed))
        exists_BTm = torch.stack(exists, dim=2)
        # Without any earlier sentence, a state does not change.
        any_BT1 = exists_BTm.any(dim=2, keepdim=True)
        d = self.feed_forward(self._chosen(h_BTD, torch.stack(results, dim=2), exists_BTm | ~any_BT1))
        d = self.norm(self.dropout(d))
        return torch.where(any_BT1, gated(self.gate, h_BTD, d, self.start), h_BTD)

    def _chosen(self, h_BTD: Tensor, results_BTmD: Tensor, exists_BTm: Tensor) -> Tensor:
        """Attend from every token to the results of its earlier sentences: [B, T, D]."""
        rows = results_BTmD.flatten(0, 1)
        query = self.of_sentences.queries(h_BTD.flatten(0, 1)[:, None])
        k, v = self.of_sentences.keys_values(rows)
        scores = (query @ k.transpose(-2, -1)) * query.size(-1) ** -0.5
        weights = scores.masked_fill(~exists_BTm.flatten(0, 1)[:, None, None], -torch.inf).softmax(dim=-1)
        weights = dropout(weights, self.attention_dropout, self.training)
        return self.of_sentences.result(weights @ v).view_as(h_BTD)
