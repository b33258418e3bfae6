"""Validation of a corpus: all problems in one report, before it is used."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from cotext.data.formats.corpus import both_sides_problem, empty_document_problem, pair_problem
from cotext.data.formats.detection import detect_format, is_parquet
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.records import Record, Side
from cotext.data.formats.streams import BYTE_ORDER_MARK, check_readable, describe_invalid, raw_lines
from cotext.data.formats.table import Format, find_format
from cotext.runtime.errors import CotextError

_CONTROL = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff]|(?<!\r)\r(?!\r*$)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: an error stops reading or makes results wrong, a warning deserves a look."""

    severity: Literal["error", "warning"]
    message: str
    file: Path
    line: int | None = None
    document: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        document = f"document {self.document!r}: " if self.document is not None else ""
        return f"{self.severity}: {place}: {document}{self.message}"


@dataclass(frozen=True, slots=True)
class CorpusProblems:
    """The problems found by `validate_corpus`; `left_out` counts problems beyond the first `max_problems`."""

    problems: tuple[Problem, ...]
    left_out: int
    errors: int
    documents: int
    sentences: int

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.left_out:
            lines.append(f"... and {self.left_out} more")
        lines.append(f"{self.documents} documents, {self.sentences} sentences, {self.errors} errors")
        return "\n".join(lines)

    def raise_for_errors(self) -> None:
        """Raise CotextError with the whole report where there is an error."""
        if self.errors:
            raise CotextError(str(self))


def validate_corpus(
    source: Path,
    target: Path | None = None,
    format: str | None = None,
    max_characters: int = 10_000,
    max_problems: int = 100,
) -> CorpusProblems:
    """Check one file, or a source and a target file, and report the problems instead of raising.

    Errors: what read_documents and read_parallel refuse, a sentence beyond `max_characters`, a document id
    that comes twice. Warnings: control characters and Unicode line separators, empty sentences. With
    `target` None, a file in which some document has both languages must have both in every one. Bytes are
    checked first; the structure only of files that are readable. Memory grows with the document ids alone.
    """
    report = _Report(max_characters, max_problems)
    files: list[tuple[Path, Format, Side]] = []
    sides: tuple[tuple[Path | None, Side], ...] = ((source, "source"), (target, "target"))
    for path, side in sides:
        if path is None:
            continue
        try:
            check_readable(path)
            # Bytes come before the format: a file of another encoding has none. A table has no lines.
            readable = is_parquet(path) or report.scan(path)
            row = find_format(format or detect_format(path))
            side_path = find_side_file(path) if row.name == "docids" and side == "source" else None
            if readable and (side_path is None or report.scan(side_path)):
                files.append((path, row, side))
        except CotextError as error:
            report.caught(path, error)
    if len(files) == (1 if target is None else 2):
        report.structure(files)
    return CorpusProblems(
        tuple(report.problems), report.left_out, report.errors, report.documents, report.sentences
    )


class _Report:
    def __init__(self, max_characters: int, max_problems: int) -> None:
        self.problems: list[Problem] = []
        self.left_out = self.errors = self.documents = self.sentences = 0
        self._max_characters = max_characters
        self._max_problems = max_problems

    def add(
        self,
        severity: Literal["error", "warning"],
        message: str,
        file: Path,
        line: int | None = None,
        document: str | None = None,
    ) -> None:
        self.errors += severity == "error"
        if len(self.problems) < self._max_problems:
            self.problems.append(Problem(severity, message, file, line, document))
        else:
            self.left_out += 1

    def caught(self, path: Path, error: CotextError) -> None:
        """Add what a reader refused, its place taken out of the message where the message begins with it."""
        match = re.match(rf"{re.escape(str(path))}(?::(\d+))?: ", str(error))
        if match:
            self.add("error", str(error)[match.end() :], path, int(match[1]) if match[1] else None)
        else:
            self.add("error", str(error), path)

    def scan(self, path: Path) -> bool:
        """Check the bytes of every line; True where no error was found."""
        before = self.errors
        for number, raw in raw_lines(path):
            try:
                line = (raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw).decode()
            except UnicodeDecodeError as error:
                self.add("error", describe_invalid(raw, error, number), path, number)
                continue
            # Most lines have nothing to find, and this test is far faster than the pattern.
            if line.isprintable() or not (match := _CONTROL.search(line.rstrip("\n"))):
                continue
            if "\0" in line:
                self.add("error", "contains a NUL character; remove it", path, number)
            else:
                self.add("warning", f"contains the control character U+{ord(match[0]):04X}", path, number)
        return self.errors == before

    def structure(self, files: list[tuple[Path, Format, Side]]) -> None:
        walks = [
            self._records(path, row, side, first=index == 0) for index, (path, row, side) in enumerate(files)
        ]
        both_have_ids = all(row.carries_ids for _, row, _ in files)
        counts = [0] * len(files)
        for order, records in enumerate(zip_longest(*walks), 1):
            for index, record in enumerate(records):
                counts[index] += record is not None
            if len(records) == 2 and records[0] is not None and records[1] is not None:
                problem = pair_problem(order, records[0], records[1], both_have_ids)
                if problem:
                    (source, _, _), (target, _, _) = files
                    other = f" ({target}:{records[1].line})"
                    self.add("error", problem + other, source, records[0].line, records[0].id)
        self.documents = counts[0]
        if len(set(counts)) > 1:
            self.add("error", f"has {counts[0]} documents, but {files[1][0]} has {counts[1]}", files[0][0])

    def _records(self, path: Path, row: Format, side: Side, first: bool) -> Iterator[Record]:
        """Read one file to its end or its first unreadable place, noting each document's problems."""
        seen: set[str] = set()
        pairs: bool | None = None
        record = None
        try:
            for record in row.read(path):
                if not (record.sentences or record.source or record.target):
                    self.add("error", empty_document_problem(record, row), path, record.line, record.id)
                if row.carries_ids and record.id in seen:
                    self.add(
                        "error", "this document id came before; ids must differ", path, record.line, record.id
                    )
                seen.add(record.id)
                is_pair = record.source is not None and record.target is not None
                pairs = is_pair if pairs is None else pairs
                if (pairs or is_pair) and (problem := both_sides_problem(record)):
                    self.add("error", problem, path, record.line, record.id)
                self._check_sentences(path, record)
                sentences = record.side(side) or ()
                self.sentences += len(sentences) if first else 0
                yield Record(record.id, record.line, record.lines_per_sentence, sentences)
            if row.name == "tmx" and seen == {"1"}:
                self.add(
                    "warning", "names no documents: all its units are one, in the order of the file", path
                )
            if record is None:
                self.add("error", "has no documents; a corpus has at least one sentence", path)
        except CotextError as error:
            self.caught(path, error)

    def _check_sentences(self, path: Path, record: Record) -> None:
        for side in (record.sentences, record.source, record.target):
            for index, sentence in enumerate(side or ()):
                if len(sentence) > self._max_characters:
                    message = (
                        f"sentence {index + 1} has {len(sentence)} characters, more than "
                        f"{self._max_characters}; "
                        "split it or raise the limit"
                    )
                    self.add("error", message, path, record.line_of(index), record.id)
                elif not sentence:
                    self.add(
                        "warning", f"sentence {index + 1} is empty", path, record.line_of(index), record.id
                    )
