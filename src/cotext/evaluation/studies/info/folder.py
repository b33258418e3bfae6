"""Summary of a folder that Cotext has made, or of a corpus file: `cotext info`.

A summary needs neither torch nor weights, and the size of its input is limited. Damage is listed as problems.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotext.config.parts import code_files
from cotext.config.recipe import BEST_BY, Config, parse_config
from cotext.data.formats import checked_records, detect_format, find_format
from cotext.data.prepared import REPORT, TRAIN, read_report, report_of
from cotext.data.shortlist import SHORTLIST
from cotext.data.tokenizer import chosen_languages, load_tokenizer
from cotext.evaluation.studies.compare.recipe import missing_seeds, recipe_of, require_alike
from cotext.models.describe import entry
from cotext.models.run_folder import (
    ENGINE,
    REMEDY,
    Description,
    checkpoints,
    describe_engine,
    describe_file,
    is_engine,
    noted_import,
    read_metadata,
    read_shapes,
    seed_folder,
    seeds_in,
    told_differences,
)
from cotext.runtime import CotextError, parse_yaml, read_text
from cotext.runtime.files import require_whole, sealed_lines, unsealed
from cotext.runtime.rendering import in_bytes, listed

MARKS: Final = ("model.safetensors", "config.yaml", "checkpoints")  # each marks a folder as a run
MAX_METRICS_BYTES: Final = 1 << 26  # a few hundred thousand reports
DATA_MARKS: Final = (REPORT, TRAIN)  # each marks a folder as prepared data
TOTALS: Final = ("documents", "sentences", "source_tokens", "target_tokens")
LABEL_WIDTH: Final = 14

Rows = list[tuple[str, str]]


@dataclass(slots=True)
class Summary:
    """The content of a folder: `facts` for programs (JSON), `rows` of label and text for people.

    Unknown facts are None or empty. `parts`: the runs of a folder of several seeds.
    """

    kind: str
    heading: str
    facts: dict[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    parts: list["Summary"] = field(default_factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Add a CotextError to the problems instead of raising it."""
        try:
            yield
        except CotextError as error:
            self.problems.append(str(error))

    def as_dict(self) -> dict[str, Any]:
        return {"format": f"cotext-{self.kind}", "version": 1, **self.facts, "problems": self.problems}

    def render(self) -> str:
        rows = [*self.rows, *(("problem", problem) for problem in self.problems)]
        lines = [self.heading, *(f"  {label:<{LABEL_WIDTH}}{text}" for label, text in rows)]
        return "\n\n".join(["\n".join(lines), *(part.render() for part in self.parts)])


def folder_info(folder: Path) -> Summary:
    """Summarise a run, several seeds, an engine or prepared data; raise CotextError for other folders."""
    if not folder.is_dir():
        raise CotextError(f"{folder}: no such folder; give a run folder, or one made by `cotext prepare`")
    if is_engine(folder):
        return engine_info(folder)
    if any(os.path.lexists(folder / name) for name in DATA_MARKS):
        return data_info(folder)
    if any(os.path.lexists(folder / name) for name in MARKS):
        return run_info(folder)
    if seeds_in(folder):
        return seeds_info(folder)
    raise CotextError(
        f"{folder}: not a run, an engine or prepared data: contains none of "
        f"{', '.join((*MARKS, ENGINE, *DATA_MARKS))}"
    )


def engine_info(folder: Path) -> Summary:
    """Read the description of an engine folder; damage is listed in `problems`."""
    summary = Summary("engine", f"{folder}: an engine", {"folder": str(folder), "bytes": size_of(folder)})
    summary.facts |= dict.fromkeys(("signature", "system", "engine"))
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
    _read_tokenizer(summary, folder, None)
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
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def seeds_info(folder: Path) -> Summary:
    """Summarise runs of several seeds; `problems`: missing seeds, and differences other than the seed."""
    folders = {seed: seed_folder(folder, seed) for seed in seeds_in(folder)}
    runs, size = {seed: run_info(run) for seed, run in folders.items()}, size_of(folder)
    summary = Summary("seeds", f"{folder}: runs of the seeds {listed([str(seed) for seed in runs])}")
    summary.facts = {
        "folder": str(folder),
        "seeds": list(runs),
        "runs": [run.as_dict() for run in runs.values()],
        "bytes": size,
    }
    summary.rows, summary.parts = [("on disk", in_bytes(size))], list(runs.values())
    if missing := missing_seeds(folder, folders):
        summary.problems.append(missing)
    if described := {seed: folders[seed] for seed, run in runs.items() if run.facts["signature"]}:
        with summary.collecting():
            require_alike(folder, described)
    return summary


def corpus_info(path: Path) -> Summary:
    """Summarise a corpus file; raise CotextError for other files, and for several language pairs."""
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


def run_info(run: Path) -> Summary:
    """Read the description of a run folder; damage is listed in `problems`."""
    summary = Summary("run", f"{run}: a run", {"run": str(run)})
    described = _read_model(summary, run)
    tokenizer = _read_tokenizer(summary, run, described)
    summary.facts["imported"] = None
    if record := noted_import(run):
        imported = {key: str(record.get(key, "")) for key in ("class", "folder", "licence")}
        licence = imported["licence"] or "not recorded"
        source = f"{imported['class']}, {imported['folder']}; licence {licence}"
        summary.rows.append(("imported from", source))
        summary.facts["imported"] = imported
    _read_data(summary, run)
    _read_scores(summary, run)
    travels = []
    if described is not None and tokenizer:
        travels = ["model.safetensors", *(f"tokenizer/{name}" for name in tokenizer["files"])]
        travels += code_files(described.config.model.model_dump())
        travels += [SHORTLIST] if described.config.decode.shortlist else []
    saved = checkpoints(run)
    files = {"model": "model.safetensors", "checkpoints": "checkpoints", "all": ""}
    sizes = {name: size_of(run / file) for name, file in files.items()}
    first_pass = (summary.facts["system"] or {}).get("first_pass")
    carried = sum(size_of(run / name) for name in travels)
    summary.facts |= {
        "bytes": {**sizes, "travels": carried},
        "checkpoints": saved,
        "travels": {"files": travels, "bytes": carried, "first_pass": first_pass},
    }
    summary.rows += [
        ("on disk", f"{in_bytes(sizes['all'])}; model {in_bytes(sizes['model'])}"),
        ("checkpoints", f"{', '.join(map(str, saved)) or 'none'}; {in_bytes(sizes['checkpoints'])}"),
    ]
    if travels:
        words = f"needs only {', '.join(travels)} ({in_bytes(carried)})"
        if first_pass:
            words += f" of this run; and the run {first_pass}, which writes the first pass"
        summary.rows.append(("to translate", words))
    return summary


def _read_model(summary: Summary, run: Path) -> Description | None:
    path, written = run / "model.safetensors", run / "config.yaml"
    metadata: dict[str, str] = {}
    parameters, described, config = None, None, None
    with summary.collecting():
        if not os.path.lexists(path):
            raise CotextError(f"{path}: no model yet: it is written at the first validation")
        metadata = read_metadata(path)
        parameters = sum(map(math.prod, read_shapes(path).values()))
        described = describe_file(path)
        config = described.config
    if os.path.lexists(written):
        with summary.collecting():
            there = parse_config(parse_yaml(read_text(written), str(written)), str(written))
            config = config or there
            if changed := told_differences(config, there, ("in the model, which counts", "in this file")):
                summary.problems.append(f"{written}: edited after training:{changed}")
    system = {} if config is None else describe_system(config)
    summary.rows += system_rows(system)
    if parameters is not None and described is not None:
        words = f"Cotext {metadata.get('cotext.version')}, model format {metadata['cotext.format']}"
        summary.rows += [
            ("parameters", f"{parameters:,}"),
            weights_row(described.updates),
            ("written by", words),
            ("signature", described.signature),
        ]
    summary.facts |= {
        "signature": None if described is None else described.signature,
        "system": system or None,
        "model": {
            "parameters": parameters,
            "updates": None if described is None else described.updates,
            "format": metadata.get("cotext.format"),
            "cotext": metadata.get("cotext.version"),
        },
    }
    return described


def describe_system(config: Config) -> dict[str, Any]:
    recipe, words, model = recipe_of(config), entry("", config, 0), config.model
    first_pass = config.train.init if config.decode.first_pass == "init" else config.decode.first_pass
    return {
        "recipe": recipe.name,
        "changes": list(recipe.changes),
        "paper": config.paper,
        "languages": config.languages or None,
        "view": words.view,
        "model": words.model,
        "positions": model.positions,
        "loss": words.loss,
        "decoding": words.decoding,
        "dimension": model.dimension,
        "layers": [model.encoder_layers, model.decoder_layers],
        "init": config.train.init or None,
        "first_pass": first_pass or None,
        "best_by": config.train.best_by,
    }


def _read_tokenizer(summary: Summary, run: Path, described: Description | None) -> dict[str, Any]:
    folder, tokenizer = run / "tokenizer", {}
    with summary.collecting():
        tokenizer = describe_tokenizer(folder)
        languages = f", {tokenizer['languages']}" if "languages" in tokenizer else ""
        pieces = f"{tokenizer['pieces']:,} pieces, {tokenizer['fingerprint'][:16]}"
        summary.rows.append(("tokenizer", f"{tokenizer['kind']}, {pieces}{languages}"))
        if described is not None and tokenizer["fingerprint"] != described.fingerprint:
            summary.problems.append(f"{folder}: not the tokenizer that the model was trained with")
    summary.facts["tokenizer"] = tokenizer or None
    return tokenizer


def _read_data(summary: Summary, run: Path) -> None:
    """Read what training recorded about its data, and check whether the data still exist."""
    path = run / "data.json"
    summary.facts["data"] = None
    if not os.path.lexists(path):
        return
    with summary.collecting():
        try:
            record = unsealed(read_text(path))
            folder, digests = str(record["folder"]), dict(record["checksums"])
            totals = {split: _totals(record.get(split)) for split in ("train", "dev")}
            state = _state(Path(folder), digests)
        except (ValueError, KeyError, TypeError):
            raise CotextError(f"{path}: damaged, or written by an earlier version of Cotext") from None
        summary.facts["data"] = {"folder": folder, "state": state, **totals}
        states = {"there": "still there", "missing": "no longer there", "other": "changed since training"}
        summary.rows.append(("data", f"{folder} ({states[state]})"))
        summary.rows += [(f"  {split}", render_totals(counts)) for split, counts in totals.items() if counts]


def _state(folder: Path, digests: dict[str, Any]) -> str:
    """Return the state of the data of a run: there, missing or other (changed)."""
    if not (folder / TRAIN).is_file():
        return "missing"
    try:
        files = read_report(folder).get("files", {})
    except CotextError:
        return "other"
    return "other" if any(digests.get(name, files[name]) != files[name] for name in files) else "there"


def _totals(record: Any) -> dict[str, int] | None:
    if not isinstance(record, dict) or not all(type(record.get(key)) is int for key in TOTALS):
        return None
    return {key: record[key] for key in TOTALS}


def _read_scores(summary: Summary, run: Path) -> None:
    """Read the scores on the development set, as reported by training."""
    path = run / "metrics.jsonl"
    lines: list[str] = []
    summary.facts["training"] = None
    with summary.collecting():
        *lines, _ = sealed_lines(path, MAX_METRICS_BYTES)
    reports, damaged = [], 0
    for line in lines:
        try:
            report = unsealed(line)
            reports.append({**report, "update": int(report["update"])})
        except (ValueError, KeyError, TypeError, OverflowError):
            damaged += 1
    if damaged:
        summary.problems.append(
            f"{path}: {damaged:,} of {len(lines):,} reports are damaged; they are ignored"
        )
    if reports:
        by = (summary.facts["system"] or {}).get("best_by", "loss")
        summary.facts["training"] = scores = _scores(reports, by)
        summary.rows += _score_rows(scores)


def _scores(reports: Sequence[dict[str, Any]], by: str) -> dict[str, Any]:
    last = reports[-1]
    finished = last.get("kind") == "final"
    validations = [report for report in reports if report.get("kind") == "validation"]
    return {
        "finished": finished,
        "update": last["update"],
        "best_loss": _best(validations, "nll_current", min),
        "best_bleu": _best(validations, "bleu", max),
        "best": _best(validations, BEST_BY[by], max if by == "bleu" else min),
        "best_by": by,
        "final": {"loss": _number(last, "nll_current"), "bleu": _number(last, "bleu")} if finished else None,
        "gates": {
            name.removeprefix("gates."): value
            for name, value in last.items()
            if name.startswith("gates.") and isinstance(value, float)
        },
    }


def _score_rows(scores: dict[str, Any]) -> Rows:
    state = "finished" if scores["finished"] else "interrupted, or still in training,"
    rows = [("training", f"{state} at update {scores['update']:,}")]
    # The loss of current sentences is named as in the output of `train`, which also prints other losses.
    loss, bleu = "nll_current {:.4g} nats a token", "{:.4g}"
    for key, title, words in (("best_loss", "best loss", loss), ("best_bleu", "best BLEU", bleu)):
        if best := scores[key]:
            where = f"on the development set, at update {best['update']:,}"
            rows.append((title, f"{words.format(best['value'])} {where}"))
    if best := scores["best"]:
        by = f"train.best_by = {scores['best_by']} ({best['value']:.4g})"
        rows.append(("best update", f"{best['update']:,}, by {by}"))
    if gates := scores["gates"]:
        opened = (f"{name} {value:.3f}" for name, value in gates.items())
        rows.append(("gates", f"mean absolute value of gates to other sentences: {', '.join(opened)}"))
    if final := scores["final"]:
        named = {"nll_current": final["loss"], "bleu": final["bleu"]}
        values = [f"{key} {value:.4g}" for key, value in named.items() if value is not None]
        rows.append(("final model", f"{', '.join(values)} on the development set"))
    return rows


def _best(reports: Sequence[dict[str, Any]], key: str, choose: Any) -> dict[str, Any] | None:
    """Return the best value among reports, and the first update that has it."""
    values = ((_number(report, key), report["update"]) for report in reports)
    known = [{"value": value, "update": update} for value, update in values if value is not None]
    best: dict[str, Any] | None = choose(known, key=lambda entry: entry["value"], default=None)
    return best


def _number(report: dict[str, Any], key: str) -> float | None:
    value = report.get(key)
    return value if isinstance(value, float) and math.isfinite(value) else None


def describe_tokenizer(folder: Path) -> dict[str, Any]:
    """Return kind, size, fingerprint and files of a tokenizer; raise the errors of `load_tokenizer`."""
    tokenizer = load_tokenizer(folder)
    described: dict[str, Any] = {key: getattr(tokenizer, key) for key in ("kind", "pieces", "fingerprint")}
    described["files"] = ["tokenizer.json", *tokenizer.files]
    if languages := chosen_languages(tokenizer):
        described["languages"] = languages
    return described


def system_rows(system: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows that describe a system; none if it is not known."""
    if not system:
        return []
    layers = " + ".join(map(str, system["layers"]))
    changes = f" with {' '.join(system['changes'])}" if system["changes"] else ""
    rows = [
        ("recipe", f"{system['recipe'] or 'no known recipe'}{changes}"),
        ("paper", system["paper"] or "none named"),
        ("languages", system["languages"] or "not known"),
        ("view", system["view"]),
        ("model", f"{system['model']}, {layers} layers, dimension {system['dimension']:,}"),
        ("loss", system["loss"]),
        ("decoding", system["decoding"]),
    ]
    return [*rows, ("started from", system["init"])] if system["init"] else rows


def weights_row(updates: Sequence[int]) -> tuple[str, str]:
    kind = "update" if len(updates) == 1 else "the mean of updates"
    return "weights of", f"{kind} {', '.join(map(str, updates))}"


def size_of(path: Path) -> int:
    """Return the size in bytes of a file, or of all regular files below a folder; links are not followed."""
    total = 0
    files = [path, *(Path(folder, name) for folder, _, names in os.walk(path) for name in names)]
    for file in files:
        # A training run may delete files meanwhile.
        with suppress(OSError):
            if file.is_file() and not file.is_symlink():
                total += file.stat().st_size
    return total


def render_totals(totals: dict[str, int]) -> str:
    documents, sentences, source, target = (f"{totals[key]:,}" for key in TOTALS)
    return f"{documents} documents, {sentences} sentences, {source} source and {target} target tokens"
