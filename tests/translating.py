"""Documents of blocks and of lines translated by a run alone."""

from collections.abc import Iterable, Sequence

from cotext.data.splitting import Splitter
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments
from cotext.translation.open import OpenedRun

BY_RULES = frozenset[str]()


def translated_blocks(
    opened: OpenedRun, documents: Iterable[Sequence[Block]], splitting: frozenset[str] | None = BY_RULES
) -> list[list[Block]]:
    """The translated blocks of each document; without splitting, a block is a sentence."""
    splitter = None if splitting is None else Splitter(opened.languages.source, splitting)
    texts = BlockDocuments(opened, Contents([list(blocks) for blocks in documents]), splitter)
    guide = texts.guide(range(len(texts.documents)))
    return texts.blocks(dict(opened.translator.translate(texts.documents, guide=guide)))


def translated_lines(opened: OpenedRun, documents: Iterable[Sequence[str]]) -> list[list[str]]:
    """The translated lines of each document."""
    found = translated_blocks(opened, [[Block((line,)) for line in lines] for lines in documents])
    return [[block.text for block in blocks] for blocks in found]
