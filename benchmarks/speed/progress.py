"""How long nothing is told, and nothing moves on a screen, while documents are translated.

    python -m benchmarks.speed.progress RUN SOURCE [--sentences 600] [--set max_tokens=2000 ...]

The table has seconds of the wall, from the first document to the last sentence: `calls` are those of
`on_sentences`, `screen` the live line of `cotext translate` as its own thread writes it on a terminal that is
only remembered, and `count` the sentences done in that line.
"""

import io
import re
import time
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benchmarks.speed.harness import apply, parser, table
from cotext.cli.options import decode_settings
from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.decoding.open import open_run
from cotext.decoding.translator import DocumentTranslator
from cotext.runtime.progress import Meter, display

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]")


class Screen(io.StringIO):
    """A terminal that remembers when what it shows became another text; colours do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = ""
        self.changed: list[float] = []

    def write(self, text: str) -> int:
        line = CONTROL.sub("", text)
        if line and line != self.shown:
            self.shown = line
            self.changed.append(time.perf_counter())
        return len(text)


def watched(translator: DocumentTranslator, documents: list[Document]) -> dict[str, list[float]]:
    """When something was told or seen, by what; each begins and ends with the work."""
    screen, calls, counted = Screen(), list[float](), list[float]()
    with display(Console(file=screen, force_terminal=True, width=100)) as live:
        meter = Meter("translating", sum(map(len, documents)), live)

        def on_sentences(count: int) -> None:
            calls.append(time.perf_counter())
            if count:
                counted.append(calls[-1])
            meter.advance(count)

        begun = time.perf_counter()
        done = sum(len(t.document) for _, t in translator.translate(documents, on_sentences))
        ended = time.perf_counter()
    assert done == meter.done == meter.total
    changed = [at for at in screen.changed if begun <= at <= ended]
    return {
        key: [begun, *at, ended] for key, at in (("calls", calls), ("screen", changed), ("count", counted))
    }


def main() -> None:
    made = parser(__doc__, rounds=1)
    made.add_argument("run", type=Path)
    made.add_argument("source", type=Path)
    made.add_argument("--sentences", type=int, default=600)
    made.add_argument("--set", action="append", help="a key of decode")
    options = made.parse_args()
    clock = apply(options)
    opened = open_run(options.run, "cpu", decode_settings(options.set), threads=options.threads)
    documents: list[Document] = []
    for document in read_documents(options.source):
        if sum(map(len, documents)) >= options.sentences:
            break
        documents.append(document)
    for _ in range(options.rounds):
        begun = clock()
        times = watched(opened.translator, documents)
        print(f"{sum(map(len, documents))} sentences in {clock() - begun:.1f} s by the {options.clock} clock")
        gaps = {key: [b - a for a, b in pairwise(at)] for key, at in times.items()}
        rows = [
            (key, f"{len(each):,}", f"{max(each):.2f}", f"{sum(gap for gap in each if gap > 2):.1f}")
            for key, each in gaps.items()
        ]
        table(("", "changes", "longest gap [s]", "gaps above 2 s, in all [s]"), rows)


if __name__ == "__main__":
    main()
