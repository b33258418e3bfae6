"""Selective attention (SAN; Maruf et al. 2019) to the other sentences of a row, and to their words.

On top of a stack, every token with state h chooses among the other sentences, and in each of them among its
words. The equations are those of the authors' code (sameenmaruf/selective-attn, b30c31c: src/layers.h and
src/transformer-context.h). In each head, qs and qw are projections of h, and ks_i, kw_i and v_i projections
of the state of word i:

    key of sentence j   m_j = mean of ks_i over the words i of j
    sentences           a_j = sparsemax over j of (qs m_j / sqrt(K))
    words of j          b_i = softmax (or sparsemax) over the words i of j of (qw kw_i / sqrt(K))
    context             c = sum over j of a_j * sum over i in j of b_i v_i

    d = LayerNorm(FFN(LayerNorm(W c)))                                       without residual connections
    g = sigmoid(Ws h + Wc d)          h' = g * h + (1 - g) * d

With `level: sentences`, a is a softmax and b is 1 / (number of words). With `level: words`, one softmax runs
over the words of all other sentences. Both have one query and one key per token.

A source token attends to all other sentences (`later`; offline in the paper) or to earlier ones (online). A
target token attends to earlier target sentences, whose states predict their words. States without such a
sentence do not change.

Shapes: B entries, W beams, T tokens (while decoding, tokens of all beams of an entry), S keys, J sentences, H
heads, K per head, D model.
"""

import torch
from torch import Tensor, nn

from cotext.layers.blocks import Size
from cotext.layers.kernels.common import Dropout
from cotext.layers.kernels.sdpa import show_these
from cotext.layers.layout import AnyLayout, Step, tokens_where
from cotext.layers.linear import gated
from cotext.layers.multi_head import merge_heads, projection, split_heads
from cotext.layers.start import ZeroGate
from cotext.models.interface import DocumentLayer, DocumentSettings, Reach


class SelectiveAttention(DocumentLayer):
    """Attention to the other sentences of a row, and to the words of each."""

    answers = ("segments",)
    on_target = True
    settings = ("level", "word_weights", "later")

    def __init__(self, size: Size, settings: DocumentSettings) -> None:
        super().__init__(size, settings)
        self.level, self.later = settings.level, settings.later
        self.sparse_words = settings.word_weights == "sparsemax"
        self.heads, self.caches = size.heads, 2 if settings.level == "both" else 1
        self.query = projection(size.dimension, self.caches)
        self.key_value = projection(size.dimension, self.caches + 1)
        self.out = projection(size.dimension)
        self.norm = nn.LayerNorm(size.dimension)
        self.feed_forward = size.feed_forward_layer()
        self.output_norm = nn.LayerNorm(size.dimension)
        self.gate = nn.Linear(2 * size.dimension, size.dimension, bias=False)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        self.dropout, self.weight_dropout = Dropout(size.dropout), Dropout(size.attention_dropout)

    @classmethod
    def reach(cls, settings: DocumentSettings, row: Reach) -> Reach:
        return Reach(before=float("inf"), after=float("inf") if settings.later else 0)

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        if not isinstance(layout, Step):
            h, sentence = layout.unpack(x), layout.sentence
            others = self._others(sentence, sentence, self.later and not layout.causal)
            keys_v = self._split(self.key_value(h), self.caches + 1)
            member = _members(sentence, layout.segments.count, h)
            return layout.pack(self._mixed(h, keys_v, member, others, layout))
        state, slots = layout.state, layout.row
        *keys, v = self._split(self.key_value(x), self.caches + 1)
        # The values are in the first cache; the values of the second are not read.
        for i, key in enumerate(keys):
            state.caches[0].write(self.index + i, key, v if i == 0 else key, slots.start)
        read = [state.caches[0].read(self.index + i, slots.stop) for i in range(self.caches)]
        slot_sentence = state.sentences_of_slots(layout.sentence)
        others = self._others(layout.packed_sentence, slot_sentence, later=False)
        if slots.mask is not None:
            others = others & slots.mask
        member = _members(slot_sentence, int(slot_sentence.max()) + 1, x)
        return self._mixed(x, [*(key for key, _ in read), read[0][1]], member, others, layout)

    @staticmethod
    def _others(sentence: Tensor, key_sentence: Tensor, later: bool) -> Tensor:
        """Return the mask of the words of other sentences, [B, T] and [B, S] -> [B, 1, T, S]."""
        own, key = sentence[:, :, None], key_sentence[:, None]
        return (((key != own) if later else (key < own)) & (key >= 0) & (own >= 0))[:, None]

    def _split(self, projected: Tensor, parts: int) -> list[Tensor]:
        """[B, T, parts * D] -> `parts` times [B, H, T, K]."""
        return [split_heads(part, self.heads) for part in projected.chunk(parts, dim=-1)]

    def _mixed(
        self, h_BTD: Tensor, keys_v: list[Tensor], member_BSJ: Tensor, others: Tensor, layout: AnyLayout
    ) -> Tensor:
        """Return states mixed with their context: [B, T, D]."""
        *keys, v = keys_v
        queries = self._split(self.query(h_BTD), self.caches)
        scores = [q @ k.transpose(-2, -1) * q.size(-1) ** -0.5 for q, k in zip(queries, keys, strict=True)]
        weights = self._weights(scores[0], scores[-1], member_BSJ[:, None], others)
        exists = others.any(dim=3)  # [B, 1, T]
        show_these(weights, queries[0] * exists[..., None], tokens_where(layout, exists[:, 0]))
        context = self.norm(self.dropout(self.out(merge_heads(self.weight_dropout(weights) @ v))))
        d = self.output_norm(self.feed_forward(context))
        return torch.where(exists[:, 0, :, None], gated(self.gate, h_BTD, d, self.start), h_BTD)

    def _weights(self, of_sentences: Tensor, of_words: Tensor, member: Tensor, others: Tensor) -> Tensor:
        """Return the weight of every word, with a sum of 1: scores [B, H, T, S] -> [B, H, T, S].

        `member` [B, 1, S, J]: whether a word is in a sentence. Queries without other sentences get any
        finite weights.
        """
        if self.level == "words":
            return of_words.masked_fill(~others, torch.finfo(of_words.dtype).min).softmax(dim=-1)
        seen = others.to(of_sentences.dtype)
        words = seen @ member  # number of words of each sentence that a query sees: [B, 1, T, J]
        # The product with a mean of keys is the mean of the products.
        means = ((of_sentences * seen) @ member) / words.clamp(min=1)
        means = means.masked_fill(words == 0, torch.finfo(means.dtype).min)
        if self.level == "sentences":
            return seen * ((means.softmax(dim=-1) / words.clamp(min=1)) @ member.transpose(-2, -1))
        of_words = of_words.masked_fill(~others, torch.finfo(of_words.dtype).min)
        inside = sparsemax_inside if self.sparse_words else softmax_inside
        return inside(of_words, member) * seen * (sparsemax(means) @ member.transpose(-2, -1))


def _members(sentence: Tensor, sentences: int, like: Tensor) -> Tensor:
    """Return whether each word is in each sentence: [B, S] -> [B, S, J]."""
    return (sentence[:, :, None] == torch.arange(sentences, device=sentence.device)).to(like.dtype)


def sparsemax(x: Tensor) -> Tensor:
    """Project the last dimension on the simplex (Martins and Astudillo 2016, algorithm 1)."""
    # The threshold is at least maximum - 1: lower values make no difference.
    x = (x - x.amax(dim=-1, keepdim=True)).clamp(min=-2)
    descending = x.sort(dim=-1, descending=True).values
    rank = torch.arange(1, x.size(-1) + 1, device=x.device)
    supported = 1 + rank * descending > descending.cumsum(dim=-1)
    total = (descending * supported).sum(dim=-1, keepdim=True)
    return (x - (total - 1) / supported.sum(dim=-1, keepdim=True)).clamp(min=0)


def softmax_inside(x: Tensor, member: Tensor) -> Tensor:
    """Softmax of scores [B, H, T, S] inside each sentence; `member` [B, 1, S, J].

    Masked words and padding have the lowest score.
    """
    x, sentence = _below_largest(x, member)
    powers = x.exp()
    return powers / (powers @ member).clamp(min=torch.finfo(x.dtype).tiny).gather(-1, sentence)


def sparsemax_inside(x: Tensor, member: Tensor) -> Tensor:
    """Sparsemax of scores inside each sentence, with arguments as in `softmax_inside`."""
    x, sentence = _below_largest(x, member)
    x = x.clamp(min=-2)
    # Sort by score; then by sentence, without changing the order inside sentences.
    by_score = x.argsort(dim=-1, descending=True)
    of_sorted, order = sentence.gather(-1, by_score).sort(dim=-1, stable=True)
    descending = x.gather(-1, by_score.gather(-1, order))
    place = torch.arange(x.size(-1), device=x.device).expand_as(x)
    empty = x.new_zeros((*x.shape[:-1], member.size(-1)))
    first = empty.long().scatter_reduce(-1, of_sorted, place, "amin", include_self=False)
    first = first.gather(-1, of_sorted)
    sums = descending.cumsum(dim=-1)
    sums = sums - (sums - descending).gather(-1, first)
    supported = (1 + (place - first + 1) * descending > sums).to(x.dtype)
    total = empty.scatter_add(-1, of_sorted, descending * supported)
    count = empty.scatter_add(-1, of_sorted, supported)
    return (x - ((total - 1) / count.clamp(min=1)).gather(-1, sentence)).clamp(min=0)


def _below_largest(x: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the largest score of its sentence from each score; return also the sentence of each word."""
    sentence = member.argmax(dim=-1)[:, :, None].expand_as(x)
    largest = x.new_full((*x.shape[:-1], member.size(-1)), -torch.inf)
    largest = largest.scatter_reduce(-1, sentence, x.detach(), "amax")
    return x - largest.gather(-1, sentence), sentence
