"""Lines with several sentences: detection, warnings, and splitting for sentence-by-sentence translation.

A system trained on one sentence per line may translate a line of ten sentences as one. Such lines are
detected by punctuation (`cotext.data.splitting`).
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from cotext.data.documents import Document, Languages
from cotext.data.splitting import Splitter, join_sentences, several_warning
from cotext.runtime import CotextError
from cotext.translation.translator import OF_SENTENCES, Translation

SENTENCES_HELD: Final = 1 << 14  # lines whose sentences are cached


class Prose:
    """Detection of lines with several sentences and, with a splitter, their splitting.

    Without a splitter, lines are detected by the rules of the source language.
    """

    def __init__(self, splitter: Splitter | None, languages: Languages) -> None:
        self._splitter = splitter
        self._target_language = languages.target
        detector = splitter or Splitter(languages.source)
        # Cached: each line is split when it is counted, split and joined.
        self.sentences = lru_cache(maxsize=SENTENCES_HELD)(detector.sentences)
        self.lines = self.several = self.split_lines = self.split_sentences = 0
        self.first: int | None = None  # index in its document of the first such line

    @property
    def settings(self) -> str:
        """The settings of splitting; empty without a splitter."""
        return self._splitter.name if self._splitter else ""

    def count(self, document: Document) -> Document:
        """Split a document like `split`, and count its lines with several sentences."""
        for index, line in enumerate(document.sentences):
            if len(self.sentences(line)) > 1:
                self.several += 1
                self.first = index if self.first is None else self.first
        lines = self._pieces(document)
        self.lines += len(lines)
        self.split_lines += sum(len(sentences) > 1 for sentences in lines)
        self.split_sentences += sum(len(sentences) for sentences in lines if len(sentences) > 1)
        return _of_pieces(document, lines)

    def split(self, document: Document) -> Document:
        """Split lines with several sentences; without a splitter, return the document."""
        return _of_pieces(document, self._pieces(document))

    def join(self, document: Document, translation: Translation) -> Translation:
        """Join the translation of a split document, so that it has as many lines as the document."""
        split_lines = self._pieces(document)
        if len(translation.document.sentences) == len(split_lines):
            return translation
        line_of = [line for line, sentences in enumerate(split_lines) for _ in sentences]
        lines: list[list[str]] = [[] for _ in split_lines]
        log_probabilities, tokens = [0.0] * len(split_lines), [0] * len(split_lines)
        source = [sentence for sentences in split_lines for sentence in sentences]
        # A line gets the sum of the log-probabilities of its sentences, and all their flags.
        for index, sentence in enumerate(translation.document.sentences):
            # A sentence without tokens is copied. One that free search omitted stays empty.
            copied = "" if index in translation.missing else source[index]
            lines[line_of[index]].append(sentence or copied)
            if translation.log_probabilities:
                log_probabilities[line_of[index]] += translation.log_probabilities[index]
            tokens[line_of[index]] += translation.tokens[index]
        joined = tuple(join_sentences(line, self._target_language) for line in lines)
        indices = {
            name: tuple(dict.fromkeys(line_of[index] for index in getattr(translation, name)))
            for name in OF_SENTENCES
        }
        return replace(
            translation,
            document=Document(document.id, joined),
            log_probabilities=tuple(log_probabilities) if translation.log_probabilities else (),
            tokens=tuple(tokens),
            lists=(),  # of sentences, not of lines
            **indices,
        )

    def message(self, path: Path, first: str) -> str:
        """Return a warning about the counted lines (`first`: place of the first); empty if there are none."""
        if self.first is None:
            return ""
        several = several_warning(self.several, self.lines, "lines")
        start = f"{path}: {several} (by punctuation only); the first is {first}. "
        if self._splitter is not None:
            return (
                f"{start}{self.split_lines:,} are split into {self.split_sentences:,} sentences, translated "
                "and joined again"
            )
        return (
            f"{start}The system was trained on one sentence per line and may omit parts of such lines; "
            "without --no-split these lines are split, their sentences translated and joined again"
        )

    def require_a_sentence_a_line(self, first: str) -> None:
        """Raise CotextError if lines are split, because lines then have no n-best lists."""
        if self.split_lines:
            raise CotextError(
                f"{first}: looks like several sentences, but decode.nbest needs one sentence per line; "
                "add --no-split to translate lines unchanged, or --set nbest=1"
            )

    def _pieces(self, document: Document) -> list[list[str]]:
        if self._splitter is None:
            return [[line] for line in document.sentences]
        return [self.sentences(line) or [line] for line in document.sentences]


def _of_pieces(document: Document, pieces: list[list[str]]) -> Document:
    if len(pieces) == sum(map(len, pieces)):
        return document
    return Document(document.id, tuple(sentence for sentences in pieces for sentence in sentences))
