"""Two checkouts of Cotext against each other, in turn on the same inputs: training, decoding, scoring.

    python -m benchmarks.speed.commits OLD NEW [--work FOLDER] [--recipes ...] [--questions ...]
        [--size small] [--rounds 9] [--data FOLDER]

OLD and NEW are folders that hold `src/cotext`. Each recipe is trained for a few updates by either, from the
same seed on the same data, and translates and scores test documents of the controlled corpus with what it has
learned. A process each stays open with PYTHONPATH set to one of the folders; in every round one does the
work, then the other. Processor time of one thread; the ratio is NEW over OLD, and below 1 NEW is faster.
`same` tells whether both have written the same losses, texts and scores.

training    one update of the training loop, its batches included
greedy      test documents, side by side in batches; beam: the same with a beam of 5
document    one long document
score       log-probabilities of test documents, in context
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.speed.harness import parser, table
from cotext.runtime.timing import Times

WORKER = Path(__file__).with_name("commits_worker.py")
QUESTIONS = ("training", "greedy", "beam", "document", "score")
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
    """A process that works with one of the checkouts when it is told to."""

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
        """What it tells next."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("@ "):
                found: dict[str, Any] = json.loads(line[2:])
                return found
        raise SystemExit(f"a side ended with exit code {self.process.wait()}")

    def round(self) -> dict[str, Any]:
        """Have it do the work once."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End it: without another line, it leaves by itself (training notes a signal, no more)."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(checkout: Path) -> dict[str, str]:
    """Of the processes of a checkout."""
    settings = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    return {**os.environ, **settings, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}


def cotext(checkout: Path, *arguments: str | Path) -> None:
    """Run a command of one of the checkouts; what it says is shown only where it fails."""
    command = [sys.executable, "-m", "cotext", *map(str, arguments)]
    done = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}, with {checkout}:\n{done.stdout}{done.stderr}")


@contextmanager
def sides(checkouts: dict[str, Path], tasks: dict[str, dict[str, Any]]) -> Iterator[dict[str, Side]]:
    """Both processes, ready."""
    with ExitStack() as stack:
        found = {}
        for name, checkout in checkouts.items():
            found[name] = Side(checkout, tasks[name])
            stack.callback(found[name].close)
        yield found


def compare(checkouts: dict[str, Path], tasks: dict[str, dict[str, Any]], rounds: int) -> tuple[Times, bool]:
    """Seconds of both sides by round, and whether they told the same."""
    seconds: dict[str, list[float]] = {name: [] for name in checkouts}
    same = True
    with sides(checkouts, tasks) as opened:
        for number in range(WARM_UP + rounds):
            # Who comes first changes, for whoever comes second finds a warmer machine.
            order = list(opened) if number % 2 else list(opened)[::-1]
            told = {name: opened[name].round() for name in order}
            same &= len({json.dumps(each["told"]) for each in told.values()}) == 1
            if number >= WARM_UP:
                for name, each in told.items():
                    seconds[name].append(each["seconds"])
    return Times(seconds), same


def prepare(checkouts: dict[str, Path], given: Path | None, work: Path) -> dict[str, Path]:
    """Prepared data by side: one that is there, or the controlled corpus as either makes it."""
    if given is not None:
        return dict.fromkeys(checkouts, given)
    folders = {name: work / name / "data" for name in checkouts}
    for name, checkout in checkouts.items():
        if not folders[name].is_dir():
            # Commits before the command had the name take an option.
            named = (checkout / "src/cotext/data/requests.py").is_file()
            command = ["prepare-controlled"] if named else ["prepare", "--controlled"]
            cotext(checkout, *command, "2000", "--out", folders[name])
    return folders


def measure(recipe: str, questions: Sequence[str], place: "Bench") -> Iterator[tuple[str, ...]]:
    """A row of the table for every question about a recipe."""
    name = recipe.replace("/", "-")
    runs = {side: place.work / side / name for side in place.checkouts}
    if set(questions) - {"training"}:
        for side, checkout in place.checkouts.items():
            if not (runs[side] / "model.safetensors").is_file():
                updates = (f"train.max_updates={LEARNED}", f"train.validate_every={LEARNED}")
                options = ("--data", place.data[side], "--out", runs[side], "--size", place.size)
                cotext(checkout, "train", recipe, *options, *SETTINGS, *updates)
    for question in questions:
        with tempfile.TemporaryDirectory(dir=place.work) as fresh:
            tasks = {
                side: {
                    "question": question,
                    "recipe": recipe,
                    "size": place.size,
                    "settings": SETTINGS,
                    "data": str(place.data[side]),
                    "run": f"{fresh}/{side}" if question == "training" else str(runs[side]),
                }
                for side in place.checkouts
            }
            times, same = compare(place.checkouts, tasks, place.rounds)
        ratio = times.ratio("new", "old", "{:.3f}")
        cells = (times.took("old", "{:.3f}"), times.took("new", "{:.3f}"), ratio, "yes" if same else "no")
        yield recipe, question, *cells


class Bench:
    """What is the same for all rows."""

    def __init__(self, checkouts: dict[str, Path], work: Path, size: str, rounds: int) -> None:
        self.checkouts, self.work, self.size, self.rounds = checkouts, work, size, rounds
        self.data: dict[str, Path] = {}


def main() -> None:
    """Print a table, a row as soon as it is measured."""
    options = parser(__doc__, rounds=9)
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument(
        "--work", type=Path, help="for data and runs, which are used again; else thrown away"
    )
    options.add_argument("--data", type=Path, help="prepared data with a test set that both checkouts read")
    options.add_argument("--recipes", nargs="+", default=RECIPES)
    options.add_argument("--questions", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    options.add_argument("--size", default="small")
    given = options.parse_args()
    checkouts = dict(zip(SIDES, (given.old.resolve(), given.new.resolve()), strict=True))
    for checkout in checkouts.values():
        if not (checkout / "src" / "cotext").is_dir():
            raise SystemExit(f"{checkout}: no checkout, which would hold src/cotext")
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.work or Path(temporary)).resolve()
        for name in checkouts:
            (work / name).mkdir(parents=True, exist_ok=True)
        bench = Bench(checkouts, work, given.size, given.rounds)
        bench.data = prepare(checkouts, given.data, work)
        head = ("recipe", "question", "old, s", "new, s", "new / old", "same")
        rows = []
        for recipe in given.recipes:
            for row in measure(recipe, given.questions, bench):
                print("  ".join(row), flush=True)
                rows.append(row)
    print()
    table(head, rows)


if __name__ == "__main__":
    main()
