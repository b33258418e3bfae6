"""A summary of prepared data: languages, splits, tokenizer, origin, size on disk."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotext.data.preparation_report import Report, report_of
from cotext.data.prepared import REPORT, TRAIN, read_report, store_exists
from cotext.evaluation.studies.info.run import TOTALS, describe_tokenizer, render_info, render_totals, size_of
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import in_bytes

MARKS: Final = (REPORT, TRAIN)  # any of them makes a folder prepared data


@dataclass(slots=True)
class DataInfo:
    """The content of a folder of prepared data; None or empty: not known. `size` in bytes.

    `content` is what report.json says, `report` its part that every report has. `problems`: what is missing
    or damaged; the other files are not read.
    """

    folder: Path
    content: dict[str, Any] = field(default_factory=dict)
    report: Report | None = None
    tokenizer: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "format": "cotext-data",
            "version": 1,
            "folder": str(self.folder),
            "tokenizer": self.tokenizer or None,
            "report": {key: value for key, value in self.content.items() if key != "files"} or None,
            "bytes": self.size,
            "problems": self.problems,
        }

    def render(self) -> str:
        """One line for each thing that is known."""
        rows: list[tuple[str, str]] = []
        if self.report is not None:
            pair = self.report.pair
            rows.append(("languages", str(pair) or "not known"))
            for name, split in self.report.splits.items():
                rows.append((name, render_totals({key: getattr(split, key) for key in TOTALS})))
        if self.tokenizer:
            of = self.tokenizer
            rows += [
                ("tokenizer", f"{of['kind']}, {of['pieces']:,} pieces"),
                ("fingerprint", of["fingerprint"]),
            ]
        if self.report is not None:
            rows += [("made from", f"{key}: {_value(value)}") for key, value in _given(self.report.command)]
            rows.append(("written by", f"Cotext {self.report.cotext}"))
            teacher = self.content.get("distillation")
            if isinstance(teacher, dict):
                rows.append(("targets by", str(teacher.get("signature"))))
            rows += [("", found.render(split)) for split, found in self.report.overlap.items()]
            rows += [("", note) for note in self.report.notes]
        rows.append(("on disk", in_bytes(self.size)))
        rows += [("problem", problem) for problem in self.problems]
        return "\n".join([f"{self.folder}: prepared data", *render_info(rows)])


def data_info(folder: Path) -> DataInfo:
    """Read what a folder of prepared data says of itself; damage is listed in `problems`."""
    info = DataInfo(folder, size=size_of(folder))
    try:
        info.content = read_report(folder)
        info.report = report_of(info.content, folder / REPORT)
    except CotextError as error:
        info.problems.append(str(error))
    try:
        info.tokenizer = describe_tokenizer(folder / "tokenizer")
    except CotextError as error:
        info.problems.append(str(error))
    noted = None if info.report is None else info.report.tokenizer.get("fingerprint")
    if info.tokenizer and noted not in (None, info.tokenizer["fingerprint"]):
        info.problems.append(f"{folder / 'tokenizer'}: not the tokenizer that the corpus was prepared with")
    for name in (TRAIN, "dev.arrow"):
        if not store_exists(folder / name):
            info.problems.append(f"{folder / name}: is missing; training needs it")
    return info


def _given(command: dict[str, Any]) -> list[tuple[str, Any]]:
    """What of a command says something."""
    return [(key, value) for key, value in command.items() if value not in (None, "", False, [], {})]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return str(value)
