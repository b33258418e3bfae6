"""Measurements of one run: translations, contrastive decisions and CXMI, stored in the run folder.

    RUN/compared/<test set>-<model and decoding><suffix of the source file>    translations
    RUN/compared/<test set>-<model and decoding>.use.json    CXMI of the references
    RUN/compared/<suite>-<model>.json    decisions, in the format of `contrastive --controls --out`

File names consist of digests of everything that the content depends on, so existing files are reused.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cotext.data.contrastive_suites import ContrastiveSuite, documents_of
from cotext.data.documents import Languages, ParallelDocument
from cotext.data.formats import detect_format, read_parallel, second_file
from cotext.evaluation.requests import ComparisonRequest, Condition, CxmiRequest, SuiteRules
from cotext.evaluation.statistics.significance import Resampling, flipped_sums, percentiles
from cotext.evaluation.statistics.sufficient_statistics import Floats
from cotext.evaluation.studies.compare.recipe import MatchedRecipe, recipe_of
from cotext.evaluation.studies.context.context_use import measure_corpus
from cotext.evaluation.studies.contrastive.contrastive import context_window_of, run_suite, suite_recipe
from cotext.evaluation.studies.contrastive.decisions import Decisions, read_decisions
from cotext.evaluation.studies.contrastive.evidence import ContextWindow
from cotext.models.run_folder import noted_data, read_sealed
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import checksum, sealed_lines, unsealed, working_in, write_text
from cotext.runtime.progress import Meter
from cotext.translation.corpus_files import checksums_of
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translate_file import translate_file

FOLDER: Final = "compared"
CONDITIONS: Final[Sequence[Condition]] = ("true", "random")  # kinds of context, compared with no context
# Decoding settings that change scores; they are part of file names.
CHANGING_SCORES: Final = ("before", "group_windows", "precision", "source_language", "target_language")
# Decoding settings for scoring: also a limit, and the language model, whose digest is part of file names.
SCORING_SETTINGS: Final = ("max_source_tokens", "language_model", *CHANGING_SCORES)
_DIGITS = 12  # hexadecimal digits of a digest: 48 bits


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The test set of a comparison; both sides may be in one file."""

    source: Path
    reference: Path
    format: str | None

    @property
    def digest(self) -> str:
        """Return a digest of the content of the files, including files of document ids."""
        return _digest(self.kind, *checksums_of([self.source, self.reference], self.kind))

    @property
    def kind(self) -> str:
        return self.format or detect_format(self.source)

    def documents(self) -> list[ParallelDocument]:
        second = second_file(self.source, self.reference)
        return list(read_parallel(self.source, second, self.format))


@dataclass(frozen=True, slots=True, eq=False)
class CorpusCxmi:
    """CXMI of a test set by kind of context: for each document, the sum in nats and the number of tokens."""

    signature: str
    documents: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run with its measurements. Values that were not requested or are not possible are None or empty.

    `data`: digest of the checksums of the training data; empty if the run folder has no checksums.
    `first_loss`: two development losses: of this run before its first update; and, on single sentences, of
    the run that training started from. `is_start`: no checkpoint was better than the initial model.
    `is_finished`: false if training was interrupted or is still running.
    """

    path: Path
    title: str
    recipe: MatchedRecipe
    languages: Languages
    window: ContextWindow
    signature: str
    decisions: Mapping[str, Decisions]
    hypothesis: Path | None = None
    parameters: int = 0
    updates: int = 0
    data: str = ""
    cxmi: CorpusCxmi | None = None
    first_loss: tuple[float, float] | None = None
    is_start: bool = False
    is_finished: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredSystem:
    """A system with its runs, one for each of its `seeds`; without seeds, there is one run."""

    title: str
    runs: tuple[MeasuredRun, ...]
    seeds: tuple[int, ...] = ()

    @property
    def not_learned(self) -> int:
        """Return the number of runs whose final model is the initial model."""
        return sum(run.is_start for run in self.runs)

    @property
    def label(self) -> str:
        """Return the title for tables, with a note on runs whose final model is the initial model."""
        if not self.not_learned:
            return self.title
        some = self.not_learned < len(self.runs)
        part = f" in {self.not_learned} of {len(self.runs)} seeds" if some else ""
        return f"{self.title} (not learned{part})"

    @property
    def first_loss(self) -> tuple[float, float] | None:
        """Return the means of `MeasuredRun.first_loss`, if all runs have one."""
        losses = [run.first_loss for run in self.runs if run.first_loss is not None]
        if len(losses) < len(self.runs):
            return None
        first, start = (sum(column) / len(losses) for column in zip(*losses, strict=True))
        return first, start

    @property
    def first(self) -> MeasuredRun:
        return self.runs[0]

    @property
    def updates(self) -> tuple[int, int]:
        """Return the fewest and the most updates of a run."""
        counts = [run.updates for run in self.runs]
        return min(counts), max(counts)

    def right(self, suite: str) -> dict[str, float]:
        """Return, for the id of each example of a suite, the share of runs whose decision is right."""
        decided = [run.decisions[suite].right for run in self.runs]
        return {example: sum(right[example] for right in decided) / len(decided) for example in decided[0]}


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """The measurements to make for every run; `new_meter` returns a progress meter for a named task."""

    request: ComparisonRequest
    test: EvaluationSet | None
    suites: Mapping[Path, ContrastiveSuite]
    new_meter: Callable[[str], Meter]


def measure_run(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    """Measure a run; existing results are reused.

    Raises CotextError if the run does not exist, is in use, is damaged or is not writable; or if a sentence
    is too long.
    """
    folder = path / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CotextError(
            f"{folder}: cannot be created ({error.strerror or error}); measurements are stored there"
        ) from None
    with working_in(folder):
        return _measure(path, title, settings)


def _measure(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    opened = open_run(path, settings.request.device, dict(settings.request.decode))
    loaded, window = opened.loaded, context_window_of(opened.translator)
    weights = checksum(opened.weights)
    hypothesis, cxmi = None, None
    if (test := settings.test) is not None:
        stem = f"{test.digest}-{_digest(opened.signature, weights)}"
        hypothesis = path / FOLDER / f"{stem}{test.source.suffix}"
        meter = settings.new_meter(f"translating, {title}")
        if not hypothesis.exists():
            translate_file(
                opened,
                test.source,
                hypothesis,
                test.format,
                on_start=meter.restart,
                on_sentences=meter.advance,
            )
        if settings.request.use and window.has_context and opened.translator.plan.kind.token_nll is not None:
            meter = settings.new_meter(f"scoring with and without context, {title}")
            scorer = opened
            if opened.first_pass is not None:
                scorer = opened.with_decode({**settings.request.decode, "first_pass": ""})
            cxmi = _measure_cxmi(scorer, path / FOLDER / f"{stem}.use.json", test, meter)
    metrics, record = read_metrics(path), noted_data(path)
    first_loss = None
    with suppress(KeyError, TypeError, ValueError):
        loss = read_sealed(path / "init.json")["loss"]
        first_loss = float(loss["instances_here"]), float(loss["sentences_there"])
    return MeasuredRun(
        path=path,
        title=title,
        recipe=recipe_of(loaded.config),
        languages=opened.languages,
        window=window,
        parameters=loaded.parameters,
        updates=max([*loaded.updates, *(int(entry["update"]) for entry in metrics)], default=0),
        first_loss=first_loss,
        is_start=bool(loaded.config.train.init) and loaded.updates == [0],
        is_finished=not metrics or metrics[-1]["kind"] == "final",
        signature=opened.signature,
        data=_digest(json.dumps(record["checksums"], sort_keys=True)) if record else "",
        hypothesis=hypothesis,
        decisions=_decide(opened, weights, window, settings, title),
        cxmi=cxmi,
    )


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a run's metrics.jsonl; none if the run has not reported yet."""
    entries: list[dict[str, Any]] = []
    for line in sealed_lines(run / "metrics.jsonl"):
        with suppress(ValueError):
            entries.append(unsealed(line))
    return [entry for entry in entries if entry.keys() >= {"kind", "update"}]


def _measure_cxmi(opened: OpenedRun, path: Path, test: EvaluationSet, meter: Meter) -> CorpusCxmi | None:
    """Return the CXMI of the test set; None if no document has several sentences."""
    documents = test.documents()
    if not any(len(document) > 1 for document in documents):
        return None
    if not path.exists():
        # Random context needs other documents.
        conditions = CONDITIONS if len(documents) > 1 else CONDITIONS[:1]
        request = CxmiRequest(
            run=opened.folder,
            source=test.source,
            target=test.reference,
            format=test.format,
            context=conditions,
        )
        scores = measure_corpus(opened, request, meter)
        sums: dict[str, dict[int, list[float]]] = {condition: {} for condition in conditions}
        number = 0  # of the document: ids may occur twice
        for sentence in scores.sentences:
            number += sentence.number == 0
            for condition, by_document in sums.items() if sentence.context else ():
                entry = by_document.setdefault(number, [0.0, 0])
                entry[0] += sentence.cxmi(condition)
                entry[1] += len(sentence.token_cxmi())
        write_text(path, json.dumps({"signature": scores.signature, "documents": sums}))
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        sums_of = {kind: [*sums.values()] for kind, sums in stored["documents"].items()}
        arrays = {kind: np.array(sums, np.float64).reshape(-1, 2) for kind, sums in sums_of.items()}
        return CorpusCxmi(str(stored["signature"]), arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CotextError(f"{path}: damaged ({error}); delete it to measure again") from None


def _decide(
    run: OpenedRun, weights: str, window: ContextWindow, settings: MeasurementSettings, title: str
) -> dict[str, Decisions]:
    decisions: dict[str, Decisions] = {}
    for path, suite in settings.suites.items():
        # Settings that change scores are part of the file name.
        decode = settings.request.decode
        scoring = {key: decode[key] for key in SCORING_SETTINGS if key in decode}
        changes = [f"{key}={scoring[key]}" for key in CHANGING_SCORES if key in scoring]
        if language_model := run.translator.plan.language_model:  # with a digest of its weights
            changes.append(f"language_model={language_model}")
        name = _digest(weights, __version__, *changes)
        stored = run.folder / FOLDER / f"{_digest(checksum(path))}-{name}.json"
        several = len(set(documents_of(suite.examples))) > 1
        controls = settings.request.controls and window.has_context and several
        # The name of a suite may come from its file, which may have been renamed since.
        if stored.exists() and (found := read_decisions(stored).get(suite.name)) is not None:
            decisions[suite.name] = found
            if found.readings is not None or not controls:
                continue
        opened = run.with_decode({**scoring, "first_pass": ""})
        meter = settings.new_meter(f"{suite.name}, {title}")
        meter.restart(sum(len(e.candidates) for e in suite.examples))
        rules = SuiteRules(controls=controls)
        report = run_suite(opened.translator, suite, rules, suite_recipe(opened), meter.advance)
        write_text(stored, json.dumps({suite.name: report.as_dict()}, ensure_ascii=False))
        decisions[suite.name] = read_decisions(stored)[suite.name]
    return decisions


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class ContextGain:
    """CXMI of a test set for one kind of context, in nats per token.

    `interval_95` comes from the bootstrap over documents; for one document it is infinite. `p`: p-value of a
    randomisation test, which flips the sign of the gain of each document. `p_foreign`, only for true context:
    p-value of the same test for the gain from true context minus the gain from random (foreign) context.
    """

    condition: str
    nats: float
    interval_95: tuple[float, float]
    p: float
    documents: int
    tokens: int
    p_foreign: float | None = None


def gains_of_seeds(
    cxmi_of_seeds: Sequence[CorpusCxmi | None], drawing: Resampling
) -> tuple[ContextGain, ...]:
    """Return the gains of a system: means over its seeds, with the largest p-value of its seeds."""
    available = [cxmi for cxmi in cxmi_of_seeds if cxmi is not None]
    if len(available) < len(cxmi_of_seeds):
        return ()
    of_seeds = [context_gains(cxmi, drawing) for cxmi in available]
    kinds = available[0].documents
    means = {kind: np.mean([cxmi.documents[kind] for cxmi in available], axis=0) for kind in kinds}
    gains = []
    for gain, *seeds in zip(context_gains(CorpusCxmi("", means), drawing), *of_seeds, strict=True):
        gain = replace(gain, p=_least_sure([(seed.nats, seed.p) for seed in seeds]))
        if gain.p_foreign is not None:
            pairs = [(each[0].nats - each[-1].nats, each[0].p_foreign or 1.0) for each in of_seeds]
            gain = replace(gain, p_foreign=_least_sure(pairs))
        gains.append(gain)
    return tuple(gains)


def _least_sure(seeds: Sequence[tuple[float, float]]) -> float:
    """Return the largest p-value of pairs (difference, p); 1 if the differences have different signs."""
    differences, p_values = zip(*seeds, strict=True)
    return max(p_values) if max(differences) < 0 or min(differences) > 0 else 1.0


def context_gains(cxmi: CorpusCxmi, drawing: Resampling) -> tuple[ContextGain, ...]:
    """Return the nats per token that each kind of context adds, with bootstrap intervals over documents."""
    foreign, p_foreign = cxmi.documents.get("random"), None
    if foreign is not None and len(foreign):
        changes = (cxmi.documents["true"] - foreign)[:, 0].tolist()
        p_foreign = flipped_sums(changes, drawing.samples, drawing.seed)
    gains = []
    for condition, sums in cxmi.documents.items():
        if not len(sums):
            continue
        draws = np.random.default_rng(drawing.seed)
        size = (min(drawing.samples, max(100, 20_000_000 // len(sums))), len(sums))
        drawn = sums[draws.integers(len(sums), size=size)].sum(axis=1)
        means = drawn[:, 0] / drawn[:, 1]
        gains.append(
            ContextGain(
                condition=condition,
                nats=float(sums[:, 0].sum() / sums[:, 1].sum()),
                interval_95=percentiles(means) if len(sums) > 1 else (-math.inf, math.inf),
                p=flipped_sums(sums[:, 0].tolist(), drawing.samples, drawing.seed),
                documents=len(sums),
                tokens=int(sums[:, 1].sum()),
                p_foreign=p_foreign if condition == "true" else None,
            )
        )
    return tuple(gains)
