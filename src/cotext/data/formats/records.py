"""Records: the documents of a file in any format, with their lines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cotext.runtime.errors import CotextError

Side = Literal["source", "target"]

# A document is held in memory as a whole, every sentence beside it.
MAX_DOCUMENT_BYTES = 1 << 30
SENTENCE_BYTES = 64  # that a sentence takes beside its characters

# What surrounds a sentence in a line and is no part of it. Deliberately narrow: a line of U+3000 or a
# no-break space is a sentence, because treating it as empty would shift everything after it.
OUTER_SPACE = " \t\r"


@dataclass(frozen=True, slots=True)
class Record:
    """A document as a file holds it, in one language (`sentences`) or two (`source`, `target`).

    `line` is where its first sentence begins; `lines_per_sentence` is 1 where each sentence has a line of
    its own, and 0 where the whole document shares one place.
    """

    id: str
    line: int = 0
    lines_per_sentence: int = 0
    sentences: tuple[str, ...] | None = None
    source: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None

    def side(self, side: Side) -> tuple[str, ...] | None:
        """Give the sentences of one side; a document in one language serves as either."""
        if self.sentences is not None:
            return self.sentences
        return self.source if side == "source" else self.target

    def line_of(self, sentence: int) -> int:
        """Give the line of sentence number `sentence`, counted from 0."""
        return self.line + sentence * self.lines_per_sentence


@dataclass(slots=True)
class Alignment:
    """`unequal`: documents left out of a corpus, as their sides are of unequal numbers of sentences."""

    unequal: int = 0


class Gathered(list[str]):
    """The sentences of the document that is being read.

    `append` raises CotextError where the document takes more than MAX_DOCUMENT_BYTES: a file in which nothing
    ends a document unpacks into one that no memory holds.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._bytes = 0

    def append(self, sentence: str) -> None:
        """Add a sentence."""
        self._bytes += len(sentence) + SENTENCE_BYTES
        if self._bytes > MAX_DOCUMENT_BYTES:
            raise CotextError(
                f"{self._path}: a document of more than {len(self):,} sentences and {MAX_DOCUMENT_BYTES:,} "
                "bytes, more than memory is taken for; mark where documents end, or split the file"
            )
        super().append(sentence)


def sentences_to_write(record: Record) -> tuple[str, ...]:
    """Give the sentences of a one-language record, fit to stand on a line each: outer white space removed.

    Raises CotextError for a sentence that contains a line feed or a NUL character.
    """
    if record.sentences is None:
        raise CotextError(f"document {record.id!r} has two languages; this format holds one language a file")
    return tuple(one_line(record.id, i, text).strip(OUTER_SPACE) for i, text in enumerate(record.sentences))


def one_line(document_id: str, index: int, sentence: str) -> str:
    """Give the sentence back unchanged; raises CotextError where it contains a line feed or NUL."""
    if "\n" in sentence or "\0" in sentence:
        what = "a line feed" if "\n" in sentence else "a NUL character"
        raise CotextError(
            f"document {document_id!r}, sentence {index + 1}: contains {what}; a sentence is one line of "
            "text, "
            "replace it by a space or split the sentence"
        )
    return sentence


def without_breaks(text: str) -> str:
    """The text of a segment on one line: line breaks, with the space around them, are a space."""
    lines = (line.strip(" \t") for line in text.split("\n")) if "\n" in text else (text,)
    return " ".join(filter(None, lines)).strip(OUTER_SPACE)


def id_to_write(record: Record) -> str:
    """Give the id; raises CotextError where it is empty or could not be read back from a line."""
    if not record.id or record.id != record.id.strip(OUTER_SPACE) or any(c in record.id for c in "\t\n\0"):
        raise CotextError(
            f"document id {record.id!r} cannot be written: an id is not empty, has no outer white space, and "
            "contains no tab, line feed or NUL"
        )
    return record.id
