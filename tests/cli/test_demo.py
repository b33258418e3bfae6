import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.cli import demo
from cotext.cli.demo import SETTINGS, DemoSystem, _child, own_command, run_demo
from cotext.config.recipe import load_config
from cotext.evaluation.studies.compare.measured import read_metrics
from cotext.interchange.model_names import NamedModel
from cotext.runtime.files import sealed
from cotext.runtime.processes import Job, run_jobs
from tests.command_line import TINY, World, succeed
from tests.refusals import must_raise
from tests.tiny_runs import make_controlled_corpora_small


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


def test_failing_children_end_the_others_and_show_their_last_words(tmp_path: Path) -> None:
    slow = python_job(tmp_path, "slow", "pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)")
    bad = python_job(tmp_path, "bad", "time.sleep(1); raise ValueError('the dog ate it')")
    started = time.monotonic()
    must_raise(r"(?s)bad: failed with exit code 1.*the dog ate it", run_jobs, [slow, bad], at_once=2)
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    must_raise("stopped before it was finished", run_jobs, [python_job(tmp_path, "idle", "pass")], at_once=1)


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


def test_the_settings_are_configurations_of_the_shipped_recipes() -> None:
    for each in SETTINGS.systems:
        view = load_config(each.recipe, SETTINGS.size, (*SETTINGS.overrides, *each.overrides)).view
        assert view.before == (0 if each.recipe.endswith("base") else 3)


MINIATURE = replace(
    SETTINGS,
    systems=(
        DemoSystem("sentence", "focused-concatenation/base"),
        DemoSystem("s2to2", "focused-concatenation/s2to2", ("loss.context_discount=0.5",)),
    ),
    overrides=(*TINY, "train.max_updates=4", "train.validate_every=4", "decode.beam=1"),
    documents=60,
    contrastive_examples=6,
    test_documents=3,
)


def test_children_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """`python -m` alone would take a file of the user's for a module of the same name."""
    (tmp_path / "json.py").write_text("raise SystemExit('not the module that was meant')")
    done = subprocess.run(_child("--version"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "cotext"), done.stderr


def all_here(jobs: Sequence[Job], at_once: int) -> None:
    """The jobs in this process, which has imported everything already; then none is left to be started."""
    for job in jobs:
        if not job.finished():
            assert job.command[:4] == (sys.executable, "-P", "-m", "cotext.cli.main")
            job.log.parent.mkdir(exist_ok=True)
            job.log.write_text(succeed(*job.command[4:]).out)
            assert re.fullmatch(r"4 train \d\.\d{3} dev \d\.\d{3}|0 ", "{} {}".format(*job.progress()))
    run_jobs(jobs, at_once)


def test_a_miniature_demonstration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.cli.demo.run_jobs", all_here)
    monkeypatch.setattr(demo, "known_models", dict)
    make_controlled_corpora_small(monkeypatch)
    out = tmp_path / "demo"
    run_demo(out, MINIATURE)
    screen = capsys.readouterr().out
    assert re.search(r"(?m)^ *cataphora +ahead +33\.3 +\(\d", screen)
    assert "sentence reads single sentences and cannot use context." in screen
    assert str(out / "report.html") in screen
    figures = list(csv.DictReader((out / "report.csv").open(encoding="utf-8")))
    assert [f["value"] for f in figures if f["name"] == "updates"] == ["4", "4"]
    assert {f["n"] for f in figures if f["kind"] == "score"} == {"3"}

    # The page begins with a document, and the commands that are printed work as printed, the server first.
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.index("A document, translated by each system") < page.index("Answers")
    assert "s4to4 reads a window of four sentences" in page
    commands = [line.split() for line in re.findall(rf"(?m)^  {re.escape(own_command())} (.*)$", screen)]
    assert [words[0] for words in commands][:4] == ["serve", "contrastive", "translate", "evaluate"]
    assert Path(commands[0][1]) == out / "s2to2"
    monkeypatch.chdir(tmp_path)
    for words in commands[1:4]:
        succeed(*words)

    # Again: only the report is made anew.
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".log", ".en")}
    (out / "report.html").unlink()
    run_demo(out, MINIATURE)
    assert (out / "report.html").exists()
    assert made == {path: path.stat().st_mtime_ns for path in made}

    must_raise("other settings", run_demo, out, replace(MINIATURE, seed=7))


def test_commands_are_printed_as_they_work_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts, link = tmp_path / "my env" / "bin", tmp_path / "local" / "cotext"
    for folder in (scripts, link.parent):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setenv("PATH", str(link.parent))
    assert own_command() == "'my env/bin/python' -m cotext"  # there is no script
    (scripts / "cotext").touch(mode=0o755)
    assert own_command() == "'my env/bin/cotext'"
    link.touch(mode=0o755)  # another installation
    assert own_command() == "'my env/bin/cotext'"
    link.unlink()
    link.symlink_to(scripts / "cotext")
    assert own_command() == "cotext"


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    must_raise("not empty", run_demo, tmp_path, MINIATURE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_every_sentence_has_a_row_if_there_is_a_model(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "known_models", dict)
    must_raise("--no-train: there is nothing to do", demo.run_demo, tmp_path, train=False)
    assert not (tmp_path / "sample.html").exists()
    models = {demo.MODEL: NamedModel(demo.MODEL, world.run, "a package")}
    monkeypatch.setattr(demo, "known_models", lambda: models)
    demo.run_demo(tmp_path, train=False)
    page = (tmp_path / "sample.html").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    lines = (Path(demo.__file__).parent / "sample.en").read_text(encoding="utf-8").splitlines()
    assert page.count("<tr>") == len(lines) + 1
    assert all(line in page for line in lines)
    assert all(line in printed for line in lines[: demo.SHOWN])
