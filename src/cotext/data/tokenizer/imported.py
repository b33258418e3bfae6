"""Tokenizers of pretrained models: sentencepiece for splitting, and a separate vocabulary for ids.

Text is never encoded as a symbol, not even `</s>`, `>>deu<<` or `__de__`. Only the chosen languages
add symbols, at the beginning of a sequence.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, Self

from sentencepiece import SentencePieceProcessor

from cotext.data.documents import Languages
from cotext.data.tokenizer.protocol import (
    MAX_VOCABULARY,
    SPECIAL_SYMBOLS,
    Side,
    Tokenizer,
    encode_all,
    is_part_of_character,
    open_model,
)
from cotext.runtime import SURROGATE, CotextError, parse_json, shown

# --- Vocabularies of imported models: the names of the rows of an embedding matrix, and their subword ids.
#
# Rows keep their order. Two rows are removed, because the end of sentence and padding are special symbols of
# every tokenizer.
#
#     row      0     1      2   3     4          5            6
#     name     </s>  <unk>  ▁a  ▁the  >>deu<<    madeupword0  <pad>
#     piece          0      1   2     3          4

MAX_OBJECT_BYTES = 1 << 26  # twice the largest published file
END, PADDING, UNKNOWN = "</s>", "<pad>", "<unk>"


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The vocabulary of one side: names, rows of the imported matrix, and symbols.

    `ids` contains only subwords of text, so no text is encoded as a symbol.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    ids: Mapping[str, int]
    symbols: frozenset[int]
    unk: int

    @classmethod
    def of(cls, names: Sequence[str], is_symbol: Collection[str], what: str) -> "PieceTable":
        """Create the table from the names of rows; `is_symbol` contains the names that are not text.

        Raises CotextError if there is no end of sentence, or no unknown token.
        """
        for needed in (END, UNKNOWN):
            if needed not in names:
                raise CotextError(f"{what}: not the vocabulary of a translation model: {needed} is missing")
        rows = tuple(row for row, name in enumerate(names) if name not in (END, PADDING))
        kept = tuple(names[row] for row in rows)
        symbols = frozenset(i for i, name in enumerate(kept) if name in is_symbol)
        ids = {name: i for i, name in enumerate(kept) if i not in symbols and name != UNKNOWN}
        return cls(kept, rows, ids, symbols, kept.index(UNKNOWN))


def read_object(content: bytes, what: str, numbers: bool = True) -> dict[str, Any]:
    """Parse the JSON object in a file of a tokenizer; without `numbers`, every number is read as 0.

    Raises CotextError if the content is invalid or too large.
    """
    if len(content) > MAX_OBJECT_BYTES:
        raise CotextError(f"{what}: has more than {MAX_OBJECT_BYTES:,} bytes, the maximum for such a file")
    try:
        value = parse_json(content.decode(), what, numbers)
    except UnicodeDecodeError:
        raise CotextError(f"{what}: not a text in UTF-8") from None
    if not isinstance(value, dict):
        raise CotextError(f"{what}: damaged: not a JSON object")
    return value


def read_vocabulary(content: bytes, what: str) -> list[str]:
    """Return the names of rows, in order, from a JSON object of names and row numbers.

    Raises CotextError if it is not such an object, or the row numbers are not 0, 1, 2 ...
    """
    rows = read_object(content, what)
    if len(rows) > MAX_VOCABULARY:
        raise CotextError(f"{what}: more than {MAX_VOCABULARY:,} pieces")
    names: list[str | None] = [None] * len(rows)
    for name, row in rows.items():
        if type(row) is not int or not 0 <= row < len(names) or names[row] is not None:
            raise CotextError(
                f"{what}: damaged: piece {shown(name)} has the number {shown(row)}; numbers must "
                "run from 0 without gaps"
            )
        names[row] = name
    return [name for name in names if name is not None]


def extended(names: Sequence[str], rows: int | None, what: str) -> list[str]:
    """Return names for all rows of a matrix, which may have more rows than the vocabulary has names.

    Raises CotextError if the matrix has fewer rows than names, or too many.
    """
    if rows is None:
        return list(names)
    if not len(names) <= rows <= MAX_VOCABULARY:
        raise CotextError(
            f"{what}: {len(names):,} pieces, but {rows:,} rows; the files belong to different models"
        )
    return [*names, *(f"madeupword{row}" for row in range(len(names), rows))]


def unnamed(names: Sequence[str]) -> set[str]:
    """Return the names of the unused rows at the end, which `extended` or fairseq adds."""
    return set(takewhile(lambda name: name.startswith("madeupword"), reversed(names)))


_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029▁]")


def one_line(text: str) -> str:
    """Return the text as one line; control characters, line separators and runs of spaces become a space."""
    return " ".join(part for part in _BREAKS.sub(" ", text).split(" ") if part)


@dataclass(frozen=True, slots=True)
class TextSide:
    """The sentencepiece model and the vocabulary of one side."""

    model: SentencePieceProcessor
    table: PieceTable


class ImportedTokenizer(Tokenizer):
    """A tokenizer of a pretrained model.

    `rows`: row of the imported target matrix (and output layer) for each subword. `source_rows`: row of the
    source matrix for each subword. `pieces`: number of target subwords. The special symbols have the next ids
    on both sides, so the ids of further source subwords are shifted by their number. `chosen`: the chosen
    languages, by the names of their symbols.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        source: TextSide,
        target: TextSide,
        languages: Mapping[str, int],
        chosen: Languages,
    ) -> None:
        """Create a tokenizer from both sides, and the id of the symbol of every language.

        Raises CotextError if a chosen language is unknown, or the sides have different ids of the unknown
        token.
        """
        self._sides: Mapping[Side, TextSide] = {"source": source, "target": target}
        self.languages, self.chosen = languages, chosen
        self.rows, self.source_rows = target.table.rows, source.table.rows
        super().__init__(files, len(self.rows), target.table.unk, len(self.source_rows))
        self.separate_vocabularies = source.table is not target.table
        self.unwritten = tuple(sorted(target.table.symbols))
        if source.table.unk != self.unk:
            raise CotextError("the two vocabularies have different numbers for the unknown piece")
        self.source_prefix, self.target_prefix = self._prefixes()

    def _prefixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids at the beginning of every source and every target sequence."""
        source, target = (
            (self.languages[self._found(name, f"the {side} language")],) if name else ()
            for side, name in (("source", self.chosen.source), ("target", self.chosen.target))
        )
        return source, target

    def lacking(self) -> list[Side]:
        """Return the sides whose language must be chosen, but is not."""
        chosen: dict[Side, str] = {"source": self.chosen.source, "target": self.chosen.target}
        return [side for side, name in chosen.items() if not name]

    def names_alike(self, code: str) -> list[str]:
        """Return the language with this name, otherwise the languages with this code before `_` or `-`."""
        if code in self.languages:
            return [code]
        return [name for name in self.languages if re.split("[_-]", name)[0] == code]

    def with_languages(self, source: str, target: str) -> Self:
        """Return the tokenizer for other languages; an empty language means no change.

        Raises CotextError if there is no symbol for a language.
        """
        chosen = Languages(
            self._found(source, "--source-language") if source else self.chosen.source,
            self._found(target, "--target-language") if target else self.chosen.target,
        )
        sides = self._sides["source"], self._sides["target"]
        return type(self)(self._files, *sides, self.languages, chosen)

    def _found(self, code: str, option: str) -> str:
        """Return the language with this name or, if only one matches, with this code before `_` or `-`."""
        matches = self.names_alike(code)
        if len(matches) == 1:
            return matches[0]
        available = ", ".join(matches or self.languages) or "none"
        raise CotextError(
            f"{option} {shown(code)}: not among the languages of the tokenizer; there are: {available}"
        )

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        model, table = self._sides[side].model, self._sides[side].table
        texts = [SURROGATE.sub("", sentence) for sentence in sentences]
        split = encode_all(model, texts, str)
        ids = [[table.ids.get(piece, table.unk) for piece in pieces] for pieces in split]
        if len(table.rows) <= self.pieces:
            return ids
        return [[i if i < self.pieces else i + SPECIAL_SYMBOLS for i in sentence] for sentence in ids]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        model, table = self._sides[side].model, self._sides[side].table
        pieces = [int(i) for i in ids if not self.pieces <= i < self.vocabulary_size]
        pieces = [i if i < self.pieces else i - SPECIAL_SYMBOLS for i in pieces]
        names = [table.names[i] for i in pieces if i < len(table.names) and i not in table.symbols]
        return one_line(model.decode(names)) if names else ""

    def blank(self) -> list[int]:
        return list(self._blank)

    @cached_property
    def _blank(self) -> tuple[int, ...]:
        side = self._sides["target"]
        names = side.table.names
        return tuple(i for i in super().blank() if not is_part_of_character(side.model, names[i]))

    def _choice(self) -> dict[str, Any]:
        return {"languages": asdict(self.chosen)}


# --- The tokenizer of MarianMT (OPUS-MT): two sentencepiece models, and the vocabulary of Marian.
#
# As in `MarianTokenizer` of transformers, text is split by the model of its side without normalisation.
# vocab.json maps subwords to ids; other subwords become `<unk>`. There is one difference: in transformers,
# `>>deu<<` at the beginning of a text is a symbol. Here it is text, and the symbol comes from the chosen
# target language.

_OPENING, _CLOSING = ">>", "<<"


class MarianTokenizer(ImportedTokenizer):
    """One sentencepiece model per side, and a vocabulary for both sides or one for each.

    If the vocabulary has tags, the target language is a tag at the beginning of the source.
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
        """Create the tokenizer from the contents of source.spm, target.spm, vocab.json and target_vocab.json.

        The last file exists only with separate vocabularies. `rows` is the number of rows of the embedding
        matrix, if it is larger than the vocabulary; `target_rows` is this number for the target embedding.

        Raises CotextError if a file is invalid, or the files belong to different models.
        """
        files = {"source.spm": source_spm, "target.spm": target_spm}
        files["vocab.json"] = _of_rows(vocabulary, rows, "vocab.json")
        if target_vocabulary is not None:
            files["target_vocab.json"] = _of_rows(target_vocabulary, target_rows, "target_vocab.json")
        return cls.from_stored(files, Languages()).with_languages("", target_language)

    @classmethod
    def from_stored(cls, files: Mapping[str, bytes], chosen: Languages) -> Self:
        """Create the tokenizer from the files that `save` wrote; raises CotextError like `from_files`."""
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
        """Return the target side, if there are several tags and none is chosen."""
        return ["target"] if len(self.languages) > 1 and not self.chosen.target else []

    def with_languages(self, source: str, target: str) -> Self:
        """Return the tokenizer for another target language; the source language is ignored (no symbol)."""
        return super().with_languages("", target)


def _is_tag(name: str) -> bool:
    return name.startswith(_OPENING) and name.endswith(_CLOSING) and len(name) > len(_OPENING + _CLOSING)


def _table(vocabulary: bytes, what: str) -> PieceTable:
    names = read_vocabulary(vocabulary, what)
    return PieceTable.of(names, {name for name in names if _is_tag(name)} | unnamed(names), what)


def _of_rows(vocabulary: bytes, rows: int | None, what: str) -> bytes:
    """Return the vocabulary with a name for every row of the matrix; unchanged if every row has a name."""
    names = read_vocabulary(vocabulary, what)
    if rows is None or rows == len(names):
        return vocabulary
    named = {name: row for row, name in enumerate(extended(names, rows, what))}
    return json.dumps(named, ensure_ascii=False).encode()


# --- Tokenizers of the many-to-many models of fairseq: M2M-100, NLLB-200 and mBART-50.
#
#     row       0    1      2     3      4 ...          languages          further rows
#     symbol    <s>  <pad>  </s>  <unk>  subwords       __de__ / deu_Latn  <mask>, rows without a name
#
# Rows are the rows of the embedding matrix. For M2M-100, vocab.json maps subwords to ids. For the other
# models, the id is the sentencepiece id plus one, because of `<pad>`. On both sides, a sequence begins with
# the symbol of its language: `[source] X </s>` and, for the decoder, `</s> [target] Y </s>`.

MODEL, PIECES, LANGUAGES = "sentencepiece.bpe.model", "pieces.json", "languages.json"
CONFIG = "tokenizer_config.json"
_BEGIN = "<s>"
_OTHER: Final = frozenset({_BEGIN, "<mask>"})

# Language codes in the order of their rows in the embedding matrix (Fan et al. 2021; Tang et al. 2021). Some
# published folders do not contain these lists.
_M2M100 = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu
hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt
ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
_MBART50 = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP
nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN
mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
M2M100_LANGUAGES: Final = tuple(f"__{code}__" for code in _M2M100.split())
MBART50_LANGUAGES: Final = tuple(_MBART50.split())


class FairseqTokenizer(ImportedTokenizer):
    """One sentencepiece model for both sides, and a symbol for every language."""

    kind = "fairseq"
    required = (MODEL, PIECES, LANGUAGES)
    optional = ()

    @classmethod
    def from_files(
        cls,
        model: bytes,
        *,
        languages: Mapping[str, int] | Sequence[str],
        vocabulary: bytes | None = None,
        rows: int | None = None,
        source_language: str = "",
        target_language: str = "",
    ) -> Self:
        """Create the tokenizer from sentencepiece.bpe.model and, for M2M-100, vocab.json.

        `languages` is a mapping of language symbols to rows, or a sequence of symbols whose rows follow the
        subwords. `rows` is the number of rows of the embedding matrix.

        Raises CotextError if a file is invalid, or the symbols or rows contradict the vocabulary.
        """
        names: list[str] = (
            _of_model(model) if vocabulary is None else read_vocabulary(vocabulary, "vocab.json")
        )
        if not isinstance(languages, Mapping):
            languages = {name: len(names) + i for i, name in enumerate(languages)}
        if not languages:
            raise CotextError(
                "the tokenizer files define no language symbols; pass the complete folder of the model"
            )
        names = _placed(names, languages)
        named = {name: row for row, name in enumerate(extended(names, rows, MODEL))}
        codes = {name.strip("_"): name for name in sorted(languages, key=lambda name: languages[name])}
        files = {
            MODEL: model,
            PIECES: json.dumps(named, ensure_ascii=False).encode(),
            LANGUAGES: json.dumps(codes, ensure_ascii=False).encode(),
        }
        return cls.from_stored(files, Languages()).with_languages(source_language, target_language)

    @classmethod
    def from_stored(cls, files: Mapping[str, bytes], chosen: Languages) -> Self:
        """Create the tokenizer from the files that `save` wrote; raise the same errors as `from_files`."""
        names = read_vocabulary(files[PIECES], PIECES)
        codes, known = read_object(files[LANGUAGES], LANGUAGES), {*names} - {END, PADDING, UNKNOWN}
        if not codes or not all(isinstance(name, str) and name in known for name in codes.values()):
            raise CotextError(f"{LANGUAGES}: damaged: not a JSON object that maps languages to symbols")
        table = PieceTable.of(names, {*codes.values(), *_OTHER, *unnamed(names)}, PIECES)
        side = TextSide(open_model(files[MODEL], MODEL), table)
        numbers = {name: i for i, name in enumerate(table.names)}
        return cls(files, side, side, {code: numbers[name] for code, name in codes.items()}, chosen)


def _of_model(content: bytes) -> list[str]:
    """Return the symbols of all rows of a model that uses the ids of sentencepiece, with `<pad>` inserted."""
    model = open_model(content, MODEL)
    count: int = model.get_piece_size()
    begins = count > 3 and model.is_unknown(0) and model.is_control(1) and model.is_control(2)
    if not begins or count > MAX_VOCABULARY:
        raise CotextError(
            f"{MODEL}: not a model of fairseq: its first pieces are not <unk>, <s> and </s>, or it has more "
            f"than {MAX_VOCABULARY:,} pieces"
        )
    return [_BEGIN, PADDING, END, UNKNOWN, *(model.id_to_piece(i) for i in range(3, count))]


def _placed(names: Sequence[str], symbols: Mapping[str, int]) -> list[str]:
    """Insert symbols into the list of row names; rows between symbols get an artificial name."""
    named = dict(enumerate(names))
    known = {name: row for row, name in named.items()}
    for name, row in symbols.items():
        if not 0 <= row < MAX_VOCABULARY or named.get(row, name) != name or known.get(name, row) != row:
            raise CotextError(
                f"row {row} of the symbol {shown(name)} conflicts with the vocabulary of {len(names):,} "
                "pieces"
            )
        named[row], known[name] = name, row
    return [named.get(row, f"madeupword{row}") for row in range(max(named) + 1)]


def language_symbols(files: Mapping[str, bytes]) -> dict[str, int] | list[str]:
    """Return the language symbols in the configuration files of a published tokenizer.

    `files` maps names of existing files to contents: tokenizer.json, tokenizer_config.json,
    added_tokens.json and special_tokens_map.json. Return a mapping of symbols to rows
    if the rows are given. Otherwise, return a list of symbols in the order of their rows; it may be empty.

    Raises CotextError if a file is not a JSON object.
    """
    # Numbers in CONFIG are not needed; an unknown model_max_length is 10^30, which would be rejected.
    read = {name: read_object(files[name], name, numbers=name != CONFIG) for name in files}
    symbols = {name: row for name, row in _numbered(read) if _is_language(name)}
    if symbols:
        return symbols
    for name in ("special_tokens_map.json", CONFIG):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            listed = read.get(name, {}).get(key)
            names = [_content(symbol) for symbol in listed] if isinstance(listed, list) else []
            if languages := [name for name in names if _is_language(name)]:
                return languages
    return []


def _numbered(read: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return all added symbols and their rows."""
    rows: list[tuple[str, Any]] = []
    listed = read.get("tokenizer.json", {}).get("added_tokens")
    if isinstance(listed, list):
        rows += [(_content(symbol), symbol.get("id")) for symbol in listed if isinstance(symbol, dict)]
    by_row = read.get(CONFIG, {}).get("added_tokens_decoder")
    if isinstance(by_row, dict):
        numbered = ((row, symbol) for row, symbol in by_row.items() if row.isdecimal() and len(row) < 10)
        rows += [(_content(symbol), int(row)) for row, symbol in numbered]
    rows += list(read.get("added_tokens.json", {}).items())
    return [(name, row) for name, row in rows if isinstance(name, str) and type(row) is int]


def _content(symbol: Any) -> str:
    """Return the text of a symbol, which may be an object with further settings."""
    text = symbol.get("content") if isinstance(symbol, dict) else symbol
    return text if isinstance(text, str) else ""


def _is_language(name: str) -> bool:
    """Return whether a symbol has the form of `__de__`, `de_DE` or `deu_Latn`."""
    first, _, rest = name.strip("_").partition("_")
    bare = name.startswith("__") and name.endswith("__") and not rest
    return (
        first.isascii()
        and first.isalpha()
        and first.islower()
        and 2 <= len(first) <= 3
        and (bare or (rest.isascii() and rest.isalpha() and rest[:1].isupper() and 2 <= len(rest) <= 4))
    )
