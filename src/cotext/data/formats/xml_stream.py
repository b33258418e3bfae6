"""XML of corpora, parsed as a stream within limits: of depth, and of what the parser keeps at a time."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from xml.parsers import expat

from cotext.data.formats import streams
from cotext.runtime.errors import CotextError

CHUNK_BYTES: Final = 1 << 16
MAX_DEPTH: Final = 100  # of elements
_NOT_XML: Final = re.compile("[^\t\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class XmlStream:
    """A parser that hands on elements and text, and refuses what a corpus does not need.

    `encoding`: of the file, whatever its declaration says; None: by its declaration. A DOCTYPE is refused;
    with `doctype`, only one that declares something itself: what it names elsewhere is never looked up.
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
        """Parse the file, with a pause after every piece of it; raises CotextError for malformed XML."""
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
        # What the parser waits for the end of, a comment or an attribute, it keeps.
        self._fed += len(chunk)
        self.require(self._fed - self._parser.CurrentByteIndex, streams.MAX_LINE_BYTES, "markup")

    def require(self, size: int, most: int, what: str) -> None:
        """Raise CotextError where something is larger than it may be."""
        if size > most:
            raise CotextError(f"{self._path}:{self.line}: {what} of more than {most:,} bytes; split it")

    def _refuse_doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if not self._doctype or internal:
            raise CotextError(
                f"{self._path}:{self.line}: contains a DOCTYPE{' with declarations' * self._doctype}, which "
                "is refused for safety; remove the declaration and write its entities out"
            )

    def _refuse_entity(self, entity: str, is_parameter: int) -> None:
        raise CotextError(f"{self._path}:{self.line}: XML knows no entity &{entity}; write it out")

    def _start_element(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CotextError(f"{self._path}:{self.line}: more than {MAX_DEPTH} elements inside each other")
        self._start(tag, attributes)

    def _end_element(self, tag: str) -> None:
        self._depth -= 1
        self._end(tag)


def check_characters(text: str, what: str) -> None:
    """Raise CotextError for a character that XML has no way to write; `what` names the text in messages."""
    refused = _NOT_XML.search(text)
    if refused:
        raise CotextError(
            f"{what} contains U+{ord(refused[0]):04X}, which XML cannot hold; remove it or write jsonl "
            "instead"
        )


def printable(text: str) -> str:
    """A text in which characters that XML cannot hold are spaces."""
    return _NOT_XML.sub(lambda found: found[0] if found[0] == "\n" else " ", text)
