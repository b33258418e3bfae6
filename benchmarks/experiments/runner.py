"""Run an experiment: its commands, in child processes.

Training, translation, distillation and preparation resume when their command is repeated. Measured figures
are in results.json; they are measured again only if the measure or the model has changed. Before the time
is over, the children receive SIGTERM, and training writes a checkpoint.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.experiments import data as experiment_data
from benchmarks.experiments.curves import draw
from benchmarks.experiments.measures import Place, Step, cotext, figures, steps
from benchmarks.experiments.plan import Experiment
from benchmarks.experiments.tables import render
from cotext.models.run_folder import describe_file
from cotext.runtime import CotextError, __version__, parse_json, read_text
from cotext.runtime.files import replacing
from cotext.runtime.signals import StopRequest

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
MARGIN_SECONDS = 30.0  # before the end, for the writing of checkpoints
MARGIN_SHARE = 0.1  # of the time, if that is less
INTERRUPTED = 130
TAIL_LINES = 8

Key = tuple[str, ...]  # ("data", name) or ("row", name, seed)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """When to ask children to stop (`ask`), and when to kill them (`end`), on the monotonic clock."""

    ask: float = float("inf")
    end: float = float("inf")

    @classmethod
    def of(cls, minutes: float | None) -> "Budget":
        """Return a budget that starts now; None: no limit."""
        if minutes is None:
            return cls()
        seconds = 60 * minutes
        end = time.monotonic() + seconds
        return cls(end - min(MARGIN_SECONDS, MARGIN_SHARE * seconds), end)


@dataclass(slots=True)
class Task:
    """Data to make, or a row to train and measure, with the iterator of its commands."""

    key: Key
    needs: set[Key]
    commands: Iterator[Step]
    process: subprocess.Popen[bytes] | None = None
    step: Step | None = None
    log: Path = Path()
    number: int = 0

    @property
    def name(self) -> str:
        return " ".join(self.key)


@dataclass(slots=True)
class Outcome:
    """Finished and failed tasks, and whether the run was stopped."""

    done: set[Key] = field(default_factory=set)
    failed: dict[Key, str] = field(default_factory=dict)
    stopped: bool = False


class Runner:
    """Runs an experiment in a folder."""

    def __init__(self, experiment: Experiment, folder: Path, device: str | None, say: Say) -> None:
        self.experiment, self.folder, self.device, self.say = experiment, folder, device, say
        self.results = self._read_results()
        versions = {"cotext": __version__, "torch": torch.__version__, "Python": platform.python_version()}
        self.results["versions"] = versions

    def run(self, rows: Sequence[str], at_once: int, budget: Budget, stop: StopRequest) -> Outcome:
        """Run rows (default: all), `at_once` at the same time, until all are finished or the time is over."""
        waiting, outcome = self._tasks(rows), Outcome()
        running: list[Task] = []
        try:
            while waiting or running:
                if stop.requested or time.monotonic() > budget.ask:
                    outcome.stopped = True
                    return outcome
                self._drop_lost(waiting, outcome)
                ready = [task for task in waiting if task.needs <= outcome.done]
                for task in ready[: at_once - len(running)]:
                    waiting.remove(task)
                    running.append(task)
                running = [task for task in running if not self._over(task, at_once, outcome)]
                if running:
                    time.sleep(POLL_SECONDS)
            return outcome
        finally:
            self._end(running, budget)
            self._write()

    # ------------------------------------------------------------------------------------------- tasks

    def _tasks(self, rows: Sequence[str]) -> list[Task]:
        tasks: list[Task] = []
        for name, seed in self.experiment.in_order(rows):
            needs: set[Key] = set()
            for data in sorted(self.experiment.all_data(name)):
                self._add_data(data, tasks)
                needs |= {("data", data)}
            needs |= {_row(*unit) for unit in self.experiment.needed_units((name, seed))}
            tasks.append(Task(_row(name, seed), needs, self._row_steps(name, seed)))
        return tasks

    def _add_data(self, name: str, tasks: list[Task]) -> None:
        if any(task.key == ("data", name) for task in tasks):
            return
        needs: set[Key] = set()
        if (other := self.experiment.data[name].other) is not None:
            self._add_data(other, tasks)
            needs = {("data", other)}
        if (distilled := self.experiment.data[name].distilled) is not None:
            needs |= {_row(distilled.teacher, self.experiment.seeds_of(distilled.teacher)[0])}
        tasks.append(Task(("data", name), needs, self._data_steps(name)))

    def _drop_lost(self, waiting: list[Task], outcome: Outcome) -> None:
        """Mark tasks as failed that need a failed one."""
        for task in list(waiting):
            if lost := task.needs & outcome.failed.keys():
                outcome.failed[task.key] = f"{' '.join(min(lost))} failed"
                waiting.remove(task)

    def _data_steps(self, name: str) -> Iterator[Step]:
        data, out = self.experiment.data[name], self.data_folder(name)
        if data.folder is not None:
            if not (out / "report.json").is_file():
                raise CotextError(f"{out}: no prepared data there")
            return
        noted = self.results["data"].get(name)
        asked = data.model_dump_json(exclude_none=True)
        if noted is not None and noted != asked:
            raise CotextError(f"{out}: made with other settings; choose another --out, or delete it")
        if (out / "report.json").is_file() and noted == asked:
            return
        teacher, other = None, None if data.other is None else self.data_folder(data.other)
        if (distilled := data.distilled) is not None:
            teacher = self.run_folder(distilled.teacher, self.experiment.seeds_of(distilled.teacher)[0])
        on_device = ["--device", self.device] if distilled is not None and self.device else []
        for command in experiment_data.commands(data, out, teacher, other):
            yield Step((*command, *on_device))
        self.results["data"][name] = asked

    def _row_steps(self, name: str, seed: int) -> Iterator[Step]:
        entry = self.results["rows"].setdefault(name, {}).setdefault(str(seed), {})
        entry.pop("failed", None)
        run, data = self.run_folder(name, seed), self.data_folder(self.experiment.data_of(name))
        training = self._training(name, seed)
        if entry.get("trained") != training:
            yield Step(self._training_command(name, seed, run, data))
            described = describe_file(run / "model.safetensors")
            entry |= {"trained": training, "signature": described.signature}
            self._write()
        measures = entry.setdefault("measures", {})
        for key, measure in self.experiment.measures_of(name).items():
            asked = f"{measure.model_dump_json(exclude_none=True)} of {entry['signature']}"
            if measures.get(key, {}).get("asked") == asked:
                continue
            place = self._place(key, name, seed)
            if entry.setdefault("begun", {}).get(key) != asked:
                place.clear([other for other in self.experiment.measures if other != key])
                entry["begun"][key] = asked
                self._write()
            place.out.parent.mkdir(parents=True, exist_ok=True)
            yield from steps(measure, place, self.device)
            measures[key] = {"asked": asked, "figures": figures(measure, place)}
            self._write()

    def _training(self, name: str, seed: int) -> str:
        """Return a text that changes if the trained model would change."""
        row = self.experiment.rows[name]
        size = row.size or self.experiment.size
        parts = [row.recipe or f"changed {row.changed}", size, row.start, self.experiment.data_of(name)]
        return " ".join(map(str, [*parts, *self.experiment.settings_of(name, seed)]))

    def _training_command(self, name: str, seed: int, run: Path, data: Path) -> tuple[str, ...]:
        row, overrides = self.experiment.rows[name], self.experiment.settings_of(name, seed)
        if row.changed is not None:
            before = self.run_folder(row.changed, self.experiment.seed_of(row.changed, seed))
            changed = (sys.executable, "-m", "benchmarks.experiments.changed")
            return (*changed, str(before), str(run), *overrides)
        assert row.recipe is not None
        options: list[str | Path] = ["--data", data, "--out", run]
        if size := row.size or self.experiment.size:
            options += ["--size", size]
        if row.start:
            init = row.init and self.run_folder(row.init, self.experiment.seed_of(row.init, seed))
            options += ["--init", init or row.start]
        return cotext("train", row.recipe, *options, *overrides, device=self.device).arguments

    def _place(self, measure: str, name: str, seed: int) -> Place:
        runs = {
            other: self.run_folder(other, self.experiment.seed_of(other, seed))
            for other in self.experiment.rows
        }
        out = self.folder / "measures" / f"{name}-{seed}" / f"{measure}.json"
        data = self.data_folder(self.experiment.data_of(name))
        others = {other: self.data_folder(other) for other in self.experiment.data}
        return Place(self.run_folder(name, seed), data, out, runs, others)

    def run_folder(self, name: str, seed: int) -> Path:
        """Return the run folder of a row and seed."""
        return self.folder / "runs" / f"{name}-{seed}"

    def data_folder(self, name: str) -> Path:
        """Return the folder of prepared data."""
        return self.experiment.data[name].folder or self.folder / "data" / name

    # ---------------------------------------------------------------------------------------- processes

    def _over(self, task: Task, at_once: int, outcome: Outcome) -> bool:
        """Return whether a task is over; if not, make sure that a command of it runs."""
        try:
            if not self._is_finished(task, at_once):
                return False
        except CotextError as error:
            outcome.failed[task.key] = str(error)
            if task.key[0] == "row":
                self.results["rows"][task.key[1]][task.key[2]]["failed"] = str(error)
            self.say(f"{task.name}: failed")
        else:
            outcome.done.add(task.key)
            self.say(f"{task.name}: done")
        self._write()
        return True

    def _is_finished(self, task: Task, at_once: int) -> bool:
        """Start the next command of a task if the last one has ended; return True if none is left."""
        while True:
            if task.process is not None:
                code = task.process.poll()
                if code is None:
                    return False
                if code:
                    raise CotextError(_tail(task, code))
                if task.step is not None and task.step.printed is not None:
                    _unfinished(task.step.printed).replace(task.step.printed)
            task.process, task.step = None, next(task.commands, None)
            if task.step is None:
                return True
            self._start(task, task.step, at_once)

    def _start(self, task: Task, step: Step, at_once: int) -> None:
        task.number += 1
        task.log = self.folder / "logs" / f"{'-'.join(task.key)}-{task.number}.log"
        task.log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        threads = {"OMP_NUM_THREADS": "1"} if at_once > 1 else {}
        printed = task.log if step.printed is None else _unfinished(step.printed)
        with task.log.open("wb") as log, printed.open("ab" if printed == task.log else "wb") as out:
            task.process = subprocess.Popen(
                step.arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **threads},
                start_new_session=True,  # so that Ctrl-C reaches only this process
            )
        self.say(f"{task.name}: {' '.join(step.arguments[2:4])}")

    def _end(self, running: Sequence[Task], budget: Budget) -> None:
        """Ask children to stop, and kill those that still run when the time is over."""
        processes = [t.process for t in running if t.process is not None and t.process.poll() is None]
        for process in processes:
            process.terminate()
        deadline = min(budget.end, time.monotonic() + MARGIN_SECONDS)
        for process in processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # ------------------------------------------------------------------------------------------ results

    def _read_results(self) -> dict[str, Any]:
        path = self.folder / "results.json"
        if not path.is_file():
            return {"rows": {}, "data": {}}
        results: dict[str, Any] = parse_json(read_text(path, max_bytes=1 << 30), str(path))
        return results

    def _write(self) -> None:
        texts = {
            "results.json": json.dumps(self.results, indent=1),
            "tables.md": render(self.experiment, self.results),
        }
        for name, text in texts.items():
            with replacing(self.folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        draw(self.experiment, self.results, self.folder)


def _row(name: str, seed: int) -> Key:
    return "row", name, str(seed)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _tail(task: Task, code: int) -> str:
    assert task.step is not None
    lines = task.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    command = " ".join(task.step.arguments[1:])
    return "\n".join([f"exit code {code} of {command}; the end of {task.log}:", *lines])
