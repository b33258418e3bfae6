"""Probing of trained runs for positions: what `cotext probe` does.

The classifiers learn on documents of the training store and are tested on documents of the development store,
which they never saw. The documents are the same for every seed and, of one data folder, for every run; what a
seed draws is told at `probe`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cotext.data.batch import Instance, Source
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import pack, source_batch
from cotext.data.sampling import instances_of
from cotext.data.store import TokenStore
from cotext.evaluation.requests import ProbeRequest
from cotext.evaluation.studies.probing.probing import (
    MAX_DISTANCE,
    TASKS,
    Split,
    Task,
    TaskSummary,
    Tokens,
    encoder_of,
    probe,
    read_states,
)
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.runtime.devices import choose_device, choose_threads
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in
from cotext.training.prepared_data import PreparedData, data_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Part:
    """The size of a set of documents."""

    documents: int
    rows: int
    tokens: int
    longest_row: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All tasks on one run, and what was probed."""

    name: str
    run: str
    signature: str
    view: dict[str, Any]
    model: dict[str, Any]
    data: str
    tokenizer: str
    parts: dict[str, Part]  # train, held_out, test
    tasks: dict[Task, TaskSummary]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        content = {
            key: getattr(self, key)
            for key in ("name", "run", "signature", "view", "model", "data", "tokenizer")
        }
        return {
            **content,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "tasks": {name: task.as_dict() for name, task in self.tasks.items()},
        }


HELD_OUT = 10  # one part in so many of the training documents decides which epoch is kept
BATCH_TOKENS = 4000
DOCUMENT_SEED = 1


@dataclass(frozen=True, slots=True)
class Probe:
    """A run that is ready to be probed."""

    name: str
    run: Path
    loaded: LoadedModel
    data: PreparedData

    @property
    def layers(self) -> int:
        """Encoder blocks."""
        return len(encoder_of(self.loaded.with_states("cotext probe")))


def open_probes(runs: Sequence[Path], data: Path | None, update: int | None) -> list[Probe]:
    """Load runs and their data.

    Raises:
        CotextError: no such run, no encoder blocks in it, its data gone or made with another tokenizer.
    """
    probes = []
    for run in runs:
        loaded = load_run(run, update)
        encoder_of(loaded.left_to_right("cotext probe"))
        twins = [other for other in runs if other.resolve().name == run.resolve().name]
        name = run.resolve().name if len(twins) == 1 else str(run)
        probes.append(Probe(name, run, loaded, data_of(run, data)))
    return probes


def probe_run(
    opened: Probe,
    tasks: Sequence[Task],
    max_tokens: int,
    seeds: int,
    device: torch.device,
    on_classifier: Callable[[], None] = lambda: None,
) -> RunSummary:
    """Probe all layers of a run; `on_classifier` is called layers + 2 times per task and seed."""
    config = opened.loaded.config
    torch.set_num_threads(choose_threads(config.model.dimension, config.train.threads))
    model = opened.loaded.left_to_right("cotext probe").to(device)
    parts: dict[str, tuple[Tokens, Part]] = {}
    for name, instances in _sample(opened, max_tokens).items():
        tokens = read_states(model, _batches(opened, instances), device)
        documents = len({instance.document for instance in instances})
        parts[name] = tokens, Part(documents, tokens.rows, len(tokens), tokens.longest)
    split = Split(**{name: tokens for name, (tokens, _) in parts.items()})
    return RunSummary(
        name=opened.name,
        run=str(opened.run),
        signature=opened.loaded.signature,
        view=config.view.model_dump(mode="json"),
        model=config.model.model_dump(mode="json"),
        data=str(opened.data.folder),
        tokenizer=opened.loaded.tokenizer.fingerprint,
        parts={name: part for name, (_, part) in parts.items()},
        tasks={
            task: TaskSummary.of(
                task, [probe(task, split, seed, on_classifier) for seed in range(1, seeds + 1)]
            )
            for task in tasks
        },
    )


def _sample(opened: Probe, max_tokens: int) -> dict[str, list[Instance]]:
    """Instances to learn from, to choose the epoch by, and to test on."""
    train, dev = opened.data.train, opened.data.dev
    learned = _shuffled(train)
    # Of a small corpus too, the larger part is to learn from.
    held_out = _gather(opened, train, learned, min(max_tokens, train.totals.source_tokens) // HELD_OUT)
    found = {
        "train": _gather(opened, train, learned, max_tokens),
        "held_out": held_out,
        "test": _gather(opened, dev, _shuffled(dev), max_tokens),
    }
    for name, instances in found.items():
        if not instances:
            store = dev if name == "test" else train
            raise CotextError(
                f"{store.path}: too few documents whose rows fit into view.max_tokens = "
                f"{opened.loaded.config.view.max_tokens}: probing needs two to learn from and one to test on"
            )
    return found


def _shuffled(store: TokenStore) -> Iterator[int]:
    return iter(np.random.default_rng(DOCUMENT_SEED).permutation(len(store)).tolist())


def _gather(opened: Probe, store: TokenStore, documents: Iterator[int], max_tokens: int) -> list[Instance]:
    """Rows of the next documents that have so many source tokens in all.

    Where windows overlap there are more tokens in the rows than in the documents, and the rows are drawn at
    random. Rows that are too long for training are left out here too.
    """
    config = opened.loaded.config.view
    view, symbols = build_view(config), special_symbols(opened.loaded.tokenizer, config)
    fitting: list[Instance] = []
    tokens_read = 0
    for index in documents:
        document = store[index]
        rows = instances_of(document, view)
        fitting.extend(row for row in rows if row.row_tokens(symbols) <= config.max_tokens)
        tokens_read += sum(map(len, document.source))
        if tokens_read >= max_tokens:
            break
    drawn: list[Instance] = []
    tokens = 0
    for number in np.random.default_rng(DOCUMENT_SEED).permutation(len(fitting)).tolist():
        if drawn and tokens >= max_tokens:
            break
        drawn.append(fitting[number])
        tokens += fitting[number].source_tokens(symbols)
    return drawn


def _batches(opened: Probe, instances: Sequence[Instance]) -> Iterator[Source]:
    symbols = special_symbols(opened.loaded.tokenizer, opened.loaded.config.view)
    in_order = sorted(instances, key=lambda instance: instance.source_tokens(symbols))
    for group in pack([[instance.source_tokens(symbols)] for instance in in_order], BATCH_TOKENS):
        # Rows of like length, not neighbours: where rows of a document see each other, these do not.
        yield source_batch([replace(in_order[i], document=i) for i in group], symbols)


def probe_runs(
    request: ProbeRequest,
    on_start: Callable[[int], None] = lambda classifiers: None,
    on_classifier: Callable[[int], None] = lambda count: None,
) -> list[RunSummary]:
    """Probe runs one after the other; writes probing.json and a picture per task into the folder `out`.

    Raises:
        CotextError: as `open_probes`, `choose_device`, `working_in` and `read_states`.
    """
    asked, out, seeds = request.task, request.folder, request.seeds
    tasks = [task for task in TASKS if not asked or task in asked or "all" in asked]
    where = choose_device(request.device)
    probes = open_probes(request.runs, request.data, request.checkpoint)
    with working_in(out):
        on_start(sum((each.layers + 2) * len(tasks) * seeds for each in probes))
        found = [
            probe_run(each, tasks, request.tokens, seeds, where, lambda: on_classifier(1)) for each in probes
        ]
        content = as_dict(found, request.tokens, seeds)
        with replacing(out / "probing.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        from cotext.evaluation.studies.plots import save

        for task in tasks:
            save(draw(task, found), out / f"{task}.png")
    return found


def as_dict(found: Sequence[RunSummary], max_tokens: int, seeds: int) -> dict[str, Any]:
    """Everything that `probe_runs` found, for a JSON file."""
    return {
        "format": "cotext-probing",
        "version": 1,
        "max_distance": MAX_DISTANCE,
        "max_tokens": max_tokens,
        "seeds": list(range(1, seeds + 1)),
        "runs": [summary.as_dict() for summary in found],
    }


def draw(task: Task, found: Sequence[RunSummary]) -> "Figure":
    """The picture of a task: figures 1, 2 and 3 of the paper."""
    from cotext.evaluation.studies.plots import probed_by_distance, probed_by_layer

    named = [(summary.name, summary.tasks[task]) for summary in found]
    return probed_by_layer(named) if task == "absolute" else probed_by_distance(named)


def render(summary: RunSummary) -> str:
    """The tables of a run, with what one needs to know to read them."""
    train, test = summary.parts["train"], summary.parts["test"]
    lines = [
        f"{summary.name}  {summary.signature}",
        f"learned from {_size(train)} of the training store, "
        f"tested on {_size(test)} of the development store",
    ]
    what = {
        "absolute": "the position of a token in its row",
        "relative": f"the distance i - j of two tokens, up to ±{MAX_DISTANCE}",
        "order": "which of two tokens comes first",
    }
    for task, found in summary.tasks.items():
        lines += ["", f"{task}: {what[task]}, {found.classes} classes, per cent right", found.table()]
    # What looks too good to be true is worth a word.
    given = ", with absolute positions just added" if summary.model["positions"] == "absolute" else ""
    lines += [
        "",
        f"layer 0: what enters the first block{given}",
        "token alone: a random vector per token of the vocabulary; chance: always the commonest answer",
    ]
    return "\n".join(lines)


def _size(part: Part) -> str:
    return f"{part.tokens:,} tokens in {part.rows:,} rows of {part.documents:,} documents"
