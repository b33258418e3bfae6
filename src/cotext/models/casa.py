"""CASA (Yu et al. 2024) and what it is compared with: a document is written in one step, all tokens at once.

    source -> encoder -> soft copy -> decoder -> a token or blank at every place

Places. With a path there are two for every source token, brackets included, so that source sentence k of s
tokens has 2 * s places, the first for its `bos` and the last for its `eos`: as many sentences come out as go
in. Without (GLAT, Qian et al. 2021), a row has as many places as the model predicts from the mean of the
encoder's states: how many more or fewer than source tokens.

Attention of encoder, decoder, and decoder to encoder. The lower layers stay inside sentences; the top
`context_layers` see also the first and the last token of all sentences (`layers/context.py`). Switched off,
with one path for the whole row, the model is GLAT+CTC.

Latent (`layers/codes.py`; Bao et al. 2022): a second decoder first predicts at every place the code of what
will stand there, in one step too, and the decoder reads states into which a gate has mixed these codes. In
training it reads right ones at places drawn anew, half as many as were predicted wrong, and at the others
what it would have read without codes (`--vq-mix-diff` in the authors' scripts).

Shapes: B rows, S source tokens, T places, N real places of all rows, D model, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.buckets import LocalCrossAttention, LocalSelfAttention, Sentences, sentence_spans
from cotext.layers.codebook import Codebook, CodeGate, perplexity
from cotext.layers.context_nodes import (
    ContextCrossAttention,
    ContextSelfAttention,
    NodeQueryCrossAttention,
    NodeQuerySelfAttention,
    Nodes,
    node_query_mask,
)
from cotext.layers.glance import glanced
from cotext.layers.masks import visible
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import ranks
from cotext.layers.soft_copy import soft_copy, stretched
from cotext.layers.state import SelfReach
from cotext.models.interface import AuxiliaryLoss, Draft, NonAutoregressiveModel, PathKind

PLACES_PER_TOKEN = 2
LENGTH_WEIGHT = 0.1  # of the loss of a predicted length
CODES_READ = 0.5  # in training, of as many places as were predicted wrong: `--vq-schedule-ratio`

Kind = Literal["local", "context", "node queries", "whole"]
SELF: dict[Kind, type[SelfAttention]] = {
    "local": LocalSelfAttention,
    "context": ContextSelfAttention,
    "node queries": NodeQuerySelfAttention,
    "whole": SelfAttention,
}
CROSS: dict[Kind, type[CrossAttention]] = {
    "local": LocalCrossAttention,
    "context": ContextCrossAttention,
    "node queries": NodeQueryCrossAttention,
    "whole": CrossAttention,
}


@dataclass(frozen=True, slots=True)
class Switches:
    """What makes CASA of GLAT: see `CasaConfig`, whose keys these are."""

    path: PathKind = "sentences"
    local: bool = True
    context_layers: int = 2
    context_nodes: Literal["keys", "queries"] = "keys"
    soft_copy: Literal["sentences", "row"] = "sentences"
    source_context: bool = True
    target_context: bool = True
    latent: bool = False
    codes: int = 64
    code_mixing: Literal["drawn", "all"] = "drawn"
    code_weight: float = 0.5
    length_offsets: int = 128

    def kind(self, layer: int, layers: int, context: bool) -> Kind:
        """The attention of a layer, counted from the bottom; `context`: whether its side may have any."""
        if layer >= layers - self.context_layers:
            nodes: Kind = "context" if self.context_nodes == "keys" else "node queries"
            return nodes if context else "local"
        return "local" if self.local else "whole"


class _View:
    """What attention of each kind is told about the tokens of all rows, beside their states."""

    def __init__(self, sentence: Tensor, source: Tensor | None = None) -> None:
        self.sentence, self.source = sentence, source
        spans = None if source is None else sentence_spans(source)
        self.sentences = Sentences(sentence, spans, 0 if source is None else source.size(1))
        self.rows = self.sentences.rows

    @cached_property
    def _own_nodes(self) -> Nodes:
        return Nodes(self.sentences.buckets, self.sentence, self.sentence, self.sentences)

    @cached_property
    def _source_nodes(self) -> Nodes:
        assert self.source is not None
        return Nodes(self.sentences.buckets, self.sentence, self.source, None)

    @cached_property
    def _own_mask(self) -> Tensor:
        return node_query_mask(self.sentence, self.sentence)

    @cached_property
    def _source_mask(self) -> Tensor:
        assert self.source is not None
        return node_query_mask(self.sentence, self.source)

    def own(self, attention: nn.Module) -> tuple[Any, ...]:
        """What self-attention is called with."""
        if isinstance(attention, NodeQuerySelfAttention):
            return SelfReach(self._own_mask), self.rows
        if isinstance(attention, ContextSelfAttention):
            return self.sentences, self._own_nodes
        if isinstance(attention, LocalSelfAttention):
            return SelfReach(None), self.sentences
        return SelfReach(visible(self.sentence)), self.rows

    def of_source(self, attention: nn.Module, keys_values: tuple[Tensor, Tensor]) -> tuple[Any, ...]:
        """What cross-attention is called with."""
        if isinstance(attention, ContextCrossAttention):
            return keys_values, self.sentences, self._source_nodes
        if isinstance(attention, NodeQueryCrossAttention):
            return keys_values, self._source_mask, self.rows
        if isinstance(attention, LocalCrossAttention):
            return keys_values, None, self.sentences
        assert self.source is not None
        return keys_values, visible(self.source), self.rows


class Latent(nn.Module):
    """What codes take: the book of them, a decoder that predicts them, a gate to mix them in."""

    def __init__(
        self, dimension: int, codes: int, code_predictor: Stack[DecoderBlock[CrossAttention]], norm: nn.Module
    ) -> None:
        super().__init__()
        self.codebook = Codebook(codes, dimension)
        self.code_predictor, self.norm = code_predictor, norm
        self.gate = CodeGate(dimension)


@dataclass(slots=True)
class Memory:
    """The encoded source, as the places of a draft see it."""

    view: _View
    cross: list[tuple[Tensor, Tensor]]  # of every decoder block
    length_logits: Tensor | None  # [B, 2 * length_offsets + 1]
    code_predictor_cross: list[tuple[Tensor, Tensor]]
    vectors: Tensor | None = None  # [K, D], of codes, as they are before what is to be written moves them
    codes: Tensor | None = None  # [B, T], what the decoder reads of them, -1: its own input


class Casa(NonAutoregressiveModel):
    """Encoder and parallel decoder over one shared embedding."""

    def __init__(self, size: Size, embedding: SentenceEmbedding, blank: int, switches: Switches) -> None:
        super().__init__()
        self.embedding = embedding
        self.blank = blank
        self.path = switches.path
        self.switches = switches
        source, target = switches.source_context, switches.target_context
        layers = size.encoder_layers
        self.encoder = Stack(
            EncoderBlock(size, SELF[switches.kind(i, layers, source)](*size.attention)) for i in range(layers)
        )
        layers = size.decoder_layers

        def decoder() -> Stack[DecoderBlock[CrossAttention]]:
            return Stack(
                DecoderBlock(
                    size,
                    SELF[switches.kind(i, layers, target)](*size.attention),
                    CROSS[switches.kind(i, layers, source)](*size.attention),
                )
                for i in range(layers)
            )

        def norm() -> nn.Module:
            return nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

        self.decoder = decoder()
        self.encoder_norm, self.decoder_norm = norm(), norm()
        self.latent = Latent(size.dimension, switches.codes, decoder(), norm()) if switches.latent else None
        offsets = 2 * switches.length_offsets + 1
        self.length = nn.Linear(size.dimension, offsets) if self.path == "length" else None

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
        """Read the source and lay out the places; see `NonAutoregressiveModel`."""
        sentence = source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        view = _View(sentence)
        x = view.rows.pack(self.embedding(source.tokens, sentence, t, ranks(sentence), 0))
        for block in self.encoder:
            x = block(x, view.own(block.attention))
        x = self.encoder_norm(x)
        x_BSD = view.rows.unpack(x)
        tokens = (sentence >= 0).sum(dim=1)
        logits = None
        if self.length is None:
            lengths = PLACES_PER_TOKEN * tokens
        else:
            logits = self.length(x_BSD.sum(dim=1) / tokens[:, None])
            if lengths is None:
                # A sentence has its brackets and a word.
                shortest = 3 * (sentence.max(dim=1).values + 1)
                lengths = (tokens + logits.argmax(dim=1) - self.switches.length_offsets).maximum(shortest)
        places = stretched(sentence, lengths)
        aligned = self.switches.soft_copy == "sentences"
        texts = (sentence, places) if aligned else (sentence.clamp(max=0), places.clamp(max=0))
        cross = [block.cross.project(x, view.rows) for block in self.decoder]
        further = () if self.latent is None else self.latent.code_predictor
        memory = Memory(
            _View(places, sentence),
            cross,
            logits,
            code_predictor_cross=[block.cross.project(x, view.rows) for block in further],
            vectors=None if self.latent is None else self.latent.codebook.vectors,
        )
        return Draft(places, soft_copy(x_BSD, *texts), memory)

    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        """Hidden states of all places, [B, T, D]; see `NonAutoregressiveModel`."""
        x_BTD = draft.copied
        if revealed is not None:
            known = (revealed >= 0)[:, :, None]
            x_BTD = torch.where(known, self.embedding.bare(revealed.clamp(min=0)).to(x_BTD.dtype), x_BTD)
        memory: Memory = draft.memory
        if self.latent is not None:
            assert memory.vectors is not None
            if memory.codes is None:
                memory.codes = self._code_logits(self.latent, draft, draft.copied).argmax(dim=2)
            told = (memory.codes >= 0)[:, :, None]
            vectors = memory.vectors[memory.codes.clamp(min=0)].to(x_BTD.dtype)
            x_BTD = self.latent.gate(x_BTD, torch.where(told, vectors, draft.copied))
        return self._through(self.decoder, self.decoder_norm, draft, x_BTD, memory.cross)

    def _through(
        self,
        blocks: Stack[DecoderBlock[CrossAttention]],
        norm: nn.Module,
        draft: Draft,
        x_BTD: Tensor,
        cross: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Inputs of places through decoder blocks: [B, T, D] -> [B, T, D]."""
        view, sentence = draft.memory.view, draft.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x = view.rows.pack(self.embedding.placed(x_BTD, sentence, t, ranks(sentence), 0))
        for block, keys_values in zip(blocks, cross, strict=True):
            x = block(x, view.own(block.attention), view.of_source(block.cross, keys_values))
        unpacked: Tensor = view.rows.unpack(norm(x))
        return unpacked

    def auxiliary_loss(self, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss | None:
        """See `NonAutoregressiveModel`; here, the lengths of the rows, and codes."""
        losses: list[Tensor] = []
        parts: Mapping[str, tuple[Tensor, Tensor]] = {}
        if self.path == "length":
            losses.append(LENGTH_WEIGHT * self.length_nll(draft))
        if self.latent is not None:
            codes = self._code_loss(self.latent, draft, tokens, ratio)
            losses.append(codes.loss)
            parts = codes.parts
        return AuxiliaryLoss(torch.stack(losses).sum(dim=0), parts) if losses else None

    def _code_loss(self, latent: Latent, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss:
        """The loss of the codes of tokens, the mean of each row; the decoder reads right ones then.

        Glanced at as tokens are: of the codes, as many are revealed as were wrong before, times `ratio`.
        Which ones the decoder reads is drawn apart from that.
        """
        memory: Memory = draft.memory
        before = memory.codes
        assert before is not None
        eligible = tokens >= 0
        words_BTD = self.embedding.bare(tokens.clamp(min=0)).detach()
        right = latent.codebook.nearest(words_BTD)
        wrong = (before != right) & eligible
        shown = glanced(wrong, eligible, ratio)
        revealed = latent.codebook.vector(right).to(draft.copied.dtype)
        x_BTD = torch.where(shown[:, :, None], revealed, draft.copied)
        logits = self._code_logits(latent, draft, x_BTD)
        if self.training:
            latent.codebook.follow(words_BTD[eligible], right[eligible])
        if self.switches.code_mixing == "drawn":
            memory.codes = right.masked_fill(~glanced(wrong, eligible, CODES_READ), -1)
        else:
            memory.codes = torch.where(eligible, right, before)
        nll = cross_entropy(logits.flatten(0, 1).float(), right.flatten(), reduction="none").view_as(right)
        open_places = eligible & ~shown
        mean_B = (nll * open_places).sum(dim=1) / open_places.sum(dim=1).clamp(min=1)
        often_K = torch.bincount(right[eligible], minlength=self.switches.codes).float()
        one = often_K.new_ones(())
        parts = {"code_perplexity": (perplexity(often_K), one), "codes_used": ((often_K > 0).sum(), one)}
        return AuxiliaryLoss(self.switches.code_weight * mean_B, parts)

    def _code_logits(self, latent: Latent, draft: Draft, x_BTD: Tensor) -> Tensor:
        """What code is expected at every place: [B, T, K]."""
        memory: Memory = draft.memory
        hidden = self._through(latent.code_predictor, latent.norm, draft, x_BTD, memory.code_predictor_cross)
        return latent.codebook.logits(hidden)

    def length_nll(self, draft: Draft) -> Tensor:
        """-log P of the lengths of the rows: [B]."""
        memory: Memory = draft.memory
        assert memory.view.source is not None
        assert memory.length_logits is not None
        length, source = ((of >= 0).sum(dim=1) for of in (draft.sentence, memory.view.source))
        most = self.switches.length_offsets
        offset = (length - source).clamp(min=-most, max=most) + most
        return cross_entropy(memory.length_logits.float(), offset, reduction="none")
