"""`cotext compare`: figures worked out by hand, what the words say of them, and the command on small runs."""

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from cotext.data.documents import Languages, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.evaluation.metrics.contrastive import Reading, Readings
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare import measured
from cotext.evaluation.studies.compare.comparison import RunComparison, compare_runs
from cotext.evaluation.studies.compare.measured import (
    CorpusCxmi,
    EvaluationSet,
    MeasuredRun,
    MeasuredSystem,
    context_gains,
)
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.compare.report import as_dict, as_text, example, render_comparison
from cotext.evaluation.studies.compare.verdict import context_words, uses_context, verdict
from cotext.evaluation.studies.context.context_use import SentenceUse
from cotext.evaluation.studies.contrastive.decisions import Decisions
from cotext.evaluation.studies.contrastive.evidence import WHOLE_DOCUMENT, ContextWindow
from cotext.models.checkpoint import load_weights, save_model
from cotext.models.run_folder import describe_file
from cotext.runtime.progress import Meter
from tests.command_line import TINY, World, must_refuse, succeed, train_arguments, writable_copy
from tests.deciding import UNBALANCED, dashes, decided, guesser, reader
from tests.loops import loop_over
from tests.pages import Page

DRAWS = Resampling(samples=1000)
OWN = MatchedRecipe(None, ())


def suite(name: str, counts: Mapping[int, int], documents: int = 1000) -> ContrastiveSuite:
    """Examples by distance, with two candidates, each of a document of its own, up to so many documents."""
    examples = tuple(
        ContrastiveExample(
            f"{d}-{n}", "pronoun", d, (f"a {d} {n}", f"it {d} {n}"), (("A", "er"), ("A", "sie")), n % 2,
            document=f"{d}-{n % documents}",
        )
        for d, count in counts.items()
        for n in range(count)
    )  # fmt: skip
    return ContrastiveSuite(name, "en", "de", examples)


def run(
    title: str,
    made: ContrastiveSuite,
    right: Mapping[int, int],
    before: int = 0,
    use: CorpusCxmi | None = None,
    recipe: MatchedRecipe = OWN,
    rules: str = "tie:wrong|score:sum",
    alone: Mapping[int, int] | None = None,
    foreign: Mapping[int, int] | None = None,
) -> MeasuredRun:
    """A run that decides the first so many examples of each distance right.

    `alone`, `foreign`: so many without context and beside sentences of other documents. Where they are given,
    the right candidates that it decides right have a nat more than the others.
    """

    def first(counts: Mapping[int, int]) -> dict[str, bool]:
        places = ((e.id, *map(int, e.id.rsplit("-", 1))) for e in made.examples)
        return {id: n < counts[d] for id, d, n in places}

    decided, readings = first(right), None
    if alone is not None and foreign is not None:
        contexts = {"true": decided, "none": first(alone), "foreign": first(foreign)}
        nats = {kind: {id: float(each[id]) - 2 for id in each} for kind, each in contexts.items()}
        readings = Readings(
            {kind: Reading(each, nats[kind]) for kind, each in contexts.items()}, dict.fromkeys(decided, 2)
        )
    decisions = Decisions(made.name, f"suite:{made.name}|{rules}", decided, {}, readings)
    fixed = {"parameters": 1000, "updates": 20, "signature": "view:window", "data": "x"}
    return MeasuredRun(
        path=Path("runs", title),
        title=title,
        recipe=recipe,
        languages=Languages("en", "de"),
        window=ContextWindow(before, 0, before),
        hypothesis=None,
        decisions={made.name: decisions},
        use=use,
        **fixed,
    )


def compared(runs: Sequence[MeasuredRun], made: ContrastiveSuite) -> RunComparison:
    systems = [MeasuredSystem(run.title, (run,)) for run in runs]
    return compare_runs(systems, None, {made.name: made}, protocols=["s-bleu"], resampling=DRAWS)


def said(found: RunComparison) -> str:
    return "\n".join(line for lines in verdict(found).values() for line in lines)


Runs = tuple[Path, Path]
SUITE = suite("controlled/pronoun", {0: 20, 1: 40, 2: 4, 5: 40})
HALF = {0: 20, 1: 20, 2: 2, 5: 20}


@pytest.fixture(scope="module")
def usual() -> RunComparison:
    seeing = run("s4to4", SUITE, {0: 20, 1: 38, 2: 4, 5: 20}, before=3, alone=HALF, foreign=HALF)
    return compared([run("base", SUITE, HALF), seeing], SUITE)


def test_first_losses_and_a_run_that_ended_as_its_start() -> None:
    """All that it decides right, its start did: so in every table, and in the label of some seeds."""
    seeing = run("new", SUITE, {0: 20, 1: 38, 2: 4, 5: 20}, before=3, alone=HALF, foreign=HALF)
    learned = replace(seeing, first_loss=(0.25, 0.125))
    stayed = replace(seeing, title="old", first_loss=(3.5, 0.125), is_start=True)
    found = compared([run("base", SUITE, HALF), learned, stayed], SUITE)
    row = next(row for row in found.rows if row.group.distance == "1")
    assert (row.verdict, [cell.shown for cell in row.cells]) == ("context is used", [False, True, False])
    alone = compared([run("base", SUITE, HALF), stayed], SUITE)
    assert {row.verdict for row in alone.rows if row.group.distance in ("1", "2")} == {"not learned"}
    for shown in (as_text(found), render_comparison(found)):
        assert "0.250 (0.125)" in shown
        assert "3.500 (0.125)" in shown
    losses = [line["value"] for line in as_dict(found)["figures"] if line["name"] == "first loss"]
    assert losses == [0.25, 3.5]
    assert "first loss" not in as_text(compared([run("base", SUITE, HALF)], SUITE))
    assert render_comparison(found).count("old (not learned)") >= 4
    assert any("no checkpoint is better than the initial model" in note for note in found.notes)
    both = MeasuredSystem("both", (learned, stayed), (1, 2))
    assert both.label == "both (not learned in 1 of 2 seeds)"
    assert both.first_loss == (1.875, 0.125)
    assert MeasuredSystem("x", (learned, replace(stayed, first_loss=None)), (1, 2)).first_loss is None


def test_tests_and_evidence_where_the_clue_is_within_the_window(usual: RunComparison) -> None:
    """18 won, none lost: mid-p is 1 / 2 ** 18; 2 won: 1 / 2 ** 2. Holm doubles the smaller."""
    one, two = usual.contrastive_tests
    assert (one.group.distance, two.group.distance) == ("1", "2")
    assert (one.first, one.own, one.test.difference) == (50.0, 95.0, 45.0)
    assert one.test.p == pytest.approx(2**-18)
    assert one.test.p_corrected == pytest.approx(2**-17)
    assert two.test.p_corrected == pytest.approx(1 / 4)
    assert (one.test.significant, two.test.significant) == (True, False)
    # Four documents: 2 / 2 ** 4 at the least, twice.
    assert (one.too_few, two.too_few) == (False, True)
    assert not one.first_sees
    first, seeing = usual.evidence
    assert first == ()
    assert [(each.group.distance, each.used) for each in seeing] == [("1", True), ("2", None)]
    assert {each.groups for each in seeing} == {2}
    cells = {row.group.distance: [(c.percent, c.in_window, c.shown) for c in row.cells] for row in usual.rows}
    assert cells == {
        "0": [(100.0, True, False), (100.0, True, False)],
        "1": [(50.0, False, False), (95.0, True, True)],
        "2": [(50.0, False, False), (100.0, True, False)],
        ">3": [(50.0, False, False), (50.0, False, False)],
    }
    words = ["", "context is used", "too few documents", "clue not in window"]
    assert [row.verdict for row in usual.rows] == words
    for near, written, words in ((0, 3, "one sentence, 3"), (2, WHOLE_DOCUMENT, "2 before and 2 after, all")):
        system = SimpleNamespace(first=SimpleNamespace(window=ContextWindow(near, near, written)))
        assert context_words(system) == f"{words} before in the translation"


def test_the_words_follow_from_the_figures(usual: RunComparison) -> None:
    words = verdict(usual)
    assert words["Which system uses context?"] == [
        "s4to4 uses context.",
        "base reads single sentences and cannot use context.",
    ]
    assert words["Where?"] == ["s4to4: in pronoun (1 back); too few documents in pronoun (2 back)."]
    others = "50.0 % without context, 50.0 % with context from other documents, 50.0 % by chance"
    assert words["How much?"] == [f"s4to4: 95.0 % accuracy in pronoun ({others})."]
    assert words["Are the differences significant?"] == [
        "1 of 2 differences in contrastive accuracy from base are significant (McNemar's test over documents,"
        " Holm correction for all 2).",
        "Too few documents (at most 4) for any significant difference: 1 of 2.",
    ]
    assert "Are the translations better?" not in words
    # Nothing is bold that is not significant: the accuracy, the five conditions, and the difference.
    cells = re.findall(r"<td[^>]*>(?:(?!</td>).)*<b>([^<]*)</b>", render_comparison(usual))
    assert sorted(cells) == sorted(["95.0", "95.0", "95.0", "50.0", "50.0", "+0.000", "+45.0"])


def test_the_case_of_the_dashes() -> None:
    """A drift from es to sie wins against one that says es, and is no use of context."""
    blind = replace(run("base", SUITE, HALF), decisions={UNBALANCED.name: decided(UNBALANCED, guesser)})
    drifting = replace(
        run("dashes", SUITE, HALF, before=1), decisions={UNBALANCED.name: decided(UNBALANCED, dashes)}
    )
    found = compared([blind, drifting], UNBALANCED)
    (test,) = found.contrastive_tests
    assert test.test.p_corrected < 0.0001
    assert uses_context(found, 1) is False
    group = "contrapro-ctx1 pronoun (1 back)"
    unused = f"dashes has context, but its use is not significant: in {group}: balanced accuracy not above"
    assert said(found).startswith(f"{unused} chance")
    higher = f"dashes has a higher accuracy than base in {group}, but it is not shown that context is the"
    assert f"{higher} reason." in said(found)
    assert [row.verdict for row in found.rows] == ["use not significant"]
    using = replace(drifting, title="reader", decisions={UNBALANCED.name: decided(UNBALANCED, reader)})
    found = compared([drifting, using], UNBALANCED)
    assert (uses_context(found, 0), uses_context(found, 1)) == (False, True)
    assert [row.verdict for row in found.rows] == ["used by 1 of 2"]


def test_without_controls_or_use_context_is_not_said_to_be_used() -> None:
    blind, seeing = run("base", SUITE, HALF), run("s4to4", SUITE, {0: 20, 1: 40, 2: 4, 5: 20}, before=3)
    found = compared([blind, seeing], SUITE)
    assert uses_context(found, 1) is None
    untested = "its accuracy without context and with context from other documents was not measured."
    assert f"Context use of s4to4 cannot be tested: {untested}" in said(found)
    # Nor where no clue is in sight.
    far = suite("controlled/pronoun", {5: 20})
    found = compared([run("base", far, {5: 10}), run("s2to2", far, {5: 10}, before=1)], far)
    untested = "in all suites, the disambiguating sentence is outside its context window."
    assert f"Context use of s2to2 cannot be tested: {untested}" in said(found)
    idle = run("idle", SUITE, {0: 20, 1: 22, 2: 2, 5: 20}, before=3, alone=HALF, foreign=HALF)
    found = compared([run("base", SUITE, HALF), idle], SUITE)
    assert uses_context(found, 1) is False
    assert "idle has context, but its use is not significant: at best, in pronoun (1 back)" in said(found)


def of_test_set(true: Sequence[float], foreign: Sequence[float]) -> CorpusCxmi:
    """What true and foreign context add to the documents of a test set, 10 tokens each."""
    kinds = (("true", true), ("random", foreign))
    return CorpusCxmi("s", {kind: np.array([(nats, 10) for nats in values]) for kind, values in kinds})


def test_use_of_context_by_hand() -> None:
    true, other = context_gains(of_test_set((1.0, 3.0), (-1.0, -1.0)), DRAWS)
    assert (true.nats, true.tokens, true.documents) == (0.2, 20, 2)
    assert true.interval_95 == pytest.approx((0.1, 0.3))
    assert (true.p, other.p) == (0.5, 0.5)
    assert other.interval_95 == pytest.approx((-0.1, -0.1))
    # Both documents differ the same way: half of the patterns of two signs.
    assert (true.p_foreign, other.p_foreign) == (0.5, None)
    found = compared([run("a", SUITE, HALF, before=3, use=of_test_set((1.0, 3.0), (-1.0, -1.0)))], SUITE)
    assert uses_context(found, 0) is None
    assert "too few documents (2) for a significant difference from random context" in said(found)
    [alone] = context_gains(CorpusCxmi("s", {"true": np.array([(1.0, 10)])}), DRAWS)
    assert (alone.p, alone.interval_95) == (1.0, (-math.inf, math.inf))


def test_documents_of_one_id_are_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test.jsonl"
    pairs = [ParallelDocument(id, ("a", "b"), ("A", "B")) for id in ("talk", "talk", "other")]
    write_parallel(file, None, pairs, "jsonl")
    uses = [
        SentenceUse(pair.id, n, n, {"true": (nats,), "random": (0.5,), "none": (0.0,)})
        for pair, nats in zip(pairs, (1.0, 2.0, 3.0), strict=True)
        for n in (0, 1)
    ]
    scored = SimpleNamespace(sentences=uses, signature="")
    monkeypatch.setattr(measured, "measure_corpus", lambda *given: scored)
    opened: Any = SimpleNamespace(folder=tmp_path)
    test = measured.EvaluationSet(file, file, None)
    found = measured._use(opened, tmp_path / "use.json", test, Meter("", 0, None, shown=False))
    assert found is not None
    assert found.documents["true"].tolist() == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]


def test_foreign_context_that_helps_the_test_set_as_much_speaks_against_use() -> None:
    def seeing(use: CorpusCxmi) -> RunComparison:
        made = run("a", SUITE, {0: 20, 1: 40, 2: 4, 5: 20}, before=3, use=use, alone=HALF, foreign=HALF)
        return compared([made], SUITE)

    values = [1.0 + n / 10 for n in range(8)]
    found = seeing(of_test_set(values, [v + 0.1 * (-1) ** n for n, v in enumerate(values)]))
    assert uses_context(found, 0) is False
    assert (
        "contrastive accuracy is significantly higher with context in pronoun (1 back); but the references "
        "of the test set are not significantly more probable" in said(found)
    )
    found = seeing(of_test_set(values, [0.0] * 8))
    assert uses_context(found, 0) is True
    assert "p 0.0078 against context from other documents" in said(found)
    # Too few documents to speak against it.
    assert uses_context(seeing(of_test_set(values[:4], values[:4])), 0) is True


def test_published_values_stand_beside_measured_ones() -> None:
    """Lupo et al. 2022, table 2: 32.89 and 68.89 at distance 1."""
    base, s4to4 = (MatchedRecipe(f"focused-concatenation/{name}", ()) for name in ("base", "s4to4"))
    made = suite("contrapro", {0: 10, 1: 20})
    seeing = run("s4to4", made, {0: 10, 1: 20}, before=3, recipe=s4to4)
    found = compared([run("base", made, {0: 10, 1: 10}, recipe=base), seeing], made)
    cell = (1, "Lupo et al. 2022, table 2", "d = 1")
    of = [(b.run, b.published.table_title, b.published.column) for b in found.published]
    ours = found.published[of.index(cell)]
    assert (ours.published.value, ours.first_published) == (68.89, 32.89)
    assert (ours.measured, ours.first_measured) == (100.0, 50.0)
    assert "here 100, +50" in render_comparison(found)


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A sentence system and one that sees a sentence before, in folders that may be written to."""
    folder = tmp_path_factory.mktemp("compare")
    writable_copy(world.run, folder / "s2to2")
    places = ("--data", world.folder / "data", "--out", folder / "base")
    succeed("train", "focused-concatenation/base", *TINY, *places)
    return folder / "base", folder / "s2to2"


def arguments_of(world: World, runs: Sequence[Path], out: Path) -> list[str | Path]:
    files = [("--source", "test.en"), ("--reference", "test.de"), ("--suite", "suite.json")]
    given = [part for option, name in files for part in (option, world.folder / name)]
    return ["compare", *runs, *given, "--samples", "200", "--out", out]


def test_the_command(world: World, runs: Runs, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    given = [*arguments_of(world, runs, page), "--csv", tmp_path / "c.csv"]
    shown = succeed(*given).out
    assert "focused-concatenation/base" in shown
    # What is published of s2to2 is English-Russian.
    assert "Lupo et al. 2022, table 2" in shown
    assert "Lupo et al. 2022, table 3" not in shown
    assert "test:randomisation|unit:document|n:5|samples:200" in shown
    kept = {path: path.stat().st_mtime_ns for run in runs for path in (run / "compared").iterdir()}
    assert len(kept) == 5  # translations and decisions of both, use of context of one
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(Page(text).ids)
    # Nothing is measured twice, and the same comes out.
    again = succeed(*given)
    assert again.out == shown
    assert page.read_text(encoding="utf-8") == text
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    [stored] = (runs[1] / "compared").glob("*.use.json")
    for damage in ("{", "{}", '{"documents": {"true": {"d": [[1], 2]}}}'):
        stored.write_text(damage)
        must_refuse("damaged", *given)
    stored.unlink()


def test_a_run_that_ended_as_its_start(world: World, runs: Runs, tmp_path: Path) -> None:
    """A learning rate that destroys the model: what is left is the start, at the loss of the sentence run."""
    spoilt = tmp_path / "spoilt"
    settings = ["model.neutral_start=true", "train.learning_rate=5", "train.warmup_updates=0"]
    succeed(*train_arguments(world.folder, spoilt, *settings, "--init", runs[0]))
    files = ["--source", world.folder / "test.en", "--reference", world.folder / "test.de"]
    out = ["--samples", "200", "--no-use", "--out", tmp_path / "page.html"]
    shown = succeed("compare", runs[0], spoilt, *files, *out).out
    line = next(line for line in shown.splitlines() if line.lstrip().startswith("spoilt (not learned)"))
    own, there = re.findall(r"(\d\.\d{3}) \((\d\.\d{3})\)", line)[0]
    assert own == there
    (spoilt / "init.json").write_text("damaged")  # not needed to compare
    metrics, note = spoilt / "metrics.jsonl", "spoilt: training is not finished"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    again = succeed("compare", runs[0], spoilt, *files, *out).out
    assert (note in shown, note in again, "first loss" in again) == (False, True, False)


def test_windows_of_another_size_decide_suites_too(world: World, runs: Runs, tmp_path: Path) -> None:
    seeing = runs[1]
    given = [*arguments_of(world, (seeing,), tmp_path / "page.html"), "--no-use"]
    succeed(*given)
    before = set((seeing / "compared").glob("*.json"))
    succeed(*given, "--set", "precision=int8")  # measured apart, as any other settings
    in_bytes = set((seeing / "compared").glob("*.json")) - before
    assert sum("toy/order" in json.loads(path.read_text()) for path in in_bytes) == 1
    succeed(*given, "--set", "before=0")
    made = set((seeing / "compared").glob("*.json")) - before - in_bytes
    [alone] = [path for path in made if "toy/order" in json.loads(path.read_text())]
    out = ("--out", tmp_path / "d.json")
    succeed("contrastive", seeing, world.folder / "suite.json", "--set", "before=0", *out)
    decided = json.loads((tmp_path / "d.json").read_text())["toy/order"]
    found = json.loads(alone.read_text())["toy/order"]
    assert found["decisions"] == decided["decisions"]
    assert "view:window-0+1+0" in found["signature"]
    assert "view:window-0+1+0" in decided["signature"]


def test_controls_are_measured_when_they_are_asked_for(world: World, runs: Runs, tmp_path: Path) -> None:
    given = ["compare", *runs, "--suite", world.folder / "suite.json", "--out", tmp_path / "page.html"]
    shutil.rmtree(runs[1] / "compared", ignore_errors=True)
    unmeasured = "accuracy without context and with context from other documents was not measured"
    assert unmeasured in succeed(*given, "--no-controls").out
    (kept,) = (runs[1] / "compared").glob("*.json")
    before = json.loads(kept.read_text())["toy/order"]
    assert "contexts" not in before
    kept.write_text(json.dumps({"its former name": before}))
    assert "Context use, tested" in succeed(*given).out
    after = json.loads(kept.read_text())["toy/order"]
    assert after.pop("contexts")
    assert after == before
    # Measured once, they are shown without being asked for.
    assert "Context use, tested" in succeed(*given, "--no-controls").out


def test_runs_and_suites_of_other_languages_are_refused(world: World, runs: Runs, tmp_path: Path) -> None:
    suite = read_suite(world.folder / "suite.json")
    write_suite(tmp_path / "suite.json", replace(suite, source_language="fr"))
    page = ("--out", tmp_path / "page.html")
    must_refuse("suite.json is fr-de, and", "compare", *runs, "--suite", tmp_path / "suite.json", *page)
    write_suite(tmp_path / "toy.json", replace(suite, name=f"controlled/{suite.name}"))
    alike = ["--suite", world.folder / "suite.json", "--suite", tmp_path / "toy.json"]
    must_refuse(f"toy.json: a suite of the same name ({suite.name}) as", "compare", *runs, *alike, *page)
    swapped = ["--source", world.folder / "test.de", "--reference", world.folder / "test.en"]
    must_refuse("the names say de-en", "compare", *runs, *swapped, *page)
    shutil.copytree(runs[0], tmp_path / "other")
    path = tmp_path / "other" / "model.safetensors"
    described = describe_file(path)
    config = described.config.model_copy(update={"languages": "en-ru"})
    save_model(path, load_weights(path), config, described.fingerprint, described.updates)
    must_refuse("other is en-ru, and", *arguments_of(world, [runs[0], tmp_path / "other"], page[1]))
    for bad, message in (
        (world.folder / "test.de", "compare measures runs"),
        (tmp_path / "none", "no such run folder"),
        (runs[0], "given twice"),
    ):
        must_refuse(message, *arguments_of(world, [runs[0], bad], page[1]))
    assert not (tmp_path / "page.html").exists()


@loop_over(
    ("options", "message"),
    [
        ("", "nothing to compare on"),
        ("--source {world}/test.en --suite {world}/suite.json", "belong together"),
        ("--source none.en --reference {world}/test.de", "no such file"),
        ("{test} --csv {out}/page.html", "one file"),
        ("{test} --words none.data", "none.data"),
        ("--data data", "no prepared data there"),
        ("--suite {world}/suite.json --words none.data", "--words needs a test set"),
        ("--suite {world}/suite.json --protocol ter", "--protocol needs a test set"),
    ],
)
def test_what_is_not_compared(world: World, runs: Runs, tmp_path: Path, options: str, message: str) -> None:
    whole = options.replace("{test}", "--source {world}/test.en --reference {world}/test.de")
    given = whole.format(world=world.folder, out=tmp_path).split()
    must_refuse(message, "compare", *runs, *given, "--out", tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_document_is_said_to_differ_where_it_does(tmp_path: Path) -> None:
    for name, text in (("s", "It is old."), ("r", "Es ist alt."), ("a", "Es ist alt."), ("b", "Er ist alt.")):
        (tmp_path / name).write_text(f"{text}\n")
    test = EvaluationSet(tmp_path / "s", tmp_path / "r", None)
    systems = [SimpleNamespace(label=n, first=SimpleNamespace(hypothesis=tmp_path / n)) for n in "ab"]
    assert "<caption>Document 1.</caption>" in example(SimpleNamespace(runs=systems[:1], test=test))
    shown = example(SimpleNamespace(runs=systems, test=test))
    assert "<caption>Document 1: the systems differ" in shown
    assert "<mark>Er</mark> ist alt." in shown
