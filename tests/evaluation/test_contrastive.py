"""Contrastive accuracy, worked by hand, and over several suites together."""

import json
import math
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
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
from cotext.evaluation.studies.contrastive.decisions import pool
from cotext.runtime import __version__
from tests.command_line import World, succeed
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
    report = contrastive_accuracy(SUITE, SCORES, tie="first", score="mean", recipe={"scored": "differing"})
    rest = f"scored:differing|version:cotext-{__version__}"
    assert report.signature == f"suite:hand|n:6|tie:first|score:mean|{rest}"
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


# Lupo et al. (2022), table 8, s4to4, En-De: accuracy and examples by distance; then its aggregates.
BUCKETS = {
    "0": (75.20, 2_400),
    "1": (68.89, 7_075),
    "2": (74.96, 1_510),
    "3": (79.58, 573),
    ">3": (87.78, 442),
}
AGGREGATES = {"disc": 71.35, "disc_avg": 77.80, "disc_all_d": 72.12}


def test_aggregates_of_published_distances_and_of_unknown_ones() -> None:
    assert distance_aggregates(BUCKETS) == pytest.approx(AGGREGATES, abs=0.011)
    assert distance_aggregates({"0": (75.0, 10), "1": (50.0, 10), "unknown": (60.0, 1)}) == {}
    assert distance_aggregates({"0": (75.0, 10), "ahead": (50.0, 10)}) == {}
    # A clue ahead neither counts nor hinders.
    assert distance_aggregates({"1": (50.0, 10), "ahead": (0.0, 10)}) == {"disc": 50.0}


def suite(name: str, distances: list[int | None], candidates: int = 2) -> ContrastiveSuite:
    written = tuple(("a", f"{c}") for c in range(candidates))
    examples = tuple(
        ContrastiveExample(str(n), name, d, (f"{name} {n // 2}", f"it {n // 2}"), written, 0)
        for n, d in enumerate(distances)
    )
    return ContrastiveSuite(name, "en", "de", examples)


def decided(made: ContrastiveSuite, right: str) -> ContrastiveReport:
    """A report in which `+` is right, `-` is wrong and `=` a tie."""
    values = {"+": (0.0, -1.0), "-": (-1.0, 0.0), "=": (0.0, 0.0)}
    scores = []
    for example, mark in zip(made.examples, right, strict=True):
        first, other = values[mark]
        count = len(example.candidates)
        scores.append(CandidateScores((first, *[other] * (count - 1)), (1,) * count))
    return contrastive_accuracy(made, scores, recipe={"view": "w"})


def test_suites_together() -> None:
    suites = {"p": suite("p", [0, 1, 1, -1]), "q": suite("q", [1, None], 4), "same": suite("same", [0, 0])}
    marks = {"p": "+-+=", "q": "++", "same": "++"}
    judged = {name: (made, decided(made, marks[name])) for name, made in suites.items()}
    assert pool({"p": judged["p"], "same": judged["same"]}) is None
    found = pool(judged)
    assert found.examples == ("p: 1", "p: 2", "p: 3", "q: 0", "q: 1")
    assert [each.right for each in found.decisions] == [False, True, False, True, True]
    assert (found.overall.correct, found.overall.total, found.overall.ties) == (3, 5, 1)
    assert found.overall.chance == pytest.approx((3 / 2 + 2 / 4) / 5)
    percents = {name: each.percent for name, each in found.by_phenomenon.items()}
    assert percents == pytest.approx({"p": 100 / 3, "q": 100})
    assert found.aggregates == pytest.approx({"disc": 60.0, "disc_avg": 200 / 3})
    # Two examples of a source are of one document, and none of two suites.
    assert found.documents == (0, 1, 1, 2, 2)
    assert found.signature.startswith("suite:p+q|n:5|tie:wrong|score:sum|view:w|")
    assert "disc_avg" in render_table(found)


def test_the_command_tells_all_suites_together(world: World, tmp_path: Path) -> None:
    made = read_suite(world.folder / "suite.json")
    write_suite(tmp_path / "other.json", ContrastiveSuite("toy/other", "en", "de", made.examples[:3]))
    both = [world.folder / "suite.json", tmp_path / "other.json"]
    out, copy = tmp_path / "a.json", tmp_path / "b.json"
    shown = succeed("contrastive", world.run, *both, "--out", out)
    assert "all suites, clues in other sentences" in shown.out
    found = json.loads(out.read_text())
    assert list(found) == ["toy/order", "toy/other", "all suites"]
    used = [f"toy/order: {e.id}" for e in made.examples if e.distance != 0]
    used += [f"toy/other: {e.id}" for e in made.examples[:3] if e.distance != 0]
    assert list(found["all suites"]["decisions"]) == used
    for pooled, is_shared in ((found["all suites"], True), (found["toy/other"], False)):
        copy.write_text(json.dumps({**found, "all suites": pooled}))
        assert ("\nall suites, " in succeed("compare-decisions", out, copy).out) == is_shared
