"""Whether the runs of a folder of several seeds make one system; read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cotext.config.recipe import Config, differences
from cotext.models.run_folder import describe_file, listed_seeds, noted_data, noted_seeds, seed_folder
from cotext.runtime.errors import CotextError

# Settings in which runs of one system may differ: the seed, and how training was watched and sped up.
_MAY_DIFFER: Final = ("train.seed", "train.log_every", "train.threads", "train.keep")


def missing_seeds(path: Path, folders: Mapping[int, Path]) -> str:
    """What to say where the runs, by seed, were trained among others that are not there; else empty."""
    wanted = sorted({*folders, *(seed for run in folders.values() for seed in noted_seeds(run))})
    missing = [seed for seed in wanted if seed not in folders]
    if not missing:
        return ""
    return (
        f"{path}: the run of seed {listed_seeds(missing)} is missing: the others were trained with "
        f"--seeds {listed_seeds(wanted)}; the same `cotext train` command makes it"
    )


def require_alike(path: Path, folders: Mapping[int, Path]) -> None:
    """Check that runs, by seed, differ in their seeds alone; `path` is their folder, for messages.

    Raises:
        CotextError: other settings, other data, or a seed that is not that of the folder's name; a model that
            is missing or damaged.
    """
    configs = {
        seed: _from_any_seed(describe_file(run / "model.safetensors").config) for seed, run in folders.items()
    }
    first = next(iter(folders))
    for seed, config in configs.items():
        if config.train.seed != seed:
            raise CotextError(
                f"{folders[seed]}: holds a run of seed {config.train.seed}; give the folder its name"
            )
        if changed := _changed(configs[first], config):
            raise CotextError(
                f"{path}: seed-{first} and seed-{seed} are not one system, and cannot be averaged; move one "
                f"of them elsewhere:\n{changed}"
            )
    noted = {seed: noted_data(run).get("checksums") for seed, run in folders.items()}
    known = {seed: checksums for seed, checksums in noted.items() if checksums is not None}
    for seed, checksums in known.items():
        reference = next(iter(known))
        if checksums != known[reference]:
            raise CotextError(
                f"{path}: seed-{reference} and seed-{seed} were trained on different data, and cannot be "
                "averaged; move one of them elsewhere"
            )


def _from_any_seed(config: Config) -> Config:
    """The configuration; one that starts from the run of its seed in a folder of several, from the folder."""
    start = Path(config.train.init)
    if start != seed_folder(start.parent, config.train.seed):
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"init": str(start.parent)})})


def _changed(one: Config, other: Config) -> str:
    lines = [
        f"  {key}: {_shown(before)} in the one, {_shown(after)} in the other"
        for key, before, after in differences(one, other)
        if key not in _MAY_DIFFER
    ]
    return "\n".join(lines)


def _shown(value: object) -> object:
    return "nothing" if value == "" else value
