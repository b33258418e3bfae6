"""Make the prepared data of an experiment."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path

from benchmarks.experiments.plan_data import Controlled, Data, Settings, Value
from cotext.data.contrastive_suites import write_suite
from cotext.data.controlled import SIZES, contrastive_suites, held_out_documents, training_documents
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare, prepare_controlled
from cotext.data.requests import ControlledRequest, PreparationRequest
from cotext.runtime import CotextError

COTEXT = (sys.executable, "-m", "cotext")
SUITES = "contrastive"


def commands(
    data: Data, out: Path, teacher: Path | None = None, other: Path | None = None
) -> list[list[str]]:
    """Return the commands that make prepared data, or continue to make it.

    `other`: the data that the teacher translates, or whose tokenizer is used.
    """
    if data.prepare is not None:
        return [[*COTEXT, "prepare", *_as_arguments(data.prepare), "--out", str(out)]]
    if data.distilled is not None:
        options = as_options(data.distilled.settings)
        return [[*COTEXT, "distill", str(teacher), "--data", str(other), "--out", str(out), *options]]
    if data.parts is not None:
        making = [sys.executable, "-m", "benchmarks.study.parts"]
        parts, texts = data.parts.model_dump_json(), texts_of(out)
        sides = {"source": data.parts.source, "target": data.parts.target}
        files = {
            f"{split}{side}": str(texts / f"{name}.{language}")
            for split, name in (("", "train"), ("dev-", "dev"), ("test-", "test"))
            for side, language in sides.items()
        }
        options = [word for key, path in files.items() for word in (f"--{key}", path)]
        options += _as_arguments(data.parts.prepare)
        if data.parts.tokenizer is not None:
            options += ["--tokenizer", str(other)]
        preparing = [*COTEXT, "prepare", *options, "--out", str(out)]
        return [
            [*making, "texts", parts, str(texts)],
            preparing,
            [*making, "suites", parts, str(texts), str(out)],
        ]
    assert data.controlled is not None
    return [
        [sys.executable, "-m", "benchmarks.experiments.data", data.controlled.model_dump_json(), str(out)]
    ]


def texts_of(out: Path) -> Path:
    """Return the folder of the texts from which data are prepared."""
    return out.with_name(f"{out.name}-texts")


def _as_arguments(options: Mapping[str, Value | list[str]]) -> list[str]:
    """Return options of a command; a true one has no value, a false one is left out, a list repeats it."""
    words = []
    for key, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not False:
                words += [f"--{key}"] if each is True else [f"--{key}", str(each)]
    return words


def as_options(settings: Settings) -> list[str]:
    """Return settings of decoding as `--set key=value`."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def make_controlled(controlled: Controlled, out: Path) -> None:
    """Generate and prepare the controlled corpus, unless that is done."""
    size = controlled.documents
    if controlled.joined == 1:
        prepare_controlled(
            ControlledRequest(
                size=str(size),
                out=out,
                seed=controlled.seed,
                contrastive_examples=controlled.examples,
                word_order=controlled.word_order,
                mentions=controlled.mentions,
            )
        )
        return
    documents = SIZES.get(size, 0) if isinstance(size, str) else size
    if documents < controlled.joined:
        raise CotextError(f"documents: {documents} are fewer than joined: {controlled.joined}")
    seed, order = controlled.seed, controlled.word_order
    splits = {
        "train": training_documents(documents, seed, order, controlled.mentions),
        "dev": held_out_documents("development", seed, order),
        "test": held_out_documents("test", seed, order),
    }
    texts = texts_of(out)
    texts.mkdir(parents=True, exist_ok=True)
    files = {name: texts / f"{name}.tsv" for name in splits}
    for name, stream in splits.items():
        write_parallel(files[name], None, joined(stream, controlled.joined), "tsv")
    if not (out / "report.json").is_file():
        prepare(
            PreparationRequest(
                source=files["train"],
                dev_source=files["dev"],
                test_source=files["test"],
                out=out,
                tokenizer="sentencepiece-bpe",
                vocabulary=1500,
            )
        )
    unfinished = out / f".{SUITES}"
    unfinished.mkdir(exist_ok=True)
    for suite in contrastive_suites(seed, controlled.examples, order):
        write_suite(unfinished / f"{suite.name.rpartition('/')[2]}.json", suite)
    unfinished.replace(out / SUITES)


def joined(documents: Iterable[ParallelDocument], of: int) -> Iterator[ParallelDocument]:
    """Join every `of` documents to a long one; the rest is left out."""
    stream = iter(documents)
    for number in count():
        group = list(islice(stream, of))
        if len(group) < of:
            return
        source = tuple(sentence for document in group for sentence in document.source)
        target = tuple(sentence for document in group for sentence in document.target)
        yield ParallelDocument(f"long-{number}", source, target)


def main() -> None:
    """Make a controlled corpus in a process of its own."""
    make_controlled(Controlled.model_validate_json(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
