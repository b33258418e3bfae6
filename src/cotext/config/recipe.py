"""The whole configuration as closed, typed models: YAML recipes and dotted overrides.

A recipe is one YAML file. A size is laid over it (see `sizes.py`), then `key.path=value` overrides; what
results travels with every checkpoint. An unknown key is an error that names the nearest known one.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from cotext.config.decoding import DecodeConfig
from cotext.config.fields import Closed
from cotext.config.model import ModelConfig
from cotext.config.sizes import sized
from cotext.config.training import LossConfig, TrainConfig
from cotext.config.view import ViewConfig
from cotext.runtime.errors import CotextError, nearest, shown
from cotext.runtime.reading import parse_yaml, read_text

MAX_SECTIONS = 8  # of an override, that its key lies in
MAX_PROBLEMS = 10  # told at once


class Config(Closed):
    """A recipe: everything that decides what is trained and how it translates."""

    paper: str = ""
    """Which row of which table the recipe stands for."""
    languages: Annotated[str, Field(pattern="^([a-z]{2,3}-[a-z]{2,3})?$")] = ""
    """Source and target language, as in en-de; filled in from the data. Empty: not known."""
    view: ViewConfig = ViewConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


def recipe_names() -> list[str]:
    """Shipped recipes as <paper>/<system>, sorted."""
    root = resources.files("cotext.config") / "recipes"
    return sorted(
        f"{paper.name}/{file.name.removesuffix('.yaml')}"
        for paper in root.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".yaml")
    )


def load_config(recipe: str, size: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a shipped recipe by name or a YAML file by path; lay a size, then overrides over it.

    Raises:
        CotextError: no such recipe, unreadable YAML, an unknown key or size, a value that does not fit.
    """
    content, where = _read_recipe(recipe)
    if size is not None:
        content = sized(content, parse_config(content, where).model_dump(), size)
    for override in overrides:
        _apply_override(content, override)
    return parse_config(content, where)


def parse_config(content: Any, where: str) -> Config:
    """Check a nested mapping; `where` names it in messages."""
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise CotextError("\n".join(_explain(error, where))) from None


def dump_config(config: Config) -> str:
    """The configuration as YAML, every key written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def differences(before: Config, now: Config) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys in which two configurations differ, with both values."""
    contents = before.model_dump(), now.model_dump()
    for key, _ in keys(Config):
        one, other = (reduce(lambda place, part: place[part], key.split("."), c) for c in contents)
        if one != other:
            yield key, one, other


def _read_recipe(recipe: str) -> tuple[dict[str, Any], str]:
    if recipe.endswith((".yaml", ".yml")):
        where = recipe
        text = read_text(Path(recipe))
    else:
        names = recipe_names()
        if recipe not in names:
            near = [n for n in names if recipe in n][:3] or nearest(recipe, names, 3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cotext systems` lists them all"
            raise CotextError(f"no recipe {shown(recipe)}: {hint} (a recipe of your own ends in .yaml)")
        where = f"recipe {recipe}"
        text = (resources.files("cotext.config") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, where) or {}
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    return content, where


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    written = shown(override)
    if not equals or not key:
        raise CotextError(f"{written} is not an override: write key.path=value, as in train.max_updates=3")
    *sections, last = key.split(".")
    if len(sections) > MAX_SECTIONS:
        raise CotextError(f"{written}: no key lies in so many sections")
    place = content
    for section in sections:
        inner = place.get(section)
        if inner is None:
            inner = place[section] = {}
        if not isinstance(inner, dict):
            raise CotextError(f"{written}: {section} is a value, not a section")
        place = inner
    place[last] = parse_yaml(value, f"{written}: the value")


def _explain(error: ValidationError, where: str) -> Iterator[str]:
    known = [*Config.model_fields, *(key for key, _ in keys(Config))]
    parts = _parts(known)
    problems = error.errors(include_url=False)
    for problem in problems[:MAX_PROBLEMS]:
        key = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part in parts)
        written = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            [near] = nearest(written, known)
            yield f"{where}: unknown key {shown(written)}; the nearest known one is '{near}'"
        else:
            found = f"{key or shown(written)} = {shown(problem['input'])}"
            yield f"{where}: {found}: {problem['msg'].lower()}"
    if len(problems) > MAX_PROBLEMS:
        yield f"{where}: and {len(problems) - MAX_PROBLEMS:,} more like these"


def _parts(keys: Iterable[str]) -> set[str]:
    return {part for key in keys for part in key.split(".")}


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All dotted keys of a configuration model with their defaults."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.default
