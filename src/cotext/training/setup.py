"""Building and checking all parts of a training run before anything is written."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs

from cotext.config.recipe import Config
from cotext.config.training import TrainConfig
from cotext.models.build import build_model
from cotext.models.describe import describe_model
from cotext.models.interface import Model
from cotext.models.parameters import parameters_asked, parameters_at_most
from cotext.models.run_folder import checkpoints
from cotext.runtime.devices import choose_device, choose_threads, keep_few_kernels
from cotext.runtime.errors import CotextError
from cotext.runtime.locks import Lock
from cotext.training.prepared_data import Corpus, PreparedData, corpus_of, open_data
from cotext.training.sharding import require_shardable
from cotext.training.start_settings import settle
from cotext.training.trainer import Trainer, TrainingCallbacks
from cotext.training.warm_start import WarmStart, read_account, start_from


def make_accelerator(
    config: TrainConfig, spares_parameters: bool = False, device: str | None = None
) -> Accelerator:
    """Return the `Accelerator` with the device and the processes to train on.

    `spares_parameters`: see `System.spares_parameters`. `device`: cpu, cuda or, for a single process, one of
    several GPUs, such as cuda:1. If it is None, the GPU is used, if there is one. On a GPU, this enables
    TF32. Raises CotextError if the device does not exist or does not support `precision`.
    """
    requested = None if device is None else choose_device(device)
    if requested is not None and requested.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise CotextError(
                f"--device {device}: several processes use one device each; write --device {requested.type}, "
                "and select devices by CUDA_VISIBLE_DEVICES"
            )
        torch.get_device_module(requested).set_device(requested)
    # Buffers are not synchronised: they are tables whose size depends on the batches of each process, and
    # the processes make different numbers of forward passes in validation.
    # The search for unused parameters takes time, and DDP warns if there are none.
    wrapping = DistributedDataParallelKwargs(
        broadcast_buffers=False, find_unused_parameters=spares_parameters
    )
    try:
        mixed = "no" if config.precision == "fp32" else config.precision
        # Accelerate connects processes on CPUs only if `cpu` is set.
        on_cpu = (requested or choose_device(None)).type == "cpu"
        accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[wrapping])
    except ValueError as error:
        raise CotextError(f"train.precision = {config.precision}: {error}") from None
    if requested is not None and accelerator.device.type != requested.type:
        raise CotextError(
            f"--device {device}: training uses {accelerator.device.type} here (ACCELERATE_USE_CPU, or "
            "--device is another kind of device); remove --device"
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
            f"the model asked for has {weights // 4:,} parameters, {weights / 2**30:,.0f} GiB, and this "
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
            f"model.separate_embeddings = false: the tokenizer of {data.folder} has a vocabulary for either "
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
                "(train.init), so that nothing is left to train; remove the setting"
            )
    model.recomputes = config.train.checkpoint_activations
    return TrainingSetup(config, data, corpus_of(config, data), model, accelerator, start, new)
