"""Paragraphs of DrawingML (ECMA-376 part 1, chapter 21): of slides, their notes, and shapes of sheets.

Line breaks are points, fields (numbers of slides, dates) are copied; links are properties of runs here, and
so elements as bold is.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cotext.files.parts import AttributeText, Slot
from cotext.files.runs import Atom, Paragraph, look_of, new_run, text_atoms
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# The transitional namespace and the strict one.
_NAMESPACES: Final = (
    "{http://schemas.openxmlformats.org/drawingml/2006/main}",
    "{http://purl.oclc.org/ooxml/drawingml/main}",
)
# Properties of runs that nobody sees.
_UNSEEN: Final = frozenset(
    {"lang", "altLang", "dirty", "err", "smtClean", "smtId", "noProof", "bmk", "extLst"}
)


class DrawingDialect:
    """DrawingML of a namespace, in braces."""

    joins_text = False

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace

    def atoms(self, paragraph: "etree._Element") -> list[Atom]:
        """What the paragraph holds, in order."""
        return list(self._atoms(paragraph))

    def emptied(self, holder: "etree._Element") -> None:
        """Take everything but properties out."""
        for child in list(holder):
            if child.tag != self._prefix + "pPr":
                holder.remove(child)

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Add a run."""
        node = lxml_etree().Element(self._prefix + "t")
        node.text = taken(text)
        holder.append(self.wrapped([node], properties))

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """A new run around nodes."""
        return new_run(self._prefix, nodes, properties)

    def _atoms(self, paragraph: "etree._Element") -> Iterator[Atom]:
        for child in paragraph:
            name = local_name(child)
            text = "".join(child.itertext(self._prefix + "t"))
            if name == "r" and text:
                properties = child.find(self._prefix + "rPr")
                yield from text_atoms(text, properties, look_of(properties, _UNSEEN))
            elif name == "fld" and text.strip():
                yield Atom("copied", "", text, (child,))
            elif name not in ("r", "pPr"):
                yield Atom("point", name, nodes=(child,))


def drawn_slots(root: "etree._Element", label: str) -> Iterator[tuple[str, Slot]]:
    """The paragraphs of shapes, and the descriptions of pictures."""
    count = 0
    for element in root.iter(*(namespace + "p" for namespace in _NAMESPACES), "{*}cNvPr"):
        if local_name(element) == "p":
            count += 1
            yield f"{label}, paragraph {count}", Paragraph(element, DrawingDialect(namespace_of(element)))
        else:
            for attribute in ("title", "descr"):
                yield f"{label}, picture {element.get('name') or ''}", AttributeText(element, attribute)
