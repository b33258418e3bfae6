"""Tokenizers of pretrained models: sentencepiece for the text, a vocabulary of their own for the ids.

What stands in a document is text, and never becomes a symbol: neither `</s>` nor `>>deu<<` nor `__de__`.
Language symbols come from the choice of languages alone, once at the head of a row.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from sentencepiece import SentencePieceProcessor

from cotext.data.tokenizer.piece_table import WORD_BOUNDARY, PieceTable
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS, Side
from cotext.data.tokenizer.sentencepiece import encode_all
from cotext.data.tokenizer.storage import fingerprint_of_files, save_files
from cotext.runtime.errors import CotextError, shown

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

    @property
    def names(self) -> tuple[str, ...]:
        """The target's pieces as text, with the mark of a word boundary."""
        return self._sides["target"].table.names

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
