"""Training of runs that differ only in their seed: `cotext train --seeds`.

Each run has its own folder (see `models.run_folder`), and is equal bit for bit to a run trained separately.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from cotext.config.recipe import Config
from cotext.models.run_folder import seed_folder, seeds_in
from cotext.runtime.errors import CotextError
from cotext.runtime.files import is_first_process
from cotext.runtime.locks import NAME, require_free
from cotext.training.prepared_data import corpus_of, open_data
from cotext.training.resume import TrainingProgress, require_resumable
from cotext.training.run import require_own, train
from cotext.training.start_settings import settle
from cotext.training.trainer import TrainingCallbacks


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
    Raises the errors of `train`; problems with the folder of a seed, before the first training.
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
    """Raise CotextError unless the folder is new, or contains the same runs, undamaged and unused."""
    data = open_data(data_folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CotextError(f"{folder}: is a file; choose another --out")
    if (folder / "config.yaml").exists():
        raise CotextError(
            f"{folder}: contains a run; choose another --out for the runs of several seeds, or remove "
            "--seeds to continue that run"
        )
    if not seeds_in(folder) and any(folder.iterdir()):
        raise CotextError(f"{folder}: the folder is not empty and contains no runs; choose another --out")
    for seed, config in configs.items():
        run = seed_folder(folder, seed)
        if run.exists():
            try:
                settled = settle(config, data, run, recipe)
                require_own(run, settled)
                require_free(run / NAME, str(run))
                require_resumable(run, corpus_of(settled, data).checksums)
            except OSError as error:
                raise CotextError(f"{run}: cannot be read: {error.strerror or error}") from None
