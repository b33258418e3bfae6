"""Writing, pruning, averaging and resuming of checkpoints during training."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator
from safetensors import SafetensorError
from torch.optim import Optimizer

from cotext.config.recipe import Config
from cotext.models import checkpoint as ckpt
from cotext.models.interface import Model
from cotext.models.run_folder import checkpoint_folder, checkpoints
from cotext.runtime.errors import CotextError
from cotext.runtime.locks import Lock
from cotext.training import resume as training_state
from cotext.training.resume import ProcessState, TrainingProgress
from cotext.training.sharding import divided, gathered


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
        """Return the updates whose checkpoints averaging may use, in ascending order."""
        return [update for update in checkpoints(self.run) if update in progress.validated]

    def save_model(self, path: Path, updates: list[int]) -> None:
        """Write a model file with the weights of these updates; every process must call this."""
        weights = gathered(self.model.state_dict(), keep=self.accelerator.is_main_process)
        if self.accelerator.is_main_process:
            ckpt.save_model(path, weights, self.config, self.tokenizer, updates)

    def save_final_model(self, updates: list[int]) -> None:
        """Write `model.safetensors` of the run, which `translate` uses; every process must call this."""
        self.save_model(self.run / "model.safetensors", updates)

    def save(self, progress: TrainingProgress, state: ProcessState) -> None:
        """Write a checkpoint, renaming its folder when it is complete, and prune older ones.

        Every process must call this, each with its own state. Raises CotextError if another process has taken
        over the run, or files cannot be written.
        """
        self.require_run()
        main = self.accelerator.is_main_process
        final = checkpoint_folder(self.run, progress.update)
        temporary = final.with_name(f".{final.name}")
        try:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            training_state.save_process_state(temporary, self.accelerator.process_index, state)
            self.save_model(temporary / "model.safetensors", [progress.update])
            training_state.save_optimizer(
                temporary / "optimizer.safetensors", self.optimizer, self.parameter_names, main
            )
            if main and self.accelerator.scaler is not None:
                progress.scaler = self.accelerator.scaler.state_dict()
            self.accelerator.wait_for_everyone()
            if main:
                training_state.save_progress(temporary, progress)
                ckpt.put_in_place(temporary, final)
                self._prune(progress)
        except (OSError, SafetensorError, CotextError) as error:
            raise CotextError(
                f"{final}: the checkpoint cannot be written: {error}; earlier ones are complete: make room, "
                "then the same command resumes from the last"
            ) from None
        finally:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)

    def _prune(self, progress: TrainingProgress) -> None:
        saved = checkpoints(self.run)
        models = ckpt.worth_keeping(self.candidates(progress), progress.best_update, self.config.train)
        # Two training states are kept: if the last checkpoint is damaged, the one before it can be resumed.
        ckpt.prune(self.run, {*models, saved[-1]}, set(saved[-2:]))

    def resume(self) -> tuple[TrainingProgress, ProcessState] | None:
        """Restore weights, optimizer, loss scale and random state from the last checkpoint, if there is one.

        `require_resumable` must have checked it. Raises CotextError if it was written by another number of
        processes or for another model.
        """
        saved = checkpoints(self.run)
        if not saved:
            return None
        folder = checkpoint_folder(self.run, saved[-1])
        progress, processes = training_state.load_progress(folder), self.accelerator.num_processes
        if progress.processes != processes:
            raise CotextError(
                f"{folder}: trained by {progress.processes} processes; {processes} cannot resume it"
            )
        self.fill([progress.update])
        if progress.update:  # before the first update, Adam has no moments
            file = folder / "optimizer.safetensors"
            training_state.load_optimizer(file, self.optimizer, self.parameter_names)
        state = training_state.load_process_state(folder, self.accelerator.process_index)
        if self.accelerator.scaler is not None and progress.scaler:
            self.accelerator.scaler.load_state_dict(progress.scaler)
        return progress, state

    def fill(self, updates: list[int]) -> None:
        """Load the mean of the weights of some checkpoints into the model."""
        files = [checkpoint_folder(self.run, update) / "model.safetensors" for update in updates]
        weights = ckpt.load_weights(files[0]) if len(files) == 1 else ckpt.average(files)
        state = self.model.state_dict()
        given = {name: divided(weight, state.get(name, weight)) for name, weight in weights.items()}
        ckpt.fill(self.model, given, files[0])

    def save_progress(self, progress: TrainingProgress) -> None:
        """Update the progress stored in the last checkpoint."""
        training_state.save_progress(checkpoint_folder(self.run, checkpoints(self.run)[-1]), progress)
