"""Blocks: the paragraphs of a file in reading order, as text with inline elements.

A format reads a file as blocks, and writes the file with translated blocks. Translation uses only blocks. A
block is a paragraph, a heading, a table cell, a subtitle cue or a string of a catalogue. It is split into
sentences, and no sentence continues in the next block.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from cotext.runtime.xml import taken


@dataclass(frozen=True, slots=True)
class Open:
    """Start of an inline element that encloses text, such as bold or a link; `Close` with its key ends it."""

    key: int
    link: bool = field(default=False, compare=False)  # encloses a link's text


@dataclass(frozen=True, slots=True)
class Close:
    """End of the inline element with this key; elements are nested properly."""

    key: int


@dataclass(frozen=True, slots=True)
class Point:
    """Inline element without text: a picture, a footnote mark, a line break.

    If it `breaks` the line, the sentence before it ends there.
    """

    key: int
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """Text that is copied, not translated, such as code, a placeholder or a URL. The model may read it."""

    key: int
    text: str


Tag = Open | Close | Point | Copied
Piece = str | Tag


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph. The format chooses the keys of its elements; each element occurs once.

    `place` names the block in messages, such as "line 12" or "sheet Prices, cell B4". If `split`, the text
    may contain several sentences. If not `translate`, the block is only context: its translation is dropped.
    """

    pieces: tuple[Piece, ...]
    place: str = ""
    split: bool = True
    translate: bool = True

    @property
    def text(self) -> str:
        """The text without inline elements, including copied text."""
        return shown_text(self.pieces)


def shown_text(pieces: Iterable[Piece], shown: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return the text of pieces; `shown`: texts that the model reads in place of copied texts, by key."""
    return "".join(
        piece if isinstance(piece, str) else shown.get(piece.key, piece.text)
        for piece in pieces
        if isinstance(piece, str | Copied)
    )


def substitutes(pieces: Iterable[Piece], shown: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return pairs of a substitute in `shown` and the copied text that it replaces."""
    copied = {shown.get(p.key, p.text): p.text for p in pieces if isinstance(p, Copied)}
    return [(substitute, text) for substitute, text in copied.items() if substitute not in ("", text)]


def replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return the text with the first of each pair replaced by the second, the longest first."""
    for old, new in sorted(pairs, key=lambda pair: len(pair[0]), reverse=True):
        text = text.replace(old, new)
    return text


def writable(block: Block, change: Callable[[str], str] = taken) -> Block:
    """Return the block without characters that its format cannot store.

    `change` removes them from a text. Default: remove control characters and lone surrogates.
    """
    pieces = tuple(change(piece) if isinstance(piece, str) else piece for piece in block.pieces)
    return block if pieces == block.pieces else replace(block, pieces=pieces)


@dataclass(slots=True)
class Contents:
    """The documents of a file, each a list of blocks in reading order.

    `messages` describe content that is not translated, and why: one line each, with its place.
    """

    documents: list[list[Block]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class OpenedFile(Protocol):
    """A file that has been read: its contents, and a method that writes it with other blocks."""

    contents: Contents

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """Return the file with its blocks replaced by `documents`, and everything else unchanged.

        `documents` has the same numbers of documents and blocks as `contents`. Each block contains the
        elements of the block that it replaces, each once and nested properly. Unchanged blocks give the
        original file, byte for byte (archives: part for part). Problems are appended to `contents.messages`.
        """
        ...


# Entries of a bilingual file to translate. `untranslated`: entries without a translation; `unfinished`: also
# entries marked as a guess or for review; `all`: all entries, unless they are marked as final.
Entries = Literal["untranslated", "unfinished", "all"]


@dataclass(frozen=True, slots=True)
class Job:
    """What to translate in a bilingual file, which has source and target side by side.

    Other entries with a translation are kept, and are used as context. Languages are codes ("de", "pt-BR"),
    or empty if unknown: then a format that needs them reads them from the file.
    """

    source_language: str = ""
    target_language: str = ""
    entries: Entries = "untranslated"


ANY: Final = Job()


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A file format: how it is recognised and read.

    `suffixes` (with dots) decide only if the content fits several formats. `recognises` is called with the
    first 256 KiB of a file and returns whether the file has this format. `open` reads a file from its content
    and its name in messages. It raises CotextError if the file is damaged, beyond a limit or unsupported.

    `bilingual`: message catalogues and XLIFF. Their `open` also has an optional keyword argument `job`. In
    such a file, an entry stays unchanged if its block is passed back as the same object. Any other block is
    written as a translation, even if its text equals the source ("OK").
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    open: Callable[..., OpenedFile]
    bilingual: bool = False

    def for_job(self, job: Job) -> "FileFormat":
        """Return the format for a job: bilingual formats read only its entries, others read everything."""
        return replace(self, open=partial(self.open, job=job)) if self.bilingual else self


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with adjacent texts joined and empty texts removed."""
    joined: list[Piece] = []
    for is_text, group in groupby(pieces, lambda piece: isinstance(piece, str)):
        if is_text:
            joined.append("".join(map(str, group)))
        else:
            joined += group
    return tuple(piece for piece in joined if piece != "")


def empty_links(source: Sequence[Piece], target: Sequence[Piece]) -> int:
    """Count the links that enclose text in the source but nothing in the translation."""
    links = {piece.key for piece in source if isinstance(piece, Open) and piece.link}
    return len(_enclosing(source, links) - _enclosing(target, links)) if links else 0


def _enclosing(pieces: Iterable[Piece], keys: set[int]) -> set[int]:
    """Return the `keys` whose elements enclose visible content."""
    inside: set[int] = set()
    enclosing: set[int] = set()
    for piece in pieces:
        if isinstance(piece, Open):
            inside |= {piece.key} & keys
        elif isinstance(piece, Close):
            inside.discard(piece.key)
        elif isinstance(piece, Copied | Point) or piece.strip():
            enclosing |= inside
    return enclosing


# --- Inline elements of a paragraph: matching tags, and the elements that enclose the whole text.

SPACE: Final = " \t\n\r\f"
LINKS: Final = frozenset({"a", "hyperlink"})  # elements, of any format


class Item(NamedTuple):
    """Part of a paragraph, from `start` to `stop` (characters or units of the format).

    `kind`: "text", "copied" (`text` is what a reader sees), "open" and "close" of an element, or "point".
    """

    kind: str
    name: str
    start: int
    stop: int
    text: str = ""


def mates(items: Sequence[Item]) -> dict[int, int]:
    """Map the index of each start tag to that of its end tag and vice versa, for properly nested elements."""
    partners: dict[int, int] = {}
    open_items: list[int] = []
    names: Counter[str] = Counter()
    for index, item in enumerate(items):
        if item.kind == "open":
            open_items.append(index)
            names[item.name] += 1
        elif item.kind == "close" and names[item.name]:
            while items[opened := open_items.pop()].name != item.name:
                names[items[opened].name] -= 1
            names[item.name] -= 1
            partners[opened], partners[index] = index, opened
    return partners


def piece_of(key: int, item: Item, ends: dict[int, int], breaks: Container[str] = ()) -> Tag:
    """Return the piece with this key for a non-text item; tags without a partner become points.

    `ends`: result of `mates`, by key. `breaks`: names of points that break the line.
    """
    if key not in ends:
        return Copied(key, item.text) if item.kind == "copied" else Point(key, item.name in breaks)
    return Open(key, item.name.partition(" ")[0] in LINKS) if item.kind == "open" else Close(ends[key])


def without_empty(items: Sequence[Item]) -> list[Item]:
    """Return the items with each element without text (such as an anchor or icon) as a single point."""
    ends = mates(items)
    shows = [0]
    for item in items:
        shows.append(shows[-1] + (item.kind == "copied" or (item.kind == "text" and item.text != "")))
    kept: list[Item] = []
    index = 0
    while index < len(items):
        item = items[index]
        mate = ends.get(index, -1)
        if item.kind == "open" and mate > index and shows[mate] == shows[index]:
            kept.append(Item("point", item.name, item.start, items[mate].stop))
            index = mate
        else:
            kept.append(item)
        index += 1
    return kept


def inner(items: Sequence[Item], ends: dict[int, int], space: str = SPACE) -> tuple[int, int]:
    """Return the range of items without outer blanks, points, unpaired tags and enclosing elements.

    `ends`: result of `mates`. `space`: the characters of blanks. At least one item must be visible text.
    """

    def outer(index: int) -> bool:
        item = items[index]
        if item.kind == "text":
            return not item.text.strip(space)
        return item.kind != "copied" and index not in ends

    low, high = 0, len(items)
    while True:
        while outer(low):
            low += 1
        while outer(high - 1):
            high -= 1
        if ends.get(low) != high - 1:
            return low, high
        low, high = low + 1, high - 1
