"""What rows gain, and cost, that see each other: DocFlat, MBE and ABD beside Doc2Doc.

    python -m benchmarks.batch_context claim FOLDER [--updates 1000]     a local window of one sentence
    python -m benchmarks.batch_context context FOLDER                    view.before 0 to 5, with and without
    python -m benchmarks.batch_context group_windows FOLDER [--runs NAME]   1 to 32 windows of one run
    python -m benchmarks.batch_context speed [--size base]               training, decoding against Doc2Doc
    python -m benchmarks.batch_context memory                            flat-batch attention by flat length

The first three train tiny systems on the controlled corpus, each from scratch and once; an interrupted run
goes on. A run is called system-before[-seed], as docflat-c-0 or doc2doc-3-2; `--runs` chooses some, and
`--train-only` leaves measuring to a later call, so that several processes can share the work. All figures go
to FOLDER/figures.json, pictures beside it. `speed` and `memory` take processor time and memory of one thread;
ratios are those of neighbours in one round, tables show medians with the smallest and the largest.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.batch_context_cost import attention_peak, decoding_speed, memory, training_speed
from benchmarks.documents import table
from cotext.analysis.attention_of_document import document_attention
from cotext.analysis.contrastive import run_suite
from cotext.config.recipe import load_config
from cotext.data.contrastive_suites import read_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.prepare import prepare_controlled
from cotext.decoding.open import open_run, open_scorer
from cotext.decoding.translator import DocumentTranslator
from cotext.metrics.bleu import evaluate
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.run import train

SYSTEMS = ("doc2doc", "docflat-c", "docflat-d", "docflat-i", "mbe", "abd")
BEFORE = range(6)
NEIGHBOURS = (1, 2, 4, 8, 16, 32)
EXAMPLES = 600  # of a suite, at least
TRANSLATED = 100  # test documents
WATCHED = 50  # test documents whose gates are read
TINY = [
    *("train.init=''", "train.learning_rate=4e-3", "train.word_dropout=0"),
    *("train.validate_every=100", "train.log_every=20", "train.validate_bleu=false"),
    *("train.average=3", "train.average_by=best", "train.threads=1"),
    *("train.patience=0", "decode.beam=1"),
]

Figures = dict[str, Any]


# -------------------------------------------------------------------------------------- trained systems


def split_name(name: str) -> tuple[str, int, int]:
    """System, sentences of local context, seed."""
    system = next(s for s in sorted(SYSTEMS, key=len, reverse=True) if name.startswith(f"{s}-"))
    before, _, seed = name.removeprefix(f"{system}-").partition("-")
    return system, int(before), int(seed or 1)


def train_run(name: str, data: Path, run: Path, updates: int) -> None:
    """Train a run, or go on with it."""
    system, before, seed = split_name(name)
    settings = [f"view.before={before}", f"train.max_updates={updates}", f"train.seed={seed}"]
    config = load_config(f"docflat/{system}", "tiny", [*TINY, *settings])
    reports = TrainingCallbacks(
        on_update=lambda figures: None,
        on_validation=lambda f: print(f"{name} {f['update']:.0f} nll {f['nll_current']:.3f}", flush=True),
        on_message=lambda text: print(f"{name}: {text}", flush=True),
    )
    train(config, data, run, reports)


def accuracies(translator: DocumentTranslator, data: Path) -> Figures:
    """By phenomenon and distance, in per cent, with chance and the 95 % interval."""
    found = {}
    for path in sorted((data / "contrastive").glob("*.json")):
        report = run_suite(translator, read_suite(path))
        found[path.stem] = {distance: each.as_dict() for distance, each in report.by_distance.items()}
    return found


def test_documents(data: Path, count: int) -> list[ParallelDocument]:
    return list(islice(read_parallel(data / "test.jsonl", None), count))


def bleu(translator: DocumentTranslator, documents: Sequence[ParallelDocument]) -> Figures:
    """Of translations made document by document."""
    found = dict(translator.translate(Document(d.id, d.source) for d in documents))
    hypotheses = [found[i].document for i in range(len(documents))]
    references = [Document(d.id, d.target) for d in documents]
    return {s.protocol: float(s.value) for s in evaluate(hypotheses, references, ("s-bleu", "d-bleu"))}


def gates(translator: DocumentTranslator, documents: Iterable[ParallelDocument]) -> Figures:
    """Openness of each gate, and by distance the share of attention and what of it passes."""
    opened: dict[str, list[float]] = {}
    sums: dict[str, dict[int, list[float]]] = {}
    for document in documents:
        report = document_attention(translator, translator.model, document, "", own=False)
        for gate in report.gates.values():
            opened.setdefault(gate.kind, []).append(gate.overall)
            for distance, at in gate.by_distance(report.share_of(gate.kind)).items():
                total = sums.setdefault(gate.kind, {}).setdefault(distance, [0.0, 0.0, 0.0])
                for i, value in enumerate((at.share * at.sentences, at.passed * at.sentences, at.sentences)):
                    total[i] += value
    return {
        kind: {
            "openness": sum(values) / len(values),
            "by_distance": {
                d: {"share": s / n, "passed": p / n} for d, (s, p, n) in sorted(sums[kind].items())
            },
        }
        for kind, values in opened.items()
    }


def measure(run: Path, data: Path) -> Figures:
    """Everything that is told of a run."""
    scorer, loaded = open_scorer(run, "cpu")
    translator = open_run(run, "cpu").translator
    return {
        "signature": f"{loaded.signature}|{translator.signature}",
        "nll": min(loss for _, loss in curve(run)),
        "accuracy": accuracies(scorer, data),
        "bleu": bleu(translator, test_documents(data, TRANSLATED)),
        "gates": gates(scorer, test_documents(data, WATCHED)),
    }


def curve(run: Path) -> Iterator[tuple[float, float]]:
    """Updates and loss of the current sentences of the development set, nats a token."""
    for line in (run / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "validation":
            yield entry["update"], entry["nll_current"]


def by_neighbours(run: Path, data: Path) -> Figures:
    """Accuracy and BLEU by how many windows see each other."""
    found = {}
    for count in NEIGHBOURS:
        scorer = open_run(run, "cpu", {"group_windows": count}).translator
        score = bleu(scorer, test_documents(data, TRANSLATED))
        found[str(count)] = {"accuracy": accuracies(scorer, data), "bleu": score}
        print(f"group_windows {count}: d-BLEU {score['d-bleu']:.1f}", flush=True)
    return found


def beyond(accuracy: Figures, before: int) -> float:
    """Mean accuracy where the clue stands further back than the local window, distances alike."""
    values = [
        each["accuracy_percent"]
        for phenomenon in accuracy.values()
        for distance, each in phenomenon.items()
        if distance == ">3" or (distance.isdecimal() and int(distance) > before)
    ]
    return float(np.mean(values)) if values else float("nan")


def experiments(
    what: str, folder: Path, runs: Sequence[str], updates: int, corpus: str, measuring: bool
) -> None:
    """Train what is missing, measure, print, draw."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    if not (data / "report.json").is_file():
        size: str | int = int(corpus) if corpus.isdecimal() else corpus
        prepare_controlled(size, data, 1, contrastive_examples=EXAMPLES)
    defaults = {
        "claim": [f"{system}-0" for system in SYSTEMS],
        "context": [f"{system}-{before}" for before in BEFORE for system in ("doc2doc", "docflat-c")],
        "group_windows": ["docflat-c-0"],
    }
    names = list(runs) or defaults[what]
    for name in names:
        train_run(name, data, folder / "runs" / name, updates)
    if not measuring:
        return
    path = folder / "figures.json"
    figures: dict[str, Figures] = json.loads(path.read_text()) if path.is_file() else {}
    measured: Callable[[Path, Path], Figures] = by_neighbours if what == "group_windows" else measure
    section = figures.setdefault("group_windows" if what == "group_windows" else "runs", {})
    for name in names:
        section[name] = measured(folder / "runs" / name, data)
        path.write_text(json.dumps(figures, indent=1))
    shown = {name: section[name] for name in names}
    tables = {"claim": claim_tables, "context": context_table, "group_windows": neighbours_table}
    tables[what](shown)
    pictures = {"claim": claim_picture, "context": context_picture, "group_windows": neighbours_picture}
    pictures[what](shown).savefig(folder / f"{what}.png", dpi=150)


def accuracy_rows(figures: dict[str, Figures]) -> list[tuple[str, ...]]:
    """A row per phenomenon and distance: chance, then every run's accuracy in per cent."""
    first = next(iter(figures.values()))["accuracy"]
    return [
        (
            f"{phenomenon} {distance}",
            f"{each['chance_percent']:.1f}",
            *(f"{f['accuracy'][phenomenon][distance]['accuracy_percent']:.1f}" for f in figures.values()),
        )
        for phenomenon, distances in first.items()
        for distance, each in distances.items()
    ]


def curved(figures: dict[str, Figures]) -> list[str]:
    """The phenomena measured at more than one distance; the others have no curve."""
    accuracy = next(iter(figures.values()))["accuracy"]
    return [name for name, distances in accuracy.items() if len(distances) > 1]


def accuracy_panels(panels: Sequence[Any], figures: dict[str, Figures]) -> None:
    """Accuracy over distance, a panel per phenomenon with a curve."""
    accuracy = next(iter(figures.values()))["accuracy"]
    for panel, phenomenon in zip(panels, curved(figures), strict=True):
        distances = list(accuracy[phenomenon])
        for i, (name, f) in enumerate(figures.items()):
            values = [f["accuracy"][phenomenon][d]["accuracy_percent"] for d in distances]
            panel.plot(distances, values, marker="os^Dv*PX"[i % 8], color=f"C{i}", label=name, alpha=0.85)
        chance = accuracy[phenomenon][distances[0]]["chance_percent"]
        panel.axhline(chance, color="black", linewidth=0.8, linestyle=":")
        panel.set(title=phenomenon, xlabel="sentences back to the clue", ylim=(0, 103))
    panels[0].set_ylabel("right, per cent")


def claim_tables(figures: dict[str, Figures]) -> None:
    """A row per phenomenon and distance; under it BLEU, loss and gates."""
    rows = accuracy_rows(figures)
    rows.append(("d-BLEU", "", *(f"{f['bleu']['d-bleu']:.1f}" for f in figures.values())))
    rows.append(("nll", "", *(f"{f['nll']:.3f}" for f in figures.values())))
    for kind in ("batch-source", "batch-target"):
        opened = (f["gates"].get(kind) for f in figures.values())
        rows.append((f"open, {kind}", "", *(f"{g['openness']:.2f}" if g else "" for g in opened)))
    table(("sentences back to the clue", "chance", *figures), rows)


def claim_picture(figures: dict[str, Figures]) -> Figure:
    """Accuracy over distance, a panel per phenomenon, and what the gates let through by distance."""
    phenomena = curved(figures)
    figure = Figure(figsize=(3.4 * len(phenomena), 6.0), layout="constrained")
    panels = figure.subplots(2, len(phenomena), squeeze=False)
    accuracy_panels(panels[0], figures)
    for panel, kind in zip(panels[1], ("batch-source", "batch-target"), strict=False):
        for i, (name, f) in enumerate(figures.items()):
            if gate := f["gates"].get(kind):
                points = [(int(d), at["passed"]) for d, at in gate["by_distance"].items()]
                panel.plot(*zip(*points, strict=True), marker=".", color=f"C{i}", label=name)
        panel.set(
            title=f"gate, {kind.removeprefix('batch-')}",
            xlabel="sentences back (below zero: ahead)",
            ylim=(0, None),
        )
        panel.set_ylabel("openness x share of attention")
    for panel in panels[1][2:]:
        panel.set_axis_off()
    # Curves share a value or two in every panel: what they are is told where nothing else stands.
    panels[1][-1].legend(*panels[0][0].get_legend_handles_labels(), frameon=False, loc="center")
    return figure


def context_table(figures: dict[str, Figures]) -> None:
    rows = []
    for name, f in figures.items():
        _, before, _ = split_name(name)
        bleus = [f"{f['bleu'][score]:.1f}" for score in ("s-bleu", "d-bleu")]
        figures_of = [f"{beyond(f['accuracy'], limit):.1f}" for limit in (0, before)]
        rows.append((name, *figures_of, *bleus, f"{f['nll']:.3f}"))
    table(("run", "clue elsewhere", "clue outside the window", "s-BLEU", "d-BLEU", "nll"), rows)


def context_picture(figures: dict[str, Figures]) -> Figure:
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, system in enumerate(dict.fromkeys(split_name(name)[0] for name in figures)):
        mine = [(split_name(name)[1], f) for name, f in figures.items() if split_name(name)[0] == system]
        for panel, values in (
            (left, [(before, beyond(f["accuracy"], 0)) for before, f in mine]),
            (right, [(before, f["bleu"]["d-bleu"]) for before, f in mine]),
        ):
            panel.plot(*zip(*values, strict=True), "osD^"[i % 4], color=f"C{i}", linestyle="-", label=system)
    left.set(xlabel="sentences of local context", ylabel="right, per cent (clue elsewhere)")
    right.set(xlabel="sentences of local context", ylabel="d-BLEU")
    left.legend(frameon=False, fontsize=8)
    return figure


def neighbours_table(figures: dict[str, Figures]) -> None:
    rows = [
        (
            name,
            count,
            f"{beyond(f['accuracy'], split_name(name)[1]):.1f}",
            f"{f['bleu']['s-bleu']:.1f}",
            f"{f['bleu']['d-bleu']:.1f}",
        )
        for name, each in figures.items()
        for count, f in each.items()
    ]
    table(("run", "group_windows", "clue outside the window", "s-BLEU", "d-BLEU"), rows)


def neighbours_picture(figures: dict[str, Figures]) -> Figure:
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, each in figures.items():
        before = split_name(name)[1]
        counts = [int(count) for count in each]
        left.plot(counts, [beyond(f["accuracy"], before) for f in each.values()], marker="o", label=name)
        right.plot(counts, [f["bleu"]["d-bleu"] for f in each.values()], marker="o", label=name)
    for panel, name in ((left, "right, per cent (clue outside the window)"), (right, "d-BLEU")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(NEIGHBOURS, [str(count) for count in NEIGHBOURS])
        panel.minorticks_off()
        panel.set(xlabel="windows that see each other", ylabel=name)
    left.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("claim", "context", "group_windows"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("--runs", nargs="*", default=[], help="system-before[-seed]")
        command.add_argument("--updates", type=int, default=1000)
        command.add_argument("--corpus", default="small", help="small, medium or a number of documents")
        command.add_argument("--train-only", action="store_true")
    speed = commands.add_parser("speed")
    speed.add_argument("--size", choices=["base", "small"], default="base")
    speed.add_argument("--rounds", type=int, default=5)
    speed.add_argument("--beam", type=int, default=5)
    speed.add_argument("--documents", type=int, default=4)
    speed.add_argument("--part", choices=["training", "decoding", "both"], default="both")
    commands.add_parser("memory")
    peak = commands.add_parser("attention-peak", help=argparse.SUPPRESS)
    peak.add_argument("--tokens", type=int, default=512)
    peak.add_argument("--causal", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "speed":
        if arguments.part != "decoding":
            training_speed(arguments.size, arguments.rounds)
        if arguments.part != "training":
            decoding_speed(arguments.size, arguments.rounds, arguments.beam, arguments.documents)
    elif arguments.what == "memory":
        memory()
    elif arguments.what == "attention-peak":
        attention_peak(arguments.tokens, arguments.causal)
    else:
        chosen = arguments.runs, arguments.updates, arguments.corpus, not arguments.train_only
        experiments(arguments.what, arguments.folder, *chosen)


if __name__ == "__main__":
    main()
