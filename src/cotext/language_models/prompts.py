"""Prompts that request the translation of sentences, and the parsing of their answers.

    [1] The cat sleeps.
    [2] It is tired.

Each sentence is one line. An answer is usable if its numbers are 1, 2, 3 and so on, each once and in order.
Before and after the sentences there may be a code fence, an introduction, thoughts or a remark, which are
removed and reported. Any other text makes an answer unusable, because its sentence is unknown.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cotext.language_models.config import Endpoint, filled

# Some models write "[1]: text".
_LINE: Final = re.compile(r"[ \t]*\[([0-9]{1,6})\](?:[:.](?=[ \t]|$))?(.*)")
_FENCE: Final = re.compile(r"[ \t]*(```|~~~)[\w-]*[ \t]*")
_THOUGHTS: Final = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_REFUSAL: Final = re.compile(
    r"(?i)(i['’]m|i am) (very )?sorry\b|sorry, (but )?i\b|(i['’]m|i am) (unable|not able)\b"
    r"|i (cannot|can['’]t|won['’]t|will not)\b|as an ai\b|unfortunately, i\b"
)


class UnusableError(Exception):
    """An answer without a usable translation; the message completes "the answer ...".

    `smaller`: only a smaller request would help.
    """

    def __init__(self, problem: str, smaller: bool = False) -> None:
        super().__init__(problem)
        self.smaller = smaller


def one_line(text: str) -> str:
    """Return a text as one line, with control characters and line breaks replaced by spaces."""
    return _BREAKS.sub(" ", text).strip()


def numbered(sentences: Sequence[str]) -> str:
    """Return numbered sentences, one per line."""
    return "\n".join(f"[{number}] {one_line(text)}" for number, text in enumerate(sentences, 1))


def read_numbered(text: str, count: int) -> tuple[list[str], list[str]]:
    """Return the sentences of an answer, and the kinds of text removed from it.

    Raises:
        UnusableError: the answer does not have `count` numbered sentences.
    """
    text, left_out = _without_thoughts(text)
    lines = text.replace("\r\n", "\n").split("\n")
    sentences = [(place, match) for place, line in enumerate(lines) if (match := _LINE.fullmatch(line))]
    numbers = [int(match[1]) for _, match in sentences]
    if numbers != list(range(1, count + 1)):
        if numbers and len(numbers) == count:
            raise UnusableError("has numbers that are not 1, 2, 3 and so on")
        how_many = (
            f"{len(numbers)} numbered lines, where {count} were asked for" if numbers else "no numbered lines"
        )
        raise UnusableError(f"has {how_many}")
    places = [place for place, _ in sentences]
    for first, second in pairwise(places):
        if any(line.strip() for line in lines[first + 1 : second]):
            raise UnusableError("has text between the numbered lines")
    before, behind = lines[: places[0]], lines[places[-1] + 1 :]
    if any(line.strip() and not _FENCE.fullmatch(line) for line in before):
        left_out.append("an introduction")
    rest = [line for line in behind if line.strip()]
    if any(map(_FENCE.fullmatch, [*before, *rest])):
        left_out.append("a fence")
    remark = [line for line in rest if not _FENCE.fullmatch(line)]
    if remark:
        # Directly after the last sentence, it may be a part of it.
        if behind[0].strip() and not _FENCE.fullmatch(behind[0]):
            raise UnusableError("has text right behind the last numbered line")
        left_out.append("a remark")
    return [one_line(match[2]) for _, match in sentences], left_out


def read_plain(text: str, target_language: str) -> tuple[str, list[str]]:
    """Return the only sentence of an answer without numbers, and the kinds of text removed from it.

    `target_language`: code; if it is "en", refusals cannot be detected.

    Raises:
        UnusableError: the answer has several lines, or is a refusal.
    """
    text, left_out = _without_thoughts(text)
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    kept = [line for line in lines if not _FENCE.fullmatch(line)]
    if len(kept) < len(lines):
        left_out.append("a fence")
    if len(kept) == 2 and kept[0].rstrip().endswith(":"):
        del kept[0]
        left_out.append("an introduction")
    if len(kept) > 1:
        raise UnusableError(f"has {len(kept)} lines, where a sentence was asked for")
    sentence = one_line(kept[0]) if kept else ""
    if target_language != "en" and _REFUSAL.match(sentence):
        raise UnusableError("is a refusal")
    return sentence, left_out


def _without_thoughts(text: str) -> tuple[str, list[str]]:
    """Remove the reasoning before an answer; return the rest, and the kinds of text removed."""
    rest = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    return rest, ["thoughts"] if rest != text else []


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
    source: Sequence[str],
    translated: Sequence[str],
    sentences: Sequence[int],
    context: int,
    instruction: str = "",
) -> Piece:
    """Return sentences of a document by index, with up to `context` preceding sentences.

    `translated`: translations of all preceding sentences; untranslated ones are not context.
    """
    first = sentences[0]
    shown = [index for index in range(max(0, first - context), first) if translated[index]]
    return Piece(
        tuple(source[index] for index in sentences),
        tuple(source[index] for index in shown),
        tuple(translated[index] for index in shown),
        instruction,
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt template for an endpoint."""

    endpoint: Endpoint
    template: str

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
        if "{sentence}" not in self.template:
            return read_numbered(answer, len(piece))
        sentence, left_out = read_plain(answer, self.endpoint.languages.target)
        return [sentence], left_out

    def _filled(self, piece: Piece) -> str:
        source, target = self.endpoint.language_names
        values = {
            "source_language": source,
            "target_language": target,
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
            for name, text in zip(self.endpoint.language_names, pair, strict=True)
        )
        return _CONTEXT + "".join(lines)
