"""Texts of any format, read as documents of sentences."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotext.data.formats import FORMATS, read_documents
from cotext.data.formats.streams import Side, beginning, check_readable
from cotext.data.formats.table import BEGINNING_BYTES, format_in
from cotext.data.splitting import Splitter
from cotext.files.block_sentences import cut, with_placeholders
from cotext.files.blocks import Block, Close, Copied, Open, Piece
from cotext.files.po import translated_pairs
from cotext.files.table import ANY_TEXT, file_formats, named_format, recognise
from cotext.runtime.reading import read_bytes
from cotext.runtime.xml import local_name, lxml_etree, parse

if TYPE_CHECKING:
    from lxml import etree

_MAX_BYTES: Final = 256 << 20
_TAGS: Final = {Open: "<g id=''>", Close: "</g>"}
_NAMESPACES: Final = re.compile(r'\sxmlns(?::\w+)?="[^"]*"')


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
        CotextError: it cannot be read, is empty, or is of no known format.
    """
    check_readable(path)
    head, _ = beginning(path, BEGINNING_BYTES)
    found = file_formats().get(format) if format else recognise(head, path.name)
    named = named_format(path.name)
    if found is None and format is None and named is not None and named.name in ANY_TEXT:
        found = named
    if format in FORMATS or found is None or found.name in ("prose", "wmt"):
        corpus = list(read_documents(path, format_in(path, format, language), side=side))
        return Text([document.id for document in corpus], [document.sentences for document in corpus])
    content = read_bytes(path, _MAX_BYTES)
    if found.name in ("po", "xliff"):
        pairs = translated_pairs(content, str(path)) if found.name == "po" else _units(content, str(path))
        return Text(["1"], [[pair[side == "target"] for pair in pairs]])
    spans = Splitter(language).spans
    documents = [
        [_marked(pieces) for block in blocks for pieces in _cut(block, spans)]
        for blocks in found.open(content, str(path)).contents.documents
    ]
    return Text([str(number) for number in range(1, len(documents) + 1)], documents)


def _cut(block: Block, spans: Callable[[str], list[tuple[int, int]]]) -> Sequence[Sequence[Piece]]:
    return cut(replace(block, pieces=with_placeholders(block.pieces)), spans).parts.sentences


def _marked(pieces: Sequence[Piece]) -> str:
    """The text of a sentence with its inline elements as tags, so that they can be compared."""
    texts = (piece.text if isinstance(piece, Copied) else piece for piece in pieces)
    return "".join(text if isinstance(text, str) else _TAGS.get(type(text), "<x/>") for text in texts)


def _units(content: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Source and target of the units of XLIFF, with their inline elements as tags."""
    for unit in parse(content, name).iter():
        if local_name(unit) in ("trans-unit", "segment"):
            sides = {local_name(child): child for child in unit}
            if "source" in sides:
                yield _inner(sides["source"]), _inner(sides["target"]) if "target" in sides else ""


def _inner(element: "etree._Element") -> str:
    text = lxml_etree().tostring(element, encoding="unicode", with_tail=False)
    content = text[text.index(">") + 1 : text.rfind("</")] if "</" in text else ""
    return unescape(_NAMESPACES.sub("", content))
