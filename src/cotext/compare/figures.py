"""Runs side by side: scores, choices, use of context, differences from the first run, and what papers say.

Everything here is figures; `verdict` puts them into words, and pages and tables lay them out.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import cotext
from cotext.compare.measured import EvaluationSet, MeasuredRun, Use
from cotext.comparison import CONTROLLED, Row, SystemFigures, choice_rows, sees
from cotext.data.suites import ContrastiveExample, ContrastiveSuite
from cotext.errors import CotextError
from cotext.evaluation import Evaluation, evaluate_files, name_systems, read_aligned
from cotext.metrics.bleu import Score
from cotext.metrics.contrastive import DISTANCE_BUCKETS, Accuracy, distance_bucket
from cotext.metrics.decisions import compare_decisions
from cotext.metrics.profile import Bucket, by_length, by_position
from cotext.metrics.significance import (
    Comparison,
    McNemar,
    PairedTest,
    Resampling,
    holm,
    mcnemar,
)
from cotext.published import Published, published_values, tables_of

WITHIN: Final = "0"  # the distance of a clue in the sentence itself
SIGNIFICANT: Final = 0.05


@dataclass(frozen=True, slots=True)
class ScoreOf:
    """A score of a run with its 95 % interval, and how it compares with the first run's."""

    score: Score
    interval_95: tuple[float, float] | None
    beside_first: Comparison | None


@dataclass(frozen=True, slots=True)
class ChoiceTest:
    """Right choices of a run and the first one, on the examples of one kind and distance in the run's sight.

    `first_sees`: whether the first run may see the clue, too. Accuracies in per cent; `p_corrected` is mid-p
    after Holm, over all choice tests of all runs.
    """

    run: int
    phenomenon: str
    distance: str
    first_sees: bool
    chance: float
    exact_chance: bool
    first: float
    own: float
    test: McNemar
    p_corrected: float

    @property
    def significant(self) -> bool:
        """Whether the difference is more than luck."""
        return self.p_corrected < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class UseOf:
    """What context of a kind adds to the probability of the reference: nats a token, over a test set.

    `interval_95` and `p` are by drawing documents (percentiles; two-sided, against no gain).
    """

    condition: str
    nats: float
    interval_95: tuple[float, float]
    p: float
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class BesidePaper:
    """A published value of a run's recipe, and ours that comes closest.

    `first_published` and `first_measured` are those of the first run that has a row in the same table; None
    of that run itself.
    """

    run: int
    published: Published
    first_published: float | None
    measured: float | None
    first_measured: float | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Runs side by side; every sequence by run is in their order."""

    runs: tuple[MeasuredRun, ...]
    test: EvaluationSet | None
    documents: int
    sentences: int
    scores: tuple[tuple[ScoreOf, ...], ...]  # by run
    tests: Mapping[str, PairedTest]  # by protocol
    systems: tuple[SystemFigures, ...]
    rows: tuple[Row, ...]
    choices: tuple[ChoiceTest, ...]
    uses: tuple[tuple[UseOf, ...], ...]  # by run
    lengths: tuple[Bucket, ...]
    positions: tuple[Bucket, ...]
    beside: tuple[BesidePaper, ...]
    notes: tuple[str, ...]


def compare_runs(
    runs: Sequence[MeasuredRun],
    test: EvaluationSet | None,
    suites: Mapping[str, ContrastiveSuite],
    *,
    protocols: Sequence[str],
    target_language: str | None = None,
    resampling: Resampling | None = None,
) -> RunComparison:
    """Put measured runs side by side; the first is the one that all others are compared with.

    Raises:
        CotextError: translations that do not fit the references, suites decided by different rules.
    """
    _check_rules(runs)
    drawing = resampling or Resampling()
    scores: tuple[tuple[ScoreOf, ...], ...] = tuple(() for _ in runs)
    tests: Mapping[str, PairedTest] = {}
    lengths: list[Bucket] = []
    positions: list[Bucket] = []
    documents = sentences = 0
    notes = _notes(runs)
    if test is not None:
        named = name_systems([_hypothesis(run) for run in runs])
        aligned, [references], _ = read_aligned(named, [test.reference], None, test.format)
        translated = list(aligned.values())
        documents, sentences = len(references), sum(map(len, references))
        evaluation = _evaluate(runs, test, documents, protocols, target_language, drawing)
        scores, tests = _scores(runs, evaluation), evaluation.paired
        lengths = by_length(translated, references, protocols[:1], target_language=target_language)
        positions = by_position(translated, references, protocols[:1], target_language=target_language)
        if documents < 2:
            notes.append("The test set is one document: differences in quality cannot be tested.")
    systems = tuple(_system(run, suites, scores[place]) for place, run in enumerate(runs))
    rows = choice_rows(systems) if suites else []
    return RunComparison(
        runs=tuple(runs),
        test=test,
        documents=documents,
        sentences=sentences,
        scores=scores,
        tests=tests,
        systems=systems,
        rows=tuple(rows),
        choices=tuple(_choice_tests(runs, systems, suites)),
        uses=tuple(uses_of(run.use, drawing) for run in runs),
        lengths=tuple(lengths),
        positions=tuple(positions),
        beside=tuple(_beside(runs, scores, suites)),
        notes=tuple(notes),
    )


def _hypothesis(run: MeasuredRun) -> Any:
    if run.hypothesis is None:
        raise CotextError(f"{run.path}: has not translated the test set that others have")
    return run.hypothesis


def _notes(runs: Sequence[MeasuredRun]) -> list[str]:
    notes = []
    data = {run.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data: differences may come from there.")
    elif "" in data:
        notes.append("Not every run notes which data it was trained on.")
    if len({run.updates for run in runs}) > 1:
        notes.append("The runs were trained for different numbers of updates.")
    for run in runs:
        if run.recipe.name is None:
            notes.append(f"{run.title} is of no shipped recipe: no published value stands for it.")
        elif run.recipe.changes and not tables_of(run.recipe.name, " ".join(run.recipe.changes)):
            notes.append(f"{run.title} is {run.recipe.title}: no published value stands for that.")
    if len(runs) > 1:
        notes.append(
            "Every system is one training run: another seed would give other figures, and no test here knows "
            "by how much."
        )
    return notes


def _evaluate(
    runs: Sequence[MeasuredRun],
    test: EvaluationSet,
    documents: int,
    protocols: Sequence[str],
    target_language: str | None,
    drawing: Resampling,
) -> Evaluation:
    paths = [_hypothesis(run) for run in runs]
    testable = len(runs) > 1 and documents > 1
    return evaluate_files(
        paths,
        [test.reference],
        protocols=protocols,
        target_language=target_language,
        format=test.format,
        resampling=drawing if testable else None,
    )


def _scores(runs: Sequence[MeasuredRun], evaluation: Evaluation) -> tuple[tuple[ScoreOf, ...], ...]:
    """By run; names of an evaluation are in the order of the runs."""
    names = list(evaluation.scores)
    found = []
    for name in names:
        of_run = []
        for score in evaluation.scores[name]:
            test = evaluation.paired.get(score.protocol)
            beside = [
                c for c in (test.comparisons if test else ()) if (c.baseline, c.system) == (names[0], name)
            ]
            interval = test.intervals_95[name] if test else None
            of_run.append(ScoreOf(score, interval, beside[0] if beside else None))
        found.append(tuple(of_run))
    assert len(found) == len(runs)
    return tuple(found)


def _system(
    run: MeasuredRun, suites: Mapping[str, ContrastiveSuite], scores: Sequence[ScoreOf]
) -> SystemFigures:
    return SystemFigures(
        title=run.title,
        recipe=run.recipe.title,
        before=run.before,
        after=run.after,
        parameters=run.parameters,
        updates=run.updates,
        curve=run.curve,
        accuracies=_accuracies(run, suites),
        scores=tuple(each.score for each in scores),
        translations=(),
        signature=run.signature,
        target_before=run.target_before,
    )


def label(suite: ContrastiveSuite, phenomenon: str) -> str:
    """What a group of examples is called: the controlled corpus by phenomenon, others by suite as well."""
    if suite.name.startswith(CONTROLLED) or phenomenon in suite.name:
        return suite.name
    return f"{suite.name} {phenomenon}"


def _groups(suite: ContrastiveSuite) -> dict[tuple[str, str], list[ContrastiveExample]]:
    """Examples by phenomenon and distance bucket."""
    groups: dict[tuple[str, str], list[ContrastiveExample]] = defaultdict(list)
    for example in suite.examples:
        groups[example.phenomenon, distance_bucket(example.distance)].append(example)
    order = {bucket: rank for rank, bucket in enumerate(DISTANCE_BUCKETS)}
    return dict(sorted(groups.items(), key=lambda item: order[item[0][1]]))


def _accuracies(run: MeasuredRun, suites: Mapping[str, ContrastiveSuite]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, suite in suites.items():
        decided = run.decisions[name]
        for (phenomenon, distance), examples in _groups(suite).items():
            accuracy = Accuracy(
                correct=sum(decided.right[example.id] for example in examples),
                total=len(examples),
                ties=0,
                chance=_chance(examples) / 100,
            )
            entry = found.setdefault(
                label(suite, phenomenon), {"signature": decided.signature, "by_distance": {}}
            )
            entry["by_distance"][distance] = accuracy.as_dict()
    return found


def _chance(examples: Sequence[ContrastiveExample]) -> float:
    return 100.0 * sum(1 / len(example.candidates) for example in examples) / len(examples)


def _check_rules(runs: Sequence[MeasuredRun]) -> None:
    """Refuse decisions made by different rules, or on other examples."""
    if len(runs) > 1 and runs[0].decisions:
        compare_decisions({run.title: run.decisions for run in runs}, runs[0].title)


def _choice_tests(
    runs: Sequence[MeasuredRun], systems: Sequence[SystemFigures], suites: Mapping[str, ContrastiveSuite]
) -> list[ChoiceTest]:
    found = []
    for number in range(1, len(runs)):
        for name, suite in suites.items():
            first, own = (runs[place].decisions[name].right for place in (0, number))
            for (phenomenon, distance), examples in _groups(suite).items():
                kind = label(suite, phenomenon).removeprefix(CONTROLLED)
                if distance == WITHIN or not sees(systems[number], kind, distance):
                    continue
                theirs, ours = ([right[e.id] for e in examples] for right in (first, own))
                found.append(
                    ChoiceTest(
                        run=number,
                        phenomenon=kind,
                        distance=distance,
                        first_sees=sees(systems[0], kind, distance),
                        chance=_chance(examples),
                        exact_chance=suite.name.startswith(CONTROLLED),
                        first=100.0 * sum(theirs) / len(theirs),
                        own=100.0 * sum(ours) / len(ours),
                        test=mcnemar(theirs, ours),
                        p_corrected=1.0,
                    )
                )
    corrected = holm([each.test.p_mid for each in found])
    return [replace(each, p_corrected=p) for each, p in zip(found, corrected, strict=True)]


def uses_of(use: Use | None, drawing: Resampling) -> tuple[UseOf, ...]:
    """Nats a token that each kind of context adds, with intervals by drawing documents."""
    if use is None:
        return ()
    found = []
    for condition, documents in use.documents.items():
        if not documents:
            continue
        sums = np.array([(each.nats, each.tokens) for each in documents], dtype=np.float64)
        draws = np.random.default_rng(drawing.seed)
        size = (min(drawing.samples, max(100, 20_000_000 // len(sums))), len(sums))
        drawn = sums[draws.integers(len(sums), size=size)].sum(axis=1)
        means = drawn[:, 0] / drawn[:, 1]
        low, high = np.percentile(means, (2.5, 97.5))
        least = min(int(np.sum(means <= 0)), int(np.sum(means >= 0)))
        found.append(
            UseOf(
                condition=condition,
                nats=float(sums[:, 0].sum() / sums[:, 1].sum()),
                interval_95=(float(low), float(high)),
                p=min(1.0, 2 * (least + 1) / (len(means) + 1)),
                documents=len(sums),
                tokens=int(sums[:, 1].sum()),
            )
        )
    return tuple(found)


def _beside(
    runs: Sequence[MeasuredRun],
    scores: Sequence[Sequence[ScoreOf]],
    suites: Mapping[str, ContrastiveSuite],
) -> list[BesidePaper]:
    """Published values of all runs that are of a recipe, in the order of the papers' tables and columns."""
    of_run = [
        tables_of(run.recipe.name, " ".join(run.recipe.changes)) if run.recipe.name else {} for run in runs
    ]
    found = []
    for number, tables in enumerate(of_run):
        for place, values in tables.items():
            first_run = next(run for run, other in enumerate(of_run) if place in other)
            # Of several rows, as under other training data, the first one stands for the run.
            theirs = {value.column: value for value in reversed(of_run[first_run][place])}
            for value in values:
                first = theirs[value.column] if number != first_run else None
                found.append(
                    BesidePaper(
                        run=number,
                        published=value,
                        first_published=None if first is None else first.value,
                        measured=_measured(value, runs[number], scores[number], suites),
                        first_measured=None
                        if first is None
                        else _measured(value, runs[first_run], scores[first_run], suites),
                    )
                )
    order = {place: rank for rank, place in enumerate(dict.fromkeys(v.place for v in published_values()))}
    return sorted(found, key=lambda each: (order[each.published.place], each.run))


def _measured(
    value: Published, run: MeasuredRun, scores: Sequence[ScoreOf], suites: Mapping[str, ContrastiveSuite]
) -> float | None:
    """Our figure that comes closest to a published one, if any: on another corpus, as a rule."""
    if value.measure.here != "accuracy":
        return next((s.score.value for s in scores if s.score.protocol == value.measure.here), None)
    decided = [
        run.decisions[name].right[example.id]
        for name, suite in suites.items()
        for example in suite.examples
        if _is_of(example, value)
    ]
    return 100.0 * sum(decided) / len(decided) if decided else None


def _is_of(example: ContrastiveExample, value: Published) -> bool:
    if value.phenomenon and example.phenomenon != value.phenomenon:
        return False
    bucket = distance_bucket(example.distance)
    if value.distance == "context" and bucket in (WITHIN, "ahead", "unknown"):
        return False
    if value.distance not in ("", "context", bucket):
        return False
    tag, _, wanted = value.tag.partition("=")
    return not value.tag or example.tags.get(tag) == wanted


def signature(comparison: RunComparison) -> str:
    """How differences in choices were tested."""
    return (
        f"test:mcnemar|sides:2|correction:holm-{len(comparison.choices)}-mid-p|interval:bonett-price"
        f"|version:cotext-{cotext.__version__}"
    )
