"""The report of a prepared folder: inputs, settings, and a digest of every file. It is written last."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import Languages
from cotext.data.overlap import Overlap
from cotext.data.statistics import OUTLIER_RATIO, Distribution, SplitStatistics
from cotext.runtime import CotextError, read_json
from cotext.runtime.files import checksum, crc32, digests, require_whole, write_text

REPORT: Final = "report.json"
TRAIN: Final = "train.arrow"  # a token store
_CHECKSUM: Final = "crc32"  # the entry of the report with the checksum of all others


def write_report(folder: Path, content: Mapping[str, Any]) -> None:
    """Write report.json with a checksum. Its presence means that the folder is complete."""
    plain = json.loads(json.dumps(content))  # as it will be read back
    text = json.dumps({**plain, _CHECKSUM: _checksum(plain)}, indent=2, ensure_ascii=False)
    write_text(folder / REPORT, f"{text}\n")


def read_report(folder: Path) -> dict[str, Any]:
    """Return the content of report.json, or an empty dict if it does not exist.

    Raises CotextError if the report is damaged; also the errors of `read_json`.
    """
    path = folder / REPORT
    if not path.exists():
        return {}
    content = read_json(path)
    noted = content.pop(_CHECKSUM, None)
    if noted != _checksum(content) or not isinstance(content.get("files", {}), dict):
        raise CotextError(f"{path}: damaged: not as it was written; prepare the corpus again")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return crc32(json.dumps(content, sort_keys=True))


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files in a folder, except the report and hidden files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return digests(folder, (p for p in files if p.name != REPORT and not p.name.startswith(".")))


def checked_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Check files of a prepared folder and return their digests; files that never existed are skipped.

    Raises CotextError if a file is missing or differs from the report. Without a report, nothing is checked.
    """
    noted = read_report(folder).get("files", {})
    names = [name for name in names if name in noted or (folder / name).is_file()]
    expected = {name: noted[name] for name in names if name in noted}
    require_whole(folder, expected, "prepare the corpus again")
    return {name: expected.get(name) or checksum(folder / name) for name in names}


@dataclass(frozen=True, slots=True)
class Report:
    """The content of report.json: the prepared data, their sources and settings.

    `inputs` and `files` are SHA-256 digests of the files that were read and written. `selected`: counts of
    `cotext.data.selection`.
    """

    cotext: str
    command: dict[str, Any]
    inputs: dict[str, str]
    languages: dict[str, str]
    tokenizer: dict[str, Any]
    splits: dict[str, SplitStatistics]
    notes: tuple[str, ...]
    files: dict[str, str]
    selected: dict[str, dict[str, Any]] = field(default_factory=dict)
    overlap: dict[str, Overlap] = field(default_factory=dict)

    @property
    def pair(self) -> Languages:
        """The language pair; empty if unknown."""
        return Languages(self.languages.get("source", ""), self.languages.get("target", ""))

    def render(self) -> str:
        """Return the statistics as a table with one column per split, and the notes."""
        columns = [
            [name, *(figure(split) for figure in _ROWS.values())] for name, split in self.splits.items()
        ]
        widths = [max(map(len, column)) + 2 for column in columns]
        lines = [
            f"{label:32}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for label, *cells in zip(["", *_ROWS], *columns, strict=True)
        ]
        lines.append(f"languages: {str(self.pair) or 'unknown (--source-language, --target-language)'}")
        lines.append(f"tokenizer: {self.tokenizer['kind']}, {self.tokenizer['pieces']} pieces")
        lines += [overlap.render(split) for split, overlap in self.overlap.items()]
        return "\n".join([*lines, *self.notes])


def report_of(content: dict[str, Any], path: Path) -> Report:
    """Validate the content of a report; unknown keys are ignored. `path` is used in messages.

    Raises CotextError if it is not a report.
    """
    try:
        return TypeAdapter(Report).validate_python(content)
    except ValidationError:
        raise CotextError(f"{path}: damaged; prepare it again, with --overwrite") from None


def _percentiles(distribution: Distribution) -> str:
    return "/".join(str(value) for value in (*distribution.percentiles.values(), distribution.maximum))


_ROWS: Final[dict[str, Callable[[SplitStatistics], str]]] = {
    "documents": lambda s: f"{s.documents:,}",
    "sentence pairs": lambda s: f"{s.sentences:,}",
    "source tokens": lambda s: f"{s.source_tokens:,}",
    "target tokens": lambda s: f"{s.target_tokens:,}",
    "tokens a sentence, mean": lambda s: f"{s.mean_sentence_tokens:.1f}",
    "source, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.source),
    "target, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.target),
    "sentences a document": lambda s: _percentiles(s.document_sentences),
    "source tokens a document": lambda s: _percentiles(s.document_tokens.source),
    "target tokens a document": lambda s: _percentiles(s.document_tokens.target),
    "empty, source/target": lambda s: "/".join(map(str, s.empty_sentences)),
    "unknown tokens, source/target": lambda s: "/".join(f"{rate:.2%}" for rate in s.unknown_token_rate),
    f"lengths differ more than {OUTLIER_RATIO} times": lambda s: f"{s.ratio_outliers:,}",
}
