"""The command `demo`: translate a page with installed models, then train and compare three tiny systems.

    out/sample.html       the page, if the models are installed
    out/data/             the controlled corpus, prepared
    out/test.en, test.de  the test documents that are translated
    out/<system>/         a run folder for each system
    out/results/          a report page for each system
    out/logs/             output of the child processes
    out/report.html       the comparison; its figures are in report.csv

The report compares the use of context by the three systems. Training and measuring run as commands in child
processes. Finished steps are not repeated.
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Final

import typer

from cotext.config.recipe import load_config
from cotext.data.controlled import SIZES
from cotext.data.formats import read_documents, write_documents
from cotext.data.prepare import prepare_controlled
from cotext.data.requests import ControlledRequest
from cotext.evaluation.requests import ComparisonRequest
from cotext.evaluation.studies.compare.job import compare_folders
from cotext.evaluation.studies.compare.measured import read_metrics
from cotext.evaluation.studies.compare.report import as_text
from cotext.interchange.model_names import known_models
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import NAME, working_in, write_text
from cotext.runtime.processes import Job, run_jobs, usable_cores
from cotext.runtime.progress import Meter, stages
from cotext.runtime.rendering import table, whole_page


@dataclass(frozen=True, slots=True)
class DemoSystem:
    """A system of the demonstration: name of its folder, recipe and settings."""

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The settings of the demonstration. The system that takes longest to train is the last.

    `overrides` holds the settings of all systems; the settings of a system replace them.
    """

    # Context discounting learns more slowly: labels of the three context sentences have a weight of 0.01.
    systems: tuple[DemoSystem, ...] = (
        DemoSystem("sentence", "focused-concatenation/base", ("train.max_updates=500",)),
        DemoSystem("s4to4", "focused-concatenation/s4to4", ("train.max_updates=1125",)),
        DemoSystem("s4to4-shift-cd", "focused-concatenation/s4to4-shift-cd", ("train.max_updates=1500",)),
    )
    overrides: tuple[str, ...] = (
        "train.log_every=20",
        "train.validate_bleu=false",
        # Short training has not converged: older checkpoints would make the average worse.
        "train.average=3",
        "train.best_by=loss",  # the loss of the current sentences, which are tested
        "train.threads=1",
        "train.clip_norm=1",  # needed because the learning rate is far above the value of the recipes
        "train.validate_every=125",
        # With small batches, the model learns more from the same number of tokens.
        "train.max_tokens=625",
        "train.learning_rate=0.003",
    )
    size: str = "tiny"
    documents: int = SIZES["small"]
    seed: int = 1
    contrastive_examples: int = 300
    test_documents: int = 50


SETTINGS = DemoSettings()

INTRODUCTION = """\
Cotext trains three tiny systems on a synthetic English-German corpus. Some words can be translated only
with a clue in another sentence. "it" is er, sie or es, depending on a noun mentioned earlier. "you" is du or
Sie, depending on the person addressed. A system with the clue in its context window should learn this.
A system without the clue can only guess, so its accuracy should be at chance.
"""
WORDS = (
    "sentence translates every sentence alone. s4to4 reads a window of four sentences, the current one "
    "and the three before it, in source and target. s4to4-shift-cd does so too. It shifts the positions of "
    "every sentence, which separates sentences (shift). In its loss the current sentence counts more than "
    "the others (context discounting, CD).",
)


def run_demo(out: Path, settings: DemoSettings = SETTINGS, train: bool = True) -> None:
    """Translate the sample, then prepare, train, evaluate and report in `out`; finished steps are skipped.

    `train=False`: stop after the sample.

    Raises CotextError if the folder contains other files or a demonstration with other settings, a step
    fails, or there is nothing to do.
    """
    started = time.monotonic()
    with working_in(out):
        _open_folder(out, settings)
        translated = translate_sample(out)
        if not train:
            if not translated:
                raise CotextError(f"--no-train: there is nothing to do, because {PACKAGE} is not installed")
            return
        typer.echo(INTRODUCTION)
        _prepare(out, settings)
        run_jobs(_jobs(out, settings), usable_cores())
        found = compare_folders(
            _comparison(out, settings.systems), lambda what: Meter(what, 0, None, shown=False), WORDS
        )
        typer.echo(as_text(found, brief=True))
        _conclude(out, settings, time.monotonic() - started)


def _open_folder(out: Path, settings: DemoSettings) -> None:
    """Write the settings into the folder, or check that it was made with the same settings."""
    path = out / "demo.json"
    content = json.dumps({"cotext": __version__, **asdict(settings)}, indent=1)
    try:
        if not path.exists():
            if any(not entry.name.startswith((".demo.json", NAME)) for entry in out.iterdir()):
                raise CotextError(
                    f"{out}: is not empty and not a folder made by `demo`; choose another folder with --out"
                )
            write_text(path, content)
        elif path.read_bytes() != content.encode():
            raise CotextError(
                f"{out}: was made with other settings or by another version of Cotext; "
                "delete it, or choose another folder with --out"
            )
    except OSError as error:
        raise CotextError(f"{out}: cannot be used: {error}") from None


def _prepare(out: Path, settings: DemoSettings) -> None:
    """Make the corpus and the files of test documents."""
    if not (out / "data" / "report.json").exists():
        request = ControlledRequest(
            size=str(settings.documents),
            out=out / "data",
            seed=settings.seed,
            contrastive_examples=settings.contrastive_examples,
        )
        with stages() as progress:
            prepare_controlled(request, progress)
    for name in ("test.en", "test.de"):
        if not (out / name).exists():
            documents_of_side = read_documents(out / "data" / name, "text")
            write_documents(out / name, islice(documents_of_side, settings.test_documents), "text")


def _jobs(out: Path, settings: DemoSettings) -> list[Job]:
    """Return the jobs: training, longest first, then evaluation, which starts when its system is trained."""
    (out / "results").mkdir(exist_ok=True)
    longest_first = settings.systems[::-1]
    training, measuring = [], []
    for number, system in enumerate(longest_first, 1):
        name = f"train {system.name} ({number} of {len(longest_first)})"
        training.append(_training(out, system, settings, name))
        measuring.append(_evaluation(out, system, name))
    return [*training, *measuring]


def _training(out: Path, system: DemoSystem, settings: DemoSettings, name: str) -> Job:
    run = out / system.name
    by_key = {override.partition("=")[0]: override for override in (*settings.overrides, *system.overrides)}
    overrides = list(by_key.values())
    config = load_config(system.recipe, settings.size, overrides)

    def finished() -> bool:
        metrics = read_metrics(run)
        return bool(metrics) and metrics[-1]["kind"] == "final"

    def progress() -> tuple[int, str]:
        metrics = read_metrics(run)
        if not metrics:
            return 0, ""
        notes = [
            f"{kind} {last['nll_current']:.3f}"
            for kind, name in (("train", "train"), ("dev", "validation"))
            if (last := next((m for m in reversed(metrics) if m["kind"] == name), None)) is not None
        ]
        return int(metrics[-1]["update"]), " ".join(notes)

    return Job(
        name=name,
        command=_child(
            *("train", system.recipe, "--size", settings.size, *overrides),
            *("--data", str(out / "data"), "--out", str(run)),
        ),
        log=out / "logs" / f"train-{system.name}.log",
        finished=finished,
        total=config.train.max_updates,
        progress=progress,
    )


def _evaluation(out: Path, system: DemoSystem, training: str) -> Job:
    """Return the job that measures one system after the job `training`; results are kept in its folder."""
    page = out / "results" / f"{system.name}.html"

    def finished() -> bool:
        model = out / system.name / "model.safetensors"
        return page.exists() and page.stat().st_mtime >= model.stat().st_mtime

    request = _comparison(out, [system])
    suites = [part for suite in request.suite for part in ("--suite", suite)]
    test = ("--source", out / "test.en", "--reference", out / "test.de")
    return Job(
        name=f"measure {system.name}",
        command=_child("compare", *request.runs, *test, *suites, "--no-use", "--out", page),
        log=out / "logs" / f"measure-{system.name}.log",
        finished=finished,
        total=1,
        progress=lambda: (0, ""),
        after=(training,),
    )


def _comparison(out: Path, systems: Sequence[DemoSystem]) -> ComparisonRequest:
    return ComparisonRequest(
        runs=tuple(out / system.name for system in systems),
        source=out / "test.en",
        reference=out / "test.de",
        suite=tuple(sorted((out / "data" / "contrastive").glob("*.json"))),
        use=False,
        out=out / "report.html",
        csv=out / "report.csv",
    )


def _child(*arguments: str | Path) -> tuple[str, ...]:
    # -P: files in the current folder must not be imported as modules.
    return (sys.executable, "-P", "-m", "cotext.cli.main", *map(str, arguments))


def _conclude(out: Path, settings: DemoSettings, seconds: float) -> None:
    """Print where the results are, and commands to try next."""
    cotext, folder = own_command(), shlex.quote(str(out))
    best, test = f"{folder}/{settings.systems[-1].name}", f"{folder}/test"
    minutes, rest = divmod(round(seconds), 60)
    typer.echo(
        f"Done in {minutes}:{rest:02d} minutes. Signatures, intervals and plots: {out / 'report.html'}; "
        f"all figures: {out / 'report.csv'}\n\n"
        "What to try next (on the page of the server, click a word to see which sentence decided it):\n"
        f"  {cotext} serve {best}\n"
        f"  {cotext} contrastive {best} {folder}/data/contrastive/pronoun.json\n"
        f"  {cotext} translate {best} {test}.en --out test.de --set beam=1\n"
        f"  {cotext} evaluate --hypothesis test.de --source {test}.en --reference {test}.de\n"
        f"  {cotext} systems\n\n"
        "With your own documents, one sentence per line and an empty line between documents:\n"
        f"  {cotext} prepare --source train.en --target train.de --dev-source dev.en --dev-target dev.de "
        "--out data/x\n"
        f"  {cotext} train {settings.systems[-1].recipe} --size small --data data/x --out runs/a\n"
        f"  {cotext} translate runs/a document.en --out document.de"
    )


def own_command() -> str:
    """Return the command that runs this installation of `cotext` in the terminal where this process runs."""
    python = Path(sys.executable)
    own, found = python.with_name("cotext"), shutil.which("cotext")
    if not own.is_file():
        return f"{shlex.quote(os.path.relpath(python))} -m cotext"
    if found is not None and Path(found).resolve() == own.resolve():
        return "cotext"
    return shlex.quote(os.path.relpath(own))


# --- The page of software help, translated by the installed English-German model.


PACKAGE: Final = "cotext-model-en-de-software"
MODEL: Final = "en-de"  # in the package
SHOWN: Final = 3  # sentences printed on the terminal


def translate_sample(out: Path) -> bool:
    """Translate the sample with the installed model, print its beginning and write `out/sample.html`.

    Return whether the model is installed; otherwise do nothing.
    """
    model = known_models().get(MODEL)
    if model is None:
        return False
    from cotext.translation.engine_cache import load

    source = resources.files("cotext.cli").joinpath("sample.en").read_text(encoding="utf-8").splitlines()
    typer.echo(f"A page of software help, translated by {MODEL}:\n")
    pairs = [*zip(source, load(model.folder, "cpu").translate(source), strict=True)]
    for sentence, translation in pairs[:SHOWN]:
        typer.echo(f"  {sentence}\n    {translation}")
    page, title = out / "sample.html", "A page of software help in German"
    rows = [(str(number), escape(s), escape(t)) for number, (s, t) in enumerate(pairs, 1)]
    shown = table("One row per sentence.", ("", "English", MODEL), rows, left=3)
    write_text(page, whole_page(title, [f"<h1>{title}</h1>", shown]))
    typer.echo(f"\nThe whole page, side by side: {page}\n")
    return True
