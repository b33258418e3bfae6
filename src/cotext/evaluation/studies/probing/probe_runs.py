"""Probing of trained runs for positions: what is learned from and tested on.

The classifiers learn on documents of the training store and are tested on documents of the development store,
which they never saw. The documents are the same for every seed and, of one data folder, for every run; what a
seed draws is told at `probe`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from cotext.data.batch import Instance, Source
from cotext.data.batching import pack
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import source_batch
from cotext.data.sampling import instances_of
from cotext.data.store import TokenStore
from cotext.evaluation.studies.probing.probing import (
    Split,
    Task,
    Tokens,
    encoder_of,
    probe,
    read_states,
)
from cotext.evaluation.studies.probing.probing_summary import Part, RunSummary, TaskSummary
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.runtime.devices import choose_threads
from cotext.runtime.errors import CotextError
from cotext.training.prepared_data import PreparedData, data_of

if TYPE_CHECKING:
    pass


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
