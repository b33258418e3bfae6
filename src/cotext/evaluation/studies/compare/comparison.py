"""Comparison of systems: scores, contrastive accuracies, use of context, tests against the first, papers.

A system is a run, or runs that differ in their seeds alone; its figures are means over them. Everything here
is figures; `verdict` puts them into words, and pages and tables lay them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.evaluation.metrics.profile import Bucket
from cotext.evaluation.metrics.tokenised import Words
from cotext.evaluation.statistics.seeds import Difference, ScoreTest, Spread
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.against_papers import (
    EvaluatedOn,
    PublishedComparison,
    compare_with_papers,
    languages_of,
    of_pair,
    of_untokenised,
    published_for,
)
from cotext.evaluation.studies.compare.choices import (
    ContrastiveTest,
    accuracies,
    contrastive_signature,
    contrastive_tests,
    evidence_of,
)
from cotext.evaluation.studies.compare.gains import ContextGain, gains_of_seeds
from cotext.evaluation.studies.compare.measured import EvaluationSet
from cotext.evaluation.studies.compare.pooled import PooledAccuracy, pooled_accuracies
from cotext.evaluation.studies.compare.quality import Quality, TestedScore, measure_quality
from cotext.evaluation.studies.compare.system import MeasuredSystem, runs_of
from cotext.evaluation.studies.contrastive.contrastive_rows import (
    LEAK,
    NOT_LEARNED,
    OUTSIDE_WINDOW,
    SAME_SENTENCE,
    Row,
    SystemFigures,
    accuracy_rows,
)
from cotext.evaluation.studies.contrastive.decisions import compare_decisions
from cotext.evaluation.studies.contrastive.evidence import Evidence, Group, groups_of


@dataclass(frozen=True, slots=True)
class SeedFigure:
    """A figure of a system by seed, that of the first system, and their difference; None of the first itself.

    `group`: the distance of a contrastive accuracy.
    """

    name: str
    group: str
    by_seed: Spread
    first_by_seed: Spread
    against_first: Difference | None

    @property
    def lost_in_seeds(self) -> bool:
        """Whether the seeds of one system differ as much as the systems do."""
        if self.against_first is None:
            return False
        known = [each.deviation for each in (self.by_seed, self.first_by_seed) if each.deviation is not None]
        return bool(known) and max(known) >= abs(self.against_first.difference)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Systems side by side; every sequence by system is in the order of `runs`."""

    runs: tuple[MeasuredSystem, ...]
    test: EvaluationSet | None
    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]  # by system
    tests: Mapping[str, ScoreTest]  # by protocol
    systems: tuple[SystemFigures, ...]
    rows: tuple[Row, ...]
    contrastive_tests: tuple[ContrastiveTest, ...]
    pooled: tuple[PooledAccuracy, ...]  # by system: over all suites, where there are several
    evidence: tuple[tuple[Evidence, ...], ...]  # by system: of clues in its context, where controls were run
    gains: tuple[tuple[ContextGain, ...], ...]  # by system
    lengths: tuple[Bucket, ...]
    positions: tuple[Bucket, ...]
    published: tuple[PublishedComparison, ...]
    notes: tuple[str, ...]

    @property
    def signature(self) -> str:
        """The signature of the tests of contrastive accuracy."""
        return contrastive_signature(self.runs, len(self.contrastive_tests))

    def over_seeds(self, system: int) -> list[SeedFigure]:
        """The figures of a system by seed, where it or the first one has several: scores, then accuracies."""
        if len(self.runs[system].runs) == len(self.runs[0].runs) == 1:
            return []
        found = [
            SeedFigure(own.score.title, "", own.by_seed, first.by_seed, own.against_first)
            for own, first in zip(self.scores[system], self.scores[0], strict=True)
        ]
        if system > 0:
            tests = [t for t in self.contrastive_tests if t.run == system]
            return found + [
                SeedFigure(t.phenomenon, t.distance, t.by_seed, t.first_by_seed, t.test) for t in tests
            ]
        of_first = {(t.phenomenon, t.distance): t.first_by_seed for t in self.contrastive_tests}
        return found + [SeedFigure(*group, each, each, None) for group, each in of_first.items()]


def compare_runs(
    runs: Sequence[MeasuredSystem],
    test: EvaluationSet | None,
    suites: Mapping[str, ContrastiveSuite],
    *,
    protocols: Sequence[str],
    target_language: str | None = None,
    words: Words | None = None,
    resampling: Resampling | None = None,
) -> RunComparison:
    """Put measured systems side by side; the first is the one that all others are compared with.

    Raises:
        CotextError: translations that do not fit the references, suites decided by different rules.
    """
    _check_rules(runs)
    drawing = resampling or Resampling()
    quality = Quality.unknown(len(runs))
    notes = _notes(runs, languages_of(runs, suites))
    if test is not None:
        quality = measure_quality(runs, test, protocols, target_language, words, drawing)
        if quality.documents < 2:
            notes.append("The test set is one document: differences in quality cannot be tested.")
        notes += _notes_on_words(runs, quality)
    groups = [group for suite in suites.values() for group in groups_of(suite)]
    systems = tuple(_system(run, groups, quality.scores[index]) for index, run in enumerate(runs))
    evidence = evidence_of(runs, groups)
    rows = _with_words(accuracy_rows(systems), evidence) if suites else []
    plain = [[each.score for each in of_system] for of_system in quality.scores]
    here = EvaluatedOn(quality.documents, quality.sentences, suites)
    return RunComparison(
        runs=tuple(runs),
        test=test,
        documents=quality.documents,
        sentences=quality.sentences,
        scores=quality.scores,
        tests=quality.tests,
        systems=systems,
        rows=tuple(rows),
        contrastive_tests=tuple(contrastive_tests(runs, groups)),
        pooled=pooled_accuracies(runs, suites),
        evidence=evidence,
        gains=tuple(gains_of_seeds([run.use for run in system.runs], drawing) for system in runs),
        lengths=quality.lengths,
        positions=quality.positions,
        published=tuple(compare_with_papers(runs, plain, here)),
        notes=tuple(notes),
    )


def _notes(runs: Sequence[MeasuredSystem], pair: str) -> list[str]:
    notes = []
    data = {run.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data, which may explain differences.")
    elif "" in data:
        notes.append("For some runs it is not known which data they were trained on.")
    if len({count for run in runs for count in run.updates if run.has_model}) > 1:
        notes.append("The runs were trained for different numbers of updates.")
    for run in runs:
        if run.recipe.name is None:
            notes.append(f"{run.title} is not one of the shipped recipes: no published value applies.")
        elif not (published := published_for(run.recipe)):
            notes.append(f"{run.title} is {run.recipe.title}: no published value applies.")
        elif not of_pair(published, pair):
            notes.append(f"{run.title} is {run.recipe.title}: no value is published for {pair}.")
        if run.not_learned:
            notes.append(
                f"{run.label}: on the development set, no checkpoint is better than the start, which the "
                "final model is."
            )
        if run.runs[0].engine:
            notes.append(f"{run.title} is an engine, which shows no attention; the run that it is of does.")
    return notes + _notes_on_seeds(runs)


def _notes_on_words(runs: Sequence[MeasuredSystem], quality: Quality) -> list[str]:
    """Scores that take what runs write for tokenised text."""
    titles = {
        each.score.title
        for run, scores in zip(runs, quality.scores, strict=True)
        for each in scores
        if of_untokenised(run, each.score)
    }
    return [
        f"{title} takes text for tokenised, and what runs write is not: choose a tokenizer's words (--words)."
        for title in sorted(titles)
    ]


def _notes_on_seeds(runs: Sequence[MeasuredSystem]) -> list[str]:
    single = [run.title for run in runs if len(run.runs) == 1]
    if len(runs) == 1:
        return []
    if len(single) == len(runs):
        return ["Every system is a single training run: the tests do not cover the variance between seeds."]
    return [
        f"{title} is a single training run: compared with a system of several seeds, it is taken to vary as "
        "much between seeds as that one."
        for title in single
    ]


def _system(run: MeasuredSystem, groups: Sequence[Group], scores: Sequence[TestedScore]) -> SystemFigures:
    return SystemFigures(
        title=run.label,
        recipe=run.recipe.title,
        before=run.window.before,
        after=run.window.after,
        parameters=run.parameters,
        updates=run.updates[1],
        curve=run.curve,
        accuracies=accuracies(run, groups),
        scores=tuple(each.score for each in scores),
        translations=(),
        signature=run.runs[0].signature,
        target_before=run.window.target_before,
        context_curve=run.context_curve,
        learned=run.not_learned < len(run.runs),
    )


def _with_words(rows: Sequence[Row], evidence: Sequence[Sequence[Evidence]]) -> list[Row]:
    """Rows whose words and marks say where context is shown to be used."""
    found = []
    for row in rows:
        of_row = [
            next(
                (e for e in of_run if (e.group.title, e.group.distance) == (row.phenomenon, row.distance)),
                None,
            )
            if cell.learned
            else None
            for of_run, cell in zip(evidence, row.cells, strict=True)
        ]
        used = [each is not None and each.used is True for each in of_row]
        cells = tuple(replace(cell, shown=shown) for cell, shown in zip(row.cells, used, strict=True))
        words = _words([each for each in of_row if each is not None])
        if not words and any(cell.in_window and not cell.learned for cell in row.cells):
            words = NOT_LEARNED
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


def _check_rules(systems: Sequence[MeasuredSystem]) -> None:
    """Refuse decisions made by different rules, or on other examples."""
    runs = runs_of(systems)
    if len(runs) > 1 and runs[0].decisions:
        compare_decisions({run.title: run.decisions for run in runs}, runs[0].title)
