"""Moses tokenisation with byte pair encoding by subword-nmt, for replication."""

import contextlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from cotext.data.tokenizer.protocol import SPECIAL_SYMBOLS, Side, TokenizerSettings, clean
from cotext.data.tokenizer.storage import fingerprint_of, save
from cotext.data.tokenizer.words import TruecaseModel, WordSplitter, jieba_version
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

MERGES: Final = 32_000  # of the papers, whatever the size of the corpus


class _Extra(NamedTuple):
    apply_bpe: Any
    learn_bpe: Any


class MosesBPETokenizer:
    """Moses tokenisation, then byte-pair encoding (Sennrich et al. 2016), as the papers of the field used.

    For replication: slower than sentencepiece, and the Moses rules do not give every text back exactly.
    `words` splits sentences before: with Jieba for Chinese, truecased, where its settings say so.
    """

    kind = "moses-bpe"
    model_name = "bpe.json"
    files = ("bpe.json",)
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()

    def __init__(self, model: bytes) -> None:
        """Wrap a trained model; raises CotextError when it is damaged or the extra is not installed."""
        extra = _replication_extra()
        try:
            content = parse_json(model.decode(), "the model")
        except (ValueError, CotextError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        try:
            self.words, codes = WordSplitter.of(content), str(content["codes"])
            self._pieces = [str(piece) for piece in content["pieces"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        self._model = model
        self.fingerprint = fingerprint_of(self.kind, model)
        self._bpe = extra.apply_bpe.BPE(io.StringIO(codes))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.pieces = len(self._pieces)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.source_vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.separate_vocabularies = False
        self.unk = 0

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings, corpus_sentences: int = 0) -> Self:
        """Learn `vocabulary` merges from clean, non-empty sentences; by default 32,000, as the papers."""
        extra = _replication_extra()
        splitter = WordSplitter(settings.language, jieba_version() if settings.jieba else "")
        if settings.truecase:
            learned = TruecaseModel.learn([splitter.split(line) for line in sample])
            splitter = replace(splitter, truecase=learned)
        words = Counter(word for line in sample for word in splitter.split(line))
        counts = [f"{word} {count}" for word, count in words.items()]
        merged = io.StringIO()
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # it writes a progress bar there
                extra.learn_bpe.learn_bpe(counts, merged, settings.vocabulary or MERGES, is_dict=True)
        except ValueError as error:  # its maximum over no pairs
            raise CotextError("the text has no pair of characters to merge") from error
        codes = merged.getvalue()
        merges = codes.count("\n") - 1  # the first line is a version
        if settings.vocabulary is not None and merges < settings.vocabulary:
            raise CotextError(
                f"the text supports {merges} merges, fewer than the {settings.vocabulary} asked for: ask for "
                "at most that, or for no size to get the largest possible"
            )
        segmenter = extra.apply_bpe.BPE(io.StringIO(codes))
        frequencies: Counter[str] = Counter()
        for word, count in words.items():
            for piece in segmenter.segment_tokens([word]):
                frequencies[piece] += count
        # Every character, with and without a continuation, so that an unseen word still has pieces.
        for character in {character for word in words for character in word}:
            frequencies[character] += 0
            frequencies[character + "@@"] += 0
        pieces = ["<unk>", *sorted(frequencies, key=lambda piece: (-frequencies[piece], piece))]
        content = {**splitter.as_dict(), "codes": codes, "pieces": pieces}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        words = self.words.split(clean(sentence))
        return [self._ids.get(piece, self.unk) for piece in self._bpe.segment_tokens(words)]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the detokenised text as one line; an unknown piece shows as "⁇"."""
        pieces = ("⁇" if i == self.unk else self._pieces[i] for i in ids if i < self.pieces)
        words = f"{' '.join(pieces)} ".replace("@@ ", "").split()
        return self.words.join(words)

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""
        return [i for i in range(self.pieces) if not self.decode([i])]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""
        save(folder, self, self.kind, self.model_name, self._model)


def _replication_extra() -> _Extra:
    """The optional packages.

    Raises:
        CotextError: one is not installed.
    """
    try:
        from subword_nmt import apply_bpe, learn_bpe
    except ImportError as error:
        raise CotextError(
            f"the moses-bpe tokenizer needs {error.name}: pip install cotext[replication]"
        ) from error
    return _Extra(apply_bpe, learn_bpe)
