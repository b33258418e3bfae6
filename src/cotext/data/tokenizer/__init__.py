"""Subwords and special symbols: text to ids and back, one joint vocabulary for both languages.

Ids 0 .. P-1 belong to the subword model; pad = P, bos = P+1, eos = P+2 and sep = P+3 follow, so that no text,
whatever it contains, can ever be encoded as a special symbol.
"""

from cotext.data.tokenizer.kinds import KINDS, load_tokenizer, reservoir_sample, train_tokenizer
from cotext.data.tokenizer.moses_bpe import MosesBPETokenizer
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS, Side, Tokenizer, TokenizerSettings, clean
from cotext.data.tokenizer.sentencepiece import SentencePieceBPETokenizer, SentencePieceTokenizer

__all__ = [
    "KINDS",
    "SPECIAL_SYMBOLS",
    "MosesBPETokenizer",
    "SentencePieceBPETokenizer",
    "SentencePieceTokenizer",
    "Side",
    "Tokenizer",
    "TokenizerSettings",
    "clean",
    "load_tokenizer",
    "reservoir_sample",
    "train_tokenizer",
]
