"""Accuracy over several suites together."""

import json
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.contrastive import (
    CandidateScores,
    ContrastiveReport,
    contrastive_accuracy,
    render_table,
)
from cotext.evaluation.studies.contrastive.decisions import pool, pooled_aggregates
from tests.command_line import World, succeed

# Right decisions of s4to4 + CD on deixis, lexical cohesion, ellipsis (inflection), ellipsis (verb phrase).
PAPER = {"deixis": (2179, 2500), "lex": (696, 1500), "infl": (405, 500), "vp": (391, 500)}


def test_disc_is_that_of_the_paper() -> None:
    """Lupo et al. 2022, table 8: 73.42 and 73.19."""
    right = {name: [n < won for n in range(total)] for name, (won, total) in PAPER.items()}
    found = pooled_aggregates(right)
    assert found == pytest.approx({"disc": 73.42, "disc_avg": 73.19})


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
    reports = {name: decided(suites[name], each) for name, each in marks.items()}
    assert pool({"p": suites["p"], "same": suites["same"]}, reports) is None
    found = pool(suites, reports)
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
    assert "all suites" not in succeed("contrastive", world.run, both[0]).out
    copy.write_text(out.read_text())
    assert "all suites" in succeed("compare-decisions", out, copy).out
