"""A run that was stopped, killed or prolonged ends exactly where an untroubled one does, bit for bit."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cotext.data.batch import Batch
from cotext.models import checkpoint as ckpt
from cotext.runtime import CotextError
from cotext.runtime.files import Process, sealed, unsealed
from cotext.training import resume as training_state
from cotext.training import run as training_run
from cotext.training.losses import LossParts
from cotext.training.trainer import MetricsLog, Objective, Trainer, TrainingCallbacks
from tests.command_line import World, listing, process_environment, succeed, train_arguments
from tests.killing import Moment, run_killed
from tests.loops import loop_over
from tests.models.test_checkpoint import visible
from tests.tiny_runs import (
    assert_same_file,
    assert_same_run,
    journal,
    run_config,
    silent,
    told_in_training,
    train_here,
    training_is_refused,
    with_section,
)


@pytest.fixture(scope="module")
def untroubled(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 updates that nothing interrupts."""
    run = tmp_path_factory.mktemp("resume") / "untroubled"
    train_here(run_config(), data, run)
    return run


def stop_after(update: int) -> TrainingCallbacks:
    """Callbacks that ask this process to stop when an update has been reported."""

    def on_update(figures: dict[str, float]) -> None:
        if figures["update"] == update:
            os.kill(os.getpid(), signal.SIGTERM)

    return replace(silent(), on_update=on_update)


def test_two_untroubled_runs_are_the_same(data: Path, untroubled: Path, tmp_path: Path) -> None:
    """Down to the bytes of every file of weights and states, and in another process, too."""
    run = tmp_path / "run"
    code = "import sys, tests.tiny_runs as t; t.train_here(t.run_config(), *map(t.Path, sys.argv[1:]))"
    subprocess.run(
        [sys.executable, "-c", code, data, run],
        check=True,
        cwd=Path(__file__).parents[2],
        env={**process_environment(), "PYTHONHASHSEED": "7", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"},
    )
    assert_same_run(run, untroubled)
    # What the clock decides is in the reports and their curves alone.
    timed = {"metrics.jsonl", "tensorboard"}
    written, expected = (
        {name: content for name, content in listing(folder).items() if Path(name).parts[0] not in timed}
        for folder in (run, untroubled)
    )
    assert {"config.yaml", "data.json", "model.safetensors", "tokenizer/tokenizer.json"} < written.keys()
    assert written == expected


def test_the_untroubled_run_tries_what_it_should(untroubled: Path) -> None:
    """Dropout on, several epochs, batches in the middle of a pool, or the tests below prove little."""
    cursors = [
        training_state.load_process_state(ckpt.checkpoint_folder(untroubled, u), 0).cursor for u in (8, 12)
    ]
    assert cursors[1].epoch > 0
    assert any(c.batch for c in cursors) or any(c.document for c in cursors)
    assert {entry["kind"] for entry in journal(untroubled)} == {"train", "validation", "final"}


def test_a_finished_run_prolonged(data: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # A report is due at the end of every run: where it falls among the others is the user's choice.
    first = train_here(run_config(max_updates=8, log_every=1), data, run)
    assert (first.update, first.finished) == (8, True)
    assert journal(run)[-1]["kind"] == "final"
    for name in (".00000007", ".00000004.old"):  # of a process that was killed
        (run / "checkpoints" / name).mkdir()
    tokenizer = (run / "tokenizer" / "tokenizer.json").read_bytes()
    (run / "tokenizer" / "tokenizer.json").write_text("damaged")
    second = train_here(run_config(log_every=1), data, run)
    assert (second.update, second.finished) == (12, True)
    assert not list(run.rglob(".*"))
    assert (run / "tokenizer" / "tokenizer.json").read_bytes() == tokenizer
    train_here(run_config(log_every=1), data, tmp_path / "other")
    assert_same_run(run, tmp_path / "other")
    assert_same_file(run / "model.safetensors", untroubled / "model.safetensors")


@pytest.mark.parametrize("reported", [3, 6, 9])
def test_stopped_by_a_signal(data: Path, untroubled: Path, tmp_path: Path, reported: int) -> None:
    """Stops between two validations, in the middle of an epoch, once also between two reports."""
    run = tmp_path / "run"
    before = signal.getsignal(signal.SIGTERM)
    stopped = training_run.train(run_config(), data, run, stop_after(reported))
    assert signal.getsignal(signal.SIGTERM) is before
    assert not stopped.finished
    assert stopped.update == reported + 1  # the request came after the update's own check
    again = train_here(run_config(), data, run)
    assert again.finished
    assert_same_run(run, untroubled)


def test_a_limit_lowered_to_where_it_stopped(data: Path, tmp_path: Path) -> None:
    """Before the first validation, so there is no other model."""
    training_run.train(run_config(validate_every=50), data, tmp_path / "run", stop_after(3))
    for run in (tmp_path / "run", tmp_path / "whole"):
        assert train_here(run_config(validate_every=50, max_updates=4), data, run).validated == [4]
    assert_same_file(tmp_path / "run" / "model.safetensors", tmp_path / "whole" / "model.safetensors")


def test_epochs_go_on_being_counted(data: Path, tmp_path: Path) -> None:
    """A run that validates after every epoch, stopped in the middle of one."""
    config = run_config(validate_every="epoch", max_updates=20)
    train_here(config, data, tmp_path / "untroubled")
    stopped = training_run.train(config, data, tmp_path / "run", stop_after(6))
    assert (stopped.update, stopped.epoch, stopped.validated) == (7, 1, [5])
    finished = train_here(config, data, tmp_path / "run")
    assert (finished.epoch, finished.validated) == (4, [5, 10, 15, 20])
    assert_same_run(tmp_path / "run", tmp_path / "untroubled")


def test_a_loss_that_is_not_finite_stays_out_of_what_a_checkpoint_sums_up(data: Path, tmp_path: Path) -> None:
    """Its gradient is finite, and so are the weights: it may stop neither this training nor a resumed one."""
    config = run_config(log_every=4, max_updates=8)
    infinite, losses = (2, 5, 6, 7, 8), dict[int, tuple[float, float]]()
    calls = update = stops_at = 0
    forward = Objective.forward

    class UnluckyTrainer(Trainer):
        def _update(self, batches: list, stop_requested: bool) -> None:
            nonlocal calls, update
            calls, update = calls + 1, self.progress.update + 1
            super()._update(batches, stop_requested or calls == stops_at)

    def unlucky(objective: Objective, batch: Batch, done: float = 0.0) -> LossParts:
        found = forward(objective, batch, done)
        if not objective.training:
            return found
        losses[update] = float(found.loss.detach()), float(found.count)
        return replace(found, loss=found.loss + math.inf) if update in infinite else found

    heard: list[str] = []
    callbacks = replace(silent(), on_message=heard.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "Trainer", UnluckyTrainer)
        patch.setattr(Objective, "forward", unlucky)
        for name, asked in (("untroubled", 0), ("run", 3), ("run", 0)):
            calls, stops_at = 0, asked
            training_run.train(config, data, tmp_path / name, callbacks)
    assert_same_run(tmp_path / "run", tmp_path / "untroubled")
    [first, second] = [entry for entry in journal(tmp_path / "run") if entry["kind"] == "train"]
    sums = [sum(each) for each in zip(*(losses[update] for update in (1, 3, 4)), strict=True)]
    assert first["loss"] == pytest.approx(sums[0] / sums[1], rel=1e-6)
    assert (first["infinite_losses"], second["infinite_losses"], "loss" in second) == (1, 4, False)
    assert sum("the loss of 1 batch was not finite" in text for text in heard) == 2


@loop_over(
    "settings",
    [
        {"pool_tokens": 10**6, "max_tokens": 250, "max_updates": 7},  # stops in the middle of a pool
        {"accumulate": 3, "max_updates": 6},
        {"order": "documents", "context": "own"},
        {"order": "documents", "context": "foreign"},
        {"coword_dropout": 0.2, "word_dropout": 0.1, "foreign_weight": 0.5},
    ],
)
def test_two_parts_are_training_at_once(data: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = dict(settings)
    weight = settings.pop("foreign_weight", 0.0)
    config = run_config(**{"max_updates": 8, "average": 1, **settings})
    config = with_section(config, "loss", foreign_weight=weight)
    if "order" in settings:
        config = with_section(config, "view", separators="numbered")
    train_here(config, data, tmp_path / "whole")
    train_here(with_section(config, "train", max_updates=3), data, tmp_path / "parts")
    state = training_state.load_process_state(ckpt.checkpoint_folder(tmp_path / "parts", 3), 0)
    if "pool_tokens" in settings:
        assert (state.cursor.epoch, state.cursor.document, state.cursor.batch) == (0, 0, 3)
    train_here(config, data, tmp_path / "parts")
    last = config.train.max_updates
    parts, whole = (ckpt.checkpoint_folder(tmp_path / name, last) for name in ("parts", "whole"))
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert_same_file(parts / name, whole / name)


def test_a_finished_run_is_left_alone_or_averaged_again(data: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(untroubled, run)
    stamps = {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file() and p.name != "config.yaml"}
    assert train_here(run_config(), data, run).finished
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert train_here(run_config(average=1), data, run).finished
    assert ckpt.load_run(run).config.train.average == 1


def test_patience_that_ran_out_is_not_forgotten(data: Path, tmp_path: Path) -> None:
    config = run_config(patience=1, learning_rate=0.5, validate_every=2, max_updates=40, clip_norm=0)
    run = tmp_path / "run"
    done = train_here(config, data, run)
    assert done.finished
    assert done.update < 40
    assert done.validations_without_best == 1
    again = train_here(config, data, run)
    assert again.update == done.update
    # Killed just before the end was noted:
    last = ckpt.checkpoint_folder(run, done.update)
    done.finished = False
    training_state.save_progress(last, done)
    again = train_here(config, data, run)
    assert (again.update, again.finished) == (done.update, True)
    assert ckpt.checkpoints(run)[-1] == done.update


def test_reports_before_a_first_checkpoint_are_forgotten(
    data: Path, untroubled: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train_here(run_config(max_updates=1), data, run)
    shutil.rmtree(run / "checkpoints")
    before = listing(run)
    training_is_refused(run_config(), data, run, "contains a model, but no checkpoints to resume")
    assert listing(run) == before
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([*lines[:-1], '{"kind": "train", "update": 3.0, "lo']))
    train_here(run_config(), data, run)
    assert journal(run) == journal(untroubled)


def test_loss_scale_of_half_precision_is_kept(data: Path, tmp_path: Path) -> None:
    """No fp16 without an accelerator: the scaler is put where Accelerate would have put it."""

    class ScalingTrainer(Trainer):
        def _resume(self) -> None:
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
            super()._resume()
            scales.append(self.accelerator.scaler.get_scale())
            self.accelerator.scaler.load_state_dict(
                {**self.accelerator.scaler.state_dict(), "scale": scales[-1] / 2}
            )

        def _update(self, batches: list, stop_requested: bool) -> None:
            scaler, self.accelerator.scaler = self.accelerator.scaler, None
            super()._update(batches, stop_requested)
            self.accelerator.scaler = scaler

    scales: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "Trainer", ScalingTrainer)
        for updates in (1, 2, 3):
            train_here(run_config(max_updates=updates), data, tmp_path / "run")
    assert scales == [1024, 512, 256]


class TestRefusals:
    @pytest.fixture
    def run(self, data: Path, tmp_path: Path) -> Path:
        train_here(run_config(max_updates=4), data, tmp_path / "run")
        return tmp_path / "run"

    @pytest.mark.parametrize("name", ["optimizer.safetensors", "process-0.safetensors", "model.safetensors"])
    @pytest.mark.parametrize("damage", ["truncated", "missing", "garbage", "a bit"])
    def test_damaged_state(self, data: Path, run: Path, name: str, damage: str) -> None:
        """Also a single bit of the content, which any reader would take for what was written."""
        path = ckpt.checkpoint_folder(run, 4) / name
        content = path.read_bytes()
        path.unlink()
        damaged = {
            "truncated": content[: len(content) // 2],
            "garbage": b"garbage" * 100,
            "a bit": content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        }
        if damage in damaged:
            path.write_bytes(damaged[damage])
        training_is_refused(
            run_config(), data, run, f"{name}: (damaged|is missing).*; delete .*00000004 and run the same"
        )

    @pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "checkpoints/00000004/trainer.json"])
    def test_a_pipe(self, data: Path, run: Path, name: str) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)
        training_is_refused(run_config(), data, run, f"{name}: cannot be read: it is not a regular file")

    def test_damaged_progress(self, data: Path, run: Path) -> None:
        """And as another version may have written it, whole as it is."""
        path = ckpt.checkpoint_folder(run, 4) / "trainer.json"
        entries = unsealed(path.read_text())
        for content in ("", "{", "[]", '{"update": 4, "colour": "red"}', "[" * 10**5):
            path.write_text(content)
            training_is_refused(run_config(), data, run, r"trainer.json: damaged")
        for change in ({"progress": []}, {"files": None}, {"progress": {"update": "some"}}):
            path.write_text(sealed({**entries, **change}))
            training_is_refused(run_config(), data, run, r"trainer.json: damaged, or written by an earlier")

    def test_a_renamed_checkpoint(self, data: Path, run: Path) -> None:
        ckpt.checkpoint_folder(run, 4).rename(ckpt.checkpoint_folder(run, 8))
        training_is_refused(run_config(), data, run, "belongs to update 4, not 8: the folder was renamed")

    def test_what_the_message_asks_for_helps(self, data: Path, run: Path, untroubled: Path) -> None:
        """The last checkpoint is deleted, and training goes on from the one before."""
        train_here(run_config(max_updates=8), data, run)
        last = ckpt.checkpoint_folder(run, 8)
        (last / "process-0.safetensors").write_bytes(b"")
        training_is_refused(
            run_config(), data, run, f"delete {last} and run the same command again; it resumes"
        )
        shutil.rmtree(last)
        train_here(run_config(), data, run)
        assert_same_file(run / "model.safetensors", untroubled / "model.safetensors")

    @pytest.mark.parametrize(
        ("name", "changes", "reason"),
        [
            ("optimizer", {"other|step": torch.tensor(4.0)}, "'other|step' does not belong to this model"),
            ("process-0", {"cursor": [1] * 9}, "not the training state of a process"),
            ("process-0", {"random": [0] * 7}, "not the training state of a process"),
            ("process-0", {"cursor": [9, 0, 0, 0, 0]}, "its position in the data is not in epoch 0"),
            ("process-0", {"cursor": [2**62, 0, 0, 0, 0]}, "its position in the data is not in epoch 0"),
            ("process-0", {"cursor": [0, 10**9, 0, 0, 0]}, "its position in the data is not in epoch 0"),
            ("process-0", {"cursor": [0, 0, 10**9, 0, 0]}, "lacks batch 1000000000 from document 0 of"),
        ],
    )
    def test_state_of_another_kind_or_place(
        self, data: Path, run: Path, name: str, changes: dict[str, Any], reason: str
    ) -> None:
        """As another version may have written it, or of data with more documents, with a digest that fits."""
        folder = ckpt.checkpoint_folder(run, 4)
        path = folder / f"{name}.safetensors"
        tensors = load_file(path)
        for key, value in changes.items():
            tensors[key] = torch.as_tensor(value, dtype=tensors[key].dtype if key in tensors else None)
        save_file(tensors, path)
        training_state.save_progress(folder, training_state.load_progress(folder))
        training_is_refused(run_config(), data, run, re.escape(reason))

    def test_other_number_of_processes(self, data: Path, run: Path) -> None:
        folder = ckpt.checkpoint_folder(run, 4)
        progress = training_state.load_progress(folder)
        progress.processes = 2
        training_state.save_progress(folder, progress)
        training_is_refused(run_config(), data, run, r"trained by 2 processes; 1 cannot resume it")

    def test_another_development_text(self, data: Path, run: Path, tmp_path: Path) -> None:
        other = tmp_path / "data"
        shutil.copytree(data, other)
        (other / "dev.jsonl").write_text((data / "dev.jsonl").read_text().replace("katze", "hund"))
        before = listing(run)
        training_is_refused(
            run_config(), other, run, r"trained on other data \(dev\.jsonl changed\); pass the"
        )
        assert listing(run) == before

    @pytest.mark.parametrize("kind", ["living", "elsewhere"])
    def test_a_run_that_another_process_trains(self, data: Path, run: Path, kind: str) -> None:
        own = Process.current()
        holder = own if kind == "living" else replace(own, machine="0" * 12)
        (run / ".lock").write_text(json.dumps({**asdict(holder), "token": "another's"}))
        before = listing(run)
        training_is_refused(
            run_config(log_every=1), data, run, f"{run}: another process is working on it, id {own.pid}"
        )
        assert listing(run) == before

    def test_a_process_that_has_lost_its_run_stops(self, data: Path, run: Path, tmp_path: Path) -> None:
        """Held up on its machine for so long that another one has gone on."""

        def lose(figures: dict[str, float]) -> None:
            (run / ".lock").write_text(json.dumps({**asdict(Process.current()), "token": "another's"}))

        before = visible(run)
        with pytest.raises(CotextError, match="another process has taken over"):
            training_run.train(run_config(), data, run, replace(silent(), on_update=lose))
        assert visible(run) == before
        assert (run / ".lock").exists()


@loop_over(
    "path", ["run/config.yaml", "tokenizer/tokenizer.json", "00000003", "00000006", "run/model.safetensors"]
)
def test_killed_before_what_is_written_gets_its_name(world: World, tmp_path: Path, path: str) -> None:
    """Moments that leave most; test_killed.py tries all there are, and tests/hostile random ones."""
    run = tmp_path / "run"
    arguments = train_arguments(world.folder, run)
    assert run_killed(arguments, Moment(path=path))
    succeed(*arguments)
    assert_same_file(run / "model.safetensors", world.run / "model.safetensors")
    assert not list(run.rglob(".*"))


@pytest.mark.parametrize("left", [None, "", "cut short"])
def test_reports_that_are_gone_are_missed(data: Path, tmp_path: Path, left: str | None) -> None:
    run = tmp_path / "run"
    train_here(run_config(max_updates=4), data, run)
    whole = (run / "metrics.jsonl").read_text()
    if left is None:
        (run / "metrics.jsonl").unlink()
    else:
        (run / "metrics.jsonl").write_text(left and whole[: whole.index("\n") + 9])

    first, second = (told_in_training(run_config(max_updates=n), data, run) for n in (8, 12))
    assert f"{run}/metrics.jsonl: missing or truncated; its reports are lost" in first
    assert not any("metrics.jsonl" in text for text in second)


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder)).Reload()
    return [(e.step, round(e.value, 4)) for e in events.Scalars(tag)]


def test_what_came_after_the_checkpoint_is_forgotten_by_both(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsLog(path)
    for update in (1.0, 2.0, 3.0):
        first.write("train", {"update": update, "loss": update})
    with path.open("a") as file:
        file.write('{"kind": "train", "upda')  # cut short by the interruption
    time.sleep(1)  # the curves are read in the order of the seconds in the names of their files
    second = MetricsLog(path)
    assert second.forget_after(2) == (0, set())
    second.write("train", {"update": 3.0, "loss": 30.0})
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    expected = [("train", update, loss) for update, loss in ((1.0, 1.0), (2.0, 2.0), (3.0, 30.0))]
    assert [(entry["kind"], entry["update"], entry["loss"]) for entry in entries] == expected
    assert points(tmp_path / "tensorboard", "train/loss") == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path)
    for update in (1.0, 2.0, 3.0, 4.0):
        journal.write("train", {"update": update, "loss": update})
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace("2.0", "2.5")
    lines[2] = sealed({"kind": "train", "loss": 3.0})  # whole, and of something else
    path.write_text("".join(f"{line}\n" for line in lines))
    assert MetricsLog(path).forget_after(4) == (2, set())
    assert path.read_text().splitlines() == [lines[0], lines[3]]
