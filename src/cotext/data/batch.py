"""Batches: tokens and, for each token, the index of its sentence.

A row is one sequence of a batch. Shapes: B rows, S source tokens, T target tokens. The sentence index of
padding is -1.

There is one separator between two sentences. As a *label* it ends sentence k. As the next decoder *input*,
the same symbol begins sentence k + 1. Three sentences a, b, c of one token each:

    input     bos  a  sep  b  sep  c          label     a  sep  b  sep  c  eos
    sentence   0   0   1   1   2   2          sentence  0   0   1   1   2   2

Indexed separators differ from sentence to sentence: sep1, sep2. With brackets, every sentence has its own
begin and end: the label `eos` ends it, and in its place the next decoder input is `bos`.

    input     bos  a  bos  b  bos  c          label     a  eos  b  eos  c  eos

Numbered sentences are bracketed sentences. Their begin symbol is their number in the document (not in the
row): `<7> a eos <8> b eos <9> c eos`.

On the source side, a separator belongs to the sentence that it ends. Bracketed sentences have both symbols:
`bos a eos bos b eos`. If the model has no source begin symbol, they have only the end symbol: `a eos b eos`.
Sentence indices count from the first *source* sentence of the row on both sides. So index k means the same
sentence on both sides.

Language symbols are at the beginning of a row, on the target side after the begin symbol. They belong to the
first sentence. They are never predicted, and are not counted in the length of a row:

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
from cotext.layers.layout import Layouts
from cotext.layers.masks import is_current
from cotext.layers.moving import to_device

Tokens = Sequence[int] | NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SpecialSymbols:
    """Ids of special symbols, and how they separate sentences.

    `separators` end sentence 0, 1 ... of a row, except the last sentence; later sentences use the last
    separator. With `bracket`, the only separator is `eos`, and `bos` begins every sentence. With `numbers`,
    the number of the sentence in its document begins it; later sentences use the last number.
    `source_begins`: bracketed source sentences have a begin symbol, too. `source_prefix` and `target_prefix`
    are language symbols at the beginning of a row.
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
        """Return the symbol that ends this sentence of a row if another one follows."""
        return self.separators[min(sentence, len(self.separators) - 1)]

    def opening(self, sentence_index: int) -> int:
        """Return the symbol that begins a bracketed sentence, given its index in the document."""
        return self.numbers[min(sentence_index, len(self.numbers) - 1)] if self.numbers else self.bos

    @property
    def opens_source(self) -> bool:
        """Whether every source sentence has a begin symbol."""
        return self.bracket and self.source_begins

    def are_subwords(self, tokens: Tensor) -> Tensor:
        """Return a mask of the tokens that are subwords, not special or language symbols.

        Subwords that only the source vocabulary has follow the special symbols.
        """
        special = self.pad, self.bos, self.eos, *self.separators, *self.numbers
        are_subwords = (tokens < min(special)) | (tokens > max(special))
        for symbol in {*self.source_prefix, *self.target_prefix}:
            are_subwords &= tokens != symbol
        return are_subwords

    @property
    def per_source_sentence(self) -> int:
        return 1 + self.opens_source


@dataclass(slots=True)
class ExtraRows:
    """Additional rows of the documents in a batch, which a batch-level model attends to but does not decode.

    In training, all rows of a document are in one batch. If rows are decoded one after the other, this object
    contains the other rows: the source of all of them, and the target of the rows before the decoded row.
    """

    source: "Source"  # C rows; its `extra_rows` is None
    target_input: Tensor  # [C, T]
    input_sentence: Tensor  # [C, T], -1 on padding, and in rows without a target


@dataclass(slots=True)
class Source:
    """The source side of a batch, with the document and the current sentences of every row."""

    tokens: Tensor  # [B, S]
    sentence: Tensor  # [B, S], -1 on padding
    current: Tensor  # [B, 2], half-open range of the current sentences of the row
    document: Tensor  # [B], ordinal of the document in its corpus
    first_sentence: Tensor  # [B], index in its document of the first sentence of the row
    extra_rows: ExtraRows | None = None
    layouts: Layouts | None = None  # computed ahead by the model that will process these rows

    def to(self, device: torch.device) -> "Source":
        """Return a copy on `device`."""
        return to_device(self, device)

    def select(self, rows: Tensor) -> "Source":
        """Return the given rows, in the given order, with all extra rows."""
        names = ("tokens", "sentence", "current", "document", "first_sentence")
        chosen = {name: getattr(self, name).index_select(0, rows) for name in names}
        return replace(self, **chosen, layouts=None)


@dataclass
class Batch:
    """Source, decoder input and labels, with the sentence of every token."""

    source: Source
    target_input: Tensor  # [B, T]
    input_sentence: Tensor  # [B, T], -1 on padding
    target_label: Tensor  # [B, T]
    label_sentence: Tensor  # [B, T], -1 on padding
    targets: object | None = None  # computed ahead by the loss, from the labels
    foreign: "Batch | None" = None  # row by row one sentence as the current one, in foreign context
    examined: Tensor | None = None  # [B, 2], half-open range of that sentence in this batch

    def to(self, device: torch.device) -> "Batch":
        """Return a copy on `device`."""
        return to_device(self, device)

    @cached_property
    def labels(self) -> "Labels":
        """The labels of all rows, without padding."""
        return Labels.of(self)

    @property
    def is_label(self) -> Tensor:
        """Mask [B, T] of labels."""
        return self.label_sentence >= 0

    @property
    def is_current(self) -> Tensor:
        """Mask [B, T] of labels of current sentences."""
        return is_current(self.label_sentence, self.source.current)


@dataclass(frozen=True, slots=True)
class Labels:
    """The N labels of a batch, row by row, without padding.

    `index` contains their positions in the flattened [B, T]. `current` and `context` are masks of the labels
    in current sentences and of all other labels.
    """

    index: Tensor  # [N]
    token: Tensor  # [N]
    is_current: Tensor  # [N]
    current: Tensor  # [C]
    context: Tensor  # [N - C]

    @staticmethod
    def of(batch: Batch) -> "Labels":
        index = batch.is_label.flatten().nonzero()[:, 0]
        is_current = batch.is_current.flatten()[index]
        current, context = (chosen.nonzero()[:, 0] for chosen in (is_current, ~is_current))
        return Labels(index, batch.target_label.flatten()[index], is_current, current, context)

    @property
    def count(self) -> int:
        """N."""
        return self.index.numel()


def hide_words(batch: Batch, share: float, symbols: SpecialSymbols, unknown: int) -> Batch:
    """Apply word dropout: replace each subword of source and decoder input with probability `share`.

    They become the unknown token. Labels and special symbols are unchanged, as in the authors' code of
    G-Transformer (Bao et al. 2021). Uses the global random generator of torch.
    """
    dropped = copy(batch)  # a shallow copy, which keeps the cached labels
    dropped.source = replace(batch.source, tokens=_hidden(batch.source.tokens, share, symbols, unknown))
    dropped.target_input = _hidden(batch.target_input, share, symbols, unknown)
    return dropped


def hide_current_source(batch: Batch, share: float, symbols: SpecialSymbols, unknown: int) -> Batch:
    """Apply CoWord dropout: replace source subwords of current sentences with probability `share`.

    They become the unknown token; target and context are unchanged. So the model learns to find the missing
    information in the context (Fernandes et al. 2021, section 4). Uses the global random generator of torch.
    """
    source = batch.source
    hidden = _hidden(source.tokens, share, symbols, unknown)
    chosen = is_current(source.sentence, source.current)
    dropped = copy(batch)
    dropped.source = replace(source, tokens=torch.where(chosen, hidden, source.tokens))
    return dropped


def copy_hidden(batch: Batch, hidden: Batch, symbols: SpecialSymbols) -> Batch:
    """Return `hidden` with the same source words hidden in its foreign rows.

    `hidden` is `batch` after word dropout. Otherwise, hidden words would differ in addition to the context.
    """
    if batch.foreign is None or batch.examined is None:
        return hidden
    own, other = batch.source, batch.foreign.source
    source = is_current(own.sentence, batch.examined) & symbols.are_subwords(own.tokens)
    to = is_current(other.sentence, other.current) & symbols.are_subwords(other.tokens)
    tokens = other.tokens.masked_scatter(to, hidden.source.tokens.masked_select(source))
    copied = copy(hidden)
    copied.foreign = copy(batch.foreign)
    copied.foreign.source = replace(other, tokens=tokens)
    return copied


def _hidden(tokens: Tensor, share: float, symbols: SpecialSymbols, unknown: int) -> Tensor:
    chosen = (torch.rand(tokens.shape, device=tokens.device) < share) & symbols.are_subwords(tokens)
    return tokens.masked_fill(chosen, unknown)


@dataclass(frozen=True, slots=True)
class Instance:
    """One window of one document as token ids, which becomes a row of a batch.

    `source` and `target` are the sentences of the window. Lengths include separators and brackets.
    """

    document: int
    window: Window
    source: Sequence[Tokens]
    target: Sequence[Tokens]

    @property
    def current(self) -> tuple[int, int]:
        """Half-open range of the current sentences, counted from the first source sentence."""
        return self.place(self.window.current)

    def place(self, sentences: range) -> tuple[int, int]:
        """Half-open range of these sentences of the document, counted from the first source sentence."""
        return sentences.start - self.window.source.start, sentences.stop - self.window.source.start

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
        """Length of the label row; one symbol ends every sentence."""
        return sum(len(s) + 1 for s in self.target)

    def row_tokens(self, symbols: SpecialSymbols) -> int:
        """Length of the longer side."""
        return max(self.source_tokens(symbols), self.target_tokens)
