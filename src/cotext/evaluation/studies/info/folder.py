"""Summary of a folder that Cotext has made, or of a corpus file: `cotext info`."""

import os
from pathlib import Path
from typing import Any, Final

from cotext.data.formats.corpus import checked_records
from cotext.data.formats.table import detect_format, find_format
from cotext.data.prepared import REPORT, TRAIN, read_report, report_of
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

DATA_MARKS: Final = (REPORT, TRAIN)  # each marks a folder as prepared data


def folder_info(folder: Path) -> "Summary | SeedsSummary":
    """Summarise a run folder, a folder with runs of several seeds, an engine or prepared data.

    Raises:
        CotextError: the folder is none of these.
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
        f"{folder}: not a run, an engine or prepared data: contains none of "
        f"{', '.join((*MARKS, ENGINE, *DATA_MARKS))}"
    )


def engine_info(folder: Path) -> Summary:
    """Read the description of an engine folder; damage is listed in `problems`."""
    summary = Summary("engine", f"{folder}: an engine", {"folder": str(folder), "bytes": size_of(folder)})
    summary.facts |= dict.fromkeys(("signature", "system", "engine", "tokenizer", "data"))
    with summary.collecting():
        described, checksums = describe_engine(folder)
        system = describe_system(described.config)
        keys = ("version", "quantization", "positions", "parameters", "updates")
        engine = {"name": described.engine, **{key: getattr(described, key) for key in keys}}
        summary.facts |= {"signature": described.signature, "system": system, "engine": engine}
        summary.rows += [
            *system_rows(system),
            ("parameters", f"{described.parameters:,}"),
            weights_row(described.updates),
            ("engine", f"{described.engine} {described.version}, at the time of export"),
            ("quantization", described.quantization),
            ("positions", f"{described.positions:,}: maximum length of source or target"),
            ("signature", described.signature),
        ]
        require_whole(folder, checksums, REMEDY)
    with summary.collecting():
        summary.facts["tokenizer"] = tokenizer = describe_tokenizer(folder / "tokenizer")
        summary.rows.append(tokenizer_row(tokenizer))
        if data := noted_totals(folder):
            summary.facts["data"] = data
            summary.rows.append(("data", data["folder"]))
            summary.rows += totals_rows({split: data[split] for split in ("train", "dev")})
    files = "some are missing or damaged" if summary.problems else "all whole"
    size = in_bytes(summary.facts["bytes"])
    summary.rows.append(("files", f"{size}, {files}; all are needed to translate on another machine"))
    return summary


def data_info(folder: Path) -> Summary:
    """Read the description of a folder of prepared data; damage is listed in `problems`."""
    summary = Summary("data", f"{folder}: prepared data", {"folder": str(folder), "bytes": size_of(folder)})
    content: dict[str, Any] = {}
    report, tokenizer = None, {}
    with summary.collecting():
        content = read_report(folder)
        report = report_of(content, folder / REPORT)
    with summary.collecting():
        tokenizer = describe_tokenizer(folder / "tokenizer")
    facts = {key: value for key, value in content.items() if key != "files"}
    summary.facts |= {"tokenizer": tokenizer or None, "report": facts or None}
    if report is not None:
        summary.rows.append(("languages", str(report.pair) or "not known"))
        for name, split in report.splits.items():
            summary.rows.append((name, render_totals({key: getattr(split, key) for key in TOTALS})))
    if tokenizer:
        pieces = f"{tokenizer['kind']}, {tokenizer['pieces']:,} pieces"
        summary.rows += [("tokenizer", pieces), ("fingerprint", tokenizer["fingerprint"])]
    if report is not None:
        command = {k: value for k, value in report.command.items() if value not in (None, "", False, [], {})}
        summary.rows += [("made from", f"{key}: {_value(value)}") for key, value in command.items()]
        summary.rows.append(("written by", f"Cotext {report.cotext}"))
        if isinstance(teacher := content.get("distillation"), dict):
            summary.rows.append(("targets by", str(teacher.get("signature"))))
        summary.rows += [("", overlap.render(split)) for split, overlap in report.overlap.items()]
        summary.rows += [("", note) for note in report.notes]
        fingerprint = report.tokenizer.get("fingerprint")
        if tokenizer and fingerprint not in (None, tokenizer["fingerprint"]):
            problem = "not the tokenizer that the corpus was prepared with"
            summary.problems.append(f"{folder / 'tokenizer'}: {problem}")
    summary.rows.append(("on disk", in_bytes(summary.facts["bytes"])))
    for name in (TRAIN, "dev.arrow"):
        if not (folder / name).is_file():
            summary.problems.append(f"{folder / name}: is missing; training needs it")
    return summary


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return str(value)


class SeedsSummary:
    """A summary of runs of several seeds.

    `problems`: missing seeds, and differences between the runs other than the seed. Each run also has a list
    of its own problems.
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
        """Format as text: the problems of the folder, then each run."""
        heading = f"{self.folder}: runs of the seeds {listed([str(seed) for seed in self.runs])}"
        rows = [("on disk", in_bytes(self.size)), *(("problem", problem) for problem in self.problems)]
        blocks = ["\n".join([heading, *render_info(rows)]), *(run.render() for run in self.runs.values())]
        return "\n\n".join(blocks)


def corpus_info(path: Path) -> Summary:
    """Summarise a corpus file in any format.

    Raises:
        CotextError: not a corpus, a damaged one, or a WMT file of several language pairs.
    """
    format = detect_format(path)
    documents, sentences, languages = 0, 0, 1
    for record in checked_records(path, find_format(format)):
        documents += 1
        sentences += len(record.sentences or record.source or record.target or ())
        if record.source is not None and record.target is not None:
            languages = 2
    counts = {"documents": documents, "sentences": sentences}
    facts = {"file": str(path), "kind": format, **counts, "languages": languages}
    rows = [("format", f"{format}, {languages} side{'s' if languages == 2 else ''}")]
    rows += [(name, f"{count:,}") for name, count in counts.items()]
    return Summary("corpus", str(path), facts, rows)
