"""What trained runs lose in int8 or bfloat16, with every matrix converted, however small.

    python -m benchmarks.speed.precision_quality RUN ... --data FOLDER [--precision bfloat16] [--only PART]
        [--suites pronoun ... | FILE.json ...]

FOLDER is one of prepared data: its test set is translated and contrastive suites, its own by name (of the
controlled corpus) or any by file, are scored in float32 and in the other precision. `--only
output|layers|embedding` quantises a part alone.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from benchmarks.speed.harness import table
from cotext.data.documents import Document
from cotext.data.formats import read_parallel
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.interface import evaluate
from cotext.evaluation.studies.contrastive.contrastive import run_suite
from cotext.models.interface import Model
from cotext.models.precision import halved, quantised
from cotext.translation.open import open_run
from cotext.translation.translator import DocumentTranslator

METRICS = ("s-bleu", "chrf")


def partly(model: Model, only: str) -> Model:
    """The model with all of its matrices in int8, or a part of them."""
    made = quantised(model, least=0)
    if only == "output":  # its rows, as logits; all else as it was
        own = quantised(model, least=1 << 60)
        own.int8_output = made.int8_output
        return own
    if only == "layers":
        made.int8_output, made.embedding.weight = None, model.embedding.weight
    if only == "embedding":
        own = quantised(model, least=1 << 60)
        own.embedding.weight = nn.Parameter(made.embedding.weight)
        return own
    return made


def written(translator: DocumentTranslator, documents: Sequence[Document]) -> list[Document]:
    """Translations in the order of the documents."""
    found = dict(translator.translate(iter(documents)))
    return [found[i].document for i in range(len(documents))]


def shares(one: Sequence[Document], other: Sequence[Document]) -> tuple[float, float]:
    """Per cent of equal sentences, and of words that are equal in their place."""
    pairs = [p for a, b in zip(one, other, strict=True) for p in zip(a.sentences, b.sentences, strict=True)]
    equal = sum(a == b for a, b in pairs)
    words = [(a.split(), b.split()) for a, b in pairs]
    same = sum(sum(x == y for x, y in zip(a, b, strict=False)) for a, b in words)
    return 100 * equal / len(pairs), 100 * same / sum(max(len(a), len(b)) for a, b in words)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("runs", nargs="+", type=Path)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--precision", choices=["int8", "bfloat16"], default="int8")
    made.add_argument("--only", choices=["output", "layers", "embedding"], help="of int8")
    made.add_argument("--documents", type=int, help="so many of the test set alone")
    made.add_argument("--suites", nargs="*", default=["pronoun"], help="contrastive suites by name or file")
    made.add_argument("--examples", type=int, help="so many of each suite alone")
    options = made.parse_args()
    pairs = list(read_parallel(options.data / "test.jsonl", None))
    sources, references = ([Document(d.id, side(d)) for d in pairs] for side in (_source, _target))
    sources, references = sources[: options.documents], references[: options.documents]
    files = [
        Path(name) if name.endswith(".json") else options.data / "contrastive" / f"{name}.json"
        for name in options.suites
    ]
    suites = [read_suite(file) for file in files]
    suites = [replace(suite, examples=suite.examples[: options.examples]) for suite in suites]
    rows = []
    for run in options.runs:
        opened = open_run(run, "cpu", threads=1)
        model = opened.loaded.with_states("precision_quality")
        other = partly(model, options.only or "")
        if options.precision == "bfloat16":
            other = halved(model, "bfloat16", least=0)
        reduced = replace(opened.loaded, model=other)
        both = [
            DocumentTranslator(each.model, opened.config, each.tokenizer, torch.device("cpu"))
            for each in (opened.loaded, reduced)
        ]
        texts = [written(translator, sources) for translator in both]
        row = [run.name]
        scores = [[s.value for s in evaluate(text, references, METRICS)] for text in texts]
        row += [f"{a:.2f} / {b:.2f}" for a, b in zip(*scores, strict=True)]
        accuracy = [
            [run_suite(translator, suite).as_dict()["overall"]["accuracy_percent"] for suite in suites]
            for translator in both
        ]
        row += [f"{a:.1f} / {b:.1f}" for a, b in zip(*accuracy, strict=True)]
        row += [f"{share:.1f}" for share in shares(*texts)]
        print(*row, sep="  ", flush=True)
        rows.append(row)
    table(["run", *METRICS, *(s.name for s in suites), "equal sentences %", "equal words %"], rows)


def _source(document: object) -> tuple[str, ...]:
    return document.source


def _target(document: object) -> tuple[str, ...]:
    return document.target


if __name__ == "__main__":
    main()
