"""XLIFF 1.2 and 2.x (2.0, 2.1, 2.2): source and target of translation units.

A segment is a block, and a `<file>` is a document. Targets are filled or added, and nothing else changes:
notes, proposed translations (alt-trans, matches) and elements of other tools are kept. In 1.2, written
targets get the state `needs-review-translation`, and are marked as machine translation. In 2.x, their
segments get the state `translated`.

XML elements that enclose text (g, pc, mrk) become inline elements of a block. Properly nested pairs of empty
elements in a segment (bx and ex, bpt and ept, sc and ec, sm and em) become inline elements, too. Unpaired
elements, and elements that represent something (x, ph, it, cp), become *points* (elements without text).
Content marked as not translatable is copied.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from cotext.data.documents import Languages, primary_language, same_language
from cotext.files.blocks import ANY, Block, FileFormat, Item, Job, Piece, Tag, shown_text
from cotext.files.places import (
    Edit,
    Element,
    MarkupReader,
    Slot,
    SplicedFile,
    decoded_xml,
    escaped,
    has_root,
    with_attribute,
)
from cotext.files.strings import TAG, Markers, has_words, items_of, pieces_of
from cotext.runtime import CotextError, shown

# --- The contents of an XML element as pieces.

# The role of an inline element, and a detail. `encloses`: its text is translated; `begins`, `ends`: half of a
# pair around text (detail: equal for both halves); `stands`: represents something, without text (detail: the
# represented text); `copied`: its text is copied.
Kind = tuple[Literal["encloses", "begins", "ends", "stands", "copied"], str]
# Tried only at the start of a run of spaces, so that the time is linear.
_LINE_BREAKS: Final = re.compile(r"(?<![ \t])[ \t]*+\n\s*")
_PLACEHOLDER: Final = re.compile(r"[^\s<>%{$]*+[%{$][^\s<>]*")


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str  # text, copied, point; open and close of an XML element; begins and ends of a pair in it
    raw: str
    text: str = ""
    partner: str = ""  # equal for both tags of an element or a pair


@dataclass(slots=True)
class Segment:
    """The contents of a block: pieces, and the original text of their elements."""

    before: str
    pieces: tuple[Piece, ...]
    after: str
    elements: dict[Tag, str]

    def written(self, pieces: Sequence[Piece]) -> str:
        """Return the contents with the pieces replaced, as XML."""
        inner = (escaped(piece) if isinstance(piece, str) else self.elements[piece] for piece in pieces)
        return self.before + "".join(inner) + self.after


def segments(
    text: str, element: Element, kind_of: Callable[[Element], Kind], keep_breaks: bool
) -> list[Segment]:
    """Return the segments of an element; with `keep_breaks`, a line break outside elements ends a segment."""
    parts = list(_parts(text, element, kind_of))
    groups = _divided(parts) if keep_breaks else [parts]
    return [_segment(group, keep_breaks) for group in groups]


def _parts(text: str, element: Element, kind_of: Callable[[Element], Kind]) -> Iterator[_Part]:
    for number, child in enumerate(element.children):
        if isinstance(child, Element):
            role, detail = kind_of(child)
            whole = text[child.start : child.stop]
            if role == "encloses" and child.stop > child.inner:
                yield _Part("open", text[child.start : child.inner], partner=f"{child.start}")
                yield from _parts(text, child, kind_of)
                yield _Part("close", text[child.after : child.stop], partner=f"{child.start}")
            elif role == "copied":
                yield _Part("copied", whole, child.text)
            elif role in ("begins", "ends"):
                yield _Part(role, whole, partner=detail)
            elif _PLACEHOLDER.fullmatch(detail):
                yield _Part("copied", whole, detail)
            else:
                tag = TAG.fullmatch(detail)
                yield _Part("point", whole, partner=tag[2] if tag else "")
        elif not child.shown:
            yield _Part("point", child.content)
        else:
            # Escaped markup in a text, such as HTML in a CDATA section, becomes elements, too.
            for item in items_of(child.content, Markers()):
                raw = child.content[item.start : item.stop]
                kind = {"open": "begins", "close": "ends"}.get(item.kind, item.kind)
                yield _Part(kind, escaped(raw), raw, f"{number} {item.name}")


def _divided(parts: list[_Part]) -> list[list[_Part]]:
    groups: list[list[_Part]] = [[]]
    depth = halves = 0
    for part in parts:
        depth += (part.kind == "open") - (part.kind == "close")
        halves = max(0, halves + (part.kind == "begins") - (part.kind == "ends"))
        if part.kind != "text" or depth or halves:
            groups[-1].append(part)
            continue
        for line in part.text.splitlines(keepends=True):
            groups[-1].append(_Part("text", "", line))
            if line.endswith("\n"):
                groups.append([])
    return groups


def _segment(parts: list[_Part], keep_breaks: bool) -> Segment:
    found, elements = pieces_of(list(_items(parts, keep_breaks)), [part.raw for part in parts])
    pieces, before, after = list(found), "", ""
    if pieces and isinstance(pieces[0], str):
        stripped = pieces[0].lstrip()
        before, pieces[0] = pieces[0][: len(pieces[0]) - len(stripped)], stripped
    if pieces and isinstance(pieces[-1], str):
        stripped = pieces[-1].rstrip()
        after, pieces[-1] = pieces[-1][len(stripped) :], stripped
    inner = tuple(piece for piece in pieces if piece != "")
    return Segment(escaped(before), inner, escaped(after), elements)


def _items(parts: Iterable[_Part], keep_breaks: bool) -> Iterator[Item]:
    """Yield the parts as items; tags of a pair form an element only inside the same XML element."""
    around = [""]
    for number, part in enumerate(parts):
        if part.kind == "close":
            around.pop()
        kind = {"begins": "open", "ends": "close"}.get(part.kind, part.kind)
        text = part.text if keep_breaks or kind != "text" else _LINE_BREAKS.sub(" ", part.text)
        yield Item(kind, f"{around[-1]} {part.partner}", number, number, text)
        if part.kind == "open":
            around.append(part.partner)


_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?xliff[\s>]")
_VERSIONS: Final = {"1.0": "1", "1.1": "1", "1.2": "1", "2.0": "2", "2.1": "2", "2.2": "2"}
_UNFINISHED: Final = ("needs-", "new", "initial")  # beginnings of states
_UNTRANSLATED: Final = ("new", "needs-translation", "initial")
_FINAL: Final = ("final", "signed-off")


def _open(content: bytes, name: str, job: Job = ANY) -> SplicedFile:
    """Read a file; raise CotextError for malformed XML, unknown versions, or other languages."""
    source = decoded_xml(content, name)
    root = MarkupReader(source.text, name).root()
    # Some tools omit the version in files of 1.x.
    is_first = not root.space or root.space.startswith("urn:oasis:names:tc:xliff:document:1.")
    version = _VERSIONS.get(root.attributes.get("version", "1.2" if is_first else ""))
    if root.name != "xliff" or version is None:
        found = f"<{root.raw_name}> {shown(root.attributes.get('version', ''))}"
        raise CotextError(f"{name}: {found} is not supported; use XLIFF 1.2, 2.0, 2.1 or 2.2")
    reader = _Reader(source.text, name, job, root, version == "2")
    documents = [document for file in root.elements("file") if (document := list(reader.file(file)))]
    return SplicedFile(source, documents, reader.messages(), bilingual=True, once=reader.once)


# A segment of a source, its contents, and the target that is kept.
_Target = tuple[Element, list[Segment], Element | None]
# Messages about units that are not translated, or that may be wrong.
_KEPT: Final = "translated segments kept, and used as context"
_IN_REVIEW: Final = "segments waiting for review, kept (--entries unfinished translates them)"
_IS_FINAL: Final = "segments marked as final, kept"
_LOCKED: Final = "units marked translate=no or locked, kept"
_BINARY: Final = "units without text (bin-unit), kept"
_FOREIGN: Final = "files in languages other than those of the run, kept unchanged"
_SIZED: Final = "units with a length limit for the target, which is not checked"


class _Reader:
    """Reads the units of a file as slots."""

    def __init__(self, text: str, name: str, job: Job, root: Element, second: bool) -> None:
        self._text, self._name, self._job, self._root, self._second = text, name, job, root, second
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._counts: Counter[str] = Counter()
        self._unnamed_target = False
        self._files = 0
        self._languages: set[str] = set()
        self.once: list[Edit] = []

    def file(self, file: Element) -> Iterator[Slot]:
        """Yield the slots of a `<file>`; none if its languages differ from those of the run."""
        holder = self._root if self._second else file
        names = ("srcLang", "trgLang") if self._second else ("source-language", "target-language")
        source, target = (holder.attributes.get(name, "") for name in names)
        self._files += 1
        self._languages.add(f"{source or '?'}-{target or '?'}")
        for found, wanted in ((source, self._job.source_language), (target, self._job.target_language)):
            if found and wanted and not same_language(found, wanted):
                self._counts[_FOREIGN] += 1
                return
        if not target and self._job.target_language:
            tag = self._text[holder.start : holder.inner]
            edit = (holder.start, holder.inner, with_attribute(tag, names[1], self._job.target_language))
            if edit not in self.once:
                self.once.append(edit)
        self._unnamed_target |= not target and not self._job.target_language
        around = _translate(file, True), _preserve_in(file, _preserve_in(self._root, False))
        for body in [file] if self._second else file.elements("body"):
            for unit, translate, preserve in _units(body, *around):
                if unit.name == "bin-unit":
                    self._counts[_BINARY] += 1
                elif not translate or _is_locked(unit):
                    self._counts[_LOCKED] += 1
                else:
                    sized = (key.endswith(("maxwidth", "sizeRestriction")) for key in unit.attributes)
                    self._counts[_SIZED] += any(sized)
                    yield from self._unit(unit, preserve)

    def _unit(self, unit: Element, preserve: bool) -> Iterator[Slot]:
        """Yield the slots of a unit, which may have segments."""
        # Computed once for all segments, because a unit can have thousands.
        kind, place = _kinds(unit), self._place(unit)
        defined = (e for e in unit.children if isinstance(e, Element) and e.name == "seg-defs")  # SDLXLIFF
        locked = {e.attributes.get("id") for each in defined for e in each.elements("seg") if _is_locked(e)}
        for holder, source, target, state in _sides(unit, self._second):
            if source is None:
                raise CotextError(f"{self._name}:{self._place(holder)}: a {holder.name} without a source")
            approved = not self._second and unit.attributes.get("approved") == "yes"
            blocks: list[Block] = []
            parts: list[_Target] = []
            for one, existing in _pairs(source, target):
                if existing is not None and one.attributes.get("mid") in locked:
                    self._counts[_LOCKED] += 1
                    wanted = False
                else:
                    wanted = self._wanted(existing, "final" if approved else state)
                contents = segments(self._text, one, kind, _preserve_in(one, preserve))
                blocks += [Block(s.pieces, place, translate=wanted) for s in contents if has_words(s.pieces)]
                parts.append((one, contents, None if wanted else existing))
            if blocks:
                yield Slot(tuple(blocks), partial(self._edits, holder, source, target, parts))

    def _edits(
        self,
        holder: Element,
        source: Element,
        target: Element | None,
        parts: list[_Target],
        blocks: Sequence[Block],
    ) -> Iterable[Edit]:
        waiting = iter(blocks)
        inner: list[str] = []
        at = source.inner
        for one, contents, kept in parts:
            translation = "".join(
                s.written(next(waiting).pieces if has_words(s.pieces) else s.pieces) for s in contents
            )
            inner.append(self._text[at : one.inner])
            inner.append(translation if kept is None else self._text[kept.inner : kept.after])
            at = one.after
        inner.append(self._text[at : source.after])
        before = ""
        if target is not None:
            name, tag = target.raw_name, self._text[target.start : target.inner]
            if tag.endswith("/>"):  # an empty-element tag
                tag = f"{tag.removesuffix('/>').rstrip()}>"
        else:
            prefix, colon, _ = source.raw_name.rpartition(":")
            name = f"{prefix}{colon}target"
            tag = f"<{name}>"
            if "xml:space" in source.attributes:
                tag = with_attribute(tag, "xml:space", source.attributes["xml:space"])
            indent = re.search(r"\r?\n[ \t]*$", self._text[max(0, source.start - 200) : source.start])
            before = indent[0] if indent else ""
        if not self._second:  # mark it as machine translation
            tag = with_attribute(tag, "state", "needs-review-translation")
            tag = with_attribute(tag, "state-qualifier", "leveraged-mt")
        start, stop = (source.stop, source.stop) if target is None else (target.start, target.stop)
        yield start, stop, "".join([before, tag, *inner, f"</{name}>"])
        if self._second and holder.attributes.get("state") != "translated":
            tag = with_attribute(self._text[holder.start : holder.inner], "state", "translated")
            yield holder.start, holder.inner, re.sub(r"\ssubState\s*=\s*(\"[^\"]*\"|'[^']*')", "", tag)

    def _place(self, element: Element) -> str:
        named = element.attributes.get("id")
        line = bisect_left(self._line_ends, element.start) + 1
        return f"line {line}" + (f" ({named})" if named else "")

    def _wanted(self, target: Element | None, state: str) -> bool:
        """Return whether to translate a segment; count it if not."""
        if state in _FINAL:
            self._counts[_IS_FINAL] += 1
            return False
        if target is None or not target.text.strip() or state in _UNTRANSLATED or self._job.entries == "all":
            return True
        if state.startswith(_UNFINISHED):
            self._counts[_IN_REVIEW] += self._job.entries == "untranslated"
            return self._job.entries == "unfinished"
        self._counts[_KEPT] += 1
        return False

    def messages(self) -> list[str]:
        """Return messages about units that are not translated, length limits and unknown languages.

        Raises CotextError if no file has the languages of the run, or the target language is unknown.
        """
        if self._files and self._counts[_FOREIGN] == self._files:
            wanted = f"{self._job.source_language or '?'}-{self._job.target_language or '?'}"
            raise CotextError(
                f"{self._name}: has the languages {', '.join(sorted(self._languages))}, but the run "
                f"has {wanted}; use a run for the languages of the file"
            )
        if self._second and self._unnamed_target:
            raise CotextError(
                f"{self._name}: neither the file nor the run has a target language; add the attribute "
                "trgLang to the file"
            )
        compared = "the languages of the run are unknown, and not compared with the languages of the file"
        languages_known = self._job.source_language and self._job.target_language
        messages = [] if languages_known else [f"{compared} ({', '.join(sorted(self._languages))})"]
        return messages + [f"{what}: {count}" for what, count in self._counts.items() if count]


def _is_segment(element: Element) -> bool:
    return element.name == "mrk" and element.attributes.get("mtype") == "seg"


def _marks(element: Element) -> Iterator[Element]:
    """Yield the segments of a seg-source or target at any depth."""
    for child in element.elements():
        if _is_segment(child):
            yield child
        else:
            yield from _marks(child)


def _sides(unit: Element, is_second: bool) -> Iterator[tuple[Element, Element | None, Element | None, str]]:
    """Yield a trans-unit, or each segment of a unit of 2.x, with its source, target and state.

    If a seg-source has segments (mrk of type seg), it is the source.
    """
    for holder in unit.elements("segment") if is_second else [unit]:
        source, target, cut = (holder.first(name) for name in ("source", "target", "seg-source"))
        stated = holder if is_second else target
        is_cut = source is not None and cut is not None and next(_marks(cut), None) is not None
        yield holder, cut if is_cut else source, target, stated.attributes.get("state", "") if stated else ""


def _pairs(source: Element, target: Element | None) -> list[tuple[Element, Element | None]]:
    """Return source and target; or the segments of a seg-source, with the segments of the target."""
    if source.name != "seg-source":
        return [(source, target)]
    targets = {mark.attributes.get("mid"): mark for mark in _marks(target)} if target is not None else {}
    return [(mark, targets.get(mark.attributes.get("mid"))) for mark in _marks(source)]


def _is_locked(element: Element) -> bool:
    """Return whether an attribute of another tool locks an element, such as `mq:locked`."""
    attributes = element.attributes.items()
    return any(
        key.rpartition(":")[2] == "locked" and value in ("true", "locked") for key, value in attributes
    )


def _translate(element: Element, inherited: bool) -> bool:
    value = element.attributes.get("translate")
    return value == "yes" if value in ("yes", "no") else inherited


def _preserve_in(element: Element, inherited: bool) -> bool:
    value = element.attributes.get("xml:space")
    return value == "preserve" if value else inherited


def _kinds(unit: Element) -> Callable[[Element], Kind]:
    """Return a function for the roles of inline elements of 1.2 and 2.x.

    `originalData` of a unit of 2.x may contain their text.
    """
    data = unit.first("originalData")
    original = {item.attributes.get("id"): item.text for item in data.elements("data")} if data else {}

    def kind_of(element: Element) -> Kind:
        attribute, name = element.attributes.get, element.name
        if name in ("g", "pc"):
            return "encloses", ""
        if name == "mrk":
            is_copied = attribute("mtype") == "protected" or attribute("translate") == "no"
            return ("copied" if is_copied else "encloses"), ""
        if name in ("bx", "bpt", "ex", "ept"):
            return ("begins" if name[0] == "b" else "ends"), attribute("rid") or attribute("id", "")
        if name in ("sc", "sm"):
            return "begins", attribute("id", "")
        if name in ("ec", "em"):
            return "ends", attribute("startRef", "isolated")
        if "lb" in (attribute("ctype"), attribute("subType", "").removeprefix("xlf:")):
            return "stands", "<br>"
        shown = attribute("equiv-text") or attribute("equiv") or original.get(attribute("dataRef"))
        shown = shown or attribute("disp") or element.text
        return "stands", shown if name in ("x", "ph") else ""

    return kind_of


def translated_documents(
    content: bytes, name: str, every: bool = False
) -> tuple[tuple[str, str], list[list[tuple[str, str]]]]:
    """Return the languages of the first `<file>`, and the translated segments (both sides) of every `<file>`.

    Segments without a target, or in a state such as `new`, are omitted. Inline elements are removed.
    Languages are empty if the file states none. `every`: return all segments, also untranslated ones, with
    inline elements as written. Raises CotextError if files state different languages.
    """
    text = decoded_xml(content, name).text
    root = MarkupReader(text, name).root()
    files = list(root.elements("file"))
    is_second = root.attributes.get("version", "").startswith("2")
    keys = ("srcLang", "trgLang") if is_second else ("source-language", "target-language")
    holders = [root] if is_second else files or [root]
    stated = [tuple(holder.attributes.get(key, "") for key in keys) for holder in holders]
    first, *others = (Languages(*map(primary_language, pair)) for pair in stated)
    if other := next(filter(first.contradicts, others), None):
        raise CotextError(f"{name}: has files in {first.shown} and in {other.shown}; use one language pair")
    documents = [
        [pair for unit, *_ in _units(file) for pair in _translated(text, unit, is_second, every)]
        for file in files
    ]
    return (stated[0][0], stated[0][1]), documents


def _units(
    group: Element, translate: bool = True, preserve: bool = False
) -> Iterator[tuple[Element, bool, bool]]:
    """Yield each unit of a file, body or group, whether to translate it, and whether to keep its spaces."""
    for child in group.elements():
        inner, space = _translate(child, translate), _preserve_in(child, preserve)
        if child.name in ("trans-unit", "unit", "bin-unit"):
            yield child, inner, space
        elif child.name in ("body", "group"):
            yield from _units(child, inner, space)


def _translated(text: str, unit: Element, is_second: bool, every: bool) -> Iterator[tuple[str, str]]:
    """Yield source and target of the translated segments of a unit, or of every segment."""
    kind = _kinds(unit)
    for _, source, target, state in _sides(unit, is_second):
        if source is None:
            continue
        if every:
            yield _as_written(text, source), "" if target is None else _as_written(text, target)
        elif target is not None and state not in _UNTRANSLATED:
            for pair in _pairs(source, target):
                contents = [segments(text, e, kind, keep_breaks=False) if e else [] for e in pair]
                one, other = (" ".join(shown_text(p for s in c for p in s.pieces).split()) for c in contents)
                if one and other:
                    yield one, other


def _as_written(text: str, element: Element) -> str:
    """Return the contents of an element with decoded text, and its tags except those of segments."""
    parts = []
    for child in element.children:
        if not isinstance(child, Element):
            parts.append(child.content)
            continue
        inner = _as_written(text, child)
        if not _is_segment(child):  # its tags may be only in the target
            inner = text[child.start : child.inner] + inner + text[child.after : child.stop]
        parts.append(inner)
    return "".join(parts)


FORMAT: Final = FileFormat(
    "xliff",
    (".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff", ".txlf"),
    partial(has_root, root=_ROOT),
    _open,
    bilingual=True,
)
