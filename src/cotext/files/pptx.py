"""Presentations (.pptx, .pptm): text of shapes, tables and notes is replaced, all else stays.

Reading order: slides in the order of the show, each with its shapes in the order of the file, then its notes.
What the file says of itself is a document of its own. Layouts and masters stay as they are.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import FileFormat
from cotext.files.parts import AttributeText, Package, PartReader, PartsFile, Slot, recognises, relation_of
from cotext.files.runs import Atom, Paragraph, look_of, new_run, text_atoms
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Paragraphs of DrawingML (ECMA-376 part 1, chapter 21): of slides and their notes.
#
# Line breaks are points, fields (numbers of slides, dates) are copied; links are properties of runs here,
# and so elements as bold is.

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


def _open(content: bytes, name: str) -> PartsFile:
    package = Package(content, name)
    readers: list[PartReader] = []
    for number, slide in enumerate(_slides(package), 1):
        readers.append(package.reader(slide, partial(drawn_slots, label=f"slide {number}")))
        notes = [part for kind, part in package.related(slide) if kind == "notesSlide"]
        readers += [package.reader(part, partial(drawn_slots, label=f"notes {number}")) for part in notes]
    messages = list(package.left("ppt/"))
    if any(part.startswith("ppt/comments/") for part in package.archive.names):
        messages.append("comments are left as they are")
    return PartsFile(package.archive, [readers, package.properties()], messages)


def _slides(package: Package) -> list[str]:
    """The slides in the order of the show, each once."""
    targets = {key: part for key, kind, part in package.relations(package.main) if kind == "slide"}
    root = package.tree(package.main).getroot()
    keys = [relation_of(node) for node in root.iterfind("{*}sldIdLst/{*}sldId")]
    return list(dict.fromkeys(targets[key] for key in keys if key in targets))


FORMAT: Final = FileFormat(
    "pptx", (".pptx", ".pptm", ".ppsx", ".potx"), partial(recognises, folder=b"ppt/"), _open
)
