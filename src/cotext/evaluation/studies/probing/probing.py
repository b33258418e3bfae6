"""Where am I? How much of a token's position is left in the states of each encoder layer.

The three probing tasks of Li et al. 2022 (P-Transformer), section II, on a frozen encoder:

    absolute    h_i        -> i          K classes, K the longest row      equation 1
    relative    h_i - h_j  -> i - j      2K classes, K = 20                equation 2
    order       h_i - h_j  -> i < j?     2 classes, the same pairs         equation 3

Layer 0 is what enters the first block, layer l the output of block l. Positions count from 1 within a source
row, separators included.

Shapes: B rows, S source tokens, N real tokens of all rows, D model, P pairs.

A linear softmax over frozen vectors, trained until it has converged: the instrument of the probing tasks.

Shapes: N examples, D vector, K classes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cotext.data.batch import Source
from cotext.layers.blocks import Stack
from cotext.layers.layout import Layout
from cotext.models.interface import TranslationModel
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_rows

BATCH = 512
EPOCHS = 20
LEAST_UPDATES = 1000  # of few examples there are more epochs
# Falls to nothing over the epochs. On states of a trained encoder this came within 1.5 points of what L-BFGS
# reaches in several times as long; a smaller step, or one that falls with the gain, stayed further below.
FIRST_STEP = 0.3
CHUNK = 8192


@dataclass(frozen=True, slots=True)
class Softmax:
    """P(k | x) = softmax(W (x - mean) / deviation + b): standardised, x is easier to train on."""

    mean: Tensor  # [D]
    deviation: Tensor  # [D]
    weight: Tensor  # [K, D]
    bias: Tensor  # [K]

    def predict(self, x_ND: Tensor) -> Tensor:
        """The most probable class of each: [N, D] -> [N]."""
        return _predict((x_ND - self.mean) / self.deviation, self.weight, self.bias)


def fit(
    train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], classes: int, generator: torch.Generator
) -> Softmax:
    """Train on vectors [N, D] and their classes [N] by Adam; the epoch best on the held-out pair is kept.

    `generator`, on the CPU, draws the order of the examples.
    """
    x_ND, y_N = train
    # In double precision: of a large constant, the mean must be that constant.
    mean = x_ND.mean(dim=0, dtype=torch.float64).to(x_ND)
    deviation = (x_ND - mean).square().mean(dim=0).sqrt()
    # What is the same everywhere says nothing, and must not be divided by zero.
    deviation = torch.where(deviation > 1e-6 * mean.abs().clamp(min=1e-6), deviation, 1.0)
    x_ND, held_x = (x_ND - mean) / deviation, (held_out[0] - mean) / deviation
    weight = x_ND.new_zeros(classes, x_ND.size(1)).requires_grad_()
    bias = x_ND.new_zeros(classes).requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=FIRST_STEP, betas=(0.9, 0.99))
    per_epoch = math.ceil(len(y_N) / BATCH)
    epochs = max(EPOCHS, math.ceil(LEAST_UPDATES / per_epoch))
    updates = epochs * per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / updates)
    best, best_right = (weight, bias), -1
    for _ in range(epochs):
        order = torch.randperm(len(y_N), generator=generator).to(y_N.device)
        for some in torch.split(order, BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(torch.addmm(bias, x_ND[some], weight.T), y_N[some])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        now = weight.detach().clone(), bias.detach().clone()
        right = int((_predict(held_x, *now) == held_out[1]).sum())
        # Of equals the later: it took smaller steps.
        if right >= best_right:
            best, best_right = now, right
    return Softmax(mean, deviation, *best)


def _predict(x_ND: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([torch.addmm(bias, part, weight.T).argmax(dim=1) for part in torch.split(x_ND, CHUNK)])


Task = Literal["absolute", "relative", "order"]
TASKS: Final[tuple[Task, ...]] = ("absolute", "relative", "order")
MAX_DISTANCE = 20
NEAR = 3  # an absolute position is nearly right when it is off by no more than this


@dataclass(frozen=True, slots=True)
class Tokens:
    """The real tokens of some rows, row after row, with their states in every layer."""

    layers: tuple[Tensor, ...]  # L + 1 times [N, D]
    token: Tensor  # [N], ids
    position: Tensor  # [N], from 1 within the row
    row_length: Tensor  # [N], of the row that the token stands in

    def __len__(self) -> int:
        return len(self.token)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int((self.position == 1).sum())

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(self.row_length.max())


@dataclass(frozen=True, slots=True)
class Split:
    """Tokens of three sets of documents: to learn from, to decide when to stop, to report on."""

    train: Tokens
    held_out: Tokens
    test: Tokens


@dataclass(frozen=True, slots=True)
class Figures:
    """Fractions of right answers; `near` is for the task absolute alone, `by_distance` for the others."""

    accuracy: float
    near: float | None = None
    by_distance: dict[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """What one task finds with one seed."""

    layers: tuple[Figures, ...]  # 0 .. L
    token_alone: Figures  # of a fixed random vector per token of the vocabulary, in place of a state
    chance: Figures  # of always the answer that is most often right in training
    classes: int
    train_examples: int
    test_examples: int
    pairs: dict[int, int]  # of the test examples, by distance


def encoder_of(model: nn.Module) -> list[nn.Module]:
    """The encoder blocks of a model, and the layer on top of them if there is one.

    Raises:
        CotextError: it has none.
    """
    encoder = dict(model.named_children()).get("encoder")
    if not isinstance(encoder, Stack) or not len(encoder):
        raise CotextError(
            f"{type(model).__name__} has no stack of encoder blocks to probe; choose a run of another system"
        )
    top = dict(model.named_children()).get("source_document")
    return [*encoder, *([] if top is None else [top])]


def _in_row_order(layer: int, states: Tensor, arguments: Sequence[Any], real_BS: Tensor) -> Tensor:
    """States [B, S, D] or packed [N, D] -> a copy of those of real tokens, row after row: [N, D]."""
    index_N = real_BS.flatten().nonzero()[:, 0]
    if states.shape[:-1] == real_BS.shape:
        return states.flatten(0, 1).index_select(0, index_N)
    layout = arguments[1] if len(arguments) > 1 else None
    packing = layout.packing if isinstance(layout, Layout) else None
    if packing is not None:
        order = packing.index_N.argsort()
        if (
            states.shape[:-1] == index_N.shape
            and real_BS.shape == (packing.rows, packing.tokens)
            and torch.equal(packing.index_N[order], index_N)
        ):
            return states.index_select(0, order)
    raise CotextError(
        f"encoder layer {layer} gives states of shape {list(states.shape)} for {len(index_N)} tokens in rows "
        f"of {list(real_BS.shape)}: it does not see every token, or does not say which they are; positions "
        "cannot be probed there"
    )


@contextmanager
def watch(encoder: list[nn.Module], real_BS: Tensor) -> Iterator[list[list[Tensor]]]:
    """Collect, while the context is open, what enters the first block and what leaves each.

    `real_BS` is True on the tokens of the rows being read; all states come as [N, D], row after row, whether
    the blocks see padding or not. Yields one list per layer, 0 first: an entry for each time a block ran.

    Raises:
        CotextError: a block gives something else than one state per token.
    """
    seen: list[list[Tensor]] = [[] for _ in range(len(encoder) + 1)]

    def keep(layer: int, arguments: Sequence[Any], states: object) -> None:
        if not isinstance(states, Tensor):
            raise CotextError(f"encoder layer {layer} gives a {type(states).__name__}, not states of tokens")
        seen[layer].append(_in_row_order(layer, states, arguments, real_BS))

    def before(module: nn.Module, arguments: Sequence[Any]) -> None:
        keep(0, arguments, arguments[0] if arguments else None)

    def after(layer: int) -> Callable[[nn.Module, Sequence[Any], Any], None]:
        return lambda module, arguments, output: keep(layer, arguments, output)

    handles = [block.register_forward_hook(after(layer)) for layer, block in enumerate(encoder, 1)]
    handles.append(encoder[0].register_forward_pre_hook(before))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def read_states(model: TranslationModel, sources: Iterable[Source], device: torch.device) -> Tokens:
    """Run the encoder over batches and keep the states of all layers.

    Raises:
        CotextError: no batch at all; no encoder blocks, or one that gives not one state per token; states
            that are not finite.
    """
    encoder = encoder_of(model)
    layers: list[list[Tensor]] = [[] for _ in range(len(encoder) + 1)]
    token, position, row_length = [], [], []
    for source in sources:
        place = source.to(device)
        real = place.sentence >= 0
        with watch(encoder, real) as seen:
            model.encode(place)
        for layer, (kept, found) in enumerate(zip(layers, seen, strict=True)):
            if len(found) != 1:
                raise CotextError(f"encoder layer {layer} ran {len(found)} times for one batch, not once")
            kept.append(found[0].float())
        token.append(place.tokens[real])
        position.append(real.cumsum(dim=1)[real])
        row_length.append(real.sum(dim=1, keepdim=True).expand_as(real)[real])
    if not token:
        raise CotextError("there are no rows to probe")
    states = tuple(torch.cat(kept) for kept in layers)
    for layer, each in enumerate(states):
        if not bool(each.isfinite().all()):
            raise CotextError(f"encoder layer {layer} gives states that are not finite numbers")
    return Tokens(states, torch.cat(token), torch.cat(position), torch.cat(row_length))


def draw_pairs(
    tokens: Tokens, generator: torch.Generator, max_distance: int = MAX_DISTANCE
) -> tuple[Tensor, Tensor]:
    """For every token i one other token j of its row, uniform over those within `max_distance`.

    Tokens that stand alone in their row have none. Returns the indices of i and of j, both [P].
    """
    i, length = tokens.position, tokens.row_length
    first, last = (i - max_distance).clamp(min=1), torch.minimum(i + max_distance, length)
    others = last - first
    chosen = (torch.rand(len(i), generator=generator, dtype=torch.float64).to(i.device) * others).long()
    j = first + chosen
    j = j + (j >= i)  # i itself is not among the others
    index = torch.arange(len(i), device=i.device)[others > 0]
    return index, index + (j - i)[index]


@dataclass(frozen=True, slots=True)
class _Examples:
    """What a classifier sees of some tokens: the vectors of a layer, or their differences over pairs."""

    label: Tensor  # class of each
    distance: Tensor | None  # i - j of each pair
    of: Tensor  # index of i
    to: Tensor | None  # index of j

    def vectors(self, x_ND: Tensor) -> Tensor:
        return x_ND[self.of] if self.to is None else x_ND[self.of] - x_ND[self.to]


def _examples(task: Task, tokens: Tokens, generator: torch.Generator) -> _Examples:
    if task == "absolute":
        everyone = torch.arange(len(tokens), device=tokens.token.device)
        return _Examples(tokens.position - 1, None, everyone, None)
    of, to = draw_pairs(tokens, generator)
    if not len(of):
        raise CotextError(f"task {task}: no row has two tokens; there are no pairs to probe")
    distance = tokens.position[of] - tokens.position[to]
    if task == "order":
        return _Examples((distance < 0).long(), distance, of, to)
    # -K .. -1, 1 .. K -> 0 .. 2K - 1
    return _Examples(distance + MAX_DISTANCE - (distance > 0).long(), distance, of, to)


def _figures(task: Task, prediction: Tensor, examples: _Examples) -> Figures:
    right = prediction == examples.label
    accuracy = float(right.double().mean())
    if examples.distance is None:
        near = (prediction - examples.label).abs() <= NEAR
        return Figures(accuracy, near=float(near.double().mean()))
    groups = {d: right[examples.distance == d] for d in sorted(set(examples.distance.tolist()))}
    return Figures(accuracy, by_distance={d: float(g.double().mean()) for d, g in groups.items()})


def _chance(task: Task, classes: int, train: _Examples, test: _Examples) -> Figures:
    """The constant answers that are right most often in training, one for each figure."""
    counts = torch.bincount(train.label, minlength=classes)
    constant = _figures(task, counts.argmax().expand_as(test.label), test)
    if task != "absolute":
        return constant
    padded = nn.functional.pad(counts, (NEAR, NEAR)).unfold(0, 2 * NEAR + 1, 1)
    nearest = _figures(task, padded.sum(dim=1).argmax().expand_as(test.label), test)
    return Figures(constant.accuracy, near=nearest.near)


def probe(task: Task, split: Split, seed: int, on_layer: Callable[[], None] = lambda: None) -> Probed:
    """Train one linear classifier per layer, and one on the tokens alone; test each on unseen documents.

    `seed` draws the pairs, the random vectors of the tokens and the order of the examples; every layer sees
    the same pairs. `on_layer` is called after each classifier.
    """
    parts = (split.train, split.held_out, split.test)
    generator = torch.Generator().manual_seed(seed)
    train, held_out, test = (_examples(task, part, generator) for part in parts)
    classes = {"absolute": max(p.longest for p in parts), "relative": 2 * MAX_DISTANCE, "order": 2}[task]
    largest = max(int(part.token.max()) for part in parts) + 1
    dimension = split.train.layers[0].size(1)
    code = torch.randn(largest, dimension, generator=generator).to(split.train.layers[0])

    def accuracy_of(states: Sequence[Tensor]) -> Figures:
        classifier = fit(
            (train.vectors(states[0]), train.label),
            (held_out.vectors(states[1]), held_out.label),
            classes,
            torch.Generator().manual_seed(seed),
        )
        figures = _figures(task, classifier.predict(test.vectors(states[2])), test)
        on_layer()
        return figures

    return Probed(
        layers=tuple(accuracy_of(states) for states in zip(*(p.layers for p in parts), strict=True)),
        token_alone=accuracy_of([code[part.token] for part in parts]),
        chance=_chance(task, classes, train, test),
        classes=classes,
        train_examples=len(train.label),
        test_examples=len(test.label),
        pairs={} if test.distance is None else dict(sorted(Counter(test.distance.tolist()).items())),
    )


SHOWN_DISTANCES: Final = (1, 2, 5, 10, 20)
# A distance with fewer pairs, over all seeds, is left out of tables and pictures: its accuracy is noise.
MIN_PAIRS: Final = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """Percentages of several seeds."""

    seeds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return mean(self.seeds)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 for a single one."""
        return stdev(self.seeds) if len(self.seeds) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ±{self.spread:.1f}" if len(self.seeds) > 1 else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"mean": self.mean, "spread": self.spread, "seeds": list(self.seeds)}


@dataclass(frozen=True, slots=True)
class Summary:
    """`Figures` over seeds, in per cent."""

    accuracy: Measured
    near: Measured | None
    by_distance: dict[int, Measured]

    @staticmethod
    def of(figures: Sequence[Figures]) -> "Summary":
        """Collect the figures of all seeds; a distance counts where it occurs."""

        def percent(values: Sequence[float | None]) -> Measured:
            return Measured(tuple(100 * value for value in values if value is not None))

        groups = [f.by_distance or {} for f in figures]
        distances = sorted({d for group in groups for d in group})
        near = percent([f.near for f in figures])
        return Summary(
            percent([f.accuracy for f in figures]),
            near if near.seeds else None,
            {d: percent([group.get(d) for group in groups]) for d in distances},
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data; keys that do not apply are left out."""
        content: dict[str, Any] = {"accuracy": self.accuracy.as_dict()}
        if self.near is not None:
            content[f"within_{NEAR}"] = self.near.as_dict()
        if self.by_distance:
            content["by_distance"] = {str(d): each.as_dict() for d, each in self.by_distance.items()}
        return content


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task on one run."""

    task: Task
    classes: int
    train_examples: int
    test_examples: int
    pairs: dict[int, int]  # test examples of all seeds, by distance
    layers: tuple[Summary, ...]  # 0 .. L
    token_alone: Summary
    chance: Summary

    @staticmethod
    def of(task: Task, probed: Sequence[Probed]) -> "TaskSummary":
        """Collect what all seeds found."""
        return TaskSummary(
            task=task,
            classes=probed[0].classes,
            train_examples=probed[0].train_examples,
            test_examples=probed[0].test_examples,
            pairs=dict(sorted(sum((Counter(p.pairs) for p in probed), Counter()).items())),
            layers=tuple(Summary.of(layer) for layer in zip(*(p.layers for p in probed), strict=True)),
            token_alone=Summary.of([p.token_alone for p in probed]),
            chance=Summary.of([p.chance for p in probed]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "classes": self.classes,
            "train_examples": self.train_examples,
            "test_examples": self.test_examples,
            **({"pairs": {str(d): count for d, count in self.pairs.items()}} if self.pairs else {}),
            "layers": [{"layer": i, **layer.as_dict()} for i, layer in enumerate(self.layers)],
            "token_alone": self.token_alone.as_dict(),
            "chance": self.chance.as_dict(),
        }

    def reliable(self, summary: Summary) -> dict[int, Measured]:
        """Accuracy by distance, where there are enough pairs."""
        return {d: each for d, each in summary.by_distance.items() if self.pairs[d] >= MIN_PAIRS}

    def table(self) -> str:
        """One line per layer; chance is that of the constant answer which is right most often."""
        absolute = self.task == "absolute"
        heading = (f"within {NEAR}",) if absolute else tuple(f"at ±{d}" for d in SHOWN_DISTANCES)
        rows = [("layer", "accuracy", *heading)]
        named = [(str(i), layer) for i, layer in enumerate(self.layers)]
        for name, summary in (*named, ("token alone", self.token_alone)):
            rest = [summary.near] if absolute else [self._both_signs(summary, d) for d in SHOWN_DISTANCES]
            rows.append((name, str(summary.accuracy), *("-" if cell is None else str(cell) for cell in rest)))
        # Over distances, a constant answer is all or nothing.
        rest = [self.chance.near] if absolute else []
        rows.append(
            ("chance", str(self.chance.accuracy), *map(str, rest), *[""] * (len(heading) - len(rest)))
        )
        return render_rows(rows, left=1)

    def _both_signs(self, summary: Summary, distance: int) -> Measured | None:
        """The mean over j before and j after i; None where there are too few pairs of either."""
        known = self.reliable(summary)
        if not {-distance, distance} <= known.keys():
            return None
        pairs = zip(known[-distance].seeds, known[distance].seeds, strict=False)
        return Measured(tuple(mean(pair) for pair in pairs))
