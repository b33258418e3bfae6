"""The XML formats tmx (translation memories, TMX 1.4) and wmt-xml (test sets of WMT), read as streams.

A unit of tmx is a sentence pair:

    <tu><prop type="x-document">..</prop><tuv xml:lang=".."><seg>..</seg></tuv>...</tu>

Consecutive units with the same document name (a property, see `DOCUMENT_PROPERTIES`) are a document. Without
names, all units are one document. The source language is `srclang` of the first unit or the
header, otherwise the language of the first text. The target is the first text in another language. Codes
inside inline elements are removed; the text between such elements is kept.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from cotext.data.documents import fitting_codes, primary_language
from cotext.data.formats import streams
from cotext.data.formats.streams import (
    ONE_LANGUAGE_SETS,
    OUTER_SPACE,
    Gathered,
    Record,
    id_to_write,
    one_line,
    without_breaks,
)
from cotext.runtime import CotextError

# --- Parsing of XML as a stream, with limits for depth and for the data that the parser keeps in memory.

CHUNK_BYTES: Final = 1 << 16
MAX_DEPTH: Final = 100  # nested elements
_NOT_XML: Final = re.compile("[^\t\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class XmlStream:
    """Reader of the elements with a `name`; it rejects XML features that no corpus needs.

    Each element becomes a tree that has only the elements in `kept`; text in other elements belongs to the
    element around them. A tree has at most `limit` bytes; `what` names it in messages. `outside`: attributes
    of the elements in `noted` that enclose trees. `lenient`: use the declared encoding instead of UTF-8,
    and allow a DOCTYPE without internal declarations. External files are never opened.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        kept: Iterable[str],
        noted: Iterable[str],
        limit: int,
        what: str,
        lenient: bool = False,
    ) -> None:
        self._path, self._name, self._limit, self._what = path, name, limit, what
        self._kept, self._noted, self._lenient = {name, *kept}, {*noted}, lenient
        self.outside: dict[str, dict[str, str]] = {}
        self._finished: list[tuple[int, Element]] = []
        self._builder: TreeBuilder | None = None  # of the element that is being read
        self._depth = self._fed = self._line = self._size = 0
        self._parser = expat.ParserCreate(None if lenient else "utf-8")
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text

    def read(self) -> Iterator[tuple[int, Element]]:
        """Yield line (from 1) and tree of each element; raises CotextError for malformed XML."""
        with streams.opened(self._path) as stream:
            final = False
            while not final:
                chunk = stream.read(CHUNK_BYTES)
                final = not chunk
                self._feed(chunk, final)
                yield from self._finished
                self._finished.clear()

    def _feed(self, chunk: bytes, final: bool) -> None:
        try:
            self._parser.Parse(chunk, final)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise CotextError(
                f"{self._path}:{error.lineno}: malformed XML at column {error.offset + 1}: {reason}"
            ) from None
        # The size of unfinished comments and attributes is limited, because the parser keeps them in memory.
        self._fed += len(chunk)
        self._require(self._fed - self._parser.CurrentByteIndex, streams.MAX_LINE_BYTES, "markup")
        self._require(self._size, self._limit, self._what)

    def _error(self, problem: str) -> CotextError:
        return CotextError(f"{self._path}:{self._parser.CurrentLineNumber}: {problem}")

    def _require(self, size: int, most: int, what: str) -> None:
        if size > most:
            raise self._error(f"{what} of more than {most:,} bytes; split it")

    def _refuse_doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if not self._lenient or internal:
            raise self._error(
                f"contains a DOCTYPE{' with declarations' * self._lenient}, which is rejected for safety; "
                "remove it and replace each entity by its text"
            )

    def _refuse_entity(self, entity: str, is_parameter: int) -> None:
        raise self._error(f"XML has no entity &{entity}; replace it by the character")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested elements")
        if tag == self._name:
            if self._builder is not None:
                raise self._error(f"<{tag}> inside the <{tag}> that began at line {self._line}")
            self._builder, self._line = TreeBuilder(), self._parser.CurrentLineNumber
            self._size = sum(map(len, attributes.values()))
            self._builder.start(tag, attributes)
        elif self._builder is None:
            if tag in self._noted:
                if tag in ONE_LANGUAGE_SETS and self.outside:
                    first = next(iter(self.outside))
                    raise self._error(f"<{tag}> after <{first}>; write them to separate files")
                self.outside[tag] = attributes
        elif tag in self._kept:
            self._size += streams.SENTENCE_BYTES + sum(map(len, attributes.values()))
            self._builder.start(tag, attributes)

    def _text(self, text: str) -> None:
        if self._builder is not None:
            self._size += len(text)
            self._builder.data(text)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._builder is None or tag not in self._kept:
            return
        element = self._builder.end(tag)
        self._require(self._size, self._limit, self._what)
        if tag == "seg":
            self._require(len(element.text or ""), streams.MAX_LINE_BYTES, "a segment")
        if tag == self._name:
            self._finished.append((self._line, element))
            self._builder = None


def check_characters(text: str, what: str) -> None:
    """Raise CotextError for a character that XML cannot contain; messages begin with `what`."""
    if match := _NOT_XML.search(text):
        raise CotextError(
            f"{what} contains U+{ord(match[0]):04X}, which XML cannot contain; remove it or write jsonl"
        )


def printable(text: str) -> str:
    """Replace characters that XML cannot contain by spaces."""
    return _NOT_XML.sub(lambda match: match[0] if match[0] == "\n" else " ", text)


# These names occur in files written by this package.
DOCUMENT: Final = "x-document"
POSITION: Final = "x-position"
UNKNOWN_LANGUAGES: Final = ("x-source", "x-target")
HEADER: Final = (
    '<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4">\n<header creationtool="cotext" '
    'creationtoolversion="1" segtype="sentence" o-tmf="cotext" adminlang="en" srclang="*all*" '
    'datatype="plaintext"/>\n<body>\n'
)
FOOTER: Final = "</body>\n</tmx>\n"
# Types of properties that name the document of a unit, in lower case.
DOCUMENT_PROPERTIES: Final = (
    *(DOCUMENT, "document", "x-document-id", "x-docid", "x-doc-id", "docid"),
    *("file", "x-file", "filename", "x-filename", "txt::doc. no."),
)
_CODES: Final = ("bpt", "ept", "it", "ph", "ut")  # elements whose content is not text


@dataclass(slots=True)
class Unit:
    """A unit of a translation memory: texts by language code, in the order of the file."""

    line: int
    source_language: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def document(self) -> str | None:
        """The name of the document, or None."""
        lower = {key.lower(): value for key, value in self.properties.items()}
        return next((lower[key] for key in DOCUMENT_PROPERTIES if lower.get(key)), None)


@lru_cache(maxsize=100)
def primary(language: str) -> str:
    """Return the language of a code without region and script; private codes such as x-source unchanged."""
    return language if language[:2].lower() == "x-" else primary_language(language)


def read_units(path: Path) -> Iterator[Unit]:
    """Yield all units; raises CotextError for malformed XML, entities, and exceeded limits."""
    kept, limit = ("tuv", "seg", "prop", *_CODES), streams.MAX_LINE_BYTES
    stream = XmlStream(path, "tu", kept, ("tmx", "header"), limit, "a unit", lenient=True)
    for line, element in stream.read():
        header = stream.outside.get("header", {})
        language = element.get("srclang", header.get("srclang", ""))
        unit = Unit(line, "" if language == "*all*" else language)
        for child in element:
            if child.tag == "prop":
                unit.properties.setdefault(child.get("type", ""), _text_of(child))
            elif child.tag == "tuv":
                code = child.get("xml:lang") or child.get("lang")
                if not code:
                    raise CotextError(f"{path}:{line}: a <tuv> without xml:lang; add the attribute")
                for segment in child.findall("seg"):
                    # If a unit has two texts in one language, the first is used.
                    unit.texts.setdefault(code, _text_of(segment))
        yield unit
    if "tmx" not in stream.outside:
        raise CotextError(f"{path}: the root element is not <tmx>; this is not a translation memory")


def _text_of(element: Element) -> str:
    """Return the text of an element without the content of its codes."""
    return "".join((element.text or "", *(code.tail or "" for code in element)))


def read_tmx(path: Path) -> Iterator[Record]:
    """Read documents; a line break inside a segment becomes a space.

    Raises CotextError if a unit has no source text, the file has more than two languages, or a document has
    units both in one and in two languages. Also raises the errors of `read_units`.
    """
    known, usual = set[str](), ""
    by_document = groupby(read_units(path), key=attrgetter("document"))
    for number, (document, units) in enumerate(by_document, 1):
        name = (document or "").strip(OUTER_SPACE) or str(number)
        sources, targets = Gathered(path), Gathered(path)
        line = 0
        for unit in units:
            # The order of texts, and `srclang`, may differ between units; the sides must not.
            unit.source_language = usual = usual or source_of(unit) or unit.source_language
            where, source = f"{path}:{unit.line}", source_of(unit)
            if source is None:
                named = f"in its source language {unit.source_language}" if unit.source_language else "at all"
                raise CotextError(f"{where}: a unit without a text {named}; remove it")
            known |= {primary(language) for language in (source, *unit.texts)}
            if len(known) > 2:
                listed = ", ".join(sorted(known))
                raise CotextError(f"{where}: more than two languages ({listed}); extract one pair")
            target = _target_of(unit, source)
            if target is None and len(unit.texts) > 1:
                listed = ", ".join(unit.texts)
                raise CotextError(f"{where}: several texts in one language ({listed}); change a code")
            if sources and (target is not None) != bool(targets):
                languages = ("one language", "two languages")
                raise CotextError(
                    f"{where}: a unit in {languages[target is not None]}, but the other units of document "
                    f"{name!r} are in {languages[target is None]}; remove it"
                )
            line = line or unit.line
            sources.append(without_breaks(unit.texts[source]))
            if target is not None:
                targets.append(without_breaks(unit.texts[target]))
        yield Record(name, line, 0, source=tuple(sources), target=tuple(targets) if targets else None)


def pairs(
    path: Path, source_language: str, target_language: str
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield source, target and properties of every unit; a text that the unit does not have is empty.

    In the returned properties, `x-document` is the name of the unit's document, or empty; the file may have
    it under another name. `x-position` is the position from the file, otherwise the number of the unit in its
    document, from 1. Regions of language codes are ignored ("en" also finds "en-US"), but an equal code is
    preferred.

    Raises CotextError if the file is missing or malformed, or exceeds a limit.
    """
    document, position = None, 0
    for unit in read_units(path):
        named = unit.document or ""
        position = position + 1 if named == document else 1
        document = named
        codes = list(unit.texts)
        wanted = source_language, target_language
        source, target = (next(iter(fitting_codes(code, codes)), "") for code in wanted)
        properties = {POSITION: str(position), **unit.properties, DOCUMENT: named}
        yield unit.texts.get(source, ""), unit.texts.get(target, ""), properties


def languages_of_tmx(path: Path) -> tuple[str, str]:
    """Return the codes of source and target of the first unit; a missing code is empty."""
    unit = next(read_units(path), Unit(0))
    source = source_of(unit) or unit.source_language
    return source, _target_of(unit, source) or ""


def source_of(unit: Unit) -> str | None:
    """Return the language code of the source text; None if the unit has no source."""
    if not unit.source_language:
        return next(iter(unit.texts), None)
    same = [code for code in unit.texts if primary(code) == primary(unit.source_language)]
    return unit.source_language if unit.source_language in same else next(iter(same), None)


def _target_of(unit: Unit, source: str) -> str | None:
    return next((code for code in unit.texts if primary(code) != primary(source)), None)


def encode_tmx(record: Record, languages: tuple[str, str] | None = None) -> str:
    """Return a unit for every sentence, with its document and position.

    Raises CotextError for a character that XML cannot contain.
    """
    document = id_to_write(record)
    check_characters(document, f"document id {document!r}")
    # Two texts in the same language, such as a text and its repair, need names that differ.
    named = languages if languages and languages[0] != languages[1] else UNKNOWN_LANGUAGES
    source = record.sentences if record.sentences is not None else record.source
    sides = [
        (code, side) for code, side in zip(named, (source, record.target), strict=True) if side is not None
    ]
    count = len(sides[0][1]) if sides else 0
    units = []
    for index in range(count):
        texts = {code: one_line(document, index, side[index]).strip(OUTER_SPACE) for code, side in sides}
        for text in texts.values():
            check_characters(text, f"document {document!r}, sentence {index + 1}")
        units.append(encode_unit(named[0], texts.items(), {DOCUMENT: document, POSITION: str(index + 1)}))
    return "".join(units)


def encode_unit(source_language: str, texts: Iterable[tuple[str, str]], properties: Mapping[str, str]) -> str:
    props = "".join(
        f"<prop type={quoteattr(key)}>{_escaped(value)}</prop>" for key, value in properties.items()
    )
    tuvs = "".join(
        f"<tuv xml:lang={quoteattr(code)}><seg>{_escaped(text)}</seg></tuv>\n" for code, text in texts
    )
    return f"<tu srclang={quoteattr(source_language)}>{props}\n{tuvs}</tu>\n"


def _escaped(text: str) -> str:
    # An unescaped carriage return would be read back as a line feed.
    return escape(text, {"\r": "&#13;"})


def encode_memory(
    sentences: Iterable[tuple[str, str, Mapping[str, str]]], source_language: str, target_language: str
) -> bytes:
    """Return a TMX file of sentence pairs with properties, such as `x-document` and `x-position`.

    White space at both ends of texts is kept; characters that XML cannot contain become spaces.
    """
    units = (
        encode_unit(
            source_language,
            ((source_language, printable(source)), (target_language, printable(target))),
            {key: printable(value) for key, value in properties.items()},
        )
        for source, target, properties in sentences
    )
    return "".join((HEADER, *units, FOOTER)).encode()


# --- The format wmt-xml: the XML of WMT test sets, read as a stream.
#
# `<dataset><doc id=..><src lang=..><p><seg id=..>`; the target is the first `<ref>`, otherwise the first
# `<hyp>`. The older XML, also used by IWSLT, has a file for each language: `<mteval><refset><doc
# docid=..><seg id=..>`, with `<srcset>`, `<refset>` or `<tstset>`.

SIDES = ("src", "ref", "hyp")


def read_wmt_xml(path: Path) -> Iterator[Record]:
    """Read documents; a line break inside a segment becomes a space.

    Raises CotextError for malformed XML, for segments, markup or documents that are too large, and for any
    DOCTYPE (its entities could expand without end).
    """
    stream = _wmt_xml(path)
    for number, (line, document) in enumerate(stream.read(), 1):
        name = document.get("id") or document.get("docid") or str(number)
        if stream.outside:
            yield Record(name, line, 0, _texts(document))
            continue
        source, reference, hypothesis = (document.find(side) for side in SIDES)
        target = hypothesis if reference is None else reference
        ids = [[each.get("id") for each in side.iter("seg")] for side in (source, target) if side is not None]
        is_paired = len(ids) == 2 and len(ids[0]) == len(ids[1])
        for source_id, target_id in zip(*ids, strict=True) if is_paired else ():
            if None not in (source_id, target_id) and source_id != target_id:
                raise CotextError(
                    f"{path}:{line}: document {name!r}: segment {source_id!r} of the source is paired with "
                    f"segment {target_id!r} of the target; put both sides in the same order"
                )
        texts = _texts(source), _texts(target)
        yield Record(name, line, 0, None, *(texts if ids else ((), None)))


def languages_of_wmt_xml(path: Path) -> tuple[str, str]:
    """Return the `lang` attributes of source and target of the first document; empty if missing."""
    _, document = next(_wmt_xml(path).read(), (0, Element("doc")))
    sides = (document.find(side) for side in SIDES)
    source, reference, hypothesis = ("" if side is None else side.get("lang", "") for side in sides)
    return source, reference or hypothesis


def _wmt_xml(path: Path) -> XmlStream:
    kept, limit = (*SIDES, "seg"), streams.MAX_DOCUMENT_BYTES
    return XmlStream(path, "doc", kept, ONE_LANGUAGE_SETS, limit, "a document")


def _texts(side: Element | None) -> tuple[str, ...] | None:
    """Return the texts of the segments of an element."""
    return None if side is None else tuple(without_breaks(each.text or "") for each in side.iter("seg"))
