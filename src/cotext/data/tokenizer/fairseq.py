"""Tokenizers of the many-to-many models of fairseq: M2M-100, NLLB-200 and mBART-50.

    row       0    1      2     3      4 ...          languages          further rows
    symbol    <s>  <pad>  </s>  <unk>  subwords       __de__ / deu_Latn  <mask>, rows without a name

Rows are the rows of the embedding matrix. For M2M-100, vocab.json maps subwords to ids. For the other models,
the id is the sentencepiece id plus one, because of `<pad>`. On both sides, a sequence begins with the symbol
of its language: `[source] X </s>` and, for the decoder, `</s> [target] Y </s>`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from cotext.data.tokenizer.imported import (
    END,
    PADDING,
    UNKNOWN,
    ImportedTokenizer,
    LanguageChoice,
    PieceTable,
    TextSide,
    extended,
    read_object,
    read_vocabulary,
    unnamed,
)
from cotext.data.tokenizer.protocol import MAX_VOCABULARY
from cotext.data.tokenizer.sentencepiece import open_model
from cotext.runtime import CotextError, shown

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
        others: Mapping[str, int] | None = None,
        rows: int | None = None,
        source_language: str = "",
        target_language: str = "",
    ) -> Self:
        """Create the tokenizer from sentencepiece.bpe.model and, for M2M-100, vocab.json.

        `languages` is a mapping of language symbols to rows, or a sequence of symbols whose rows follow the
        subwords. `others` maps further symbols, such as `<mask>`, to their rows. `rows` is the number of rows
        of the embedding matrix.

        Raises CotextError if a file is invalid, or symbols and rows do not match it.
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
        names = _placed(names, {**languages, **(others or {})})
        named = {name: row for row, name in enumerate(extended(names, rows, MODEL))}
        codes = {name.strip("_"): name for name in sorted(languages, key=lambda name: languages[name])}
        files = {
            MODEL: model,
            PIECES: json.dumps(named, ensure_ascii=False).encode(),
            LANGUAGES: json.dumps(codes, ensure_ascii=False).encode(),
        }
        return cls.from_stored(files, LanguageChoice()).with_languages(source_language, target_language)

    @classmethod
    def from_stored(cls, files: Mapping[str, bytes], chosen: LanguageChoice) -> Self:
        """Create the tokenizer from the files that `save` wrote; raise the same errors as `from_files`."""
        names = read_vocabulary(files[PIECES], PIECES)
        codes = _read_languages(files[LANGUAGES], names)
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


def _read_languages(content: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return a mapping of language codes to language symbols."""
    symbols = read_object(content, LANGUAGES)
    known = {*names} - {END, PADDING, UNKNOWN}
    if not symbols or not all(isinstance(name, str) and name in known for name in symbols.values()):
        raise CotextError(f"{LANGUAGES}: damaged: not a JSON object that maps languages to symbols")
    return symbols


def language_symbols(files: Mapping[str, bytes]) -> dict[str, int] | list[str]:
    """Return the language symbols in the configuration files of a published tokenizer.

    `files` maps names of existing files to contents: tokenizer.json, tokenizer_config.json,
    added_tokens.json and special_tokens_map.json. Return a mapping of symbols to rows
    if the rows are given. Otherwise, return a list of symbols in the order of their rows; it may be empty.

    Raises CotextError if a file is not a JSON object.
    """
    # Transformers writes 10^30 as model_max_length if a length is unknown; no number of this file is needed.
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
        rows += [(_content(symbol), int(row)) for row, symbol in by_row.items() if row.isdecimal()]
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
