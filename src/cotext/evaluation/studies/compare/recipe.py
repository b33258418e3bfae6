"""The shipped recipe that matches a run: run folders hold configurations, not names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import Config, differences, load_config, recipe_names
from cotext.config.sizes import SIZES
from cotext.models.describe import describe_model
from cotext.models.run_folder import describe_file, listed_seeds, noted_data, noted_seeds, seed_folder
from cotext.runtime.errors import CotextError

# What makes a system; training and decoding are told by signatures.
_SECTIONS = ("view", "model", "loss")
# How large it is.
_DIMENSIONS = {f"model.{key}" for key in ("dimension", "feed_forward", "heads")}
_LAYERS = {"model.encoder_layers", "model.decoder_layers"}
_NUMBERS = "view.numbers"  # at most as many as the training data has sentences in a document
_STACKS: Final = ("encoder", "decoder", "cross")
_SHIFT = "model.shift"  # a number once training begins, where the recipe has `corpus`
# Recipes that differ in these alone are told apart by them.
_FURTHER = ("train.context", "train.order")
_LIKE = 3  # more changes than this make a system of its own

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MatchedRecipe:
    """The recipe closest to a configuration; None where none is close. `changes`: key=value, sorted.

    `settings` has all that the configuration sets, in the same form. `described`: what has no configuration.
    """

    name: str | None
    changes: tuple[str, ...]
    settings: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    described: str = "a system of its own"

    @property
    def title(self) -> str:
        """As people read it."""
        if self.name is None:
            return self.described
        return f"{self.name}{' with ' if self.changes else ''}{' '.join(self.changes)}"

    def fits(self, setting: str) -> bool:
        """Whether the configuration is the recipe with a setting such as "model.dropout=0.1": that, no less

        and no more. A row of a paper may name a value that the recipe has anyway.
        """
        wanted = setting.split()
        keys = {part.partition("=")[0] for part in wanted}
        changed = {change.partition("=")[0] for change in self.changes}
        return self.settings.issuperset(wanted) and changed <= keys


def recipe_of(config: Config) -> MatchedRecipe:
    """Find the recipe of a configuration: that whose row of a paper it names, else the closest.

    It is compared with the recipe at its own size, or where it has none of them, at that which makes it
    closest. Width, depth, and what is filled in from the data do not count as changes. Among recipes with
    equally few changes, depth decides, then the number of all keys that differ, also those of training and
    decoding.
    """
    ours = _settings(config)
    found = []
    for name, recipe, theirs in _recipes(_kind(config)):
        changes = _written({key: value for key, value in ours.items() if _changed(key, ours, theirs)})
        sized = any(ours[key] != theirs[key] for key in _DIMENSIONS)
        depth = sum(ours[key] != theirs[key] for key in _LAYERS)
        further = sum(1 for key, _, _ in differences(recipe, config) if key != "paper")
        found.append((recipe.paper != config.paper, sized, len(changes), depth, further, name, changes))
    if not found:
        return MatchedRecipe(None, ())
    foreign, _, count, _, _, name, changes = min(found)
    settings = frozenset([*_written(ours), *(f"{key}={_text(value)}" for key, value in ours.items())])
    if foreign and count > _LIKE:
        return MatchedRecipe(None, (), settings)
    return MatchedRecipe(name, changes, settings)


def _kind(config: Config) -> str:
    """The model without its switches."""
    return describe_model(config.model).partition("(")[0]


@cache
def _recipes(model: str) -> tuple[tuple[str, Config, Settings], ...]:
    """The recipes of a skeleton at all sizes: names, configurations, settings."""
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
    """As key=value, sorted; what all stacks have in common as a setting of `model.attention`."""
    left, told = dict(settings), []
    for key in [key for key in settings if key.startswith("model.encoder.")]:
        of_stacks = [key.replace("encoder", stack, 1) for stack in _STACKS]
        if len({_text(settings.get(each)) for each in of_stacks}) == 1:
            told.append(f"{key.replace('encoder', 'attention', 1)}={_text(settings[key])}")
            for each in of_stacks:
                del left[each]
    return tuple(sorted([*told, *(f"{key}={_text(value)}" for key, value in left.items())]))


def _settings(config: Config) -> Settings:
    content = config.model_dump(mode="json")
    del content["model"]["attention"]
    for stack in _STACKS:
        content["model"][stack] = config.model.stack(stack).model_dump(mode="json")
    found: Settings = {}
    for section in _SECTIONS:
        found |= _flat(content[section], f"{section}.")
    for key in _FURTHER:
        found[key] = reduce(lambda inner, part: inner[part], key.split("."), content)
    return found


def _flat(content: dict[str, Any], prefix: str) -> Settings:
    found: Settings = {}
    for key, value in content.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        if changed := _settings_changed(configs[first], config):
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


def _settings_changed(one: Config, other: Config) -> str:
    lines = [
        f"  {key}: {_shown(before)} in the one, {_shown(after)} in the other"
        for key, before, after in differences(one, other)
        if key not in _MAY_DIFFER
    ]
    return "\n".join(lines)


def _shown(value: object) -> object:
    return "nothing" if value == "" else value
