"""Word documents (.docx, .docm): text of paragraphs is replaced, all else stays.

Reading order: the body, with tables cell by cell and the text of a box after the paragraph that it is
anchored to; then footnotes and endnotes. Headers and footers are a document of their own, comments another,
and what the file says of itself (title, subject, keywords) the last. Changes that are tracked are read as if
accepted: insertions are elements and stay marked, deletions stay as they are.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import FileFormat, Piece
from cotext.files.parts import AttributeText, Package, PartReader, PartsFile, Slot, recognises
from cotext.files.runs import Atom, Paragraph, look_of, new_run
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Paragraphs of WordprocessingML (ECMA-376 part 1, chapter 17) as pieces.
#
# Links, content controls, insertions and ranges of bookmarks and comments are elements; breaks, tabs,
# pictures, notes and deletions are points. Results of fields are copied, but for links and tables of
# contents, whose text is translated. In a changed paragraph, what a word processor noted of the old text
# goes: marks of misspellings, optional hyphens, where pages broke.

_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
_HOLDERS: Final = frozenset({"hyperlink", "smartTag", "customXml", "ins", "moveTo", "dir", "bdo"})
_PROPERTIES: Final = frozenset({"pPr", "smartTagPr", "customXmlPr", "fldData"})
_DROPPED: Final = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
# Properties of runs that nobody sees.
_UNSEEN: Final = frozenset({"lang", "noProof", "rPrChange", "webHidden", "hint"})
_TRANSLATED_FIELDS: Final = frozenset({"HYPERLINK", "TOC", "INDEX", "FORMTEXT"})
# Content controls whose text is chosen, or kept elsewhere too.
_BOUND_CONTROLS: Final = frozenset(
    {"date", "dropDownList", "comboBox", "checkbox", "dataBinding", "equation", "picture"}
)
_NON_BREAKING_HYPHEN: Final = "\u2011"
_PARTED: Final = re.compile(f"([\t\n{_NON_BREAKING_HYPHEN}])")


class WordDialect:
    """WordprocessingML of a namespace, in braces: there is a transitional and a strict one."""

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace

    def atoms(self, paragraph: "etree._Element") -> list[Atom]:
        """What the paragraph holds, in order."""
        return list(self._content(paragraph))

    def emptied(self, holder: "etree._Element") -> None:
        """Take everything but properties out."""
        for child in list(holder):
            if local_name(child) not in _PROPERTIES:
                holder.remove(child)

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Add a run."""
        # First the run: lxml takes quadratic time to move one that has thousands of children.
        run = self.wrapped((), properties)
        holder.append(run)
        for part in _PARTED.split(taken(text)):
            name = {"\t": "tab", "\n": "br", _NON_BREAKING_HYPHEN: "noBreakHyphen"}.get(part, "t")
            if part:
                node = lxml_etree().SubElement(run, self._prefix + name)
                if name == "t":
                    node.text = part
                    node.set(_SPACE, "preserve")

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """A new run around nodes."""
        return new_run(self._prefix, nodes, properties)

    def _content(self, parent: "etree._Element") -> Iterator[Atom]:
        children = list(parent)
        ends = self._field_ends(children)
        closing: dict[int, str] = {}  # of translated fields, by their last run: fields may hold others
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
            yield (
                _copied((child,), _text(child, "t"))
                if name.startswith("oMath")
                else Atom("point", nodes=(child,))
            )
        elif name == "r":
            yield from self._run(child)
        elif name in _HOLDERS:
            yield from self._holder(child, child)
        elif name == "sdt":
            content = child.find(self._prefix + "sdtContent")
            controls = {local_name(node) for node in child.iterfind(f"{self._prefix}sdtPr/*")}
            if content is None or controls & _BOUND_CONTROLS:
                yield _copied((child,), _text(child, "t"))
            else:
                yield from self._holder(child, content)
        elif name == "fldSimple":
            if _field_name(child.get(self._prefix + "instr")) in _TRANSLATED_FIELDS:
                yield from self._holder(child, child)
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
        yield from self._content(holder)
        yield Atom("close", name, holder=holder)

    def _run(self, run: "etree._Element") -> Iterator[Atom]:
        properties = run.find(self._prefix + "rPr")
        look = look_of(properties, _UNSEEN)
        for child in run:
            name = local_name(child)
            if name == "t" and child.text:
                kept = child.get(_SPACE) == "preserve"
                text = child.text if kept else child.text.strip(" \t\r\n")
                if text:
                    yield Atom("text", "", text, (), properties, look)
            elif name == "noBreakHyphen":
                yield Atom("text", "", _NON_BREAKING_HYPHEN, (), properties, look)
            elif name not in _DROPPED and name not in ("rPr", "t"):
                yield Atom("point", name, "", (child,), properties, look, in_run=True)

    def _field_ends(self, children: Sequence["etree._Element"]) -> dict[int, int]:
        """For each run with which a field begins that ends among them: the index behind its end."""
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
        return [
            mark.get(self._prefix + "fldCharType") or "" for mark in node.iterfind(self._prefix + "fldChar")
        ]

    def _translated_result(self, children: Sequence["etree._Element"], start: int, stop: int) -> int:
        """Where the result of a field begins, behind its separator; 0 where the field is copied."""
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
    """The text in elements of that name, without that of boxes, which has blocks of its own."""
    if local_name(node) == name:
        return node.text or ""
    return "" if local_name(node) == "txbxContent" else "".join(_text(child, name) for child in node)


def _field_name(instruction: str | None) -> str:
    return next(iter((instruction or "").split()), "").upper()


_COMPATIBILITY: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_CHANGES: Final = ("ins", "del", "moveFrom", "moveTo")


def _open(content: bytes, name: str) -> PartsFile:
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


FORMAT: Final = FileFormat(
    "docx", (".docx", ".docm", ".dotx", ".dotm"), partial(recognises, folder=b"word/"), _open
)
