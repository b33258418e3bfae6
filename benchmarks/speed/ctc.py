"""Sentence-aligned CTC against one CTC over the document, on the CPU in fp32.

    python -m benchmarks.speed.ctc time [--positions 512 1024 ...] [--rounds 5]
    python -m benchmarks.speed.ctc memory [--positions 512 1024 ...]

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
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from benchmarks.speed.harness import added_mebibytes, apply, number_in_child, parser, table
from cotext.losses.ctc import Lattices, Units, best_alignment, ctc_nll
from cotext.runtime.timing import Times, Way, in_turn, spread

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

    def from_logits(self) -> Way:
        """The ordinary way without the products: these are made here."""
        logits = (self.hidden @ self.weight.T).detach().requires_grad_()
        return lambda: of_document(logits, self.units).backward()

    def align(self) -> None:
        best_alignment(self.hidden, self.weight, Lattices.of(self.units, BLANK, self.hidden.size(1)))


def measure_time(positions: list[int], rounds: int) -> None:
    """Seconds, and ratios to the document as a whole."""
    warm = Case(LENGTHS[0])
    for way in warm.ways().values():
        way()
    rows = []
    for count in positions:
        case = Case(count)
        ways: dict[str, Way] = {
            name: way for name, way in case.ways().items() if name != "split" or count <= SPLIT_UNTIL
        }
        ways |= {"products": case.products, "align": case.align}
        times = in_turn(ways, rounds, warm_up=0)
        plain = in_turn({"from logits": case.from_logits()}, rounds, warm_up=0)
        rows.append((f"{count:,}", *cells(times, plain["from logits"])))
    head = ("positions", "document, s", "split / doc.", "row / doc.", "sentences / doc.")
    table((*head, "sentences / row", "the same beside the products", "alignment, s"), rows)


def cells(times: Times, plain: Sequence[float]) -> list[str]:
    """A row of the table; `plain` is the document without the products, from given logits."""
    pairs = (("split", "document"), ("row", "document"), ("sentences", "document"))
    ratios = [times.ratio(*pair) if pair[0] in times.seconds else "-" for pair in pairs]
    rest = zip(times["sentences"], times["products"], plain, strict=True)
    beside = spread([max(0.0, ours - products) / theirs for ours, products, theirs in rest])
    aligned = f"{times.median('align'):.3f}"
    return [times.took("document"), *ratios, times.ratio("sentences", "row"), beside, aligned]


def peak(name: str, positions: int) -> None:
    """MiB that one pass adds to the process, the gradients included."""
    print(added_mebibytes(Case(positions).ways()[name]))


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
            peak_of = number_in_child("ctc", "peak", "--way", name, "--positions", str(count))
            row.append(f"{peak_of:,.0f}")
        rows.append((*row, f"{count * VOCABULARY * 4 / 2**20:,.0f}"))
    table(("positions", *(f"{name}, MiB" for name in names), "logits alone"), rows)


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("what", choices=["time", "memory", "peak"])
    made.add_argument("--positions", type=int, nargs="+", default=LENGTHS)
    made.add_argument("--way", default="sentences", help=argparse.SUPPRESS)
    arguments = made.parse_args()
    apply(arguments)
    if arguments.what == "time":
        measure_time(list(arguments.positions), arguments.rounds)
    elif arguments.what == "memory":
        measure_memory(list(arguments.positions))
    else:
        peak(arguments.way, arguments.positions[0])


if __name__ == "__main__":
    main()
