"""Translations that look like markup, written into files of every format and read again."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from cotext.files.block_sentences import cut
from cotext.files.blocks import SPACE, Block, Copied, FileFormat, Job, Piece, Point
from cotext.files.table import file_formats, recognise
from cotext.files.tags import project
from cotext.runtime.xml import taken
from tests.files.faking import members
from tests.files.structures import STRUCTURES, WORDS

JOB = Job("en", "de", "all")
# What a translation may hold, and some format reads as something else.
TARGETS = [
    "ein Wort",
    "a < b & c > d",
    "&amp; &lt;b&gt; &nbsp &copy;x &#65;",
    "<b>fett</b> <br/> </p> <script>x</script> <!-- y --> <![CDATA[ z ]]>",
    "]]> ?> -->",
    "\"quoted\" 'single' `back` „deutsch“",
    "back\\slash \\n \\t \\u0041 \\x \\",
    "%s %d %(name)s 100% %%",
    "{name} {{name}} {0} { } }{ {count, plural, one {x} other {y}}",
    "$name$ ${x} $t(key) @:key #{x}",
    *("# no heading", "- no item", "* no item", "+ no item", "1. no item", "1) no item", "> no quotation"),
    *("=== ", "---", "***", "| no | table |", "[no](link) ![no](image) [ref][r] [^1]"),
    "*no* _emphasis_ __at__ ~~all~~ a*b*c a_b_c",
    "    vier Leerzeichen",
    *("\tTab davor", "zwei\nZeilen", "zwei\r\nZeilen", "drei\n\nZeilen"),
    "Zeile\u2028und\u2029noch\x85eine",
    "NUL\0und\x01\x1f\x7f\x9f",
    "halb\ud800e",
    "\ufeffmark \ufffe \uffff",
    "\u202eRTL\u202c \u200e \u200b \u00ad",
    "geschützt\u00a0\u202f\u3000",
    "😀 e\u0301 İ ß",
    *("", " ", "\u00a0", "x", "y " * 300, "w" * 400),
    "00:00:01,000 --> 00:00:02,000",
    "7",
    "{\\an8}{\\i1}x{\\i0}\\Nx\\hx",
    "<i>x</i> <v Bob> <00:00:01.000>",
    *("WEBVTT", "key: value # comment", "yes", "null", "~", "!tag &anchor *alias", ": colon", "? question"),
    *("@at `tick` %percent", 'msgid "x"', "_Open &File E&xit"),
    "http://example.org/?a=b&c=d",
    "=1+1",
    "_x0041_ _x000D_",
    "<?xml version='1.0'?>",
    *("```", "~~~", "[r]: http://x", "&", "<", "\\", "- ", "  vorn und hinten  "),
]

# Formats in which a text that is written is a text that is read, block for block.
_AS_READ = frozenset({"html", "docx", "epub", "pptx", "markdown"})
_PAGES = frozenset({"html", "epub"})
_ANCHORED = _PAGES | {"docx"}  # blocks follow a point of another, which may be moved


def format_of(content: bytes, file_name: str, name: str) -> FileFormat | None:
    """The format that is recognised; plain text may be a corpus, and is asked for then."""
    found = recognise(content[: 1 << 18], file_name)
    if found is None and name == "prose":
        return file_formats()["prose"]
    return found.for_job(JOB)


def attack(name: str, draw: random.Random) -> None:
    """A file of random structure with translations at random: it is read again, and says what was written."""
    content, file_name = STRUCTURES[name](draw)
    format = format_of(content, file_name, name)
    if format is None or format.name != name:
        return  # the draw has made something else, as a page that is a corpus
    opened = format.open(content, file_name)
    own = opened.contents.documents
    assert opened.written(own) == content
    documents = [[_translated(block, draw) if block.translate else block for block in each] for each in own]
    written = opened.written(documents)
    if name == "prose":
        return  # lines of text may be anything, subtitles too
    assert _kept(written, name) == _kept(content, name)
    again = format_of(written, file_name, name)
    assert again.name == name
    reread = again.open(written, file_name)
    if name in _AS_READ:
        blocks = [block for each in documents for block in each]
        # Where a bar or a text inside of an element is escaped, Markdown keeps it as it is.
        left = {
            _said(block)
            for block in blocks
            if name == "markdown" and ("," in block.place or "|" in block.text)
        }
        again_blocks = [block for each in reread.contents.documents for block in each]
        parts = [part for block in blocks for part in (_paragraphs(block) if name in _PAGES else [block])]
        wanted, found = (
            [text for text in map(_said, each) if _lettered(text) and text not in left]
            for each in (parts, again_blocks)
        )
        moved = name in _ANCHORED and any(
            _elements(block) != _elements(before) for block, before in zip(blocks, chain(*own), strict=True)
        )
        if len(parts) > len(blocks) or moved:
            # Blocks that stand behind a point or its paragraph, as notes and texts of pictures, go with it.
            wanted, found = sorted(wanted), sorted(found)
        assert wanted == found


def _kept(content: bytes, name: str) -> Sequence[object]:
    """Times of cues, and elements of slides other than runs: they stay, whatever is translated."""
    if name == "subtitles":
        return re.findall(r".* --> .*", content.decode())
    if name == "pptx":
        return sorted(re.findall(rb"<(?!/?a:(?:r|rPr|t)\b)[^\s>]+", members(content)["ppt/slides/s0.xml"]))
    return []


def _translated(block: Block, draw: random.Random) -> Block:
    """A block whose sentences, which end at points that break, are translated at random."""
    parts, translated = cut(block, None), []
    for sentence in parts.sentences:
        target = draw.choice(TARGETS)
        if draw.random() < 0.3:
            target = f"{draw.choice(WORDS)} {target} {draw.choice(WORDS)}"
        translated.append(project(sentence, target, None))
    return parts.joined(translated, "de")


def _elements(block: Block) -> list[Piece]:
    return [piece for piece in block.pieces if not isinstance(piece, str)]


def _paragraphs(block: Block) -> list[Block]:
    """A block of a page as it is read again: two line breaks side by side end a paragraph."""
    parts: list[list[Piece]] = [[]]
    broken = False
    for piece in block.pieces:
        if isinstance(piece, Point) and piece.breaks:
            if broken:
                parts.append([])
            broken = True
        elif not isinstance(piece, str) or piece.strip(SPACE):
            broken = False
        parts[-1].append(piece)
    return [replace(block, pieces=tuple(part)) for part in parts]


def _said(block: Block) -> str:
    """The letters of a block, without white space; nothing where all of them are in copied text.

    U+FEFF is white space: at the beginning of a file it is the mark of an encoding.
    """
    if not any(isinstance(piece, str) and _lettered(piece) for piece in block.pieces):
        return ""
    parts = (
        piece
        if isinstance(piece, str)
        else piece.text
        if isinstance(piece, Copied)
        else " " * (isinstance(piece, Point) and piece.breaks)
        for piece in block.pieces
    )
    return "".join(taken("".join(parts)).replace("\ufeff", "").split())


def _lettered(text: str) -> bool:
    return any(map(str.isalpha, text))
