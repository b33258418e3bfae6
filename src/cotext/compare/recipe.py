"""Which shipped recipe a run is of: run folders hold configurations, not names."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, reduce
from typing import Any

from cotext.config import Config, load_config, recipe_names
from cotext.sizes import SIZES, TOP_LAYERS

# What makes a system, but for its size; training and decoding are told by signatures.
_SECTIONS = ("view", "model", "loss")
# Filled in from the data when training begins, or a matter of size.
_OF_THE_DATA = {"model.shift", "model.dropout", "model.attention_dropout", "view.max_tokens", "view.numbers"}
# Recipes that differ in these alone are told apart by them.
_FURTHER = ("train.context", "train.order")
_LIKE = 3  # more changes than this make a system of its own


@dataclass(frozen=True, slots=True)
class RecipeOf:
    """The recipe closest to a configuration; None where none is close. `changes`: key=value, sorted."""

    name: str | None
    changes: tuple[str, ...]

    @property
    def title(self) -> str:
        """As people read it."""
        if self.name is None:
            return "a system of its own"
        return f"{self.name}{' with ' if self.changes else ''}{' '.join(self.changes)}"


def recipe_of(config: Config) -> RecipeOf:
    """Find the recipe of a configuration: that whose row of a paper it names, else the closest.

    Sizes, and what is filled in from the data, do not count as changes.
    """
    ours = _essence(config)
    found = []
    for name, paper, theirs in _recipes():
        changes = tuple(f"{key}={_text(ours[key])}" for key in sorted(ours) if ours[key] != theirs[key])
        # Where several are as close (they differ in size alone), the row that is named most alike.
        likeness = SequenceMatcher(a=paper, b=config.paper, autojunk=False).ratio()
        found.append((paper != config.paper, len(changes), -likeness, name, changes))
    foreign, count, _, name, changes = min(found)
    return RecipeOf(None, ()) if foreign and count > _LIKE else RecipeOf(name, changes)


@cache
def _recipes() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    loaded = ((name, load_config(name)) for name in recipe_names())
    return tuple((name, config.paper, _essence(config)) for name, config in loaded)


def _essence(config: Config) -> dict[str, Any]:
    content = config.model_dump(mode="json")
    found: dict[str, Any] = {}
    for section in _SECTIONS:
        found |= _flat(content[section], f"{section}.")
    for key in _FURTHER:
        found[key] = reduce(lambda place, part: place[part], key.split("."), content)
    for model, key in TOP_LAYERS.items():
        # Sizes change how many there are, not whether there are any.
        found[f"model.{model}.{key}"] = min(found[f"model.{model}.{key}"], 1)
    return {key: value for key, value in found.items() if key not in _of_a_size() | _OF_THE_DATA}


@cache
def _of_a_size() -> frozenset[str]:
    return frozenset(key for size in SIZES.values() for key in _flat(size, ""))


def _flat(content: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
