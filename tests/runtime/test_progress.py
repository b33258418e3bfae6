"""What a person sees while something takes long."""

import io
import json
import os
import re
import threading
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rich.console import Console

from cotext.cli.train import shown_training
from cotext.config.recipe import TrainConfig
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.runtime import progress
from cotext.runtime.progress import Meter
from cotext.training import run as runs
from cotext.training.run import _first_sentences, make_accelerator
from tests.command_line import World, cotext, train_arguments
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny_runs import prepare_toy, run_config, silent, with_section


class Clock:
    """A time that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    found = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=found, width=200))
    return found


@loop_over("live", [True, False])
def test_a_stage_that_reports_nothing_shows_its_time(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the training of a tokenizer; the stage waits for three signs of life."""
    found, signs = io.StringIO(), threading.Semaphore(0)
    console = Console(file=found, width=200, force_terminal=live)
    monkeypatch.setattr(progress, "console", console)
    monkeypatch.setattr(progress, "is_live", lambda: live)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_UPDATES", 0.01)
    original = progress._clock

    def clock(seconds: float) -> str:
        signs.release()
        return original(seconds)

    monkeypatch.setattr(progress, "_clock", clock)
    with progress.stages() as show:
        show("reading", 0)
        show("training the tokenizer", 5)
        for _ in range(3):
            assert signs.acquire(timeout=60)
    if not live:
        lines = found.getvalue().splitlines()
        news = [line for line in lines if "  for " not in line]
        assert news == ["reading", "training the tokenizer, 5 documents"]
        assert lines[-1].startswith("training the tokenizer, 5 documents  for 0:")


def test_time_left_is_there_from_the_first_report_on(clock: Clock, screen: io.StringIO) -> None:
    meter = Meter("training", 100, None)
    meter.start(20)  # of an interrupted run: they took this process no time
    clock.now += 10
    meter.advance_to(40, "loss 3")
    clock.now += 5
    meter.advance_to(50, "soon after: no line")
    clock.now += 20
    meter.advance_to(60, "loss 2")
    assert screen.getvalue().splitlines() == [
        "training 40/100  loss 3  0:30 left",
        "training 60/100  loss 2  0:35 left",
    ]


def test_a_task_follows_another(clock: Clock, screen: io.StringIO) -> None:
    """Its time left is its own."""
    meter = Meter("translating", 2, None)
    meter.start(0)
    clock.now += 100
    meter.advance_to(2)
    meter.next_task("writing", 10, 40)
    clock.now += 20
    meter.next_task("writing", 20, 40)
    meter.next_task("writing", 40, 40)
    assert screen.getvalue().splitlines() == ["translating 2/2", "writing 20/40  0:40 left", "writing 40/40"]


def test_what_goes_on_between_two_steps_has_a_time_left_of_its_own(clock: Clock, screen: io.StringIO) -> None:
    meter = Meter("training", 100, None)
    meter.start(0)
    for done in range(0, 50, 10):
        meter.stage("validating, tokens", done, 1000)
        clock.now += 10
    meter.stage("translating", 5, 10)
    clock.now += 20
    meter.stage("translating", 7, 10)
    assert screen.getvalue().splitlines() == [
        "training 0/100  validating, tokens 20/1,000  16:20 left",
        "training 0/100  validating, tokens 40/1,000  16:00 left",
        "training 0/100  translating 7/10  0:30 left",
    ]


def test_on_a_terminal_something_moves_with_every_word_and_every_second(clock: Clock) -> None:
    """Also while a batch is searched of which no sentence has ended yet."""
    with progress.display(Console(file=io.StringIO(), width=80, force_terminal=True)) as live:
        meter = Meter("translating", 5000, live)

        def shown() -> str:
            screen = Console(file=io.StringIO(), width=80)
            screen.print(live.get_renderable())
            [line] = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
            return " ".join(line.replace("━", "").split())

        lines = [shown()]
        for _ in range(30):  # many steps within a second: the mark turns
            meter.advance(0)
            clock.now += 0.03
            lines.append(shown())
        for _ in range(10):  # one long pass of the model: the clock runs
            clock.now += 2
            lines.append(shown())
        assert all(one != following for one, following in pairwise(lines))
        assert lines[-1] == "translating 0/5000 - 0:21"
        clock.now += 4
        meter.advance(100)
        assert shown() == "translating 100/5000 \\ 0:25 20:20 left"
        meter.advance_to(5000)
        assert shown() == "translating 5000/5000 0:25"


def test_elsewhere_a_line_in_twenty_seconds_tells_that_it_goes_on(clock: Clock, screen: io.StringIO) -> None:
    meter = Meter("translating", 5007, None)
    meter.advance(7)  # done before an interruption
    for step in range(220):
        clock.now += 0.25
        meter.advance(500 if step == 200 else 0)
    assert screen.getvalue().splitlines() == [
        "translating 7/5007  for 0:20",
        "translating 7/5007  for 0:40",
        "translating 507/5007  7:32 left",
    ]


def test_the_last_line_is_there_once(clock: Clock, screen: io.StringIO) -> None:
    meter = Meter("translating", 4, None)
    for count in (1, 3, 0, 0, -1, 1, 0):  # searches count ahead, and put it right
        meter.advance(count)
        clock.now += 30
    assert screen.getvalue().splitlines() == ["translating 4/4", "translating 3/4  1:00 left"]
    meter.restart(5)
    meter.advance(1)
    assert screen.getvalue().splitlines()[2:] == ["translating 5/5"]
    meter = Meter("translating", 4, None)
    meter.start(4)  # all was done before
    for _ in range(3):
        meter.advance(0)
    assert screen.getvalue().splitlines()[3:] == ["translating 4/4"]


def test_another_process_shows_nothing(clock: Clock, screen: io.StringIO) -> None:
    with progress.meter("training", 3, shown=False) as meter:
        meter.start(0)
        clock.now += 100
        meter.advance_to(1, "loss")
        meter.stage("validating", 1, 2)
        meter.advance_to(3, "loss")
    assert screen.getvalue() == ""


def test_training_shows_loss_rate_speed_and_time_left_at_once(world: World) -> None:
    first, *_, last = re.findall(r"^s2to2 .*", world.trained.err, re.M)
    figures = r"loss \d+\.\d+  current \d+\.\d+  rate \S+  [\d,]+ tokens/s"
    assert re.fullmatch(rf"s2to2 2/6  {figures}  \d+:\d\d left", first)
    assert re.fullmatch(rf"s2to2 6/6  {figures}", last)


def test_training_limited_in_time_shows_the_expected_number_of_updates(
    clock: Clock, screen: io.StringIO
) -> None:
    """Six of ten minutes for 60 updates leave 40; without this, 940 would be left."""
    config = TrainConfig(max_updates=1000, max_cpu_minutes=10)
    with shown_training("s2to2", config, quiet=False) as callbacks:
        callbacks.on_start(0)
        clock.now += 360
        figures = {"update": 60.0, "loss": 2.0, "learning_rate": 0.1, "tokens_per_second": 9.0}
        callbacks.on_update({**figures, "cpu_minutes": 6.0})
    assert screen.getvalue().splitlines() == ["s2to2 60/100  loss 2.000  rate 0.1  9 tokens/s  4:00 left"]


def test_validation_and_translation_tell_how_far_they_are(tmp_path: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    reports = replace(silent(), on_stage=lambda *stage: stages.append(stage))
    config = run_config(max_updates=1, validate_bleu=True, validate_sentences=8, max_tokens=100)
    config = with_section(config, "decode", max_source_tokens=2)  # no limit of the development set
    runs.train(config, prepare_toy(tmp_path / "data"), tmp_path / "run", reports)
    for name in ("validating, tokens", "translating the development set, sentences"):
        found = [(done, total) for stage, done, total in stages if stage == name]
        assert len(found) > 1
        assert found[-1][0] == found[-1][1]
        assert all(done <= total for done, total in found)
    assert found[-1] == (8, 8)


def test_the_development_sentences_that_are_translated_are_bounded(tmp_path: Path) -> None:
    """Also where the first document is longer than that."""
    path = tmp_path / "dev.jsonl"
    sentences = tuple(f"s{number}" for number in range(9))
    documents = [ParallelDocument(name, sentences, sentences) for name in ("a", "b")]
    write_parallel(path, None, documents, "jsonl")
    for count, lengths in ((4, [4]), (9, [9]), (30, [9, 9]), (12, [9, 3])):
        kept = _first_sentences(path, count)
        assert [len(d) for d in kept] == lengths
    assert kept[1].source == kept[1].target == sentences[:3]


def test_every_report_has_its_time_and_epoch(world: World) -> None:
    entries = [json.loads(line) for line in (world.run / "metrics.jsonl").read_text().splitlines()]
    assert {entry["kind"] for entry in entries} == {"train", "validation", "final"}
    times = [datetime.fromisoformat(entry["time"]) for entry in entries]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)
    epochs = [entry["epoch"] for entry in entries]
    assert epochs == sorted(epochs)


@loop_over("device", ["toaster", "meta", "cuda:77", ""])
def test_a_device_that_is_not_there_leaves_no_run(world: World, tmp_path: Path, device: str) -> None:
    refused = cotext(*train_arguments(world.folder, tmp_path / "run"), "--device", device)
    assert (refused.code, f"device {device!r} cannot be used" in refused.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_processes_take_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    must_raise("several processes use one device each", make_accelerator, TrainConfig(), device="cpu:0")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_training_does_not_take_is_refused() -> None:
    must_raise("training uses cpu here", make_accelerator, TrainConfig(), device="cuda:0")
