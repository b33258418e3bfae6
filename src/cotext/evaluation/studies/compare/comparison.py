"""Comparison of systems: scores, contrastive accuracies, context use, tests against the first, papers.

A system is a run, or runs that differ only in their seeds. Values of a system are means over its runs. This
module computes values; `verdict` describes them in words, and pages and tables format them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotext.data.contrastive_suites import CONTROLLED, ContrastiveSuite
from cotext.evaluation.metrics.contrastive import Accuracy
from cotext.evaluation.metrics.tokenised import Words
from cotext.evaluation.statistics.seeds import Difference, Spread, compare_accuracies
from cotext.evaluation.statistics.seeds import corrected as corrected_differences
from cotext.evaluation.statistics.significance import SIGNIFICANT, Resampling, least_p
from cotext.evaluation.studies.compare.against_papers import (
    EvaluatedOn,
    PublishedComparison,
    compare_with_papers,
    languages_of,
    of_pair,
    of_untokenised,
    published_for,
)
from cotext.evaluation.studies.compare.measured import ContextGain, EvaluationSet, gains_of_seeds
from cotext.evaluation.studies.compare.quality import Quality, measure_quality
from cotext.evaluation.studies.compare.system import MeasuredSystem, runs_of
from cotext.evaluation.studies.contrastive.contrastive_rows import SAME_SENTENCE, AccuracyCell, AccuracyRow
from cotext.evaluation.studies.contrastive.decisions import (
    compare_decisions,
    documents_of_suites,
    of_other_sentences,
    pooled_aggregates,
    to_pool,
)
from cotext.evaluation.studies.contrastive.evidence import (
    Evidence,
    Group,
    corrected,
    groups_of,
    least_sure,
    weigh,
)
from cotext.runtime.version import __version__


@dataclass(frozen=True, slots=True)
class ContrastiveTest:
    """A test of contrastive accuracy against the first system, on one phenomenon and distance.

    A clue is the sentence that decides between the candidates. `first_sees`: whether the clue is also in the
    context window of the first system. Accuracies are in per cent of `total` examples, by seed. The test is
    over `documents`, and over seeds if there are several, corrected for all such tests of all systems
    (`tests`).
    """

    run: int
    phenomenon: str
    distance: str
    first_sees: bool
    first_by_seed: Spread
    by_seed: Spread
    documents: int
    total: int
    test: Difference
    tests: int = 1

    @property
    def first(self) -> float:
        return self.first_by_seed.mean

    @property
    def own(self) -> float:
        return self.by_seed.mean

    @property
    def too_few(self) -> bool:
        """Return whether there are too few documents for any significant difference."""
        return least_p(self.documents) * self.tests >= SIGNIFICANT


PHENOMENA: Final[Mapping[str, str]] = {
    "pronoun": "“it” is er, sie or es by the gender of the thing mentioned last",
    "register": "“you” is du or Sie by who is spoken to, told once at the beginning",
    "ellipsis": "“she did too” repeats in German the verb of an earlier sentence",
    "cohesion": "a name or profession with two renderings keeps the one chosen first: "
    "the clue is in the translation alone",
    "cataphora": "“it” announces a thing that only the next sentence names",
}
CHANCE_TOLERANCE_POINTS: Final = 3.0
NOT_LEARNED: Final = "not learned"
SOLVED_PERCENT: Final = 90.0


def accuracy_rows(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group], evidence: Sequence[Sequence[Evidence]]
) -> list[AccuracyRow]:
    """Return accuracies of all systems side by side, means over seeds; the controlled corpus first."""
    order = {name: number for number, name in enumerate(PHENOMENA)}
    by_title: dict[str, list[Group]] = {}
    for group in groups:
        of_title = by_title.setdefault(group.title, [])
        if not of_title or of_title[0].suite == group.suite:
            of_title.append(group)
    controlled = {
        title
        for title, groups_of_title in by_title.items()
        if groups_of_title[0].suite.startswith(CONTROLLED)
    }
    titles = sorted(
        by_title, key=lambda title: order.get(title, len(order)) if title in controlled else len(order)
    )
    return [_row(systems, group, evidence) for title in titles for group in by_title[title]]


def _row(
    systems: Sequence[MeasuredSystem], group: Group, evidence: Sequence[Sequence[Evidence]]
) -> AccuracyRow:
    cells, tested = [], []
    for system, of_system in zip(systems, evidence, strict=True):
        shares, total = system.right(group.suite), len(group.examples)
        accuracy = Accuracy(sum(shares[example.id] for example in group.examples), total, 0, 0.0)
        learned = system.not_learned < len(system.runs)
        evidence_here = [e for e in of_system if learned and e.group is group]
        tested += evidence_here
        in_window = system.first.window.contains(group.phenomenon, group.distance)
        significant = any(item.used for item in evidence_here)
        cells.append(
            AccuracyCell(accuracy.percent, *accuracy.interval_percent, total, in_window, learned, significant)
        )
    chance, exact = 100.0 * sum(group.chances) / len(group.examples), group.suite.startswith(CONTROLLED)
    words = _words(chance, group.distance, cells, tested, exact)
    return AccuracyRow(group.title, group.distance, chance, tuple(cells), words, exact)


def _words(
    chance: float, distance: str, cells: Sequence[AccuracyCell], tested: Sequence[Evidence], exact: bool
) -> str:
    """Return a short verdict on a row: a leak, a clue outside all windows, or the result of the tests."""
    seeing = [cell for cell in cells if cell.in_window]
    blind = [cell for cell in cells if not cell.in_window]
    # If chance is not exact, an accuracy above it is not a leak.
    if exact and any(abs(cell.percent - chance) > CHANCE_TOLERANCE_POINTS for cell in blind):
        return "leak? check the data"
    if not seeing:
        return "clue not in window"
    if distance == SAME_SENTENCE:
        if not exact:
            return ""
        if all(cell.learned and cell.percent > SOLVED_PERCENT for cell in seeing):
            return "needs no context"
        return "partly learned" if any(cell.learned and cell.low > chance for cell in seeing) else NOT_LEARNED
    if uses := sum(evidence.used is True for evidence in tested):
        return "context is used" if uses == len(tested) else "used by one" if uses == 1 else "used by some"
    if tested:
        return "too few documents" if any(evidence.too_few for evidence in tested) else "use not significant"
    return "" if all(cell.learned for cell in seeing) else NOT_LEARNED


def evidence_of(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group]
) -> tuple[tuple[Evidence, ...], ...]:
    """Return the evidence by system for groups with the clue in its context, corrected for all of them."""
    flat = []
    for number, system in enumerate(systems):
        for group in groups:
            readings = [run.decisions[group.suite].readings for run in system.runs]
            available = [item for item in readings if item is not None]
            if len(available) == len(readings) and _asks_context(system, group):
                flat.append((number, least_sure([weigh(group, item) for item in available])))
    numbered = zip([number for number, _ in flat], corrected([item for _, item in flat]), strict=True)
    by_system: list[list[Evidence]] = [[] for _ in systems]
    for number, item in numbered:
        by_system[number].append(item)
    return tuple(map(tuple, by_system))


def contrastive_tests(systems: Sequence[MeasuredSystem], groups: Sequence[Group]) -> list[ContrastiveTest]:
    """Test all systems against the first one, on groups with the clue in their context."""
    tests = []
    for number, system in enumerate(systems[1:], start=1):
        for group in groups:
            if not _asks_context(system, group):
                continue
            theirs, ours = (_decided(test, group) for test in (systems[0], system))
            tests.append(
                ContrastiveTest(
                    run=number,
                    phenomenon=group.title,
                    distance=group.distance,
                    first_sees=systems[0].first.window.contains(group.phenomenon, group.distance),
                    first_by_seed=_by_seed(theirs),
                    by_seed=_by_seed(ours),
                    documents=len(set(group.documents)),
                    total=len(group.examples),
                    test=compare_accuracies(theirs, ours, group.documents),
                )
            )
    differences = corrected_differences([test.test for test in tests])
    return [replace(test, test=d, tests=len(tests)) for test, d in zip(tests, differences, strict=True)]


def _asks_context(system: MeasuredSystem, group: Group) -> bool:
    return group.distance != SAME_SENTENCE and system.first.window.contains(group.phenomenon, group.distance)


def _decided(system: MeasuredSystem, group: Group) -> list[list[bool]]:
    """Return by seed whether each example of a group is decided right."""
    return [[run.decisions[group.suite].right[e.id] for e in group.examples] for run in system.runs]


def _by_seed(decided: Sequence[Sequence[bool]]) -> Spread:
    return Spread(tuple(100.0 * sum(row) / len(row) for row in decided))


@dataclass(frozen=True, slots=True)
class PooledAccuracy:
    """Accuracies of a system over several suites, in per cent, means over seeds; see `pooled_aggregates`.

    `test` compares `disc` with the first system, corrected over all systems; None for the first itself.
    """

    suites: tuple[str, ...]
    examples: int
    disc: float
    disc_avg: float
    test: Difference | None = None


def pooled_accuracies(
    systems: Sequence[MeasuredSystem], suites: Mapping[str, ContrastiveSuite]
) -> tuple[PooledAccuracy, ...]:
    """Return pooled accuracies by system; none if fewer than two suites have clues in other sentences."""
    pooled_suites = to_pool(suites)
    if not pooled_suites:
        return ()
    indices = {name: of_other_sentences(suite.examples) for name, suite in pooled_suites.items()}
    ids_of_suite = {
        name: [pooled_suites[name].examples[i].id for i in of_suite] for name, of_suite in indices.items()
    }
    numbers = zip(documents_of_suites(list(pooled_suites.values())), indices.values(), strict=True)
    documents = [of_suite[i] for of_suite, those in numbers for i in those]
    accuracies, decided = [], []
    for system in systems:
        shares = {name: system.right(name) for name in ids_of_suite}
        pooled = pooled_aggregates(
            {name: [shares[name][i] for i in ids] for name, ids in ids_of_suite.items()}
        )
        accuracies.append(
            PooledAccuracy(tuple(pooled_suites), len(documents), pooled["disc"], pooled["disc_avg"])
        )
        rights = [{name: run.decisions[name].right for name in ids_of_suite} for run in system.runs]
        decided.append(
            [[right[name][i] for name, ids in ids_of_suite.items() for i in ids] for right in rights]
        )
    tests = corrected_differences([compare_accuracies(decided[0], rows, documents) for rows in decided[1:]])
    return (
        accuracies[0],
        *(replace(accuracy, test=test) for accuracy, test in zip(accuracies[1:], tests, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class SeedFigure:
    """A value of a system by seed, the value of the first system, and their difference (None for the first).

    `group`: the distance of a contrastive accuracy.
    """

    name: str
    group: str
    by_seed: Spread
    first_by_seed: Spread
    against_first: Difference | None

    @property
    def lost_in_seeds(self) -> bool:
        """Return whether the seeds of one system differ as much as the systems do."""
        if self.against_first is None:
            return False
        deviations = [
            spread.deviation for spread in (self.by_seed, self.first_by_seed) if spread.deviation is not None
        ]
        return bool(deviations) and max(deviations) >= abs(self.against_first.difference)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Systems side by side; every sequence by system is in the order of `runs`."""

    runs: tuple[MeasuredSystem, ...]
    test: EvaluationSet | None
    quality: Quality
    rows: tuple[AccuracyRow, ...]
    contrastive_tests: tuple[ContrastiveTest, ...]
    pooled: tuple[PooledAccuracy, ...]  # by system: over all suites, if there are several
    evidence: tuple[tuple[Evidence, ...], ...]  # by system: for clues in its context, if controls were run
    gains: tuple[tuple[ContextGain, ...], ...]  # by system
    published: tuple[PublishedComparison, ...]
    notes: tuple[str, ...]

    @property
    def signature(self) -> str:
        """Return the signature of the tests of contrastive accuracy."""
        return self._signature(len(self.contrastive_tests))

    @property
    def pooled_signature(self) -> str:
        first = self.pooled[0]
        suites = f"suite:{'+'.join(first.suites)}|n:{first.examples}|clue:other-sentences"
        return f"{suites}|{self._signature(len(self.pooled) - 1)}"

    def _signature(self, tests: int) -> str:
        several = any(len(system.runs) > 1 for system in self.runs)
        return (
            f"test:{'flips+welch' if several else 'mcnemar'}|unit:document|sides:2"
            f"|correction:holm-{tests}{'' if several else '-mid-p'}"
            f"|interval:{'student' if several else 'bonett-price'}"
            f"|version:cotext-{__version__}"
        )

    def over_seeds(self, system: int) -> list[SeedFigure]:
        """Return the scores and accuracies of a system by seed, if it or the first one has several."""
        if len(self.runs[system].runs) == len(self.runs[0].runs) == 1:
            return []
        figures = [
            SeedFigure(score.score.title, "", score.by_seed, first.by_seed, score.against_first)
            for score, first in zip(self.quality.scores[system], self.quality.scores[0], strict=True)
        ]
        if system > 0:
            tests = [t for t in self.contrastive_tests if t.run == system]
            return figures + [
                SeedFigure(t.phenomenon, t.distance, t.by_seed, t.first_by_seed, t.test) for t in tests
            ]
        of_first = {(t.phenomenon, t.distance): t.first_by_seed for t in self.contrastive_tests}
        return figures + [SeedFigure(*group, spread, spread, None) for group, spread in of_first.items()]


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
    """Compare measured systems; the first is the baseline of all others.

    Raises:
        CotextError: translations do not match the references, or suites were decided by different rules.
    """
    every = runs_of(runs)
    if len(every) > 1 and every[0].decisions:  # raises if rules or examples differ
        compare_decisions({run.title: run.decisions for run in every}, every[0].title)
    drawing = resampling or Resampling()
    quality = Quality.unknown(len(runs))
    notes = _notes(runs, languages_of(runs, suites))
    if test is not None:
        quality = measure_quality(runs, test, protocols, target_language, words, drawing)
        if quality.documents < 2:
            notes.append("The test set is one document: differences in quality cannot be tested.")
        notes += _notes_on_words(quality)
    groups = [group for suite in suites.values() for group in groups_of(suite)]
    evidence = evidence_of(runs, groups)
    rows = accuracy_rows(runs, groups, evidence)
    plain = [[item.score for item in of_system] for of_system in quality.scores]
    data = EvaluatedOn(quality.documents, quality.sentences, suites)
    return RunComparison(
        runs=tuple(runs),
        test=test,
        quality=quality,
        rows=tuple(rows),
        contrastive_tests=tuple(contrastive_tests(runs, groups)),
        pooled=pooled_accuracies(runs, suites),
        evidence=evidence,
        gains=tuple(gains_of_seeds([run.use for run in system.runs], drawing) for system in runs),
        published=tuple(compare_with_papers(runs, plain, data)),
        notes=tuple(notes),
    )


def _notes(runs: Sequence[MeasuredSystem], pair: str) -> list[str]:
    notes = []
    data = {run.first.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data, which may explain differences.")
    elif "" in data:
        notes.append("For some runs, the training data are unknown.")
    if len({count for run in runs for count in run.updates}) > 1:
        notes.append("The runs were trained for different numbers of updates.")
    for run in runs:
        if run.first.recipe.name is None:
            notes.append(f"{run.title} is not one of the shipped recipes: no published value applies.")
        elif not (published := published_for(run.first.recipe)):
            notes.append(f"{run.title} is {run.first.recipe.title}: no published value applies.")
        elif not of_pair(published, pair):
            notes.append(f"{run.title} is {run.first.recipe.title}: no value is published for {pair}.")
        if run.not_learned:
            notes.append(
                f"{run.label}: on the development set, no checkpoint is better than the initial model, so "
                "the final model is the initial model."
            )
    return notes + _notes_on_seeds(runs)


def _notes_on_words(quality: Quality) -> list[str]:
    """Return notes on scores that expect tokenised text while runs write plain text."""
    titles = {
        score.score.title for scores in quality.scores for score in scores if of_untokenised(score.score)
    }
    return [
        f"{title} expects tokenised text, but runs write plain text: choose a tokenizer (--words)."
        for title in sorted(titles)
    ]


def _notes_on_seeds(runs: Sequence[MeasuredSystem]) -> list[str]:
    single = [run.title for run in runs if len(run.runs) == 1]
    if len(runs) == 1:
        return []
    if len(single) == len(runs):
        return ["Every system is a single training run: the tests do not cover the variance between seeds."]
    return [
        f"{title} is a single training run: compared with a system with several seeds, its variance between "
        "seeds is assumed to be equal."
        for title in single
    ]
