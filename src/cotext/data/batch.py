"""Batches: tokens and, for each token, the index of its sentence.

Shapes: B rows, S source tokens, T target tokens. Padding has sentence index -1.

One separator stands between two sentences. As a *label* it closes sentence k; as the next
decoder *input* the same symbol opens sentence k + 1 (three sentences a, b, c of one token each):

    input     bos  a  sep  b  sep  c          label     a  sep  b  sep  c  eos
    sentence   0   0   1   1   2   2          sentence  0   0   1   1   2   2

Indexed separators differ from sentence to sentence: sep1, sep2. With brackets every sentence has a begin and
an end of its own: a label `eos` closes it, and the next is opened by the input `bos` in its stead.

    input     bos  a  bos  b  bos  c          label     a  eos  b  eos  c  eos

Numbered sentences are bracketed sentences whose begin symbol is their number in the document, not in the
row: `<7> a eos <8> b eos <9> c eos`.

On the source side a separator belongs to the sentence that it closes, and brackets show both their symbols:
`bos a eos bos b eos`, or the end alone (`a eos b eos`) where the model knows no begin there. Sentence indices
count from the first *source* sentence of the row on both sides, so that index k means the same sentence
everywhere.

Symbols of languages stand once at the head of a row, on the target side behind the begin symbol, and belong
to the first sentence of the row. They are read and never predicted; no length of a row counts them:

    source    >>deu<<  a  sep  b  eos         input     bos  [tgt]  a  sep  b     label     -  a  sep  b  eos
    sentence  0        0  0    1  1           sentence   0   0      0  1    1     sentence -1  0  0    1  1
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cotext.data.views import Window
from cotext.layers.layouts import Layouts
from cotext.layers.masks import is_current
from cotext.layers.moving import to_device

Tokens = Sequence[int] | NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SpecialSymbols:
    """The ids that are not subwords, and how they set sentences apart.

    `separators` close sentence 0, 1 ... of a row where another follows; the last of them serves all later
    sentences. With `bracket` there is one, `eos`, and `bos` opens every sentence; with `numbers`, the
    number of the sentence in its document does instead, the last of them for all later ones.
    `source_begins`: a bracketed sentence has its begin on the source side, too. `source_prefix` and
    `target_prefix` stand once at the head of a row.
    """

    pad: int
    bos: int
    eos: int
    separators: tuple[int, ...]
    bracket: bool = False
    numbers: tuple[int, ...] = ()
    source_begins: bool = True
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()

    def separator(self, sentence: int) -> int:
        """The symbol that closes this sentence of a row where another follows."""
        return self.separators[min(sentence, len(self.separators) - 1)]

    def opening(self, sentence_index: int) -> int:
        """The symbol that opens a bracketed sentence, given its index in its document."""
        return self.numbers[min(sentence_index, len(self.numbers) - 1)] if self.numbers else self.bos

    @property
    def opens_source(self) -> bool:
        """Whether a begin symbol stands before every source sentence."""
        return self.bracket and self.source_begins

    def are_subwords(self, tokens: Tensor) -> Tensor:
        """A mask of the tokens that are subwords: in front of the special symbols, or pieces of the source
        alone behind them, and no symbol of a language."""
        special = self.pad, self.bos, self.eos, *self.separators, *self.numbers
        found = (tokens < min(special)) | (tokens > max(special))
        for symbol in {*self.source_prefix, *self.target_prefix}:
            found &= tokens != symbol
        return found

    @property
    def per_source_sentence(self) -> int:
        """The number of symbols of a source sentence in addition to its subwords."""
        return 1 + self.opens_source


@dataclass(slots=True)
class ExtraRows:
    """Further rows of the documents of a batch, which a batch-level model attends to but does not decode.

    While sentences are searched one after the other, they are the other rows that training has in one batch:
    the source of all of them, and the target of those before the row that is searched.
    """

    source: "Source"  # C rows, without extra rows of their own
    target_input: Tensor  # [C, T]
    input_sentence: Tensor  # [C, T], -1 on padding, and throughout where there is no target yet


@dataclass(slots=True)
class Source:
    """The source side of a batch, with the document and the current sentences of every row."""

    tokens: Tensor  # [B, S]
    sentence: Tensor  # [B, S], -1 on padding
    current: Tensor  # [B, 2], half-open range of the current sentences of the row
    document: Tensor  # [B], ordinal of the document in its corpus
    first_sentence: Tensor  # [B], index in its document of the first sentence of the row
    extra_rows: ExtraRows | None = None
    layouts: Layouts | None = None  # made ahead, by the model that will read these rows

    def to(self, device: torch.device) -> "Source":
        """Return a copy on `device`."""
        return to_device(self, device)

    def select(self, rows: Tensor) -> "Source":
        """Keep the given rows, in the given order, and all extra rows."""
        chosen = {name: getattr(self, name).index_select(0, rows) for name in _OF_ROWS}
        return replace(self, **chosen, layouts=None)


_OF_ROWS = ("tokens", "sentence", "current", "document", "first_sentence")


@dataclass
class Batch:
    """Source, decoder input and labels, with the sentence of every token."""

    source: Source
    target_input: Tensor  # [B, T]
    input_sentence: Tensor  # [B, T], -1 on padding
    target_label: Tensor  # [B, T]
    label_sentence: Tensor  # [B, T], -1 on padding
    targets: object | None = None  # what a loss has made ahead of its labels

    def to(self, device: torch.device) -> "Batch":
        """Return a copy on `device`."""
        return to_device(self, device)

    @cached_property
    def labels(self) -> "Labels":
        """The labels of all rows, without padding."""
        return Labels.of(self)

    @property
    def is_label(self) -> Tensor:
        """[B, T], True where there is a label."""
        return self.label_sentence >= 0

    @property
    def is_current(self) -> Tensor:
        """[B, T], True where a label belongs to a current sentence of its row."""
        return is_current(self.label_sentence, self.source.current)


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a batch, one row after the other: N of them.

    `index` counts over all rows, padding included; `current` and `context` say which of the N belong to
    current sentences of their rows, and which do not.
    """

    index: Tensor  # [N]
    token: Tensor  # [N]
    is_current: Tensor  # [N]
    current: Tensor  # [C]
    context: Tensor  # [N - C]

    @staticmethod
    def of(batch: Batch) -> "Labels":
        """Those of a batch."""
        index = batch.is_label.flatten().nonzero()[:, 0]
        is_current = batch.is_current.flatten()[index]
        current, context = (chosen.nonzero()[:, 0] for chosen in (is_current, ~is_current))
        return Labels(index, batch.target_label.flatten()[index], is_current, current, context)

    @property
    def count(self) -> int:
        """N."""
        return self.index.numel()


def hide_words(batch: Batch, share: float, symbols: SpecialSymbols, unknown: int) -> Batch:
    """A batch with word dropout: subwords become the unknown one, each with probability `share`.

    Of the source and of the decoder input; labels and special symbols stay, as in the authors' code of
    G-Transformer (Bao et al. 2021). Draws from torch's global generator.
    """

    dropped = copy(batch)  # with its labels
    dropped.source = replace(batch.source, tokens=_hidden(batch.source.tokens, share, symbols, unknown))
    dropped.target_input = _hidden(batch.target_input, share, symbols, unknown)
    return dropped


def hide_current_source(batch: Batch, share: float, symbols: SpecialSymbols, unknown: int) -> Batch:
    """A batch with CoWord dropout: source subwords of current sentences become the unknown one.

    Each with probability `share`; target and context stay. What the current source does not say, context may
    (Fernandes et al. 2021, section 4). Draws from torch's global generator.
    """
    source = batch.source
    hidden = _hidden(source.tokens, share, symbols, unknown)
    chosen = is_current(source.sentence, source.current)
    dropped = copy(batch)
    dropped.source = replace(source, tokens=torch.where(chosen, hidden, source.tokens))
    return dropped


def _hidden(tokens: Tensor, share: float, symbols: SpecialSymbols, unknown: int) -> Tensor:
    chosen = (torch.rand(tokens.shape, device=tokens.device) < share) & symbols.are_subwords(tokens)
    return tokens.masked_fill(chosen, unknown)


@dataclass(frozen=True, slots=True)
class Instance:
    """One window of one document as token ids, which becomes a row of a batch.

    `source` and `target` hold its sentences. Lengths count their tokens and the symbols that set them apart.
    """

    document: int
    window: Window
    source: Sequence[Tokens]
    target: Sequence[Tokens]

    @property
    def current(self) -> tuple[int, int]:
        """Half-open range of the current sentences, counted from the first source sentence."""
        first = self.window.source.start
        return self.window.current.start - first, self.window.current.stop - first

    @property
    def first_sentence(self) -> int:
        """Index in the document of the first source sentence."""
        return self.window.source.start

    @property
    def target_offset(self) -> int:
        """Index of the first target sentence, counted from the first source sentence."""
        return self.window.target.start - self.window.source.start

    def source_tokens(self, symbols: SpecialSymbols) -> int:
        """Length of the source row."""
        return sum(map(len, self.source)) + symbols.per_source_sentence * len(self.source)

    @property
    def target_tokens(self) -> int:
        """Length of the label row: one symbol closes every sentence."""
        return sum(len(s) + 1 for s in self.target)

    def row_tokens(self, symbols: SpecialSymbols) -> int:
        """Length of the longer side."""
        return max(self.source_tokens(symbols), self.target_tokens)
