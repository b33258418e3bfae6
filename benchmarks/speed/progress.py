"""The longest time without a sign of progress while documents are translated.

    python -m benchmarks.speed.progress RUN SOURCE [--sentences 600] [--set max_tokens=2000 ...]

From the first document to the last sentence, the table has the longest gap between calls of `on_sentences`
(`calls`), between changes of the live line of `cotext translate` on a terminal (`screen`), and between
those calls that report finished sentences (`count`). Gaps are elapsed time and processor time of this
process.
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

Moment = tuple[float, float]  # elapsed time, processor time
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]")


def moment() -> Moment:
    return time.perf_counter(), time.process_time()


class Screen(io.StringIO):
    """A terminal that records when its text changes; colours do not count."""

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
    """Translate, and return the moments of each kind of sign, between start and end of the work."""
    screen, calls, counted = Screen(), list[Moment](), list[Moment]()
    with display(Console(file=screen, force_terminal=True, width=100)) as live:
        meter = Meter("translating", sum(map(len, documents)), live)

        def on_sentences(count: int) -> None:
            calls.append(moment())
            if count:
                counted.append(calls[-1])
            meter.advance(count)

        start = moment()
        done = sum(len(t.document) for _, t in translator.translate(documents, on_sentences))
        end = moment()
    assert done == meter.done == meter.total
    changed = [at for at in screen.changed if start <= at <= end]
    found = {"calls": calls, "screen": changed, "count": counted}
    return {key: [start, *at, end] for key, at in found.items()}


def longest(name: str, moments: list[Moment]) -> tuple[str, ...]:
    """Return a row of the table: the number of gaps, and the longest one by each clock."""
    gaps = [max(after[n] - before[n] for before, after in pairwise(moments)) for n in (0, 1)]
    return name, f"{len(moments) - 1:,}", *(f"{gap:.2f}" for gap in gaps)


def main() -> None:
    """Print a table."""
    made = parser(__doc__, rounds=1)
    made.add_argument("run", type=Path)
    made.add_argument("source", type=Path)
    made.add_argument("--sentences", type=int, default=600)
    made.add_argument("--set", action="append", help="a setting of decoding")
    options = made.parse_args()
    apply(options)
    opened = open_run(options.run, options.device, settings(options.set or []), threads=options.threads)
    documents: list[Document] = []
    for document in read_documents(options.source):
        if sum(map(len, documents)) >= options.sentences:
            break
        documents.append(document)
    for _ in range(options.rounds):
        times = watched(opened.translator, documents)
        elapsed, processor = (times["calls"][-1][n] - times["calls"][0][n] for n in (0, 1))
        sentences = sum(map(len, documents))
        print(f"{sentences} sentences in {elapsed:.1f} s, {processor:.1f} s of processor time")
        gaps = [longest(*each) for each in times.items()]
        table(("longest gap", "of", "elapsed [s]", "processor [s]"), gaps)


if __name__ == "__main__":
    main()
