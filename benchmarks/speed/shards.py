"""What a large corpus costs in shards: `python -m benchmarks.speed.shards RUN SOURCE`.

Processor time, beside the load of the machine: of translation a sentence, of a shard's start, of counting the
documents of a file, which every shard does, and of noting and joining what was translated. Then what a corpus
of `--documents` documents like those of SOURCE takes in all. Lengths are limited by `--ratio`, so that a run
of random weights writes as much as a trained one.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from benchmarks.speed.harness import added_mebibytes, apply, parser, table
from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.runtime.jobs.engine import folder_of, joining
from cotext.runtime.jobs.journal import Header, Journal
from cotext.translation.open import open_run
from cotext.translation.translate_file import checksums_of, entry_of, join_translations
from cotext.translation.translator import Translation

Clock = Callable[[], float]


def main() -> None:
    """Measure, and print two tables."""
    made = parser(__doc__, rounds=1)
    made.add_argument("run", type=Path)
    made.add_argument("source", type=Path)
    made.add_argument("--sentences", type=int, default=60, help="of SOURCE to translate")
    made.add_argument("--held", type=int, default=20_000, help="documents to count, note and join")
    made.add_argument("--documents", type=float, default=100e6, help="of the corpus that is reckoned")
    made.add_argument("--shards", type=int, default=1000)
    made.add_argument("--precision", nargs="+", default=["float32", "int8"])
    made.add_argument("--ratio", type=float, default=1.2, help="target tokens a source token at most")
    options = made.parse_args()
    clock = apply(options)
    documents = list(read_documents(options.source))
    chosen = _first(documents, options.sentences)
    seconds = {
        precision: _translating(options.run, chosen, precision, options.ratio, clock)
        for precision in options.precision
    }
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "held.jsonl"
        many = (replace(d, id=str(n)) for n, d in enumerate(islice(cycle(documents), options.held)))
        write_documents(held, many, "jsonl")
        figures = {
            "start of a shard": _start(options.run, chosen[0], Path(folder)),
            "counting 1,000,000 documents": _counting(held, options.held, clock) * 1e6,
            **_parts(held, options.held, clock),
        }
    of_each = sum(map(len, documents)) / len(documents)
    table(["", "processor seconds"], [[name, f"{value:.3g}"] for name, value in figures.items()])
    print()
    for precision, each in seconds.items():
        print(f"{precision}: {1 / each:,.1f} sentences a second of a core")
        _reckon(options, each, of_each, figures)


def _first(documents: Sequence[Document], sentences: int) -> list[Document]:
    found: list[Document] = []
    while sum(map(len, found)) < sentences and len(found) < len(documents):
        found.append(documents[len(found)])
    return found


def _translating(
    run: Path, documents: Sequence[Document], precision: str, ratio: float, clock: Clock
) -> float:
    """Seconds a sentence."""
    settings = {"precision": precision, "beam": 1, "max_ratio": ratio, "max_extra": 0}
    translator = open_run(run, "cpu", settings).translator
    list(translator.translate([Document("0", documents[0].sentences[:2])]))
    before = clock()
    list(translator.translate(documents))
    return (clock() - before) / sum(map(len, documents))


def _start(run: Path, document: Document, folder: Path) -> float:
    """Seconds of a process that translates next to nothing."""
    source = folder / "one.txt"
    source.write_text(f"{document.sentences[0]}\n", encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["translate", str(run), str(source), "--format", "text", "--out", str(folder / "one.out")]
    subprocess.run([sys.executable, "-m", "cotext", *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _counting(path: Path, documents: int, clock: Clock) -> float:
    before = clock()
    assert sum(1 for _ in map(len, read_documents(path))) == documents
    return (clock() - before) / documents


def _parts(held: Path, documents: int, clock: Clock) -> dict[str, float]:
    """What it takes to note translations, here the sources themselves, and to join them."""
    out = held.with_name("out.jsonl")
    facts = {"source": str(held), "format": "jsonl", "scores": "", "align": "", "piece": "", "signature": ""}
    identity, units = {"source": checksums_of([held], "jsonl")}, range(documents)
    header = Header("translate", "documents", identity, {**facts, "nbest": 1}, units=units, total=documents)
    path = folder_of(out) / "1-of-1.jsonl"
    path.parent.mkdir()
    before, spent = clock(), 0.0
    with Journal(path, out, header) as part:
        for unit, document in enumerate(read_documents(held)):
            numbers = tuple(-1.5 * len(text) for text in document.sentences)
            translation = Translation(document, numbers, tokens=tuple(map(len, document.sentences)))
            moment = clock()
            part.add(unit, entry_of(translation))
            spent += clock() - moment
    size = sum(path.stat().st_size for path in folder_of(out).iterdir())
    before = clock()

    def join() -> None:
        with joining(out) as parts:
            join_translations(out, parts)

    mebibytes = added_mebibytes(join)
    return {
        "noting 1,000,000 documents": spent * 1e6 / documents,
        "joining 1,000,000 documents": (clock() - before) * 1e6 / documents,
        "(MiB that joining adds)": mebibytes,
        "(bytes of a part a byte of text)": size
        / sum(
            len(text.encode())
            for document in read_documents(out, side="target")
            for text in document.sentences
        ),
    }


def _reckon(options: argparse.Namespace, seconds: float, sentences: float, figures: dict[str, float]) -> None:
    documents, shards = options.documents, options.shards
    millions, hours = documents / 1e6, 3600.0
    work = {
        f"translating {documents * sentences:.3g} sentences": documents * sentences * seconds,
        f"starting {shards:,} shards": shards * figures["start of a shard"],
        f"counting, one file, in each of {shards:,} shards": shards
        * millions
        * figures["counting 1,000,000 documents"],
        f"counting, {shards:,} files": millions * figures["counting 1,000,000 documents"],
        "noting": millions * figures["noting 1,000,000 documents"],
        "joining": millions * figures["joining 1,000,000 documents"],
    }
    table(["", "core hours"], [[name, f"{value / hours:,.1f}"] for name, value in work.items()])
    print()


if __name__ == "__main__":
    main()
