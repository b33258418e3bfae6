"""Word documents (.docx, .docm): text of paragraphs is replaced, all else stays.

Reading order: the body, with tables cell by cell and the text of a box after the paragraph that it is
anchored to; then footnotes and endnotes. Headers and footers are a document of their own, comments another,
and what the file says of itself (title, subject, keywords) the last. Changes that are tracked are read as if
accepted: insertions are elements and stay marked, deletions stay as they are.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import Piece
from cotext.files.opc import Package, recognises
from cotext.files.parts import AttributeText, PartReader, PartsFile, Slot
from cotext.files.runs import Paragraph
from cotext.files.wordprocessing import WordDialect
from cotext.runtime.xml import namespace_of

if TYPE_CHECKING:
    from lxml import etree

_COMPATIBILITY: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_CHANGES: Final = ("ins", "del", "moveFrom", "moveTo")


class DocxFormat:
    """Office Open XML of word processors, with macros or without."""

    name = "docx"
    suffixes = (".docx", ".docm", ".dotx", ".dotm")

    def recognises(self, head: bytes) -> bool:
        """Whether it is an archive with a folder `word`."""
        return recognises(head, b"word/")

    def open(self, content: bytes, name: str) -> PartsFile:
        """Read a document."""
        package = Package(content, name)
        related = package.related(package.main)

        def readers(*kinds: str) -> list[PartReader]:
            parts = [(kind, part) for kind in kinds for each, part in related if each == kind]
            return [package.reader(part, _Slots(kind)) for kind, part in parts]

        documents = [
            [package.reader(package.main, _Slots("body")), *readers("footnotes", "endnotes")],
            readers("header", "footer"),
            readers("comments"),
            package.properties(),
        ]
        messages = [*_tracked(package.tree(package.main).getroot()), *package.left("word/")]
        return PartsFile(package.archive, documents, messages)


class _Slots:
    """Finds the paragraphs of a part, and descriptions of pictures; `label` names the part."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, root: "etree._Element") -> Iterator[tuple[str, Slot]]:
        namespace = namespace_of(root)
        dialect = WordDialect(namespace)
        paragraph_tag = namespace + "p"
        twins = _twins(root, paragraph_tag)
        others = {other for each in twins.values() for other in each}
        count = 0
        for element in root.iter(paragraph_tag, "{*}docPr"):
            if element.tag != paragraph_tag:
                for attribute in ("title", "descr"):
                    yield (
                        f"{self._label}, picture {element.get('name') or ''}",
                        AttributeText(element, attribute),
                    )
            elif element not in others:
                count += 1
                same = [Paragraph(each, dialect) for each in (element, *twins.get(element, ()))]
                yield from self._slots(f"{self._label}, paragraph {count}", same)

    def _slots(self, place: str, same: Sequence[Paragraph]) -> Iterator[tuple[str, Slot]]:
        if all(each.pieces == same[0].pieces for each in same):
            yield place, _Twins(same)
        else:
            for each in same:
                yield place, each


class _Twins:
    """Paragraphs of the same text, of which a program shows the one that it can."""

    def __init__(self, same: Sequence[Paragraph]) -> None:
        self._same = same
        self.pieces: tuple[Piece, ...] = same[0].pieces

    def write(self, pieces: Sequence[Piece]) -> None:
        """Put the pieces into each."""
        for paragraph in self._same:
            paragraph.write(pieces)


def _twins(root: "etree._Element", paragraph_tag: str) -> dict["etree._Element", list["etree._Element"]]:
    """For paragraphs in the first alternative of a content, those of the same number in the others."""
    found: dict[etree._Element, list[etree._Element]] = {}
    for content in root.iter(_COMPATIBILITY + "AlternateContent"):
        alternatives = [list(each.iter(paragraph_tag)) for each in content]
        for other in alternatives[1:]:
            if len(other) == len(alternatives[0]):
                for paragraph, twin in zip(alternatives[0], other, strict=True):
                    found.setdefault(paragraph, []).append(twin)
    return found


def _tracked(root: "etree._Element") -> Iterator[str]:
    namespace = namespace_of(root)
    count = sum(1 for _ in root.iter(*(namespace + name for name in _CHANGES)))
    if count:
        yield f"tracked changes: {count}, read as if accepted; deleted text is kept as it is"


FORMAT: Final = DocxFormat()
