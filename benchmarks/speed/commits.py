"""Speed of two checkouts of Cotext, in turn on the same inputs: training, decoding, scoring.

    python -m benchmarks.speed.commits OLD NEW [--work FOLDER] [--recipes ...] [--tasks ...] [--size small]
        [--rounds 9] [--data FOLDER]

OLD and NEW are folders that hold `src/cotext`. Each checkout has a process of its own, which stays open. In
every round one does the work, then the other, in changing order. The time is processor time of one thread;
the ratio is NEW over OLD, so that NEW is faster below 1. `same` says whether the losses, texts and scores
are equal.

training    an update of the training loop, including the making of its batch
greedy      translation of test documents, side by side in batches
beam        the same with a beam of 5
document    translation of one long document
score       log-probabilities of test documents, in context

Translation and scoring use a run that each checkout trains for a few updates, from the same seed and data.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.harness import Times, parser, table
from cotext.runtime.progress import spread

WORKER = Path(__file__).with_name("commits_worker.py")
TASKS = ("training", "greedy", "beam", "document", "score")
SIDES = ("old", "new")
RECIPES = (
    "focused-concatenation/base",
    "focused-concatenation/s4to4-shift-cd",
    "p-transformer/doc",
    "g-transformer/randinit",
    "flat-transformer/flat",
    "docflat/docflat-c",
    "docflat/abd",
    "mcn/final",
    "casa/casa",
    "casa/latent-glat",
)
SETTINGS = (
    *("train.init=''", "train.max_tokens=2000", "train.accumulate=1", "train.validate_bleu=false"),
    *("train.threads=1", "train.patience=0", "train.seed=1", "train.average=1", "train.warmup_updates=100"),
)
LEARNED = 30  # updates before anything is translated
WARM_UP = 2  # rounds
ENDING_SECONDS = 20.0


class Side:
    """A process that works with one of the checkouts."""

    def __init__(self, checkout: Path, task: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(checkout),
        )
        self.answer()  # ready

    def answer(self) -> dict[str, Any]:
        """Wait for the next result."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("@ "):
                found: dict[str, Any] = json.loads(line[2:])
                return found
        raise SystemExit(f"a side ended with exit code {self.process.wait()}")

    def round(self) -> dict[str, Any]:
        """Do the work once, and return its result."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End the process by closing its input; a signal would only make training write a checkpoint."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment of the processes of a checkout."""
    settings = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    return {**os.environ, **settings, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}


def cotext(checkout: Path, *arguments: str | Path) -> None:
    """Run a command of a checkout; its output is shown only if it fails."""
    command = [sys.executable, "-m", "cotext", *map(str, arguments)]
    done = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}, with {checkout}:\n{done.stdout}{done.stderr}")


def compare(checkouts: dict[str, Path], tasks: dict[str, dict[str, Any]], rounds: int) -> tuple[Times, bool]:
    """Return the seconds of both sides by round, and whether their results were equal."""
    seconds, same = Times({name: [] for name in checkouts}), True
    with ExitStack() as stack:
        opened = {}
        for name, checkout in checkouts.items():
            opened[name] = Side(checkout, tasks[name])
            stack.callback(opened[name].close)
        for number in range(WARM_UP + rounds):
            # The order changes, because the second one finds a warmer machine.
            order = list(opened) if number % 2 else list(opened)[::-1]
            found = {name: opened[name].round() for name in order}
            same &= len({json.dumps(each["result"]) for each in found.values()}) == 1
            if number >= WARM_UP:
                for name, each in found.items():
                    seconds[name].append(each["seconds"])
    return seconds, same


@dataclass(frozen=True, slots=True)
class Bench:
    """What all rows share: checkouts and prepared data by side, and a folder for runs."""

    checkouts: dict[str, Path]
    data: dict[str, Path]
    work: Path
    size: str
    rounds: int

    def rows(self, recipe: str, tasks: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Measure a recipe; give a row of the table for every task."""
        runs = {side: self.work / side / recipe.replace("/", "-") for side in self.checkouts}
        if set(tasks) - {"training"}:
            for side in self.checkouts:
                self._train(side, recipe, runs[side])
        for task in tasks:
            with tempfile.TemporaryDirectory(dir=self.work) as fresh:
                given = {
                    side: {
                        "task": task,
                        "recipe": recipe,
                        "size": self.size,
                        "settings": SETTINGS,
                        "data": str(self.data[side]),
                        "run": f"{fresh}/{side}" if task == "training" else str(runs[side]),
                    }
                    for side in self.checkouts
                }
                times, same = compare(self.checkouts, given, self.rounds)
            took = (spread(times[side], "{:.3f}") for side in SIDES)
            ratio = spread(times.ratios("new", "old"), "{:.3f}")
            yield recipe, task, *took, ratio, "yes" if same else "no"

    def _train(self, side: str, recipe: str, run: Path) -> None:
        if (run / "model.safetensors").is_file():
            return
        updates = (f"train.max_updates={LEARNED}", f"train.validate_every={LEARNED}")
        options = ("--data", self.data[side], "--out", run, "--size", self.size)
        cotext(self.checkouts[side], "train", recipe, *options, *SETTINGS, *updates)


def prepare(checkouts: dict[str, Path], given: Path | None, work: Path) -> dict[str, Path]:
    """Return prepared data by side: `given`, or the controlled corpus as each checkout makes it."""
    if given is not None:
        return dict.fromkeys(checkouts, given)
    folders = {name: work / name / "data" for name in checkouts}
    for name, checkout in checkouts.items():
        if not folders[name].is_dir():
            cotext(checkout, "prepare-controlled", "2000", "--out", folders[name])
    return folders


def main() -> None:
    """Print a table, each row as soon as it is measured."""
    options = parser(__doc__, rounds=9)
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument("--work", type=Path, help="folder that keeps data and runs for the next call")
    options.add_argument("--data", type=Path, help="prepared data with a test set that both checkouts read")
    options.add_argument("--recipes", nargs="+", default=RECIPES)
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    options.add_argument("--size", default="small")
    given = options.parse_args()
    checkouts = dict(zip(SIDES, (given.old.resolve(), given.new.resolve()), strict=True))
    for checkout in checkouts.values():
        if not (checkout / "src" / "cotext").is_dir():
            raise SystemExit(f"{checkout}: not a checkout: it has no src/cotext")
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.work or Path(temporary)).resolve()
        for name in checkouts:
            (work / name).mkdir(parents=True, exist_ok=True)
        data = prepare(checkouts, given.data, work)
        bench, rows = Bench(checkouts, data, work, given.size, given.rounds), []
        for recipe in given.recipes:
            for row in bench.rows(recipe, given.tasks):
                print("  ".join(row), flush=True)
                rows.append(row)
    print()
    table(("recipe", "task", "old, s", "new, s", "new / old", "same"), rows)


if __name__ == "__main__":
    main()
