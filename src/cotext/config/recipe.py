"""Loading and checking of configurations: YAML recipes, sizes and dotted overrides.

A recipe is a YAML file, which can extend other recipes. Some of its settings are replaced by a size (see
`sizes.py`), and then by overrides `key.path=value`. The result is stored in every checkpoint. The error for
an unknown key contains the nearest known key.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from cotext.config.decoding import DecodeConfig
from cotext.config.fields import Closed
from cotext.config.model import ModelConfig
from cotext.config.parts import pinned
from cotext.config.sizes import size_settings
from cotext.config.training import LossConfig, TrainConfig
from cotext.config.view import ViewConfig
from cotext.runtime import CotextError, nearest, nearest_known, shown
from cotext.runtime.reading import parse_yaml, read_text

MAX_SECTIONS = 8  # maximum nesting depth of an override's key, and of recipes that extend other recipes
_ROOT = resources.files("cotext.config") / "recipes"
PARTS = "parts/"  # folder of partial recipes
MAX_PROBLEMS = 10  # maximum number of problems in a message


class Config(Closed):
    """A recipe: all settings of a system, for training and translation."""

    paper: str = ""
    """The table and the row of the paper that the recipe implements."""
    languages: Annotated[str, Field(pattern="^([a-z]{2,3}-[a-z]{2,3})?$")] = ""
    """Source and target language, such as en-de, which come from the data. Empty: unknown."""
    view: ViewConfig = ViewConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


def recipe_names() -> list[str]:
    """Return the names of shipped recipes, <paper>/<system>, sorted."""
    return sorted(name for name in _shipped() if not name.startswith(PARTS))


@cache
def _shipped() -> tuple[str, ...]:
    """Return the names of shipped recipes and partial recipes."""
    return tuple(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _ROOT.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def load_config(recipe: str, size: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a shipped recipe by name or a YAML file by path; apply a size, then overrides.

    Raises:
        CotextError: missing recipe or invalid YAML; unknown key or size; invalid value; parents (`extends`)
            that contradict each other.
    """
    content, where = read_recipe(recipe)
    if size is not None:
        _lay_over(content, size_settings(parse_config(content, where).model_dump(), size))
    for override in overrides:
        _apply_override(content, override)
    return parse_config(_pinned(content, Path()), where)


def parse_config(content: Any, where: str) -> Config:
    """Return the configuration of a nested mapping; `where` names it in messages.

    Raises:
        CotextError: unknown keys or invalid values.
    """
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise CotextError("\n".join(_explain(error, where))) from None


def dump_config(config: Config) -> str:
    """Return the configuration as YAML, including defaults."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml is several times faster, if present
    return str(yaml.dump(config.model_dump(mode="json"), Dumper=dumper, sort_keys=False))


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file, in which every key is optional."""
    schema = Config.model_json_schema()
    schema["title"] = "A recipe of Cotext"
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Recipes, shipped or in files, whose keys this one takes over.",
    }
    return schema


def differences(before: Config, now: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted keys in which two configurations differ, with both values."""
    contents = before.model_dump(), now.model_dump()
    for key, _ in keys(Config):
        one, other = (reduce(lambda section, part: section[part], key.split("."), c) for c in contents)
        if one != other:
            yield key, one, other


def is_file(recipe: str) -> bool:
    """Return whether a recipe is given as the path of a file, not as the name of a shipped recipe."""
    return recipe.endswith((".yaml", ".yml"))


def read_recipe(recipe: str, children: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    """Return the content of a recipe, merged with the recipes that it extends, and its name for messages.

    Raises:
        CotextError: recipes extend each other in a circle; also the errors of `load_config`.
    """
    if recipe in children:
        raise CotextError(f"recipe {' extends '.join([*children, recipe])}: a circle; remove one `extends`")
    if is_file(recipe):
        where = recipe
        text = read_text(Path(recipe))
    else:
        names = _shipped()
        if recipe not in names:
            containing = (name for name in names if recipe in name)
            near = sorted(containing, key=lambda name: (len(Path(name).name), name))[:3]
            near = near or nearest(recipe, names, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cotext systems` lists them all"
            raise CotextError(f"no recipe {shown(recipe)}: {hint} (for your own, pass its .yaml path)")
        where = f"recipe {recipe}"
        text = (_ROOT / f"{recipe}.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, where) or {}
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    parents = content.pop("extends", [])
    if is_file(recipe):
        content = _pinned(content, Path(recipe).parent)
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise CotextError(f"{where}: extends must be a list of recipes, such as extends: [p-transformer/ctx]")
    if len(children) >= MAX_SECTIONS:
        raise CotextError(f"{where}: extends recipes that extend others, more than {MAX_SECTIONS} deep")
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for parent in parents:
        inherited, _ = read_recipe(parent, (*children, recipe))
        inherited.pop("paper", None)
        _merge_parent(merged, inherited, parent, origin, where)
    _lay_over(merged, content)
    return merged, where


def _pinned(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Add the checksums of users' components, which are Python files relative to a folder."""
    return content | ({"model": pinned(content["model"], folder)} if "model" in content else {})


def _merge_parent(
    merged: dict[str, Any], inherited: dict[str, Any], parent: str, origin: dict[str, str], where: str
) -> None:
    """Add the keys of another parent; raise CotextError if an earlier parent has a different value."""
    for key, value in leaves(inherited):
        *sections, last = key.split(".")
        target = merged
        for section in sections:
            target = target.setdefault(section, {})
        if last in target and target[last] != value:
            raise CotextError(
                f"{where}: extends {origin[key]}, where {key} = {shown(target[last])}, and {parent}, where "
                f"it is {shown(value)}; remove one of them, or extend a recipe without this key"
            )
        target[last] = value
        origin.setdefault(key, parent)


def leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping with their dotted keys."""
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Overwrite a mapping with another mapping, section by section."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _lay_over(below[key], value)
        else:
            below[key] = value


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    written = shown(override)
    if not equals or not key:
        raise CotextError(f"{written} is not an override: write key.path=value, such as train.max_updates=3")
    *sections, last = key.split(".")
    if len(sections) > MAX_SECTIONS:
        raise CotextError(f"{written}: no key is nested so deep")
    target = content
    for section in sections:
        inner = target.get(section)
        if inner is None:
            inner = target[section] = {}
        if not isinstance(inner, dict):
            raise CotextError(f"{written}: {section} is a value, not a section")
        target = inner
    target[last] = parse_yaml(value, f"{written}: the value")


def _explain(error: ValidationError, where: str) -> Iterator[str]:
    leaf_keys = [key for key, _ in keys(Config)]
    sections = {key.rsplit(".", count)[0] for key in leaf_keys for count in range(1, key.count(".") + 1)}
    known = [*sorted(sections), *leaf_keys]
    parts = {part for key in known for part in key.split(".")}
    problems = error.errors(include_url=False)
    for problem in problems[:MAX_PROBLEMS]:
        key = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part in parts)
        written = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            hint = nearest_known(written, known) or ": docs/recipes.md lists all keys"
            yield f"{where}: unknown key {shown(written)}{hint}"
        else:
            setting = f"{key or shown(written)} = {shown(problem['input'])}"
            reason = problem["msg"].removeprefix("Value error, ")
            yield f"{where}: {setting}: {reason[:1].lower()}{reason[1:]}"
    if len(problems) > MAX_PROBLEMS:
        yield f"{where}: and {len(problems) - MAX_PROBLEMS:,} more like these"


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all dotted keys of a configuration model with their defaults."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.default
