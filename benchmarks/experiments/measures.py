"""Measures of a trained row: their commands, and the figures in the output of these.

A figure is a number with a dotted name; tables refer to it as `MEASURE.FIGURE`.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.experiments.data import COTEXT, as_options
from benchmarks.experiments.plan import PLACEHOLDERS, Contrastive, Cxmi, Measure, Translation
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel, write_documents
from cotext.evaluation.metrics.comet import Comet, find_python
from cotext.models.run_folder import checkpoints
from cotext.runtime import CotextError, parse_json, read_text
from cotext.runtime.files import remove, sealed_lines, unsealed
from cotext.training.warm_start import read_account

# Commands with the option --device.
ON_DEVICE = "train", "distill", "translate", "score", "contrastive", "attention", "context", "cxmi", "speed"
LEARNED = 90.0  # per cent right
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """Paths for a measure: the run of its row, its data, its output file, the runs of all rows, all data."""

    run: Path
    data: Path
    out: Path
    runs: Mapping[str, Path]
    others: Mapping[str, Path]

    def filled(self, text: str) -> str:
        """Replace placeholders by paths."""
        names = {"run": self.run, "data": self.data, "out": self.out, "measures": self.out.parent}
        names |= {f"runs[{name}]": run for name, run in self.runs.items()}
        names |= {f"data[{name}]": data for name, data in self.others.items()}
        return PLACEHOLDERS.sub(lambda found: str(names[found[1]]), text)

    def clear(self, others: Sequence[str]) -> None:
        """Remove files of an earlier definition of this measure, but no files of the measures `others`."""
        longer = tuple(f"{other}{end}" for other in others for end in ".-" if other.startswith(self.out.stem))
        for path in self.out.parent.glob(f"{self.out.stem}[.-]*"):
            if not longer or not path.name.startswith(longer):
                remove(path)


@dataclass(frozen=True, slots=True)
class Step:
    """A command; `printed`: file for its standard output."""

    arguments: tuple[str, ...]
    printed: Path | None = None


def cotext(*arguments: str | Path, device: str | None, printed: Path | None = None) -> Step:
    """Return a command of Cotext, with the device if it has that option."""
    on_device = ("--device", device) if device is not None and arguments[0] in ON_DEVICE else ()
    return Step((*COTEXT, *map(str, arguments), *on_device), printed)


def steps(measure: Measure, place: Place, device: str | None) -> list[Step]:
    """Return the commands of a measure, in order."""
    if measure.contrastive is not None:
        return list(_contrastive(measure.contrastive, place, device))
    if measure.translation is not None:
        return list(_translation(measure.translation, place, device))
    if measure.cxmi is not None:
        return [_cxmi(measure.cxmi, place, device)]
    if measure.cotext is not None:
        return [cotext(*map(place.filled, measure.cotext), device=device)]
    if measure.python is not None:
        return [Step((sys.executable, "-m", *map(place.filled, measure.python)))]
    return []


def figures(measure: Measure, place: Place) -> Figures:
    """Read the figures of a measure from the files that its commands wrote."""
    if measure.training:
        return of_training(place.run)
    if measure.contrastive is not None:
        found = of_suites(_read(place.out))
        for update, path in _at_checkpoints(place):
            at = of_suites(_read(path))
            found |= {f"{name}.at.{update}": value for name, value in at.items()}
            for name, value in at.items():
                if name.endswith(".near") and value >= LEARNED:
                    found.setdefault(f"{name.removesuffix('.near')}.since", update)
        return found
    if measure.translation is not None:
        found = of_evaluation(_read(place.out)) | of_translation(_read(_translated(place.out)))
        for update, path in _at_checkpoints(place):
            found |= {f"{name}.at.{update}": value for name, value in of_evaluation(_read(path)).items()}
        return found
    if measure.cxmi is not None:
        return dict(flat(_read(place.out)["conditions"]))
    return dict(flat(_read(place.out))) if place.out.is_file() else {}


def _at_checkpoints(place: Place) -> list[tuple[int, Path]]:
    """Return the update and the file of each measured checkpoint, in order."""
    paths = place.out.parent.glob(f"{place.out.stem}.at.*.json")
    return sorted((int(path.stem.rpartition(".")[2]), path) for path in paths)


def _read(path: Path) -> Any:
    return parse_json(read_text(path, max_bytes=1 << 30), str(path))


# ------------------------------------------------------------------------------------------- commands


def _contrastive(asked: Contrastive, place: Place, device: str | None) -> Iterator[Step]:
    """Score suites with the final model, then with checkpoints."""
    suites: list[Path] = []
    for path in (Path(place.filled(suite)) for suite in asked.suites):
        suites += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not suites:
        raise CotextError(f"{', '.join(map(place.filled, asked.suites))}: no contrastive suite there")
    controls = ["--controls"] if asked.controls else []
    controls += [] if asked.context == "true" else ["--context", asked.context]
    options = [*controls, *as_options(_filled(asked.settings, place))]
    for out, chosen in _models(place, asked.checkpoints):
        yield cotext("contrastive", place.run, *suites, *options, *chosen, "--out", out, device=device)


def _cxmi(asked: Cxmi, place: Place, device: str | None) -> Step:
    source, reference = (Path(place.filled(path)) for path in (asked.source, asked.reference))
    if asked.documents is not None:
        source, reference = _excerpt(asked.documents, False, source, reference, place)
    files = ("--source", source, "--target", reference, "--out", place.out)
    return cotext("cxmi", place.run, *files, device=device)


def _filled(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    return {k: place.filled(v) if isinstance(v, str) else v for k, v in settings.items()}


def _translation(asked: Translation, place: Place, device: str | None) -> Iterator[Step]:
    """Translate and evaluate with the final model, then with checkpoints."""
    source, reference = (Path(place.filled(path)) for path in (asked.source, asked.reference))
    if asked.documents is not None or asked.single_sentences:
        source, reference = _excerpt(asked.documents, asked.single_sentences, source, reference, place)
    protocols = [word for protocol in asked.protocols for word in ("--protocol", protocol)]
    if asked.target_language:
        protocols += ["--target-language", asked.target_language]
    if asked.discourse:
        protocols += ["--discourse", place.filled(asked.discourse)]
    if asked.comet and not without_comet(asked.comet):
        protocols += ["--comet", asked.comet]
    # Research figures are those of PyTorch, whatever is installed.
    options = as_options({"engine": "torch", **_filled(asked.settings, place)})
    for written, chosen in _models(place, asked.checkpoints):
        hypothesis = place.out.with_name(f"{written.stem}-{source.name}")
        arguments = ("--out", str(hypothesis), "--json", *options, *chosen)
        if not _translated(written).exists():  # a rest without it is of an interrupted command
            remove(hypothesis)
            yield cotext(
                "translate", place.run, source, *arguments, device=device, printed=_translated(written)
            )
        files = {"--source": source, "--hypothesis": hypothesis, "--reference": reference}
        named = [word for option, path in files.items() for word in (option, str(path))]
        yield cotext("evaluate", *named, *protocols, "--json", device=device, printed=written)


def _models(place: Place, with_checkpoints: bool) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Return the output file and the options for the final model, then for each checkpoint."""
    yield place.out, ()
    for update in checkpoints(place.run) if with_checkpoints else ():
        yield place.out.with_name(f"{place.out.stem}.at.{update}.json"), ("--checkpoint", str(update))


def without_comet(model: str) -> str:
    """Return why a COMET model cannot run here; empty if it can."""
    if not model:
        return "no model is named"
    try:
        Comet(model, find_python(None))
    except CotextError as error:
        return str(error)
    return ""


def _translated(out: Path) -> Path:
    return out.with_suffix(".translated")


def _excerpt(
    documents: int | None, single_sentences: bool, source: Path, reference: Path, place: Place
) -> tuple[Path, Path]:
    """Write the chosen documents; return the files of both sides."""
    chosen = list(islice(read_parallel(source, None if source == reference else reference), documents))
    if single_sentences:
        chosen = [
            ParallelDocument(f"{d.id}:{i}", (s,), (t,))
            for d in chosen
            for i, (s, t) in enumerate(zip(d.source, d.target, strict=True), 1)
        ]
    one, other = (place.out.with_name(f"{place.out.stem}.{side}.jsonl") for side in ("source", "target"))
    write_documents(one, (Document(d.id, d.source) for d in chosen), "jsonl")
    write_documents(other, (Document(d.id, d.target) for d in chosen), "jsonl")
    return one, other


# --------------------------------------------------------------------------------------------- figures


def of_training(run: Path) -> Figures:
    """Return losses and BLEU on the development set, of the final model and by update, and tokens a second.

    `start.sentences` and `start.rows`: loss before the first update of a training that started from another
    run, on single sentences and on its own rows.
    """
    entries = [unsealed(line) for line in sealed_lines(run / "metrics.jsonl") if line]
    validations = [entry for entry in entries if entry["kind"] == "validation"]
    names = ("loss", "nll_current", "nll_context", "without_path", "bleu")
    found: Figures = {}
    for entry in (*validations, *(entry for entry in entries if entry["kind"] == "final")):
        found |= {name: entry[name] for name in names if name in entry}
    for name in names:
        found |= {f"{name}.at.{v['update']:.0f}": v[name] for v in validations if name in v}
    if validations:
        found["best"] = min(v["nll_current"] for v in validations)
        found["updates"] = validations[-1]["update"]
    speed = [entry["tokens_per_second"] for entry in entries if entry["kind"] == "train"]
    if speed:
        found["tokens_per_second"] = statistics.median(speed)
    start = read_account(run / "init.json").get("loss") if (run / "init.json").is_file() else None
    if start:
        found |= {"start.sentences": start["sentences_here"], "start.rows": start["instances_here"]}
    return found


def of_suites(report: Mapping[str, Any]) -> Figures:
    """Return the accuracy in per cent of each suite, and by distance of the clue if it is known.

    `SUITE.near`: mean over one to three sentences back. `SUITE.elsewhere`: mean over all distances but 0.
    `elsewhere` and `beyond.N`: mean over the distances of all suites, except 0 and up to N.
    """
    found: Figures = {}
    elsewhere: list[float] = []
    beyond: dict[int, list[float]] = {}
    for title, suite in report.items():
        name = title.rpartition("/")[2].split(" ")[0]
        found |= {name: suite["overall"]["accuracy_percent"]}
        found |= {f"{name}.chance": suite["overall"]["chance_percent"]}
        distances = {d: each["accuracy_percent"] for d, each in suite["by_distance"].items()}
        found |= {f"{name}.{distance}": value for distance, value in distances.items()}
        away = [value for distance, value in distances.items() if distance != "0"]
        elsewhere += away
        if near := [distances[d] for d in ("1", "2", "3") if d in distances]:
            found[f"{name}.near"] = statistics.mean(near)
        if away:
            found[f"{name}.elsewhere"] = statistics.mean(away)
        for limit in range(4):
            beyond.setdefault(limit, []).extend(v for d, v in distances.items() if _further(d, limit))
    if elsewhere:
        found["elsewhere"] = statistics.mean(elsewhere)
    return found | {f"beyond.{n}": statistics.mean(values) for n, values in beyond.items() if values}


def _further(distance: str, limit: int) -> bool:
    return distance == ">3" or (distance.isdecimal() and int(distance) > limit)


def of_evaluation(report: Mapping[str, Any]) -> Figures:
    """Return scores by protocol."""
    [system] = report["systems"].values()
    return {name: float(score["value"]) for name, score in system["scores"].items()}


def of_translation(report: Mapping[str, Any]) -> Figures:
    """Return the per cent of chunks with as many sentences as the source; only of free decoding."""
    if report["align"] != "free":
        return {}
    return {"recovered": 100 * report["recovered_pieces"] / max(report["pieces"], 1)}


def flat(content: object, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield all numbers of nested mappings and lists by dotted keys; lists count from 0."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from flat(value, f"{prefix}{key}.")
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for number, value in enumerate(content):
            yield from flat(value, f"{prefix}{number}.")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield prefix.removesuffix("."), float(content)
