"""Measurements of one run: translations, contrastive decisions and CXMI, kept in the run folder.

    RUN/compared/<test set>-<model and decoding>.<format>    translations
    RUN/compared/<test set>-<model and decoding>.use.json    what context adds to the reference's probability
    RUN/compared/<suite>-<model>.json                        decisions and controls, in the form of
                                                             `cotext contrastive --controls --out`

Names hold digests of all that the content depends on; what is there is not made again, and an interrupted
translation goes on.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cotext.data.contrastive_suites import ContrastiveSuite, documents_of
from cotext.data.documents import ParallelDocument
from cotext.data.formats import detect_format, read_parallel, second_file
from cotext.data.formats.docids import find_side_file
from cotext.data.languages import Languages
from cotext.evaluation.requests import Condition, CxmiRequest, SuiteRules
from cotext.evaluation.statistics.significance import Resampling, flipped_sums, percentiles
from cotext.evaluation.statistics.sufficient_statistics import Floats
from cotext.evaluation.studies.compare.recipe import MatchedRecipe, recipe_of
from cotext.evaluation.studies.context.context_corpus import measure_corpus
from cotext.evaluation.studies.contrastive.contrastive import context_window_of, run_suite, suite_recipe
from cotext.evaluation.studies.contrastive.contrastive_rows import ContextWindow
from cotext.evaluation.studies.contrastive.decisions import Decisions, keep_decisions, read_decisions
from cotext.models.run_folder import noted_data
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import sealed_lines, unsealed
from cotext.runtime.locks import working_in
from cotext.runtime.progress import Meter
from cotext.runtime.version import __version__
from cotext.training.warm_start import read_account
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translate_file import translate_file

FOLDER: Final = "compared"
CONDITIONS: Final[Sequence[Condition]] = ("true", "random")  # kinds of context, each beside none
# Of decoding, what scores depend on.
CHANGING_SCORES: Final = ("before", "group_windows", "precision", "source_language", "target_language")
SCORING_SETTINGS: Final = ("max_source_tokens", *CHANGING_SCORES)
_DIGITS = 12  # of a digest: 48 bits


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The test set of a comparison; both sides may be in one file."""

    source: Path
    reference: Path
    format: str | None

    @property
    def digest(self) -> str:
        """Digest of the content of the files, with those that hold their document ids."""
        paths = [self.source, self.reference]
        sides = [find_side_file(path) for path in paths if self.kind == "docids"]
        parts = [checksum(path) for path in (*paths, *(side for side in sides if side is not None))]
        return _digest(self.kind, *parts)

    @property
    def kind(self) -> str:
        """The format of the source."""
        return self.format or detect_format(self.source)

    def documents(self) -> list[ParallelDocument]:
        """Source and reference, side by side."""
        second = second_file(self.source, self.reference)
        return list(read_parallel(self.source, second, self.format))


@dataclass(frozen=True, slots=True, eq=False)
class CorpusCxmi:
    """CXMI of a test set, by kind of context; sentences without context take no part.

    `documents` has a row for each document: the sum in nats, and the number of tokens.
    """

    signature: str
    documents: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run with its measurements; what was not asked for, or cannot be measured, is None or empty.

    A system whose model is not at hand has 0 parameters; `given`: a file of translations, and no more.
    `engine` is the name of the engine that runs it, if one does.
    `curve` has updates and the loss of current sentences on the development set, `context_curve` that of the
    context sentences of their windows, where they have any in the target. `first_loss` is the development
    loss before the first update, and that of the run which training started from, on the same sentences one
    by one. `is_start`: no checkpoint was better than the start, which the final model is.
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
    curve: tuple[tuple[int, float], ...] = ()
    context_curve: tuple[tuple[int, float], ...] = ()
    engine: str = ""
    data: str = ""
    use: CorpusCxmi | None = None
    given: bool = False
    first_loss: tuple[float, float] | None = None
    is_start: bool = False


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """The measurements to make of every run; `new_meter` shows the progress of a task that it names."""

    test: EvaluationSet | None
    suites: Mapping[Path, ContrastiveSuite]
    decode: Mapping[str, Any]
    device: str | None
    use: bool
    controls: bool
    new_meter: Callable[[str], Meter]


def measure_run(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    """Measure what has not been measured of a run yet.

    Raises:
        CotextError: no such run, a damaged model, a run folder that cannot be written to, a test set with a
            sentence over the limit, another process that measures the run.
    """
    with working_in(make_folder(path / FOLDER)):
        return _measure(path, title, settings)


def _measure(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    opened = open_run(path, settings.device, dict(settings.decode))
    loaded, window = opened.loaded, context_window_of(opened.translator)
    weights = checksum(opened.weights)
    hypothesis, use = None, None
    if settings.test is not None:
        kept = path / FOLDER / f"{settings.test.digest}-{_digest(opened.signature, weights)}"
        hypothesis = _translate(opened, kept, settings.test, settings.new_meter(f"translating, {title}"))
        if settings.use and window.has_context and opened.translator.plan.kind.token_nll is not None:
            meter = settings.new_meter(f"scoring with and without context, {title}")
            use = _use(opened.for_scoring(), kept.with_name(f"{kept.name}.use.json"), settings.test, meter)
    metrics = read_metrics(path)
    return MeasuredRun(
        path=path,
        title=title,
        recipe=recipe_of(loaded.config),
        languages=loaded.languages,
        window=window,
        parameters=loaded.parameters,
        updates=max([*loaded.updates, *(int(entry["update"]) for entry in metrics)], default=0),
        curve=_curve(metrics, "nll_current"),
        context_curve=_curve(metrics, "nll_context"),
        first_loss=_first_loss(path),
        is_start=bool(loaded.config.train.init) and loaded.updates == [0],
        signature=opened.signature,
        engine=loaded.engine,
        data=_data(path),
        hypothesis=hypothesis,
        decisions=_decide(opened, weights, window, settings, title),
        use=use,
    )


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that are whole; none if the run hasn't reported yet."""
    found: list[dict[str, Any]] = []
    for line in sealed_lines(run / "metrics.jsonl"):
        with suppress(ValueError):
            found.append(unsealed(line))
    return [entry for entry in found if entry.keys() >= {"kind", "update"}]


def _first_loss(run: Path) -> tuple[float, float] | None:
    """`StartLoss.instances_here` and `sentences_there` as training noted them."""
    with suppress(CotextError, KeyError, TypeError, ValueError):
        noted = read_account(run / "init.json")["loss"]
        return float(noted["instances_here"]), float(noted["sentences_there"])
    return None


def _curve(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[tuple[int, float], ...]:
    """A figure of all validations that have it, with their updates."""
    return tuple(
        (int(entry["update"]), float(entry[name]))
        for entry in metrics
        if entry["kind"] == "validation" and name in entry
    )


def _translate(opened: OpenedRun, kept: Path, test: EvaluationSet, meter: Meter) -> Path:
    out = kept.with_name(f"{kept.name}{test.source.suffix}")
    if not out.exists():
        translate_file(
            opened,
            test.source,
            out,
            format=test.format,
            on_start=meter.restart,
            on_sentences=meter.advance,
        )
    return out


def _use(opened: OpenedRun, path: Path, test: EvaluationSet, meter: Meter) -> CorpusCxmi | None:
    """CXMI of the test set; None where no document has a sentence beside another."""
    documents = test.documents()
    if not any(len(document) > 1 for document in documents):
        return None
    if not path.exists():
        # Another document's sentences are drawn from several.
        conditions = CONDITIONS if len(documents) > 1 else CONDITIONS[:1]
        request = CxmiRequest(
            run=opened.folder,
            source=test.source,
            target=test.reference,
            format=test.format,
            context=conditions,
        )
        found = measure_corpus(opened, request, meter.restart, meter.advance)
        sums: dict[str, dict[str, list[float]]] = {condition: {} for condition in conditions}
        for sentence in found.sentences:
            for condition, by_document in sums.items() if sentence.context else ():
                entry = by_document.setdefault(sentence.document, [0.0, 0])
                entry[0] += sentence.cxmi(condition)
                entry[1] += len(sentence.token_cxmi())
        content = {"signature": found.signature, "documents": sums}
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")
    kept = _read_json(path)
    by_condition = kept["documents"].items()
    return CorpusCxmi(
        kept["signature"],
        {condition: np.array(list(sums.values())).reshape(-1, 2) for condition, sums in by_condition},
    )


def _decide(
    run: OpenedRun, weights: str, window: ContextWindow, settings: MeasurementSettings, title: str
) -> dict[str, Decisions]:
    found: dict[str, Decisions] = {}
    for path, suite in settings.suites.items():
        # Of the settings, those of what scoring takes; those that change scores are part of the name.
        chosen = {key: settings.decode[key] for key in SCORING_SETTINGS if key in settings.decode}
        changes = [f"{key}={chosen[key]}" for key in CHANGING_SCORES if key in chosen]
        name = _digest(weights, __version__, *changes)
        kept = run.folder / FOLDER / f"{_digest(checksum(path))}-{name}.json"
        controls = settings.controls and window.has_context and len(set(documents_of(suite.examples))) > 1
        if kept.exists():
            found[suite.name] = read_decisions(kept)[suite.name]
            if found[suite.name].readings is not None or not controls:
                continue
        opened, meter = (
            run.with_decode({**chosen, "first_pass": ""}),
            settings.new_meter(f"{suite.name}, {title}"),
        )
        meter.restart(sum(len(e.candidates) for e in suite.examples))
        rules = SuiteRules(controls=controls)
        report = run_suite(opened.translator, suite, rules, suite_recipe(opened), meter.advance)
        found[suite.name] = keep_decisions(kept, suite.name, report)
    return found


def make_folder(folder: Path) -> Path:
    """The folder, made if it is not there, that keeps what is measured of a system."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CotextError(
            f"{folder}: cannot be made ({error.strerror or error}); what is measured is kept there"
        ) from None
    return folder


def _data(run: Path) -> str:
    """Which data the run notes that it was trained on: the digest of what it says of them, or nothing."""
    noted = noted_data(run)
    return _digest(json.dumps(noted["checksums"], sort_keys=True)) if noted else ""


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CotextError(f"{path}: damaged ({error}); delete it, and it is made again") from None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class ContextGain:
    """CXMI of a test set for one kind of context, in nats per token.

    `interval_95` and `p` are by drawing documents (percentiles; two-sided, against no gain). `p_foreign`, of
    true context where foreign context was measured too, is that of adding as much as sentences of other
    documents do, by flipping the signs of documents.
    """

    condition: str
    nats: float
    interval_95: tuple[float, float]
    p: float
    documents: int
    tokens: int
    p_foreign: float | None = None


def gains_of_seeds(uses: Sequence[CorpusCxmi | None], drawing: Resampling) -> tuple[ContextGain, ...]:
    """The gains of a system of one or several seeds: means over them, with the p of the least sure seed."""
    known = [use for use in uses if use is not None]
    if len(known) < len(uses):
        return ()
    of_seeds = [context_gains(use, drawing) for use in known]
    if len(of_seeds) == 1:
        return of_seeds[0]
    found = context_gains(_averaged(known), drawing)
    return tuple(
        replace(
            gain,
            p=max(each.p for each in seeds),
            p_foreign=max((each.p_foreign for each in seeds if each.p_foreign is not None), default=None),
        )
        for gain, seeds in zip(found, zip(*of_seeds, strict=True), strict=True)
    )


def _averaged(uses: Sequence[CorpusCxmi]) -> CorpusCxmi:
    """Of every document the mean over seeds; its tokens are the same for all."""
    kinds = uses[0].documents
    means = {kind: np.mean([use.documents[kind] for use in uses], axis=0) for kind in kinds}
    return CorpusCxmi(uses[0].signature, means)


def context_gains(use: CorpusCxmi | None, drawing: Resampling) -> tuple[ContextGain, ...]:
    """Nats a token that each kind of context adds, with intervals by drawing documents."""
    if use is None:
        return ()
    found = []
    for condition, sums in use.documents.items():
        if not len(sums):
            continue
        draws = np.random.default_rng(drawing.seed)
        size = (min(drawing.samples, max(100, 20_000_000 // len(sums))), len(sums))
        drawn = sums[draws.integers(len(sums), size=size)].sum(axis=1)
        means = drawn[:, 0] / drawn[:, 1]
        least = min(int(np.sum(means <= 0)), int(np.sum(means >= 0)))
        found.append(
            ContextGain(
                condition=condition,
                nats=float(sums[:, 0].sum() / sums[:, 1].sum()),
                interval_95=percentiles(means),
                p=min(1.0, 2 * (least + 1) / (len(means) + 1)),
                documents=len(sums),
                tokens=int(sums[:, 1].sum()),
                p_foreign=_p_foreign(use, drawing) if condition == "true" else None,
            )
        )
    return tuple(found)


def _p_foreign(use: CorpusCxmi, drawing: Resampling) -> float | None:
    true, foreign = use.documents["true"], use.documents.get("random", ())
    if not len(foreign):
        return None
    return flipped_sums((true - foreign)[:, 0].tolist(), drawing.samples, drawing.seed)
