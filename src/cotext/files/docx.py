"""Word documents and templates: the text of paragraphs is replaced, everything else is unchanged.

Reading order: the body, with tables cell by cell, and text boxes after the paragraph of their anchor; then
footnotes and endnotes. Headers and footers are a separate document. Comments are another, and the properties
(title, subject, keywords) a third. Tracked changes are read as if accepted: inserted text is translated and
stays marked as inserted; deleted text is kept unchanged.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import FileFormat
from cotext.files.parts import Package, PartReader, PartsFile, PlainSlot, TreeSlot, recognises
from cotext.files.runs import Atom, Dialect, Paragraph, look_of
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Paragraphs of WordprocessingML (ECMA-376 part 1, chapter 17) as pieces (`files.blocks.Piece`).
#
# Inline elements: links, content controls, insertions, ranges of bookmarks and comments. Points, which have
# no text: breaks, tabs, pictures, notes and deletions. Results of fields are copied, except links, tables of
# contents, indexes and texts of forms. Marks that refer to the old text (misspellings, optional hyphens, page
# breaks) are removed from a changed paragraph.

_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
_HOLDERS: Final = frozenset({"hyperlink", "smartTag", "customXml", "ins", "moveTo", "dir", "bdo"})
_PROPERTIES: Final = frozenset({"pPr", "smartTagPr", "customXmlPr", "fldData"})
_DROPPED: Final = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
# Properties of runs that do not change the formatting.
_UNSEEN: Final = frozenset({"lang", "noProof", "rPrChange", "webHidden", "hint"})
_TRANSLATED_FIELDS: Final = frozenset({"HYPERLINK", "TOC", "INDEX", "FORMTEXT"})
# Content controls whose text is selected from a list, or is also stored elsewhere.
_BOUND_CONTROLS: Final = frozenset(
    {"date", "dropDownList", "comboBox", "checkbox", "dataBinding", "equation", "picture"}
)
_NON_BREAKING_HYPHEN: Final = "\u2011"
_PARTED: Final = re.compile(f"([\t\n{_NON_BREAKING_HYPHEN}])")


class WordDialect(Dialect):
    """WordprocessingML, with its transitional or its strict namespace."""

    properties = _PROPERTIES

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Append a run."""
        # Append the empty run first: lxml takes quadratic time to move a run with thousands of children.
        run = self.wrapped((), properties)
        holder.append(run)
        for part in _PARTED.split(taken(text)):
            name = {"\t": "tab", "\n": "br", _NON_BREAKING_HYPHEN: "noBreakHyphen"}.get(part, "t")
            if part:
                node = lxml_etree().SubElement(run, self._prefix + name)
                if name == "t":
                    node.text = part
                    node.set(_SPACE, "preserve")

    def atoms(self, paragraph: "etree._Element") -> Iterator[Atom]:
        """Yield the parts of a paragraph, or of a link or other container of runs in it, in order."""
        children = list(paragraph)
        ends = self._field_ends(children)
        closing: dict[int, str] = {}  # names of translated fields by their last run; fields may be nested
        at = 0
        while at < len(children):
            stop = ends.get(at, at + 1)
            result = self._translated_result(children, at, stop) if at in ends else 0
            if result:
                closing[stop - 1] = f"field {id(children[at])}"
                yield Atom("open", closing[stop - 1], nodes=tuple(children[at:result]))
                stop = result
            elif at in ends:
                yield _copied(tuple(children[at:stop]), "".join(_text(n, "t") for n in children[at:stop]))
            elif at in closing:
                yield Atom("close", closing[at], nodes=(children[at],))
            else:
                yield from self._child(children[at])
            at = stop

    def _child(self, child: "etree._Element") -> Iterator[Atom]:
        name = local_name(child)
        if not str(child.tag).startswith(self._prefix):
            yield _copied((child,), _text(child, "t") if name.startswith("oMath") else "")
        elif name == "r":
            yield from self._run(child)
        elif name in _HOLDERS:
            yield from self._holder(child, child)
        elif name in ("sdt", "fldSimple"):
            holder = child if name == "fldSimple" else child.find(self._prefix + "sdtContent")
            controls = {local_name(node) for node in child.iterfind(f"{self._prefix}sdtPr/*")}
            field = _field_name(child.get(self._prefix + "instr"))
            is_translated = (
                field in _TRANSLATED_FIELDS if name == "fldSimple" else not controls & _BOUND_CONTROLS
            )
            if holder is not None and is_translated:
                yield from self._holder(child, holder)
            else:
                yield _copied((child,), _text(child, "t"))
        elif name.endswith("Start") or name.endswith("End"):
            kind = "open" if name.endswith("Start") else "close"
            number = child.get(self._prefix + "id")
            yield Atom(kind, f"{name.removesuffix('Start').removesuffix('End')} {number}", nodes=(child,))
        elif name not in _PROPERTIES | _DROPPED:
            yield Atom("point", nodes=(child,))

    def _holder(self, node: "etree._Element", holder: "etree._Element") -> Iterator[Atom]:
        name = f"{local_name(node)} {id(node)}"
        yield Atom("open", name, nodes=(node,), holder=holder)
        yield from self.atoms(holder)
        yield Atom("close", name, holder=holder)

    def _run(self, run: "etree._Element") -> Iterator[Atom]:
        properties = run.find(self._prefix + "rPr")
        look = look_of(properties, _UNSEEN)
        for child in run:
            name = local_name(child)
            if name == "t" and child.text:
                kept = child.get(_SPACE) == "preserve"
                text = (child.text if kept else child.text.strip(" \t\r\n")).replace("\n", " ")
                if text:
                    yield Atom("text", "", text, (), properties, look)
            elif name == "noBreakHyphen":
                yield Atom("text", "", _NON_BREAKING_HYPHEN, (), properties, look)
            elif name == "ruby" and (base := child.find(self._prefix + "rubyBase")) is not None:
                key = f"ruby {id(child)}"
                yield Atom("open", key, "", (child,), properties, key, in_run=True, holder=base)
                yield from self.atoms(base)
                yield Atom("close", key, holder=base)
            elif name not in _DROPPED and name not in ("rPr", "t"):
                yield Atom("point", name, "", (child,), properties, look, in_run=True)

    def _field_ends(self, children: Sequence["etree._Element"]) -> dict[int, int]:
        """Map the index of the run that begins a field to the index after the run that ends it."""
        begun: list[int] = []
        ends: dict[int, int] = {}
        for index, child in enumerate(children):
            for mark in self._field_marks(child):
                if mark == "begin":
                    begun.append(index)
                elif mark == "end" and begun:
                    ends[begun.pop()] = index + 1
        return ends

    def _field_marks(self, node: "etree._Element") -> list[str]:
        if local_name(node) != "r":
            return []
        return [m.get(self._prefix + "fldCharType") or "" for m in node.iterfind(self._prefix + "fldChar")]

    def _translated_result(self, children: Sequence["etree._Element"], start: int, stop: int) -> int:
        """Return the start of the result of a field, after its separator; 0 if the field is copied."""
        for at in range(start, stop):
            if "separate" in (marks := self._field_marks(children[at])):
                instruction = "".join(_text(node, "instrText") for node in children[start:at])
                ends = self._field_marks(children[start]), marks, self._field_marks(children[stop - 1])
                is_plain = ends == (["begin"], ["separate"], ["end"])
                return at + 1 if is_plain and _field_name(instruction) in _TRANSLATED_FIELDS else 0
        return 0


def _copied(nodes: tuple["etree._Element", ...], text: str) -> Atom:
    return Atom("copied", "", text, nodes) if text.strip() else Atom("point", nodes=nodes)


def _text(node: "etree._Element", name: str) -> str:
    """Return the text in elements of this name, without text boxes, which have their own blocks."""
    if local_name(node) == name:
        return node.text or ""
    return "" if local_name(node) == "txbxContent" else "".join(_text(child, name) for child in node)


def _field_name(instruction: str | None) -> str:
    return next(iter((instruction or "").split()), "").upper()


_COMPATIBILITY: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
# XPath of controls around paragraphs and cells whose text is selected from a list.
_CHOSEN: Final = "//*[*/*[local-name()='dropDownList' or local-name()='comboBox' or local-name()='date']]"
_CHANGES: Final = ("ins", "del", "moveFrom", "moveTo")


def _open(content: bytes, name: str) -> PartsFile:
    package = Package(content, name)
    relations = package.relations(package.main)

    def readers(*kinds: str) -> list[PartReader]:
        parts = ((kind, part) for kind in kinds for _, found, part in relations if found == kind)
        return [package.reader(part, partial(_slots, label=kind)) for kind, part in parts]

    documents = [
        [package.reader(package.main, partial(_slots, label="body")), *readers("footnotes", "endnotes")],
        readers("header", "footer"),
        readers("comments"),
        package.properties(),
    ]
    messages = list(package.untranslated_content("word/"))
    root = package.root(package.main)
    if count := sum(1 for _ in root.iter(*(namespace_of(root) + name for name in _CHANGES))):
        messages.insert(0, f"tracked changes: {count}, read as if accepted; deleted text is not changed")
    return PartsFile(package, documents, messages)


def _slots(root: "etree._Element", label: str) -> Iterator[tuple[str, TreeSlot]]:
    """Yield paragraphs and descriptions of pictures in a part; `label`: name of the part in messages."""
    namespace = namespace_of(root)
    dialect = WordDialect(namespace)
    paragraph_tag = namespace + "p"
    copies = _copies(root, paragraph_tag)
    others = {other for paragraphs in copies.values() for other in paragraphs}
    others.update(*(control.iter(paragraph_tag) for control in root.xpath(_CHOSEN)))
    count = 0
    for element in root.iter(paragraph_tag, "{*}docPr"):
        if element.tag != paragraph_tag:
            for attribute in ("title", "descr"):
                yield f"{label}, picture {element.get('name') or ''}", PlainSlot(element, attribute)
        elif element not in others:
            count += 1
            first, *alternatives = (Paragraph(copy, dialect) for copy in (element, *copies.get(element, ())))
            if all(other.pieces == first.pieces for other in alternatives):
                first.copies, alternatives = alternatives, []
            for slot in (first, *alternatives):
                yield f"{label}, paragraph {count}", slot


def _copies(root: "etree._Element", paragraph_tag: str) -> dict["etree._Element", list["etree._Element"]]:
    """Map paragraphs to their copies: Word stores some text boxes twice, as alternative contents."""
    copies: dict[etree._Element, list[etree._Element]] = {}
    for content in root.iter(_COMPATIBILITY + "AlternateContent"):
        alternatives = [list(alternative.iter(paragraph_tag)) for alternative in content]
        for other in alternatives[1:]:
            if len(other) == len(alternatives[0]):
                for paragraph, copy in zip(alternatives[0], other, strict=True):
                    copies.setdefault(paragraph, []).append(copy)
    return copies


FORMAT: Final = FileFormat(
    "docx", (".docx", ".docm", ".dotx", ".dotm"), partial(recognises, folder=b"word/"), _open
)
