"""Scores of systems on the test set, means over their seeds: intervals, tests against the first, profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cotext.data.documents import Document
from cotext.evaluation.metrics.aligned_files import read_aligned
from cotext.evaluation.metrics.interface import Measurement, Score, Texts, find_protocol, is_lower_better
from cotext.evaluation.metrics.profile import Bucket, by_length, by_position
from cotext.evaluation.metrics.tokenised import Words, measure_words
from cotext.evaluation.statistics.seeds import Difference, ScoreTest, Spread, compare_scores, mean_score
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.measured import EvaluationSet, MeasuredRun
from cotext.evaluation.studies.compare.system import MeasuredSystem, runs_of
from cotext.runtime.errors import CotextError

Each = TypeVar("Each")


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
    """Scores on a test set, by system; its size; tests by protocol; profiles by length and position."""

    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]
    tests: Mapping[str, ScoreTest]
    lengths: tuple[Bucket, ...]
    positions: tuple[Bucket, ...]

    @classmethod
    def unknown(cls, systems: int) -> "Quality":
        """Return the value for systems without a test set."""
        return cls(0, 0, tuple(() for _ in range(systems)), {}, (), ())


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
    of_system = _by_system(list(measured.values()), systems)
    testable = len(systems) > 1 and len(references) > 1
    tests: dict[str, ScoreTest] = {}
    for index, measurement in enumerate(of_system[0][0]) if testable else ():
        counts = [[seed[index].statistics for seed in seeds] for seeds in of_system]
        tests[measurement.score.protocol] = compare_scores(counts, drawing)
    profiles = _profiles(list(aligned.values()), references, protocols[0], target_language, words)
    lengths, positions = (tuple(_averaged(bucket, systems) for bucket in buckets) for buckets in profiles)
    return Quality(
        len(references),
        sum(map(len, references)),
        tuple(_scores(number, seeds, tests) for number, seeds in enumerate(of_system)),
        tests,
        lengths,
        positions,
    )


def _profiles(
    translated: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocol: str,
    target_language: str | None,
    words: Words | None,
) -> list[list[Bucket]]:
    """Score the parts of the test set by length and by position."""
    if words is not None:
        translated = [words.documents(documents, protocol) for documents in translated]
        references = words.documents(references, protocol)
    profiles = [
        by(translated, references, [protocol], target_language=target_language)
        for by in (by_length, by_position)
    ]
    if words is None:
        return profiles
    return [
        [replace(b, scores=tuple(tuple(map(words.signed, system)) for system in b.scores)) for b in buckets]
        for buckets in profiles
    ]


def _hypothesis(run: MeasuredRun) -> Path:
    if run.hypothesis is None:
        raise CotextError(f"{run.path}: has no translation of the test set, unlike other systems")
    return run.hypothesis


def _by_system(of_runs: Sequence[Each], systems: Sequence[MeasuredSystem]) -> list[list[Each]]:
    items = iter(of_runs)
    return [[next(items) for _ in system.runs] for system in systems]


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


def _averaged(bucket: Bucket, systems: Sequence[MeasuredSystem]) -> Bucket:
    scores = tuple(
        tuple(mean_score(of_score) for of_score in zip(*seeds, strict=True))
        for seeds in _by_system(bucket.scores, systems)
    )
    return replace(bucket, scores=scores)
