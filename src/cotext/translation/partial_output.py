"""The translations of a long job so far, on disk, so that an interrupted job can go on."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidate
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import sealed, sealed_lines, unsealed
from cotext.translation.document_state import FoundWindow, SentenceHypothesis
from cotext.translation.translator import Translation

# The fields of an entry other than the document; see `Translation`.
LISTS = tuple(f.name for f in fields(Translation) if f.name != "document")

SPOKEN: Final = {"terms": "glossary, list of words or memory", "split": "way of splitting"}  # in the header


def journal_of(out: Path) -> Path:
    """Where the journal of an output stands."""
    return out.with_name(f"{out.name}.partial")


class Journal(Protocol):
    """The translations of documents so far, by index, and where others are noted."""

    done: dict[int, Translation]

    def add(self, index: int, translation: Translation) -> None:
        """Keep the translation of a document."""
        ...


class TranslationJournal:
    """The translations so far, on disk: a header line, then one line per document, each with a checksum.

    `overwrite`: what another job has translated may be discarded.
    """

    def __init__(
        self,
        out: Path,
        header: dict[str, Any],
        on_message: Callable[[str], None],
        overwrite: bool = False,
    ) -> None:
        self.path = journal_of(out)
        self.header = header
        self.on_message = on_message
        self.overwrite = overwrite
        self.done: dict[int, Translation] = {}
        self.out = out
        self.windows: dict[int, list[FoundWindow]] = {}  # of documents that are not finished
        self._written = ""
        self.file: TextIO | None = None

    def __enter__(self) -> "TranslationJournal":
        kept = self._take_over(sealed_lines(self.path))
        with replacing(self.path) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        return self

    def _take_over(self, lines: list[str]) -> list[str]:
        """Read the lines of an earlier, interrupted job; the documents of damaged ones are done again.

        Raises:
            CotextError: another job, which may not be discarded, or no job at all.
        """
        header = sealed(self.header)
        if lines == [""]:
            return [header]
        if lines[0] != header:
            self._discard(lines)
            return [header]
        kept = [header]
        damaged = 0
        for number, line in enumerate(lines[1:], start=2):
            try:
                entry = unsealed(line)
                if "written" in entry:
                    self._written = str(entry["written"])
                    kept.append(line)
                    continue
                if "window" in entry:
                    self.windows.setdefault(int(entry["index"]), []).append(_window(entry))
                    kept.append(line)
                    continue
                self.done[int(entry["index"])] = translation_of(entry)
            except (ValueError, KeyError, TypeError, OverflowError):
                damaged += number < len(lines)  # the last is cut off by the interruption, or nothing
                continue
            kept.append(line)
        if damaged:
            self.on_message(f"{self.path}: damaged lines, whose documents are translated again: {damaged}")
        return kept

    def _discard(self, lines: list[str]) -> None:
        """Leave out what another job has done, if that is wanted.

        Raises:
            CotextError: it is not, or the file is from no job.
        """
        try:
            other = unsealed(lines[0])
        except ValueError:
            raise CotextError(
                f"{self.path}: is in the way, and not from an interrupted translation, or its first line is "
                "damaged; move it away, or choose another --out"
            ) from None
        keys = {**self.header, **other}
        differing = ", ".join(SPOKEN.get(key, key) for key in keys if other.get(key) != self.header.get(key))
        if not self.overwrite:
            documents = sum('"window": ' not in line for line in lines[1:-1])
            held = f"{documents} documents" if documents else "a part of a document"
            raise CotextError(
                f"{self.path}: holds {held} that an interrupted job with another "
                f"{differing} has translated; give the same again to go on with it, choose another --out, or "
                "add --overwrite to discard it"
            )
        self.on_message(f"{self.path}: of another job ({differing}), discarded")

    def add(self, index: int, translation: Translation) -> None:
        """Append one document and push it to the disk."""
        self._append({"index": index, **entry_of(translation)})
        self.done[index] = translation

    def add_window(self, index: int, window: FoundWindow) -> None:
        """Append a window of a document."""
        found = [astuple(sentence) for sentence in window.sentences]
        self._append({"index": index, "window": window.number, "exact": window.exact, "found": found})

    @property
    def output_stands(self) -> bool:
        """Whether the output has been written, and is still there as it was.

        Raises:
            CotextError: it has been changed since, and may not be overwritten.
        """
        if not self._written or not self.out.is_file():
            return False
        if checksum(self.out) == self._written:
            return True
        if not self.overwrite:
            raise CotextError(
                f"{self.out}: has been changed since it was written; move it away, or add --overwrite to "
                "write it again"
            )
        return False

    def _append(self, entry: dict[str, Any]) -> None:
        assert self.file is not None
        try:
            self.file.write(sealed(entry) + "\n")
            self.file.flush()
        except OSError as error:
            raise CotextError(
                f"{self.path}: cannot be written: {error.strerror or error}; make room, and the same command "
                "goes on from there"
            ) from None

    def finish(self, keep: bool = False) -> None:
        """Remove the journal, as the output is complete; `keep`: note that it is."""
        if keep:
            self._append({"written": checksum(self.out)})
        else:
            self.path.unlink(missing_ok=True)

    def __exit__(self, *exc: object) -> None:
        if self.file is not None:
            # What a full disk has refused once is refused again here, and has been reported.
            with suppress(OSError):
                self.file.close()


def entry_of(translation: Translation) -> dict[str, Any]:
    """What is noted of the translation of a document."""
    entry = asdict(translation)
    return {**entry.pop("document"), **entry}


def translation_of(entry: Mapping[str, Any]) -> Translation:
    """Undo `entry_of`; raises KeyError, TypeError or ValueError for anything else."""
    document = Document(entry["id"], tuple(entry["sentences"]))
    values: dict[str, Any] = {name: tuple(entry[name]) for name in LISTS}
    values["lists"] = tuple(tuple(Candidate(*each) for each in found) for found in entry["lists"])
    return Translation(document, **values)


class JournalWindows:
    """The log of the windows of documents in a journal; `indices` are those of the documents translated."""

    def __init__(self, journal: TranslationJournal, indices: Sequence[int]) -> None:
        self._journal, self._indices = journal, indices

    def found(self, document: int) -> Sequence[FoundWindow]:
        """As `WindowLog.found`."""
        return self._journal.windows.get(self._indices[document], [])

    def note(self, document: int, window: FoundWindow) -> None:
        """As `WindowLog.note`."""
        self._journal.add_window(self._indices[document], window)


def _window(entry: dict[str, Any]) -> FoundWindow:
    sentences = [
        SentenceHypothesis(tuple(map(int, tokens)), str(text), float(score), bool(truncated), int(labels))
        for tokens, text, score, truncated, labels in entry["found"]
    ]
    return FoundWindow(int(entry["window"]), tuple(sentences), bool(entry["exact"]))
