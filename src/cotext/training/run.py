"""Training on prepared data: `cotext train`, with one seed or several, or as a dry run.

All parts of a run are built and checked before anything is written.

The trainer does not import translation. This module gives it the function that translates the development set
and computes BLEU.
"""

import math
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import sacrebleu
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs

from cotext.config.recipe import Config, TrainConfig
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.documents import Document, Languages, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.store import TokenStore
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import Mixture
from cotext.data.words import UNSPACED_LANGUAGES
from cotext.models.build import build_model, count_parameters, parameters_asked, parameters_at_most
from cotext.models.describe import describe_model, entry
from cotext.models.interface import Model
from cotext.models.run_folder import (
    SEEDS,
    checkpoint_folder,
    checkpoints,
    describe_file,
    noted_data,
    noted_seeds,
    seed_folder,
    seeds_in,
    told_differences,
    with_seed,
    write_config,
)
from cotext.runtime import CotextError
from cotext.runtime.devices import choose_device, choose_threads, keep_few_kernels, slow_precision
from cotext.runtime.files import NAME, Lock, is_first_process, require_free, sealed, working_in, write_text
from cotext.runtime.rendering import in_bytes
from cotext.training.inputs import (
    Corpus,
    PreparedData,
    corpus_of,
    note_data,
    open_data,
    other_languages,
    settle,
    written_config,
)
from cotext.training.resume import TrainingProgress, require_resumable, require_shardable
from cotext.training.trainer import Trainer, TrainingCallbacks
from cotext.training.warm_start import WarmStart, read_account, start_from, start_loss
from cotext.translation.translator import DocumentTranslator


def make_accelerator(
    config: TrainConfig, spares_parameters: bool = False, device: str | None = None
) -> Accelerator:
    """Return the `Accelerator` with the device and the processes to train on.

    `spares_parameters`: whether some batches leave parameters unused. `device`: cpu, cuda or, for a single
    process, one of several GPUs, such as cuda:1. If it is None, the GPU is used, if there is one. TF32 is
    enabled on a GPU. Raises CotextError if the device does not exist or does not support `precision`.
    """
    requested = None if device is None else choose_device(device)
    if requested is not None and requested.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise CotextError(
                f"--device {device}: several processes use one device each; write --device {requested.type}, "
                "and select devices by CUDA_VISIBLE_DEVICES"
            )
        torch.get_device_module(requested).set_device(requested)
    # Buffers are not synchronised: they are tables whose size depends on the batches of each process. DDP
    # searches for unused parameters only if there are some, because this takes time.
    wrapping = DistributedDataParallelKwargs(
        broadcast_buffers=False, find_unused_parameters=spares_parameters
    )
    try:
        mixed = "no" if config.precision == "fp32" else config.precision
        # Accelerate connects processes on CPUs only if `cpu` is set.
        on_cpu = (requested or choose_device(None)).type == "cpu"
        accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[wrapping])
        accelerator.gradient_accumulation_steps = 1  # the trainer accumulates, whatever the environment says
    except ValueError as error:
        raise CotextError(f"train.precision = {config.precision}: {error}") from None
    if requested is not None and accelerator.device.type != requested.type:
        raise CotextError(
            f"--device {device}: training uses {accelerator.device.type} instead, perhaps because the "
            "variable ACCELERATE_USE_CPU is set; unset it, or remove --device"
        )
    # Accelerate would use single precision without a warning.
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise CotextError("train.precision = fp16 needs a GPU; on the CPU use bf16, or fp32")
    if accelerator.device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    return accelerator


def _require_memory(config: Config, vocabulary: int, source_vocabulary: int) -> None:
    """Raise CotextError if the weights of the model exceed the memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * parameters_at_most(config, max(vocabulary, source_vocabulary)) <= memory:
        return
    weights = 4 * parameters_asked(config, vocabulary, source_vocabulary)
    if weights > memory:
        raise CotextError(
            f"the requested model has {weights // 4:,} parameters, {weights / 2**30:,.0f} GiB, and this "
            f"machine has {memory / 2**30:,.0f} GiB of memory; use fewer layers or a smaller "
            "model.dimension"
        )


def _require_tokenizer(config: Config, data: PreparedData) -> None:
    """Raise CotextError if the model cannot use the tokenizer of the data."""
    # A non-autoregressive decoder reads no target, and so no symbol of the target language.
    if config.model.writes == "non_autoregressive" and data.tokenizer.target_prefix:
        raise CotextError(
            f"{data.folder}: its tokenizer gives the decoder a symbol of the target language, but "
            f"{describe_model(config.model)} is non-autoregressive and reads no target; prepare the text "
            "with a tokenizer of one language pair, or choose an autoregressive system"
        )
    if data.tokenizer.separate_vocabularies and not config.model.separate_embeddings:
        raise CotextError(
            f"model.separate_embeddings = false: the tokenizer of {data.folder} has a vocabulary for each "
            "side; choose true"
        )


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """The parts of a training run, as checked by `set_up`."""

    config: Config
    data: PreparedData
    corpus: Corpus
    model: Model
    accelerator: Accelerator
    start: WarmStart | None
    fresh: Collection[str]

    def trainer(self, run: Path, callbacks: TrainingCallbacks, lock: Lock | None = None) -> Trainer:
        """Return the trainer of a run; raises CotextError if no training data fit the settings."""
        trainer = Trainer(
            self.config, self.model, self.corpus, run, callbacks, self.accelerator, self.fresh, lock
        )
        trainer.require_batches()
        return trainer


def set_up(config: Config, data_folder: Path, run: Path, recipe: str, device: str | None) -> TrainingSetup:
    """Open the data, complete the configuration and build the model.

    Raises CotextError if settings contradict each other, the data or this machine.
    """
    data = open_data(data_folder)
    requested, config = config, settle(config, data, run, recipe)
    _require_tokenizer(config, data)
    sizes = data.tokenizer.vocabulary_size, data.tokenizer.source_vocabulary_size
    _require_memory(config, *sizes)
    torch.manual_seed(config.train.seed)
    model = build_model(config, *sizes)
    accelerator = make_accelerator(config.train, model.spares_parameters, device)
    require_shardable(config.train, accelerator.num_processes)
    threads = choose_threads(config.model.dimension, config.train.threads)
    if not config.train.threads:
        threads = max(1, threads // accelerator.num_processes)  # the processes share the cores
    torch.set_num_threads(threads)
    if config.train.precision == "bf16" and accelerator.device.type == "cpu":
        keep_few_kernels()
    start, new = None, list[str]()
    if config.train.init and not checkpoints(run):
        start = start_from(Path(config.train.init), model, config, data.tokenizer, requested)
        new = start.inheritance.new
    elif config.train.init and (config.train.fresh_rate != 1 or config.train.freeze == "init"):
        account = read_account(run / "init.json")
        new = [*account["neutral"], *account["fresh"]]
    if config.train.freeze == "init":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in new)
        if not new:
            raise CotextError(
                "train.freeze = init: all parameters come from the run that training starts from "
                "(train.init), so nothing is left to train; remove the setting"
            )
    model.recomputes = config.train.checkpoint_activations
    return TrainingSetup(config, data, corpus_of(config, data), model, accelerator, start, new)


def open_run(run: Path, config: Config, tokenizer: Tokenizer) -> None:
    """Create a run in a folder; raise CotextError if it contains another run or other files."""
    try:
        require_own(run, config)
        # The configuration is written first, because its presence identifies the folder as a run.
        write_config(run, config)
        tokenizer.save(run / "tokenizer")  # also if training resumes: the files may be damaged
    except OSError as error:
        raise CotextError(f"{run}: cannot be written: {error.strerror or error}") from None


def require_own(run: Path, config: Config) -> None:
    """Raise CotextError if an existing folder contains another run or other files."""
    path = run / "config.yaml"
    if path.exists():
        known = [written_config(path)]
        if updates := checkpoints(run):  # `config.yaml` may have been edited
            known.append(describe_file(checkpoint_folder(run, updates[-1]) / "model.safetensors").config)
        for before in known:
            if changed := told_differences(before, config, ("in the run", "requested")):
                raise CotextError(
                    f"{run}: contains a run with another configuration; choose another --out, or use the "
                    f"same settings to resume it:{changed}"
                )
    elif any(not entry.name.startswith((".config.yaml", NAME)) for entry in run.iterdir()):
        raise CotextError(f"{run}: the folder is not empty and contains no run; choose another --out")


# Tokenizers of sacrebleu that need no other package, for languages that 13a does not split into words.
WITHOUT_SPACES: Final = {"zh": "zh", **dict.fromkeys(("ja", *UNSPACED_LANGUAGES), "char")}


def development_bleu(
    config: Config,
    data: PreparedData,
    device: torch.device,
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Callable[[Model], float]:
    """Return a function that translates the first development sentences greedily and computes s-BLEU.

    For `on_stage`, see `TrainingCallbacks`.
    """
    documents = _first_sentences(data.folder / "dev.jsonl", config.train.validate_sentences)
    # Search is greedy and in one pass: BLEU only compares checkpoints of one run, and is computed often.
    greedy = {
        "beam": 1,
        "nbest": 1,
        "sampling": None,
        "schedule": "sequential",
        "first_pass": "",
        "language_model": "",
        "shortlist": 0,
        "max_source_tokens": 1_000_000,
    }
    fast = config.model_copy(update={"decode": config.decode.model_copy(update=greedy)})
    references = [sentence for d in documents for sentence in d.target]
    target = Languages.parse(config.languages).target
    bleu = sacrebleu.BLEU(force=True, tokenize=WITHOUT_SPACES.get(target, "13a"))

    def score(model: Model) -> float:
        done = 0

        def on_sentences(count: int) -> None:
            nonlocal done
            done += count
            on_stage("translating the development set, sentences", done, len(references))

        translator = DocumentTranslator(model, fast, data.tokenizer, device)
        results = dict(translator.translate((Document(d.id, d.source) for d in documents), on_sentences))
        hypotheses = [sentence for i in range(len(documents)) for sentence in results[i].document.sentences]
        return float(bleu.corpus_score(hypotheses, [references]).score)

    return score


def _first_sentences(path: Path, count: int) -> list[ParallelDocument]:
    """Read the first `count` sentences of a corpus in their documents; the last document may be cut."""
    documents: list[ParallelDocument] = []
    for document in read_parallel(path, None):
        documents.append(ParallelDocument(document.id, document.source[:count], document.target[:count]))
        count -= len(documents[-1])
        if count == 0:
            break
    return documents


def train(
    config: Config,
    data_folder: Path,
    run: Path,
    callbacks: TrainingCallbacks,
    recipe: str = "this recipe",
    device: str | None = None,
    seeds: Sequence[int] = (),
) -> TrainingProgress:
    """Train the configured system on a prepared folder; resume where an earlier call was interrupted.

    `recipe` is the name of the configuration in messages. For `device`, see `make_accelerator`. `seeds`: the
    seeds of all runs that are trained together, if there are several. Before the run folder is created,
    raises CotextError if settings contradict each other, the data or this machine, or the folder contains
    another run. Further errors: see `Trainer.train`.
    """
    setup = set_up(config, data_folder, run, recipe, device)
    config, data, start, accelerator = setup.config, setup.data, setup.start, setup.accelerator
    with ExitStack() as stack:
        lock = None
        if accelerator.is_main_process:
            lock = stack.enter_context(working_in(run))
            require_resumable(run, setup.corpus.checksums)
        if config.train.validate_bleu and config.model.reads_source:
            bleu = development_bleu(config, data, accelerator.device, callbacks.on_stage)
            callbacks = replace(callbacks, score_development=bleu)
        trainer = setup.trainer(run, callbacks, lock)
        # All checks are done; from here on the run folder is written.
        if accelerator.is_main_process:
            is_bf16 = config.train.precision == "bf16"
            if is_bf16 and (slow := slow_precision("train.precision = bf16", accelerator.device)):
                callbacks.on_message(slow)
            open_run(run, config, data.tokenizer)
            note_data(run, data, setup.corpus.checksums)
            if seeds and noted_seeds(run) != list(seeds):
                write_text(run / SEEDS, f"{sealed({'seeds': list(seeds)})}\n")
            if start is not None:
                _note_start(setup, start, run, callbacks)
        accelerator.wait_for_everyone()
        # Dropout must differ between processes; the initial weights, which exist already, must not differ.
        torch.manual_seed(config.train.seed + 1000 * accelerator.process_index)
        return trainer.train()


def _note_start(setup: TrainingSetup, start: WarmStart, run: Path, callbacks: TrainingCallbacks) -> None:
    """Report and record the run that training starts from, and the initial losses."""
    config, data = setup.config, setup.data
    callbacks.on_message(start.render())
    if message := other_languages(start.run, data):
        callbacks.on_message(message)
    measured = None
    if not config.train.shard_model:  # this process has only a part of a sharded model
        device = setup.accelerator.device
        measured = start_loss(start.run, setup.model, config, data.dev, data.tokenizer, device)
    start.write(run / "init.json", {} if measured is None else asdict(measured))
    if measured is not None:
        callbacks.on_message(measured.render())


# --- Runs that differ only in their seed, each equal bit for bit to a run trained separately.


def train_seeds(
    configs: Mapping[int, Config],
    data_folder: Path,
    folder: Path,
    watched: Callable[[int], AbstractContextManager[TrainingCallbacks]],
    recipe: str = "this recipe",
    device: str | None = None,
) -> dict[int, TrainingProgress]:
    """Train a run for each seed, one after the other; resume where an earlier call was interrupted.

    `configs` contains the configuration of every seed. `watched` returns the callbacks for the training of a
    seed. Returns the progress of each run. If a run is stopped by a signal, later runs are not begun.
    Raises the errors of `train`. Before the first training, it raises the errors of `require_seeds`.
    """
    # In distributed training, only the first process checks: it may begin to write before the others check.
    if is_first_process():
        require_seeds(configs, data_folder, folder, recipe)
    progress: dict[int, TrainingProgress] = {}
    was_there = folder.exists()
    try:
        for seed, config in configs.items():
            run = seed_folder(folder, seed)
            with watched(seed) as callbacks:
                progress[seed] = train(config, data_folder, run, callbacks, recipe, device, list(configs))
            if not progress[seed].finished:
                break
    except CotextError:
        if not was_there:
            with suppress(OSError):  # not empty: a run was begun
                folder.rmdir()
        raise
    return progress


def require_seeds(configs: Mapping[int, Config], data_folder: Path, folder: Path, recipe: str) -> None:
    """Raise CotextError unless the folder is new, or contains runs that can be resumed.

    All runs must have the same settings and data. Another process may train only seeds that are not in
    `configs`. If a new seed starts from another run, this run must have a model.
    """
    data = open_data(data_folder)
    if folder.exists() and not folder.is_dir():
        raise CotextError(f"{folder}: is a file; choose another --out")
    if (folder / "config.yaml").exists():
        raise CotextError(
            f"{folder}: contains a run; choose another --out for the runs of several seeds, or remove "
            "--seeds to continue that run"
        )
    if folder.exists() and not seeds_in(folder) and any(folder.iterdir()):
        raise CotextError(f"{folder}: the folder is not empty and contains no runs; choose another --out")
    given = next(iter(configs.values()))
    for seed in dict.fromkeys((*configs, *seeds_in(folder))):
        run = seed_folder(folder, seed)
        try:
            settled = settle(configs.get(seed) or with_seed(given, seed), data, run, recipe)
            if run.exists():
                require_own(run, settled)
                checksums = corpus_of(settled, data).checksums
                if seed in configs:
                    require_free(run / NAME, str(run))
                    require_resumable(run, checksums)
                elif noted_data(run).get("checksums", checksums) != checksums:
                    raise CotextError(f"{run}: trained on other data; choose another --out")
        except OSError as error:
            raise CotextError(f"{run}: cannot be read: {error.strerror or error}") from None


# --- Dry run of training: model size, instances, memory and time of an update. Nothing is written.


UPDATES: Final = 3  # the first is not timed
BYTES_PER_PARAMETER: Final = 16  # weight, gradient and the two moments of Adam, in single precision
PATIENCE_SECONDS: Final = 60.0  # after an update that takes longer, no other update is made


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """The average number of instances in an epoch, their mean lengths, and the number of their labels.

    Tokens include separators, as in `view.max_tokens`. Instances over this limit are counted only in
    `too_long`.
    """

    instances: float
    too_long: float
    sentences: float  # of the source
    source_tokens: float
    target_tokens: float
    labels: float  # of current sentences


def count_instances(
    store: TokenStore, mixture: Mixture, symbols: SpecialSymbols, max_row_tokens: int
) -> InstanceCounts:
    """Count the instances of a store, without empty sentence pairs, as in training."""
    instances = too_long = sentences = source_tokens = target_tokens = labels = 0.0
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
                labels += weight * (target_ends[window.current.stop] - target_ends[window.current.start])
    count = max(instances, 1e-9)
    return InstanceCounts(
        instances, too_long, sentences / count, source_tokens / count, target_tokens / count, labels
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
    # The trainer requires this function for `best_by: bleu`, but a dry run never calls it.
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
    labels_an_update = labels / len(updates) * setup.accelerator.num_processes
    totals, development = setup.data.train.totals, setup.data.dev.totals
    instances, resolved = _counted(setup, setup.data.train, setup.corpus.mixture), setup.config
    words, limits = entry("", resolved, parameters), resolved.train
    an_epoch = max(1e-9, instances.labels / max(1, labels_an_update))
    of_epochs = math.ceil(limits.max_epochs * an_epoch) or limits.max_updates
    return DryRun(
        system=f"{words.model}; {words.view}; {words.loss}",
        device=torch_device.type,
        parameters=parameters,
        training_documents=totals.documents,
        training_sentences=totals.sentences,
        training_instances=instances,
        development_documents=development.documents,
        development_sentences=development.sentences,
        development_instances=_counted(setup, setup.data.dev, Mixture(((setup.corpus.view, 1.0),))),
        updates=min(limits.max_updates, of_epochs),
        batches_an_update=limits.accumulate * setup.accelerator.num_processes,
        seconds_an_update=min(seconds for _, seconds in updates[1:] or updates),
        updates_an_epoch=an_epoch,
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
        return 0  # unknown, because Windows has no `resource`
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min" if minutes else f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
