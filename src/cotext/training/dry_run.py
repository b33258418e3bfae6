"""Dry run of training: model size, instances, memory and time of an update. Nothing is written."""

import sys
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import torch

from cotext.config.recipe import Config
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.store import TokenStore
from cotext.data.views import Mixture
from cotext.models.build import count_parameters
from cotext.models.describe import entry
from cotext.runtime import CotextError
from cotext.runtime.rendering import in_bytes
from cotext.training.run import TrainingSetup, set_up
from cotext.training.trainer import TrainingCallbacks

UPDATES: Final = 3  # the first is not timed
BYTES_PER_PARAMETER: Final = 16  # weight, gradient and the two moments of Adam, in single precision
PATIENCE_SECONDS: Final = 60.0  # after an update that takes longer, no other update is made


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """The average number of instances in an epoch, and their mean lengths.

    Tokens include separators, as in `view.max_tokens`. Instances over this limit are counted only in
    `too_long`.
    """

    instances: float
    too_long: float
    sentences: float  # of the source
    source_tokens: float
    target_tokens: float


def count_instances(
    store: TokenStore, mixture: Mixture, symbols: SpecialSymbols, max_row_tokens: int
) -> InstanceCounts:
    """Count the instances of a store, without empty sentence pairs, as in training."""
    instances = too_long = sentences = source_tokens = target_tokens = 0.0
    for index in range(len(store)):
        source, target = store.lengths(index)
        kept = source + target > 0
        sides = source[kept].tolist(), target[kept].tolist()
        # Cumulative tokens, so that the length of a window is a difference.
        source_ends, target_ends = (
            list(accumulate((length + extra for length in side), initial=0))
            for side, extra in zip(sides, (symbols.per_source_sentence, 1), strict=True)
        )
        for windows, weight in mixture.weighted(*sides):
            for window in windows:
                read = source_ends[window.source.stop] - source_ends[window.source.start]
                written = target_ends[window.target.stop] - target_ends[window.target.start]
                if max(read, written) > max_row_tokens:
                    too_long += weight
                    continue
                instances += weight
                sentences += weight * len(window.source)
                source_tokens += weight * read
                target_tokens += weight * written
    count = max(instances, 1e-9)
    return InstanceCounts(
        instances, too_long, sentences / count, source_tokens / count, target_tokens / count
    )


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of `train --dry-run`. Memory is in bytes; `training_instances` refer to one epoch."""

    system: str
    device: str
    parameters: int
    training_documents: int
    training_sentences: int
    training_instances: InstanceCounts
    development_documents: int
    development_sentences: int
    development_instances: InstanceCounts
    updates: int
    batches_an_update: int
    seconds_an_update: float
    updates_an_epoch: float
    model_memory: int
    peak_memory: int

    @property
    def seconds(self) -> float:
        """Seconds of all updates, without validation."""
        return self.updates * self.seconds_an_update

    def as_dict(self) -> dict[str, Any]:
        return {"format": "cotext-dry-run", "version": 2, **asdict(self), "seconds": self.seconds}

    def render(self) -> str:
        epochs = self.updates / self.updates_an_epoch
        lines = (
            f"system       {self.system}",
            f"parameters   {self.parameters:,}",
            f"data         {self.training_sentences:,} sentences in {self.training_documents:,} documents",
            f"instances    {_in_words(self.training_instances, ' an epoch')}",
            f"development  {self.development_sentences:,} sentences in {self.development_documents:,} "
            "documents",
            f"instances    {_in_words(self.development_instances)}",
            f"memory       {in_bytes(self.model_memory)} for weights, gradients and Adam's moments; "
            f"{in_bytes(self.peak_memory)} at the peak ({self.device}, everything included)",
            f"time         {self.seconds_an_update:.2f} s an update here: {_duration(self.seconds)} for "
            f"{self.updates:,} updates, about {epochs:.1f} epochs, validation not included",
            "nothing was written",
        )
        return "\n".join(lines)


def dry_run(config: Config, data_folder: Path, run: Path, recipe: str, device: str | None) -> DryRun:
    """Set up training, make a few updates in memory, and return measurements.

    Raises the errors of `cotext.training.run.train`, and CotextError if the folder contains a run.
    """
    if (run / "config.yaml").exists():
        raise CotextError(f"{run}: contains a run; choose another --out")
    setup = set_up(config, data_folder, run, recipe, device)
    # BLEU, by which a model may be chosen, is never computed.
    bleu = (lambda model: 0.0) if config.train.validate_bleu else None
    trainer = setup.trainer(run, TrainingCallbacks(score_development=bleu))
    parameters = count_parameters(setup.model)
    torch_device = setup.accelerator.device
    updates: list[tuple[list[Batch], float]] = []
    for batches, seconds in trainer.rehearse(UPDATES):
        updates.append((batches, seconds))
        if seconds > PATIENCE_SECONDS:
            break
    labels = sum(int((b.is_label & b.is_current).sum()) for batches, _ in updates for b in batches)
    totals, development = setup.data.train.totals, setup.data.dev.totals
    resolved = setup.config
    words = entry("", resolved, parameters)
    return DryRun(
        system=f"{words.model}; {words.view}; {words.loss}",
        device=torch_device.type,
        parameters=parameters,
        training_documents=totals.documents,
        training_sentences=totals.sentences,
        training_instances=_counted(setup, setup.data.train, setup.corpus.mixture),
        development_documents=development.documents,
        development_sentences=development.sentences,
        development_instances=_counted(setup, setup.data.dev, Mixture(((setup.corpus.view, 1.0),))),
        updates=resolved.train.max_updates,
        batches_an_update=resolved.train.accumulate * setup.accelerator.num_processes,
        seconds_an_update=min(seconds for _, seconds in updates[1:] or updates),
        # An epoch predicts each target token once, and one symbol after each sentence.
        updates_an_epoch=max(
            1e-9,
            (totals.target_tokens + totals.sentences)
            / max(1, labels / len(updates) * setup.accelerator.num_processes),
        ),
        model_memory=BYTES_PER_PARAMETER * parameters,
        peak_memory=_peak_memory(torch_device),
    )


def _counted(setup: TrainingSetup, store: TokenStore, mixture: Mixture) -> InstanceCounts:
    return count_instances(store, mixture, setup.corpus.symbols, setup.corpus.max_row_tokens)


def _in_words(counts: InstanceCounts, when: str = "") -> str:
    long = f"; {counts.too_long:,.0f} more are too long" if counts.too_long else ""
    return (
        f"{counts.instances:,.0f}{when}, on average {counts.sentences:.1f} sentences, "
        f"{counts.source_tokens:.1f} source and {counts.target_tokens:.1f} target tokens{long}"
    )


def _peak_memory(torch_device: torch.device) -> int:
    """Return the peak memory of this process in bytes, on the GPU or in the main memory."""
    if torch_device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(torch_device))
    if sys.platform == "win32":
        return 0  # not known
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min" if minutes else f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
