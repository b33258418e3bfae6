"""The tokenizer of MarianMT (OPUS-MT): two sentencepiece models, and a vocabulary of Marian's own.

As `MarianTokenizer` of transformers does: text -> pieces by the model of its side -> ids by vocab.json, an
unknown piece -> `<unk>`, nothing cleaned before. But for one thing: `>>deu<<` at the head of a text, which is
a symbol there, is text here; the symbol comes from the target language that is chosen.
"""

import json
from collections.abc import Mapping
from typing import Self

from cotext.data.tokenizer.imported import ImportedTokenizer, LanguageChoice, TextSide
from cotext.data.tokenizer.piece_table import PieceTable, extended, open_model, read_vocabulary, unnamed
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS, Side

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
