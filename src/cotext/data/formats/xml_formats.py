"""The XML formats tmx (translation memories, TMX 1.4) and wmt-xml (test sets of WMT), read as streams.

A unit of tmx is a sentence pair:

    <tu><prop type="x-document">..</prop><tuv xml:lang=".."><seg>..</seg></tuv>...</tu>

Consecutive units with the same document name, in one of the properties that tools use for it, are a document.
Without such names, all units are one document. The source is the text in the language `srclang` of the unit
or the header, otherwise the first text. The target is the first text in another language. Codes inside
inline elements are removed; the text between such elements is kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

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
from cotext.data.languages import fitting_codes
from cotext.runtime.errors import CotextError

# --- Parsing of XML as a stream, with limits for depth and for the data that the parser keeps in memory.

CHUNK_BYTES: Final = 1 << 16
MAX_DEPTH: Final = 100  # nested elements
_NOT_XML: Final = re.compile("[^\t\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class XmlStream:
    """A parser that calls functions for elements and text, and rejects XML features that no corpus needs.

    `encoding` overrides the declared encoding of the file, unless it is None. `doctype`: allow a DOCTYPE
    without internal declarations; by default, any DOCTYPE is an error. External files are never opened.
    """

    def __init__(
        self,
        path: Path,
        start: Callable[[str, dict[str, str]], None],
        end: Callable[[str], None],
        text: Callable[[str], None],
        encoding: str | None = "utf-8",
        doctype: bool = False,
    ) -> None:
        self._path = path
        self._start, self._end = start, end
        self._depth = self._fed = 0
        self._doctype = doctype
        self._parser = expat.ParserCreate(encoding)
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element
        self._parser.CharacterDataHandler = text

    @property
    def line(self) -> int:
        """The line that the parser is in, counted from 1."""
        return self._parser.CurrentLineNumber

    def read(self) -> Iterator[None]:
        """Parse the file, and yield after every chunk; raises CotextError for malformed XML."""
        with streams.opened(self._path) as stream:
            final = False
            while not final:
                chunk = stream.read(CHUNK_BYTES)
                final = not chunk
                self._feed(chunk, final)
                yield

    def _feed(self, chunk: bytes, final: bool) -> None:
        try:
            self._parser.Parse(chunk, final)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise CotextError(
                f"{self._path}:{error.lineno}: malformed XML at column {error.offset + 1}: {reason}"
            ) from None
        # The parser buffers unfinished comments and attributes.
        self._fed += len(chunk)
        self.require(self._fed - self._parser.CurrentByteIndex, streams.MAX_LINE_BYTES, "markup")

    def require(self, size: int, most: int, what: str) -> None:
        """Raise CotextError if `size` exceeds `most`."""
        if size > most:
            raise CotextError(f"{self._path}:{self.line}: {what} of more than {most:,} bytes; split it")

    def _refuse_doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if not self._doctype or internal:
            raise CotextError(
                f"{self._path}:{self.line}: contains a DOCTYPE{' with declarations' * self._doctype}, which "
                "is rejected for safety; remove it and replace each entity by its text"
            )

    def _refuse_entity(self, entity: str, is_parameter: int) -> None:
        raise CotextError(
            f"{self._path}:{self.line}: XML has no entity &{entity}; replace it by the character"
        )

    def _start_element(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CotextError(f"{self._path}:{self.line}: more than {MAX_DEPTH} nested elements")
        self._start(tag, attributes)

    def _end_element(self, tag: str) -> None:
        self._depth -= 1
        self._end(tag)


def check_characters(text: str, what: str) -> None:
    """Raise CotextError for a character that XML cannot contain; messages begin with `what`."""
    if match := _NOT_XML.search(text):
        raise CotextError(
            f"{what} contains U+{ord(match[0]):04X}, which XML cannot contain; remove it or write jsonl"
        )


def printable(text: str) -> str:
    """Replace characters that XML cannot contain by spaces."""
    return _NOT_XML.sub(lambda match: match[0] if match[0] == "\n" else " ", text)


# Names in files written by this package.
DOCUMENT: Final = "x-document"
POSITION: Final = "x-position"
UNKNOWN_LANGUAGES: Final = ("x-source", "x-target")
HEADER: Final = (
    '<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4">\n<header creationtool="cotext" '
    'creationtoolversion="1" segtype="sentence" o-tmf="cotext" adminlang="en" srclang="*all*" '
    'datatype="plaintext"/>\n<body>\n'
)
FOOTER: Final = "</body>\n</tmx>\n"
# Types of properties with the document of a unit, in lower case.
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


def primary(language: str) -> str:
    """Return the language of a code without region and script: "en" for "en-US", "EN" and "en_GB"."""
    return (
        language.strip().replace("_", "-").split("-")[0].lower() if language[:2].lower() != "x-" else language
    )


def read_units(path: Path) -> Iterator[Unit]:
    """Yield all units; raises CotextError for malformed XML, entities, and exceeded limits."""
    reader = _Reader(path)
    for _ in reader.stream.read():
        yield from reader.finished
        reader.finished.clear()
    if not reader.is_memory:
        raise CotextError(f"{path}: the root element is not <tmx>; this is not a translation memory")


def read_tmx(path: Path) -> Iterator[Record]:
    """Read documents; a line break inside a segment becomes a space.

    Raises CotextError if the file has more than two languages, or a document has units with one and with two
    languages; also the errors of `read_units`.
    """
    known: set[str] = set()
    by_document = groupby(read_units(path), key=attrgetter("document"))
    for number, (document, units) in enumerate(by_document, 1):
        name = (document or "").strip(OUTER_SPACE) or str(number)
        sources, targets = Gathered(path), Gathered(path)
        line = 0
        for unit in units:
            where, source = f"{path}:{unit.line}", source_of(unit)
            if source is None:
                named = f"in its source language {unit.source_language}" if unit.source_language else "at all"
                raise CotextError(f"{where}: a unit without a text {named}; remove it")
            known |= {primary(language) for language in (source, *unit.texts)}
            if len(known) > 2:
                listed = ", ".join(sorted(known))
                raise CotextError(f"{where}: more than two languages ({listed}); extract one pair")
            target = _target_of(unit, source)
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
    """Yield source, target and properties of every unit that has both languages.

    In the returned properties, `x-document` is the name of the document of the unit, whatever this property
    is called in the file; it is empty if there is no document. `x-position` is the position from the file,
    or else the number of the unit in its document, from 1. Regions of language codes are ignored ("en" also
    finds "en-US"), but an equal code is preferred.

    Raises CotextError if the file is missing or malformed, or exceeds a limit.
    """
    document, position = None, 0
    for unit in read_units(path):
        named = unit.document or ""
        position = position + 1 if named == document else 1
        document = named
        codes = list(unit.texts)
        wanted = source_language, target_language
        source, target = (next(iter(fitting_codes(code, codes)), None) for code in wanted)
        if source is not None and target is not None:
            yield (
                unit.texts[source],
                unit.texts[target],
                {POSITION: str(position), **unit.properties, DOCUMENT: named},
            )


def languages_of_tmx(path: Path) -> tuple[str, str]:
    """Return the codes of source and target of the first unit; a missing code is empty."""
    unit = next(read_units(path), Unit(0))
    source = source_of(unit) or unit.source_language
    return source, _target_of(unit, source) or ""


def source_of(unit: Unit) -> str | None:
    """Return the language code of the source text; None if the unit has no source."""
    if not unit.source_language:
        return next(iter(unit.texts), None)
    wanted = primary(unit.source_language)
    return next((code for code in unit.texts if primary(code) == wanted), None)


def _target_of(unit: Unit, source: str) -> str | None:
    return next((code for code in unit.texts if primary(code) != primary(source)), None)


class _Reader:
    """The state of parsing a translation memory; complete units are added to `finished`."""

    def __init__(self, path: Path) -> None:
        self.finished: list[Unit] = []
        self.is_memory = False
        self._path = path
        self._source_language = ""
        self._unit: Unit | None = None
        self._language: str | None = None
        self._property: str | None = None
        self._text_parts: list[str] | None = None
        self._inside_code = self._unit_characters = 0
        self.stream = XmlStream(path, self._start, self._end, self._text, encoding=None, doctype=True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tmx":
            self.is_memory = True
        elif tag == "header":
            self._source_language = attributes.get("srclang", "")
        elif tag == "tu":
            language = attributes.get("srclang", self._source_language)
            self._unit = Unit(self.stream.line, "" if language == "*all*" else language)
            self._unit_characters = 0
        elif self._unit is None:
            return
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._count(streams.SENTENCE_BYTES)
            if not self._language:
                raise CotextError(
                    f"{self._path}:{self.stream.line}: a <tuv> without xml:lang; add the attribute"
                )
        elif tag == "prop" and self._language is None:
            self._count(streams.SENTENCE_BYTES)
            self._property = attributes.get("type", "")
            self._text_parts = []
        elif tag == "seg" and self._language is not None:
            self._text_parts = []
        elif tag in _CODES:
            self._inside_code += 1

    def _text(self, text: str) -> None:
        if self._text_parts is not None and not self._inside_code:
            self._count(len(text))
            self._text_parts.append(text)

    def _count(self, size: int) -> None:
        self._unit_characters += size
        self.stream.require(self._unit_characters, streams.MAX_LINE_BYTES, "a unit")

    def _end(self, tag: str) -> None:
        if self._unit is None:
            return
        if tag == "tu":
            self.finished.append(self._unit)
            self._unit = self._language = None
        elif tag == "tuv":
            self._language = None
        elif tag == "seg" and self._text_parts is not None and self._language is not None:
            # If a unit has two texts in one language, the first is used.
            self._unit.texts.setdefault(self._language, "".join(self._text_parts))
            self._text_parts = None
        elif tag == "prop" and self._text_parts is not None and self._property is not None:
            self._unit.properties.setdefault(self._property, "".join(self._text_parts))
            self._property = self._text_parts = None
        elif tag in _CODES:
            self._inside_code -= 1


def encode_tmx(record: Record, languages: tuple[str, str] | None = None) -> str:
    """Write a unit for every sentence, with its document and position.

    Raises CotextError for a character that XML cannot contain.
    """
    document = id_to_write(record)
    check_characters(document, f"document id {document!r}")
    named = languages or UNKNOWN_LANGUAGES
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

    Raises CotextError for malformed XML, for any DOCTYPE (it could declare entities that expand without end),
    and for segments, markup or documents that are too large.
    """
    reader = _WmtXmlReader(path)
    for _ in reader.stream.read():
        yield from reader.finished
        reader.finished.clear()


def languages_of_wmt_xml(path: Path) -> tuple[str, str]:
    """Return the `lang` attributes of source and target of the first document; empty if missing."""
    reader = _WmtXmlReader(path)
    next((True for _ in reader.stream.read() if reader.finished), False)
    target = reader.languages.get("ref") or reader.languages.get("hyp", "")
    return reader.languages.get("src", ""), target


class _WmtXmlReader:
    """The state of parsing a test set; complete documents are added to `finished`."""

    def __init__(self, path: Path) -> None:
        self.finished: list[Record] = []
        self.languages: dict[str, str] = {}  # side -> language of its first element
        self._path = path
        self._documents = 0
        self._document_id: str | None = None
        self._line = 0
        self._set: str | None = None
        self._sides: dict[str, list[tuple[str | None, str]]] = {}
        self._side: list[tuple[str | None, str]] | None = None
        self._segment: list[str] | None = None
        self._segment_id: str | None = None
        self._document_bytes = self._segment_characters = 0
        # The encoding is UTF-8, as in all other formats; the declaration is ignored.
        self.stream = XmlStream(path, self._start, self._end, self._text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.stream.line
        if tag == "doc":
            if self._document_id is not None:
                raise CotextError(
                    f"{self._path}:{line}: <doc> inside the <doc> that began at line {self._line}"
                )
            self._documents += 1
            self._document_id = attributes.get("id") or attributes.get("docid") or str(self._documents)
            self._line = line
            self._sides = {}
            if self._set is not None:
                self._side = self._sides.setdefault(self._set, [])
            self._document_bytes = 0
        elif tag in ONE_LANGUAGE_SETS:
            if self._set is not None:
                raise CotextError(
                    f"{self._path}:{line}: <{tag}> after <{self._set}>; write them to separate files"
                )
            self._set = tag
        elif tag in SIDES and self._document_id is not None:
            # A second reference is read and ignored.
            self._side = []
            self._sides.setdefault(tag, self._side)
            self.languages.setdefault(tag, attributes.get("lang", ""))
        elif tag == "seg" and self._side is not None:
            self._segment = []
            self._segment_characters = 0
            self._segment_id = attributes.get("id")

    def _text(self, text: str) -> None:
        if self._segment is not None:
            self._segment_characters += len(text)
            self.stream.require(self._segment_characters, streams.MAX_LINE_BYTES, "a segment")
            self._segment.append(text)

    def _end(self, tag: str) -> None:
        if tag == "seg" and self._segment is not None and self._side is not None:
            sentence = without_breaks("".join(self._segment))
            self._document_bytes += len(sentence) + len(self._segment_id or "") + streams.SENTENCE_BYTES
            self.stream.require(self._document_bytes, streams.MAX_DOCUMENT_BYTES, "a document")
            self._side.append((self._segment_id, sentence))
            self._segment = None
        elif tag in SIDES:
            self._side = None
        elif tag == "doc" and self._document_id is not None:
            self.finished.append(self._record(self._document_id))
            self._document_id = None

    def _record(self, document_id: str) -> Record:
        if self._set is not None:
            return Record(document_id, self._line, 0, _sentences(self._sides[self._set]))
        source = self._sides.get("src")
        target = self._sides.get("ref", self._sides.get("hyp"))
        if source and target and len(source) == len(target):
            for (source_id, _), (target_id, _) in zip(source, target, strict=True):
                if source_id is not None and target_id is not None and source_id != target_id:
                    raise CotextError(
                        f"{self._path}:{self._line}: document {document_id!r}: segment {source_id!r} of the "
                        f"source is paired with segment {target_id!r} of the target; put the segments of "
                        "both sides in the same order"
                    )
        if source is None and target is None:
            source = []
        return Record(document_id, self._line, 0, None, _sentences(source), _sentences(target))


def _sentences(segments: list[tuple[str | None, str]] | None) -> tuple[str, ...] | None:
    return None if segments is None else tuple(text for _, text in segments)
