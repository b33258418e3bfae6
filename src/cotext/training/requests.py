"""Requests of the commands `train` and `distill`."""

import re
from collections.abc import Sequence
from pathlib import Path

from cotext.runtime import CotextError, shown
from cotext.runtime.request import option
from cotext.translation.requests import ClusterOptions, Device, Sharded


class TrainRequest(Device):
    """A recipe to train on prepared data."""

    recipe: str = option("A shipped recipe (`cotext systems`), or a YAML file.", argument=True)
    overrides: Sequence[str] = option(
        "Settings to change, such as train.max_updates=1000 (all keys: docs/recipes.md).",
        default=(),
        argument=True,
    )
    data: Path = option("Folder made by `prepare`.")
    out: Path = option("Run folder to make; an interrupted run in it is resumed.")
    size: str | None = option(
        "Model size: tiny, small, ted or base. Default: see the recipe (docs/recipes.md).", default=None
    )
    seeds: str | None = option(
        "Train one run for each seed, such as 1,2,3, in the folders OUT/seed-1, OUT/seed-2 ...", default=None
    )
    init: Path | None = option(
        "Run folder, or name of a model, whose weights training starts from; with --seeds, also a folder "
        "with runs of the same seeds.",
        default=None,
        is_run=True,
    )
    dry_run: bool = option(
        "Write nothing: make up to 3 updates, print parameters, instances, memory and time.", default=False
    )

    def parsed_seeds(self) -> list[int]:
        """Return the seeds in `seeds`; raise CotextError for other text and for duplicates."""
        if self.seeds is None:
            return []
        parts = [part.strip() for part in self.seeds.split(",")]
        given = f"--seeds {shown(self.seeds)}"
        if not all(re.fullmatch("[0-9]{1,19}", part) for part in parts):
            raise CotextError(f"{given}: write whole numbers separated by commas, such as 1,2,3")
        seeds = [int(part) for part in parts]
        if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
            raise CotextError(f"{given}: {twice[0]} is given twice; use every seed once")
        if any(setting.partition("=")[0].strip() == "train.seed" for setting in self.overrides):
            raise CotextError("train.seed and --seeds both set the seed; remove one of them")
        return seeds


class DistillRequest(Sharded, ClusterOptions):
    """A prepared corpus to distill; see `distillation`."""

    teacher: Path = option("Run folder of the teacher, or name of a model.", argument=True, is_run=True)
    data: Path = option("Folder made by `prepare`.")
    out: Path = option("Data folder to make.")
