"""Sentence-aligned CTC against one CTC over the document, on the CPU in fp32.

    python -m benchmarks.ctc time [--positions 512 1024 ...] [--rounds 5]
    python -m benchmarks.ctc memory [--positions 512 1024 ...]

Sentences of 26 tokens on average with their brackets, two positions a token, 32,000 subwords, states of 512
numbers; forward and backward, to the states and the output weight. `document`: log-softmax of all logits,
then torch's CTC over the whole document. `split`: the same logits, one CTC a sentence. `row` and `sentences`:
ours.

All times are processor time of one thread: the machine is shared. Within a round the ways take turns; ratios
are those of one round, and the table shows medians with the smallest and the largest. Every way has the three
products of the output layer in it; what is beside them is told as well: `document` from given logits to their
gradient, `sentences` less the three products by themselves.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from benchmarks.data import PeakMemory
from benchmarks.documents import spread, table
from cotext.losses.ctc import Units, best_alignment, ctc_nll

VOCABULARY, DIMENSION, BLANK = 32_000, 512, 0
TOKENS = (14, 38)  # of a sentence, evenly
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
CHUNK = 512
SPLIT_UNTIL = 4096  # positions; padded, it holds all logits three more times


def document(positions: int) -> Units:
    """Bracketed sentences that fill so many positions."""
    random = np.random.default_rng(positions)
    lengths: list[int] = []
    while (left := positions - sum(lengths)) > 0:
        length = 2 * int(random.integers(*TOKENS))
        lengths.append(left if left - length < 2 * TOKENS[0] else length)
    # About as many labels as source tokens.
    labels = [n // 2 + int(random.integers(-3, 4)) for n in lengths]
    target = torch.from_numpy(random.integers(3, VOCABULARY, (len(lengths), max(labels))))
    ends, target_length = torch.tensor(lengths).cumsum(0), torch.tensor(labels)
    target[:, 0] = 1
    target.scatter_(1, target_length[:, None] - 1, 2)
    return Units(ends - torch.tensor(lengths), torch.tensor(lengths), target, target_length, forced=True)


def whole(units: Units) -> Units:
    """The same document as one unit."""
    labels = units.target[units.is_label][None]
    count = units.length.sum()[None]
    return Units(torch.zeros_like(count), count, labels, torch.tensor([labels.numel()]), forced=False)


def of_document(logits_NV: Tensor, units: Units) -> Tensor:
    """The ordinary way."""
    row = whole(units)
    log_p = logits_NV.log_softmax(dim=1)[:, None]
    return ctc_loss(log_p, row.target, row.length, row.target_length, blank=BLANK, reduction="sum")


def of_split(logits_NV: Tensor, units: Units) -> Tensor:
    """All logits, cut into sentences; brackets not forced."""
    log_p = torch.nn.utils.rnn.pad_sequence(logits_NV.log_softmax(dim=1).split(units.length.tolist()))
    return ctc_loss(log_p, units.target, units.length, units.target_length, blank=BLANK, reduction="sum")


class Case:
    """A document and random states, and all ways to its gradient."""

    def __init__(self, positions: int) -> None:
        torch.manual_seed(0)
        self.units = document(positions)
        self.hidden = torch.randn(positions, DIMENSION, requires_grad=True)
        self.weight = (torch.randn(VOCABULARY, DIMENSION) / DIMENSION**0.5).requires_grad_()

    def ways(self) -> dict[str, Callable[[], None]]:
        return {
            "document": partial(self.plainly, of_document),
            "split": partial(self.plainly, of_split),
            "row": lambda: self.done(ctc_nll(self.hidden, self.weight, whole(self.units), BLANK)),
            "sentences": lambda: self.done(ctc_nll(self.hidden, self.weight, self.units, BLANK)),
        }

    def plainly(self, loss: Callable[[Tensor, Units], Tensor]) -> None:
        self.done(loss(self.hidden @ self.weight.T, self.units))

    def done(self, loss: Tensor) -> None:
        loss.sum().backward()
        self.hidden.grad = self.weight.grad = None

    def products(self) -> None:
        """Those of the output layer, forward and backward, in chunks that are used again."""
        with torch.no_grad():
            buffer = torch.ones(min(CHUNK, len(self.hidden)), VOCABULARY)
            grad_weight = torch.zeros_like(self.weight)
            for hidden in self.hidden.split(CHUNK):
                logits = buffer[: len(hidden)]
                torch.mm(hidden, self.weight.T, out=logits)
                logits @ self.weight
                grad_weight.addmm_(logits.T, hidden)

    def from_logits(self) -> float:
        """Processor seconds of the ordinary way without the products."""
        logits = (self.hidden @ self.weight.T).detach().requires_grad_()
        return seconds(lambda: of_document(logits, self.units).backward())

    def align(self) -> None:
        best_alignment(self.hidden, self.weight, self.units, BLANK)


def seconds(call: Callable[[], None]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def measure_time(positions: list[int], rounds: int) -> None:
    """Seconds, and ratios to the document as a whole."""
    warm = Case(LENGTHS[0])
    for way in warm.ways().values():
        way()
    rows = []
    for count in positions:
        case = Case(count)
        took: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, way in {**case.ways(), "products": case.products, "align": case.align}.items():
                if name != "split" or count <= SPLIT_UNTIL:
                    took.setdefault(name, []).append(seconds(way))
            took.setdefault("from logits", []).append(case.from_logits())
        rows.append((f"{count:,}", *cells(took)))
    head = ("positions", "document, s", "split / doc.", "row / doc.", "sentences / doc.")
    table((*head, "sentences / row", "the same beside the products", "alignment, s"), rows)


def cells(took: dict[str, list[float]]) -> list[str]:
    """A row of the table."""

    def against(name: str, other: str) -> str:
        if name not in took:
            return "-"
        return spread([a / b for a, b in zip(took[name], took[other], strict=True)])

    beside = [
        max(0.0, ours - products) / plain
        for ours, products, plain in zip(
            took["sentences"], took["products"], took["from logits"], strict=True
        )
    ]
    ratios = [against(*p) for p in (("split", "document"), ("row", "document"), ("sentences", "document"))]
    aligned = f"{statistics.median(took['align']):.3f}"
    return [spread(took["document"]), *ratios, against("sentences", "row"), spread(beside), aligned]


def peak(name: str, positions: int) -> None:
    """MiB that one pass adds to the process, the gradients included."""
    way = Case(positions).ways()[name]
    memory = PeakMemory()
    time.sleep(0.05)
    resting = memory.kibibytes
    way()
    print(json.dumps((memory.stop() - resting) / 1024))


def measure_memory(positions: list[int]) -> None:
    """Peak of every way in a process of its own."""
    names = ["document", "split", "row", "sentences"]
    rows = []
    for count in positions:
        row = [f"{count:,}"]
        for name in names:
            if name == "split" and count > SPLIT_UNTIL:
                row.append("-")
                continue
            command = [
                sys.executable,
                "-m",
                "benchmarks.ctc",
                "peak",
                "--way",
                name,
                "--positions",
                str(count),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            row.append(f"{float(json.loads(done.stdout.splitlines()[-1])):,.0f}")
        rows.append((*row, f"{count * VOCABULARY * 4 / 2**20:,.0f}"))
    table(("positions", *(f"{name}, MiB" for name in names), "logits alone"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["time", "memory", "peak"])
    parser.add_argument("--positions", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--way", default="sentences", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "time":
        measure_time(list(arguments.positions), arguments.rounds)
    elif arguments.what == "memory":
        measure_memory(list(arguments.positions))
    else:
        peak(arguments.way, arguments.positions[0])


if __name__ == "__main__":
    main()
