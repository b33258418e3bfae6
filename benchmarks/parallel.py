"""Documents written in one step: CASA beside GLAT, which fails on them, and beside what writes in turn.

    python -m benchmarks.parallel controlled FOLDER [--runs NAME ...] [--updates 3000] [--train-only] [--kd]
    python -m benchmarks.parallel speed [--size base] [--settings one many] [--rounds 3] [--tokens 512]
    python -m benchmarks.parallel length [--size base] [--tokens 512 1024 ...]     of the document

`controlled` trains tiny systems on long documents, each from scratch and once; an interrupted run goes on.
Long documents are seven of the controlled corpus each (`--joined`), about 450 tokens a side. A run is called
system-tokens[-kd][-seed], as casa-512 or glat-64-kd: pieces of at most so many tokens a side, brackets
counted; with kd, the training targets are those of a teacher (`--teacher`), which is trained and asked when
they are first wanted. `--runs` chooses some, `--kd` has all of them distilled, `--set` gives every run other
settings, and `--train-only` leaves measuring to a later call, so that several processes can share the work.
The checkpoint of every validation translates test documents greedily: figures go to FOLDER/figures.json,
curves beside it. Loss is in nats a label; of GLAT, whose places are labels, in nats a place.

`speed` has random weights and, for all that write token by token, outputs as long as the source; sentences
are equally long, which suits batches. `one`: a document at a time; `many`: as many side by side as
decode.max_tokens takes. Dimensions are those of the size, layers those of the recipes (6 + 6, CASA 6 + 4).
Processor time of one thread; ratios are those of one round, tables show medians with the smallest and the
largest. `length` has sentences of all lengths, and takes the clock's time where there is a GPU.
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.batch_context import bleu, curve, test_documents
from benchmarks.documents import SIZES, table
from benchmarks.mcn import accuracies
from benchmarks.parallel_cost import length, speed
from cotext.config.recipe import load_config
from cotext.data.contrastive_suites import write_suite
from cotext.data.controlled import contrastive_suites, development_documents, training_documents
from cotext.data.controlled import test_documents as controlled_test_documents
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare
from cotext.data.tokenizer import TokenizerSettings
from cotext.decoding.open import open_run
from cotext.models.describe import describe_model
from cotext.models.run_folder import checkpoints
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.distillation import DistillationRequest, distillation
from cotext.training.run import train

SYSTEMS = {
    "casa": "casa/casa",
    "latent": "casa/latent",
    "glat": "casa/glat",
    "glat-ctc": "casa/glat-ctc",
    "latent-glat": "casa/latent-glat",
    "casa-no-sa": "casa/casa-no-sa",
    "casa-no-ca": "casa/casa-no-ca",
    "casa-no-context": "casa/casa-no-context",
    "casa-no-local": "casa/casa-no-local",
    "casa-no-soft-copy": "casa/casa-no-soft-copy",
    "casa-no-source": "casa/casa-no-source",
    "casa-no-target": "casa/casa-no-target",
    "latent-no-sa": "casa/latent-no-sa",
    "latent-no-ca": "casa/latent-no-ca",
    "g-transformer": "g-transformer/randinit",
    "sent": "g-transformer/sent",
}
LONG, SHORT = 512, 64
DEFAULT_RUNS = (
    *(f"{s}-{LONG}" for s in ("g-transformer", "casa", "latent", "glat", "glat-ctc", "latent-glat")),
    *(f"{s}-{LONG}" for s in ("casa-no-sa", "casa-no-ca", "casa-no-context")),
    *(f"{s}-{SHORT}" for s in ("casa", "glat", "glat-ctc", "latent-glat")),
)
TEACHER = f"g-transformer-{LONG}"
TEACHER_BEAM = 4
EXAMPLES = 300  # of a suite, at least
DOCUMENTS = 20_000  # of the controlled corpus
JOINED = 7  # of them make a long one, unless another number is asked for
TRANSLATED = 24  # test documents
IN_CURVES = 8  # of them
KEPT = 1000  # checkpoints: all of them
TINY = (
    *("train.validate_every=200", "train.log_every=20", "train.validate_bleu=false", f"train.keep={KEPT}"),
    *("train.average=3", "train.average_by=best", "train.threads=1", "train.patience=0"),
    *("decode.beam=1", "decode.max_tokens=20000"),
)
LENGTHS = (512, 1024, 2048, 4096, 8192)

Figures = dict[str, Any]


# -------------------------------------------------------------------------------------- trained systems


@dataclass(frozen=True, slots=True)
class Name:
    """What a run's name says."""

    system: str
    tokens: int
    distilled: bool
    seed: int

    @classmethod
    def parse(cls, text: str) -> "Name":
        found = re.fullmatch(r"([a-z-]+)-(\d+)(-kd)?(?:-(\d+))?", text)
        if found is None or found[1] not in SYSTEMS:
            raise SystemExit(f"no run '{text}': system-tokens[-kd][-seed], of {', '.join(SYSTEMS)}")
        return cls(found[1], int(found[2]), found[3] is not None, int(found[4] or 1))

    @property
    def rows(self) -> str:
        return f"pieces of {self.tokens} tokens{', distilled' if self.distilled else ''}"

    def __str__(self) -> str:
        seed = f"-{self.seed}" if self.seed > 1 else ""
        return f"{self.system}-{self.tokens}{'-kd' if self.distilled else ''}{seed}"


def joined(documents: Iterable[ParallelDocument], of: int) -> Iterator[ParallelDocument]:
    """Long documents of so many each; what does not fill one is left out."""
    stream = iter(documents)
    for number in count():
        group = list(islice(stream, of))
        if len(group) < of:
            return
        source = tuple(sentence for document in group for sentence in document.source)
        target = tuple(sentence for document in group for sentence in document.target)
        yield ParallelDocument(f"long-{number}", source, target)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is the same for all runs of a folder."""

    folder: Path
    updates: int
    settings: tuple[str, ...]
    teacher: Name
    joined: int  # documents to a long one

    def run(self, name: Name) -> Path:
        return self.folder / "runs" / str(name)

    def data(self, name: Name) -> Path:
        return self.folder / ("data-kd" if name.distilled else "data")

    def prepare(self, documents: int) -> None:
        """Long documents, and beside them the contrastive suites, whose documents are short."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = self.folder / "data"
        if not data.is_dir():
            splits = {
                "train": training_documents(documents, 1),
                "dev": development_documents(1),
                "test": controlled_test_documents(1),
            }
            files = {name: self.folder / f"{name}.tsv" for name in splits}
            for name, stream in splits.items():
                write_parallel(files[name], None, joined(stream, self.joined), "tsv")
            settings = TokenizerSettings(kind="sentencepiece-bpe", vocabulary=1500, byte_fallback=False)
            train, dev, test = files.values()
            prepare(train, None, dev, None, data, test_source=test, settings=settings)
        suites = data / "contrastive"
        if not suites.is_dir():
            unfinished = suites.with_name(".contrastive")
            unfinished.mkdir(exist_ok=True)
            for suite in contrastive_suites(1, EXAMPLES):
                write_suite(unfinished / f"{suite.name.rpartition('/')[2]}.json", suite)
            unfinished.replace(suites)

    def train(self, name: Name) -> None:
        """Train a run, or go on with it."""
        if name.distilled:
            self.distill()
        own = [
            f"view.max_tokens={name.tokens}",
            f"train.max_updates={self.updates}",
            f"train.seed={name.seed}",
        ]
        reports = TrainingCallbacks(
            on_update=lambda figures: None,
            on_validation=lambda f: print(f"{name} {f['update']:.0f} nll {f['nll_current']:.3f}", flush=True),
            on_message=lambda text: print(f"{name}: {text}", flush=True),
        )
        config = load_config(SYSTEMS[name.system], "tiny", [*TINY, *self.settings, *own])
        train(config, self.data(name), self.run(name), reports)

    def distill(self) -> None:
        """Have the teacher translate the training documents."""
        out = self.folder / "data-kd"
        if (out / "report.json").is_file():
            return
        self.train(self.teacher)
        request = DistillationRequest(
            self.run(self.teacher), self.folder / "data", out, {"beam": TEACHER_BEAM}
        )
        with distillation(request, device="cpu") as job:
            print(f"{self.teacher} translates {job.documents - job.resumed_documents} documents", flush=True)
            job.translate()
            job.write()


def measure(experiment: Experiment, name: Name, before: Figures) -> Figures:
    """Everything that is told of a run; what an earlier call has told of its checkpoints stays."""
    run, data = experiment.run(name), experiment.folder / "data"
    translator = open_run(run, "cpu").translator
    documents = test_documents(data, TRANSLATED)
    d_bleu = dict(before.get("d_bleu", {}))
    for update in checkpoints(run):
        if str(update) not in d_bleu:
            there = open_run(run, "cpu", update=update).translator
            d_bleu[str(update)] = bleu(there, documents[:IN_CURVES])["d-bleu"]
            print(f"{name} {update} d-BLEU {d_bleu[str(update)]:.1f}", flush=True)
    return {
        "signature": f"model:{describe_model(translator.config.model)}|{translator.signature}",
        "loss": list(curve(run)),
        "d_bleu": d_bleu,
        "bleu": bleu(translator, documents),
        "accuracy": accuracies(translator, data),
    }


def controlled(experiment: Experiment, runs: Sequence[Name], documents: int, measuring: bool) -> None:
    """Train what is missing, measure, print, draw."""
    experiment.prepare(documents)
    for name in runs:
        experiment.train(name)
    if not measuring:
        return
    path = experiment.folder / "figures.json"
    figures: dict[str, Figures] = json.loads(path.read_text()) if path.is_file() else {}
    for name in runs:
        figures[str(name)] = measure(experiment, name, figures.get(str(name), {}))
        path.write_text(json.dumps(figures, indent=1))
    shown = {str(name): figures[str(name)] for name in runs}
    result_table(shown)
    accuracy_table(shown)
    curves(shown).savefig(experiment.folder / "curves.png", dpi=150)


def result_table(figures: dict[str, Figures]) -> None:
    """A row per run: the last loss, BLEU, and the mean accuracy where the clue stands in another sentence."""
    rows = []
    for name, f in figures.items():
        elsewhere = [
            each["accuracy_percent"]
            for distances in f["accuracy"].values()
            for distance, each in distances.items()
            if distance != "0"
        ]
        scores = (f"{f['bleu'][score]:.1f}" for score in ("s-bleu", "d-bleu"))
        rows.append((name, f"{f['loss'][-1][1]:.3f}", *scores, f"{sum(elsewhere) / len(elsewhere):.1f}"))
    table(("run", "loss", "s-BLEU", "d-BLEU", "clue elsewhere"), rows)


def accuracy_table(figures: dict[str, Figures]) -> None:
    """A row per phenomenon: right in per cent, all distances alike, where the clue stands elsewhere."""
    rows = []
    for phenomenon, distances in next(iter(figures.values()))["accuracy"].items():
        counted = [distance for distance in distances if distance != "0"]
        if not counted:
            continue

        def mean(accuracy: Figures, key: str, counted: list[str] = counted) -> str:
            return f"{sum(accuracy[distance][key] for distance in counted) / len(counted):.1f}"

        found = (mean(f["accuracy"][phenomenon], "accuracy_percent") for f in figures.values())
        rows.append((phenomenon, mean(distances, "chance_percent"), *found))
    table(("clue elsewhere", "chance", *figures), rows)


def curves(figures: dict[str, Figures]) -> Figure:
    """Loss above, d-BLEU below, over updates; a column per kind of rows."""
    names = {text: Name.parse(text) for text in figures}
    columns = list(dict.fromkeys(name.rows for name in names.values()))
    colours = {system: f"C{i % 10}" for i, system in enumerate(SYSTEMS)}
    lines = {system: "-" if i < 10 else "--" for i, system in enumerate(SYSTEMS)}
    figure = Figure(figsize=(4.6 * len(columns) + 1.6, 6.4), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey="row")
    for text, name in names.items():
        above, below = panels[:, columns.index(name.rows)]
        f, look = figures[text], {"color": colours[name.system], "linestyle": lines[name.system]}
        label = name.system if name.seed == 1 else None
        above.plot(*zip(*f["loss"], strict=True), label=label, **look)
        points = sorted((int(update), value) for update, value in f["d_bleu"].items())
        below.plot(*zip(*points, strict=True), label=label, **look)
    for column, title in enumerate(columns):
        panels[0][column].set(title=title, ylim=(0, None))
        panels[1][column].set(xlabel="updates", ylim=(0, 100))
        panels[0][column].legend(frameon=False, fontsize=8)
    panels[0][0].set_ylabel("development loss, nats a label")
    panels[1][0].set_ylabel("greedy d-BLEU")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("controlled")
    command.add_argument("folder", type=Path)
    command.add_argument("--runs", nargs="*", default=[], help="system-tokens[-kd][-seed]")
    command.add_argument("--updates", type=int, default=3000)
    command.add_argument("--documents", type=int, default=DOCUMENTS, help="of the controlled corpus")
    command.add_argument("--joined", type=int, default=JOINED, help="of them make a long document")
    command.add_argument("--kd", action="store_true", help="on what a teacher has translated")
    command.add_argument("--teacher", default=TEACHER, help="a run of this folder")
    command.add_argument("--set", nargs="*", default=[], dest="settings", metavar="KEY=VALUE")
    command.add_argument("--train-only", action="store_true")
    command = commands.add_parser("speed")
    command.add_argument("--size", choices=SIZES, default="base")
    command.add_argument("--settings", nargs="*", choices=["one", "many"], default=["one", "many"])
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--tokens", type=int, default=512, help="of the source, brackets counted")
    command.add_argument("--max-tokens", type=int, default=8000, help="of a batch, as decode.max_tokens")
    command.add_argument(
        "--documents", type=int, default=0, help="of `many`, where not as many as a batch takes"
    )
    command.add_argument("--systems", nargs="*", default=[], help="those whose names begin so, as CASA")
    command = commands.add_parser("length")
    command.add_argument("--size", choices=SIZES, default="base")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--tokens", type=int, nargs="*", default=list(LENGTHS))
    command.add_argument("--device", default=None, help="cpu or cuda; the GPU where there is one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "controlled":
        teacher = Name.parse(arguments.teacher)
        runs = [Name.parse(text) for text in arguments.runs or DEFAULT_RUNS]
        if arguments.kd:
            runs = [n if n == teacher else Name(n.system, n.tokens, True, n.seed) for n in runs]
        settings = tuple(arguments.settings)
        experiment = Experiment(arguments.folder, arguments.updates, settings, teacher, arguments.joined)
        controlled(experiment, runs, arguments.documents, not arguments.train_only)
    elif arguments.what == "speed":
        for setting in arguments.settings:
            sizes = arguments.tokens, arguments.max_tokens
            many = setting == "many", arguments.documents, arguments.systems
            speed(arguments.size, arguments.rounds, *sizes, *many)
    else:
        length(arguments.size, arguments.rounds, arguments.tokens, arguments.device)


if __name__ == "__main__":
    main()
