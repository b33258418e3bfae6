"""The format tmx: translation memories (TMX 1.4), read as a stream.

A unit is a sentence pair: `<tu><prop type="x-document">..</prop><tuv xml:lang=".."><seg>..</seg></tuv>...`
Units in a row that name the same document, by one of the properties that tools use for it, are a document; of
a file that names none, all units are one, in the order of the file. The source is in the language that the
unit or the header names (`srclang`), else its first; the target is its first in another language. Codes of
inline elements are left out, the text that they enclose is kept.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from cotext.data.formats import records, streams
from cotext.data.formats.records import OUTER_SPACE, Gathered, Record, id_to_write, one_line, without_breaks
from cotext.data.formats.xml_stream import XmlStream, check_characters, printable
from cotext.data.languages import best_language
from cotext.runtime.errors import CotextError

# As this package writes them.
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
_CODES: Final = ("bpt", "ept", "it", "ph", "ut")  # whose contents are no text


@dataclass(slots=True)
class Unit:
    """A unit of a memory: texts by language code as written, in the order of the file."""

    line: int
    source_language: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def document(self) -> str | None:
        """The name of its document, if it has one."""
        return document_of(self.properties)


def document_of(properties: Mapping[str, str]) -> str | None:
    """The document that the properties of a unit name."""
    lower = {key.lower(): value for key, value in properties.items()}
    return next((lower[key] for key in DOCUMENT_PROPERTIES if lower.get(key)), None)


def primary(language: str) -> str:
    """The language of a code, its region and script left out: "en" of "en-US", "EN" and "en_GB"."""
    return (
        language.strip().replace("_", "-").split("-")[0].lower() if language[:2].lower() != "x-" else language
    )


def read_units(path: Path) -> Iterator[Unit]:
    """All units, one after the other; raises CotextError for malformed XML, entities, and limits."""
    reader = _Reader(path)
    for _ in reader.stream.read():
        yield from reader.finished
        reader.finished.clear()
    if not reader.is_memory:
        raise CotextError(f"{path}: the root element is not <tmx>; this is no translation memory")


def read_tmx(path: Path) -> Iterator[Record]:
    """Read documents one after the other; a line break inside a segment becomes a space.

    Raises:
        CotextError: a memory of more than two languages, a unit of another number of languages than the units
            before it in its document; else as `read_units`.
    """
    known: list[str] = []
    gathered: _Document | None = None
    count = 0
    for unit in read_units(path):
        source = source_of(unit)
        if source is None:
            named = (
                f"in its source language {unit.source_language}"
                if unit.source_language
                else "in any language"
            )
            raise CotextError(f"{path}:{unit.line}: a unit without a text {named}; remove it")
        for language in (source, *unit.texts):
            if primary(language) not in known:
                known.append(primary(language))
        if len(known) > 2:
            raise CotextError(
                f"{path}:{unit.line}: more than two languages ({', '.join(known)}); take one pair out of it"
            )
        if gathered is None or gathered.document != unit.document:
            if gathered is not None:
                yield gathered.record()
            count += 1
            gathered = _Document(path, unit, source, str(count))
        gathered.add(unit, source)
    if gathered is not None:
        yield gathered.record()


def pairs(
    path: Path, source_language: str, target_language: str
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Source, target and properties of every unit that has both languages, read as a stream.

    The property `x-document` names the document of the unit, whatever the memory calls it; in a memory of
    no documents it is empty, and the order of units is that of the text. `x-position` counts the units of
    a document from 1 where the memory does not. A code fits in any region ("en", "en-US"), its own first.

    Raises:
        CotextError: missing, malformed, beyond a limit.
    """
    document, position = None, 0
    for unit in read_units(path):
        named = unit.document or ""
        position = position + 1 if named == document else 1
        document = named
        found = list(unit.texts)
        source, target = best_language(source_language, found), best_language(target_language, found)
        if source is not None and target is not None:
            yield (
                unit.texts[source],
                unit.texts[target],
                {POSITION: str(position), **unit.properties, DOCUMENT: named},
            )


def languages_of_tmx(path: Path) -> tuple[str, str]:
    """Return the codes of source and target of the first unit, each empty if the unit lacks it."""
    unit = next(read_units(path), Unit(0))
    source = source_of(unit) or unit.source_language
    return source, _target_of(unit, source) or ""


def source_of(unit: Unit) -> str | None:
    """The code of the text that is the source; None where the unit lacks it."""
    if not unit.source_language:
        return next(iter(unit.texts), None)
    wanted = primary(unit.source_language)
    return next((code for code in unit.texts if primary(code) == wanted), None)


class _Document:
    """Units in a row that belong to one document."""

    def __init__(self, path: Path, first: Unit, source: str, number: str) -> None:
        self.document = first.document
        self._path = path
        self._id = number if self.document is None else self.document.strip(OUTER_SPACE) or number
        self._line = first.line
        self._alone = _target_of(first, source) is None
        self._source, self._target = Gathered(path), Gathered(path)

    def add(self, unit: Unit, source: str) -> None:
        target = _target_of(unit, source)
        if (target is None) != self._alone:
            languages = ("one language", "two languages")
            raise CotextError(
                f"{self._path}:{unit.line}: a unit in {languages[target is not None]} among those in "
                f"{languages[target is None]} of document {self._id!r}; remove it"
            )
        self._source.append(without_breaks(unit.texts[source]))
        if target is not None:
            self._target.append(without_breaks(unit.texts[target]))

    def record(self) -> Record:
        target = None if self._alone else tuple(self._target)
        return Record(self._id, self._line, 0, source=tuple(self._source), target=target)


def _target_of(unit: Unit, source: str) -> str | None:
    return next((code for code in unit.texts if primary(code) != primary(source)), None)


class _Reader:
    """The unit, language and segment that the parser is in; complete units gather in `finished`."""

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
            self._count(records.SENTENCE_BYTES)
            if not self._language:
                raise CotextError(
                    f"{self._path}:{self.stream.line}: a <tuv> without xml:lang; name its language"
                )
        elif tag == "prop" and self._language is None:
            self._count(records.SENTENCE_BYTES)
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
            # Of two texts in one language, the first counts.
            self._unit.texts.setdefault(self._language, "".join(self._text_parts))
            self._text_parts = None
        elif tag == "prop" and self._text_parts is not None and self._property is not None:
            self._unit.properties.setdefault(self._property, "".join(self._text_parts))
            self._property = self._text_parts = None
        elif tag in _CODES:
            self._inside_code -= 1


def encode_tmx(record: Record, languages: tuple[str, str] | None = None) -> str:
    """Write a unit for every sentence, with its document and position.

    Raises CotextError for a control character that XML has no way to write.
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
    """A unit on lines of its own."""
    props = "".join(
        f"<prop type={quoteattr(key)}>{_escaped(value)}</prop>" for key, value in properties.items()
    )
    tuvs = "".join(
        f"<tuv xml:lang={quoteattr(code)}><seg>{_escaped(text)}</seg></tuv>\n" for code, text in texts
    )
    return f"<tu srclang={quoteattr(source_language)}>{props}\n{tuvs}</tu>\n"


def _escaped(text: str) -> str:
    # A bare carriage return would come back as a line feed.
    return escape(text, {"\r": "&#13;"})


def encode_memory(
    sentences: Iterable[tuple[str, str, Mapping[str, str]]], source_language: str, target_language: str
) -> bytes:
    """A memory of sentence pairs with their properties: `x-document` and `x-position` say where they stood.

    White space that a unit begins or ends with is kept; what XML cannot hold becomes a space.
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
