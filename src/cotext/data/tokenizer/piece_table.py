"""Vocabularies of imported models: the rows of an embedding matrix by name, and the piece ids they become.

Rows keep their order and lose two: the end of a sentence and padding are special symbols of every tokenizer.

    row      0     1      2   3     4          5            6
    name     </s>  <unk>  ▁a  ▁the  >>deu<<    madeupword0  <pad>
    piece          0      1   2     3          4
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sentencepiece

from cotext.data.tokenizer.protocol import MAX_VOCABULARY
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

MAX_OBJECT_BYTES = 1 << 26  # twice the longest published
END, PADDING, UNKNOWN = "</s>", "<pad>", "<unk>"
WORD_BOUNDARY = "▁"


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The pieces of one side: names, rows of the imported matrix, and which of them text may become.

    `ids` has the pieces of text alone: a symbol is never encoded, whatever the text holds.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    ids: Mapping[str, int]
    symbols: frozenset[int]
    unk: int

    @classmethod
    def of(cls, names: Sequence[str], is_symbol: Collection[str], what: str) -> "PieceTable":
        """The table of rows by name; those of `is_symbol`, the unknown piece too, are no text.

        Raises:
            CotextError: without an end of sentence, or without an unknown piece.
        """
        for needed in (END, UNKNOWN):
            if needed not in names:
                raise CotextError(f"{what}: not the vocabulary of such a model: {needed} is not in it")
        rows = tuple(row for row, name in enumerate(names) if name not in (END, PADDING))
        kept = tuple(names[row] for row in rows)
        symbols = frozenset(i for i, name in enumerate(kept) if name in is_symbol)
        ids = {name: i for i, name in enumerate(kept) if i not in symbols and name != UNKNOWN}
        return cls(kept, rows, ids, symbols, kept.index(UNKNOWN))

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """The ids of the pieces of a text."""
        return [self.ids.get(piece, self.unk) for piece in pieces]


def read_object(content: bytes, what: str) -> dict[str, Any]:
    """The JSON object in a file of a tokenizer.

    Raises:
        CotextError: larger than any such file, no text in UTF-8, or no JSON object.
    """
    if len(content) > MAX_OBJECT_BYTES:
        raise CotextError(f"{what}: longer than the {MAX_OBJECT_BYTES:,} bytes that such a file may have")
    try:
        found = parse_json(content.decode(), what)
    except UnicodeDecodeError:
        raise CotextError(f"{what}: not a text in UTF-8") from None
    if not isinstance(found, dict):
        raise CotextError(f"{what}: damaged: holds no JSON object")
    return found


def read_vocabulary(content: bytes, what: str) -> list[str]:
    """The names of rows, in order, of a JSON object of names and row numbers.

    Raises:
        CotextError: no such object, or row numbers that are not 0, 1, 2 ..., each once.
    """
    found = read_object(content, what)
    if len(found) > MAX_VOCABULARY:
        raise CotextError(f"{what}: more than {MAX_VOCABULARY:,} pieces")
    names: list[str | None] = [None] * len(found)
    for name, row in found.items():
        if type(row) is not int or not 0 <= row < len(names) or names[row] is not None:
            raise CotextError(
                f"{what}: damaged: piece {shown(name)} has the number {shown(row)}, and they count "
                "from 0, each once"
            )
        names[row] = name
    return [name for name in names if name is not None]


def extended(names: Sequence[str], rows: int | None, what: str) -> list[str]:
    """Names for all rows of a matrix that has more than the vocabulary names.

    Raises:
        CotextError: it has fewer, or absurdly many.
    """
    if rows is None:
        return list(names)
    if not len(names) <= rows <= MAX_VOCABULARY:
        raise CotextError(
            f"{what}: {len(names):,} pieces, and the model has {rows:,} rows; they are not of one model"
        )
    return [*names, *(f"madeupword{row}" for row in range(len(names), rows))]


def unnamed(names: Sequence[str]) -> set[str]:
    """The names that stand for rows without a piece: the last ones, as `extended` or fairseq made them."""
    found = set()
    for name in reversed(names):
        if not name.startswith("madeupword"):
            break
        found.add(name)
    return found


def open_model(content: bytes, what: str) -> sentencepiece.SentencePieceProcessor:
    """A sentencepiece model.

    Raises:
        CotextError: it is none.
    """
    if not content:  # which sentencepiece would take for a model without pieces
        raise CotextError(f"{what}: not a sentencepiece model: it is empty")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise CotextError(f"{what}: not a sentencepiece model: {error}") from None
