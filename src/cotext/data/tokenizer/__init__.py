"""Tokenizers: encoding of text to ids of subwords, and decoding.

Both languages share one vocabulary; tokenizers of pretrained models may have two. Ids 0 .. P-1 are the ids of
the subword model. The special symbols follow: pad = P, bos = P+1, eos = P+2 and sep = P+3. So no text can be
encoded as a special symbol.
"""

from cotext.data.tokenizer.fairseq import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
    language_symbols,
)
from cotext.data.tokenizer.imported import ImportedTokenizer, LanguageChoice, MarianTokenizer
from cotext.data.tokenizer.kinds import (
    KINDS,
    choose_languages,
    chosen_languages,
    load_tokenizer,
    require_languages,
    reservoir_sample,
    train_tokenizer,
)
from cotext.data.tokenizer.moses_bpe import MosesBPETokenizer
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS, Side, Tokenizer, TokenizerSettings, clean
from cotext.data.tokenizer.sentencepiece import SentencePieceBPETokenizer, SentencePieceTokenizer

__all__ = [
    "KINDS",
    "M2M100_LANGUAGES",
    "MBART50_LANGUAGES",
    "SPECIAL_SYMBOLS",
    "FairseqTokenizer",
    "ImportedTokenizer",
    "LanguageChoice",
    "MarianTokenizer",
    "MosesBPETokenizer",
    "SentencePieceBPETokenizer",
    "SentencePieceTokenizer",
    "Side",
    "Tokenizer",
    "TokenizerSettings",
    "choose_languages",
    "chosen_languages",
    "clean",
    "language_symbols",
    "load_tokenizer",
    "require_languages",
    "reservoir_sample",
    "train_tokenizer",
]
