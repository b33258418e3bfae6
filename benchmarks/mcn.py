"""What MCN's local and global contexts gain, and cost, beside the sentence model it is built on.

    python -m benchmarks.mcn controlled FOLDER [--runs NAME ...] [--updates 1000] [--train-only]
    python -m benchmarks.mcn context RUN DATA [--contexts 0 1 2 ...]     at test time, figure 3
    python -m benchmarks.mcn training [--size ted]          against the sentence model, and in turn
    python -m benchmarks.mcn decoding [--size ted] [--documents 1 8] [--beams 1 5]
    python -m benchmarks.mcn memory [--size ted]            of training, by document length

`controlled` trains tiny systems on the controlled corpus, each from scratch and once; an interrupted run goes
on. A run is called system[-seed], as final or memory-0-2; `--runs` chooses some, and `--train-only` leaves
measuring to a later call, so that several processes can share the work. Figures go to FOLDER/figures.json, a
picture beside it. `context` takes a trained run of MCN and the prepared folder of its corpus, or any other
that `cotext prepare` made with the same tokenizer and a test set; suites beside it are scored too. The other
three take processor time of one thread; ratios are those of neighbours in one round, tables show medians with
the smallest and the largest.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.batch_context import (
    accuracy_panels,
    accuracy_rows,
    bleu,
    curve,
    curved,
    test_documents,
)
from benchmarks.documents import table
from benchmarks.mcn_cost import decoding, memory, own_peak, training
from cotext.analysis.contrastive import run_suite
from cotext.config.recipe import Config, load_config
from cotext.config.sizes import SIZES
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite
from cotext.data.prepare import prepare_controlled
from cotext.decoding.translator import DocumentTranslator
from cotext.metrics.contrastive import Accuracy
from cotext.models.build import build_model
from cotext.models.checkpoint import load_run
from cotext.models.describe import describe_model
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.run import train

# What is trained: a recipe and, beside it, what the recipe leaves as the paper has it.
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sent": ("mcn/sent", ()),
    "docnmt": ("mcn/docnmt", ()),
    "doc2sent": ("mcn/doc2sent", ()),
    "doc2sent-reset": ("mcn/doc2sent-reset", ()),
    "doc2sent-reset-segment": ("mcn/doc2sent-reset-segment", ()),
    "doc2sent-relative": ("mcn/doc2sent-relative", ()),
    "doc2sent-gate": ("mcn/doc2sent-gate", ()),
    "sent2doc": ("mcn/sent2doc", ()),
    "final": ("mcn/final", ()),
    "memory-0": ("mcn/final", ("model.mcn.memory_sentences=0",)),
    "memory-2": ("mcn/final", ("model.mcn.memory_sentences=2",)),
    "memory-all": ("mcn/final", ("model.mcn.memory_sentences=20",)),
    "sent2doc-all": ("mcn/sent2doc", ("model.mcn.memory_sentences=20",)),
}
DEFAULT_RUNS = (
    "doc2sent",
    "doc2sent-relative",
    "doc2sent-gate",
    "sent2doc",
    "memory-0",
    "final",
    "memory-all",
)
CONTEXTS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
# Where the clue is. That of the first is on both sides: the German words repeat what the English ones say.
CLUES = {"source": ("pronoun", "register", "ellipsis"), "target": ("cohesion",), "ahead": ("cataphora",)}
EXAMPLES = 600  # of a suite, at least
TRANSLATED = 100  # test documents
TINY = [
    *("train.validate_every=100", "train.log_every=20", "train.validate_bleu=false", "train.average=3"),
    *("train.threads=1", "train.patience=0", "decode.beam=1"),
]

Figures = dict[str, Any]


# -------------------------------------------------------------------------------------- trained systems


def split_name(name: str) -> tuple[str, int]:
    """System and seed."""
    if name in SYSTEMS:
        return name, 1
    system, _, seed = name.rpartition("-")
    if system not in SYSTEMS or not seed.isdecimal():
        raise SystemExit(f"no run '{name}': system[-seed], of {', '.join(SYSTEMS)}")
    return system, int(seed)


def train_run(name: str, data: Path, run: Path, updates: int) -> None:
    """Train a run, or go on with it."""
    system, seed = split_name(name)
    recipe, overrides = SYSTEMS[system]
    settings = [*TINY, *overrides, f"train.max_updates={updates}", f"train.seed={seed}"]
    reports = TrainingCallbacks(
        on_update=lambda figures: None,
        on_validation=lambda f: print(f"{name} {f['update']:.0f} nll {f['nll_current']:.3f}", flush=True),
        on_message=lambda text: print(f"{name}: {text}", flush=True),
    )
    train(load_config(recipe, "tiny", settings), data, run, reports)


def open_at(run: Path, **mcn: int | None) -> DocumentTranslator:
    """A run with switches of its model changed that have no weights, as how far it sees."""
    loaded = load_run(run)
    model, config = loaded.model, loaded.config
    if mcn:
        config = with_mcn(config, mcn)
        model = build_model(config, loaded.tokenizer.vocabulary_size).eval()
        # Without context there is no global layer to fill.
        model.load_state_dict(loaded.model.state_dict(), strict=mcn.get("context") != 0)
    return DocumentTranslator(model, config, loaded.tokenizer, torch.device("cpu"))


def with_mcn(config: Config, changed: Mapping[str, int | None]) -> Config:
    mcn = config.model.mcn.model_copy(update=dict(changed))
    return config.model_copy(update={"model": config.model.model_copy(update={"mcn": mcn})})


def accuracies(translator: DocumentTranslator, data: Path) -> Figures:
    """By phenomenon and by every distance that its suite has, in per cent."""
    return {
        path.stem: by_distance(translator, read_suite(path))
        for path in sorted((data / "contrastive").glob("*.json"))
    }


def by_distance(translator: DocumentTranslator, suite: ContrastiveSuite) -> Figures:
    """Right and all, with the interval, by sentences back to the clue; -1 is the sentence ahead."""
    groups: dict[int, list[tuple[ContrastiveExample, bool, bool]]] = {}
    for example, decision in zip(suite.examples, run_suite(translator, suite).decisions, strict=True):
        assert example.distance is not None
        groups.setdefault(example.distance, []).append((example, decision.right, decision.tied))
    return {
        str(distance): Accuracy(
            sum(right for _, right, _ in members),
            len(members),
            sum(tied for _, _, tied in members),
            float(np.mean([1 / len(example.candidates) for example, _, _ in members])),
        ).as_dict()
        for distance, members in sorted(groups.items())
    }


def measure(run: Path, data: Path) -> Figures:
    """Everything that is told of a run."""
    translator = open_at(run)
    return {
        "signature": f"model:{describe_model(translator.config.model)}|{translator.signature}",
        "nll": min(loss for _, loss in curve(run)),
        "accuracy": accuracies(translator, data),
        "bleu": bleu(translator, test_documents(data, TRANSLATED)),
    }


def told_apart(accuracy: Figures) -> dict[str, float]:
    """Mean accuracy where the clue stands elsewhere, phenomena and distances alike, by where it stands."""
    return {
        clue: float(
            np.mean(
                [
                    each["accuracy_percent"]
                    for phenomenon in phenomena
                    for distance, each in accuracy[phenomenon].items()
                    if distance != "0"
                ]
            )
        )
        for clue, phenomena in CLUES.items()
    }


def prepared(folder: Path, corpus: str) -> Path:
    """The controlled corpus of a number of documents, or of a size by name."""
    data = folder / "data"
    if not (data / "report.json").is_file():
        size: str | int = int(corpus) if corpus.isdecimal() else corpus
        prepare_controlled(size, data, 1, contrastive_examples=EXAMPLES)
    return data


def controlled(folder: Path, runs: Sequence[str], updates: int, corpus: str, measuring: bool) -> None:
    """Train what is missing, measure, print, draw."""
    names = list(runs) or list(DEFAULT_RUNS)
    for name in names:
        split_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    data = prepared(folder, corpus)
    for name in names:
        train_run(name, data, folder / "runs" / name, updates)
    if not measuring:
        return
    path = folder / "figures.json"
    figures: dict[str, Figures] = json.loads(path.read_text()) if path.is_file() else {}
    for name in names:
        figures[name] = measure(folder / "runs" / name, data)
        path.write_text(json.dumps(figures, indent=1))
    shown = {name: figures[name] for name in names}
    controlled_table(shown)
    controlled_picture(shown).savefig(folder / "controlled.png", dpi=150)


def controlled_table(figures: dict[str, Figures]) -> None:
    """A row per phenomenon and distance; under it clues told apart, BLEU and loss."""
    rows = accuracy_rows(figures)
    clues = [told_apart(f["accuracy"]) for f in figures.values()]
    rows += [(f"clue: {clue}", "", *(f"{mean[clue]:.1f}" for mean in clues)) for clue in CLUES]
    for score in ("s-bleu", "d-bleu"):
        rows.append((score, "", *(f"{f['bleu'][score]:.1f}" for f in figures.values())))
    rows.append(("nll", "", *(f"{f['nll']:.3f}" for f in figures.values())))
    table(("sentences back to the clue", "chance", *figures), rows)


def controlled_picture(figures: dict[str, Figures]) -> Figure:
    """Accuracy over distance, a panel per phenomenon; then, system by system, the three kinds of clues."""
    accuracy = next(iter(figures.values()))["accuracy"]
    phenomena = curved(figures)
    figure = Figure(figsize=(3.2 * len(phenomena), 6.4), layout="constrained")
    above, below = figure.subfigures(2, 1)
    accuracy_panels(above.subplots(1, len(phenomena), squeeze=False)[0], figures)
    bars = below.subplots(1, 1)
    width = 0.8 / len(figures)
    for i, (name, f) in enumerate(figures.items()):
        means = told_apart(f["accuracy"])
        places = [j + (i - (len(figures) - 1) / 2) * width for j in range(len(means))]
        bars.bar(places, list(means.values()), width * 0.9, color=f"C{i}", label=name)
    for j, phenomena_of in enumerate(CLUES.values()):
        chance = np.mean(
            [e["chance_percent"] for p in phenomena_of for d, e in accuracy[p].items() if d != "0"]
        )
        bars.hlines(chance, j - 0.45, j + 0.45, color="black", linewidth=0.8, linestyle=":")
    bars.set_xticks(range(len(CLUES)), [f"clue: {c}\n({', '.join(p)})" for c, p in CLUES.items()])
    bars.set(ylabel="right, per cent", ylim=(0, 103))
    bars.legend(frameon=False, fontsize=8, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ------------------------------------------------------------------------------------ context at test time


def by_context(run: Path, data: Path, contexts: Sequence[int]) -> None:
    """Accuracy and BLEU of one run by how many source sentences a token sees; figures and picture in RUN."""
    suites = (data / "contrastive").is_dir()
    path = run / "context.json"
    figures: dict[str, Figures] = json.loads(path.read_text()) if path.is_file() else {}
    for context in contexts:
        translator = open_at(run, context=context)
        entry = {"bleu": bleu(translator, test_documents(data, TRANSLATED))}
        if suites:
            entry["accuracy"] = accuracies(translator, data)
        figures[str(context)] = entry
        path.write_text(json.dumps(figures, indent=1))
        print(f"context {context}: d-BLEU {entry['bleu']['d-bleu']:.1f}", flush=True)
    shown = {str(context): figures[str(context)] for context in contexts}
    rows = []
    for name, f in shown.items():
        means = [f"{mean:.1f}" for mean in told_apart(f["accuracy"]).values()] if suites else []
        rows.append((name, *means, f"{f['bleu']['s-bleu']:.1f}", f"{f['bleu']['d-bleu']:.1f}"))
    clues = [f"clue: {clue}" for clue in CLUES] if suites else []
    table(("sentences of context", *clues, "s-BLEU", "d-BLEU"), rows)
    context_picture(shown, suites).savefig(run / "context.png", dpi=150)


def context_picture(figures: dict[str, Figures], suites: bool) -> Figure:
    """BLEU over context and, where suites were scored, accuracy."""
    figure = Figure(figsize=(8 if suites else 4.2, 3.4), layout="constrained")
    panels = figure.subplots(1, 2 if suites else 1, squeeze=False)[0]
    contexts = [int(context) for context in figures]
    for score, marker in (("s-bleu", "o"), ("d-bleu", "s")):
        panels[-1].plot(contexts, [f["bleu"][score] for f in figures.values()], marker=marker, label=score)
    panels[-1].set(xlabel="source sentences of context on each side", ylabel="BLEU")
    if suites:
        means = [told_apart(f["accuracy"]) for f in figures.values()]
        for clue, marker in zip(CLUES, "os^", strict=True):
            panels[0].plot(contexts, [mean[clue] for mean in means], marker=marker, label=f"clue: {clue}")
        panels[0].set(
            xlabel="source sentences of context on each side", ylabel="right, per cent", ylim=(0, 103)
        )
    for panel in panels:
        panel.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("controlled")
    command.add_argument("folder", type=Path)
    command.add_argument("--runs", nargs="*", default=[], help=f"system[-seed], of {', '.join(SYSTEMS)}")
    command.add_argument("--updates", type=int, default=1000)
    command.add_argument("--corpus", default="small", help="small, medium or a number of documents")
    command.add_argument("--train-only", action="store_true")
    command = commands.add_parser("context")
    command.add_argument("run", type=Path)
    command.add_argument("data", type=Path)
    command.add_argument("--contexts", type=int, nargs="*", default=list(CONTEXTS))
    for name in ("training", "decoding", "memory"):
        command = commands.add_parser(name)
        command.add_argument("--size", choices=SIZES, default="ted")
        command.add_argument("--rounds", type=int, default=5)
        command.add_argument("--documents", type=int, nargs="*", default=[1, 8], help="side by side")
        command.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    peak = commands.add_parser("own-peak", help=argparse.SUPPRESS)
    peak.add_argument("recipe")
    peak.add_argument("size")
    peak.add_argument("sentences", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "controlled":
        chosen = arguments.runs, arguments.updates, arguments.corpus, not arguments.train_only
        controlled(arguments.folder, *chosen)
    elif arguments.what == "context":
        by_context(arguments.run, arguments.data, arguments.contexts)
    elif arguments.what == "training":
        training(arguments.size, arguments.rounds)
    elif arguments.what == "decoding":
        decoding(arguments.size, arguments.rounds, arguments.documents, arguments.beams)
    elif arguments.what == "memory":
        memory(arguments.size)
    else:
        own_peak(arguments.recipe, arguments.size, arguments.sentences)


if __name__ == "__main__":
    main()
