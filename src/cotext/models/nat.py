"""Non-autoregressive Transformer: the skeleton of systems that predict all tokens of a row at once.

    source -> embedding -> encoder blocks ------> keys and values
                    states -> soft copy -> decoder blocks <-' -> hidden -> embedding.weight -> logits of
                    positions

With paths (CTC), a row has twice as many positions as source tokens, and a path through them, blanks and
repetitions removed, is the translation (Libovický and Helcl 2018): one path for every sentence, which its
sentence alone fills (Yu et al. 2024), or one for the row. Without (GLAT, Qian et al. 2021), a row has as many
positions as the model predicts from the mean of the encoder's states: how many more or fewer than source
tokens. CASA's attention is a matter of the stacks' slots: inside sentences, and in the top layers with the
nodes of other sentences (`layers/node_spans.py`).

Latent codes (`layers/codebook.py`; Bao et al. 2022): a second decoder first predicts at every position the
code of the token that will stand there, in one step too, and the decoder reads states into which a gate has
mixed these codes. In training it reads right ones at positions drawn anew, half as many as were predicted
wrong, and at the others what it would have read without codes (`--vq-mix-diff` in the authors' scripts).

Shapes: B rows, S source tokens, T positions, N real positions of all rows, D model, V vocabulary, K codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, Stack, Stacks, cross_attentions, number_attentions, through
from cotext.layers.codebook import Codebook, CodeGate, frequencies, perplexity
from cotext.layers.embedding import SentenceEmbedding, Side
from cotext.layers.layout import Layout, Shared
from cotext.layers.layouts import Layouts
from cotext.layers.soft_copy import glanced, soft_copy, stretched
from cotext.layers.state import SourceSide
from cotext.models.interface import AuxiliaryLoss, Draft, NonAutoregressiveModel, PathKind

POSITIONS_PER_TOKEN = 2
LENGTH_WEIGHT = 0.1  # of the loss of a predicted length
CODES_READ = 0.5  # in training, of as many positions as were predicted wrong: `--vq-schedule-ratio`


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """Of latent codes: see `NatConfig`, whose keys these are."""

    codes: int = 64
    code_mixing: Literal["drawn", "all"] = "drawn"
    code_weight: float = 0.5


@dataclass(frozen=True, slots=True)
class Prediction:
    """How rows are predicted: see `NatConfig`, whose keys these are; `blank`: the symbol of no token."""

    blank: int
    path: PathKind = "sentences"
    soft_copy: Literal["sentences", "row"] = "sentences"
    length_offsets: int = 128


class LatentCodes(nn.Module):
    """A codebook, a decoder that predicts codes, and the gate that mixes them in."""

    def __init__(
        self, dimension: int, settings: CodeSettings, predictor: Stack[DecoderBlock], norm: nn.Module
    ) -> None:
        super().__init__()
        self.settings = settings
        self.codebook = Codebook(settings.codes, dimension)
        self.code_predictor, self.norm = predictor, norm
        self.gate = CodeGate(dimension)


@dataclass(slots=True)
class Memory:
    """The encoded source, as the positions of a draft see it."""

    layout: Layout
    length_logits: Tensor | None  # [B, 2 * length_offsets + 1]
    vectors: Tensor | None = None  # [K, D], of codes, as they are before this batch moves them
    codes: Tensor | None = None  # [B, T], which of them the decoder reads, -1: its own input


class NonAutoregressiveTransformer(NonAutoregressiveModel):
    """Encoder and non-autoregressive decoder over one shared embedding."""

    def __init__(
        self,
        embedding: SentenceEmbedding,
        stacks: Stacks,
        prediction: Prediction,
        latent: LatentCodes | None = None,
        relative: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.blank, self.path, self.prediction = prediction.blank, prediction.path, prediction
        self.encoder, self.decoder = stacks.encoder, stacks.decoder
        self.encoder_norm, self.decoder_norm = stacks.encoder_norm, stacks.decoder_norm
        self._source_packed, self._target_packed = stacks.source_packed(), stacks.target_packed()
        self.relative = relative
        self.latent = latent
        # The decoder, and that which predicts codes, both read the source.
        decoders = nn.ModuleList([self.decoder, *([] if latent is None else [latent.code_predictor])])
        number_attentions(decoders)
        self._crosses = cross_attentions(decoders)
        offsets = 2 * prediction.length_offsets + 1
        self.length = nn.Linear(embedding.weight.size(1), offsets) if self.path == "length" else None

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def _shared(self, side: Side) -> Shared:
        return Shared(self.embedding.encoding(side), self.relative)

    def layouts(self, source: Source, lengths: Tensor | None = None) -> Layouts:
        """See `NonAutoregressiveModel`."""
        layout, side = Layout(source.sentence, self._source_packed), SourceSide([], source.sentence)
        if self.length is None:
            lengths = POSITIONS_PER_TOKEN * (source.sentence >= 0).sum(dim=1)
        target = None if lengths is None else self._positions(stretched(source.sentence, lengths), side)
        texts = side.spans.size(1) if self.prediction.soft_copy == "sentences" else 1
        return Layouts(layout, side, target, texts=texts)

    def _positions(self, positions: Tensor, side: SourceSide) -> Layout:
        """The layout of positions with these sentences: [B, T]."""
        return Layout(positions, self._target_packed, source=side)

    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
        """Read the source and lay out the positions; see `NonAutoregressiveModel`."""
        sentence = source.sentence
        layouts = source.layouts or self.layouts(source, lengths)
        layout = layouts.source.bound(self._shared("source"))
        embedded = self.embedding.placed(
            self.embedding.bare(source.tokens, "source"),
            "source",
            sentence,
            layout.position,
            layout.rank,
            below=layout.longest,
        )
        x = layout.pack(embedded)
        for block in self.encoder:
            x = through(block, x, layout, self.recomputes)
        x = self.encoder_norm(x)
        x_BSD = layout.unpack(x)
        logits, target = None, layouts.target
        if self.length is not None:
            tokens = (sentence >= 0).sum(dim=1)
            logits = self.length(x_BSD.sum(dim=1) / tokens[:, None])
            if target is None:
                # A sentence has its brackets and a word.
                shortest = 3 * (sentence.max(dim=1).values + 1)
                lengths = (tokens + logits.argmax(dim=1) - self.prediction.length_offsets).maximum(shortest)
                target = self._positions(stretched(sentence, lengths), layouts.side)
        assert target is not None
        positions, texts = target.sentence, (sentence, target.sentence)
        if self.prediction.soft_copy == "row":
            texts = sentence.clamp(max=0), positions.clamp(max=0)
        side = layouts.side.filled([attention.project(x, layout) for attention in self._crosses])
        memory = Memory(
            target.bound(self._shared("target"), side),
            logits,
            vectors=None if self.latent is None else self.latent.codebook.vectors,
        )
        return Draft(positions, soft_copy(x_BSD, *texts, layouts.texts), memory)

    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        """Hidden states of all positions, [B, T, D]; see `NonAutoregressiveModel`."""
        x_BTD = draft.copied
        if revealed is not None:
            known = (revealed >= 0)[:, :, None]
            shown = self.embedding.bare(revealed.clamp(min=0), "target")
            x_BTD = torch.where(known, shown.to(x_BTD.dtype), x_BTD)
        memory: Memory = draft.memory
        if self.latent is not None:
            assert memory.vectors is not None
            if memory.codes is None:
                memory.codes = self._code_logits(self.latent, draft, draft.copied).argmax(dim=2)
            known = (memory.codes >= 0)[:, :, None]
            vectors = memory.vectors[memory.codes.clamp(min=0)].to(x_BTD.dtype)
            x_BTD = self.latent.gate(x_BTD, torch.where(known, vectors, draft.copied))
        return self._through(self.decoder, self.decoder_norm, draft, x_BTD)

    def _through(self, blocks: Stack[DecoderBlock], norm: nn.Module, draft: Draft, x_BTD: Tensor) -> Tensor:
        """Inputs of positions through decoder blocks: [B, T, D] -> [B, T, D]."""
        layout, sentence = draft.memory.layout, draft.sentence
        x = layout.pack(
            self.embedding.placed(
                x_BTD, "target", sentence, layout.position, layout.rank, below=layout.longest
            )
        )
        for block in blocks:
            x = through(block, x, layout, self.recomputes)
        unpacked: Tensor = layout.unpack(norm(x))
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

    def _code_loss(self, latent: LatentCodes, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss:
        """The loss of the codes of tokens, the mean of each row; the decoder reads right ones then.

        Glanced at as tokens are: of the codes, as many are revealed as were wrong before, times `ratio`.
        Which ones the decoder reads is drawn apart from that.
        """
        memory: Memory = draft.memory
        before = memory.codes
        assert before is not None
        eligible = tokens >= 0
        words_BTD = self.embedding.bare(tokens.clamp(min=0), "target").detach()
        right = latent.codebook.nearest(words_BTD)
        wrong = (before != right) & eligible
        shown = glanced(wrong, eligible, ratio)
        revealed = latent.codebook.vector(right).to(draft.copied.dtype)
        x_BTD = torch.where(shown[:, :, None], revealed, draft.copied)
        logits = self._code_logits(latent, draft, x_BTD)
        if self.training:
            latent.codebook.follow(words_BTD.flatten(0, 1), right.flatten(), eligible.flatten())
        if latent.settings.code_mixing == "drawn":
            memory.codes = right.masked_fill(~glanced(wrong, eligible, CODES_READ), -1)
        else:
            memory.codes = torch.where(eligible, right, before)
        nll = cross_entropy(logits.flatten(0, 1).float(), right.flatten(), reduction="none").view_as(right)
        hidden = eligible & ~shown
        mean_B = (nll * hidden).sum(dim=1) / hidden.sum(dim=1).clamp(min=1)
        often_K = frequencies(right.flatten(), eligible.flatten(), latent.settings.codes)
        one = often_K.new_ones(())
        parts = {"code_perplexity": (perplexity(often_K), one), "codes_used": ((often_K > 0).sum(), one)}
        return AuxiliaryLoss(latent.settings.code_weight * mean_B, parts)

    def _code_logits(self, latent: LatentCodes, draft: Draft, x_BTD: Tensor) -> Tensor:
        """Logits of codes at every position: [B, T, K]."""
        return latent.codebook.logits(self._through(latent.code_predictor, latent.norm, draft, x_BTD))

    def length_nll(self, draft: Draft) -> Tensor:
        """-log P of the lengths of the rows: [B]."""
        memory: Memory = draft.memory
        assert memory.length_logits is not None
        length, source = ((of >= 0).sum(dim=1) for of in (draft.sentence, memory.layout.source.sentence))
        most = self.prediction.length_offsets
        offset = (length - source).clamp(min=-most, max=most) + most
        return cross_entropy(memory.length_logits.float(), offset, reduction="none")
