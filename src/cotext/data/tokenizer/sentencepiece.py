"""Tokenizers of the library sentencepiece: unigram model and byte pair encoding."""

import io
import re
from collections.abc import Sequence
from typing import Any, Self

import sentencepiece

from cotext.data.tokenizer.protocol import Side, Tokenizer, TokenizerSettings, clean, usual_vocabulary
from cotext.runtime import CotextError

# In a smaller vocabulary, 256 byte tokens would be a large part.
BYTE_FALLBACK_FROM = 4000
# For fewer sentences, starting a thread takes longer than encoding.
TOGETHER_FROM = 64


def encode_all(
    processor: sentencepiece.SentencePieceProcessor, texts: list[str], out_type: type
) -> list[Any]:
    """Encode each text to ids (`out_type` int) or subwords (str)."""
    if len(texts) < TOGETHER_FROM:
        return [processor.encode(text, out_type=out_type) for text in texts]
    encoded: list[Any] = processor.encode(texts, out_type=out_type, num_threads=1)
    return encoded


def open_model(content: bytes, what: str = "") -> sentencepiece.SentencePieceProcessor:
    """Load a sentencepiece model; raises CotextError for other content. `what` begins the message."""
    problem = "it is empty"  # sentencepiece accepts empty models
    if content:
        try:
            return sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError as error:
            problem = str(error)
    raise CotextError(f"{f'{what}: ' if what else ''}not a sentencepiece model: {problem}")


def is_part_of_character(processor: sentencepiece.SentencePieceProcessor, piece: str) -> bool:
    """Return whether a subword is a byte from 0x80; several of them form a character."""
    return bool(processor.is_byte(processor.piece_to_id(piece))) and int(piece[1:-1], 16) >= 0x80


class SentencePieceTokenizer(Tokenizer):
    """Unigram subwords (Kudo 2018) of text in normal form C.

    With byte fallback, `decode(encode(x)) == clean(x)` for every text. Without it, a character that does not
    occur in the training text decodes to " ⁇ ".
    """

    kind = "sentencepiece"
    model_type = "unigram"
    model_name = "sentencepiece.model"

    def __init__(self, model: bytes) -> None:
        """Load a trained model; raises CotextError if it is not a sentencepiece model."""
        self._processor = open_model(model)
        super().__init__({self.model_name: model}, self._processor.get_piece_size(), self._processor.unk_id())

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings, corpus_sentences: int = 0) -> Self:
        """Train on clean, non-empty sentences of a corpus; raises the errors of `train_tokenizer`."""
        requested = settings.vocabulary
        if requested is None:
            requested = usual_vocabulary(corpus_sentences or len(sample), len(set().union(*sample)))
        byte_fallback = settings.byte_fallback
        if byte_fallback is None:
            byte_fallback = settings.vocabulary is None or requested >= BYTE_FALLBACK_FROM
        coverage = settings.character_coverage
        if coverage is None:
            coverage = 0.9995 if byte_fallback else 1.0
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sample),
                model_writer=model,
                model_type=cls.model_type,
                vocab_size=requested,
                # A soft limit gives the largest possible vocabulary if the text is too small.
                hard_vocab_limit=False,
                character_coverage=coverage,
                byte_fallback=byte_fallback,
                normalization_rule_name="identity",  # `clean` normalises, and preserves more than NFKC
                unk_id=0,
                pad_id=-1,
                bos_id=-1,
                eos_id=-1,
                num_threads=settings.num_threads,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise CotextError(_training_problem(str(error), requested)) from error
        tokenizer = cls(model.getvalue())
        if settings.vocabulary is not None and tokenizer.pieces < settings.vocabulary:
            raise CotextError(
                f"the text can't fill a vocabulary of {settings.vocabulary} pieces; the largest possible is "
                f"{tokenizer.pieces}: request this size, or omit the size to get it"
            )
        return tokenizer

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        return encode_all(self._processor, [clean(s) for s in sentences], int)

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        return clean(self._processor.decode([int(i) for i in ids if i < self.pieces]))

    def blank(self) -> list[int]:
        piece = self._processor.id_to_piece
        return [i for i in super().blank() if not is_part_of_character(self._processor, piece(i))]


class SentencePieceBPETokenizer(SentencePieceTokenizer):
    """Subwords by byte pair encoding (Sennrich et al. 2016); otherwise like `SentencePieceTokenizer`.

    Frequent words, which the unigram model may split, become single subwords.
    """

    kind = "sentencepiece-bpe"
    model_type = "bpe"


def _training_problem(error: str, requested: int) -> str:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if too_small:
        return (
            f"a vocabulary of {requested} pieces cannot contain the characters of the text; request at least "
            f"{too_small[1]}, or lower the character coverage"
        )
    return f"sentencepiece can't train on this text with {requested} pieces: {error}"
