"""Embeddings of rows, with the positions and segments of their sentences.

Shapes: B entries, R rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.embedding import CONTEXT, CURRENT, SentenceEmbedding, Side
from cotext.layers.positions import is_current, mean_sentence_length, ranks
from cotext.layers.state import DecoderState


@dataclass(frozen=True, slots=True)
class RowEmbedder:
    """Embeddings of complete rows, also for the parts of a model, and of the next decoder inputs."""

    embedding: SentenceEmbedding
    shift: int | Literal["sequence"]
    most_shift: int  # upper bound of the shifts in complete rows

    @property
    def weight(self) -> Tensor:
        """Embeddings of all target tokens: [V, D]."""
        return self.embedding.weight

    def bare(self, source: Source) -> Tensor:
        """Return source embeddings without positions, [B, S] -> [B, S, D]."""
        return self.embedding.bare(source.tokens, "source")

    def shift_of(self, source: Source) -> Tensor | None:
        """Return the segment shift of every row, if it differs between rows: [B]."""
        return mean_sentence_length(source.sentence) if self.shift == "sequence" else None

    def last_of(self, source: Source) -> Tensor | None:
        """Return the last current sentence of every row, if segments count back from it: [B]."""
        return source.current[:, 1] - 1 if self.embedding.made.from_current else None

    def source(self, source: Source, behind: int = 0) -> Tensor:
        """Embed source rows, [B, S] -> [B, S, D], after `behind` extra tokens of their first sentence."""
        sentence, rank = source.sentence, None
        segment = self.embedding.segments("source", sentence, self.last_of(source))
        if self.embedding.source.segments == "current":
            segment = torch.where(is_current(sentence, source.current), CURRENT, CONTEXT)
        if self.embedding.reads_ranks("source"):
            rank = ranks(sentence) + behind * (sentence == sentence[:, :1])
        return self.embedding.placed(
            self.bare(source),
            "source",
            sentence,
            torch.arange(behind, behind + sentence.size(1), device=sentence.device).expand_as(sentence),
            rank,
            self._shift(self.shift_of(source)),
            segment,
            behind + sentence.size(1) + self.most_shift,
        )

    def target(self, tokens: Tensor, sentence: Tensor, source: Source) -> Tensor:
        """Embed complete decoder inputs of the rows of a source, [B, T] -> [B, T, D]."""
        position = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        closed = self.embedding.input_sentence(sentence, None)
        rank = ranks(sentence) if self.embedding.reads_ranks("target") else None
        segment = self._segment(closed, self.last_of(source), position == 0)
        return self._target(tokens, closed, position, rank, self.shift_of(source), segment, sentence.size(1))

    def next(
        self, tokens: Tensor, sentence: Tensor, position: Tensor, rank: Tensor, state: DecoderState
    ) -> Tensor:
        """Embed the next decoder inputs [R, T]; the others, [R, T'], also describe extra tokens in front."""
        extra = sentence.size(1) - tokens.size(1)
        closed = self.embedding.input_sentence(sentence, state.sentence)
        most: int | None = sentence.size(1)
        if state.caches:  # free search may write more sentences than the source has, with larger shifts
            most = state.capacity if self.shift == 0 else None
        if extra:
            closed, position, rank = (values[:, extra:] for values in (closed, position, rank))
        segment = None
        if self.embedding.target.segments != "none":
            opens = position == extra  # the first input after extra tokens
            segment = self._segment(closed, state.last, opens)
        return self._target(tokens, closed, position, rank, state.shift, segment, most)

    def first(self, x_RD: Tensor, side: Side) -> Tensor:
        """Embed extra vectors before their rows: [R, D] -> [R, D]."""
        if self.embedding.source.positions != "none":
            x_RD = x_RD + self.embedding.encoding(side)(x_RD.new_zeros(len(x_RD), dtype=torch.long), 1)
        return self.embedding.finished(x_RD, side)

    def _target(
        self,
        tokens: Tensor,
        sentence: Tensor,
        position: Tensor,
        rank: Tensor | None,
        shift: Tensor | None,
        segment: Tensor | None,
        most: int | None,
    ) -> Tensor:
        """`most`: an upper bound of the tokens of a row, if there is one."""
        x = self.embedding.bare(tokens, "target")
        below = None if most is None else most + self.most_shift
        return self.embedding.placed(
            x, "target", sentence, position, rank, self._shift(shift), segment, below
        )

    def _segment(self, sentence: Tensor, last: Tensor | None, opens: Tensor) -> Tensor | None:
        """Return segments of decoder inputs if they are not sentences; `opens`: the first input of a row."""
        if self.embedding.target.segments == "current":
            return torch.full_like(sentence, CURRENT)
        segment = self.embedding.segments("target", sentence, last)
        if segment is None or self.embedding.made.bracketed:
            return segment
        return segment.masked_fill(opens, 0)  # it closed the current sentence of the previous row

    def _shift(self, per_row: Tensor | None) -> Tensor | int:
        if per_row is not None:
            return per_row
        assert self.shift != "sequence"
        return self.shift
