"""`cotext compare`: figures worked out by hand, what the words say of them, and the command on small runs."""

import csv
import io
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import TINY, World, cotext, make_world, succeed

from cotext.compare.figures import RunComparison, compare_runs, uses_of
from cotext.compare.job import Request, name_runs
from cotext.compare.measured import DocumentUse, EvaluationSet, MeasuredRun, Use
from cotext.compare.page import render_comparison
from cotext.compare.recipe import RecipeOf, recipe_of
from cotext.compare.tables import CSV_COLUMNS, as_csv, as_latex, as_text
from cotext.compare.verdict import uses_context, verdict
from cotext.config import load_config
from cotext.data.suites import ContrastiveExample, ContrastiveSuite
from cotext.errors import CotextError
from cotext.metrics.decisions import Decisions
from cotext.metrics.significance import Resampling

DRAWS = Resampling(samples=1000)
OWN = RecipeOf(None, ())


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.getbasetemp() / "world")


def suite(name: str, counts: Mapping[int, int]) -> ContrastiveSuite:
    """Examples by distance, with two candidates."""
    examples = tuple(
        ContrastiveExample(f"{d}-{n}", "pronoun", d, ("it",), (("er",), ("sie",)), 0)
        for d, count in counts.items()
        for n in range(count)
    )
    return ContrastiveSuite(name, "en", "de", examples)


def run(
    title: str,
    made: ContrastiveSuite,
    right: Mapping[int, int],
    before: int = 0,
    use: Use | None = None,
    recipe: RecipeOf = OWN,
    rules: str = "tie:wrong|score:sum",
) -> MeasuredRun:
    """A run that decides the first so many examples of each distance right."""
    decided = {e.id: int(e.id.partition("-")[2]) < right[int(e.id.partition("-")[0])] for e in made.examples}
    return MeasuredRun(
        path=Path("runs", title),
        title=title,
        recipe=recipe,
        before=before,
        after=0,
        target_before=before,
        parameters=1000,
        updates=20,
        curve=((10, 2.0), (20, 0.5)),
        signature="view:window",
        data="x",
        hypothesis=None,
        decisions={made.name: Decisions(made.name, f"suite:{made.name}|{rules}", decided)},
        use=use,
        attention=None,
    )


def compared(runs: Sequence[MeasuredRun], made: ContrastiveSuite) -> RunComparison:
    return compare_runs(runs, None, {made.name: made}, protocols=["s-bleu"], resampling=DRAWS)


SUITE = suite("controlled/pronoun", {0: 10, 1: 20, 2: 4, 5: 20})


@pytest.fixture
def usual() -> RunComparison:
    blind = run("base", SUITE, {0: 10, 1: 10, 2: 2, 5: 10})
    return compared([blind, run("s4to4", SUITE, {0: 10, 1: 20, 2: 4, 5: 10}, before=3)], SUITE)


def test_choices_are_tested_where_the_clue_is_in_sight(usual: RunComparison) -> None:
    """10 won, none lost: mid-p is 1 / 2 ** 10; 2 won: 1 / 2 ** 2. Holm doubles the smaller."""
    one, two = usual.choices
    assert (one.distance, two.distance) == ("1", "2")
    assert (one.first, one.own, one.test.difference) == (50.0, 100.0, 50.0)
    assert one.test.p_mid == pytest.approx(1 / 1024)
    assert one.p_corrected == pytest.approx(2 / 1024)
    assert two.p_corrected == pytest.approx(1 / 4)
    assert (one.significant, two.significant) == (True, False)
    assert not one.first_sees


def test_rows_hold_every_distance(usual: RunComparison) -> None:
    cells = {row.distance: [(c.percent, c.in_reach) for c in row.cells] for row in usual.rows}
    assert cells == {
        "0": [(100.0, True), (100.0, True)],
        "1": [(50.0, False), (100.0, True)],
        "2": [(50.0, False), (100.0, True)],
        ">3": [(50.0, False), (50.0, False)],
    }


def test_the_words_follow_from_the_figures(usual: RunComparison) -> None:
    words = {answer.question: answer.lines for answer in verdict(usual)}
    assert words["Which system uses context?"] == (
        "s4to4 uses context.",
        "base sees one sentence at a time, and cannot use any.",
    )
    assert words["Where?"] == ("s4to4: in pronoun (1 back); not in pronoun (2 back).",)
    assert words["How much?"][0].startswith(
        "s4to4: 100.0 % right in pronoun, where base has 50.0 % (+50.0 points"
    )
    assert "1 of 2 differences" in words["Is the difference real?"][0]
    assert "p at most 0.0020" in words["Is the difference real?"][0]
    assert (
        words["Is the difference real?"][1]
        == "No difference found: s4to4 in pronoun (2 back) (p at least 0.2500)."
    )
    assert "Are the translations better?" not in words


def test_context_that_is_seen_and_not_used() -> None:
    blind = run("base", SUITE, {0: 10, 1: 10, 2: 2, 5: 10})
    idle = run("idle", SUITE, {0: 10, 1: 11, 2: 2, 5: 10}, before=3)
    found = compared([blind, idle], SUITE)
    assert uses_context(found, 1) is False
    assert "idle sees context, and nothing shows that it is used." in verdict(found)[0].lines


def test_two_that_see_the_same_are_not_said_to_use_what_the_other_does_not_see() -> None:
    natural = suite("contrapro-ctx1", {1: 20})
    runs = [run(t, natural, {1: n}, before=1) for t, n in (("a", 5), ("b", 19))]
    found = compared(runs, natural)
    assert [t.first_sees for t in found.choices] == [True]
    assert uses_context(found, 1) is None
    lines = [line for answer in verdict(found) for line in answer.lines]
    assert any("cannot be told" in line for line in lines)
    assert any(
        line.startswith("b makes of context that a sees as well more in contrapro-ctx1") for line in lines
    )


def test_above_chance_counts_only_where_guessing_gives_chance() -> None:
    for name, expected in (("controlled/pronoun", True), ("contrapro-ctx1", None)):
        made = suite(name, {1: 40})
        assert uses_context(compared([run("a", made, {1: 40}, before=1)], made), 0) is expected


def test_use_of_context_by_hand() -> None:
    use = Use(
        "s", {"true": (DocumentUse(1.0, 10), DocumentUse(3.0, 10)), "random": (DocumentUse(-1.0, 10),) * 2}
    )
    true, other = uses_of(use, DRAWS)
    assert (true.nats, true.tokens, true.documents) == (0.2, 20, 2)
    assert true.interval_95 == pytest.approx((0.1, 0.3))
    assert true.p == pytest.approx(2 / 1001)
    assert other.interval_95 == pytest.approx((-0.1, -0.1))
    found = compared([run("a", SUITE, {0: 10, 1: 10, 2: 2, 5: 10}, before=3, use=use)], SUITE)
    assert uses_context(found, 0) is True


def test_random_context_that_helps_as_much_is_no_use() -> None:
    same = (DocumentUse(1.0, 10), DocumentUse(3.0, 10))
    use = Use("s", {"true": same, "random": same})
    found = compared([run("a", SUITE, {0: 10, 1: 10, 2: 2, 5: 10}, before=3, use=use)], SUITE)
    assert uses_context(found, 0) is False


def test_published_values_stand_beside_measured_ones() -> None:
    """Lupo et al. 2022, table 2: 32.89 and 68.89 at distance 1."""
    recipes = [RecipeOf(f"focused-concatenation/{name}", ()) for name in ("base", "s4to4")]
    made = suite("controlled/pronoun", {0: 10, 1: 20})
    runs = [
        run("base", made, {0: 10, 1: 10}, recipe=recipes[0]),
        run("s4to4", made, {0: 10, 1: 20}, before=3, recipe=recipes[1]),
    ]
    found = compared(runs, made)
    (ours,) = [
        b
        for b in found.beside
        if (b.run, b.published.place, b.published.column) == (1, "Lupo et al. 2022, table 2", "d = 1")
    ]
    assert (ours.published.value, ours.first_published) == (68.89, 32.89)
    assert (ours.measured, ours.first_measured) == (100.0, 50.0)
    page = render_comparison(found)
    assert "+36" in page
    assert "here 100, +50" in page
    assert "other corpora" in page
    assert "Lupo et al. 2022, table 2" in as_text(found)


def test_a_changed_recipe_has_no_published_value_of_the_recipe() -> None:
    changed = RecipeOf("focused-concatenation/s4to4", ("view.before=1",))
    found = compared([run("a", SUITE, {0: 1, 1: 1, 2: 1, 5: 1}, before=1, recipe=changed)], SUITE)
    assert not found.beside
    assert any("no published value" in note for note in found.notes)


def test_recipes_are_recognised() -> None:
    config = load_config("focused-concatenation/s4to4-cd", "tiny", ["train.max_updates=3"])
    assert recipe_of(config) == RecipeOf("focused-concatenation/s4to4-cd", ())
    changed = load_config("focused-concatenation/s4to4-cd", "tiny", ["loss.context_discount=0.5"])
    assert recipe_of(changed).changes == ("loss.context_discount=0.5",)
    # A line of an older version.
    older = load_config("g-transformer/randinit", "tiny").model_copy(
        update={"paper": "Bao et al.: G-Trans (randinit)"}
    )
    assert recipe_of(older).name == "g-transformer/randinit"


def test_decisions_by_other_rules_are_refused() -> None:
    right = {0: 10, 1: 10, 2: 2, 5: 10}
    runs = [run("a", SUITE, right), run("b", SUITE, right, rules="tie:first|score:sum")]
    with pytest.raises(CotextError, match="judged by"):
        compared(runs, SUITE)


def test_decisions_on_other_examples_are_refused() -> None:
    right = {0: 10, 1: 10, 2: 2, 5: 10}
    less = run("b", SUITE, right)
    decided = less.decisions[SUITE.name]
    fewer = replace(decided, right=dict(list(decided.right.items())[1:]))
    with pytest.raises(CotextError, match="same examples"):
        compared([run("a", SUITE, right), replace(less, decisions={SUITE.name: fewer})], SUITE)


def test_csv_and_latex(usual: RunComparison) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(usual))))
    assert list(lines[0]) == list(CSV_COLUMNS)
    (line,) = [e for e in lines if (e["kind"], e["system"], e["group"]) == ("choices in sight", "s4to4", "1")]
    assert (line["value"], line["difference"], line["baseline"]) == ("100.0", "50.0", "base")
    latex = as_latex(usual)
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    rows = [row for row in latex.splitlines() if row.endswith(r"\\")]
    assert [row.count("&") for row in rows] == [1] * 3 + [4] * 5
    assert rows[-1] == r"pronoun & \textgreater{}3 & 50.0 & (50.0) & (50.0) \\"


def test_names_of_runs(tmp_path: Path) -> None:
    assert name_runs([Path("x/a"), Path("x/b")]) == ["a", "b"]
    assert name_runs([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]
    with pytest.raises(CotextError, match="given twice"):
        name_runs([Path("x/a"), Path("x/../x/a")])


def test_the_digest_of_a_test_set_is_of_its_content(tmp_path: Path) -> None:
    for name, text in (("a.en", "one\n"), ("a.de", "eins\n"), ("b.en", "one\n"), ("b.de", "zwei\n")):
        (tmp_path / name).write_text(text)
    one, two = (EvaluationSet(tmp_path / f"{n}.en", tmp_path / f"{n}.de", None) for n in "ab")
    assert one.digest != two.digest
    (tmp_path / "b.de").write_text("eins\n")
    assert one.digest == two.digest


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A sentence system and one that sees a sentence before, in folders that may be written to."""
    folder = tmp_path_factory.mktemp("compare")
    shutil.copytree(world.run, folder / "s2to2")
    for path in (folder / "s2to2").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    succeed(
        "train",
        "focused-concatenation/base",
        *TINY,
        "--data",
        world.folder / "data",
        "--out",
        folder / "base",
    )
    return folder / "base", folder / "s2to2"


def arguments(world: World, runs: Sequence[Path], out: Path) -> list[str | Path]:
    files = [("--source", "test.en"), ("--reference", "test.de"), ("--suite", "suite.json")]
    given = [part for option, name in files for part in (option, world.folder / name)]
    return ["compare", *runs, *given, "--samples", "200", "--out", out]


def test_the_command(world: World, runs: tuple[Path, Path], tmp_path: Path) -> None:
    page, table, latex = tmp_path / "page.html", tmp_path / "c.csv", tmp_path / "t.tex"
    given = [*arguments(world, runs, page), "--csv", table, "--latex", latex]
    shown = succeed(*given).out
    assert "focused-concatenation/base" in shown
    assert "Lupo et al. 2022, table 3" in shown
    assert "test:randomisation|unit:document|n:5|samples:200" in shown
    kept = {path: path.stat().st_mtime_ns for run in runs for path in (run / "compared").iterdir()}
    assert len(kept) == 5  # translations and decisions of both, use of context of one
    text = page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    names = r'(?:src|href|action|data|poster)="(?!#)[^"]*"|@import|<script|<link|url\((?!#)'
    assert not re.search(names, text)
    # Names of XML namespaces are no addresses.
    assert set(re.findall(r"https?://[^\"'\s<)]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "prefers-color-scheme: dark" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(ids)
    # Nothing is measured twice, and the same comes out.
    again = succeed(*given)
    assert again.out == shown
    assert page.read_text(encoding="utf-8") == text
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_decisions_that_are_kept_are_those_of_contrastive(
    world: World, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    succeed(*arguments(world, runs[:1], tmp_path / "page.html"), "--no-attention")
    succeed("contrastive", runs[0], world.folder / "suite.json", "--out", tmp_path / "d.json")
    kept = [json.loads(p.read_text()) for p in (runs[0] / "compared").glob("*.json")]
    decided = json.loads((tmp_path / "d.json").read_text())
    assert [each["toy/order"]["decisions"] for each in kept if "toy/order" in each] == [
        decided["toy/order"]["decisions"]
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--suite": None, "--source": None, "--reference": None}, "nothing to compare on"),
        ({"--reference": None}, "belong together"),
        ({"--source": "none.en"}, "no such file"),
        ({"--suite": "none.json"}, "none.json"),
        ({"--protocol": "x-bleu"}, "x-bleu"),
        ({"--csv": "page.html"}, "one file"),
        ({"--samples": "3"}, "too few"),
    ],
)
def test_what_cannot_be_compared(
    world: World, runs: tuple[Path, Path], tmp_path: Path, change: dict[str, str | None], message: str
) -> None:
    options: dict[str, str | Path | None] = {
        "--source": world.folder / "test.en",
        "--reference": world.folder / "test.de",
        "--suite": world.folder / "suite.json",
        "--out": tmp_path / "page.html",
    }
    options |= {k: tmp_path / v if v and "." in v else v for k, v in change.items()}
    given = [part for option, value in options.items() if value is not None for part in (option, value)]
    outcome = cotext("compare", *runs, *given)
    assert outcome.code == 2
    assert message in outcome.err
    assert not list(tmp_path.iterdir())


def test_runs_that_are_missing_or_given_twice(world: World, runs: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for bad, message in (
        (tmp_path / "none", "no such run folder"),
        (tmp_path / "empty", "has the run been trained?"),
        (runs[0], "given twice"),
    ):
        outcome = cotext(*arguments(world, [runs[0], bad], tmp_path / "page.html"))
        assert outcome.code == 2
        assert message in outcome.err


def test_what_is_kept_and_damaged(world: World, runs: tuple[Path, Path], tmp_path: Path) -> None:
    given = arguments(world, runs, tmp_path / "page.html")
    succeed(*given)
    (kept,) = (runs[1] / "compared").glob("*.use.json")
    kept.write_text("{")
    outcome = cotext(*given)
    kept.unlink()
    assert outcome.code == 2
    assert "damaged" in outcome.err


def test_a_folder_without_a_test_set(world: World, runs: tuple[Path, Path], tmp_path: Path) -> None:
    outcome = cotext("compare", *runs, "--data", world.folder / "data", "--out", tmp_path / "page.html")
    assert outcome.code == 2
    assert "holds no test set" in outcome.err
    assert Request((runs[0],)).protocols == ()
