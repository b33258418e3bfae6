"""Presentations (.pptx, .pptm): text of shapes, tables and notes is replaced, everything else is unchanged.

Reading order: slides in the order of the show, each with its shapes in the order of the file, then its notes.
The properties are a separate document. Layouts and masters are not translated.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import FileFormat
from cotext.files.parts import Package, PartReader, PartsFile, PlainSlot, TreeSlot, recognises
from cotext.files.runs import Atom, Dialect, Paragraph, look_of
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Paragraphs of DrawingML (ECMA-376 part 1, chapter 21), in slides and notes.
#
# Line breaks are empty elements; fields (slide numbers, dates) are copied. Links are properties of runs, so
# they become elements in the same way as bold text.

# The transitional and the strict namespace.
_NAMESPACES: Final = (
    "{http://schemas.openxmlformats.org/drawingml/2006/main}",
    "{http://purl.oclc.org/ooxml/drawingml/main}",
)
# Properties of runs that do not change the look.
_UNSEEN: Final = frozenset(
    {"lang", "altLang", "dirty", "err", "smtClean", "smtId", "noProof", "bmk", "extLst"}
)
_BREAKING: Final = re.compile("([\t\n\r]+)")


class DrawingDialect(Dialect):
    """DrawingML, with its transitional or its strict namespace."""

    properties = frozenset({"pPr"})

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Append a run."""
        node = lxml_etree().Element(self._prefix + "t")
        node.text = taken(text)
        holder.append(self.wrapped([node], properties))

    def atoms(self, paragraph: "etree._Element") -> Iterator[Atom]:
        """Yield the parts of a paragraph in order; tabs and line breaks in its text are copied."""
        for child in paragraph:
            name = local_name(child)
            text = "".join(child.itertext(self._prefix + "t", with_tail=False))
            if name == "r" and text:
                properties = child.find(self._prefix + "rPr")
                look = look_of(properties, _UNSEEN)
                for part in filter(None, _BREAKING.split(text)):
                    yield Atom("copied" if part[0] in "\t\n\r" else "text", "", part, (), properties, look)
            elif name == "fld" and text.strip():
                yield Atom("copied", "", text, (child,))
            elif name not in ("r", "pPr"):
                yield Atom("point", name, nodes=(child,))


def drawn_slots(root: "etree._Element", label: str) -> Iterator[tuple[str, TreeSlot]]:
    """Yield the paragraphs of shapes and the descriptions of pictures."""
    count = 0
    for element in root.iter(*(namespace + "p" for namespace in _NAMESPACES), "{*}cNvPr"):
        if local_name(element) == "p":
            count += 1
            yield f"{label}, paragraph {count}", Paragraph(element, DrawingDialect(namespace_of(element)))
        else:
            for attribute in ("title", "descr"):
                yield f"{label}, picture {element.get('name') or ''}", PlainSlot(element, attribute)


def _open(content: bytes, name: str) -> PartsFile:
    package = Package(content, name)
    readers: list[PartReader] = []
    # Slides in the order of the show, each once.
    targets = {key: part for key, kind, part in package.relations(package.main) if kind == "slide"}
    nodes = package.root(package.main).iterfind("{*}sldIdLst/{*}sldId")
    keys = (str(value) for node in nodes for key, value in node.items() if str(key).endswith("}id"))
    slides = dict.fromkeys(targets[key] for key in keys if key in targets)
    for number, slide in enumerate(slides, 1):
        readers.append(package.reader(slide, partial(drawn_slots, label=f"slide {number}")))
        notes = [part for _, kind, part in package.relations(slide) if kind == "notesSlide"]
        readers += [package.reader(part, partial(drawn_slots, label=f"notes {number}")) for part in notes]
    return PartsFile(package, [readers, package.properties()], list(package.untranslated_content("ppt/")))


FORMAT: Final = FileFormat(
    "pptx", (".pptx", ".pptm", ".ppsx", ".potx"), partial(recognises, folder=b"ppt/"), _open
)
