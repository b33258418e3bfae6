import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command_line import succeed

from cotext.cli.demo import FULL, SETTINGS, DemoSettings, DemoSystem, run_demo
from cotext.config.recipe import load_config
from cotext.evaluation.metrics.bleu import Score
from cotext.evaluation.metrics.contrastive import Accuracy
from cotext.evaluation.studies.contrastive.contrastive_rows import ContextWindow, SystemFigures
from cotext.evaluation.studies.demo.demonstration import Demonstration, bracketed, compare, mark_difference
from cotext.evaluation.studies.demo.page import render, write_report
from cotext.evaluation.studies.metrics_file import read_metrics
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import sealed
from cotext.runtime.processes import Job, run_jobs

SOURCE = ("Tom found a lamp.", "Later he lost it <again>.")
REFERENCE = ("Tom fand eine Lampe.", "Später verlor er sie <wieder>.")


def group(correct: int, total: int, candidates: int) -> dict[str, object]:
    return Accuracy(correct, total, 0, 1 / candidates).as_dict()


def system(
    title: str, before: int, pronoun: dict[str, int], translation: tuple[str, ...] = REFERENCE
) -> SystemFigures:
    """Figures made by hand: right pronouns of 90 by distance, and cataphora at chance."""
    accuracies = {
        "controlled/cataphora": {"signature": "suite:c", "by_distance": {"ahead": group(30, 90, 3)}},
        "controlled/pronoun": {
            "signature": "suite:p",
            "by_distance": {d: group(right, 90, 3) for d, right in pronoun.items()},
        },
    }
    score = Score("s-bleu", "s-BLEU", 12.34, "protocol:s-bleu", 1, 2, 0, {})
    return SystemFigures(
        title=title,
        recipe="paper/system",
        before=before,
        after=0,
        parameters=1000,
        updates=20,
        curve=((10, 2.0), (20, 0.5)),
        accuracies=accuracies,
        scores=(score,),
        translations=(translation,),
        signature="updates:20|view:window",
    )


def comparison(tmp_path: Path, *systems: SystemFigures) -> Demonstration:
    for name, sentences in (("test.en", SOURCE), ("test.de", REFERENCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
    commands = {"corpus": "cotext prepare"} | {each.title: f"cotext train {each.title}" for each in systems}
    return compare(systems, tmp_path / "test.en", tmp_path / "test.de", commands)


@pytest.fixture
def usual(tmp_path: Path) -> Demonstration:
    blind = system(
        "sentence",
        0,
        {"0": 90, "1": 30, "3": 30, ">3": 30},
        (REFERENCE[0], "Später verlor er es <wieder>."),
    )
    return comparison(tmp_path, blind, system("s4to4", 3, {"0": 90, "1": 88, "3": 60, ">3": 30}))


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        (0, 0, {"0"}),
        (1, 0, {"0", "1"}),
        (3, 0, {"0", "1", "2", "3"}),
        (4, 1, {"0", "1", "2", "3", ">3", "ahead"}),
    ],
)
def test_a_clue_is_in_reach_when_the_window_holds_it(before: int, after: int, within: set[str]) -> None:
    buckets = ("0", "1", "2", "3", ">3", "ahead")
    assert {
        bucket for bucket in buckets if ContextWindow(before, after, before).contains("pronoun", bucket)
    } == within


def test_rows_say_what_is_in_reach_and_what_came_of_it(usual: Demonstration) -> None:
    rows = {(row.phenomenon, row.distance): row for row in usual.rows}
    assert list(rows) == [("pronoun", d) for d in ("0", "1", "3", ">3")] + [("cataphora", "ahead")]
    assert [cell.in_window for cell in rows["pronoun", "3"].cells] == [False, True]
    assert [cell.in_window for cell in rows["pronoun", ">3"].cells] == [False, False]
    assert rows["pronoun", "1"].cells[1].percent == pytest.approx(100 * 88 / 90)
    verdicts = [row.verdict for row in usual.rows]
    assert verdicts == [
        "needs no context",
        "context solves it",
        "context helps",
        "clue not in window",
        "clue not in window",
    ]


def test_expectations_are_judged_by_the_worst_group(usual: Demonstration) -> None:
    by_text = {expectation.text: expectation for expectation in usual.expectations}
    (blind,) = [e for text, e in by_text.items() if text.startswith("sentence")]
    assert blind.met
    assert "0.0 points off in 4 groups" in blind.found
    (pronoun,) = [e for text, e in by_text.items() if "s4to4 above 90 % on pronoun" in text]
    assert not pronoun.met
    assert "66.7 % in 2 groups" in pronoun.found


def test_a_blind_system_above_chance_is_reported_as_a_leak(tmp_path: Path) -> None:
    found = comparison(
        tmp_path, system("sentence", 0, {"1": 34}), system("s4to4", 3, {"1": 90})
    )  # 34 of 90 is 4.4 points above a third
    assert found.rows[0].verdict == "leak? check the data"
    assert not found.expectations[0].met


def test_marks_words_that_differ_and_no_others() -> None:
    first, second = mark_difference("Später verlor er es .", "Dann verlor er sie .")
    assert bracketed(first) == "[Später] verlor er [es] ."
    assert bracketed(second) == "[Dann] verlor er [sie] ."
    assert bracketed(mark_difference("a b", "a b c")[1]) == "a b [c]"
    assert mark_difference("", "")[0] == ()


def test_the_sample_is_the_document_on_which_context_shows(tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("One.\n\nTwo.\n\nThree.\n", encoding="utf-8")
    (tmp_path / "test.de").write_text("a b c\n\na b c\n\na b c\n", encoding="utf-8")
    blind = replace(system("sentence", 0, {"1": 30}), translations=(("a x y",), ("a x c",), ("x y z",)))
    seeing = replace(system("s4to4", 3, {"1": 90}), translations=(("a b c",), ("a b c",), ("z y x",)))
    found = compare([blind, seeing], tmp_path / "test.en", tmp_path / "test.de", {})
    assert found.sample.number == 1
    assert bracketed(found.sample.sentences[0].first) == "a [x] [y]"


class Page(HTMLParser):
    """Checks nesting and notes what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.marked: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href"):
                (self.references if (value or "").startswith("#") else self.loads).append(value or "")
            self.references += re.findall(r"url\((#[^)]*)\)", value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "mark":
            self.marked.append(data)


def test_the_page_stands_alone_and_is_well_formed(usual: Demonstration) -> None:
    text = render(usual)
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.tags
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(set(page.ids)) == len(page.ids), "ids of different plots clash"
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert page.marked == ["[es]", "[sie]"]
    # Two phenomena and the training curves; the plots say in words what they show.
    assert len(re.findall(r'<svg role="img" aria-label="[^"]{20,}"', text)) == 3
    assert "&lt;wieder&gt;" in text
    assert "<wieder>" not in text


def test_plots_take_their_colours_from_the_page(usual: Demonstration) -> None:
    text = render(usual)
    body = text[text.index("<body>") :]
    assert "var(--system-1)" in body
    assert "var(--ink)" in body
    # A colour of its own would be unreadable on one of light and dark.
    assert not re.search(r"#[0-9a-f]{6}", body)


def test_report_files_hold_all_figures(usual: Demonstration, tmp_path: Path) -> None:
    write_report(tmp_path, usual)
    figures = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert figures["rows"][1]["cells"][1]["correct"] == 88
    assert figures["systems"][0]["accuracies"]["controlled/pronoun"]["by_distance"]["0"]["correct"] == 90
    assert figures["versions"]["Cotext"]
    assert "cotext train s4to4" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_metrics_are_read_up_to_a_line_being_written(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    lines = [sealed({"kind": "train", "update": update}) for update in (5.0, 6.0, 7.0)]
    lines[1] = lines[1].replace("6", "8")  # damaged
    (tmp_path / "metrics.jsonl").write_text(f"{lines[0]}\n{lines[1]}\n{lines[2][:20]}")
    assert read_metrics(tmp_path) == [{"kind": "train", "update": 5.0}]


def python_job(tmp_path: Path, name: str, code: str, after: tuple[str, ...] = ()) -> Job:
    """A child that runs `code` in `tmp_path` and is finished when a file of its name is there."""
    setup = f"import os, pathlib, time; os.chdir({str(tmp_path)!r}); "
    return Job(
        name=name,
        command=(sys.executable, "-c", setup + code),
        log=tmp_path / "logs" / f"{name}.log",
        finished=(tmp_path / name).exists,
        total=1,
        progress=lambda: (0, ""),
        after=after,
    )


def test_jobs_wait_for_what_they_need_and_are_not_repeated(tmp_path: Path) -> None:
    first = python_job(tmp_path, "first", "time.sleep(.3); pathlib.Path('first').touch()")
    second = python_job(tmp_path, "second", "os.link('first', 'second')", after=("first",))
    run_jobs([second, first], at_once=2)
    assert (tmp_path / "second").exists()
    (tmp_path / "first").unlink()
    run_jobs([first, second], at_once=1)  # the second would fail: its file is there
    assert (tmp_path / "first").exists()


def test_jobs_run_at_once_but_not_more_than_asked_for(tmp_path: Path) -> None:
    # The first two wait for each other to be there; the third notes who is.
    pair = (
        "pathlib.Path('{0}-on').touch()\n"
        "while not pathlib.Path('{1}-on').exists(): time.sleep(.02)\n"
        "time.sleep(.5); pathlib.Path('{0}').touch()"
    )
    third = "pathlib.Path('c').write_text(str(os.path.exists('a') + os.path.exists('b')))"
    codes = {"a": pair.format("a", "b"), "b": pair.format("b", "a"), "c": third}
    run_jobs([python_job(tmp_path, name, "\n" + code) for name, code in codes.items()], at_once=2)
    assert (tmp_path / "c").read_text() in ("1", "2")


def test_a_failing_child_ends_the_others_and_shows_its_last_words(tmp_path: Path) -> None:
    slow = python_job(tmp_path, "slow", "pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)")
    bad = python_job(tmp_path, "bad", "time.sleep(1); raise ValueError('the dog ate it')")
    started = time.monotonic()
    with pytest.raises(CotextError, match=r"(?s)bad: failed with exit code 1.*the dog ate it"):
        run_jobs([slow, bad], at_once=2)
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_without_its_result_has_failed(tmp_path: Path) -> None:
    with pytest.raises(CotextError, match="stopped before it was finished"):
        run_jobs([python_job(tmp_path, "idle", "pass")], at_once=1)


def test_ctrl_c_ends_the_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import sys; from pathlib import Path; from cotext.runtime.processes import Job, run_jobs\n"
        f"job = Job('j', (sys.executable, '-c', {child!r}), Path({str(tmp_path / 'log')!r}), "
        "lambda: False, 1, lambda: (0, ''))\n"
        "run_jobs([job], 1)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize("settings", [SETTINGS, FULL], ids=["three minutes", "full"])
def test_the_settings_are_configurations_of_the_shipped_recipes(settings: DemoSettings) -> None:
    windows = [
        load_config(s.recipe, settings.size, (*settings.overrides, *s.overrides)).view
        for s in settings.systems
    ]
    assert [(view.kind, view.before, view.after) for view in windows] == [
        ("sentence", 0, 0),
        ("window", 3, 0),
        ("window", 3, 0),
    ]


MINIATURE = replace(
    SETTINGS,
    systems=(
        DemoSystem("sentence", "sentence", "focused-concatenation/base"),
        DemoSystem("s2to2", "s2to2", "focused-concatenation/s2to2", ("loss.context_discount=0.5",)),
    ),
    overrides=(
        "train.max_updates=4",
        "train.validate_every=4",
        "train.log_every=2",
        "train.max_tokens=500",
        "train.validate_bleu=false",
        "train.threads=1",
        "model.dimension=16",
        "model.feed_forward=16",
        "model.heads=2",
    ),
    documents=60,
    contrastive_examples=6,
    test_documents=3,
    word_order="verb-final",
)


def one_elsewhere(jobs: Sequence[Job], at_once: int) -> None:
    """The first job in a child process, the others in this one, which has imported everything already."""
    run_jobs(jobs[:1], at_once)
    for job in jobs:
        if not job.finished():
            assert job.command[:3] == (sys.executable, "-m", "cotext.cli.main")
            job.log.write_text(succeed(*job.command[3:]).out)
            assert job.finished()


def test_a_miniature_demonstration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.cli.demo.run_jobs", one_elsewhere)
    out = tmp_path / "demo"
    run_demo(out, MINIATURE)
    screen = capsys.readouterr().out
    assert re.search(r"(?m)^ *cataphora +ahead +33\.3 +\(\d", screen)
    assert "sentence at chance (within 3 points) where the clue is outside its context window" in screen
    assert str(out / "report.html") in screen
    figures = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert json.loads((out / "data" / "report.json").read_bytes())["command"]["word_order"] == "verb-final"
    assert [system["updates"] for system in figures["systems"]] == [4, 4]
    assert [len(system["translations"]) for system in figures["systems"]] == [3, 3]
    assert [[update for update, _ in system["curve"]] for system in figures["systems"]] == [[4], [4]]

    # Again: only the report is made anew.
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".log", ".de")}
    (out / "report.html").unlink()
    run_demo(out, MINIATURE)
    assert (out / "report.html").exists()
    assert made == {path: path.stat().st_mtime_ns for path in made}

    with pytest.raises(CotextError, match="other settings"):
        run_demo(out, replace(MINIATURE, seed=7))


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    with pytest.raises(CotextError, match="not empty"):
        run_demo(tmp_path, MINIATURE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
