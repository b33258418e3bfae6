"""Tokenizers of pretrained models: sentencepiece for the text, a vocabulary of their own for the ids.

What stands in a document is text, and never becomes a symbol: neither `</s>` nor `>>deu<<` nor `__de__`.
Language symbols come from the choice of languages alone, once at the head of a row.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import sentencepiece
from sentencepiece import SentencePieceProcessor

from cotext.data.tokenizer.protocol import (
    MAX_VOCABULARY,
    SPECIAL_SYMBOLS,
    Side,
    fingerprint_of_files,
    save_files,
)
from cotext.data.tokenizer.sentencepiece import encode_all
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

# --- Vocabularies of imported models: the rows of an embedding matrix by name, and the piece ids they
# become.
#
# Rows keep their order and lose two: the end of a sentence and padding are special symbols of every
# tokenizer.
#
#     row      0     1      2   3     4          5            6
#     name     </s>  <unk>  ▁a  ▁the  >>deu<<    madeupword0  <pad>
#     piece          0      1   2     3          4

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


_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029▁]")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # which sentencepiece cannot read


def one_line(text: str) -> str:
    """The text as one line: control characters and line separators become a space, spaces are folded."""
    return " ".join(part for part in _BREAKS.sub(" ", text).split(" ") if part)


@dataclass(frozen=True, slots=True)
class TextSide:
    """One side: the sentencepiece model of its language and its pieces."""

    model: SentencePieceProcessor
    table: PieceTable


@dataclass(frozen=True, slots=True)
class LanguageChoice:
    """The languages of a corpus, as the symbols of a tokenizer name them; empty where none is chosen."""

    source: str = ""
    target: str = ""


class ImportedTokenizer:
    """A tokenizer of a pretrained model; `files` hold all that decides how text is encoded.

    `rows` are the rows of the imported target matrix (and output layer), one for each piece, `source_rows`
    those of the source matrix; with one vocabulary they are the same. With two, ids of source pieces from
    `pieces` on are shifted behind the special symbols, which so have the same ids on both sides.
    """

    kind = ""

    def __init__(
        self,
        files: Mapping[str, bytes],
        source: TextSide,
        target: TextSide,
        languages: Mapping[str, int],
        chosen: LanguageChoice,
        num_threads: int = 1,
    ) -> None:
        """Take both sides and the piece of every language that can be chosen.

        Raises:
            CotextError: a chosen language that is not among them, or an unknown piece that differs by side.
        """
        self._files, self._num_threads = dict(files), num_threads
        self._sides: Mapping[Side, TextSide] = {"source": source, "target": target}
        self.languages, self.chosen = languages, chosen
        self.fingerprint = fingerprint_of_files(self.kind, files)
        self.rows, self.source_rows = target.table.rows, source.table.rows
        self.pieces = len(self.rows)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.source_vocabulary_size = max(self.pieces, len(self.source_rows)) + SPECIAL_SYMBOLS
        self.separate_vocabularies = source.table is not target.table
        self.unk = target.table.unk
        if source.table.unk != self.unk:
            raise CotextError("the two vocabularies have the unknown piece at different numbers")
        self.source_prefix, self.target_prefix = self._prefixes()

    def _prefixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids at the head of every source and of every target row."""
        raise NotImplementedError

    def lacking(self) -> list[Side]:
        """The sides whose language must be chosen and is not."""
        raise NotImplementedError

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that hold it, beside tokenizer.json."""
        return tuple(self._files)

    def names_alike(self, code: str) -> list[str]:
        """The languages that a code may mean: that of this name, or those that begin with it before `_`."""
        if code in self.languages:
            return [code]
        return [name for name in self.languages if re.split("[_-]", name)[0] == code]

    @property
    def unwritten(self) -> tuple[int, ...]:
        """The pieces that no output may hold: symbols of languages and the like."""
        return tuple(sorted(self._sides["target"].table.symbols))

    def with_threads(self, num_threads: int) -> Self:
        """Return the same tokenizer with so many threads for `encode_batch`; the ids stay the same."""
        return self._remade(self.chosen, num_threads)

    def with_languages(self, source: str, target: str) -> Self:
        """Return the same tokenizer for a pair of languages; an empty one stays as it is.

        Raises:
            CotextError: a language that is not among its symbols.
        """
        chosen = LanguageChoice(
            self._found(source, "--source-language") if source else self.chosen.source,
            self._found(target, "--target-language") if target else self.chosen.target,
        )
        return self._remade(chosen, self._num_threads)

    def _found(self, asked: str, option: str) -> str:
        """The language that is meant: by its whole name, or by the part before `_` where that is enough."""
        like = self.names_alike(asked)
        if len(like) == 1:
            return like[0]
        there = ", ".join(like or self.languages) or "none"
        raise CotextError(
            f"{option} {shown(asked)}: not among the languages of the tokenizer; there are: {there}"
        )

    def _remade(self, chosen: LanguageChoice, num_threads: int) -> Self:
        sides = self._sides["source"], self._sides["target"]
        return type(self)(self._files, *sides, self.languages, chosen, num_threads)

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        return self.encode_batch([sentence], side)[0]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""
        model, table = self._sides[side].model, self._sides[side].table
        texts = [_HALF_CHARACTER.sub("", sentence) for sentence in sentences]
        ids = [table.encode(pieces) for pieces in encode_all(model, texts, self._num_threads, str)]
        if len(table.rows) <= self.pieces:
            return ids
        return [[i if i < self.pieces else i + SPECIAL_SYMBOLS for i in sentence] for sentence in ids]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text as one line, white space folded; symbols show nothing, an unknown piece "⁇"."""
        model, table = self._sides[side].model, self._sides[side].table
        pieces = [int(i) for i in ids if not self.pieces <= i < self.vocabulary_size]
        pieces = [i if i < self.pieces else i - SPECIAL_SYMBOLS for i in pieces]
        names = [table.names[i] for i in pieces if i < len(table.names) and i not in table.symbols]
        return one_line(model.decode(names)) if names else ""

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order.

        Bytes from 0x80 on show nothing alone but form characters together, so they are not among them.
        """
        return list(self._blank)

    @cached_property
    def _blank(self) -> tuple[int, ...]:
        model, table = self._sides["target"].model, self._sides["target"].table
        found = []
        for i, name in enumerate(table.names):
            number = model.piece_to_id(name)
            if model.is_byte(number):
                shows = int(name[1:-1], 16) >= 0x80 or bool(self.decode([i]))
            else:
                shows = i not in table.symbols and bool(one_line(name.replace(WORD_BOUNDARY, " ")))
                shows = shows and (model.is_unknown(number) or bool(self.decode([i])))
            if not shows:
                found.append(i)
        return tuple(found)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the files that hold the tokenizer into the folder, made if absent."""
        save_files(folder, self, self.kind, self._files, asdict(self.chosen))


# --- The tokenizer of MarianMT (OPUS-MT): two sentencepiece models, and a vocabulary of Marian's own.
#
# As `MarianTokenizer` of transformers does: text -> pieces by the model of its side -> ids by vocab.json,
# an unknown piece -> `<unk>`, nothing cleaned before. But for one thing: `>>deu<<` at the head of a text,
# which is a symbol there, is text here; the symbol comes from the target language that is chosen.

_OPENING, _CLOSING = ">>", "<<"


class MarianTokenizer(ImportedTokenizer):
    """Pieces of the sentencepiece model of each side, numbered by vocab.json, or by one file for each side.

    The target language is a tag at the head of the source row, where the vocabulary has tags.
    """

    kind = "marian"
    required = ("source.spm", "target.spm", "vocab.json")
    optional = ("target_vocab.json",)

    @classmethod
    def from_files(
        cls,
        source_spm: bytes,
        target_spm: bytes,
        vocabulary: bytes,
        target_vocabulary: bytes | None = None,
        *,
        rows: int | None = None,
        target_rows: int | None = None,
        target_language: str = "",
    ) -> Self:
        """The tokenizer of the contents of source.spm, target.spm, vocab.json and, where vocabularies are
        separate, target_vocab.json.

        `rows`: of the embedding matrix, where it has more than the vocabulary names (`target_rows`: of that
        of the target).

        Raises:
            CotextError: a file that is none of these, or of another model than the rest.
        """
        files = {"source.spm": source_spm, "target.spm": target_spm}
        files["vocab.json"] = _of_rows(vocabulary, rows, "vocab.json")
        if target_vocabulary is not None:
            files["target_vocab.json"] = _of_rows(target_vocabulary, target_rows, "target_vocab.json")
        return cls.from_stored(files, LanguageChoice()).with_languages("", target_language)

    @classmethod
    def from_stored(cls, files: Mapping[str, bytes], chosen: LanguageChoice) -> Self:
        """The tokenizer of the files that `save` wrote; raises CotextError as `from_files`."""
        tables = {
            name: _table(files[name], name) for name in ("vocab.json", "target_vocab.json") if name in files
        }
        source, target = tables["vocab.json"], tables.get("target_vocab.json", tables["vocab.json"])
        sides = (
            TextSide(open_model(files["source.spm"], "source.spm"), source),
            TextSide(open_model(files["target.spm"], "target.spm"), target),
        )
        tags = {
            name.removeprefix(_OPENING).removesuffix(_CLOSING): i
            for i, name in enumerate(source.names)
            if _is_tag(name)
        }
        return cls(files, *sides, tags, chosen)

    def _prefixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not self.chosen.target:
            return (), ()
        tag = self.languages[self._found(self.chosen.target, "the target language")]
        return ((tag if tag < self.pieces else tag + SPECIAL_SYMBOLS),), ()

    def lacking(self) -> list[Side]:
        """The target, where there are tags of several languages."""
        return ["target"] if len(self.languages) > 1 and not self.chosen.target else []

    def with_languages(self, source: str, target: str) -> Self:
        """As for other tokenizers; the source language has no symbol, and any is taken."""
        return super().with_languages("", target)


def _is_tag(name: str) -> bool:
    return name.startswith(_OPENING) and name.endswith(_CLOSING) and len(name) > len(_OPENING + _CLOSING)


def _table(vocabulary: bytes, what: str) -> PieceTable:
    names = read_vocabulary(vocabulary, what)
    return PieceTable.of(names, {name for name in names if _is_tag(name)} | unnamed(names), what)


def _of_rows(vocabulary: bytes, rows: int | None, what: str) -> bytes:
    """The vocabulary with a name for every row of the matrix; the same where it has them."""
    names = read_vocabulary(vocabulary, what)
    if rows is None or rows == len(names):
        return vocabulary
    named = {name: row for row, name in enumerate(extended(names, rows, what))}
    return json.dumps(named, ensure_ascii=False).encode()
