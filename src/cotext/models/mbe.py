"""Mini-batch embedding (MBE; Morishita et al. 2021, as Wu et al. 2023 compare with it).

Every source and target row begins with the mean embedding of all source tokens of the batch, as another token
of its first sentence:

    mean a b c eos -> encoder -> keys and values        mean bos x y -> decoder

Only word embeddings are averaged, without positions. Each document has its own mean over its rows, extra rows
included. In the paper, all rows share one mean; `cross_document` does this in training, but never in
translation, where a document must not depend on others.

Shapes: B entries, R rows, S source tokens, T target tokens, D model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.layout import ContextLayout
from cotext.layers.start import Blended
from cotext.layers.state import DecoderState, TargetContext
from cotext.models.slots import BatchContext, BatchSettings, RowEmbedder


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each row, then of each extra row: [B + C]; each of `count` groups has a mean."""

    group: Tensor
    count: int


class BatchMean(BatchContext, Blended):
    """The mean before source rows, target rows, or both.

    While it is blended in, the mean is left out of random batches, because it shifts all positions.
    """

    what = "mean"

    def __init__(self, settings: BatchSettings) -> None:
        super().__init__(settings)
        self.extra_tokens = (int(settings.source), int(settings.target))

    def left_out(self) -> bool:
        return self.in_force < 1 and float(torch.rand(())) >= self.in_force

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        document = torch.cat([side.document for side in sides])
        crosses = self.settings.cross_document and training
        # One group for all documents if they share a mean.
        distinct, group = torch.unique(document * (not crosses), return_inverse=True)
        sentence = _begun(source.sentence) if self.settings.source else source.sentence
        return ContextLayout(sentence, Groups(group, len(distinct)))

    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        return ContextLayout(_begun(sentence) if self.settings.target else sentence)

    def read(self, source: Source, embed: RowEmbedder, found: Groups) -> Tensor:
        x_BSD = embed.source(source, behind=int(self.settings.source))
        if not self.settings.source:
            return x_BSD
        first = embed.first(self._mean(source, embed, found), "source")
        return torch.cat((first[:, None], x_BSD), dim=1)

    def target(self, source: Source, embed: RowEmbedder, found: Groups) -> "MeanTarget | None":
        return MeanTarget(self._mean(source, embed, found), embed) if self.settings.target else None

    def _mean(self, source: Source, embed: RowEmbedder, groups: Groups) -> Tensor:
        """Return the mean over the words of all rows of a group, for every row of the batch: [B, D]."""
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        sums, counts = zip(*(_sum(side, embed) for side in sides), strict=True)
        sum_D, count = torch.cat(sums), torch.cat(counts)
        sum_GD = sum_D.new_zeros(groups.count, sum_D.size(1)).index_add(0, groups.group, sum_D)
        count_G = count.new_zeros(groups.count, 1).index_add(0, groups.group, count)
        return (sum_GD / count_G)[groups.group[: len(source.document)]]


class MeanTarget(TargetContext):
    """The mean as the first decoder input of every row: [B, D]."""

    extra_slots = 1

    def __init__(self, mean_BD: Tensor, embed: RowEmbedder) -> None:
        self.mean, self.embed = mean_BD, embed

    def select(self, entries: Tensor) -> None:
        self.mean = self.mean.index_select(0, entries)

    def extend(self, sentence: Tensor, state: DecoderState) -> Tensor:
        """Add a token to the first sentence of rows that begin: [R, T] -> [R, 1 + T]."""
        if state.length is not None:
            return sentence
        return _begun(sentence) if state.caches else state.layouts.target_context.sentence

    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        if state.length is not None:
            return x_RTD
        first = self.embed.first(self.mean.repeat_interleave(state.beam, dim=0), "target")
        return torch.cat((first[:, None], x_RTD), dim=1)


def _sum(source: Source, embed: RowEmbedder) -> tuple[Tensor, Tensor]:
    """Return the sum of the word embeddings of each row, and their number: [R, D], [R, 1]."""
    words_RSD = embed.bare(source)
    real_RS = (source.sentence >= 0).to(words_RSD.dtype)
    return (words_RSD * real_RS[:, :, None]).sum(dim=1), real_RS.sum(dim=1, keepdim=True)


def _begun(sentence: Tensor) -> Tensor:
    """Add a token to the first sentence of rows: [R, T] sentence indices -> [R, 1 + T]."""
    return torch.cat((sentence[:, :1], sentence), dim=1)
