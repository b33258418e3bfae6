"""Translation of a stream, line by line; a document is translated when the empty line after it has arrived.

Documents that have arrived are translated together, without waiting for others.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from queue import Queue

from cotext.data.documents import Document
from cotext.data.formats.streams import OUTER_SPACE
from cotext.data.splitting import Splitter
from cotext.runtime.errors import CotextError
from cotext.translation.open import OpenedRun
from cotext.translation.prose import Prose
from cotext.translation.translator import Translation
from cotext.translation.wishes import Wishes

BYTE_ORDER_MARK = "\ufeff"
DOCUMENTS_AHEAD = 256  # maximum that are read while others are translated, or are translated together


@dataclass(frozen=True, slots=True)
class _Part:
    """A document of the stream with its line endings, or an empty line that is copied."""

    document: Document | None
    endings: tuple[str, ...]


_Arrived = _Part | CotextError | None


@dataclass(slots=True)
class StreamReport:
    """Counts of a translated stream."""

    documents: int = 0
    sentences: int = 0
    truncated: int = 0  # sentences at the length limit
    long: int = 0  # longer than the training data
    split_lines: int = 0
    split_sentences: int = 0  # in them

    def count(self, translation: Translation) -> None:
        """Add a document."""
        self.documents += 1
        self.sentences += len(translation.document)
        self.truncated += len(translation.truncated)
        self.long += len(translation.long)


class StreamTranslation:
    """Translation of numbered lines with their line endings into one line for each.

    `splitter` splits lines with several sentences; None: each line is one sentence.

    Raises:
        CotextError: the number of passes or `decode.align` is not possible for a stream.
    """

    def __init__(self, opened: OpenedRun, splitter: Splitter | None, wishes: Wishes) -> None:
        self._wishes = wishes
        wishes.check(opened.translator)
        self.report = StreamReport()
        self._translator = opened.translator
        self._prose = Prose(splitter, opened.languages)
        self._translator.plan.check_passes()
        if self._translator.plan.options.align == "free":
            raise CotextError(
                "decode.align = free may leave sentences without a translation, and an empty line ends a "
                "document; choose decode.align = constrained, or translate a file"
            )

    def run(self, lines: Iterable[tuple[int, str]], write: Callable[[str], None]) -> None:
        """Translate the stream; `write` is called with complete documents and the empty lines after them.

        Raises:
            CotextError: a sentence is too long, or lines cannot be read; earlier documents are written.
        """
        arriving: Queue[_Arrived] = Queue(DOCUMENTS_AHEAD)
        # A daemon thread, because it may wait for a line forever, and must not keep the process alive.
        threading.Thread(target=self._read, args=(lines, arriving), daemon=True).start()
        last: _Arrived = _Part(None, ())
        while last is not None:
            # All parts that have arrived are translated together.
            parts: list[_Part] = []
            while isinstance(last := arriving.get(), _Part):
                parts.append(last)
                if len(parts) == DOCUMENTS_AHEAD or arriving.empty():
                    break
            self._translate(parts, write)
            if isinstance(last, CotextError):
                raise last
        self.report.split_lines = self._prose.split_lines
        self.report.split_sentences = self._prose.split_sentences

    def _read(self, lines: Iterable[tuple[int, str]], arriving: "Queue[_Arrived]") -> None:
        try:
            for part in self._parts(iter(lines)):
                arriving.put(part)
        except CotextError as error:
            arriving.put(error)
        else:
            arriving.put(None)

    def _parts(self, lines: Iterator[tuple[int, str]]) -> Iterator[_Part]:
        """Yield documents, named by the number of their first line, and the empty lines that end them."""
        lines_of_document: list[str] = []
        first = 1
        for number, line in chain(lines, [(0, "")]):  # the last document may have no empty line after it
            if number == 1 and line.startswith(BYTE_ORDER_MARK):
                yield _Part(None, (BYTE_ORDER_MARK,))
                line = line.removeprefix(BYTE_ORDER_MARK)
            if _text_and_ending(line)[0]:
                first = first if lines_of_document else number
                lines_of_document.append(line)
                continue
            if lines_of_document:
                sentences, endings = zip(*map(_text_and_ending, lines_of_document), strict=True)
                yield _Part(Document(f"of line {first}", sentences), endings)
            yield _Part(None, (line,))
            lines_of_document = []

    def _translate(self, parts: list[_Part], write: Callable[[str], None]) -> None:
        documents: list[Document] = []
        problem: CotextError | None = None
        for part in parts:
            if part.document is not None:
                try:
                    self._translator.check([self._prose.count(part.document)])
                except CotextError as error:
                    problem, parts = error, parts[: parts.index(part)]
                    break
                documents.append(part.document)
        split = [self._prose.split(document) for document in documents]
        guide = self._wishes.guide(self._translator, [document.sentences for document in split])
        translations = dict(self._translator.translate(split, guide=guide))
        number = 0
        for part in parts:
            if part.document is None:
                write("".join(part.endings))
                continue
            translation = self._prose.join(part.document, translations[number])
            # A sentence without visible characters has no translation, and an empty line would end the
            # document.
            targets = translation.document.sentences
            lines = zip(targets, part.document.sentences, part.endings, strict=True)
            write("".join(f"{target or source}{ending}" for target, source, ending in lines))
            self.report.count(translations[number])
            number += 1
        if problem is not None:
            raise problem


def _text_and_ending(line: str) -> tuple[str, str]:
    """Return a line without outer space, and its line ending."""
    text = line.removesuffix("\n").removesuffix("\r")
    return text.strip(OUTER_SPACE), line[len(text) :]
