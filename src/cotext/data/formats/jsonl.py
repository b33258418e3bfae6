"""The format jsonl, the native one: a JSON object a line for every document, and nothing is lost.

`{"id": ..., "source": [...], "target": [...]}`; in one language `{"id": ..., "sentences": [...]}`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from cotext.data.formats.records import OUTER_SPACE, Record, one_line
from cotext.data.formats.streams import numbered_lines
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

LISTS = ("sentences", "source", "target")


def read_jsonl(path: Path) -> Iterator[Record]:
    """Read a document from every line that is not blank; sentences are taken as they are.

    Keys beyond those of the format are ignored.
    """
    for number, line in numbered_lines(path):
        if not line.strip(OUTER_SPACE):
            continue
        value = parse_json(line, f"{path}:{number}", numbers=False)
        # Only an escape can bring in what numbered_lines has not already refused.
        yield _record(f"{path}:{number}", number, value, escapes="\\" in line)


def _record(where: str, number: int, value: object, escapes: bool) -> Record:
    if not isinstance(value, dict):
        raise CotextError(f"{where}: expected a JSON object with the key 'id', found {type(value).__name__}")
    document_id = value.get("id")
    if document_id is None and str(kind := value.get("format")).startswith("cotext-"):
        raise CotextError(f"{where}: {shown(kind)}, which Cotext writes beside texts, and no corpus itself")
    if not isinstance(document_id, str) or not document_id:
        raise CotextError(f"{where}: the key 'id' must hold a text that is not empty")
    sides = {key: _sentences(where, document_id, key, value.get(key), escapes) for key in LISTS}
    if (sides["sentences"] is None) == (sides["source"] is None and sides["target"] is None):
        raise CotextError(
            f"{where}: document {document_id!r} needs either the key 'sentences' or the keys 'source' and "
            "'target'"
        )
    return Record(document_id, number, 0, sides["sentences"], sides["source"], sides["target"])


def _sentences(
    where: str, document_id: str, key: str, value: object, escapes: bool
) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(sentence, str) for sentence in value):
        raise CotextError(f"{where}: document {document_id!r}: the key {key!r} must hold a list of texts")
    if escapes:
        for index, sentence in enumerate(value):
            try:
                one_line(document_id, index, sentence)
            except CotextError as error:
                raise CotextError(f"{where}: {error}") from None
    return tuple(value)


def encode_jsonl(record: Record) -> str:
    """Write a JSON object on a line; raises CotextError for an empty id or a sentence of several lines."""
    if not record.id:
        raise CotextError("a document has an empty id, which cannot be written")
    value: dict[str, object] = {"id": record.id}
    for key, side in zip(LISTS, (record.sentences, record.source, record.target), strict=True):
        if side is not None:
            value[key] = [one_line(record.id, index, sentence) for index, sentence in enumerate(side)]
    return json.dumps(value, ensure_ascii=False) + "\n"
