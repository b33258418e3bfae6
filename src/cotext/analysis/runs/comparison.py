"""Comparison of runs: scores, contrastive accuracies, use of context, tests against the first run, papers.

Everything here is figures; `verdict` puts them into words, and pages and tables lay them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cotext.analysis.contrastive_rows import (
    LEAK,
    OUTSIDE_WINDOW,
    SAME_SENTENCE,
    Row,
    SystemFigures,
    accuracy_rows,
)
from cotext.analysis.runs.against_papers import (
    EvaluatedOn,
    PublishedComparison,
    compare_with_papers,
    languages_of,
    of_pair,
    published_for,
)
from cotext.analysis.runs.gains import ContextGain, context_gains
from cotext.analysis.runs.measured import EvaluationSet, MeasuredRun
from cotext.analysis.runs.pooled import PooledAccuracy, pooled_accuracies
from cotext.data.contrastive_suites import CONTROLLED, ContrastiveSuite
from cotext.metrics.bleu import Score
from cotext.metrics.contrastive import Accuracy
from cotext.metrics.decisions import compare_decisions
from cotext.metrics.evaluate_files import Evaluation, evaluate_files, name_systems, read_aligned
from cotext.metrics.evidence import Evidence, Group, corrected, groups_of, weigh
from cotext.metrics.flips import SIGNIFICANT, least_p, mcnemar_by_document
from cotext.metrics.profile import Bucket, by_length, by_position
from cotext.metrics.significance import McNemar, PairedTest, Resampling, SystemDifference, holm
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__


@dataclass(frozen=True, slots=True)
class TestedScore:
    """A score of a run with its 95 % interval, and its difference from the first run's."""

    score: Score
    interval_95: tuple[float, float] | None
    against_first: SystemDifference | None

    @property
    def differs(self) -> bool:
        """Whether it differs significantly from the first run's."""
        return self.against_first is not None and self.against_first.p_corrected < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class ContrastiveTest:
    """A test of contrastive accuracy against the first run, on a phenomenon and distance in the run's window.

    `first_sees`: whether the first run may see the clue, too. Accuracies in per cent; the test is over
    documents, and `p_corrected` is mid-p after Holm, over all such tests of all runs, which are `tests`.
    """

    run: int
    phenomenon: str
    distance: str
    first_sees: bool
    first: float
    own: float
    test: McNemar
    p_corrected: float
    tests: int = 1

    @property
    def significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p_corrected < SIGNIFICANT

    @property
    def too_few(self) -> bool:
        """Whether so few documents could show no difference, however large."""
        return least_p(self.test.documents) * self.tests >= SIGNIFICANT


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Runs side by side; every sequence by run is in their order."""

    runs: tuple[MeasuredRun, ...]
    test: EvaluationSet | None
    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]  # by run
    tests: Mapping[str, PairedTest]  # by protocol
    systems: tuple[SystemFigures, ...]
    rows: tuple[Row, ...]
    contrastive_tests: tuple[ContrastiveTest, ...]
    pooled: tuple[PooledAccuracy, ...]  # by run: over all suites, where there are several
    evidence: tuple[tuple[Evidence, ...], ...]  # by run: of clues in its context, where controls were run
    gains: tuple[tuple[ContextGain, ...], ...]  # by run
    lengths: tuple[Bucket, ...]
    positions: tuple[Bucket, ...]
    published: tuple[PublishedComparison, ...]
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
    scores: tuple[tuple[TestedScore, ...], ...] = tuple(() for _ in runs)
    tests: Mapping[str, PairedTest] = {}
    lengths: list[Bucket] = []
    positions: list[Bucket] = []
    documents = sentences = 0
    notes = _notes(runs, languages_of(runs, suites))
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
    groups = [group for suite in suites.values() for group in groups_of(suite)]
    systems = tuple(_system(run, groups, scores[index]) for index, run in enumerate(runs))
    evidence = _evidence(runs, groups)
    rows = _with_words(accuracy_rows(systems), evidence) if suites else []
    plain = [[each.score for each in of_run] for of_run in scores]
    return RunComparison(
        runs=tuple(runs),
        test=test,
        documents=documents,
        sentences=sentences,
        scores=scores,
        tests=tests,
        systems=systems,
        rows=tuple(rows),
        contrastive_tests=tuple(_contrastive_tests(runs, groups)),
        pooled=pooled_accuracies(runs, suites),
        evidence=evidence,
        gains=tuple(context_gains(run.use, drawing) for run in runs),
        lengths=tuple(lengths),
        positions=tuple(positions),
        published=tuple(compare_with_papers(runs, plain, EvaluatedOn(documents, sentences, suites))),
        notes=tuple(notes),
    )


def _hypothesis(run: MeasuredRun) -> Any:
    if run.hypothesis is None:
        raise CotextError(f"{run.path}: has not translated the test set that others have")
    return run.hypothesis


def _notes(runs: Sequence[MeasuredRun], pair: str) -> list[str]:
    notes = []
    data = {run.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data, which may explain differences.")
    elif "" in data:
        notes.append("For some runs it is not known which data they were trained on.")
    if len({run.updates for run in runs}) > 1:
        notes.append("The runs were trained for different numbers of updates.")
    for run in runs:
        if run.recipe.name is None:
            notes.append(f"{run.title} is not one of the shipped recipes: no published value applies.")
        elif not (published := published_for(run.recipe)):
            notes.append(f"{run.title} is {run.recipe.title}: no published value applies.")
        elif not of_pair(published, pair):
            notes.append(f"{run.title} is {run.recipe.title}: no value is published for {pair}.")
    if len(runs) > 1:
        notes.append(
            "Every system is a single training run: the tests do not cover the variance between seeds."
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


def _scores(runs: Sequence[MeasuredRun], evaluation: Evaluation) -> tuple[tuple[TestedScore, ...], ...]:
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
            of_run.append(TestedScore(score, interval, beside[0] if beside else None))
        found.append(tuple(of_run))
    assert len(found) == len(runs)
    return tuple(found)


def _system(run: MeasuredRun, groups: Sequence[Group], scores: Sequence[TestedScore]) -> SystemFigures:
    return SystemFigures(
        title=run.title,
        recipe=run.recipe.title,
        before=run.window.before,
        after=run.window.after,
        parameters=run.parameters,
        updates=run.updates,
        curve=run.curve,
        accuracies=_accuracies(run, groups),
        scores=tuple(each.score for each in scores),
        translations=(),
        signature=run.signature,
        target_before=run.window.target_before,
    )


def _accuracies(run: MeasuredRun, groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        decided = run.decisions[group.suite]
        right = [decided.right[example.id] for example in group.examples]
        accuracy = Accuracy(
            correct=sum(right),
            total=len(right),
            ties=0,
            chance=sum(group.chances) / len(right),
        )
        name = f"{CONTROLLED if group.suite.startswith(CONTROLLED) else ''}{group.title}"
        entry = found.setdefault(name, {"signature": decided.signature, "by_distance": {}})
        entry["by_distance"][group.distance] = accuracy.as_dict()
    return found


def _evidence(runs: Sequence[MeasuredRun], groups: Sequence[Group]) -> tuple[tuple[Evidence, ...], ...]:
    """By run, of the groups whose clue lies in context that it may see; corrected for all of them."""
    flat = []
    for number, run in enumerate(runs):
        for group in groups:
            readings = run.decisions[group.suite].readings
            if readings is not None and _asks_context(run, group):
                flat.append((number, weigh(group, readings)))
    found = zip([number for number, _ in flat], corrected([each for _, each in flat]), strict=True)
    by_run: list[list[Evidence]] = [[] for _ in runs]
    for number, each in found:
        by_run[number].append(each)
    return tuple(map(tuple, by_run))


def _asks_context(run: MeasuredRun, group: Group) -> bool:
    return group.distance != SAME_SENTENCE and run.window.contains(group.phenomenon, group.distance)


def _with_words(rows: Sequence[Row], evidence: Sequence[Sequence[Evidence]]) -> list[Row]:
    """Rows whose words and marks say where context is shown to be used."""
    found = []
    for row in rows:
        of_row = [
            next(
                (e for e in of_run if (e.group.title, e.group.distance) == (row.phenomenon, row.distance)),
                None,
            )
            for of_run in evidence
        ]
        used = [each is not None and each.used is True for each in of_row]
        cells = tuple(replace(cell, shown=shown) for cell, shown in zip(row.cells, used, strict=True))
        words = _words([each for each in of_row if each is not None])
        if row.distance == SAME_SENTENCE or row.verdict in (LEAK, OUTSIDE_WINDOW):
            words = row.verdict
        found.append(replace(row, cells=cells, verdict=words))
    return found


def _words(asked: Sequence[Evidence]) -> str:
    used = sum(each.used is True for each in asked)
    if used:
        return "context is used" if used == len(asked) else "used by one" if used == 1 else "used by some"
    return (
        "too few documents" if any(each.too_few for each in asked) else "use not significant" if asked else ""
    )


def _check_rules(runs: Sequence[MeasuredRun]) -> None:
    """Refuse decisions made by different rules, or on other examples."""
    if len(runs) > 1 and runs[0].decisions:
        compare_decisions({run.title: run.decisions for run in runs}, runs[0].title)


def _contrastive_tests(runs: Sequence[MeasuredRun], groups: Sequence[Group]) -> list[ContrastiveTest]:
    found = []
    for number, run in enumerate(runs[1:], start=1):
        for group in groups:
            if not _asks_context(run, group):
                continue
            theirs, ours = (
                [each.decisions[group.suite].right[e.id] for e in group.examples] for each in (runs[0], run)
            )
            found.append(
                ContrastiveTest(
                    run=number,
                    phenomenon=group.title,
                    distance=group.distance,
                    first_sees=runs[0].window.contains(group.phenomenon, group.distance),
                    first=100.0 * sum(theirs) / len(theirs),
                    own=100.0 * sum(ours) / len(ours),
                    test=mcnemar_by_document(theirs, ours, group.documents),
                    p_corrected=1.0,
                )
            )
    p_values = holm([each.test.p_mid for each in found])
    return [replace(each, p_corrected=p, tests=len(found)) for each, p in zip(found, p_values, strict=True)]


def signature(comparison: RunComparison) -> str:
    """The signature of tests of contrastive accuracy."""
    return (
        f"test:mcnemar|unit:document|sides:2|correction:holm-{len(comparison.contrastive_tests)}-mid-p"
        f"|interval:bonett-price"
        f"|version:cotext-{__version__}"
    )
