"""Which systems learn from long documents, and why not: `python -m benchmarks.long_documents FOLDER`.

Li et al. 2022 find that a Doc2Doc Transformer of six encoder layers, trained from scratch on few documents of
up to 512 tokens, does not learn to translate, while P-Transformer and G-Transformer do. Here documents are
made of the controlled corpus: nine of its documents each, about 440 tokens a side and 73 sentences, 2,222 in
all. Every system is as small as a CPU affords, post-norm, six layers a side, and sees the same documents.

Each run is trained once (and goes on where it was interrupted); `--runs` chooses some, so that several
processes can share the work. Then all that is there is measured on documents never trained on: loss of the
references, d-BLEU, sub-documents fully recovered from free decoding, and the entropy of cross-attention.
Tables and plots go to FOLDER; `cotext probe FOLDER/runs/...` asks the encoders for positions.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from cotext.analysis.attention import attention_spread
from cotext.config.recipe import load_config
from cotext.data.build import build_view, special_symbols
from cotext.data.controlled import development_documents, test_documents, training_documents
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.data.prepare import prepare
from cotext.data.sampling import ordered_batches
from cotext.data.tokenizer import TokenizerSettings
from cotext.decoding.translator import DocumentTranslator
from cotext.metrics.bleu import evaluate
from cotext.models.checkpoint import load_run
from cotext.runtime.tables import render_rows
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.prepared_data import open_data
from cotext.training.run import train

JOINED = 9  # controlled documents that make a long one
DOCUMENTS = 20_000
TRANSLATED = 22  # test documents
EVENNESS_OF = 128  # tokens; the length at which the systems part
SMALL = [
    *("model.dimension=64", "model.feed_forward=256", "model.heads=4", "model.dropout=0"),
    *("train.max_tokens=2100", "train.warmup_updates=400", "train.learning_rate=2e-3"),
    *("train.validate_every=250", "train.log_every=50", "train.validate_bleu=false", "train.threads=1"),
    *("train.patience=0", "train.average=1", "train.accumulate=1", "train.clip_norm=1"),
]
SYSTEMS = {
    "transformer": ("p-transformer/transformer-doc", []),
    "transformer-4": ("p-transformer/transformer-doc", ["model.encoder_layers=4"]),
    "p-transformer": ("p-transformer/doc", []),
    "p-transformer-no-cross": ("p-transformer/doc", ["model.p_transformer.cross=false"]),
    "g-transformer": ("g-transformer/randinit", []),
    "mr-doc2doc": ("mr/doc2doc", []),
    "sentence": ("p-transformer/transformer-sent", []),
}


def joined(documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
    """Long documents; what does not fill one is left out."""
    stream = iter(documents)
    number = 0
    while len(group := list(islice(stream, JOINED))) == JOINED:
        source = tuple(sentence for document in group for sentence in document.source)
        target = tuple(sentence for document in group for sentence in document.target)
        yield ParallelDocument(f"long-{number}", source, target)
        number += 1


def prepare_documents(folder: Path, documents: int) -> Path:
    """The corpus as `cotext prepare` makes it."""
    data = folder / "data"
    if not data.exists():
        splits = {
            "train": training_documents(documents, 1),
            "dev": development_documents(1),
            "test": test_documents(1),
        }
        files = {name: folder / f"{name}.tsv" for name in splits}
        for name, stream in splits.items():
            write_parallel(files[name], None, joined(stream), "tsv")
        settings = TokenizerSettings(kind="sentencepiece-bpe", vocabulary=1500, byte_fallback=False)
        prepare(files["train"], None, files["dev"], None, data, test_source=files["test"], settings=settings)
    return data


def train_run(name: str, data: Path, run: Path, updates: int) -> None:
    """Train `system-tokens[-seed]`, for instance `p-transformer-256` or `transformer-512-2`."""
    system, tokens, seed = split_name(name)
    recipe, overrides = SYSTEMS[system]
    settings = [f"view.max_tokens={tokens}", f"train.max_updates={updates}", f"train.seed={seed}"]
    config = load_config(recipe, None, [*SMALL, *overrides, *settings])
    reports = TrainingCallbacks(
        on_update=lambda figures: None,
        on_validation=lambda f: print(f"{name} {f['update']:.0f} nll {f['nll_current']:.3f}", flush=True),
        on_message=lambda text: print(f"{name}: {text}", flush=True),
    )
    train(config, data, run, reports)


def split_name(name: str) -> tuple[str, int, int]:
    """System, tokens a side, seed."""
    system = next(s for s in sorted(SYSTEMS, key=len, reverse=True) if name.startswith(f"{s}-"))
    tokens, _, seed = name.removeprefix(f"{system}-").partition("-")
    return system, int(tokens), int(seed or 1)


def measure(run: Path, data: Path) -> dict[str, Any]:
    """Figures of a trained run on the test documents."""
    loaded, opened = load_run(run), open_data(data)
    config, model = loaded.config, loaded.model
    view, symbols = build_view(config.view), special_symbols(loaded.tokenizer, config.view)
    batches = ordered_batches(opened.dev, view, symbols, 2100, config.view.max_tokens)
    spread = attention_spread(model, batches)
    cross = {name: s for name, s in spread.items() if "cross" in name}
    documents = list(islice(read_parallel(data / "test.jsonl", None), TRANSLATED))
    references = [Document(d.id, d.target) for d in documents]
    figures: dict[str, Any] = {
        "curve": list(curve(run)),
        "cross_nats": {name: s.nats for name, s in cross.items()},
        "cross_evenness": {name: s.normalised_entropy for name, s in cross.items()},
    }
    for align in ("constrained", "free"):
        if align == "free" and config.view.separators == "bracket":
            continue
        decode = config.decode.model_copy(update={"beam": 1, "align": align})
        chosen = config.model_copy(update={"decode": decode})
        translator = DocumentTranslator(model, chosen, loaded.tokenizer, torch.device("cpu"))
        found = dict(translator.translate(Document(d.id, d.source) for d in documents))
        hypotheses = [found[i].document for i in range(len(documents))]
        scores = evaluate(hypotheses, references, ("s-bleu", "d-bleu"))
        figures[align] = {score.protocol: score.value for score in scores}
        figures[align]["recovered"] = sum(sum(t.pieces) for t in found.values()) / sum(
            len(t.pieces) for t in found.values()
        )
    return figures


def curve(run: Path) -> Iterator[tuple[float, float]]:
    """Updates and loss of the development references, nats a token."""
    for line in (run / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "validation":
            yield entry["update"], entry["nll_current"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", nargs="*", default=[], help="train these first: system-tokens[-seed]")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="controlled documents")
    parser.add_argument("--measure", action="store_true", help="measure and plot all runs that are there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = prepare_documents(arguments.folder, arguments.documents)
    for name in arguments.runs:
        train_run(name, data, arguments.folder / "runs" / name, arguments.updates)
    if arguments.measure:
        figures = {
            run.name: measure(run, data)
            for run in sorted((arguments.folder / "runs").iterdir())
            if (run / "model.safetensors").is_file()
        }
        (arguments.folder / "figures.json").write_text(json.dumps(figures, indent=1))
        print_table(figures)
        plot(figures, arguments.folder)


def print_table(figures: dict[str, dict[str, Any]]) -> None:
    """One line a run."""
    head = ("run", "nll", "s-BLEU", "d-BLEU", "free d-BLEU", "recovered", "cross nats", "normalised_entropy")
    rows = [head]
    for name, f in figures.items():
        free = f.get("free")
        rows.append(
            (
                name,
                f"{min(loss for _, loss in f['curve']):.3f}",
                f"{f['constrained']['s-bleu']:.1f}",
                f"{f['constrained']['d-bleu']:.1f}",
                f"{free['d-bleu']:.1f}" if free else "",
                f"{free['recovered']:.0%}" if free else "",
                f"{min(f['cross_nats'].values()):.2f}-{max(f['cross_nats'].values()):.2f}",
                f"{min(f['cross_evenness'].values()):.2f}-{max(f['cross_evenness'].values()):.2f}",
            )
        )
    print(render_rows(rows, left=len(head)))


def plot(figures: dict[str, dict[str, Any]], folder: Path) -> None:
    """Training curves, a panel per length; BLEU by length; where cross-attention stays even."""
    lengths = sorted({split_name(name)[1] for name in figures})
    systems = sorted({split_name(name)[0] for name in figures})
    colours = {system: f"C{i}" for i, system in enumerate(systems)}
    figure = Figure(figsize=(3.1 * max(len(lengths), 2), 6.2), layout="constrained")
    above, below = figure.subfigures(2, 1)
    curves = above.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
    for panel, tokens in zip(curves, lengths, strict=True):
        for name, f in figures.items():
            system, own_tokens, seed = split_name(name)
            if own_tokens == tokens:
                label = system if seed == 1 else None
                panel.plot(*zip(*f["curve"], strict=True), marker=".", color=colours[system], label=label)
        panel.set(title=f"documents of {tokens} tokens", xlabel="updates", ylim=(0, None))
        panel.legend(frameon=False, fontsize=8)
    curves[0].set_ylabel("development loss, nats a token")
    bleu, even = below.subplots(1, 2)
    for system in systems:
        mine = {split_name(n)[1]: f for n, f in figures.items() if split_name(n)[::2] == (system, 1)}
        points = [(tokens, f["constrained"]["d-bleu"]) for tokens, f in sorted(mine.items())]
        bleu.plot(*zip(*points, strict=True), marker="o", color=colours[system], label=system)
        for tokens, f in mine.items():
            if tokens == EVENNESS_OF:
                normalised_entropy = list(f["cross_evenness"].values())
                layers = range(1, len(normalised_entropy) + 1)
                even.plot(layers, normalised_entropy, marker="o", color=colours[system], label=system)
    bleu.set_xscale("log", base=2)
    bleu.set_xticks(lengths, [str(tokens) for tokens in lengths])
    bleu.minorticks_off()
    bleu.set(xlabel="tokens a document is cut to", ylabel="d-BLEU", ylim=(0, 100))
    even.set(
        xlabel=f"cross-attention from the bottom, documents of {EVENNESS_OF} tokens\n"
        "(of g-transformer, 5 and 7 are local, 6 and 8 global)",
        ylabel="cross-attention: entropy / log keys",
        ylim=(0, 1.02),
    )
    for panel in (bleu, even):
        panel.legend(frameon=False, fontsize=8)
    figure.savefig(folder / "long-documents.png", dpi=150)


if __name__ == "__main__":
    main()
