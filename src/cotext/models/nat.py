"""Non-autoregressive Transformer: the base model of systems that predict all tokens of a row at once.

    source -> embedding -> encoder blocks ------> keys and values
                    states -> soft copy -> decoder blocks <-' -> hidden -> embedding.weight -> logits

With CTC paths, a row has twice as many positions as source tokens. A path through them, with blanks and
repetitions removed, is the translation (Libovický and Helcl 2018). There is one path per sentence, at the
positions of that sentence (Yu et al. 2024), or one per row. Without paths (GLAT, Qian et al. 2021), the model
predicts the number of positions from the mean of the encoder's states: the difference from the number of
source tokens. The attention of CASA (Yu et al. 2024) is defined by the settings of the stacks: inside
sentences and, in the top layers, also to the nodes of other sentences (`layers/spans.py`).

Latent codes (Bao et al. 2022): a second decoder first predicts the code of the token at every position, also
in one step. A gate mixes these codes into the decoder's input. In training, the decoder gets correct codes at
random positions, half as many as were predicted wrong. Elsewhere, its input has no code (`--vq-mix-diff` in
the authors' scripts). With `code_mixing: all`, it gets the correct codes of the whole best path.

Shapes: B rows, S source tokens, T positions, N real positions of all rows or words, D model, V vocabulary, K
codes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from cotext.config.model import NatConfig
from cotext.data.batch import Source
from cotext.layers.blocks import Stack, Stacks, cross_attentions, number_attentions, through
from cotext.layers.embedding import SentenceEmbedding, Side, glanced, soft_copy, stretched
from cotext.layers.layout import Layout, Layouts, Shared
from cotext.layers.linear import joint
from cotext.layers.state import SourceSide
from cotext.models.interface import AuxiliaryLoss, Draft, NonAutoregressiveModel

POSITIONS_PER_TOKEN = 2
LENGTH_WEIGHT = 0.1  # of the loss of a predicted length
CODES_READ = 0.5  # correct codes in training / positions predicted wrong: `--vq-schedule-ratio`


class LatentCodes(nn.Module):
    """A codebook, a decoder that predicts codes, and the gate that mixes codes in."""

    def __init__(self, dimension: int, settings: NatConfig, predictor: Stack, norm: nn.Module) -> None:
        super().__init__()
        self.settings = settings
        self.codebook = Codebook(settings.codes, dimension)
        self.code_predictor, self.norm = predictor, norm
        self.gate = CodeGate(dimension)


@dataclass(slots=True)
class Memory:
    """The encoded source, as the positions of a draft attend to it."""

    layout: Layout
    length_logits: Tensor | None  # [B, 2 * length_offsets + 1]
    vectors: Tensor | None = None  # [K, D], of codes, before the update by this batch
    codes: Tensor | None = None  # [B, T], codes that the decoder gets, -1: its input without a code


class NonAutoregressiveTransformer(NonAutoregressiveModel):
    """Encoder and non-autoregressive decoder with one shared embedding.

    `blank`: the symbol of no token, on a CTC path.
    """

    def __init__(
        self,
        embedding: SentenceEmbedding,
        stacks: Stacks,
        settings: NatConfig,
        blank: int,
        latent: LatentCodes | None = None,
        relative: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.blank, self.path, self.settings = blank, settings.path, settings
        self.encoder, self.decoder = stacks.encoder, stacks.decoder
        self.encoder_norm, self.decoder_norm = stacks.encoder_norm, stacks.decoder_norm
        self._source_packed, self._target_packed = stacks.source_packed(), stacks.target_packed()
        self.relative = relative
        self.latent = latent
        # Both the decoder and the predictor of codes attend to the source.
        decoders = nn.ModuleList([self.decoder, *([] if latent is None else [latent.code_predictor])])
        # Cross-attentions of both decoders share one list of keys and values.
        number_attentions(decoders)
        self._crosses = cross_attentions(decoders)
        offsets = 2 * settings.length_offsets + 1
        self.length = nn.Linear(embedding.weight.size(1), offsets) if self.path == "length" else None

    def _shared(self, side: Side) -> Shared:
        return Shared(self.embedding.encoding(side), self.relative)

    def layouts(self, source: Source, lengths: Tensor | None = None) -> Layouts:
        layout = Layout(source.sentence, self._source_packed, current=source.current)
        side = SourceSide([], source.sentence)
        if self.length is None:
            lengths = POSITIONS_PER_TOKEN * (source.sentence >= 0).sum(dim=1)
        target = None if lengths is None else self._positions(stretched(source.sentence, lengths), side)
        texts = side.spans.size(1) if self.settings.soft_copy == "sentences" else 1
        return Layouts(layout, side, target, texts=texts)

    def _positions(self, positions: Tensor, side: SourceSide) -> Layout:
        """Return the layout of positions with these sentences: [B, T]."""
        return Layout(positions, self._target_packed, source=side)

    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
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
                # A sentence has at least its two brackets and a word.
                shortest = 3 * (sentence.max(dim=1).values + 1)
                lengths = (tokens + logits.argmax(dim=1) - self.settings.length_offsets).maximum(shortest)
                target = self._positions(stretched(sentence, lengths), layouts.side)
        assert target is not None
        positions, texts = target.sentence, (sentence, target.sentence)
        if self.settings.soft_copy == "row":
            texts = sentence.clamp(max=0), positions.clamp(max=0)
        side = layouts.side.filled([attention.project(x, layout) for attention in self._crosses])
        memory = Memory(
            target.bound(self._shared("target"), side),
            logits,
            vectors=None if self.latent is None else self.latent.codebook.vectors,
        )
        return Draft(positions, soft_copy(x_BSD, *texts, layouts.texts), memory)

    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        # Revealed tokens replace the copied source states.
        x_BTD = draft.copied
        if revealed is not None:
            is_known = (revealed >= 0)[:, :, None]
            shown = self.embedding.bare(revealed.clamp(min=0), "target")
            x_BTD = torch.where(is_known, shown.to(x_BTD.dtype), x_BTD)
        memory: Memory = draft.memory
        if self.latent is not None:
            assert memory.vectors is not None
            if memory.codes is None:
                memory.codes = self._code_logits(self.latent, draft, draft.copied).argmax(dim=2)
            is_known = (memory.codes >= 0)[:, :, None]
            vectors = memory.vectors[memory.codes.clamp(min=0)].to(x_BTD.dtype)
            x_BTD = self.latent.gate(x_BTD, torch.where(is_known, vectors, draft.copied))
        return self._through(self.decoder, self.decoder_norm, draft, x_BTD)

    def _through(self, blocks: Stack, norm: nn.Module, draft: Draft, x_BTD: Tensor) -> Tensor:
        """Pass inputs of positions through decoder blocks: [B, T, D] -> [B, T, D]."""
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
        """See `NonAutoregressiveModel`: the loss of lengths of rows, and of codes."""
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
        """Return the mean loss of hidden codes in each row, and set the codes that the decoder gets.

        Correct codes are revealed to their predictor: `ratio` times the number of wrong codes, at random
        positions. The codes that the decoder gets are drawn independently.
        """
        memory: Memory = draft.memory
        before = memory.codes
        assert before is not None
        eligible = tokens >= 0
        # The embeddings are targets here: codes must not change them.
        words_BTD = self.embedding.bare(tokens.clamp(min=0), "target").detach()
        right = latent.codebook.nearest(words_BTD)
        wrong = (before != right) & eligible
        shown = glanced(wrong, eligible, ratio)
        revealed = nn.functional.embedding(right, latent.codebook.vectors).to(draft.copied.dtype)
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
        """Return the logits of codes at every position: [B, T, K]."""
        return latent.codebook.logits(self._through(latent.code_predictor, latent.norm, draft, x_BTD))

    def length_nll(self, draft: Draft) -> Tensor:
        memory: Memory = draft.memory
        assert memory.length_logits is not None
        length = (draft.sentence >= 0).sum(dim=1)
        source = (memory.layout.source.sentence >= 0).sum(dim=1)
        most = self.settings.length_offsets
        offset = (length - source).clamp(min=-most, max=most) + most
        return cross_entropy(memory.length_logits.float(), offset, reduction="none")


# --- Codebook: discrete codes of words, learned without labels; code vectors are mixed into decoder states.
#
# A word has the code whose vector is nearest to its embedding. Vectors are not parameters: each is the moving
# average of the embeddings that it was nearest to (van den Oord et al. 2017, appendix A.1; Bao et al. 2022).
#
# Vectors start near zero, for the following reason. Embeddings are long and almost orthogonal. The mean of
# many embeddings is short, and a short vector is nearer to any word than another long vector. If vectors
# started as long as words (N(0, 1)), the first mean of many words would attract all words. The other vectors
# would never be used. Among short vectors, the nearest vector depends on the direction. Each vector grows
# only towards its own words. A vector without words stays short, available for words that are far from all
# other vectors.


DECAY = 0.999
START = 0.05  # standard deviation; embeddings have 0.2 to 1


class Codebook(nn.Module):
    """K vectors: means of the embeddings of words with their code; equal in all processes of a training."""

    vectors: Tensor  # [K, D]
    count: Tensor  # [K]
    total: Tensor  # [K, D]

    def __init__(self, codes: int, dimension: int) -> None:
        super().__init__()
        self.register_buffer("vectors", START * torch.randn(codes, dimension))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.vectors.clone())

    def nearest(self, x: Tensor) -> Tensor:
        """Return the code whose vector is nearest to each embedding: [..., D] -> [...]."""
        # |x - v|^2 without |x|^2, which is the same for all codes.
        product = linear(x.to(self.vectors.dtype), self.vectors)
        return torch.argmin(self.vectors.square().sum(dim=1) - 2 * product, dim=-1)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of all codes: [..., D] -> [..., K]."""
        product: Tensor = linear(x, self.vectors.to(x.dtype))
        return product / math.sqrt(x.size(-1))

    @torch.no_grad()
    def follow(self, x_ND: Tensor, code_N: Tensor, counts_N: Tensor) -> None:
        """Move every vector a little towards the mean embedding, over all processes, of words with its code.

        Only words with True in `counts_N` count.
        """
        # Words that do not count add zeros, so that shapes do not depend on the data.
        x_ND = x_ND.to(self.vectors.dtype) * counts_N[:, None]
        seen = torch.zeros_like(self.total).index_add_(0, code_N, x_ND)
        often = frequencies(code_N, counts_N, self.count.numel()).to(self.count.dtype)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for sums in (seen, often):
                torch.distributed.all_reduce(sums)
        # Replaced, not changed in place: a backward pass may still need them.
        self.count = torch.lerp(often, self.count, DECAY)
        self.total = torch.lerp(seen, self.total, DECAY)
        used = (self.count > torch.finfo(self.count.dtype).tiny)[:, None]
        self.vectors = torch.where(used, self.total / self.count[:, None], self.vectors)


def frequencies(code_N: Tensor, counts_N: Tensor, codes: int) -> Tensor:
    """Return how many of the counted words have each code: [K]."""
    often = torch.zeros(codes, dtype=torch.float32, device=code_N.device)
    return often.index_add_(0, code_N, counts_N.to(often.dtype))


def perplexity(often_K: Tensor) -> Tensor:
    """Return the perplexity of the code frequencies [K]; if N codes are equally frequent, it is N."""
    entropy: Tensor = torch.special.entr(often_K / often_K.sum().clamp(min=1)).sum()
    return entropy.exp()


class CodeGate(nn.Module):
    """Mix codes z into states x, per dimension: g = sigmoid(MLP[x; z]), out = (1 - g) * x + g * z."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * dimension, dimension)
        self.gate = nn.Linear(dimension, dimension)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Return `x` mixed with `z`, both [..., D]: [..., D]."""
        gate = self.gate(joint(self.hidden, x, z).relu()).sigmoid().to(x.dtype)
        return torch.lerp(x, z.to(x.dtype), gate)
