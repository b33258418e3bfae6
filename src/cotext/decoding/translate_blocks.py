"""Translation of the blocks of a file: as sentences of documents, in context, and as blocks again."""

from collections.abc import Callable, Mapping, Sequence

from cotext.data.documents import Document
from cotext.data.splitting import Splitter
from cotext.decoding.open import OpenedRun
from cotext.decoding.prose import splitter_for
from cotext.decoding.translator import Translation
from cotext.files.block_sentences import Sentence, cut
from cotext.files.blocks import Block, Contents, Copied, Piece


class BlockDocuments:
    """The documents of a file as sentences to be translated.

    `documents` are those that have a sentence, in order, called by their numbers. Blocks that are context
    alone are sentences of them too. `target_language`: of the translation; empty where it is not known.
    """

    def __init__(self, contents: Contents, splitter: Splitter | None, target_language: str) -> None:
        spans = splitter.spans if splitter is not None else None
        self._language = target_language
        self._cut = [[cut(block, spans) for block in blocks] for blocks in contents.documents]
        self._numbers = [n for n, blocks in enumerate(self._cut) if any(block.sentences for block in blocks)]
        self.documents = [self._document(number) for number in self._numbers]

    def _document(self, number: int) -> Document:
        sentences = (s for block in self._cut[number] for s in block.sentences)
        return Document(str(number + 1), tuple(_text(sentence) for sentence in sentences))

    @property
    def blocks_split(self) -> tuple[int, int]:
        """How many blocks hold several sentences, and how many sentences these are."""
        several = [
            len(block.sentences) for blocks in self._cut for block in blocks if len(block.sentences) > 1
        ]
        return len(several), sum(several)

    def place(self, document: int, sentence: int) -> str:
        """Where a sentence of `documents` stands in the file."""
        places = [block.block.place for block in self._cut[self._numbers[document]] for _ in block.sentences]
        return places[sentence]

    def blocks(self, translations: Mapping[int, Translation]) -> list[list[Block]]:
        """The blocks of the file, with the translations of all `documents` by their index."""
        found = [[each.block for each in blocks] for blocks in self._cut]
        for index, number in enumerate(self._numbers):
            texts = iter(zip(self.documents[index].sentences, _written(translations[index]), strict=True))
            for position, block in enumerate(self._cut[number]):
                own = [(sentence, *next(texts)) for sentence in block.sentences]
                if not block.block.translate:
                    continue
                # A sentence without a visible character has no translation.
                pieces = [
                    _projected(s.pieces, source if target is None else target) for s, source, target in own
                ]
                found[number][position] = block.joined(pieces, self._language)
        return found


def _written(translation: Translation) -> list[str | None]:
    """What the system wrote for every sentence; None for what it was not asked to translate."""
    return [
        text if text or j in translation.missing else None
        for j, text in enumerate(translation.document.sentences)
    ]


def _text(sentence: Sentence) -> str:
    return Block(sentence.pieces).text


def _projected(pieces: Sequence[Piece], target: str) -> tuple[Piece, ...]:
    length, at = len(Block(tuple(pieces)).text), 0
    found: list[Piece] = []
    last = 0
    for piece in pieces:
        if isinstance(piece, str):
            at += len(piece)
            continue
        place = max(last, round(at / max(length, 1) * len(target)))
        found += [target[last:place], piece]
        last = place
        at += len(piece.text) if isinstance(piece, Copied) else 0
    return (*found, target[last:])


def translate_blocks(
    opened: OpenedRun,
    contents: Contents,
    *,
    split: bool = True,
    on_sentences: Callable[[int], None] = lambda count: None,
    on_message: Callable[[str], None] = lambda text: None,
) -> list[list[Block]]:
    """Translate blocks, each document as one, in reading order; as many blocks in as many documents.

    `split`: blocks that may hold several sentences are split into them.

    Raises:
        CotextError: a sentence over the limit.
    """
    splitter = splitter_for(opened.languages.source, on_message) if split else None
    texts = BlockDocuments(contents, splitter, opened.languages.target)
    opened.translator.check(texts.documents)
    return texts.blocks(dict(opened.translator.translate(texts.documents, on_sentences)))
