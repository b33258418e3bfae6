"""Scores of systems on the test set, means over their seeds: intervals, and tests against the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotext.evaluation.metrics.aligned_files import read_aligned
from cotext.evaluation.metrics.interface import Measurement, Score, Texts, find_protocol, is_lower_better
from cotext.evaluation.metrics.tokenised import Words, measure_words
from cotext.evaluation.statistics.seeds import Difference, ScoreTest, Spread, compare_scores, mean_score
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.measured import EvaluationSet, MeasuredRun
from cotext.evaluation.studies.compare.system import MeasuredSystem, runs_of
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class TestedScore:
    """A score of a system, the mean over its seeds, and its difference from the score of the first system.

    `interval_95` covers documents, and seeds if there are several; `by_seed` has their values.
    """

    score: Score
    interval_95: tuple[float, float] | None
    against_first: Difference | None
    by_seed: Spread


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores on a test set, by system; its size; tests by protocol."""

    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]
    tests: Mapping[str, ScoreTest]

    @classmethod
    def unknown(cls, systems: int) -> "Quality":
        """Return the value for systems without a test set."""
        return cls(0, 0, tuple(() for _ in range(systems)), {})


def measure_quality(
    systems: Sequence[MeasuredSystem],
    test: EvaluationSet,
    protocols: Sequence[str],
    target_language: str | None,
    words: Words | None,
    drawing: Resampling,
) -> Quality:
    """Score the translations of all systems, and compare them with the first system.

    Raises:
        CotextError: translations are missing or do not match the references, or a protocol is unknown.
    """
    hypotheses = {f"{n}": _hypothesis(run) for n, run in enumerate(runs_of(systems))}
    source = test.source if any(find_protocol(name).needs_source for name in protocols) else None
    aligned, [references], sources = read_aligned(hypotheses, [test.reference], source, test.format)
    measured = measure_words(words, Texts(aligned, [references], sources), protocols, target_language)
    by_run = iter(measured.values())
    of_system = [[next(by_run) for _ in system.runs] for system in systems]
    testable = len(systems) > 1 and len(references) > 1
    tests: dict[str, ScoreTest] = {}
    for index, measurement in enumerate(of_system[0][0]) if testable else ():
        counts = [[seed[index].statistics for seed in seeds] for seeds in of_system]
        tests[measurement.score.protocol] = compare_scores(counts, drawing)
    return Quality(
        len(references),
        sum(map(len, references)),
        tuple(_scores(number, seeds, tests) for number, seeds in enumerate(of_system)),
        tests,
    )


def _hypothesis(run: MeasuredRun) -> Path:
    if run.hypothesis is None:
        raise CotextError(f"{run.path}: has no translation of the test set, unlike other systems")
    return run.hypothesis


def _scores(
    number: int, seeds: Sequence[Sequence[Measurement]], tests: Mapping[str, ScoreTest]
) -> tuple[TestedScore, ...]:
    tested = []
    for of_score in zip(*seeds, strict=True):
        scores = [measurement.score for measurement in of_score]
        test = tests.get(scores[0].protocol)
        tested.append(
            TestedScore(
                mean_score(scores),
                _possible(test.intervals_95[number], scores[0].protocol) if test else None,
                test.differences[number - 1] if test and number else None,
                Spread(tuple(score.value for score in scores)),
            )
        )
    return tuple(tested)


def _possible(interval: tuple[float, float], protocol: str) -> tuple[float, float]:
    """Limit an interval to possible scores; error rates may exceed 100."""
    low, high = interval
    return max(0.0, low), high if is_lower_better(protocol) else min(100.0, high)
