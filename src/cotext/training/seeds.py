"""Runs of one system that differ in their seed alone: `cotext train --seeds`.

Each is a run as any other, in a folder of its own (see `models.run_folder`), and the same bit for bit as if
it had been trained by itself.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from cotext.config.recipe import Config
from cotext.models.run_folder import seed_folder, seeds_in
from cotext.runtime.errors import CotextError
from cotext.runtime.files import is_first_process
from cotext.runtime.locks import NAME, require_free
from cotext.training.prepared_data import PreparedData, corpus_of, open_data
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
    """Train a run for each seed, one after the other; goes on where an earlier call was interrupted.

    `configs` has the configuration of every seed, `watched` opens the callbacks of its training. Returns how
    far each run is; those behind one that was asked to stop are not begun.

    Raises:
        CotextError: as `train`; what is wrong with the folder of any seed, before the first is trained.
    """
    # Of several processes the first asks, alone: others may come when it has begun.
    if is_first_process():
        require_seeds(configs, data_folder, folder, recipe)
    found: dict[int, TrainingProgress] = {}
    was_there = folder.exists()
    try:
        for seed, config in configs.items():
            run = seed_folder(folder, seed)
            with watched(seed) as callbacks:
                found[seed] = train(config, data_folder, run, callbacks, recipe, device, list(configs))
            if not found[seed].finished:
                break
    except CotextError:
        if not was_there:
            with suppress(OSError):  # not empty: a run was begun
                folder.rmdir()
        raise
    return found


def require_seeds(configs: Mapping[int, Config], data_folder: Path, folder: Path, recipe: str) -> None:
    """Check a folder and the runs in it against what is to be trained there.

    Raises:
        CotextError: a file, a run, or something else in the place of the folder or of one of its runs;
            a run with other settings or data, damaged, or at work in another process.
    """
    data = open_data(data_folder)
    if not folder.exists():
        return
    _require_folder(folder)
    for seed, config in configs.items():
        run = seed_folder(folder, seed)
        if run.exists():
            _require_run(run, config, data, recipe)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise CotextError(f"{folder}: is a file; choose another --out")
    if (folder / "config.yaml").exists():
        raise CotextError(
            f"{folder}: holds a run; choose another --out for the runs of several seeds, or leave out "
            "--seeds to go on with it"
        )
    if not seeds_in(folder) and any(folder.iterdir()):
        raise CotextError(f"{folder}: the folder is not empty and holds no runs; choose another --out")


def _require_run(run: Path, config: Config, data: PreparedData, recipe: str) -> None:
    try:
        settled = settle(config, data, run, recipe)
        require_own(run, settled)
        require_free(run / NAME, str(run))
        require_resumable(run, corpus_of(settled, data).checksums)
    except OSError as error:
        raise CotextError(f"{run}: cannot be read: {error.strerror or error}") from None
