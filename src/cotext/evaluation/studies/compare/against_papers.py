"""Published values compared with measured values on the same test set or suite.

A row of a table belongs to a run with the row's settings. A measured value is compared with a published one
of the same language pair. The suite, or the size of the test set in documents and sentences, must also agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Languages
from cotext.evaluation.metrics.contrastive import CONTEXT_BUCKETS, distance_bucket
from cotext.evaluation.metrics.interface import Score, find_protocol
from cotext.evaluation.published import Published, published_values
from cotext.evaluation.studies.compare.measured import MeasuredSystem
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.contrastive.decisions import pooled_aggregates
from cotext.evaluation.studies.contrastive.evidence import SAME_SENTENCE

MEAN: Final = "mean-accuracy"


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A published value of a run's recipe, and the value measured here on the same data, if any.

    `first_...`: the values of the first run with a row in the same table; None for this run itself.
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
        return measured(value, scores[run]) if same else None

    of_run = [_tables(run.first.recipe, pair) for run in runs]
    comparisons = []
    for number, tables in enumerate(of_run):
        for table, values in tables.items():
            first_run = next(run for run, other in enumerate(of_run) if table in other)
            # If a table has several rows for a run (other training data), the first one is used.
            of_first = {value.column: value for value in reversed(of_run[first_run][table])}
            for value in values:
                first = of_first.get(value.column) if number != first_run else None
                ours = measured_by(value, number)
                other = measured_by(value, first_run) if first else None
                comparisons.append(
                    PublishedComparison(number, value, first.value if first else None, ours, other)
                )
    order = list(dict.fromkeys(value.table_title for value in published_values()))
    return sorted(
        comparisons, key=lambda comparison: (order.index(comparison.published.table_title), comparison.run)
    )


def published_for(recipe: MatchedRecipe) -> list[Published]:
    """Return the published values of exactly these settings."""
    return [v for v in published_values() if recipe.name in v.recipes and recipe.fits(v.setting)]


def of_pair(values: Sequence[Published], pair: str) -> list[Published]:
    """Return the values of a language pair, or all if it is not known; rows for other pairs are omitted."""
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


def _tables(recipe: MatchedRecipe, pair: str) -> dict[str, list[Published]]:
    tables: dict[str, list[Published]] = {}
    for value in of_pair(published_for(recipe), pair):
        tables.setdefault(value.table_title, []).append(value)
    return tables


def measured(value: Published, scores: Sequence[Score]) -> float | None:
    score = next((item for item in scores if item.protocol == value.measure.here), None)
    return None if score is None or of_untokenised(score) else score.value


def of_untokenised(score: Score) -> bool:
    """Return whether a score that expects tokenised text is computed on plain text from a system."""
    return find_protocol(score.protocol).reads_words and "|words:" not in score.signature


def _accuracy(value: Published, run: MeasuredSystem, suites: Mapping[str, ContrastiveSuite]) -> float | None:
    """Return the accuracy over all suites of a value; None if a suite or a required distance is missing.

    `mean-accuracy`: the mean of the accuracies of the suites, or for a single suite over distances from 1 on.
    """
    pair = Languages.parse(value.test.direction)
    suites_by_name = {
        name: [s for s in suites.values() if _is(s, name) and s.languages == pair]
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


def _is(suite: ContrastiveSuite, name: str) -> bool:
    """Return whether a suite is the required one or an edition of it, such as contrapro-ctx1 of contrapro."""
    return suite.name == name or suite.name.startswith(f"{name}-")


def _is_of(example: ContrastiveExample, value: Published) -> bool:
    bucket = distance_bucket(example.distance)
    if value.distance == "context" and bucket in (SAME_SENTENCE, "ahead"):
        return False
    if value.distance not in ("", "any", "context", bucket):
        return False
    tag, _, tag_value = value.tag.partition("=")
    return not value.tag or example.tags.get(tag) == tag_value
