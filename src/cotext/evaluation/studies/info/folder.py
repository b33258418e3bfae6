"""A summary of a folder that Cotext has made: `cotext info`."""

import os
from pathlib import Path
from typing import Any, Final

from cotext.data.preparation_report import report_of
from cotext.data.prepared import REPORT, TRAIN, read_report, store_exists
from cotext.evaluation.studies.compare.recipe import missing_seeds, require_alike
from cotext.evaluation.studies.info.run import (
    MARKS,
    TOTALS,
    Summary,
    describe_system,
    describe_tokenizer,
    noted_totals,
    render_info,
    render_totals,
    run_info,
    size_of,
    system_rows,
    tokenizer_row,
    totals_rows,
    weights_row,
)
from cotext.models.engine_folder import REMEDY, describe_engine
from cotext.models.run_folder import ENGINE, is_engine, seed_folder, seeds_in
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import require_whole
from cotext.runtime.tables import in_bytes, listed

DATA_MARKS: Final = (REPORT, TRAIN)  # any of them makes a folder prepared data


def folder_info(folder: Path) -> "Summary | SeedsSummary":
    """The summary of a run folder, of one with runs of several seeds, of an engine or of prepared data.

    Raises:
        CotextError: none of these.
    """
    if not folder.is_dir():
        raise CotextError(f"{folder}: no such folder; give a run folder, or one made by `cotext prepare`")
    if is_engine(folder):
        return engine_info(folder)
    if any(os.path.lexists(folder / name) for name in DATA_MARKS):
        return data_info(folder)
    if any(os.path.lexists(folder / name) for name in MARKS):
        return run_info(folder)
    if seeds_in(folder):
        return SeedsSummary(folder)
    raise CotextError(
        f"{folder}: neither a run nor an engine nor prepared data: holds none of "
        f"{', '.join((*MARKS, ENGINE, *DATA_MARKS))}"
    )


def engine_info(folder: Path) -> Summary:
    """Read what an engine folder says of itself, without the engine; damage is listed in `problems`."""
    found = Summary("engine", f"{folder}: an engine", {"folder": str(folder), "bytes": size_of(folder)})
    found.facts |= dict.fromkeys(("signature", "system", "engine", "tokenizer", "data"))
    try:
        described, checksums = describe_engine(folder)
        system = describe_system(described.config)
        keys = ("version", "quantization", "positions", "parameters", "updates")
        engine = {"name": described.engine, **{key: getattr(described, key) for key in keys}}
        found.facts |= {"signature": described.signature, "system": system, "engine": engine}
        found.rows += [
            *system_rows(system),
            ("parameters", f"{described.parameters:,}"),
            weights_row(described.updates),
            ("engine", f"{described.engine} {described.version}, as it was written"),
            ("quantization", described.quantization),
            ("positions", f"{described.positions:,}: the longest row, source or target"),
            ("signature", described.signature),
        ]
        require_whole(folder, checksums, REMEDY)
    except CotextError as error:
        found.problems.append(str(error))
    try:
        found.facts["tokenizer"] = tokenizer = describe_tokenizer(folder / "tokenizer")
        found.rows.append(tokenizer_row(tokenizer))
        if data := noted_totals(folder):
            found.facts["data"] = data
            found.rows.append(("data", data["folder"]))
            found.rows += totals_rows({split: data[split] for split in ("train", "dev")})
    except CotextError as error:
        found.problems.append(str(error))
    files = "some are missing or damaged" if found.problems else "all whole"
    size = in_bytes(found.facts["bytes"])
    found.rows.append(("files", f"{size}, {files}; to translate elsewhere, all of them"))
    return found


def data_info(folder: Path) -> Summary:
    """Read what a folder of prepared data says of itself; damage is listed in `problems`."""
    found = Summary("data", f"{folder}: prepared data", {"folder": str(folder), "bytes": size_of(folder)})
    content: dict[str, Any] = {}
    report, tokenizer = None, {}
    try:
        content = read_report(folder)
        report = report_of(content, folder / REPORT)
    except CotextError as error:
        found.problems.append(str(error))
    try:
        tokenizer = describe_tokenizer(folder / "tokenizer")
    except CotextError as error:
        found.problems.append(str(error))
    told = {key: value for key, value in content.items() if key != "files"}
    found.facts |= {"tokenizer": tokenizer or None, "report": told or None}
    if report is not None:
        found.rows.append(("languages", str(report.pair) or "not known"))
        for name, split in report.splits.items():
            found.rows.append((name, render_totals({key: getattr(split, key) for key in TOTALS})))
    if tokenizer:
        pieces = f"{tokenizer['kind']}, {tokenizer['pieces']:,} pieces"
        found.rows += [("tokenizer", pieces), ("fingerprint", tokenizer["fingerprint"])]
    if report is not None:
        found.rows += [("made from", f"{key}: {_value(value)}") for key, value in _given(report.command)]
        found.rows.append(("written by", f"Cotext {report.cotext}"))
        if isinstance(teacher := content.get("distillation"), dict):
            found.rows.append(("targets by", str(teacher.get("signature"))))
        found.rows += [("", overlap.render(split)) for split, overlap in report.overlap.items()]
        found.rows += [("", note) for note in report.notes]
        noted = report.tokenizer.get("fingerprint")
        if tokenizer and noted not in (None, tokenizer["fingerprint"]):
            problem = "not the tokenizer that the corpus was prepared with"
            found.problems.append(f"{folder / 'tokenizer'}: {problem}")
    found.rows.append(("on disk", in_bytes(found.facts["bytes"])))
    for name in (TRAIN, "dev.arrow"):
        if not store_exists(folder / name):
            found.problems.append(f"{folder / name}: is missing; training needs it")
    return found


def _given(command: dict[str, Any]) -> list[tuple[str, Any]]:
    """What of a command says something."""
    return [(key, value) for key, value in command.items() if value not in (None, "", False, [], {})]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return str(value)


class SeedsSummary:
    """A summary of runs of several seeds.

    `problems`: what keeps the runs from being one system. Each run has problems of its own.
    """

    def __init__(self, folder: Path) -> None:
        folders = {seed: seed_folder(folder, seed) for seed in seeds_in(folder)}
        self.folder, self.size = folder, size_of(folder)
        self.runs = {seed: run_info(run) for seed, run in folders.items()}
        self.problems: list[str] = []
        if missing := missing_seeds(folder, folders):
            self.problems.append(missing)
        described = {seed: folders[seed] for seed, run in self.runs.items() if run.facts["signature"]}
        if described:
            try:
                require_alike(folder, described)
            except CotextError as error:
                self.problems.append(str(error))

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "format": "cotext-seeds",
            "version": 1,
            "folder": str(self.folder),
            "seeds": list(self.runs),
            "runs": [run.as_dict() for run in self.runs.values()],
            "bytes": self.size,
            "problems": self.problems,
        }

    def render(self) -> str:
        """What keeps the runs from being one system, then each of them."""
        heading = f"{self.folder}: runs of the seeds {listed([str(seed) for seed in self.runs])}"
        told = [("on disk", in_bytes(self.size)), *(("problem", problem) for problem in self.problems)]
        blocks = ["\n".join([heading, *render_info(told)]), *(run.render() for run in self.runs.values())]
        return "\n\n".join(blocks)
