"""Batches: tokens and, for each token, the index of its sentence.

All joining of sentences and padding of rows is done here.

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

from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cotext.data.views import Window
from cotext.layers.layout import Layouts
from cotext.layers.positions import is_current, ranks
from cotext.layers.state import ReadInputs
from cotext.runtime.devices import to_device

Tokens = Sequence[int] | NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SpecialSymbols:
    """Ids of special symbols, and how they separate sentences.

    `separators` end sentence 0, 1 ... of a row; further sentences end with the last separator, and the last
    sentence with `eos`. With `bracket`, the only separator is `eos`, and `bos` begins every sentence. With
    `numbers`, the number of the sentence in its document begins it; later sentences use the last number.
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
        """Number of symbols that end or begin a source sentence."""
        return 1 + self.opens_source


@dataclass(slots=True)
class ExtraRows:
    """Rows that are not decoded, but to which a model with batch-level context (`batch_context`) attends.

    In training, the batch itself contains these rows. If rows are decoded one after the other, this object
    has the other rows of the documents: all their sources, and the targets before the decoded row.
    """

    source: "Source"  # C rows; its `extra_rows` is None
    target_input: Tensor  # [C, T]
    input_sentence: Tensor  # [C, T], -1 on padding, and in rows without a target


@dataclass(slots=True)
class RowCache:
    """What a model has computed for a row that is searched sentence by sentence; None: nothing yet.

    It must not depend on other rows, or on which sentences are current (`DecodingPlan` checks this).
    `memory`: keys and values of the source, two [S, H, K] for every cross-attention (H heads, K per head).
    `read`: the first decoder inputs of the row, with their keys and values.
    """

    memory: Sequence[Tensor] | None = None
    read: ReadInputs | None = None


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
    caches: Sequence[RowCache] | None = None  # of every row, for the next search of the same row

    def to(self, device: torch.device) -> "Source":
        return to_device(self, device)

    def select(self, rows: Tensor) -> "Source":
        """Return the given rows, in the given order, with all extra rows."""
        names = ("tokens", "sentence", "current", "document", "first_sentence")
        chosen = {name: getattr(self, name).index_select(0, rows) for name in names}
        return replace(self, **chosen, layouts=None, caches=None)


@dataclass
class Batch:
    """Source, decoder input and labels, with the sentence of every token."""

    source: Source
    target_input: Tensor  # [B, T]
    input_sentence: Tensor  # [B, T], -1 on padding
    target_label: Tensor  # [B, T]
    label_sentence: Tensor  # [B, T], -1 on padding
    targets: object | None = None  # computed ahead by the loss, from the labels
    foreign: "Batch | None" = None  # for each row, a current sentence in context of another document
    examined: Tensor | None = None  # [B, 2], half-open range of that sentence; also set in `foreign`

    def to(self, device: torch.device) -> "Batch":
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

    `index` contains their positions in the flattened [B, T]. `current` and `context` are the indices of the
    labels in current sentences and of all other labels, `examined` those in examined sentences, if any.
    """

    index: Tensor  # [N]
    token: Tensor  # [N]
    is_current: Tensor  # [N]
    current: Tensor  # [C]
    context: Tensor  # [N - C]
    examined: Tensor  # [E]

    @staticmethod
    def of(batch: Batch) -> "Labels":
        index = batch.is_label.flatten().nonzero()[:, 0]
        in_current = batch.is_current.flatten()[index]
        current, context = (chosen.nonzero()[:, 0] for chosen in (in_current, ~in_current))
        examined = current[:0]
        if batch.examined is not None:
            examined = is_current(batch.label_sentence, batch.examined).flatten()[index].nonzero()[:, 0]
        return Labels(index, batch.target_label.flatten()[index], in_current, current, context, examined)

    @property
    def count(self) -> int:
        return self.index.numel()


def hide_words(batch: Batch, share: float, symbols: SpecialSymbols, unknown: int) -> Batch:
    """Apply word dropout: replace each subword of source and decoder input with probability `share`.

    They become the unknown token. Labels and special symbols are unchanged, as in the authors' code of
    G-Transformer (Bao et al. 2021). Rows in foreign context lose other words; `copy_hidden` then
    makes their examined sentences equal. Uses the global random generator of torch.
    """
    dropped = copy(batch)  # a shallow copy, which keeps the cached labels
    dropped.source = replace(batch.source, tokens=_hidden(batch.source.tokens, share, symbols, unknown))
    dropped.target_input = _hidden(batch.target_input, share, symbols, unknown)
    dropped.foreign = batch.foreign and hide_words(batch.foreign, share, symbols, unknown)
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
    dropped.foreign = batch.foreign and hide_current_source(batch.foreign, share, symbols, unknown)
    return dropped


def copy_hidden(batch: Batch, hidden: Batch, symbols: SpecialSymbols) -> Batch:
    """Return `hidden`, with the same words hidden in examined sentences of its foreign rows.

    `hidden` is `batch` after word dropout. So foreign rows differ only in context, not in hidden words.
    """
    if batch.foreign is None or hidden.foreign is None or hidden is batch:
        return hidden
    own, other = _examined_words(batch, symbols), _examined_words(batch.foreign, symbols)
    source, foreign = hidden.foreign.source, copy(hidden.foreign)
    tokens = source.tokens.masked_scatter(other[0], hidden.source.tokens.masked_select(own[0]))
    foreign.source = replace(source, tokens=tokens)
    words = hidden.target_input.masked_select(own[1])
    foreign.target_input = foreign.target_input.masked_scatter(other[1], words)
    copied = copy(hidden)
    copied.foreign = foreign
    return copied


def _examined_words(batch: Batch, symbols: SpecialSymbols) -> tuple[Tensor, Tensor]:
    """Return masks of the subwords of examined sentences in source and decoder input: [B, S], [B, T]."""
    assert batch.examined is not None
    source, target = batch.source, batch.target_input
    return (
        is_current(source.sentence, batch.examined) & symbols.are_subwords(source.tokens),
        is_current(batch.input_sentence, batch.examined) & symbols.are_subwords(target),
    )


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


Ids = NDArray[np.int64]


def joined(
    sentences: Sequence[Tokens],
    symbols: SpecialSymbols,
    first: int = 0,
    opened: bool = False,
    sentence_index: int = 0,
) -> tuple[Ids, Ids]:
    """Join sentences with separators and end the last sentence with `eos`.

    `opened`: whether every sentence has a begin symbol. `sentence_index`: index of the first sentence in the
    document, for numbered sentences. Returns tokens and sentence indices, counted from `first`, each [T].
    """
    lengths = [len(s) + 1 + opened for s in sentences]
    tokens = np.empty(sum(lengths), dtype=np.int64)
    at = 0
    for k, (sentence, length) in enumerate(zip(sentences, lengths, strict=True), start=first):
        if opened:
            tokens[at] = symbols.opening(sentence_index + k - first)
        tokens[at + opened : at + length - 1] = sentence
        tokens[at + length - 1] = symbols.separator(k)
        at += length
    tokens[-1] = symbols.eos
    return tokens, np.repeat(np.arange(first, first + len(sentences)), lengths)


def decoder_input(label: Ids, sentence: Ids, symbols: SpecialSymbols, sentence_index: int = 0) -> Ids:
    """Return the decoder input [T]: labels shifted right by one, after `bos`.

    With brackets, every sentence begins with its begin symbol instead of the last label. An input token has
    the sentence index of the predicted label. `sentence_index` is the index of sentence 0 in the document.
    """
    shifted = np.concatenate(([symbols.bos], label[:-1]))
    if symbols.bracket:
        opens = np.flatnonzero(np.diff(sentence, prepend=-1))
        shifted[opens] = [symbols.opening(sentence_index + int(k)) for k in sentence[opens]]
    return shifted


def headed(prefix: Sequence[int], tokens: Ids, sentence: Ids, behind: int = 0) -> tuple[Ids, Ids]:
    """Insert language symbols at the beginning of a row, after its first `behind` tokens.

    The symbols belong to the first sentence. Returns tokens and sentence indices, both [T + prefix].
    """
    if not prefix:
        return tokens, sentence
    return np.insert(tokens, behind, prefix), np.insert(sentence, behind, [sentence[0]] * len(prefix))


@dataclass(frozen=True, slots=True)
class TargetRow:
    """The target side of an instance: decoder input and labels with their sentence indices, [T] each.

    Language symbols are not labels: at these positions, the sentence index of the label is -1.
    """

    inputs: Ids
    input_sentence: Ids
    labels: Ids
    label_sentence: Ids


def target_row(instance: Instance, symbols: SpecialSymbols) -> TargetRow:
    """Return the target side of an instance, which is empty if there is no target."""
    if not instance.target:
        nothing = np.empty(0, np.int64)
        return TargetRow(nothing, nothing, nothing, nothing)
    label, sentence = joined(instance.target, symbols, instance.target_offset)
    inputs = decoder_input(label, sentence, symbols, instance.first_sentence)
    unlabelled = np.full(len(symbols.target_prefix), -1)
    return TargetRow(
        *headed(symbols.target_prefix, inputs, sentence, behind=1),
        np.concatenate((np.full(len(unlabelled), symbols.pad), label)),
        np.concatenate((unlabelled, sentence)),
    )


def padded(rows: Sequence[tuple[Ids, Ids]], pad: int) -> tuple[Tensor, Tensor]:
    """Pad tokens and sentence indices of rows: two tensors [B, longest], sentence index -1 on padding."""
    size = len(rows), max(1, *(len(tokens) for tokens, _ in rows))
    stacked = np.full(size, pad, np.int64), np.full(size, -1, np.int64)
    for i, sides in enumerate(rows):
        for out, side in zip(stacked, sides, strict=True):
            out[i, : len(side)] = side
    return torch.from_numpy(stacked[0]), torch.from_numpy(stacked[1])


def source_batch(instances: Sequence[Instance], symbols: SpecialSymbols) -> Source:
    sides = (
        joined(i.source, symbols, opened=symbols.opens_source, sentence_index=i.first_sentence)
        for i in instances
    )
    tokens, sentence = padded([headed(symbols.source_prefix, *side) for side in sides], symbols.pad)
    return Source(
        tokens=tokens,
        sentence=sentence,
        current=torch.tensor([i.current for i in instances]),
        document=torch.tensor([i.document for i in instances]),
        first_sentence=torch.tensor([i.first_sentence for i in instances]),
    )


def extra_rows(instances: Sequence[Instance], symbols: SpecialSymbols) -> ExtraRows:
    """Return additional rows to which the rows of a batch attend.

    They have no decoder input if there is no target.
    """
    rows = [(row.inputs, row.input_sentence) for row in (target_row(i, symbols) for i in instances)]
    return ExtraRows(source_batch(instances, symbols), *padded(rows, symbols.pad))


def make_batch(instances: Sequence[Instance], symbols: SpecialSymbols) -> Batch:
    targets = [target_row(i, symbols) for i in instances]
    inputs = padded([(row.inputs, row.input_sentence) for row in targets], symbols.pad)
    labels = padded([(row.labels, row.label_sentence) for row in targets], symbols.pad)
    return Batch(source_batch(instances, symbols), *inputs, *labels)


def in_both_contexts(
    instances: Sequence[Instance], foreign: Sequence[Instance], symbols: SpecialSymbols
) -> Batch:
    """Return the batch of `instances` with a batch in foreign context (`Batch.foreign`).

    In each instance of `foreign`, only the examined sentence is current. Other sentences are then marked as
    current if their counterparts in the row of `instances` are, so that the rows differ only in context.
    """
    batch, other = make_batch(instances, symbols), make_batch(foreign, symbols)
    pairs = zip(instances, foreign, strict=True)
    examined = torch.tensor([own.place(one.window.current) for own, one in pairs])
    batch.examined, other.examined = examined, other.source.current
    current = (batch.source.current + other.examined - examined).clamp(min=0)
    other.source = replace(other.source, current=current)
    batch.foreign = other
    return batch


def bracketed_targets(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the targets of non-autoregressive models, `bos y1 eos bos y2 eos ...`, and sentence indices.

    Both are [B, Y] on the device of the batch; the sentence index is -1 on padding.
    """
    k, width = batch.label_sentence, batch.label_sentence.size(1)
    wide = width + int(k.max()) + 1
    t = torch.arange(width, device=k.device) + k  # a label moves right by the `bos` of k earlier sentences
    row = torch.arange(k.size(0), device=k.device)[:, None].expand_as(k)
    tokens, sentence = k.new_zeros(k.size(0), wide), k.new_full((k.size(0), wide), -1)
    for chosen, shift, symbols in (
        (k >= 0, 1, batch.target_label),
        ((k >= 0) & (ranks(k) == 0), 0, batch.target_input),
    ):
        at = row[chosen], t[chosen] + shift
        tokens[at], sentence[at] = symbols[chosen], k[chosen]
    return tokens, sentence


# --- Packing of rows into batches with a token budget, for training, validation, search and scoring.
#
# A batch of R rows is padded to the longest one, so its size is R times the length of the longest row.
#
#     pack         items in a given order: a batch is a run of consecutive items
#     pack_apart   items with a key, such as their document: a batch has at most one item per key

# Number of batches to which shorter rows may still be added. Bounds search time and padding.
OPEN_BATCHES = 32


def pack(lengths: Iterable[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Group consecutive items into batches of at most `max_tokens`; a longer item is a separate batch.

    `lengths` has, for every item, the lengths of its rows, which share a batch. Returns the indices of the
    items of every batch.
    """
    batches: list[list[int]] = []
    count = longest = 0  # number and longest length of the rows of the last batch
    for i, rows in enumerate(lengths):
        grown = count + len(rows), max(longest, *rows)
        if batches and grown[0] * grown[1] <= max_tokens:
            batches[-1].append(i)
            count, longest = grown
        else:
            batches.append([i])
            count, longest = len(rows), max(rows)
    return batches


@dataclass(slots=True)
class _OpenBatch:
    rows_left: int
    items: list[int] = field(default_factory=list)
    keys: set[Hashable] = field(default_factory=set)


def pack_apart(
    lengths: Sequence[Sequence[int]], keys: Sequence[Hashable], max_tokens: int
) -> list[list[int]]:
    """Group items with different keys into batches of at most `max_tokens`; a longer item is a batch.

    For `lengths`, see `pack`. Items are sorted by the length of their longest row, longest first.
    """
    batches: list[_OpenBatch] = []
    waiting: list[_OpenBatch] = []
    longest = [max(rows) for rows in lengths]
    for i in sorted(range(len(lengths)), key=lambda i: -longest[i]):
        rows, key = len(lengths[i]), keys[i]
        # The newest batch first, because its rows are the shortest.
        batch = next((b for b in reversed(waiting) if rows <= b.rows_left and key not in b.keys), None)
        if batch is None:
            batch = _OpenBatch(max_tokens // longest[i])
            batches.append(batch)
            waiting.append(batch)
        batch.items.append(i)
        batch.keys.add(key)
        batch.rows_left -= rows
        waiting = [b for b in waiting if b.rows_left > 0][-OPEN_BATCHES:]
    return [batch.items for batch in batches]
