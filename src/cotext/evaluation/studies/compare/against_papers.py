"""Published values compared with measured ones of the same test set or suite.

A row of a table stands for a run whose settings are the row's. A figure of ours stands beside a value of it
where the language pair is the same, and the suite, or the test set by its numbers of documents and sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.languages import Languages
from cotext.evaluation.metrics.contrastive import CONTEXT_BUCKETS, distance_bucket
from cotext.evaluation.metrics.interface import Score
from cotext.evaluation.metrics.tokenised import reads_words
from cotext.evaluation.published import Published, published_values
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.contrastive.contrastive_rows import SAME_SENTENCE
from cotext.evaluation.studies.contrastive.decisions import pooled_aggregates

MEAN: Final = "mean-accuracy"


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A published value of a run's recipe, and the one measured here on the same data, if any.

    `first_published` and `first_measured` are those of the first run that has a row in the same table; None
    of that run itself.
    """

    run: int
    published: Published
    first_published: float | None
    measured: float | None
    first_measured: float | None


@dataclass(frozen=True, slots=True)
class EvaluatedOn:
    """The size of the test set (0, 0 without one), and the suites by their names."""

    documents: int
    sentences: int
    suites: Mapping[str, ContrastiveSuite]


def compare_with_papers(
    runs: Sequence[MeasuredSystem], scores: Sequence[Sequence[Score]], here: EvaluatedOn
) -> list[PublishedComparison]:
    """Published values of all runs that are of a recipe, in the order of the papers' tables and columns.

    Where the languages are known, values of other language pairs are left out.
    """
    pair = languages_of(runs, here.suites)
    of_run = [_tables(run.first.recipe, pair) for run in runs]
    found = []
    for number, tables in enumerate(of_run):
        for table, values in tables.items():
            first_run = next(run for run, other in enumerate(of_run) if table in other)
            # Of several rows, as under other training data, the first one stands for the run.
            theirs = {value.column: value for value in reversed(of_run[first_run][table])}
            for value in values:
                first = theirs.get(value.column) if number != first_run else None
                own = measured(value, runs[number], scores[number], pair, here)
                other = measured(value, runs[first_run], scores[first_run], pair, here) if first else None
                found.append(PublishedComparison(number, value, first.value if first else None, own, other))
    order = {
        table: rank for rank, table in enumerate(dict.fromkeys(v.table_title for v in published_values()))
    }
    return sorted(found, key=lambda each: (order[each.published.table_title], each.run))


def languages_of(runs: Sequence[MeasuredSystem], suites: Mapping[str, ContrastiveSuite]) -> str:
    """The language pair, by the runs or else by the suites; empty where neither tells one."""
    pairs = [str(run.first.languages) for run in runs] + [str(suite.languages) for suite in suites.values()]
    return next((pair for pair in pairs if pair), "")


def published_for(recipe: MatchedRecipe) -> list[Published]:
    """The published values of exactly these settings."""
    return [v for v in published_values() if recipe.name in v.recipes and recipe.fits(v.setting)]


def of_pair(values: Sequence[Published], pair: str) -> list[Published]:
    """The values of a language pair, all if it is not known; without rows whose values are of others."""
    valued = {(v.table_title, v.row, v.test.direction) for v in values if v.value is not None}
    with_values = {(table, row) for table, row, _ in valued}
    return [
        v
        for v in values
        if not pair
        or (
            v.test.direction == pair
            and ((v.table_title, v.row, pair) in valued or (v.table_title, v.row) not in with_values)
        )
    ]


def _tables(recipe: MatchedRecipe, pair: str) -> dict[str, list[Published]]:
    tables: dict[str, list[Published]] = {}
    for value in of_pair(published_for(recipe), pair):
        tables.setdefault(value.table_title, []).append(value)
    return tables


def measured(
    value: Published, run: MeasuredSystem, scores: Sequence[Score], pair: str, here: EvaluatedOn
) -> float | None:
    """Our figure of what a published one is of: the same language pair, test set or suite, and protocol."""
    if value.measure.here in ("accuracy", MEAN):
        return _accuracy(value, run, here.suites)
    size = (value.test.documents, value.test.sentences)
    if value.test.direction != pair or size != (here.documents, here.sentences):
        return None
    score = next((each for each in scores if each.protocol == value.measure.here), None)
    return None if score is None or of_untokenised(run, score) else score.value


def of_untokenised(run: MeasuredSystem, score: Score) -> bool:
    """Whether a score that takes text for tokenised is of what a system writes, which is not."""
    return not run.first.given and reads_words(score.protocol) and "|words:" not in score.signature


def _accuracy(value: Published, run: MeasuredSystem, suites: Mapping[str, ContrastiveSuite]) -> float | None:
    """Over all suites that the value is of; none where one is missing, or a distance that it asks for.

    `mean-accuracy`: the mean of the accuracies of the suites, or of one suite, by distance from 1 on.
    """
    pair = Languages.parse(value.test.direction)
    found = {
        wanted: [s for s in suites.values() if _is(s, wanted) and s.languages == pair]
        for wanted in value.test.suites
    }
    examples = [
        (suite.name, example)
        for of_name in found.values()
        for suite in of_name
        for example in suite.examples
        if not value.phenomenon or example.phenomenon == value.phenomenon
    ]
    pooled = not value.phenomenon
    if not examples or (pooled and not all(found.values())):
        return None
    mean_of_distances = value.measure.here == MEAN and len(found) == 1
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


def _is(suite: ContrastiveSuite, wanted: str) -> bool:
    """Whether a suite is the wanted one or an edition of it, as contrapro-ctx1 is of contrapro."""
    return suite.name == wanted or suite.name.startswith(f"{wanted}-")


def _is_of(example: ContrastiveExample, value: Published) -> bool:
    bucket = distance_bucket(example.distance)
    if value.distance == "context" and bucket in (SAME_SENTENCE, "ahead"):
        return False
    if value.distance not in ("", "any", "context", bucket):
        return False
    tag, _, wanted = value.tag.partition("=")
    return not value.tag or example.tags.get(tag) == wanted
