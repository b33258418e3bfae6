"""Fake translations: text in capitals with inline elements in place; and checks of blocks."""

import io
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cotext.files.blocks import Block, Close, Copied, FileFormat, Open, OpenedFile, Piece, Point, merged
from cotext.runtime import CotextError
from tests.hostile.mutations import mutate


def shouted(documents: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """Capitals in all texts; ß stays, whose capital is two letters."""
    return changed(documents, lambda text: "".join(c if c == "ß" else c.upper() for c in text))


def changed(documents: Sequence[Sequence[Block]], change: Callable[[str], str]) -> list[list[Block]]:
    """Every block that asks for it with its texts changed and its elements where they were."""

    def other(block: Block) -> Block:
        return replace(block, pieces=tuple(change(p) if isinstance(p, str) else p for p in block.pieces))

    return [[other(block) if block.translate else block for block in document] for document in documents]


def upper(opened: OpenedFile) -> bytes:
    """The file with all that is translated in capitals."""
    return opened.written(changed(opened.contents.documents, str.upper))


def same_again(format: FileFormat, content: bytes) -> Any:
    """The file opened, after it has been seen to come back byte for byte; its blocks are well-formed."""
    opened = format.open(content, "file")
    assert opened.written(opened.contents.documents) == content
    if format.name != "markdown":  # whose paragraphs may be pictures alone
        assert_well_formed(opened)
    return opened


def reread(format: FileFormat, opened: OpenedFile) -> OpenedFile:
    """The file written with its text in capitals, and opened."""
    return format.open(opened.written(shouted(opened.contents.documents)), "written")


def shuffled(block: Block, draw: random.Random) -> Block:
    """The block's elements in other places of its text, nested properly, as a projection might put them."""
    elements = [piece for piece in block.pieces if not isinstance(piece, str | Close)]
    draw.shuffle(elements)
    text = [*"".join(piece for piece in block.pieces if isinstance(piece, str))]
    pieces: list[Piece] = list(text)
    for element in elements:
        at = draw.randrange(len(pieces) + 1)
        if isinstance(element, Open):
            depth, end = 0, at
            limit = draw.randrange(6)
            while end < len(pieces) and (depth or end - at < limit):
                piece = pieces[end]
                depth += isinstance(piece, Open) - isinstance(piece, Close)
                if depth < 0:
                    break
                end += 1
            pieces.insert(end, Close(element.key))
        pieces.insert(at, element)
    return Block(merged(pieces), block.place)


def texts(opened: OpenedFile) -> list[list[str]]:
    return [[block.text for block in document] for document in opened.contents.documents]


def shape(block: Block) -> str:
    """The pieces as text: elements as brackets, points as * or /, which breaks, copied text in angles."""
    spelled = []
    for piece in block.pieces:
        if isinstance(piece, str):
            spelled.append(piece)
        elif isinstance(piece, Copied):
            spelled.append(f"<{piece.text}>")
        elif isinstance(piece, Point):
            spelled.append("/" if piece.breaks else "*")
        else:
            spelled.append("[" if isinstance(piece, Open) else "]")
    return "".join(spelled)


def elements(pieces: Iterable[Piece]) -> list[Piece]:
    return sorted((p for p in pieces if not isinstance(p, str)), key=lambda p: (p.key, isinstance(p, Close)))


def assert_nested(pieces: Iterable[Piece]) -> None:
    inside: list[int] = []
    for piece in pieces:
        if isinstance(piece, Open):
            inside.append(piece.key)
        elif isinstance(piece, Close):
            assert inside.pop() == piece.key
    assert not inside


def assert_well_formed(opened: OpenedFile) -> None:
    """Every block has text, and elements that are nested properly, each once."""
    for document in opened.contents.documents:
        for block in document:
            assert block.text.strip(), block
            assert merged(block.pieces) == block.pieces
            assert_nested(block.pieces)
            single = Counter(p.key for p in block.pieces if isinstance(p, Open | Point | Copied))
            assert all(count == 1 for count in single.values())


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(parts: Mapping[str, bytes | str], stored: str = "", comment: bytes = b"") -> bytes:
    """An archive in which only the part `stored` is not compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, part in parts.items():
            info = zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6))
            info.compress_type = zipfile.ZIP_STORED if name == stored else zipfile.ZIP_DEFLATED
            info.external_attr = 0o640 << 16
            info.comment = b"of a member"
            file.writestr(info, part)
        file.comment = comment
    return out.getvalue()


def damages(content: bytes, draw: random.Random, count: int) -> Iterator[bytes]:
    """Damaged files; of archives, every second is sound, with a damaged part of XML."""
    for turn in range(count):
        if turn % 2 and content.startswith(b"PK"):
            parts = members(content)
            name = draw.choice([name for name in parts if name.endswith(("ml", ".rels"))])
            parts[name] = mutate(parts[name], draw)[0]
            yield packed(parts)
        else:
            yield mutate(content, draw)[0]


def assert_damage_is_survived(format: FileFormat, content: bytes, seed: int, count: int = 200) -> None:
    """Damaged files are refused with CotextError, or read and written with and without other text."""
    for damaged in damages(content, random.Random(seed), count):
        try:
            opened = format.open(damaged, "damaged")
            assert opened.written(opened.contents.documents) == damaged
            written = opened.written(shouted(opened.contents.documents))
        except CotextError:
            continue
        format.open(written, "written")
