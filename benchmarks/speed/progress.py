"""How long nothing is told, and nothing moves on a screen, while documents are translated.

    python -m benchmarks.speed.progress RUN SOURCE [--sentences 600] [--set max_tokens=2000 ...]

The table is of the time from the first document to the last sentence: `calls` are those of `on_sentences`,
`screen` the live line of `cotext translate`, as its own thread writes it on a terminal that is only
remembered, and `count` the sentences done in that line. A person waits by the wall; where other work takes
the machine, the processor's time says what a gap is by itself.
"""

import io
import re
import time
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benchmarks.speed.harness import apply, parser, table
from cotext.cli.options import settings
from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.runtime.progress import Meter, display
from cotext.translation.open import open_run
from cotext.translation.translator import DocumentTranslator

Moment = tuple[float, float]  # of the wall, and of this process
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]")


def moment() -> Moment:
    """Now, by both clocks."""
    return time.perf_counter(), time.process_time()


class Screen(io.StringIO):
    """A terminal that remembers when what it shows became another text; colours do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = ""
        self.changed: list[Moment] = []

    def write(self, text: str) -> int:
        line = CONTROL.sub("", text)
        if line and line != self.shown:
            self.shown = line
            self.changed.append(moment())
        return len(text)


def watched(translator: DocumentTranslator, documents: list[Document]) -> dict[str, list[Moment]]:
    """When something was told or seen, by what; each begins and ends with the work."""
    screen, calls, counted = Screen(), list[Moment](), list[Moment]()
    with display(Console(file=screen, force_terminal=True, width=100)) as live:
        meter = Meter("translating", sum(map(len, documents)), live)

        def on_sentences(count: int) -> None:
            calls.append(moment())
            if count:
                counted.append(calls[-1])
            meter.advance(count)

        begun = moment()
        done = sum(len(t.document) for _, t in translator.translate(documents, on_sentences))
        ended = moment()
    assert done == meter.done == meter.total
    changed = [at for at in screen.changed if begun <= at <= ended]
    found = {"calls": calls, "screen": changed, "count": counted}
    return {key: [begun, *at, ended] for key, at in found.items()}


def longest(name: str, moments: list[Moment]) -> tuple[str, ...]:
    """The longest gap between two moments, by each clock."""
    gaps = [max(after[n] - before[n] for before, after in pairwise(moments)) for n in (0, 1)]
    return name, f"{len(moments) - 1:,}", *(f"{gap:.2f}" for gap in gaps)


def main() -> None:
    made = parser(__doc__, rounds=1)
    made.add_argument("run", type=Path)
    made.add_argument("source", type=Path)
    made.add_argument("--sentences", type=int, default=600)
    made.add_argument("--set", action="append", help="a key of decode")
    options = made.parse_args()
    apply(options)
    opened = open_run(options.run, "cpu", settings(options.set or []), threads=options.threads)
    documents: list[Document] = []
    for document in read_documents(options.source):
        if sum(map(len, documents)) >= options.sentences:
            break
        documents.append(document)
    for _ in range(options.rounds):
        times = watched(opened.translator, documents)
        wall, processor = (times["calls"][-1][n] - times["calls"][0][n] for n in (0, 1))
        sentences = sum(map(len, documents))
        print(f"{sentences} sentences in {wall:.1f} s, {processor:.1f} s of the processor")
        table(("longest gap", "of", "wall [s]", "processor [s]"), [longest(*each) for each in times.items()])


if __name__ == "__main__":
    main()
