"""Lines of several sentences: detected, warned of, and with a splitter translated sentence by sentence.

A system trained on one sentence a line may give one sentence for a line of ten. Lines of several sentences
are detected by punctuation (`cotext.data.sentence_ends`), or by a length far above that of the training data.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from cotext.data.documents import Document
from cotext.data.languages import Languages
from cotext.data.selection import LONG_TIMES
from cotext.data.sentence_ends import several_warning
from cotext.data.splitting import Splitter, join_sentences
from cotext.data.tokenizer import Tokenizer
from cotext.models.run_folder import noted_data
from cotext.runtime.errors import CotextError
from cotext.translation.scorer import CHARACTERS_PER_TOKEN
from cotext.translation.translator import OF_SENTENCES, Translation

SENTENCES_HELD: Final = 1 << 14  # lines whose sentences are held in memory


def trained_length(run: Path) -> int:
    """The tokens that 99 in 100 source sentences of a run's training data have at most; 0 if it is not noted.

    Noted by `cotext.training.prepared_data.note_data`.
    """
    found = noted_data(run).get("usual_source_tokens", 0)
    return found if type(found) is int and found > 0 else 0


class Prose:
    """Detection of lines of several sentences in documents and, with a splitter, their splitting.

    Without a splitter, the rules of the source language detect them.
    """

    def __init__(
        self, usual_tokens: int, tokenizer: Tokenizer, splitter: Splitter | None, languages: Languages
    ) -> None:
        self._longest = LONG_TIMES * usual_tokens
        self._tokenizer = tokenizer
        self._splitter = splitter
        self._target_language = languages.target
        detector = splitter or Splitter(languages.source)
        # Each line is asked about several times: when it is counted, split and joined.
        self.sentences = lru_cache(maxsize=SENTENCES_HELD)(detector.sentences)
        self.lines = self.several = self.long = self.split_lines = self.split_sentences = 0
        self.first: int | None = None  # in its document, the first line that looks like several

    @property
    def settings(self) -> str:
        """The settings of splitting; empty without a splitter."""
        return self._splitter.name if self._splitter else ""

    def count(self, document: Document) -> Document:
        """The document as `split` gives it; its lines that look like several sentences are counted."""
        for index, line in enumerate(document.sentences):
            several, long = len(self.sentences(line)) > 1, self._is_long(line)
            self.several += several
            self.long += long
            if (several or long) and self.first is None:
                self.first = index
        pieces = self._pieces(document)
        self.lines += len(pieces)
        self.split_lines += sum(len(sentences) > 1 for sentences in pieces)
        self.split_sentences += sum(len(sentences) for sentences in pieces if len(sentences) > 1)
        return _of_pieces(document, pieces)

    def split(self, document: Document) -> Document:
        """The document with lines of several sentences split; as it is without a splitter."""
        return _of_pieces(document, self._pieces(document))

    def join(self, document: Document, translation: Translation) -> Translation:
        """The translation of what `split` gave, with as many lines as the document."""
        pieces = self._pieces(document)
        if len(translation.document.sentences) == len(pieces):
            return translation
        line_of = [line for line, sentences in enumerate(pieces) for _ in sentences]
        lines: list[list[str]] = [[] for _ in pieces]
        log_probabilities, tokens = [0.0] * len(pieces), [0] * len(pieces)
        source = [sentence for sentences in pieces for sentence in sentences]
        for index, sentence in enumerate(translation.document.sentences):
            # A sentence without a translation is copied, as a line without one is.
            copied = "" if index in translation.missing else source[index]
            lines[line_of[index]].append(sentence or copied)
            if translation.log_probabilities:
                log_probabilities[line_of[index]] += translation.log_probabilities[index]
            tokens[line_of[index]] += translation.tokens[index]
        joined = tuple(join_sentences(line, self._target_language) for line in lines)
        of_lines = {
            name: tuple(dict.fromkeys(line_of[index] for index in getattr(translation, name)))
            for name in OF_SENTENCES
        }
        return replace(
            translation,
            document=Document(document.id, joined),
            log_probabilities=tuple(log_probabilities) if translation.log_probabilities else (),
            tokens=tuple(tokens),
            lists=(),  # of sentences, not of lines
            **of_lines,
        )

    def message(self, path: Path, first: str) -> str:
        """A warning of the lines counted, `first` of which stands there; empty where there are none."""
        if self.first is None:
            return ""
        found = []
        if self.several:
            found.append(several_warning(self.several, self.lines, "lines"))
        if self.long:
            found.append(
                f"{self.long:,} {'are' if self.long > 1 else 'is'} more than {LONG_TIMES} times as long as "
                "99 in 100 sentences of the training data"
            )
        which = f"{path}: {' and '.join(found)} (by punctuation and length alone); the first is {first}. "
        if self._splitter is not None:
            return (
                f"{which}{self.split_lines:,} are split into {self.split_sentences:,} sentences, translated "
                "in context and joined again"
            )
        return (
            f"{which}The system was trained on a sentence a line and may leave some of such a line out; "
            "without --no-split these lines are split, their sentences translated in context and joined again"
        )

    def require_a_sentence_a_line(self, first: str) -> None:
        """Refuse lists of translations of lines whose sentences are translated one by one.

        Raises:
            CotextError: lines are split; `first` is where the first stands that looks like several sentences.
        """
        if self.split_lines:
            raise CotextError(
                f"{first}: looks like several sentences, and decode.nbest lists the translations of lines "
                "that are one; add --no-split to translate lines as they are, or --set nbest=1"
            )

    def _is_long(self, line: str) -> bool:
        # A token takes a character or more, but for bytes of characters that the tokenizer does not know.
        if not 0 < self._longest < len(line):
            return False
        # Without splitting it into tokens, which takes memory by the length of the line.
        certain = len(line) > CHARACTERS_PER_TOKEN * self._longest
        return certain or len(self._tokenizer.encode(line)) > self._longest

    def _pieces(self, document: Document) -> list[list[str]]:
        """The sentences of every line."""
        if self._splitter is None:
            return [[line] for line in document.sentences]
        return [self.sentences(line) or [line] for line in document.sentences]


def _of_pieces(document: Document, pieces: list[list[str]]) -> Document:
    if len(pieces) == sum(map(len, pieces)):
        return document
    return Document(document.id, tuple(sentence for sentences in pieces for sentence in sentences))
