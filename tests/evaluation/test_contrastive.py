import json
import math

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.evaluation.metrics.contrastive import (
    Accuracy,
    CandidateScores,
    ContrastiveReport,
    ScoreRule,
    TieRule,
    contrastive_accuracy,
    distance_aggregates,
    distance_bucket,
    render_table,
)
from cotext.runtime.version import __version__
from tests.loops import loop_over
from tests.refusals import must_raise


def example(
    name: str,
    distance: int | None,
    candidates: int = 2,
    correct: int = 0,
    phenomenon: str = "pronoun",
    **tags: str,
) -> ContrastiveExample:
    return ContrastiveExample(
        name, phenomenon, distance, ("it",), tuple((f"c{n}",) for n in range(candidates)), correct, tags
    )


def scored(*log_probabilities: float, tokens: tuple[int, ...] | None = None) -> CandidateScores:
    return CandidateScores(log_probabilities, tokens or (1,) * len(log_probabilities))


SUITE = ContrastiveSuite(
    "hand",
    "en",
    "de",
    (
        example("wins", 0, 3, 0, pronoun="er"),
        example("loses", 1, 2, 1, pronoun="sie"),
        example("tied-first", 1, 2, 0, pronoun="er"),
        example("tied-second", 2, 2, 1, "register"),
        example("ahead", -1, 4, 3, "register", speaker="x"),
        example("far", 7, 2, 1),
    ),
)
SCORES = [
    scored(-1.0, -2.0, -3.0),
    scored(-1.0, -2.0),
    scored(-2.0, -2.0),
    scored(-2.0, -2.0),
    scored(-9.0, -8.0, -7.0, -6.0),
    scored(-5.0, -4.5),
]


def judged(tie: TieRule = "wrong", score: ScoreRule = "sum") -> ContrastiveReport:
    return contrastive_accuracy(SUITE, SCORES, tie=tie, score=score)


def test_ties_under_both_rules_by_hand() -> None:
    # Clear wins: wins, ahead, far. Clear loss: loses. Of the ties, the right one is candidate 0, then 1.
    strict, first = judged("wrong"), judged("first")
    assert [each.right for each in strict.decisions] == [True, False, False, False, True, True]
    assert [each.right for each in first.decisions] == [True, False, True, False, True, True]
    assert [each.tied for each in strict.decisions] == [False, False, True, True, False, False]
    assert strict.overall.percent == pytest.approx(300 / 6)
    assert first.overall.percent == pytest.approx(400 / 6)
    assert strict.overall.ties == first.overall.ties == 2


def test_groups_by_hand() -> None:
    report = judged()
    counts = {name: (each.correct, each.total, each.ties) for name, each in report.by_distance.items()}
    assert counts == {"0": (1, 1, 0), "1": (0, 2, 1), "2": (0, 1, 1), ">3": (1, 1, 0), "ahead": (1, 1, 0)}
    assert list(report.by_distance) == ["0", "1", "2", ">3", "ahead"]
    assert [distance_bucket(distance) for distance in (3, 4, -9, None)] == ["3", ">3", "ahead", "unknown"]
    assert {name: (each.correct, each.total) for name, each in report.by_phenomenon.items()} == {
        "pronoun": (2, 4),
        "register": (1, 2),
    }
    assert {value: (each.correct, each.total) for value, each in report.by_tag["pronoun"].items()} == {
        "er": (1, 2),
        "sie": (0, 1),
    }
    assert {value: each.total for value, each in report.by_tag["speaker"].items()} == {"x": 1}
    # Chance: 1/3 once, 1/4 once, 1/2 four times.
    assert report.overall.chance == pytest.approx((1 / 3 + 1 / 4 + 4 / 2) / 6)
    assert report.by_phenomenon["register"].chance == pytest.approx((1 / 2 + 1 / 4) / 2)
    # disc: distances 1, 1, 2, 7: one of four right; with distance 0 two of five. No distance 3: no mean.
    assert report.aggregates == pytest.approx({"disc": 25.0, "disc_all_d": 40.0})


def test_sum_and_mean_disagree_on_candidates_of_unequal_length() -> None:
    suite = ContrastiveSuite("s", "en", "de", (example("x", 1),))
    # The right one: sum -6 of 4 tokens, mean -1.5. The wrong one: sum -4 of 2 tokens, mean -2.
    scores = [scored(-6.0, -4.0, tokens=(4, 2))]
    assert contrastive_accuracy(suite, scores, score="sum").overall.correct == 0
    assert contrastive_accuracy(suite, scores, score="mean").overall.correct == 1
    # And a tie of one is no tie of the other.
    even = [scored(-6.0, -3.0, tokens=(4, 2))]
    assert contrastive_accuracy(suite, even, score="mean").overall.ties == 1
    assert contrastive_accuracy(suite, even, score="sum").overall.ties == 0


def test_ties_between_wrong_candidates_and_impossible_ones() -> None:
    suite = ContrastiveSuite("s", "en", "de", (example("x", 1, 3, 2),))
    for tie in ("wrong", "first"):
        report = contrastive_accuracy(suite, [scored(-2.0, -2.0, -1.0)], tie=tie)  # type: ignore[arg-type]
        assert (report.overall.correct, report.overall.ties) == (1, 0)
    suite = ContrastiveSuite("s", "en", "de", (example("x", 1),))
    assert contrastive_accuracy(suite, [scored(-3.0, -math.inf)]).overall.correct == 1
    both = contrastive_accuracy(suite, [scored(-math.inf, -math.inf)])
    assert (both.overall.correct, both.overall.ties) == (0, 1)
    suite = ContrastiveSuite("s", "en", "de", (example("x", 1),))
    silent = [scored(0.0, -1.0, tokens=(0, 2))]
    assert contrastive_accuracy(suite, silent, score="sum").overall.correct == 1
    must_raise("'x': a candidate has no scored token", contrastive_accuracy, suite, silent, score="mean")
    for value, place in ((math.nan, 1), (math.inf, 0)):
        damaged = [scored(*(value if n == place else -1.0 for n in range(2)))]
        must_raise(f"'x': the score of candidate {place} is {value}", contrastive_accuracy, suite, damaged)
    must_raise("'e' has no example", contrastive_accuracy, ContrastiveSuite("e", "en", "de", ()), [])


def test_a_wrong_candidate_spelled_like_the_right_one_ties_whatever_the_rounding() -> None:
    twins = ContrastiveExample("x", "p", 1, ("a",), (("same",), ("same",), ("other",)), 0)
    suite = ContrastiveSuite("s", "en", "ru", (twins,))
    for second in (-1.0 - 1e-7, -1.0, -1.0 + 1e-7):
        scores = [scored(-1.0, second, -5.0)]
        strict = contrastive_accuracy(suite, scores, tie="wrong")
        first = contrastive_accuracy(suite, scores, tie="first")
        assert (strict.overall.correct, strict.overall.ties, strict.undecidable) == (0, 1, 1)
        assert (first.overall.correct, first.overall.ties) == (1, 1)


def test_signature() -> None:
    assert judged().signature == f"suite:hand|n:6|tie:wrong|score:sum|version:cotext-{__version__}"
    report = contrastive_accuracy(SUITE, SCORES, tie="first", score="mean", recipe={"scored": "differing"})
    assert report.signature == (
        f"suite:hand|n:6|tie:first|score:mean|scored:differing|version:cotext-{__version__}"
    )
    for recipe in ({"tie": "x"}, {"version": "9"}, {"scored": "a|b"}):
        must_raise("cannot be part of a signature", contrastive_accuracy, SUITE, SCORES, recipe=recipe)


def test_wilson_interval_by_hand() -> None:
    # 8 of 10, z = 1.96: centre (0.8 + 0.19208) / 1.38416 = 0.716738,
    # half width 1.96 * sqrt(0.8 * 0.2 / 10 + 0.009604) / 1.38416 = 1.96 * 0.160012 / 1.38416 = 0.226579.
    low, high = Accuracy(correct=8, total=10, ties=0, chance=0.5).interval_percent
    assert (low, high) == pytest.approx((49.016, 94.332), abs=0.003)
    # No success in 10: from 0 to z^2 / (10 + z^2) = 3.8415 / 13.8415.
    assert Accuracy(0, 10, 0, 0.5).interval_percent == pytest.approx((0.0, 27.753), abs=0.001)
    assert Accuracy(10, 10, 0, 0.5).interval_percent == pytest.approx((72.247, 100.0), abs=0.001)


# Lupo et al. (2022), table 8, En-De: accuracy at d = 0, 1, 2, 3, >3, then Disc., Disc_avg, Disc_all-d.
TABLE_8 = {
    "base": ((68.75, 32.89, 43.97, 47.99, 70.58), (37.27, 48.86, 43.57)),
    "s4to4": ((75.20, 68.89, 74.96, 79.58, 87.78), (71.35, 77.80, 72.12)),
    "s4to4 + CD": ((76.66, 72.86, 75.96, 80.10, 84.38), (74.31, 78.33, 74.78)),
    "s4to4 + shift + CD": ((75.25, 72.56, 77.15, 80.27, 86.65), (74.39, 79.16, 74.56)),
}
SAMPLE_SIZES = {"0": 2_400, "1": 7_075, "2": 1_510, "3": 573, ">3": 442}


@loop_over("system", list(TABLE_8))
def test_published_aggregates_follow_from_the_published_buckets(system: str) -> None:
    buckets, (disc, disc_avg, disc_all_d) = TABLE_8[system]
    aggregates = distance_aggregates(
        {bucket: (value, SAMPLE_SIZES[bucket]) for bucket, value in zip(SAMPLE_SIZES, buckets, strict=True)}
    )
    assert aggregates["disc"] == pytest.approx(disc, abs=0.011)
    assert aggregates["disc_avg"] == pytest.approx(disc_avg, abs=0.011)
    assert aggregates["disc_all_d"] == pytest.approx(disc_all_d, abs=0.011)


def test_no_aggregate_is_made_from_distances_that_are_unknown() -> None:
    assert distance_aggregates({"0": (75.0, 10), "1": (50.0, 10), "unknown": (60.0, 1)}) == {}
    assert distance_aggregates({"0": (75.0, 10), "ahead": (50.0, 10)}) == {}
    # A clue ahead neither counts nor hinders.
    assert distance_aggregates({"1": (50.0, 10), "ahead": (0.0, 10)}) == {"disc": 50.0}


def test_table_and_json() -> None:
    report = judged()
    table = render_table(report)
    rows = {line[:18].strip(): line[18:].split() for line in table.splitlines()}
    assert rows["all"][0] == "50.00"
    assert rows["all"][-2:] == ["6", "2"]
    assert rows["distance >3"][0] == "100.00"
    assert rows["pronoun er"][0] == "50.00"
    assert rows["disc"] == ["25.00"]
    assert "speaker x" in table
    assert table.splitlines()[-1] == report.signature
    document = json.loads(json.dumps(report.as_dict()))
    assert document["overall"]["correct"] == 3
    assert document["overall"]["chance_percent"] == pytest.approx(100 * (1 / 3 + 1 / 4 + 2) / 6)
    assert document["by_distance"]["1"]["ties"] == 1
    assert document["aggregates_percent"] == {"disc": 25.0, "disc_all_d": 40.0}
    assert document["signature"] == report.signature
