"""Checkpoints during training: writing, pruning, averaging, and exact (bitwise) resumption.

A checkpoint from which training can resume contains:

    model.safetensors      weights (see `models.checkpoint`)
    optimizer.safetensors  moments and step counts, named after their parameters
    process-0.safetensors  for each process: random state, position in the data, sums since the last report
    trainer.json           progress, best validation, loss scale (fp16), and a digest of every other file;
                           written last, and checked before anything is read
"""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from cotext.config.recipe import Config, TrainConfig
from cotext.data.sampling import Cursor
from cotext.layers.blocks import TransformerBlock
from cotext.layers.multi_head import CrossAttention
from cotext.models import checkpoint as ckpt
from cotext.models.interface import Model
from cotext.models.run_folder import checkpoint_folder, checkpoints, is_ended, is_int8
from cotext.runtime import CotextError, read_text
from cotext.runtime.files import Lock, digests, require_whole, sealed, unsealed, write_text


@dataclass(slots=True)
class TrainingProgress:
    """The progress of a training run, and its best validation.

    `epoch`: completed epochs, on average over the processes. `cpu_seconds`: processor time of all processes
    for updates and their batches, if `train.max_cpu_minutes` limits it. `best`: value of the best validation;
    higher is better. `best_trained`: value of the best validation after the first update, without the initial
    weights of `train.init`. `validations_without_best`: validations since `best_trained` improved.
    `validated`: updates with a validation. Only their checkpoints are averaged, not those written when
    training was stopped. `corpus`: digests of the data. `scaler`: state of the loss scale (only fp16).
    """

    update: int = 0
    epoch: int = 0
    cpu_seconds: float = 0.0
    best: float | None = None
    best_update: int = 0
    best_trained: float | None = None
    best_trained_update: int = 0
    validations_without_best: int = 0
    processes: int = 1
    finished: bool = False
    validated: list[int] = field(default_factory=list)
    corpus: dict[str, str] = field(default_factory=dict)
    scaler: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of one process: its position in the data, and its sums since the last training report.

    `sums`: for each name, such as `loss`, a tensor [2] that contains a sum and its count.
    """

    cursor: Cursor
    sums: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class _Saved:
    """The content of `trainer.json`: progress, and the SHA-256 of the other files."""

    progress: TrainingProgress
    files: dict[str, str]


def save_optimizer(path: Path, optimizer: Optimizer, names: Sequence[str], main: bool) -> None:
    """Write the state of the optimizer; `names` are the names of its parameters, in order.

    Every process must call this; only the `main` process writes.
    """
    state = optimizer.state_dict()["state"]
    tensors = {f"{names[i]}|{key}": value for i, entry in state.items() for key, value in entry.items()}
    full_tensors = gathered(tensors, keep=main)
    if main:
        save_file(full_tensors, path)


def load_optimizer(path: Path, optimizer: Optimizer, names: Sequence[str]) -> None:
    """Load the state that `save_optimizer` wrote; raise CotextError if it belongs to another model."""
    index = {name: i for i, name in enumerate(names)}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {i: {} for i in index.values()}
    for key, value in ckpt.read_tensors(path).items():
        name, _, entry = key.rpartition("|")
        if name not in index:
            raise CotextError(f"{path}: '{key}' does not belong to this model; {_remedy(path.parent)}")
        # Cloned, because the tensors are memory maps of a file that pruning deletes.
        copy, i = value.clone(), index[name]
        state[i][entry] = copy if entry == "step" else shard_like(copy, parameters[i])
    state = {i: entries for i, entries in state.items() if entries}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save_process_state(folder: Path, rank: int, state: ProcessState) -> None:
    """Write this process's random state, position in the data and sums."""
    cursor = state.cursor
    tensors = {
        "random": torch.get_rng_state(),
        "cursor": torch.tensor(astuple(cursor)),
        **{f"sum|{name}": pair for name, pair in state.sums.items()},
    }
    if torch.cuda.is_available():
        tensors["random_cuda"] = torch.cuda.get_rng_state()
    save_file(tensors, folder / f"process-{rank}.safetensors")


def load_process_state(folder: Path, rank: int) -> ProcessState:
    """Restore the random state of a process, and return the rest; raise CotextError for an invalid file."""
    path = folder / f"process-{rank}.safetensors"
    tensors = ckpt.read_tensors(path)
    sums = {n.removeprefix("sum|"): t.clone() for n, t in tensors.items() if n.startswith("sum|")}
    try:
        cursor = Cursor(*tensors["cursor"].tolist())
        torch.set_rng_state(tensors["random"])
        if "random_cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["random_cuda"])
    except (KeyError, TypeError, RuntimeError):
        raise CotextError(f"{path}: not the training state of a process; {_remedy(folder)}") from None
    return ProcessState(cursor, sums)


def save_progress(folder: Path, progress: TrainingProgress) -> None:
    """Write `trainer.json`; all other files of the checkpoint must exist."""
    saved = _Saved(progress, digests(folder, folder.glob("*.safetensors")))
    write_text(folder / "trainer.json", f"{sealed(asdict(saved))}\n")


def load_progress(folder: Path) -> TrainingProgress:
    """Read the progress; raise CotextError if `trainer.json` is damaged or its folder was renamed."""
    return _load(folder).progress


def require_resumable(run: Path, corpus: Mapping[str, str]) -> None:
    """Raise CotextError if training cannot be resumed.

    Possible reasons: the run is in int8; its last checkpoint is damaged or was trained on other data; or only
    the finished model is left, without checkpoints.
    """
    if is_int8(run / "model.safetensors"):
        raise CotextError(
            f"{run}: is a run in int8, which cannot be trained; choose another --out, or continue its "
            "original run"
        )
    updates = checkpoints(run)
    if not updates:
        # Training that was killed at its first validation has left a model, but no final report.
        if is_ended(run) and (run / "model.safetensors").exists():
            raise CotextError(
                f"{run}: contains a model, but no checkpoints to resume its training from; choose another "
                "--out, or start from this model with --init"
            )
        return
    folder = checkpoint_folder(run, updates[-1])
    saved = _load(folder)
    if changed := [name for name, digest in corpus.items() if saved.progress.corpus.get(name) != digest]:
        raise CotextError(
            f"{folder}: trained on other data ({', '.join(changed)} changed); pass the same data, or "
            "choose another --out"
        )
    require_whole(folder, saved.files, _remedy(folder))


def _load(folder: Path) -> _Saved:
    path = folder / "trainer.json"
    try:
        saved = TypeAdapter(_Saved).validate_python(unsealed(read_text(path)))
    except CotextError as error:
        raise CotextError(f"{error}; {_remedy(folder)}") from None
    except ValueError:
        raise CotextError(
            f"{path}: damaged, or written by an earlier version of Cotext; {_remedy(folder)}"
        ) from None
    if saved.progress.update != int(folder.name):
        raise CotextError(
            f"{path}: belongs to update {saved.progress.update}, not {int(folder.name)}: the folder was "
            f"renamed; {_remedy(folder)}"
        )
    return saved


def _remedy(folder: Path) -> str:
    return (
        f"delete {folder} and run the same command again; it resumes from the previous checkpoint, or "
        "from the beginning"
    )


# --- The checkpoints of a run: written, pruned, averaged and resumed.


@dataclass(frozen=True, slots=True)
class RunCheckpoints:
    """Model files and training states of one run folder.

    `parameter_names` are the names of the optimizer's parameters, in order. `tokenizer` is the fingerprint
    stored in model files. `lock`: the lock of the run in the main process, otherwise None.
    """

    run: Path
    config: Config
    tokenizer: str
    model: Model
    optimizer: Optimizer
    parameter_names: Sequence[str]
    accelerator: Accelerator
    lock: Lock | None

    def require_run(self) -> None:
        """Raise CotextError if another process has taken the run over."""
        if self.lock is not None:
            self.lock.require()

    def candidates(self, progress: TrainingProgress) -> list[int]:
        """Return the updates whose checkpoints averaging may use, ascending; 0 only if there is no other."""
        validated = [update for update in checkpoints(self.run) if update in progress.validated]
        return [update for update in validated if update] or validated

    def save_model(self, path: Path, updates: list[int]) -> None:
        """Write a model file with the weights of these updates; every process must call this."""
        weights = gathered(self.model.state_dict(), keep=self.accelerator.is_main_process)
        if self.accelerator.is_main_process:
            ckpt.save_model(path, weights, self.config, self.tokenizer, updates)

    def save(self, progress: TrainingProgress, state: ProcessState) -> list[Path]:
        """Write a checkpoint, renaming its folder when it is complete, and prune older ones.

        Every process must call this, each with its own state. Return the paths that could not be deleted.
        Raises CotextError if another process has taken over the run, or files cannot be written.
        """
        self.require_run()
        undeleted: list[Path] = []
        main = self.accelerator.is_main_process
        final = checkpoint_folder(self.run, progress.update)
        temporary = final.with_name(f".{final.name}")
        try:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            save_process_state(temporary, self.accelerator.process_index, state)
            self.save_model(temporary / "model.safetensors", [progress.update])
            save_optimizer(temporary / "optimizer.safetensors", self.optimizer, self.parameter_names, main)
            if main and self.accelerator.scaler is not None:
                progress.scaler = self.accelerator.scaler.state_dict()
            self.accelerator.wait_for_everyone()
            if main:
                save_progress(temporary, progress)
                ckpt.put_in_place(temporary, final)
                undeleted = self._prune(progress)
        except (OSError, SafetensorError, CotextError) as error:
            raise CotextError(
                f"{final}: the checkpoint cannot be written: {error}; earlier checkpoints are complete. Free "
                "disk space, then run the same command to resume from the last checkpoint"
            ) from None
        finally:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)
        return undeleted

    def _prune(self, progress: TrainingProgress) -> list[Path]:
        saved = checkpoints(self.run)
        models = ckpt.worth_keeping(
            self.candidates(progress), progress.best_trained_update, self.config.train
        )
        # Two training states are kept: if the last checkpoint is damaged, the one before it can be resumed.
        return ckpt.prune(self.run, {*models, progress.best_update, saved[-1]}, set(saved[-2:]))

    def resume(self) -> tuple[TrainingProgress, ProcessState] | None:
        """Restore weights, optimizer, loss scale and random state from the last checkpoint, if there is one.

        Call `require_resumable` first, to check the files. Raises CotextError if the checkpoint was written
        by a different number of processes, or for another model.
        """
        saved = checkpoints(self.run)
        if not saved:
            return None
        folder = checkpoint_folder(self.run, saved[-1])
        progress, processes = load_progress(folder), self.accelerator.num_processes
        if progress.processes != processes:
            raise CotextError(
                f"{folder}: trained by {progress.processes} processes; {processes} cannot resume it; start "
                f"{progress.processes} processes, or choose another --out"
            )
        self.fill([progress.update])
        if progress.update:  # before the first update, Adam has no moments
            file = folder / "optimizer.safetensors"
            load_optimizer(file, self.optimizer, self.parameter_names)
        state = load_process_state(folder, self.accelerator.process_index)
        if self.accelerator.scaler is not None and progress.scaler:
            self.accelerator.scaler.load_state_dict(progress.scaler)
        return progress, state

    def fill(self, updates: list[int]) -> None:
        """Load the mean of the weights of some checkpoints into the model."""
        files = [checkpoint_folder(self.run, update) / "model.safetensors" for update in updates]
        weights = ckpt.load_weights(files[0]) if len(files) == 1 else ckpt.average(files)
        state = self.model.state_dict()
        given = {name: shard_like(weight, state.get(name, weight)) for name, weight in weights.items()}
        ckpt.fill(self.model, given, files[0])

    def save_progress(self, progress: TrainingProgress) -> None:
        """Update the progress stored in the last checkpoint."""
        save_progress(checkpoint_folder(self.run, checkpoints(self.run)[-1]), progress)


# --- Fully sharded training (`train.shard_model`): each process stores a part of every weight, gradient and
#     moment.
#
# This is stage 3 of Rajbhandari et al. 2020 (section 5.3), implemented with torch's `fully_shard`. The
# weights of a group of modules are gathered on every process when the group is computed, and freed
# afterwards. Gradients are summed and scattered. Each block is a group. Each cross-attention is a separate
# group, because its keys and values are computed before its block. All other modules form one group.
# Checkpoints contain full tensors, as without sharding.
#
# `torch.distributed` is imported when it is needed, because this takes a second.


def require_shardable(config: TrainConfig, processes: int) -> None:
    """Raise CotextError if a model is to be sharded with only one process, or with validation by BLEU.

    To validate by BLEU, a process must have the full model.
    """
    if not config.shard_model:
        return
    if processes == 1:
        raise CotextError(
            "train.shard_model = true: the model is divided among processes, but there is only one; start "
            "several, for example `torchrun --nproc-per-node=8 -m cotext train ...`"
        )
    if config.validate_bleu:
        raise CotextError(
            "train.shard_model = true: no process has the complete model, so the development set cannot be "
            "translated; set train.validate_bleu = false, and translate with the checkpoints"
        )


def shard(objective: nn.Module, device: torch.device, processes: int) -> None:
    """Shard the parameters of a model with its loss among all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (processes,))
    # The warning is irrelevant: keys and values are views of one projection, but never modified in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    # Inner modules first: an outer group contains only modules that are not yet in a group.
    for module in reversed(list(objective.modules())):
        if isinstance(module, TransformerBlock | CrossAttention):
            fully_shard(module, mesh=mesh)
        if isinstance(module, CrossAttention):
            register_fsdp_forward_method(module, "project")
    fully_shard(objective, mesh=mesh)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the full tensor of a sharded tensor; every process must call this."""
    sharded: Any = tensor
    full: Tensor = sharded.full_tensor() if _is_sharded(tensor) else tensor
    return full


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Return full tensors, one after the other; sharded tensors are moved to the CPU.

    Every process must call this. Without `keep`, the result is empty.
    """
    full_tensors = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor.detach())
        if keep:
            full_tensors[name] = full.cpu() if _is_sharded(tensor) else full
    return full_tensors


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor, which every process must have, in the same way as another tensor."""
    if not _is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    layout: Any = like
    return distribute_tensor(
        tensor.to(like.device), layout.device_mesh, layout.placements, src_data_rank=None
    )


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # only `DTensor` has this method
