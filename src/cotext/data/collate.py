"""Collation: instances to padded batches. All joining of sentences and padding of rows is done here.

The layout of a row (separators, brackets, sentence indices) is described in `cotext.data.batch`.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cotext.data.batch import Batch, ExtraRows, Instance, Source, SpecialSymbols, Tokens
from cotext.layers.positions import ranks

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
    """Group consecutive items to batches of at most `max_tokens`; a longer item is a separate batch.

    `lengths` has, for every item, the lengths of its rows, which share a batch. Returns the indices of the
    items of every batch.
    """
    batches: list[list[int]] = []
    count = longest = 0  # of the rows of the last batch
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
