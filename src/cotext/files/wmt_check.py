"""The check of a submission to WMT against the lines of the task: `cotext check`.

What the organisers count (paragraphs and entries on both sides), and what a submission is refused or scored
badly for: documents that are missing, foreign or there twice, wrong fields, damaged JSON and HTML, leftovers
of prompts. Whether a translation is good it cannot tell.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from cotext.data.formats.records import OUTER_SPACE
from cotext.data.formats.streams import numbered_lines
from cotext.data.formats.wmt import WmtLine, all_wmt_lines, wmt_line
from cotext.data.languages import fitting_codes
from cotext.files.wmt_texts import Fault, Severity, faults_of, organisers_counts
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import checksum
from cotext.runtime.reading import parse_json
from cotext.runtime.tables import render_rows
from cotext.runtime.version import __version__

SHOWN: Final = 5  # findings of a kind, in text
_MANY: Final = 10  # documents from which on a length stands out
_LONG: Final = 100  # characters of a source whose translation has a length that tells something
_FAR: Final = 3.0  # times as long, or as short, as others


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault and where it is; `line` of the submission, 0 for documents that it lacks."""

    severity: Severity
    kind: str
    message: str
    line: int = 0
    document: str = ""
    languages: str = ""

    def as_dict(self) -> dict[str, Any]:
        """By name."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "line": self.line or None,
            "document": self.document or None,
            "languages": self.languages or None,
            "message": self.message,
        }


@dataclass(slots=True)
class Check:
    """What was found. `aligned` of `counted` documents have as many paragraphs as the organisers ask for."""

    submission: Path
    source: Path
    findings: list[Finding] = field(default_factory=list)
    documents: Counter[str] = field(default_factory=Counter)  # by language pair
    asked: Counter[str] = field(default_factory=Counter)
    counted: int = 0
    aligned: int = 0

    def add(self, fault: Fault, line: WmtLine, number: int | None = None) -> None:
        """Take up a fault of a line."""
        where = line.number if number is None else number
        finding = Finding(fault.severity, fault.kind, fault.message, where, line.doc_id, line.pair)
        self.findings.append(finding)

    @property
    def errors(self) -> int:
        """The findings for which a submission should not go out."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def signature(self) -> str:
        """What was checked, by the content of the files, and by which version."""
        digests = (checksum(path)[:12] for path in (self.submission, self.source))
        return "check:wmt|submission:{}|source:{}|version:cotext-{}".format(*digests, __version__)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "format": "cotext-check",
            "version": 1,
            "cotext": __version__,
            "submission": str(self.submission),
            "source": str(self.source),
            "signature": self.signature,
            "errors": self.errors,
            "warnings": len(self.findings) - self.errors,
            "documents": dict(self.documents),
            "asked": dict(self.asked),
            "counted": self.counted,
            "aligned": self.aligned,
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def render(self) -> str:
        """Plain text: a table of the languages, then findings by kind, of each kind the first."""
        rows = [("languages", "documents", "of")]
        rows += [(pair or "?", str(self.documents[pair]), str(n)) for pair, n in sorted(self.asked.items())]
        blocks = [render_rows(rows, left=1)]
        if self.counted:
            blocks.append(
                f"{self.aligned} of {self.counted} documents of HTML and JSON have as many <p> or entries as "
                "the source"
            )
        gathered: dict[tuple[Severity, str], list[Finding]] = defaultdict(list)
        for finding in self.findings:
            gathered[finding.severity, finding.kind].append(finding)
        for (severity, kind), found in sorted(gathered.items(), key=lambda item: item[0]):
            lines = [f"{severity}: {kind} ({len(found)})"]
            for each in found[:SHOWN]:
                places = (f"line {each.line}" if each.line else "", each.document)
                lines.append(f"  {': '.join([', '.join(filter(None, places)), each.message]).strip(': ')}")
            blocks.append("\n".join([*lines, *(["  ..."] if found[SHOWN:] else [])]))
        warnings = len(self.findings) - self.errors
        blocks.append(f"{self.signature}\n{self.submission}: {self.errors} errors, {warnings} warnings")
        return "\n\n".join(blocks)


def check_submission(submission: Path, source: Path, language: str = "") -> Check:
    """Check every line of a submission; of a language alone, if one is given.

    Raises:
        CotextError: the source is not of the task, is empty, has a document twice, or has no such language;
            a file that cannot be read.
    """
    task = list(_task(source))
    others: list[WmtLine] = []
    if language:
        codes = fitting_codes(language, (line.target_language for line in task))
        others = [line for line in task if line.target_language not in codes]
        task = [line for line in task if line.target_language in codes]
        if not task:
            raise CotextError(f"{source}: no document is for {shown(language)}")
    check = Check(submission, source)
    answered = _answered(check, task, others, language)
    _tell_missing(check, task, answered)
    if not answered:
        check.findings.append(Finding("error", "missing", "no line answers one of the source"))
    for line, asked in answered:
        for fault in faults_of(line, asked):
            check.add(fault, line)
        counts = organisers_counts(asked.source or "", line.hypothesis or "")
        check.counted += counts is not None
        check.aligned += counts is not None and counts.aligned
    _tell_lengths(check, answered)
    _tell_datasets(check, answered)
    return check


def _task(path: Path) -> Iterator[WmtLine]:
    seen: dict[tuple[str, str], int] = {}
    for line in all_wmt_lines(path):
        if (first := seen.setdefault((line.doc_id, line.target_language), line.number)) != line.number:
            raise CotextError(
                f"{path}:{line.number}: document {line.doc_id!r} was in line {first} already, for the same "
                "language: which of both a hypothesis is of cannot be told; leave one out"
            )
        if line.source is None:
            raise CotextError(
                f"{path}:{line.number}: document {line.doc_id!r} has no source; give --source the lines of "
                "the task"
            )
        yield line
    if not seen:
        raise CotextError(f"{path}: is empty; give --source the lines of the task")


def _answered(
    check: Check, task: Sequence[WmtLine], others: Sequence[WmtLine], language: str
) -> list[tuple[WmtLine, WmtLine]]:
    """The lines of the submission that answer a line of the task, with that; what the rest are is told.

    But for those that answer `others`, or are for another language than the one that is checked.
    """
    of_id, of_others = _by_id(task), _by_id(others)
    found: list[tuple[WmtLine, WmtLine]] = []
    seen: dict[tuple[str, str], int] = {}
    for line in _lines(check):
        asked = _asked(line, of_id.get(line.doc_id, []))
        if asked is None:
            known = ", ".join(sorted({each.target_language or "?" for each in of_id.get(line.doc_id, [])}))
            told = line.target_language
            if _asked(line, of_others.get(line.doc_id, [])) is not None:
                continue
            if language and not known and told and not fitting_codes(language, [told]):
                continue
            fault = Fault("foreign", "the source has no document of this id")
            if known:
                fault = Fault(
                    "language",
                    f"is for {line.target_language or 'no language'}, and the source asks for {known}",
                )
            check.add(fault, line)
            continue
        if (first := seen.setdefault((asked.doc_id, asked.target_language), line.number)) != line.number:
            check.add(Fault("twice", f"was in line {first} already"), line)
            continue
        found.append((line, asked))
    return found


def _by_id(lines: Sequence[WmtLine]) -> dict[str, list[WmtLine]]:
    found: dict[str, list[WmtLine]] = defaultdict(list)
    for line in lines:
        found[line.doc_id].append(line)
    return found


def _asked(line: WmtLine, candidates: Sequence[WmtLine]) -> WmtLine | None:
    """The line of the task that is answered: that of the same language, or the only one if none is told."""
    codes = {line.target_language, ""}
    return next((each for each in candidates if each.target_language in codes), None) or (
        candidates[0] if len(candidates) == 1 and not line.target_language else None
    )


def _lines(check: Check) -> Iterator[WmtLine]:
    """The lines of the submission that can be read; of the others, and of missing fields, it is told."""
    path = check.submission
    for number, text in numbered_lines(path):
        if not text.strip(OUTER_SPACE):
            continue
        try:
            value = parse_json(text, f"{path}:{number}", numbers=False)
            if isinstance(value, dict) and value.get("hypothesis") is None and "hypothesis" in value:
                value["hypothesis"] = ""  # as collectors write a request without an answer
            line = wmt_line(value, number, f"{path}:{number}")
        except CotextError as error:
            told = str(error).removeprefix(f"{path}:{number}: ")
            check.findings.append(Finding("error", "line", told, number))
            continue
        if line.hypothesis is None:
            check.add(Fault("fields", "has no hypothesis"), line)
            continue
        for key, severity in _MANDATORY:
            if not isinstance(value.get(key), str) or not value[key]:
                check.add(Fault("fields", f"the key {key!r} does not hold a text", severity), line)
        yield line


_MANDATORY: Final[tuple[tuple[str, Severity], ...]] = (
    ("dataset_id", "error"),
    ("tgt_lang", "error"),
    ("translation_granularity", "warning"),
)


def _tell_missing(check: Check, task: Sequence[WmtLine], answered: Sequence[tuple[WmtLine, WmtLine]]) -> None:
    """Count documents by language pair; those of a pair of which others are there are missing."""
    there = {(asked.doc_id, asked.target_language) for _, asked in answered}
    check.documents.update(asked.pair for _, asked in answered)
    check.asked.update(line.pair for line in task)
    for line in task:
        if check.documents[line.pair] and (line.doc_id, line.target_language) not in there:
            check.add(Fault("missing", f"line {line.number} of the source has no answer"), line, number=0)


def _tell_lengths(check: Check, answered: Sequence[tuple[WmtLine, WmtLine]]) -> None:
    """Tell of hypotheses that are far shorter or longer than others of their languages."""
    ratios: dict[str, list[tuple[float, WmtLine]]] = defaultdict(list)
    for line, asked in answered:
        if len(asked.source or "") >= _LONG and (line.hypothesis or "").strip():
            ratios[asked.pair].append((len(line.hypothesis or "") / len(asked.source or ""), line))
    for of_pair in ratios.values():
        usual = median(ratio for ratio, _ in of_pair)
        for ratio, line in of_pair if len(of_pair) >= _MANY else ():
            if not usual / _FAR <= ratio <= usual * _FAR:
                told = (
                    f"{ratio:.2f} characters for one of the source; half of the others have over {usual:.2f}"
                )
                check.add(Fault("length", told, "warning"), line)


def _tell_datasets(check: Check, answered: Sequence[tuple[WmtLine, WmtLine]]) -> None:
    names = Counter(line.dataset_id for line, _ in answered if line.dataset_id)
    most = names.most_common(1)
    for line, asked in answered:
        wanted = asked.dataset_id or (most[0][0] if most else "")
        if line.dataset_id and line.dataset_id != wanted:
            check.add(Fault("fields", f"dataset_id is {shown(line.dataset_id)}, not {shown(wanted)}"), line)
