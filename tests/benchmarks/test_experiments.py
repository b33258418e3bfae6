"""Experiments: two rows of a few updates from nothing to their tables, in one call and in several."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest

from benchmarks.experiments import runner
from benchmarks.experiments.__main__ import main
from benchmarks.experiments.changed import change_run
from benchmarks.experiments.curves import draw, points
from benchmarks.experiments.measures import Place, figures, flat, of_suites, steps
from benchmarks.experiments.plan import Contrastive, Measure, read_experiment, require_recipes
from benchmarks.experiments.runner import Budget, Runner
from benchmarks.experiments.tables import render
from cotext.data.formats import read_documents
from cotext.models.checkpoint import load_run
from tests.benchmarks.here import run_here
from tests.command_line import World, succeed
from tests.loops import loop_over
from tests.refusals import must_raise

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "experiments").glob("*.yaml"))
EXPERIMENT = """
title: Two rows
variables: {updates: 4}
size: tiny
settings:
  model.dimension: 16
  model.feed_forward: 32
  model.heads: 2
  model.encoder_layers: 1
  model.decoder_layers: 1
  train.max_updates: ${updates}
  train.max_tokens: 3000  # the development corpus is of a size, and is read eight times
  train.validate_every: 2
  train.log_every: 2
  train.validate_bleu: false
  train.threads: 1
data:
  main: {controlled: {documents: 60, examples: 4}}
rows:
  later: {recipe: focused-concatenation/s2to2, init: first, value: 9, measures: [training]}
  first: {recipe: focused-concatenation/base, value: 1}
measures:
  training: {training: true}
  accuracy: {contrastive: {suites: ["{data}/contrastive/register.json"]}}
tables:
  - title: Figures
    columns:
      updates: training.updates:.0f
      "loss at *": training.nll_current.at.*:.2f
      register: accuracy.register
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the experiment, run to its end in one call."""
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "two.yaml").write_text(EXPERIMENT)
    assert run(folder, "--at-once", "2") == 0
    return folder


class RunHere:
    """In the place of a process: a command that has run in this one, which has imported everything."""

    def __init__(self, command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], **_: Any) -> None:
        done = run_here(command)
        stdout.write(done.out.encode())
        stderr.write(done.err.encode())
        self.code = done.code

    def poll(self) -> int:
        return self.code


def run(folder: Path, *arguments: str) -> int:
    """Run an experiment, its commands here: that they run in processes, the test of a stop shows."""
    with patch.object(runner.subprocess, "Popen", RunHere):
        return main([str(folder / "two.yaml"), "--out", str(folder / "out"), *arguments])


def results(folder: Path) -> dict[str, dict[str, dict[str, dict[str, dict[str, dict[str, float]]]]]]:
    return json.loads((folder / "out" / "results.json").read_text())


def test_rows_are_trained_measured_and_told(finished: Path) -> None:
    rows = results(finished)["rows"]
    assert list(rows) == ["first", "later"]  # a row of higher value, after the one that it starts from
    first = rows["first"]["1"]["measures"]
    assert first["training"]["figures"]["updates"] == 4
    assert 0 <= first["accuracy"]["figures"]["register"] <= 100
    assert list(rows["later"]["1"]["measures"]) == ["training"]
    assert (finished / "out" / "runs" / "later-1" / "init.json").is_file()
    assert rows["later"]["1"]["measures"]["training"]["figures"]["start.rows"] > 0
    assert "start.rows" not in first["training"]["figures"]
    page = (finished / "out" / "tables.md").read_text()
    assert "|  | updates | loss at 0 | loss at 2 | loss at 4 | register |" in page
    assert re.search(r"^\| first \| 4 \|  \| \d+\.\d\d \| \d+\.\d\d \| \d+\.\d \|$", page, re.MULTILINE)
    assert re.search(r"^\| later \| 4 \| \d+\.\d\d \| \d+\.\d\d \| \d+\.\d\d \|  \|$", page, re.MULTILINE)
    assert "* **later**: focused-concatenation/s2to2, size tiny, from first" in page
    assert "seed 1: model:transformer|updates:" in page
    assert "cotext 0." in page


def test_a_second_call_repeats_nothing_but_what_is_asked_for_otherwise(finished: Path) -> None:
    logs = finished / "out" / "logs"
    shutil.rmtree(logs)
    assert run(finished) == 0
    assert not logs.exists()
    before = (finished / "two.yaml").read_text()
    asked = '{contrastive: {suites: ["{data}/contrastive/register.json"]}}'
    (finished / "two.yaml").write_text(before.replace(asked, '{cotext: [head, "{data}/test.en"]}'))
    assert run(finished) == 0
    (finished / "two.yaml").write_text(before)
    assert [path.name for path in logs.iterdir()] == ["row-first-1-1.log"]
    assert results(finished)["rows"]["first"]["1"]["measures"]["accuracy"]["figures"] == {}


class AskedLater:
    """A request to stop that comes when training has told something of itself."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @property
    def requested(self) -> bool:
        return (self.run / "metrics.jsonl").is_file()


def test_a_stop_leaves_a_checkpoint_from_which_the_next_call_goes_on(finished: Path, tmp_path: Path) -> None:
    text = EXPERIMENT.replace("{controlled: {documents: 60, examples: 4}}", "{folder: DATA}")
    (tmp_path / "two.yaml").write_text(text.replace("DATA", str(finished / "out" / "data" / "main")))
    # Far more updates than are made until the request comes.
    endless = ["updates=1000000", "train.validate_every=1000000"]
    runner = Runner(read_experiment(tmp_path / "two.yaml", endless), tmp_path / "out", None, print)
    (tmp_path / "out").mkdir()
    run_folder = tmp_path / "out" / "runs" / "first-1"
    assert runner.run(["first"], 1, Budget(), AskedLater(run_folder)).stopped
    [checkpoint] = (run_folder / "checkpoints").glob("[0-9]*")
    reached = int(checkpoint.name)
    assert reached > 0
    assert "seed 1: not trained to the end" in (tmp_path / "out" / "tables.md").read_text()
    more = ("--set", f"updates={reached + 1}", "train.validate_every=1000000")
    chosen = ("--rows", "first")
    measures = (tmp_path / "two.yaml").read_text().replace("value: 1}", "value: 1, measures: [training]}")
    (tmp_path / "two.yaml").write_text(measures)
    assert run(tmp_path, *chosen, *more) == 0
    log = (tmp_path / "out" / "logs" / "row-first-1-1.log").read_text()
    assert f"going on from update {reached}" in log
    training = results(tmp_path)["rows"]["first"]["1"]["measures"]["training"]
    assert training["figures"]["updates"] == reached + 1


def test_when_the_time_is_over_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    assert run(tmp_path, "--minutes", "1e-9") == 130
    assert not (tmp_path / "out" / "logs").exists()
    budget = Budget.of(10)
    assert 29.9 < budget.end - budget.ask < 30.1
    budget = Budget.of(1)  # of a short time, a tenth
    assert 5.9 < budget.end - budget.ask < 6.1


def test_what_fails_is_told_and_takes_along_what_needs_it(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXPERIMENT.replace("{controlled: {documents: 60, examples: 4}}", "{folder: nowhere}")
    (tmp_path / "two.yaml").write_text(text)
    assert run(tmp_path) == 1
    told = capsys.readouterr().err
    assert "data main: nowhere: no prepared data there" in told
    assert "row later 1: data main failed" in told
    # In the middle of a row: what was measured before it stays.
    shutil.copytree(finished / "out", tmp_path / "other" / "out")
    asked = '{contrastive: {suites: ["{data}/contrastive/register.json"]}}'
    text = EXPERIMENT.replace(asked, "{cotext: [head, nowhere.txt]}")
    (tmp_path / "other" / "two.yaml").write_text(text)
    assert run(tmp_path / "other", "--rows", "first") == 1
    assert "nowhere.txt" in capsys.readouterr().err
    page = (tmp_path / "other" / "out" / "tables.md").read_text()
    assert "exit code 2" in page
    assert "| first | 4 |" in page


def entry(figures: dict[str, float]) -> dict[str, object]:
    return {"signature": "model:x", "measures": {"training": {"figures": figures}}}


def test_seeds_are_told_by_mean_and_spread(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    experiment = read_experiment(tmp_path / "two.yaml")
    figures = [{"updates": 10.0, "nll_current.at.10": v, "nll_current.at.5": 3.0} for v in (1.0, 2.0)]
    rows = {"first": {str(seed): entry(each) for seed, each in enumerate(figures, 1)}}
    page = render(experiment, {"rows": rows, "data": {}, "versions": {"cotext": "1"}})
    assert "|  | updates | loss at 5 | loss at 10 | register |" in page
    assert "| first (2 seeds) | 10 (10-10) | 3.00 (3.00-3.00) | 1.50 (1.00-2.00) |  |" in page
    assert "| later |" not in page


def test_more_valuable_rows_come_first_and_second_seeds_last(tmp_path: Path) -> None:
    rows = """
  a: {recipe: focused-concatenation/base, value: 1, seeds: [1, 2]}
  b: {recipe: focused-concatenation/base, value: 1}
  c: {recipe: focused-concatenation/s2to2, init: a, value: 5, seeds: [2]}
  d: {recipe: focused-concatenation/base, value: 3}
  e: {changed: c, settings: {view.before: 0}}
"""
    text = re.sub(r"^rows:\n.*?(?=^measures:)", f"rows:{rows}", EXPERIMENT, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "two.yaml").write_text(text)
    experiment = read_experiment(tmp_path / "two.yaml")
    assert experiment.in_order() == [("a", 2), ("c", 2), ("d", 1), ("a", 1), ("b", 1), ("e", 2)]
    assert experiment.in_order(["d"]) == [("d", 1)]
    assert read_experiment(tmp_path / "two.yaml", (), ["d=3,1"]).in_order(["d"]) == [("d", 3), ("d", 1)]
    assert experiment.in_order(["e"]) == [("a", 2), ("c", 2), ("e", 2)]


def test_translations_of_an_excerpt_and_of_checkpoints(world: World, tmp_path: Path) -> None:
    source, reference = (str(world.folder / f"dev.{side}") for side in ("en", "de"))
    asked = {"source": source, "reference": reference, "documents": 2, "settings": {"beam": 1}}
    for single, sentences in ((False, False), (True, True)):
        content = {**asked, "single_sentences": single, "checkpoints": not single}
        measure = Measure.model_validate({"translation": content})
        out = tmp_path / f"{single}" / "bleu.json"
        out.parent.mkdir()
        place = Place(world.run, world.folder / "data", out, {}, {})
        for step in steps(measure, place, "cpu"):
            done = succeed(*step.arguments[3:])
            if step.printed is not None:
                step.printed.write_text(done.out)
        found = figures(measure, place)
        assert {"s-bleu", "d-bleu"} <= found.keys()
        assert ("s-bleu.at.3" in found) is not single
        documents = list(read_documents(tmp_path / f"{single}" / "bleu.source.jsonl"))
        assert (len(documents) > 2) is sentences
        assert sum(map(len, documents)) == sum(map(len, list(read_documents(Path(source)))[:2]))


def test_a_run_with_other_settings_keeps_its_weights(world: World, tmp_path: Path) -> None:
    change_run(world.run, tmp_path / "changed", ["view.before=0"])
    before, after = load_run(world.run), load_run(tmp_path / "changed")
    assert after.config.view.before == 0 != before.config.view.before
    assert before.model.state_dict().keys() == after.model.state_dict().keys()
    assert before.updates == after.updates
    must_raise("has no weights for", change_run, world.run, tmp_path / "deeper", ["model.encoder_layers=2"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Two rows", "titel: Two rows", "unknown key 'titel'"),
        ("value: 9", "worth: 9", "unknown key 'rows.later.worth'"),
        ("value: 9", "value: much", "rows.later.value"),
        ("init: first", "init: frist", "rows.later.init: no 'frist'; did you mean first?"),
        ("measures: [training]", "measures: [trainings]", "did you mean training?"),
        ("recipe: focused-concatenation/base,", "init: later,", "give either recipe or changed"),
        ("base, ", "base, init: later, ", "rows need each other: later -> first -> later"),
        ("focused-concatenation/base", "focused-concatenation/bass", "rows.first: no recipe"),
        ("model.heads", "model.haeds", "model.heads"),
        ("accuracy.register", "accurate.register", "did you mean accuracy?"),
        ("{training: true}", "{}", "give exactly one of training, contrastive"),
        ("documents: 60,", "documents: 60}, folder: {", "data.main"),
        ("${updates}", "${update}", "no such variable in the file: 'update'"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert old in EXPERIMENT
    (tmp_path / "two.yaml").write_text(EXPERIMENT.replace(old, new))
    assert run(tmp_path) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "two.yaml" in told
    assert not (tmp_path / "out").exists()


def test_changes_that_fit_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    for option, value, message in (
        ("--set", "update=3", "has no variable update (its variables: updates)"),
        ("--set", "updates", "write key=value"),
        ("--set", "train.max_update=3", "train.max_updates"),
        ("--rows", "frist", "did you mean first?"),
        ("--seeds", "frist=1,2", "did you mean first?"),
        ("--seeds", "first=one", "rows.first.seeds.0"),
    ):
        assert run(tmp_path, option, value) == 2
        assert message in capsys.readouterr().err


def test_figures_of_suites_by_distance() -> None:
    def at(percent: float) -> dict[str, float]:
        return {"accuracy_percent": percent, "chance_percent": 50.0}

    pronoun = {"0": at(100), "1": at(80), ">3": at(40)}
    report = {
        "controlled/pronoun": {"overall": at(75), "by_distance": pronoun},
        "controlled/cataphora": {"overall": at(30), "by_distance": {"ahead": at(30)}},
    }
    found = of_suites(report)
    assert found["pronoun"] == 75
    assert found["pronoun.elsewhere"] == 60
    assert found["pronoun.>3"] == 40
    assert found["pronoun.near"] == 80
    assert "cataphora.near" not in found
    assert found["elsewhere"] == 50  # of 80, 40 and 30
    assert (found["beyond.0"], found["beyond.1"]) == (60, 40)


def test_the_first_checkpoint_that_has_learned_a_suite(tmp_path: Path) -> None:
    percents = {"": 95, ".at.900": 96, ".at.1000": 94, ".at.300": 40}
    for name, percent in percents.items():
        each = {"accuracy_percent": percent, "chance_percent": 50.0}
        suite = {"overall": each, "by_distance": {"1": each}}
        (tmp_path / f"accuracy{name}.json").write_text(json.dumps({"controlled/pronoun": suite}))
    place = Place(tmp_path, tmp_path, tmp_path / "accuracy.json", {}, {})
    found = figures(Measure(contrastive=Contrastive(checkpoints=True)), place)
    assert (found["pronoun.near"], found["pronoun.near.at.300"]) == (95, 40)
    assert found["pronoun.since"] == 900


def test_numbers_of_nested_json_by_dotted_keys() -> None:
    content = {"a": {"b": [1, {"c": 2.5}], "d": "text", "e": True}, "f": None, "g": 3}
    assert dict(flat(content)) == {"a.b.0": 1, "a.b.1.c": 2.5, "g": 3}


CURVES = """
figures:
  - title: Loss, by updates
    across: updates
    panels: {loss: training.nll_current, BLEU: training.bleu}
    lines: {one: {2: first, 1: later}, other: {1: later}}
"""


def test_figures_are_drawn_of_what_is_measured(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT + CURVES)
    experiment = read_experiment(tmp_path / "two.yaml")
    kept = json.loads((finished / "out" / "results.json").read_text())
    kept["rows"]["first"]["2"] = json.loads(json.dumps(kept["rows"]["first"]["1"]))
    kept["rows"]["first"]["2"]["measures"]["training"]["figures"]["nll_current"] += 1.0
    [curves] = experiment.figures
    [_, (place, mean, low, high)] = points(curves.lines["one"], "training.nll_current", kept)
    assert place == 2
    assert (mean - low, high - mean) == (pytest.approx(0.5), pytest.approx(0.5))
    assert points(curves.lines["one"], "training.bleu", kept) == []
    draw(experiment, kept, tmp_path)
    assert (tmp_path / "loss-by-updates.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "two.yaml").write_text(EXPERIMENT + CURVES.replace("2: first", "2: furst"))
    must_raise("did you mean first", read_experiment, tmp_path / "two.yaml")


def test_a_line_may_be_the_course_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    course = CURVES.replace("nll_current, BLEU: training.bleu}", "nll_current.at.*}")
    course = re.sub(r"lines: .*", "lines: {one: first}", course)
    path.write_text(EXPERIMENT + course)
    experiment = read_experiment(path)
    one = {"nll_current.at.10": 2.0, "nll_current.at.5": 3.0}
    row = {"1": entry(one), "2": entry({"nll_current.at.5": 4.0, "nll_current": 1.0})}
    kept = {"rows": {"first": row}, "data": {}, "versions": {}}
    [curves] = experiment.figures
    assert points(curves.lines["one"], "training.nll_current.at.*", kept) == [(5, 3.5, 3, 4), (10, 2, 2, 2)]
    for fault in (course.replace("one: first", "one: {1: first}"), course.replace(".at.*", "")):
        path.write_text(EXPERIMENT + fault)
        must_raise("in every panel and a row for every line", read_experiment, path)


@loop_over("path", SHIPPED)
def test_shipped_experiments_can_be_run(path: Path) -> None:
    experiment = read_experiment(path)
    require_recipes(experiment)
    empty = {"rows": {}, "data": {}, "versions": {}}
    assert render(experiment, empty).startswith(f"# {experiment.title}")
    assert [name for name, _ in experiment.in_order()]


def test_what_was_written_for_another_model_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    place = Place(tmp_path / "run", tmp_path, tmp_path / "own.json", {}, {})
    old = ["own.json", "own.translated", "own-own.source.jsonl", "own.at.10.json"]
    others = ["own-long.json", "own-long-test.jsonl", "owner.json", "real.json"]
    for name in [*old, *others]:
        (tmp_path / name).write_text("{}")
    place.clear(["own-long", "real"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
