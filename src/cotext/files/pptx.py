"""Presentations (.pptx, .pptm): text of shapes, tables and notes is replaced, all else stays.

Reading order: slides in the order of the show, each with its shapes in the order of the file, then its notes.
What the file says of itself is a document of its own. Layouts and masters stay as they are.
"""

from functools import partial
from typing import Final

from cotext.files.drawing import drawn_slots
from cotext.files.opc import Package, recognises, relation_of
from cotext.files.parts import PartReader, PartsFile


class PptxFormat:
    """Office Open XML of presentations."""

    name = "pptx"
    suffixes = (".pptx", ".pptm", ".ppsx", ".potx")

    def recognises(self, head: bytes) -> bool:
        """Whether it is an archive with a folder `ppt`."""
        return recognises(head, b"ppt/")

    def open(self, content: bytes, name: str) -> PartsFile:
        """Read a presentation."""
        package = Package(content, name)
        readers: list[PartReader] = []
        for number, slide in enumerate(_slides(package), 1):
            readers.append(package.reader(slide, partial(drawn_slots, label=f"slide {number}")))
            notes = [part for kind, part in package.related(slide) if kind == "notesSlide"]
            readers += [package.reader(part, partial(drawn_slots, label=f"notes {number}")) for part in notes]
        messages = list(package.left("ppt/"))
        if any(name.startswith("ppt/comments/") for name in package.archive.names):
            messages.append("comments are left as they are")
        return PartsFile(package.archive, [readers, package.properties()], messages)


def _slides(package: Package) -> list[str]:
    """The slides in the order of the show, each once."""
    targets = {key: part for key, kind, part in package.relations(package.main) if kind == "slide"}
    root = package.tree(package.main).getroot()
    keys = [relation_of(node) for node in root.iterfind("{*}sldIdLst/{*}sldId")]
    return list(dict.fromkeys(targets[key] for key in keys if key in targets))


FORMAT: Final = PptxFormat()
