"""Files of text whose blocks stand at known places: these are replaced, all else comes back as it was."""

import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cotext.files.blocks import Block, Close, Contents, Open, Piece, writable
from cotext.runtime.errors import CotextError, shown

Edit = tuple[int, int, str]  # the text from, up to, becomes

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HALVES = re.compile("[\0\ud800-\udfff]+")  # no encoding has halves; NUL is the end of a text to programs
# Encodings of Python that are no encodings of files, or take time by the square of the length.
_NOT_OF_FILES = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"))


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a file, and what is needed to make a file of it again."""

    text: str
    encoding: str
    byte_order_mark: bytes = b""

    def encoded(self, text: str, name: str, errors: str = "strict") -> bytes:
        """A text in the encoding of the file; raises CotextError for a character that it does not have."""
        try:
            return self.byte_order_mark + text.encode(self.encoding, errors)
        except UnicodeEncodeError as error:
            raise CotextError(
                f"{name}: its encoding {self.encoding} does not have {shown(text[error.start])}, which the "
                "translation needs; convert the file to UTF-8 first"
            ) from None


def decoded(content: bytes, name: str, encoding: str = "utf-8") -> Decoded:
    """The text of a file in UTF-8 or UTF-16 by its byte order mark, else in `encoding`.

    Raises:
        CotextError: another encoding, or one whose bytes would not come back.
    """
    mark = b""
    for mark, marked in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            encoding = marked
            break
    else:
        mark = b""
    try:
        if codecs.lookup(encoding).name in _NOT_OF_FILES:
            raise LookupError
        text = content[len(mark) :].decode(encoding)
        comes_back = mark + text.encode(encoding) == content
    except LookupError:
        raise CotextError(f"{name}: unknown encoding {shown(encoding)}; convert the file to UTF-8") from None
    except UnicodeError as error:
        where = f" at byte {error.start + len(mark)}" if isinstance(error, UnicodeDecodeError) else ""
        raise CotextError(f"{name}: not {shown(encoding)}{where}; convert the file to UTF-8") from None
    if not comes_back:
        raise CotextError(
            f"{name}: its encoding {shown(encoding)} cannot be written as it was; convert it to UTF-8"
        )
    return Decoded(text, encoding, mark)


@dataclass(frozen=True, slots=True)
class Slot:
    """Consecutive blocks that are written together, and the edits that write other blocks in their places."""

    blocks: tuple[Block, ...]
    edits: Callable[[Sequence[Block]], Iterable[Edit]]


def no_edits(blocks: Sequence[Block]) -> Iterable[Edit]:
    """Of blocks that are context alone."""
    return ()


@dataclass(slots=True)
class SplicedFile:
    """A file of text, opened: documents of slots.

    `encode` makes bytes of the text. `bilingual`: source and target have places of their own; see
    `cotext.files.blocks.BilingualFormat`. `once`: edits that come along where anything else is edited.
    """

    text: str
    encode: Callable[[str], bytes]
    documents: list[list[Slot]]
    messages: list[str] = field(default_factory=list)
    bilingual: bool = False
    once: Sequence[Edit] = ()
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        blocks = [[block for slot in slots for block in slot.blocks] for slots in self.documents]
        self.contents = Contents(blocks, self.messages)

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The file with these blocks in the places of its own; see `cotext.files.blocks.OpenedFile`."""
        edits: list[Edit] = []
        for slots, given in zip(self.documents, documents, strict=True):
            if sum(len(slot.blocks) for slot in slots) != len(given):
                raise ValueError("other blocks than the document has")
            start = 0
            for slot in slots:
                blocks = given[start : start + len(slot.blocks)]
                start += len(slot.blocks)
                if self._changed(slot, blocks):
                    edits += slot.edits([writable(block, _without_halves) for block in blocks])
        if edits:
            edits += self.once
        return self.encode("".join(spliced(self.text, edits)))

    def _changed(self, slot: Slot, blocks: Sequence[Block]) -> bool:
        changed = False
        for own, block in zip(slot.blocks, blocks, strict=True):
            if own.translate:
                check_elements(own, block)
                changed |= own is not block if self.bilingual else own.pieces != block.pieces
        return changed


def spliced(text: str, edits: Iterable[Edit]) -> Iterator[str]:
    """The parts of the text with the edits made; raises ValueError where two of them overlap."""
    at = 0
    for start, stop, replacement in sorted(edits, key=lambda edit: edit[:2]):
        if start < at:
            raise ValueError("two edits of one place")
        yield text[at:start]
        yield replacement
        at = stop
    yield text[at:]


def check_elements(own: Block, given: Block) -> None:
    """Raise ValueError where a block lacks an element of that which it replaces, or nests them wrongly."""
    if sorted(map(repr, _elements(own.pieces))) != sorted(map(repr, _elements(given.pieces))):
        raise ValueError(f"{own.place}: other elements than the block has")
    inside: list[int] = []
    for piece in given.pieces:
        if isinstance(piece, Open):
            inside.append(piece.key)
        elif isinstance(piece, Close) and (not inside or inside.pop() != piece.key):
            raise ValueError(f"{own.place}: elements that are not nested")


def _elements(pieces: Iterable[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not isinstance(piece, str)]


def _without_halves(text: str) -> str:
    return _HALVES.sub("", text)


class Lines:
    """The lines of a text, to say in which a place is without counting each time."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def of(self, at: int) -> int:
        """The line of a place, counted from 1."""
        return bisect_left(self._ends, at) + 1
