"""Tokenizers: encoding of text to ids of subwords, and decoding.

Both languages share one vocabulary; tokenizers of pretrained models may have two. Ids 0 .. P-1 are the ids of
the subword model. The special symbols follow: pad = P, bos = P+1, eos = P+2 and sep = P+3. So no text can be
encoded as a special symbol.
"""

from cotext.data.tokenizer.fairseq import M2M100_LANGUAGES as M2M100_LANGUAGES
from cotext.data.tokenizer.fairseq import MBART50_LANGUAGES as MBART50_LANGUAGES
from cotext.data.tokenizer.fairseq import FairseqTokenizer as FairseqTokenizer
from cotext.data.tokenizer.fairseq import language_symbols as language_symbols
from cotext.data.tokenizer.imported import ImportedTokenizer as ImportedTokenizer
from cotext.data.tokenizer.imported import LanguageChoice as LanguageChoice
from cotext.data.tokenizer.imported import MarianTokenizer as MarianTokenizer
from cotext.data.tokenizer.kinds import KINDS as KINDS
from cotext.data.tokenizer.kinds import choose_languages as choose_languages
from cotext.data.tokenizer.kinds import chosen_languages as chosen_languages
from cotext.data.tokenizer.kinds import load_tokenizer as load_tokenizer
from cotext.data.tokenizer.kinds import require_languages as require_languages
from cotext.data.tokenizer.kinds import reservoir_sample as reservoir_sample
from cotext.data.tokenizer.kinds import train_tokenizer as train_tokenizer
from cotext.data.tokenizer.moses_bpe import MosesBPETokenizer as MosesBPETokenizer
from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS as SPECIAL_SYMBOLS
from cotext.data.tokenizer.protocol import Side as Side
from cotext.data.tokenizer.protocol import Tokenizer as Tokenizer
from cotext.data.tokenizer.protocol import TokenizerSettings as TokenizerSettings
from cotext.data.tokenizer.protocol import clean as clean
from cotext.data.tokenizer.sentencepiece import SentencePieceTokenizer as SentencePieceTokenizer
