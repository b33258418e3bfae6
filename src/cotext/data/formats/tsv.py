"""The format tsv: document id, source, target on each line; in one language: document id, sentence."""

from collections.abc import Iterator
from pathlib import Path

from cotext.data.formats.records import OUTER_SPACE, Gathered, Record, id_to_write, one_line
from cotext.data.formats.streams import numbered_lines
from cotext.runtime.errors import CotextError

HEADER = ["docid", "source", "target"]


def read_tsv(path: Path) -> Iterator[Record]:
    """Read consecutive lines of one document id as a document; a header `docid source target` is skipped."""
    columns = 0
    current: str | None = None
    sides: list[Gathered] = []
    first = 1
    for number, line in numbered_lines(path):
        fields = [field.strip(OUTER_SPACE) for field in line.split("\t")]
        if number == 1:
            columns = len(fields)
            if [field.lower() for field in fields] == HEADER:
                continue
        if len(fields) != columns or columns not in (2, 3):
            expected = columns if columns in (2, 3) else "2 or 3"
            raise CotextError(
                f"{path}:{number}: has {len(fields)} columns, expected {expected}: document id, source, "
                "target "
                "(or document id, sentence), separated by single tabs"
            )
        if not fields[0]:
            raise CotextError(f"{path}:{number}: the first column, the document id, is empty")
        if fields[0] != current:
            if current is not None:
                yield _record(current, first, sides)
            current, sides, first = fields[0], [Gathered(path) for _ in fields[1:]], number
        for side, sentence in zip(sides, fields[1:], strict=True):
            side.append(sentence)
    if current is not None:
        yield _record(current, first, sides)


def _record(document_id: str, first: int, sides: list[Gathered]) -> Record:
    if len(sides) == 1:
        return Record(document_id, first, 1, sentences=tuple(sides[0]))
    return Record(document_id, first, 1, source=tuple(sides[0]), target=tuple(sides[1]))


def encode_tsv(record: Record) -> str:
    """Write a line for every sentence; raises CotextError for a sentence with a tab inside."""
    document_id = id_to_write(record)
    sides = [side for side in (record.sentences, record.source, record.target) if side is not None]
    lines = []
    for index, row in enumerate(zip(*sides, strict=True)):
        fields = [one_line(document_id, index, sentence).strip(OUTER_SPACE) for sentence in row]
        if any("\t" in field for field in fields):
            raise CotextError(
                f"document {document_id!r}, sentence {index + 1} contains a tab, which separates columns in "
                "the "
                "format tsv; write jsonl instead"
            )
        if [document_id.lower(), *(field.lower() for field in fields)] == HEADER:
            raise CotextError(
                f"document {document_id!r}, sentence {index + 1} reads like a header line of the format tsv; "
                "write jsonl instead"
            )
        lines.append("\t".join((document_id, *fields)) + "\n")
    return "".join(lines)
