"""Comparison of systems: scores, contrastive accuracies, context use, tests, and published values.

A system is a run, or runs that differ only in their seeds. Values of a system are means over its runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Languages
from cotext.evaluation.metrics.aligned_files import read_aligned
from cotext.evaluation.metrics.contrastive import CONTEXT_BUCKETS, Accuracy, distance_bucket
from cotext.evaluation.metrics.interface import (
    Score,
    Texts,
    Words,
    find_protocol,
    is_lower_better,
    measure_words,
)
from cotext.evaluation.published import Published, published_values
from cotext.evaluation.statistics.significance import (
    Difference,
    PairedTest,
    Resampling,
    Spread,
    are_too_few,
    compare_accuracies,
    mean_score,
    paired_test,
)
from cotext.evaluation.statistics.significance import corrected as corrected_differences
from cotext.evaluation.studies.compare.measured import (
    ContextGain,
    EvaluationSet,
    MeasuredSystem,
    gains_of_seeds,
)
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.contrastive.decisions import pooled_aggregates, require_comparable
from cotext.evaluation.studies.contrastive.evidence import (
    SAME_SENTENCE,
    Evidence,
    Group,
    corrected,
    groups_of,
    least_sure,
    weigh,
)
from cotext.runtime import __version__


@dataclass(frozen=True, slots=True)
class ContrastiveTest:
    """A test of contrastive accuracy, in per cent by seed, against the first system, on a group of examples.

    `first_sees`: the clue is also in the context window of the first system. `test` is over documents and, if
    a system has several, seeds. Its p is corrected for all `tests` tests.
    """

    run: int
    group: Group
    first_sees: bool
    first_by_seed: Spread
    by_seed: Spread
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
        return are_too_few(self.group.document_count, self.tests, mid_p=self.test.over_seeds is None)


@dataclass(frozen=True, slots=True)
class AccuracyCell:
    """The accuracy of one system in one group of examples, in per cent, with its 95 % interval.

    `in_window`: the clue is in the window. `learned`: some run is better than its initial model. `shown`:
    context use is significant.
    """

    percent: float
    low: float
    high: float
    total: int
    in_window: bool
    learned: bool
    shown: bool


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """A group of examples: a cell for each system, in their order, and a short verdict."""

    group: Group
    chance: float
    cells: tuple[AccuracyCell, ...]
    verdict: str


PHENOMENA: Final[Mapping[str, str]] = {
    "pronoun": "“it” is er, sie or es by the gender of the thing mentioned last",
    "register": "“you” is du or Sie, depending on the listener, who is named once at the beginning",
    "ellipsis": "“she did too” repeats in German the verb of an earlier sentence",
    "cohesion": "a name or profession with two renderings keeps the one chosen first: "
    "the clue is only in the translation",
    "cataphora": "“it” announces a thing that only the next sentence names",
}
CHANCE_TOLERANCE_POINTS: Final = 3.0


def accuracy_rows(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group], evidence: Sequence[Sequence[Evidence]]
) -> list[AccuracyRow]:
    """Return accuracies of all systems (means over seeds) by group, PHENOMENA with an exact chance first."""
    titles = list(dict.fromkeys(group.title for group in groups))
    known = {name: number for number, name in enumerate(PHENOMENA)}

    def rank(group: Group) -> tuple[int, int]:
        place = known.get(group.title, len(known)) if group.exact_chance else len(known)
        return place, titles.index(group.title)

    return [_row(systems, group, evidence) for group in sorted(groups, key=rank)]


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
    chance = 100.0 * sum(group.chances) / len(group.examples)
    return AccuracyRow(group, chance, tuple(cells), _words(group, chance, cells, tested))


def _words(group: Group, chance: float, cells: Sequence[AccuracyCell], tested: Sequence[Evidence]) -> str:
    """Return a short verdict on a row: a leak, a clue outside all windows, or the result of the tests."""
    seeing = [cell for cell in cells if cell.in_window]
    blind = [cell for cell in cells if not cell.in_window]
    # If chance is not exact, an accuracy above it is not a leak.
    if group.exact_chance and any(abs(cell.percent - chance) > CHANCE_TOLERANCE_POINTS for cell in blind):
        return "leak? check the data"
    if not seeing:
        return "clue not in window"
    if group.distance == SAME_SENTENCE:
        return ""
    if uses := sum(evidence.used is True for evidence in tested):
        return "context is used" if uses == len(tested) else f"used by {uses} of {len(tested)}"
    if tested:
        return "too few documents" if any(evidence.too_few for evidence in tested) else "use not significant"
    return "" if all(cell.learned for cell in seeing) else "not learned"


def evidence_of(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group]
) -> tuple[tuple[Evidence, ...], ...]:
    """Return for each system the evidence on groups with a clue in its context, corrected for all tests."""
    flat = []
    for number, system in enumerate(systems):
        for group in groups:
            readings = [run.decisions[group.suite].readings for run in system.runs]
            available = [item for item in readings if item is not None]
            if len(available) == len(readings) and system.first.window.has_clue_of(group):
                flat.append((number, least_sure([weigh(group, item) for item in available])))
    by_system: list[list[Evidence]] = [[] for _ in systems]
    for (number, _), item in zip(flat, corrected([item for _, item in flat]), strict=True):
        by_system[number].append(item)
    return tuple(map(tuple, by_system))


def contrastive_tests(systems: Sequence[MeasuredSystem], groups: Sequence[Group]) -> list[ContrastiveTest]:
    """Test every other system against the first one, on groups with the clue in its context window."""
    tests = []
    for number, system in enumerate(systems[1:], start=1):
        for group in groups:
            if not system.first.window.has_clue_of(group):
                continue
            # For each seed, whether each example is decided right.
            theirs, ours = (
                [[run.decisions[group.suite].right[e.id] for e in group.examples] for run in each.runs]
                for each in (systems[0], system)
            )
            first_sees = systems[0].first.window.contains(group.phenomenon, group.distance)
            test = compare_accuracies(theirs, ours, group.documents)
            tests.append(ContrastiveTest(number, group, first_sees, _by_seed(theirs), _by_seed(ours), test))
    differences = corrected_differences([test.test for test in tests])
    return [replace(test, test=d, tests=len(tests)) for test, d in zip(tests, differences, strict=True)]


def _by_seed(decided: Sequence[Sequence[bool]]) -> Spread:
    return Spread(tuple(100.0 * sum(row) / len(row) for row in decided))


@dataclass(frozen=True, slots=True)
class TestedScore:
    """The mean score over seeds, its interval over documents and seeds, and its test against the first."""

    score: Score
    interval_95: tuple[float, float] | None
    against_first: Difference | None
    by_seed: Spread


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores on a test set by system, the size of the test set, and tests by protocol."""

    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]
    tests: Mapping[str, PairedTest]


def measure_quality(
    systems: Sequence[MeasuredSystem],
    test: EvaluationSet,
    protocols: Sequence[str],
    target_language: str | None,
    words: Words | None,
    drawing: Resampling,
) -> Quality:
    """Score the translations of all systems, and compare them with the first system.

    Raises CotextError if translations do not fit the references, or a protocol is unknown.
    """
    runs = enumerate(run for system in systems for run in system.runs)
    hypotheses = {f"{n}": run.hypothesis for n, run in runs if run.hypothesis}
    source = test.source if any(find_protocol(name).needs_source for name in protocols) else None
    aligned, [references], sources = read_aligned(hypotheses, [test.reference], source, test.format)
    measured = measure_words(words, Texts(aligned, [references], sources), protocols, target_language)
    by_run = iter(measured.values())
    of_system = [[next(by_run) for _ in system.runs] for system in systems]
    testable = len(systems) > 1 and len(references) > 1
    tests: dict[str, PairedTest] = {}
    for index, measurement in enumerate(of_system[0][0]) if testable else ():
        counts = {f"{n}": [seed[index].statistics for seed in seeds] for n, seeds in enumerate(of_system)}
        tests[measurement.score.protocol] = paired_test(counts, "0", drawing)

    def tested(system: str, scores: Sequence[Score]) -> TestedScore:
        test, interval, difference = tests.get(scores[0].protocol), None, None
        if test is not None:
            low, high = test.intervals_95[system]
            # Limit intervals to possible scores; error rates may exceed 100.
            interval = max(0.0, low), high if is_lower_better(scores[0].protocol) else min(100.0, high)
            difference = test.differences.get(("0", system))
        spread = Spread(tuple(score.value for score in scores))
        return TestedScore(mean_score(scores), interval, difference, spread)

    scores = (
        tuple(tested(f"{n}", [each.score for each in of_score]) for of_score in zip(*seeds, strict=True))
        for n, seeds in enumerate(of_system)
    )
    return Quality(len(references), sum(map(len, references)), tuple(scores), tests)


# --- Published values compared with measured values on the same test set or suite.
#
# A row of a table belongs to a run with the row's settings. A measured value is compared with a published one
# only if the language pairs agree, and also the suites, or the sizes of the test sets.

MEAN: Final = "mean-accuracy"


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A published value of a run's recipe, and the value measured here on the same data, if any.

    `first_...`: the values of the first run that has a row in the same table; None for that run itself.
    """

    run: int
    published: Published
    first_published: float | None
    measured: float | None
    first_measured: float | None


def compare_with_papers(
    runs: Sequence[MeasuredSystem],
    scores: Sequence[Sequence[Score]],
    size: tuple[int, int],
    suites: Mapping[str, ContrastiveSuite],
) -> list[PublishedComparison]:
    """Return published values of all runs with a recipe, in the order of the papers' tables and columns.

    `size`: documents and sentences of the test set. Values of other language pairs are omitted.
    """
    pairs = [str(run.first.languages) for run in runs] + [str(suite.languages) for suite in suites.values()]
    pair = next((pair for pair in pairs if pair), "")

    def measured_by(value: Published, run: int) -> float | None:
        if value.measure.here in ("accuracy", MEAN):
            return _accuracy(value, runs[run], suites)
        same = value.test.direction == pair and (value.test.documents, value.test.sentences) == size
        score = next((s for s in scores[run] if s.protocol == value.measure.here), None) if same else None
        return None if score is None or of_untokenised(score) else score.value

    comparisons = []
    first_runs: dict[str, int] = {}  # by table
    of_first: dict[tuple[str, str], Published] = {}  # by table and column
    for number, run in enumerate(runs):
        for value in of_pair(published_for(run.first.recipe), pair):
            ours, key = measured_by(value, number), (value.table_title, value.column)
            first, theirs = None, None
            if (first_run := first_runs.setdefault(value.table_title, number)) == number:
                # If a table has several rows for a run (other training data), the first one is used.
                of_first.setdefault(key, value)
            elif key in of_first:
                first, theirs = of_first[key].value, measured_by(value, first_run)
            comparisons.append(PublishedComparison(number, value, first, ours, theirs))
    order = list(dict.fromkeys(value.table_title for value in published_values()))
    return sorted(comparisons, key=lambda each: (order.index(each.published.table_title), each.run))


def published_for(recipe: MatchedRecipe) -> list[Published]:
    """Return the published values of a recipe, for exactly its settings."""
    return [v for v in published_values() if recipe.name in v.recipes and recipe.fits(v.setting)]


def of_pair(values: Sequence[Published], pair: str) -> list[Published]:
    """Return the values of a language pair, or all if it is unknown; rows only of other pairs are omitted."""
    if not pair:
        return list(values)
    pairs_of_row: dict[tuple[str, str], set[str]] = {}
    for value in values:
        if value.value is not None:
            pairs_of_row.setdefault((value.table_title, value.row), set()).add(value.test.direction)
    return [
        v
        for v in values
        if v.test.direction == pair and pair in pairs_of_row.get((v.table_title, v.row), {pair})
    ]


def of_untokenised(score: Score) -> bool:
    """Return whether a score that expects tokenised text is computed on plain text from a system."""
    return find_protocol(score.protocol).reads_words and "|words:" not in score.signature


def _accuracy(value: Published, run: MeasuredSystem, suites: Mapping[str, ContrastiveSuite]) -> float | None:
    """Return the accuracy over all suites of a value; None if a suite or a required distance is missing.

    `mean-accuracy`: the mean over the suites or, if there is only one, over distances from 1 on.
    """
    pair = Languages.parse(value.test.direction)
    suites_by_name = {
        # The required suite, or an edition of it, such as contrapro-ctx1 of contrapro.
        name: [s for s in suites.values() if f"{s.name}-".startswith(f"{name}-") and s.languages == pair]
        for name in value.test.suites
    }
    examples = [
        (suite.name, example)
        for of_name in suites_by_name.values()
        for suite in of_name
        for example in suite.examples
        if not value.phenomenon or example.phenomenon == value.phenomenon
    ]
    pooled = not value.phenomenon
    if not examples or (pooled and not all(suites_by_name.values())):
        return None
    mean_of_distances = value.measure.here == MEAN and len(suites_by_name) == 1
    if (value.distance or mean_of_distances) and any(example.distance is None for _, example in examples):
        return None
    shares = {suite: run.right(suite) for suite in {name for name, _ in examples}}
    right: dict[str, list[float]] = {}
    for name, example in examples:
        if _is_of(example, value):
            group = distance_bucket(example.distance) if mean_of_distances else name
            right.setdefault(group, []).append(shares[name][example.id])
    if value.measure.here != MEAN:
        return pooled_aggregates(right)["disc"] if right else None
    if mean_of_distances:
        right = {bucket: right[bucket] for bucket in CONTEXT_BUCKETS if bucket in right}
        if len(right) < len(CONTEXT_BUCKETS):
            return None
    return pooled_aggregates(right)["disc_avg"]


def _is_of(example: ContrastiveExample, value: Published) -> bool:
    bucket = distance_bucket(example.distance)
    if value.distance == "context" and bucket in (SAME_SENTENCE, "ahead"):
        return False
    if value.distance not in ("", "any", "context", bucket):
        return False
    tag, _, tag_value = value.tag.partition("=")
    return not value.tag or example.tags.get(tag) == tag_value


# --- All results.


@dataclass(frozen=True, slots=True)
class SeedFigure:
    """A score (empty `group`) or an accuracy at a distance (`group`), by seed, and its difference."""

    name: str
    group: str
    by_seed: Spread
    against_first: Difference | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Systems side by side; every sequence by system is in the order of `runs`."""

    runs: tuple[MeasuredSystem, ...]
    test: EvaluationSet | None
    quality: Quality
    rows: tuple[AccuracyRow, ...]
    contrastive_tests: tuple[ContrastiveTest, ...]
    evidence: tuple[tuple[Evidence, ...], ...]  # by system: for clues in its context, if controls were run
    gains: tuple[tuple[ContextGain, ...], ...]  # by system
    published: tuple[PublishedComparison, ...]
    notes: tuple[str, ...]

    @property
    def signature(self) -> str:
        several = any(len(system.runs) > 1 for system in self.runs)
        return (
            f"test:{'flips+welch' if several else 'mcnemar'}|unit:document|sides:2"
            f"|correction:holm-{len(self.contrastive_tests)}{'' if several else '-mid-p'}"
            f"|interval:{'student' if several else 'bootstrap-percentile'}|version:cotext-{__version__}"
        )

    def over_seeds(self, system: int) -> list[SeedFigure]:
        """Return scores and accuracies of a system by seed, if this or the first system has several seeds."""
        if len(self.runs[system].runs) == len(self.runs[0].runs) == 1:
            return []
        figures = [
            SeedFigure(score.score.title, "", score.by_seed, score.against_first)
            for score in self.quality.scores[system]
        ]
        if system > 0:
            tests = [t for t in self.contrastive_tests if t.run == system]
            return figures + [SeedFigure(*t.group.name, t.by_seed, t.test) for t in tests]
        of_first = {t.group.name: t.first_by_seed for t in self.contrastive_tests}
        return figures + [SeedFigure(*group, spread, None) for group, spread in of_first.items()]


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

    Raises CotextError if translations do not match the references, or suites were decided by different rules.
    """
    for suite in suites:
        require_comparable({run.title: run.decisions[suite] for system in runs for run in system.runs})
    drawing = resampling or Resampling()
    quality = Quality(0, 0, tuple(() for _ in runs), {})
    notes = _notes(runs)
    if test is not None:
        quality = measure_quality(runs, test, protocols, target_language, words, drawing)
        if quality.documents < 2:
            notes.append("The test set is one document: differences in quality cannot be tested.")
        titles = {s.score.title for scores in quality.scores for s in scores if of_untokenised(s.score)}
        notes += [
            f"{title} expects tokenised text, but runs write plain text: choose a tokenizer (--words)."
            for title in sorted(titles)
        ]
    groups = [group for suite in suites.values() for group in groups_of(suite)]
    evidence = evidence_of(runs, groups)
    rows = accuracy_rows(runs, groups, evidence)
    plain = [[item.score for item in of_system] for of_system in quality.scores]
    size = quality.documents, quality.sentences
    return RunComparison(
        runs=tuple(runs),
        test=test,
        quality=quality,
        rows=tuple(rows),
        contrastive_tests=tuple(contrastive_tests(runs, groups)),
        evidence=evidence,
        gains=tuple(gains_of_seeds([run.cxmi for run in system.runs], drawing) for system in runs),
        published=tuple(compare_with_papers(runs, plain, size, suites)),
        notes=tuple(notes),
    )


def _notes(runs: Sequence[MeasuredSystem]) -> list[str]:
    notes = []
    data = {run.first.data for run in runs}
    if len(data - {""}) > 1:
        notes.append("The runs were trained on different data, which may explain differences.")
    elif "" in data:
        notes.append("For some runs, the training data are unknown.")
    if len({count for run in runs for count in run.updates}) > 1:
        notes.append("The runs were trained for different numbers of updates.")
    for run in runs:
        if not run.first.is_finished:  # seeds must be finished
            notes.append(f"{run.title}: training is not finished; the values are of its model so far.")
        if run.not_learned:
            notes.append(f"{run.label}: no checkpoint is better than the initial model, which remains.")
    single = [run.title for run in runs if len(run.runs) == 1]
    if 1 < len(single) == len(runs):
        notes.append(
            "Every system is a single training run: the tests do not cover the variance between seeds."
        )
    elif len(single) < len(runs):
        notes += [
            f"{title} is a single training run: compared with a system with several seeds, its variance "
            "between seeds is assumed to be equal."
            for title in single
        ]
    return notes
