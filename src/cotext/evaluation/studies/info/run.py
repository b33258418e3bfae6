"""A summary of a run: system, data, scores, sizes, and the files needed to translate elsewhere.

Read without torch, and within limits, from whatever lies there: what is missing or damaged is listed with the
rest. Weights are not read.
"""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import Config, parse_config
from cotext.config.training import BEST_BY
from cotext.data.prepared import TRAIN, read_report, store_exists
from cotext.data.tokenizer import chosen_languages, load_tokenizer
from cotext.evaluation.studies.compare.recipe import recipe_of
from cotext.models.describe import entry
from cotext.models.run_folder import (
    Description,
    checkpoints,
    describe_file,
    noted_data,
    noted_import,
    read_metadata,
    read_shapes,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import sealed_lines, unsealed
from cotext.runtime.reading import parse_yaml, read_text
from cotext.runtime.tables import in_bytes

MARKS: Final = ("model.safetensors", "config.yaml", "checkpoints")  # any of them makes a folder a run
MAX_METRICS_BYTES: Final = 1 << 26  # a few hundred thousand reports
TOTALS: Final = ("documents", "sentences", "source_tokens", "target_tokens")
LABEL_WIDTH: Final = 14


@dataclass(slots=True)
class RunInfo:
    """The content of a run folder; None or empty: not known. `problems`: what is missing or damaged.

    `system` is the configuration in words; `imported` the class, folder and licence of the model that the run
    was imported from; `data` what training noted of its data, and whether these are
    still there; `scores` are those on the development set; sizes in bytes. `travels`: the files that it takes
    to translate elsewhere; those of another run too where `system` names one for the first pass.
    """

    run: Path
    system: dict[str, Any] = field(default_factory=dict)
    description: Description | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    tokenizer: dict[str, Any] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    travels: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        described = self.description
        return {
            "format": "cotext-run",
            "version": 1,
            "run": str(self.run),
            "signature": None if described is None else described.signature,
            "system": self.system or None,
            "model": {
                "parameters": self.parameters,
                "updates": None if described is None else described.updates,
                "format": self.metadata.get("cotext.format"),
                "cotext": self.metadata.get("cotext.version"),
            },
            "tokenizer": self.tokenizer or None,
            "imported": self.imported or None,
            "data": self.data or None,
            "training": self.scores or None,
            "bytes": self.sizes,
            "checkpoints": self.checkpoints,
            "travels": {
                "files": self.travels,
                "bytes": self.sizes["travels"],
                "first_pass": self.system.get("first_pass"),
            },
            "problems": self.problems,
        }

    def render(self) -> str:
        """One line for each thing that is known."""
        rows = [*self.rows(), *(("problem", problem) for problem in self.problems)]
        return "\n".join([f"{self.run}: a run", *render_info(rows)])

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each thing that is known, problems left out."""
        return [*self._system_rows(), *self._training_rows(), *self._size_rows()]

    def _system_rows(self) -> list[tuple[str, str]]:
        rows = system_rows(self.system)
        if self.parameters is not None and self.description is not None:
            written = self.metadata.get("cotext.version")
            rows += [
                ("parameters", f"{self.parameters:,}"),
                weights_row(self.description.updates),
                ("written by", f"Cotext {written}, model format {self.metadata['cotext.format']}"),
                ("signature", self.description.signature),
            ]
        if self.tokenizer:
            rows.append(tokenizer_row(self.tokenizer))
        if found := self.imported:
            licence = found["licence"] or "not recorded"
            rows.append(("imported from", f"{found['class']}, {found['folder']}; licence {licence}"))
        return rows

    def _training_rows(self) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        if self.data:
            states = {"there": "still there", "missing": "no longer there", "other": "other data by now"}
            rows.append(("data", f"{self.data['folder']} ({states[self.data['state']]})"))
            for split in ("train", "dev"):
                if totals := self.data[split]:
                    rows.append((f"  {split}", render_totals(totals)))
        if self.scores:
            found = self.scores
            state = "finished" if found["finished"] else "interrupted, or still in training,"
            rows.append(("training", f"{state} at update {found['update']:,}"))
            for key, title, unit in (
                ("best_loss", "best loss", " nats a token"),
                ("best_bleu", "best BLEU", ""),
            ):
                if best := found[key]:
                    where = f"on the development set, at update {best['update']:,}"
                    rows.append((title, f"{best['value']:.4g}{unit} {where}"))
            if best := found["best"]:
                by = f"train.best_by = {found['best_by']} ({best['value']:.4g})"
                rows.append(("best checkpoint", f"at update {best['update']:,}, by {by}"))
            if gates := found["gates"]:
                words = (f"{name} {value:.3f}" for name, value in gates.items())
                rows.append(("gates", f"to other sentences, open by {', '.join(words)}"))
            if final := found["final"]:
                scores = [f"{key} {value:.4g}" for key, value in final.items() if value is not None]
                rows.append(("final model", f"{', '.join(scores)} on the development set"))
        return rows

    def _size_rows(self) -> list[tuple[str, str]]:
        sizes, listed = self.sizes, ", ".join(map(str, self.checkpoints)) or "none"
        rows = [
            ("on disk", f"{in_bytes(sizes['all'])}; model {in_bytes(sizes['model'])}"),
            ("checkpoints", f"{listed}; {in_bytes(sizes['checkpoints'])}"),
        ]
        if self.travels:
            needed = f"{', '.join(self.travels)} ({in_bytes(sizes['travels'])}), nothing else"
            if other := self.system.get("first_pass"):
                needed += f" of this run; and the run {other}, which writes the first pass"
            rows.append(("to translate", needed))
        return rows


def run_info(run: Path) -> RunInfo:
    """Read what a run folder says of itself; damage is listed in `problems`."""
    info = RunInfo(run, checkpoints=checkpoints(run))
    _read_model(info)
    _read_tokenizer(info)
    _read_data(info)
    _read_scores(info)
    if noted := noted_import(run):
        info.imported = {key: str(noted.get(key, "")) for key in ("class", "folder", "licence")}
    if info.description is not None and info.tokenizer:
        info.travels = ["model.safetensors", *(f"tokenizer/{name}" for name in info.tokenizer["files"])]
    info.sizes = {
        "model": size_of(run / "model.safetensors"),
        "checkpoints": size_of(run / "checkpoints"),
        "all": size_of(run),
        "travels": sum(size_of(run / name) for name in info.travels),
    }
    return info


def _read_model(info: RunInfo) -> None:
    path, written = info.run / "model.safetensors", info.run / "config.yaml"
    try:
        if not os.path.lexists(path):
            info.problems.append(f"{path}: no model yet: there is one from the first validation on")
        else:
            info.metadata = read_metadata(path)
            info.parameters = sum(map(math.prod, read_shapes(path).values()))
            info.description = describe_file(path)
            info.system = describe_system(info.description.config)
    except CotextError as error:
        info.problems.append(str(error))
    if not info.system and os.path.lexists(written):
        try:
            info.system = describe_system(
                parse_config(parse_yaml(read_text(written), str(written)), str(written))
            )
        except CotextError as error:
            info.problems.append(str(error))


def describe_system(config: Config) -> dict[str, Any]:
    """A configuration in words."""
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


def _read_tokenizer(info: RunInfo) -> None:
    folder = info.run / "tokenizer"
    try:
        info.tokenizer = describe_tokenizer(folder)
    except CotextError as error:
        info.problems.append(str(error))
        return
    if info.description is not None and info.tokenizer["fingerprint"] != info.description.fingerprint:
        info.problems.append(f"{folder}: not the tokenizer that the model was trained with")


def _read_data(info: RunInfo) -> None:
    path = info.run / "data.json"
    if not os.path.lexists(path):
        return
    try:
        noted = unsealed(read_text(path))
        folder, digests = noted["folder"], dict(noted["checksums"])
        info.data = {
            "folder": str(folder),
            "state": _state(Path(folder), digests),
            **{split: _totals(noted.get(split)) for split in ("train", "dev")},
        }
    except CotextError as error:
        info.problems.append(str(error))
    except (ValueError, KeyError, TypeError):
        info.problems.append(f"{path}: damaged, or written by an earlier version of Cotext")


def _state(folder: Path, digests: dict[str, Any]) -> str:
    """Whether the data of a run are where they were: there, missing or other."""
    if not store_exists(folder / TRAIN):
        return "missing"
    try:
        files = read_report(folder).get("files", {})
    except CotextError:
        return "other"
    return "other" if any(digests.get(name, files[name]) != files[name] for name in files) else "there"


def noted_totals(run: Path) -> dict[str, Any]:
    """What is noted of the data that a run was trained on: their folder and totals; nothing if nothing is."""
    noted = noted_data(run)
    if not noted:
        return {}
    return {"folder": noted["folder"], **{split: _totals(noted.get(split)) for split in ("train", "dev")}}


def _totals(noted: Any) -> dict[str, int] | None:
    if not isinstance(noted, dict) or not all(type(noted.get(key)) is int for key in TOTALS):
        return None
    return {key: noted[key] for key in TOTALS}


def _read_scores(info: RunInfo) -> None:
    path = info.run / "metrics.jsonl"
    if not os.path.lexists(path):
        return
    try:
        *lines, _ = sealed_lines(path, MAX_METRICS_BYTES)
    except CotextError as error:
        info.problems.append(str(error))
        return
    reports, damaged = [], 0
    for line in lines:
        try:
            report = unsealed(line)
            reports.append({**report, "update": int(report["update"])})
        except (ValueError, KeyError, TypeError, OverflowError):
            damaged += 1
    if damaged:
        info.problems.append(f"{path}: {damaged:,} of {len(lines):,} reports are damaged; they do not count")
    if reports:
        last = reports[-1]
        finished, by = last.get("kind") == "final", info.system.get("best_by", "loss")
        final = {"loss": _number(last, "nll_current"), "bleu": _number(last, "bleu")}
        validations = [report for report in reports if report.get("kind") == "validation"]
        info.scores = {
            "finished": finished,
            "update": last["update"],
            "best_loss": _best(validations, "nll_current", min),
            "best_bleu": _best(validations, "bleu", max),
            "best": _best(validations, BEST_BY[by], max if by == "bleu" else min),
            "best_by": by,
            "final": final if finished else None,
            "gates": {
                name.removeprefix("gates."): value
                for report in reports[-1:]
                for name, value in report.items()
                if name.startswith("gates.") and isinstance(value, float)
            },
        }


def _best(reports: Sequence[dict[str, Any]], key: str, choose: Any) -> dict[str, Any] | None:
    """The best value among reports, and the first update that has it."""
    found = [(value, report["update"]) for report in reports if (value := _number(report, key)) is not None]
    if not found:
        return None
    value = choose(value for value, _ in found)
    return {"value": value, "update": next(update for other, update in found if other == value)}


def _number(report: dict[str, Any], key: str) -> float | None:
    value = report.get(key)
    return value if isinstance(value, float) and math.isfinite(value) else None


def describe_tokenizer(folder: Path) -> dict[str, Any]:
    """Kind, pieces and fingerprint of a tokenizer on disk, and the names of its files.

    Raises:
        CotextError: as `load_tokenizer`.
    """
    found = load_tokenizer(folder)
    files = ["tokenizer.json", *found.files]
    described = {"kind": found.kind, "pieces": found.pieces, "fingerprint": found.fingerprint, "files": files}
    if languages := chosen_languages(found):
        described["languages"] = languages
    return described


def system_rows(system: dict[str, Any]) -> list[tuple[str, str]]:
    """A system in words, line by line; nothing where it is not known."""
    if not system:
        return []
    layers = " + ".join(map(str, system["layers"]))
    changes = f" with {' '.join(system['changes'])}" if system["changes"] else ""
    rows = [
        ("recipe", f"{system['recipe'] or 'a system of its own'}{changes}"),
        ("paper", system["paper"] or "names no row of a paper"),
        ("languages", system["languages"] or "not known"),
        ("view", system["view"]),
        ("model", f"{system['model']}, {layers} layers, dimension {system['dimension']:,}"),
        ("loss", system["loss"]),
        ("decoding", system["decoding"]),
    ]
    return [*rows, ("started from", system["init"])] if system["init"] else rows


def weights_row(updates: Sequence[int]) -> tuple[str, str]:
    """The updates that weights were taken from."""
    kind = "update" if len(updates) == 1 else "the mean of updates"
    return "weights of", f"{kind} {', '.join(map(str, updates))}"


def tokenizer_row(described: dict[str, Any]) -> tuple[str, str]:
    """A tokenizer that `describe_tokenizer` described."""
    languages = f", {described['languages']}" if "languages" in described else ""
    pieces = f"{described['pieces']:,} pieces"
    return "tokenizer", f"{described['kind']}, {pieces}, {described['fingerprint'][:16]}{languages}"


def size_of(path: Path) -> int:
    """Bytes of a file, or of all regular files below a folder; links are not followed."""
    total = 0
    files = [path, *(Path(folder, name) for folder, _, names in os.walk(path) for name in names)]
    for file in files:
        # A training run may delete it meanwhile.
        with suppress(OSError):
            if file.is_file() and not file.is_symlink():
                total += file.stat().st_size
    return total


def render_totals(totals: dict[str, int]) -> str:
    """Documents, sentences and tokens in a line."""
    documents, sentences, source, target = (f"{totals[key]:,}" for key in TOTALS)
    return f"{documents} documents, {sentences} sentences, {source} source and {target} target tokens"


def render_info(rows: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each pair of label and text."""
    return [f"  {label:<{LABEL_WIDTH}}{text}" for label, text in rows]
