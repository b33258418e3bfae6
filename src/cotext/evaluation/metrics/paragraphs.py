"""Lines of several sentences in translations and references, split where all sides have equally many."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cotext.data.documents import Document
from cotext.data.splitting import Splitter


@dataclass(slots=True)
class ParagraphCounts:
    """Lines, those split and the sentences that they became, and those of several sentences left whole."""

    lines: int = 0
    split: int = 0
    sentences: int = 0
    whole: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)

    def render(self) -> str:
        """As one line."""
        return (
            f"{self.lines:,} lines: {self.split:,} split into {self.sentences:,} sentences, as all sides "
            f"have equally many; {self.whole:,} left whole, as sides have unequal numbers of sentences"
        )


@dataclass(frozen=True, slots=True)
class Texts:
    """Translations by system, references and source (empty if there is none), whose documents correspond."""

    systems: dict[str, list[Document]]
    references: list[list[Document]]
    source: list[Document]


def split_paragraphs(
    texts: Texts, splitter: Splitter, source_splitter: Splitter
) -> tuple[Texts, ParagraphCounts]:
    """The texts with a sentence a line, but for lines in which sides have unequal numbers of sentences."""
    counts = ParagraphCounts()
    sides = [*texts.systems.values(), *texts.references, *([texts.source] if texts.source else [])]
    splitters = [splitter] * (len(texts.systems) + len(texts.references)) + [source_splitter]
    found: list[list[Document]] = [[] for _ in sides]
    for documents in zip(*sides, strict=True):
        lines: list[list[str]] = [[] for _ in sides]
        for line in zip(*(document.sentences for document in documents), strict=True):
            cut = [by.sentences(text) for by, text in zip(splitters, line, strict=False)]
            numbers = {len(each) for each in cut}
            counts.lines += 1
            if len(numbers) == 1 and max(numbers) > 1:
                counts.split += 1
                counts.sentences += max(numbers)
            else:
                counts.whole += max(numbers) > 1
                cut = [[text] for text in line]
            for side, each in zip(lines, cut, strict=True):
                side += each
        for documents_of_side, document, side in zip(found, documents, lines, strict=True):
            documents_of_side.append(Document(document.id, tuple(side)))
    return _like(texts, found), counts


def _like(texts: Texts, sides: Sequence[list[Document]]) -> Texts:
    systems: Mapping[str, list[Document]] = dict(zip(texts.systems, sides, strict=False))
    first = len(systems)
    return Texts(
        dict(systems),
        list(sides[first : first + len(texts.references)]),
        sides[-1] if texts.source else [],
    )
