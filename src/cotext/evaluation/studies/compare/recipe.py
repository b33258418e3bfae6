"""The shipped recipe that matches a run: run folders hold configurations, not names."""

from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, Final

from cotext.config.recipe import Config, differences, load_config, recipe_names
from cotext.config.sizes import SIZES
from cotext.models.describe import describe_model

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
