"""What tests of all formats of strings do: translate without a model, and look at what has changed."""

from collections.abc import Callable

from cotext.files.blocks import Block, Contents, FileFormat, OpenedFile, Piece


def translated(contents: Contents, change: Callable[[str], str] = str.upper) -> list[list[Block]]:
    """Every block that asks for it with its texts changed and its elements where they were."""
    return [
        [
            Block(tuple(_changed(piece, change) for piece in block.pieces), block.place)
            if block.translate
            else block
            for block in blocks
        ]
        for blocks in contents.documents
    ]


def _changed(piece: Piece, change: Callable[[str], str]) -> Piece:
    return change(piece) if isinstance(piece, str) else piece


def upper(opened: OpenedFile) -> bytes:
    """The file with all that is translated in capitals."""
    return opened.written(translated(opened.contents))


def texts(opened: OpenedFile, document: int = 0) -> list[str]:
    """The texts of a document that are to be translated."""
    return [block.text for block in opened.contents.documents[document] if block.translate]


def same_again(format: FileFormat, content: bytes) -> OpenedFile:
    """The file opened, after it has been seen to come back byte for byte."""
    opened = format.open(content, "file")
    assert opened.written(opened.contents.documents) == content
    return opened
