"""The recipe of a run, found by its configuration: run folders do not contain names of recipes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import Config, differences, load_config, recipe_names
from cotext.config.sizes import SIZES
from cotext.models.describe import describe_model
from cotext.models.run_folder import (
    describe_file,
    listed_seeds,
    noted_data,
    noted_seeds,
    told_differences,
    with_seed,
)
from cotext.runtime import CotextError, leaves

# Sections that define a system; training and decoding are described by signatures.
_SECTIONS = ("view", "model", "loss")
_DIMENSIONS = {f"model.{key}" for key in ("dimension", "feed_forward", "heads")}
_LAYERS = {"model.encoder_layers", "model.decoder_layers"}
_NUMBERS = "view.numbers"  # depends on the number of sentences in training documents
_STACKS: Final = ("encoder", "decoder", "cross")
_SHIFT = "model.shift"  # `corpus` in a recipe becomes a number when training begins
# Further settings in which recipes may differ.
_FURTHER = ("train.context", "train.order")
_LIKE = 3  # with more changes, a configuration matches no recipe of another paper

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MatchedRecipe:
    """The recipe closest to a configuration; None if none is close. `changes`: key=value, sorted.

    `settings` has all settings of the configuration, as key=value.
    """

    name: str | None
    changes: tuple[str, ...]
    settings: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def title(self) -> str:
        if self.name is None:
            return "no known recipe"
        return f"{self.name}{' with ' if self.changes else ''}{' '.join(self.changes)}"

    def fits(self, setting: str) -> bool:
        """Return whether at most `setting`, such as "model.dropout=0.1", differs from the recipe."""
        parts = setting.split()
        keys = {part.partition("=")[0] for part in parts}
        changed = {change.partition("=")[0] for change in self.changes}
        return self.settings.issuperset(parts) and changed <= keys


def recipe_of(config: Config) -> MatchedRecipe:
    """Find the recipe of a configuration: a recipe for the same row of a paper, otherwise the closest.

    Recipes of the same width are preferred. Width, depth, and values computed from data do not count as
    changes. Ties are broken by depth, then by the number of all keys that differ.
    """
    ours = _settings(config)
    candidates: dict[tuple[bool, bool, int, int], list[tuple[str, Config, tuple[str, ...]]]] = {}
    for name, recipe, theirs in _recipes(_kind(config)):
        changes = _written({key: value for key, value in ours.items() if _changed(key, ours, theirs)})
        sized = any(ours[key] != theirs[key] for key in _DIMENSIONS)
        depth = sum(ours[key] != theirs[key] for key in _LAYERS)
        rank = (recipe.paper != config.paper, sized, len(changes), depth)
        candidates.setdefault(rank, []).append((name, recipe, changes))
    if not candidates:
        return MatchedRecipe(None, ())
    best = min(candidates)
    foreign, _, count, _ = best

    def further(candidate: tuple[str, Config, tuple[str, ...]]) -> tuple[int, str, tuple[str, ...]]:
        # Comparing all keys takes most of the time; only ties need it.
        name, recipe, changes = candidate
        return sum(1 for key, _, _ in differences(recipe, config) if key != "paper"), name, changes

    name, _, changes = min(candidates[best], key=further)
    settings = frozenset([*_written(ours), *(f"{key}={_text(value)}" for key, value in ours.items())])
    if foreign and count > _LIKE:
        return MatchedRecipe(None, (), settings)
    return MatchedRecipe(name, changes, settings)


def _kind(config: Config) -> str:
    """Return the name of the base model."""
    return describe_model(config.model).partition("(")[0]


@cache
def _recipes(model: str) -> tuple[tuple[str, Config, Settings], ...]:
    """Return the recipes of a base model at all sizes: names, configurations, settings."""
    loaded = ((name, load_config(name)) for name in recipe_names())
    names = [name for name, config in loaded if _kind(config) == model]
    sized = ((name, load_config(name, size)) for name in names for size in SIZES)
    return tuple((name, config, _settings(config)) for name, config in sized)


def _changed(key: str, ours: Settings, theirs: Settings) -> bool:
    if key in _DIMENSIONS | _LAYERS | {_NUMBERS}:
        return False
    if key == _SHIFT and theirs[key] == "corpus" and isinstance(ours[key], int):
        return False
    return bool(ours[key] != theirs[key])


def _written(settings: Settings) -> tuple[str, ...]:
    """Return key=value, sorted; values shared by all stacks become a setting of `model.attention`."""
    separate, shared = dict(settings), []
    for key in [key for key in settings if key.startswith("model.encoder.")]:
        of_stacks = [key.replace("encoder", stack, 1) for stack in _STACKS]
        if len({_text(settings.get(stack_key)) for stack_key in of_stacks}) == 1:
            shared.append(f"{key.replace('encoder', 'attention', 1)}={_text(settings[key])}")
            for stack_key in of_stacks:
                del separate[stack_key]
    return tuple(sorted([*shared, *(f"{key}={_text(value)}" for key, value in separate.items())]))


def _settings(config: Config) -> Settings:
    content = config.model_dump(mode="json")
    del content["model"]["attention"]
    for stack in _STACKS:
        content["model"][stack] = config.model.stack(stack).model_dump(mode="json")
    settings: Settings = {}
    for section in _SECTIONS:
        settings |= leaves(content[section], f"{section}.")
    for key in _FURTHER:
        settings[key] = reduce(lambda inner, part: inner[part], key.split("."), content)
    return settings


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Settings in which runs of one system may differ.
_MAY_DIFFER: Final = ("train.log_every", "train.threads", "train.keep")


def missing_seeds(path: Path, folders: Mapping[int, Path]) -> str:
    """Return a message about seeds that were requested with those of `folders`, but have no run, if any."""
    expected = sorted({*folders, *(seed for run in folders.values() for seed in noted_seeds(run))})
    missing = [seed for seed in expected if seed not in folders]
    if not missing:
        return ""
    return (
        f"{path}: the run of seed {listed_seeds(missing)} is missing: the others were trained with "
        f"--seeds {listed_seeds(expected)}; run the same `cotext train` command again to train it"
    )


def require_alike(path: Path, folders: Mapping[int, Path]) -> None:
    """Check that runs, by seed, differ only in their seeds; `path` is their folder, for messages.

    Raises CotextError if they do not, or a model is missing or damaged.
    """
    configs = {seed: describe_file(run / "model.safetensors").config for seed, run in folders.items()}
    first = next(iter(folders))
    for seed, config in configs.items():
        if config.train.seed != seed:
            raise CotextError(f"{folders[seed]}: contains a run of seed {config.train.seed}; rename it")
        places = f"in seed-{first}", f"in seed-{seed}"
        if changed := told_differences(configs[first], with_seed(config, first), places, _MAY_DIFFER):
            raise CotextError(
                f"{path}: seed-{first} and seed-{seed} have different settings and cannot be averaged; "
                f"move one of them elsewhere:{changed}"
            )
    noted = ((seed, noted_data(run).get("checksums")) for seed, run in folders.items())
    digests = {seed: checksums for seed, checksums in noted if checksums is not None}
    for seed, checksums in digests.items():
        reference = next(iter(digests))
        if checksums != digests[reference]:
            raise CotextError(
                f"{path}: seed-{reference} and seed-{seed} were trained on different data; move one elsewhere"
            )
