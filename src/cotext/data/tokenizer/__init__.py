"""Tokenizers: encoding of text to ids of subwords, and decoding.

Both languages share one vocabulary; tokenizers of pretrained models may have two. Ids 0 .. P-1 are the ids of
the subword model. The special symbols follow: pad = P, bos = P+1, eos = P+2 and sep = P+3. So no text can be
encoded as a special symbol.
"""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from cotext.data.documents import Languages
from cotext.data.tokenizer.imported import M2M100_LANGUAGES as M2M100_LANGUAGES
from cotext.data.tokenizer.imported import MBART50_LANGUAGES as MBART50_LANGUAGES
from cotext.data.tokenizer.imported import FairseqTokenizer as FairseqTokenizer
from cotext.data.tokenizer.imported import ImportedTokenizer as ImportedTokenizer
from cotext.data.tokenizer.imported import MarianTokenizer as MarianTokenizer
from cotext.data.tokenizer.imported import language_symbols as language_symbols
from cotext.data.tokenizer.protocol import (
    FORMAT_VERSION,
    MAX_VOCABULARY,
    SentencePieceBPETokenizer,
    fingerprint_of,
)
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS as SPECIAL_SYMBOLS
from cotext.data.tokenizer.protocol import MosesBPETokenizer as MosesBPETokenizer
from cotext.data.tokenizer.protocol import SentencePieceTokenizer as SentencePieceTokenizer
from cotext.data.tokenizer.protocol import Side as Side
from cotext.data.tokenizer.protocol import Tokenizer as Tokenizer
from cotext.data.tokenizer.protocol import TokenizerSettings as TokenizerSettings
from cotext.data.tokenizer.protocol import clean as clean
from cotext.runtime import CotextError, naming, read_bytes, read_json, shown

SIDES: Final[tuple[Side, ...]] = get_args(Side)
MAX_MODEL_BYTES = 1 << 28  # 268 bytes per subword of the largest vocabulary


def reservoir_sample(sentences: Iterable[str], size: int | None, seed: int) -> tuple[list[str], int]:
    """Draw up to `size` non-empty sentences at random in one pass, or all of them if `size` is None.

    Return them, and the number of non-empty sentences.
    """
    generator = random.Random(seed)
    sample: list[str] = []
    seen = 0
    for sentence in sentences:
        if not sentence:
            continue
        seen += 1
        if size is None or len(sample) < size:
            sample.append(sentence)
        elif (slot := generator.randrange(seen)) < size:
            sample[slot] = sentence
    return sample, seen


KINDS: Final[Mapping[str, type[SentencePieceTokenizer | MosesBPETokenizer]]] = {
    SentencePieceTokenizer.kind: SentencePieceTokenizer,
    SentencePieceBPETokenizer.kind: SentencePieceBPETokenizer,
    MosesBPETokenizer.kind: MosesBPETokenizer,
}
# Tokenizers of pretrained models, which cannot be trained here.
IMPORTED: Final[Mapping[str, type[MarianTokenizer | FairseqTokenizer]]] = {
    MarianTokenizer.kind: MarianTokenizer,
    FairseqTokenizer.kind: FairseqTokenizer,
}


def train_tokenizer(sentences: Iterable[str], settings: TokenizerSettings) -> Tokenizer:
    """Train a tokenizer on a random sample of the sentences of both languages.

    Raises CotextError for a vocabulary that is too large for the text, or too small for its characters.
    """
    sample = settings.sample_sentences
    vocabulary = 1 if settings.vocabulary is None else settings.vocabulary
    if vocabulary < 1 or (sample is not None and sample < 1):
        raise CotextError("the vocabulary and the sample of the tokenizer need at least one element")
    if vocabulary > MAX_VOCABULARY:
        raise CotextError(f"a vocabulary has at most {MAX_VOCABULARY:,} subwords; reduce --vocabulary")
    drawn, count = reservoir_sample(sentences, sample, settings.seed)
    cleaned = [sentence for sentence in map(clean, drawn) if sentence]
    if not cleaned:
        raise CotextError("there is no text to train a tokenizer on: every sentence is empty")
    return KINDS[settings.kind].train(cleaned, settings, count)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load a tokenizer; raises CotextError if a file is missing, damaged or of another version."""
    description_path = folder / "tokenizer.json"
    description = read_json(description_path)
    try:
        version, kind, fingerprint = description["version"], description["kind"], description["fingerprint"]
    except KeyError as error:
        raise CotextError(
            f"{description_path}: not the description of a tokenizer, or cut off: no {error}"
        ) from error
    if version != FORMAT_VERSION:
        raise CotextError(
            f"{description_path}: tokenizer format {shown(version)}, but this version reads "
            f"{FORMAT_VERSION}; prepare the corpus again"
        )
    if not isinstance(kind, str) or kind not in {*KINDS, *IMPORTED}:
        raise CotextError(
            f"{description_path}: unknown tokenizer {shown(kind)}; this version supports "
            f"{', '.join((*KINDS, *IMPORTED))}"
        )
    chosen: Languages | None = None
    if kind in IMPORTED:
        names, chosen = _imported_files(description_path, description)
    else:
        names = [KINDS[kind].model_name]
    files = {name: read_bytes(folder / name, MAX_MODEL_BYTES) for name in names}
    if fingerprint_of(kind, files) != fingerprint:
        raise CotextError(
            f"{folder / names[0]}: not the model that tokenizer.json next to it describes (cut off, or "
            "copied from elsewhere); copy the whole folder again"
        )
    tokenizer: Tokenizer
    with naming(folder):
        if chosen is None:
            tokenizer = KINDS[kind](files[names[0]])
        else:
            tokenizer = IMPORTED[kind].from_stored(files, chosen)
    if description != tokenizer.description():
        raise CotextError(
            f"{description_path}: damaged: does not describe the model next to it; copy the full folder again"
        )
    return tokenizer


def _imported_files(path: Path, description: Mapping[str, Any]) -> tuple[list[str], Languages]:
    """Return the names of the model files of an imported tokenizer, and its languages."""
    kind = IMPORTED[description["kind"]]
    listed, languages = description.get("model"), description.get("languages")
    names = [name for name in (*kind.required, *kind.optional) if isinstance(listed, list) and name in listed]
    if listed != names or not {*kind.required} <= {*names}:
        raise CotextError(f"{path}: damaged: the list of files does not fit this kind of tokenizer")
    if not isinstance(languages, dict) or not all(isinstance(languages.get(side), str) for side in SIDES):
        raise CotextError(f"{path}: damaged: names no languages")
    return names, Languages(languages["source"], languages["target"])


def choose_languages(tokenizer: Tokenizer, source: str, target: str) -> Tokenizer:
    """Return the tokenizer for other languages; an empty language means no change.

    Raises CotextError if the tokenizer has no symbol for the language.
    """
    if not source and not target:
        return tokenizer
    if not isinstance(tokenizer, ImportedTokenizer):
        raise CotextError(
            f"the tokenizer ({tokenizer.kind}) has no language symbols to choose {source or target}, "
            "and supports one pair; remove the language"
        )
    return tokenizer.with_languages(source, target)


def chosen_languages(tokenizer: Tokenizer) -> str:
    """Return the chosen languages, such as "eng_Latn-deu_Latn" or "-deu"; empty if there are none."""
    if not isinstance(tokenizer, ImportedTokenizer):
        return ""
    chosen = tokenizer.chosen
    return f"{chosen.source}-{chosen.target}" if chosen.source or chosen.target else ""


def require_languages(tokenizer: Tokenizer, options: str) -> None:
    """Raise CotextError if a multilingual tokenizer needs a choice of languages by `options`."""
    if isinstance(tokenizer, ImportedTokenizer) and (lacking := tokenizer.lacking()):
        raise CotextError(
            f"the tokenizer has many languages, but no {' and no '.join(lacking)} language is chosen; give "
            f"{options} one of: {', '.join(tokenizer.languages)}"
        )
