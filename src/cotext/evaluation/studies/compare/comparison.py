"""Comparison of systems: scores, contrastive accuracies, use of context, tests against the first, papers.

A system is a run, or runs that differ in their seeds alone; its figures are means over them. Everything here
is figures; `verdict` puts them into words, and pages and tables lay them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotext.data.contrastive_suites import CONTROLLED, ContrastiveSuite
from cotext.evaluation.metrics.contrastive import Accuracy
from cotext.evaluation.metrics.profile import Bucket
from cotext.evaluation.metrics.tokenised import Words
from cotext.evaluation.statistics.seeds import Difference, ScoreTest, Spread, compare_accuracies
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
from cotext.evaluation.studies.compare.quality import Quality, TestedScore, measure_quality
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
    """A test of contrastive accuracy against the first system, on a phenomenon and distance in the window.

    `first_sees`: whether the first system may see the clue, too. Accuracies in per cent, of `total` examples,
    by seed; the test is over `documents`, and over seeds where there are several, corrected over all such
    tests of all systems, which are `tests`.
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
        """The accuracy of the first system."""
        return self.first_by_seed.mean

    @property
    def own(self) -> float:
        """The accuracy of the system."""
        return self.by_seed.mean

    @property
    def p_corrected(self) -> float:
        """After Holm."""
        return self.test.p_corrected

    @property
    def significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p_corrected < SIGNIFICANT

    @property
    def too_few(self) -> bool:
        """Whether so few documents could show no difference, however large."""
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
    """Accuracies of all systems side by side, those of the controlled corpus first; means over seeds."""
    order = {name: number for number, name in enumerate(PHENOMENA)}
    by_title: dict[str, list[Group]] = {}
    for group in groups:
        of_title = by_title.setdefault(group.title, [])
        if not of_title or of_title[0].suite == group.suite:
            of_title.append(group)
    controlled = {title for title, each in by_title.items() if each[0].suite.startswith(CONTROLLED)}
    titles = sorted(
        by_title, key=lambda title: order.get(title, len(order)) if title in controlled else len(order)
    )
    return [_row(systems, group, evidence) for title in titles for group in by_title[title]]


def _row(
    systems: Sequence[MeasuredSystem], group: Group, evidence: Sequence[Sequence[Evidence]]
) -> AccuracyRow:
    cells, asked = [], []
    for system, of_system in zip(systems, evidence, strict=True):
        shares, total = system.right(group.suite), len(group.examples)
        accuracy = Accuracy(sum(shares[example.id] for example in group.examples), total, 0, 0.0)
        learned = system.not_learned < len(system.runs)
        found = [e for e in of_system if learned and e.group is group]
        asked += found
        in_window = system.first.window.contains(group.phenomenon, group.distance)
        shown = any(each.used for each in found)
        cells.append(
            AccuracyCell(accuracy.percent, *accuracy.interval_percent, total, in_window, learned, shown)
        )
    chance, exact = 100.0 * sum(group.chances) / len(group.examples), group.suite.startswith(CONTROLLED)
    words = _words(chance, group.distance, cells, asked, exact)
    return AccuracyRow(group.title, group.distance, chance, tuple(cells), words, exact)


def _words(
    chance: float, distance: str, cells: Sequence[AccuracyCell], asked: Sequence[Evidence], exact: bool
) -> str:
    """A few words on a row: a leak, a clue that no system sees, or what the tests say of context."""
    seeing = [cell for cell in cells if cell.in_window]
    blind = [cell for cell in cells if not cell.in_window]
    # Where chance is not exact, being above it tells nothing.
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
    if used := sum(each.used is True for each in asked):
        return "context is used" if used == len(asked) else "used by one" if used == 1 else "used by some"
    if asked:
        return "too few documents" if any(each.too_few for each in asked) else "use not significant"
    return "" if all(cell.learned for cell in seeing) else NOT_LEARNED


def evidence_of(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group]
) -> tuple[tuple[Evidence, ...], ...]:
    """By system, of the groups whose clue lies in context that it may see; corrected for all of them."""
    flat = []
    for number, system in enumerate(systems):
        for group in groups:
            readings = [run.decisions[group.suite].readings for run in system.runs]
            known = [each for each in readings if each is not None]
            if len(known) == len(readings) and _asks_context(system, group):
                flat.append((number, least_sure([weigh(group, each) for each in known])))
    found = zip([number for number, _ in flat], corrected([each for _, each in flat]), strict=True)
    by_system: list[list[Evidence]] = [[] for _ in systems]
    for number, each in found:
        by_system[number].append(each)
    return tuple(map(tuple, by_system))


def contrastive_tests(systems: Sequence[MeasuredSystem], groups: Sequence[Group]) -> list[ContrastiveTest]:
    """Tests of all systems but the first against it, where the clue lies in context that they may see."""
    found = []
    for number, system in enumerate(systems[1:], start=1):
        for group in groups:
            if not _asks_context(system, group):
                continue
            theirs, ours = (_decided(each, group) for each in (systems[0], system))
            found.append(
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
    differences = corrected_differences([each.test for each in found])
    return [replace(each, test=d, tests=len(found)) for each, d in zip(found, differences, strict=True)]


def _asks_context(system: MeasuredSystem, group: Group) -> bool:
    return group.distance != SAME_SENTENCE and system.first.window.contains(group.phenomenon, group.distance)


def _decided(system: MeasuredSystem, group: Group) -> list[list[bool]]:
    """By seed, whether each example of a group is decided right."""
    return [[run.decisions[group.suite].right[e.id] for e in group.examples] for run in system.runs]


def _by_seed(decided: Sequence[Sequence[bool]]) -> Spread:
    return Spread(tuple(100.0 * sum(row) / len(row) for row in decided))


@dataclass(frozen=True, slots=True)
class PooledAccuracy:
    """Accuracies of a system over several suites, in per cent, means over seeds; see `pooled_aggregates`.

    `test` is of `disc` against the first system, corrected over all systems; None of the first itself.
    """

    suites: tuple[str, ...]
    examples: int
    disc: float
    disc_avg: float
    test: Difference | None = None

    @property
    def differs(self) -> bool:
        """Whether it differs significantly from the first system's."""
        return self.test is not None and self.test.p_corrected < SIGNIFICANT


def pooled_accuracies(
    systems: Sequence[MeasuredSystem], suites: Mapping[str, ContrastiveSuite]
) -> tuple[PooledAccuracy, ...]:
    """By system; none where fewer than two suites have clues in other sentences."""
    together = to_pool(suites)
    if not together:
        return ()
    indices = {name: of_other_sentences(suite.examples) for name, suite in together.items()}
    chosen = {name: [together[name].examples[i].id for i in of_suite] for name, of_suite in indices.items()}
    numbers = zip(documents_of_suites(list(together.values())), indices.values(), strict=True)
    documents = [of_suite[i] for of_suite, those in numbers for i in those]
    found, decided = [], []
    for system in systems:
        shares = {name: system.right(name) for name in chosen}
        pooled = pooled_aggregates({name: [shares[name][i] for i in ids] for name, ids in chosen.items()})
        found.append(PooledAccuracy(tuple(together), len(documents), pooled["disc"], pooled["disc_avg"]))
        decided.append(
            [
                [run.decisions[name].right[i] for name, ids in chosen.items() for i in ids]
                for run in system.runs
            ]
        )
    tests = corrected_differences([compare_accuracies(decided[0], own, documents) for own in decided[1:]])
    return (found[0], *(replace(each, test=test) for each, test in zip(found[1:], tests, strict=True)))


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
    rows: tuple[AccuracyRow, ...]
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
        return self._signature(len(self.contrastive_tests))

    @property
    def pooled_signature(self) -> str:
        """The signature of the accuracies over all suites and their tests."""
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
    evidence = evidence_of(runs, groups)
    rows = accuracy_rows(runs, groups, evidence)
    plain = [[each.score for each in of_system] for of_system in quality.scores]
    here = EvaluatedOn(quality.documents, quality.sentences, suites)
    return RunComparison(
        runs=tuple(runs),
        test=test,
        documents=quality.documents,
        sentences=quality.sentences,
        scores=quality.scores,
        tests=quality.tests,
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
    data = {run.first.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data, which may explain differences.")
    elif "" in data:
        notes.append("For some runs it is not known which data they were trained on.")
    if len({count for run in runs for count in run.updates if run.has_model}) > 1:
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
                f"{run.label}: on the development set, no checkpoint is better than the start, which the "
                "final model is."
            )
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


def _check_rules(systems: Sequence[MeasuredSystem]) -> None:
    """Refuse decisions made by different rules, or on other examples."""
    runs = runs_of(systems)
    if len(runs) > 1 and runs[0].decisions:
        compare_decisions({run.title: run.decisions for run in runs}, runs[0].title)
