"""Texts of any format, read as documents of sentences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.data.formats.streams import Side, read_whole
from cotext.data.formats.table import format_in
from cotext.data.splitting import Splitter
from cotext.files.block_sentences import cut, with_placeholders
from cotext.files.blocks import Close, Copied, Open, Piece
from cotext.files.po import translated_pairs
from cotext.files.table import GENERIC, format_of, read_file
from cotext.runtime.xml import local_name, lxml_etree, parse

if TYPE_CHECKING:
    from lxml import etree

_TAGS: Final = {Open: "<g id=''>", Close: "</g>"}
_NAMESPACES: Final = re.compile(r'\sxmlns(?::\w+)?="[^"]*"')


def read_text(path: Path, side: Side, language: str, format: str | None = None) -> list[Document]:
    """Read a corpus or a file of any format; of a bilingual one, one side. Inline elements become tags.

    Raises:
        CotextError: it cannot be read, is empty, or its format is unknown.
    """
    found = format_of(path, format)
    if isinstance(found, str) and found != "text":
        return list(read_documents(path, format_in(path, found, language), side=side))
    if isinstance(found, str) or found.name == GENERIC:
        # Outputs of other systems may have empty lines anywhere.
        lines = groupby(read_whole(path).split("\n"), key=lambda line: bool(line.strip()))
        groups = [tuple(group) for is_text, group in lines if is_text]
        return [Document(str(number), group) for number, group in enumerate(groups, 1)]
    content = read_file(path)
    if found.name in ("po", "xliff"):
        pairs = translated_pairs(content, str(path)) if found.name == "po" else _units(content, str(path))
        return [Document("1", tuple(pair[side == "target"] for pair in pairs))]
    spans = Splitter(language).spans
    cuts = (
        [cut(replace(block, pieces=with_placeholders(block.pieces)), spans).parts for block in blocks]
        for blocks in found.open(content, str(path)).contents.documents
    )
    return [
        Document(str(number), tuple(_marked(pieces) for parts in each for pieces in parts.sentences))
        for number, each in enumerate(cuts, 1)
    ]


def _marked(pieces: Sequence[Piece]) -> str:
    texts = (piece.text if isinstance(piece, Copied) else piece for piece in pieces)
    return "".join(text if isinstance(text, str) else _TAGS.get(type(text), "<x/>") for text in texts)


def _units(content: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Yield source and target of the units of an XLIFF file."""
    for unit in parse(content, name).iter():
        if local_name(unit) in ("trans-unit", "segment"):
            sides = {local_name(child): child for child in unit}
            if "source" in sides:
                yield _inner(sides["source"]), _inner(sides["target"]) if "target" in sides else ""


def _inner(element: "etree._Element") -> str:
    text = lxml_etree().tostring(element, encoding="unicode", with_tail=False)
    content = text[text.index(">") + 1 : text.rfind("</")] if "</" in text else ""
    return unescape(_NAMESPACES.sub("", content))
