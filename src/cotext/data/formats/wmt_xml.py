"""The format wmt-xml: the XML of the WMT test sets, read as a stream.

`<dataset><doc id=..><src lang=..><p><seg id=..>`; the target is the first `<ref>`, or else the first `<hyp>`.
The older XML, that of IWSLT too, has a file for each language: `<mteval><refset><doc docid=..><seg id=..>`,
with `<srcset>`, `<refset>` or `<tstset>`.
"""

from collections.abc import Iterator
from pathlib import Path

from cotext.data.formats import records, streams
from cotext.data.formats.foreign import ONE_LANGUAGE_SETS
from cotext.data.formats.records import Record, without_breaks
from cotext.data.formats.xml_stream import XmlStream
from cotext.runtime.errors import CotextError

SIDES = ("src", "ref", "hyp")


def read_wmt_xml(path: Path) -> Iterator[Record]:
    """Read documents one after the other; a line break inside a segment becomes a space.

    Raises CotextError for malformed XML, for any DOCTYPE (entities that expand without end come in one), and
    for a segment, markup or a document that is larger than a line or a document may be.
    """
    reader = _Reader(path)
    for _ in reader.stream.read():
        yield from reader.finished
        reader.finished.clear()


def languages_of_wmt_xml(path: Path) -> tuple[str, str]:
    """Return the `lang` attributes of source and target of the first document, each empty if it has none."""
    reader = _Reader(path)
    next((True for _ in reader.stream.read() if reader.finished), False)
    target = reader.languages.get("ref") or reader.languages.get("hyp", "")
    return reader.languages.get("src", ""), target


class _Reader:
    """The document, side and segment that the parser is in; complete documents gather in `finished`."""

    def __init__(self, path: Path) -> None:
        self.finished: list[Record] = []
        self.languages: dict[str, str] = {}  # of sides, by their first elements
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
        # UTF-8 as in every other format, whatever the declaration says.
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
                raise CotextError(f"{self._path}:{line}: <{tag}> after <{self._set}>; give each a file")
            self._set = tag
        elif tag in SIDES and self._document_id is not None:
            # A second reference is read but not kept.
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
            self._document_bytes += len(sentence) + len(self._segment_id or "") + records.SENTENCE_BYTES
            self.stream.require(self._document_bytes, records.MAX_DOCUMENT_BYTES, "a document")
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
                        "source "
                        f"stands beside segment {target_id!r} of the target; put the segments in one order"
                    )
        if source is None and target is None:
            source = []
        return Record(document_id, self._line, 0, None, _sentences(source), _sentences(target))


def _sentences(segments: list[tuple[str | None, str]] | None) -> tuple[str, ...] | None:
    return None if segments is None else tuple(text for _, text in segments)
