"""Blocks: the paragraphs of a file in reading order, as text with inline elements.

A format turns a file into blocks and writes it again with other blocks in their places; whoever translates
sees blocks alone. A block is a paragraph, a heading, a table cell, a cue of a subtitle, a string of a
catalogue: it is split into sentences, which never go beyond it unless its format joined them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol

from cotext.runtime.reading import PART
from cotext.runtime.xml import taken


@dataclass(frozen=True, slots=True)
class Open:
    """Where an inline element begins that encloses text, as bold or a link; `Close` of its key ends it."""

    key: int
    link: bool = field(default=False, compare=False)  # whose text says where it leads


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the inline element of that key; elements are nested properly."""

    key: int


@dataclass(frozen=True, slots=True)
class Point:
    """An inline element that encloses no text: a picture, the mark of a footnote, a line break.

    A sentence ends where one `breaks` the line.
    """

    key: int
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """Text that is copied, never translated: code, a placeholder, a URL; the model may read it."""

    key: int
    text: str


Piece = str | Open | Close | Point | Copied


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph. Keys of its pieces are the format's own, each element once (an `Open` with its `Close`).

    `place` names it in messages, as in "line 12" or "sheet Prices, cell B4". With `split`, its text may hold
    several sentences. Without `translate`, it is context alone: it is read, and its translation dropped.
    """

    pieces: tuple[Piece, ...]
    place: str = ""
    split: bool = True
    translate: bool = True

    @property
    def text(self) -> str:
        """The text without inline elements, copied text included."""
        return "".join(
            piece if isinstance(piece, str) else piece.text
            for piece in self.pieces
            if isinstance(piece, str | Copied)
        )


def writable(block: Block, change: Callable[[str], str] = taken) -> Block:
    """The block without characters that its format cannot hold; itself if it has none.

    Without a `change` of its texts, these are control characters and half characters.
    """
    pieces = tuple(change(piece) if isinstance(piece, str) else piece for piece in block.pieces)
    return block if pieces == block.pieces else replace(block, pieces=pieces)


@dataclass(slots=True)
class Contents:
    """The documents of a file, each a sequence of blocks in reading order.

    `messages` say what the file holds that is not translated, and why: one line each, with its place.
    """

    documents: list[list[Block]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class OpenedFile(Protocol):
    """A file of a format, read: its contents, and the way to write it with other text."""

    contents: Contents

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The file with these blocks in the places of its own, everything else unchanged.

        As many documents and blocks as `contents`; the pieces of each hold the elements of the block that
        they replace, each once and nested properly. Given its own blocks, the file comes back byte for byte,
        or, for formats that are archives, part for part. The messages of `contents` get
        what could not be written as it should be.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files: how it is recognised by content, and read.

    `suffixes`, with their dots, decide only what content leaves open. `recognises`: whether a file that
    begins so (its first 256 KiB, or all of it) is of this format. `open` reads a file; a name stands for it
    in messages. It raises CotextError for a file that is damaged, beyond a limit, or of a kind that is not
    taken.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    open: Callable[[bytes, str], OpenedFile]


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The pieces with neighbouring texts joined, and none of them empty."""
    return tuple(_merged(pieces))


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
            text = ""
        yield piece
    if text:
        yield text


def empty_links(source: Sequence[Piece], target: Sequence[Piece]) -> int:
    """How many links enclose text in a source, and nothing in its translation."""
    links = {piece.key for piece in source if isinstance(piece, Open) and piece.link}
    return len(_enclosing(source, links) - _enclosing(target, links)) if links else 0


def _enclosing(pieces: Iterable[Piece], keys: set[int]) -> set[int]:
    """Of the elements with these keys, those that enclose something to be seen."""
    inside: set[int] = set()
    found: set[int] = set()
    for piece in pieces:
        if isinstance(piece, Open):
            inside |= {piece.key} & keys
        elif isinstance(piece, Close):
            inside.discard(piece.key)
        elif isinstance(piece, Copied | Point) or piece.strip():
            found |= inside
    return found


# --- Inline elements of a paragraph: which stretch ends which, and which of them stand outside of its text.

SPACE: Final = " \t\n\r\f"
LINKS: Final = frozenset({"a", "hyperlink"})  # elements, of any format


class Item(NamedTuple):
    """A stretch of a paragraph, from `start` to `stop` of whatever its format counts.

    `kind`: "text", "copied" with the text that a reader sees, "open" and "close" of an element, "point".
    """

    kind: str
    name: str
    start: int
    stop: int
    text: str = ""

    @property
    def blank(self) -> bool:
        """Whether it is text that shows nothing."""
        return self.kind == "text" and shown_span(self.text) == (0, 0)


def shown_span(text: str) -> tuple[int, int]:
    """Where what a reader sees of a text begins and ends; (0, 0) if that is nothing.

    In parts, as a single call for megabytes of spaces keeps all other threads waiting.
    """
    starts = range(0, len(text), PART)
    shown = (at for at in starts if text[at : at + PART].strip(SPACE))
    if (first := next(shown, None)) is None:
        return 0, 0
    last = next(at for at in reversed(starts) if text[at : at + PART].strip(SPACE))
    head, tail = text[first : first + PART], text[last : last + PART]
    return first + len(head) - len(head.lstrip(SPACE)), last + len(tail.rstrip(SPACE))


def mates(items: Sequence[Item]) -> dict[int, int]:
    """For each element of which both ends are here, nested properly: each end's index to the other's."""
    found: dict[int, int] = {}
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
            found[opened], found[index] = index, opened
    return found


def without_empty(items: Sequence[Item]) -> list[Item]:
    """The items with each element that encloses no text, as an anchor or an icon, as a single point."""
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


def inner(items: Sequence[Item], ends: dict[int, int]) -> tuple[int, int]:
    """The range of items without blanks, points and unpaired ends at both ends, nor elements around all.

    `ends`: their `mates`. One item at least is text that shows something.
    """

    def outer(index: int) -> bool:
        return items[index].blank or (items[index].kind not in ("text", "copied") and index not in ends)

    low, high = 0, len(items)
    while True:
        while outer(low):
            low += 1
        while outer(high - 1):
            high -= 1
        if ends.get(low) != high - 1:
            return low, high
        low, high = low + 1, high - 1


# --- Formats that hold source and target side by side: message catalogues, XLIFF, translation memories,
# tasks.
#
# Of such a file, a job says which languages are wanted, and which entries: what is translated already
# stays, and is context.

# `untranslated`: those without a translation; `unfinished`: also those whose translation is marked as a guess
# or for review; `all`: those that are translated too, unless they are marked as final.
Entries = Literal["untranslated", "unfinished", "all"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be translated of a bilingual file.

    Languages as codes ("de", "pt-BR"); empty where they are not known: then the file has to say them where
    its format asks for them.
    """

    source_language: str = ""
    target_language: str = ""
    entries: Entries = "untranslated"


ANY: Final = Job()


class OpensForJob(Protocol):
    """Reads a file that holds both languages."""

    def __call__(self, content: bytes, name: str, job: Job = ANY) -> OpenedFile:
        """Read what a job asks for."""
        ...


@dataclass(frozen=True, slots=True)
class BilingualFormat(FileFormat):
    """A format of files that hold both languages; `open_for` reads what a job asks for.

    A block that is handed back as the object that was read leaves its entry as it is; any other block is
    written as its translation, be its text equal to the source ("OK") or not.
    """

    open_for: OpensForJob

    def for_job(self, job: Job) -> FileFormat:
        """The same format, reading what this job asks for."""
        return FileFormat(self.name, self.suffixes, self.recognises, partial(self.open_for, job=job))
