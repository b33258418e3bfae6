"""Translation of a stream: lines in, lines out, a document as soon as the empty line behind it has come.

What is there already when the system gets to it is translated together, as the documents of a file are;
nobody waits for documents that have not come yet.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Queue

from cotext.data.documents import Document
from cotext.data.formats.records import OUTER_SPACE
from cotext.decoding.translator import DocumentTranslator, Translation
from cotext.runtime.errors import CotextError

DOCUMENTS_AHEAD = 256  # that are read while others are translated, and at most translated together


@dataclass(frozen=True, slots=True)
class _Part:
    """A document of the stream, or an empty line beyond the one that ends a document."""

    document: Document | None


@dataclass(slots=True)
class StreamReport:
    """Counts of a translated stream."""

    documents: int = 0
    sentences: int = 0
    truncated: int = 0  # sentences at the length limit
    long: int = 0  # longer than the training data


def translate_stream(
    translator: DocumentTranslator, lines: Iterable[tuple[int, str]], write: Callable[[str], None]
) -> StreamReport:
    """Translate numbered lines, one sentence each, documents ended by empty lines; a line out for each in.

    `write` takes whole documents, each with the empty lines behind it.

    Raises:
        CotextError: a sentence over the limit, passes or an alignment that do not suit a stream, lines that
            cannot be read; what came before is written.
    """
    translator.plan.check_passes()
    if translator.plan.options.align == "free":
        raise CotextError(
            "decode.align = free may leave sentences without a translation, and an empty line ends a "
            "document; choose decode.align = constrained, or translate a file"
        )
    report = StreamReport()
    arriving: Queue[_Part | CotextError | None] = Queue(DOCUMENTS_AHEAD)
    # A daemon: it may wait for a line for ever, and must not keep the process.
    threading.Thread(target=_read, args=(lines, arriving), daemon=True).start()
    for parts, problem in _groups(arriving):
        _translate(translator, parts, report, write)
        if problem is not None:
            raise problem
    return report


def _read(lines: Iterable[tuple[int, str]], arriving: "Queue[_Part | CotextError | None]") -> None:
    try:
        for part in _parts(lines):
            arriving.put(part)
    except CotextError as error:
        arriving.put(error)
    else:
        arriving.put(None)


def _parts(lines: Iterable[tuple[int, str]]) -> Iterator[_Part]:
    """Documents, called by the number of their first line, with the empty lines that end them."""
    sentences: list[str] = []
    first = 1
    for number, line in lines:
        sentence = line.strip(OUTER_SPACE)
        if sentence:
            first = first if sentences else number
            sentences.append(sentence)
            continue
        if sentences:
            yield _Part(Document(f"of line {first}", tuple(sentences)))
            sentences = []
        yield _Part(None)
    if sentences:
        yield _Part(Document(f"of line {first}", tuple(sentences)))


def _groups(
    arriving: "Queue[_Part | CotextError | None]",
) -> Iterator[tuple[list[_Part], CotextError | None]]:
    """The parts that have arrived since the last call, and the error that ended the stream, if any."""
    while True:
        parts: list[_Part] = []
        entry = arriving.get()
        while isinstance(entry, _Part):
            parts.append(entry)
            if len(parts) == DOCUMENTS_AHEAD or arriving.empty():
                break
            entry = arriving.get()
        yield parts, entry if isinstance(entry, CotextError) else None
        if not isinstance(entry, _Part):
            return


def _translate(
    translator: DocumentTranslator, parts: list[_Part], report: StreamReport, write: Callable[[str], None]
) -> None:
    documents: list[Document] = []
    problem: CotextError | None = None
    for part in parts:
        if part.document is not None:
            try:
                translator.check([part.document])
            except CotextError as error:
                problem, parts = error, parts[: parts.index(part)]
                break
            documents.append(part.document)
    found = dict(translator.translate(documents))
    number = 0
    for part in parts:
        if part.document is None:
            write("\n")
            continue
        write("".join(f"{line}\n" for line in _lines(part.document, found[number])))
        report.documents += 1
        report.sentences += len(part.document)
        report.truncated += len(found[number].truncated)
        report.long += len(found[number].long)
        number += 1
    if problem is not None:
        raise problem


def _lines(document: Document, translation: Translation) -> Iterator[str]:
    # A sentence without a visible character has no translation, and an empty line would end the document.
    for source, target in zip(document.sentences, translation.document.sentences, strict=True):
        yield target or source
