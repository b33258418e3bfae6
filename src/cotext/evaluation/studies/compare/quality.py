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
from cotext.evaluation.statistics.significance import SIGNIFICANT, Resampling
from cotext.evaluation.studies.compare.measured import EvaluationSet, MeasuredRun
from cotext.evaluation.studies.compare.system import MeasuredSystem, runs_of
from cotext.runtime.errors import CotextError

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class TestedScore:
    """A score of a system, the mean over its seeds, and its difference from the first system's.

    `interval_95` is over documents, and over seeds where there are several; `by_seed` has their values.
    """

    score: Score
    interval_95: tuple[float, float] | None
    against_first: Difference | None
    by_seed: Spread

    @property
    def differs(self) -> bool:
        """Whether it differs significantly from the first system's."""
        return self.against_first is not None and self.against_first.p_corrected < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores on a test set of so many documents and sentences, by system; tests by protocol; profiles."""

    documents: int
    sentences: int
    scores: tuple[tuple[TestedScore, ...], ...]
    tests: Mapping[str, ScoreTest]
    lengths: tuple[Bucket, ...]
    positions: tuple[Bucket, ...]

    @classmethod
    def unknown(cls, systems: int) -> "Quality":
        """Of so many systems without a test set."""
        return cls(0, 0, tuple(() for _ in range(systems)), {}, (), ())


def measure_quality(
    systems: Sequence[MeasuredSystem],
    test: EvaluationSet,
    protocols: Sequence[str],
    target_language: str | None,
    words: Words | None,
    drawing: Resampling,
) -> Quality:
    """Score the translations of all systems, and compare them with those of the first.

    Raises:
        CotextError: translations that are missing, or do not fit the references; an unknown protocol.
    """
    hypotheses = {f"{n}": _hypothesis(run) for n, run in enumerate(runs_of(systems))}
    source = test.source if any(find_protocol(name).needs_source for name in protocols) else None
    aligned, [references], sources = read_aligned(hypotheses, [test.reference], source, test.format)
    measured = measure_words(words, Texts(aligned, [references], sources), protocols, target_language)
    of_system = _by_system(list(measured.values()), systems)
    testable = len(systems) > 1 and len(references) > 1
    tests: dict[str, ScoreTest] = {}
    for index, each in enumerate(of_system[0][0]) if testable else ():
        counts = [[seed[index].statistics for seed in seeds] for seeds in of_system]
        tests[each.score.protocol] = compare_scores(counts, drawing)
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
    """The parts of the test set by length and by position, scored like the whole."""
    if words is not None:
        translated = [words.documents(documents, protocol) for documents in translated]
        references = words.documents(references, protocol)
    found = [
        by(translated, references, [protocol], target_language=target_language)
        for by in (by_length, by_position)
    ]
    return found if words is None else [[_signed(b, words) for b in buckets] for buckets in found]


def _signed(bucket: Bucket, words: Words) -> Bucket:
    return replace(bucket, scores=tuple(tuple(map(words.signed, each)) for each in bucket.scores))


def _hypothesis(run: MeasuredRun) -> Path:
    if run.hypothesis is None:
        raise CotextError(f"{run.path}: has not translated the test set that others have")
    return run.hypothesis


def _by_system(of_runs: Sequence[Each], systems: Sequence[MeasuredSystem]) -> list[list[Each]]:
    found = iter(of_runs)
    return [[next(found) for _ in system.runs] for system in systems]


def _scores(
    number: int, seeds: Sequence[Sequence[Measurement]], tests: Mapping[str, ScoreTest]
) -> tuple[TestedScore, ...]:
    found = []
    for of_score in zip(*seeds, strict=True):
        scores = [each.score for each in of_score]
        test = tests.get(scores[0].protocol)
        found.append(
            TestedScore(
                mean_score(scores),
                _possible(test.intervals_95[number], scores[0].protocol) if test else None,
                test.differences[number - 1] if test and number else None,
                Spread(tuple(score.value for score in scores)),
            )
        )
    return tuple(found)


def _possible(interval: tuple[float, float], protocol: str) -> tuple[float, float]:
    """The part of an interval in which there are scores; error rates may exceed 100."""
    low, high = interval
    return max(0.0, low), high if is_lower_better(protocol) else min(100.0, high)


def _averaged(bucket: Bucket, systems: Sequence[MeasuredSystem]) -> Bucket:
    scores = tuple(
        tuple(mean_score(of_score) for of_score in zip(*seeds, strict=True))
        for seeds in _by_system(bucket.scores, systems)
    )
    return replace(bucket, scores=scores)
