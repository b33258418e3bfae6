"""Texts of any format, read as documents of sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cotext.data.formats import read_documents
from cotext.data.formats.streams import Side, beginning
from cotext.data.formats.table import BEGINNING_BYTES, FORMATS, detect_format, find_format, format_in
from cotext.data.splitting import Splitter
from cotext.files.block_sentences import cut, with_placeholders
from cotext.files.blocks import Block, Close, Copied, Open, Piece
from cotext.files.table import ANY_TEXT, file_formats, named_format, recognise
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class Text:
    """The documents of a text, by name, and their sentences."""

    names: Sequence[str]
    documents: Sequence[Sequence[str]]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Every sentence with the name of its document."""
        return [
            (name, line) for name, lines in zip(self.names, self.documents, strict=True) for line in lines
        ]


def read_text(path: Path, side: Side, language: str, format: str | None = None) -> Text:
    """Read a corpus or a file of any format; of bilingual ones, one side.

    Raises:
        CotextError: it cannot be read, or has no text.
    """
    found = list(read_documents(path, format_in(path, format, language), side=side))
    return Text([document.id for document in found], [document.sentences for document in found])
