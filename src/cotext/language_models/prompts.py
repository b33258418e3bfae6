"""The content of a request, and its prompt."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotext.data.languages import Languages
from cotext.language_models.config import Endpoint, filled
from cotext.language_models.numbered import numbered, one_line, read_numbered, read_plain
from cotext.runtime.errors import CotextError

_CONTEXT: Final = "\nSentences before them, each followed by its translation, for context alone:\n"
_INSTRUCTED: Final = "Instructions for this translation, but for the form of your answer:\n%s\n\n"
_AGAIN: Final = "Mind the form of your answer: an earlier one was of no use, as it %s.\n\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive sentences to translate, and preceding sentences with their translations.

    `instruction`: instruction for the document, from the file.
    """

    sentences: tuple[str, ...]
    before: tuple[str, ...] = ()
    translated_before: tuple[str, ...] = ()
    instruction: str = ""

    def __len__(self) -> int:
        """Count the sentences to translate."""
        return len(self.sentences)


def piece_of(
    source: Sequence[str], translated: Sequence[str], sentences: Sequence[int], context: int
) -> Piece:
    """Return sentences of a document by index, with up to `context` preceding sentences.

    `translated`: translations of all preceding sentences; untranslated ones are not context. The indices skip
    sentences without a visible character.
    """
    first = sentences[0]
    shown = [index for index in range(max(0, first - context), first) if translated[index]]
    return Piece(
        tuple(source[index] for index in sentences),
        tuple(source[index] for index in shown),
        tuple(translated[index] for index in shown),
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt template; `names`: names of the languages."""

    template: str
    names: tuple[str, str]
    languages: Languages

    @property
    def is_numbered(self) -> bool:
        """Whether sentences have numbers, in the prompt and in the answer."""
        return "{sentence}" not in self.template

    @property
    def digest(self) -> str:
        """Hash of the template."""
        return hashlib.sha256(self.template.encode()).hexdigest()[:8]

    def messages(self, piece: Piece, problem: str = "") -> list[dict[str, str]]:
        """Return the chat messages that request the translation of a piece.

        `problem`: message of the UnusableError of an earlier answer.
        """
        instructed = _INSTRUCTED % piece.instruction if piece.instruction else ""
        again = _AGAIN % problem if problem else ""
        return [{"role": "user", "content": again + instructed + self._filled(piece)}]

    def read(self, answer: str, piece: Piece) -> tuple[list[str], list[str]]:
        """Return the translation of each sentence, and the kinds of text removed from the answer.

        Raises:
            UnusableError: the answer is not usable.
        """
        if self.is_numbered:
            return read_numbered(answer, len(piece))
        sentence, left_out = read_plain(answer, self.languages.target)
        return [sentence], left_out

    def _filled(self, piece: Piece) -> str:
        if not self.is_numbered and len(piece) != 1:
            raise CotextError("a template with {sentence} is for requests with one sentence; use {sentences}")
        values = {
            "source_language": self.names[0],
            "target_language": self.names[1],
            "count": str(len(piece)),
            "context": self._context(piece),
            "sentences": numbered(piece.sentences),
            "sentence": one_line(piece.sentences[0]),
        }
        return filled(self.template, values)

    def _context(self, piece: Piece) -> str:
        if not piece.before:
            return ""
        pairs = zip(piece.before, piece.translated_before, strict=True)
        lines = (
            f"{name}: {one_line(text)}\n"
            for pair in pairs
            for name, text in zip(self.names, pair, strict=True)
        )
        return _CONTEXT + "".join(lines)


def prompt_of(endpoint: Endpoint) -> Prompt:
    return Prompt(endpoint.prompt, endpoint.language_names, endpoint.languages)
