"""Write docs/recipes.md, and the numbers of parameters, from the recipes and the configuration.

They are generated so that they are always up to date.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import TextWrapper
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator

import cotext
from cotext.config.parts import Part
from cotext.config.recipe import Config, first_parent, keys, load_config, recipe_names
from cotext.config.sizes import PROPORTIONS, SIZES
from cotext.models.build import parameters_asked
from cotext.models.describe import PARAMETERS
from cotext.runtime import MAX_YAML_CHARACTERS
from cotext.runtime.rendering import listed
from cotext.runtime.sections import LARGEST

WRAPPER = TextWrapper(width=118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
PAGE = Path(__file__).with_name("recipes.md")
OF_STACK = "See `attention."  # begins the description of keys that `model.attention` has, too
SHOWN_LIMIT = 1_024  # larger limits only keep absurd values out; their errors name them
COUNTS = Path(cotext.__file__).parent / "config" / "recipes" / PARAMETERS


def reference() -> Iterator[tuple[str, str, Any, str]]:
    """Every key with the type it takes, its default and what it does: the recipe reference."""
    properties: dict[Any, Any] = {}
    for key, default in keys(Config):
        *sections, last = key.split(".")
        model: Any = Config
        for section in sections:
            model = model.model_fields[section].annotation
        field = model.model_fields[last]
        if model not in properties:
            properties[model] = model.model_json_schema()["properties"]
        schema = properties[model][last]
        limits = [part["maximum"] for part in (schema, *schema.get("anyOf", ())) if "maximum" in part]
        most = min(limits, default=LARGEST)
        limit = f", at most {most:,}" if most < LARGEST else ""
        names = next(filter(None, map(names_of, field.metadata)), ())
        kind = " | ".join((*names, "FILE.py:CLASS")) if names else _type_name(field.annotation)
        yield key, kind + limit, default, " ".join((field.description or "").split())


def names_of(metadata: object) -> tuple[str, ...]:
    """Return the shipped names that a type annotation allows; empty if it is not a `Part`."""
    check = metadata.func if isinstance(metadata, AfterValidator) else None
    return check.names if isinstance(check, Part) else ()


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is Annotated:
        names = next(filter(None, map(names_of, get_args(kind)[1:])), ())
        if names:
            return " | ".join((*names, "FILE.py:CLASS"))
        return _type_name(get_args(kind)[0])
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return f"list of {_type_name(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return ", ".join(_type_name(part) for part in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_type_name(part) for part in get_args(kind))
    return str(kind.__name__ if isinstance(kind, type) else kind)


def parameters_at_base(config: Config) -> int:
    """Number of trained numbers of a recipe at base size with 32,000 subwords."""
    view, model = config.view, config.model
    if model.shift == "corpus":
        model = model.model_copy(update={"shift": 0})
    # Numbers of sentences are not counted: how many there are is a matter of the corpus.
    brackets = {"separators": "bracket"} if view.separators == "numbered" else {}
    counted = {"model": model, "view": view.model_copy(update=brackets)}
    return parameters_asked(config.model_copy(update=counted), 32_000)


@cache
def parameters() -> dict[str, int]:
    """The parameters of every recipe."""
    return {name: parameters_at_base(load_config(name)) for name in recipe_names()}


def stored_parameters() -> dict[str, int]:
    """The parameters of every recipe that has other ones than the first recipe that it extends."""
    counts = parameters()
    return {name: count for name, count in counts.items() if counts.get(first_parent(name)) != count}


def _stacks(keys: Sequence[str]) -> str:
    """Return one bullet for the keys of all kinds of layers, which have the same values and defaults."""
    parts = [f"`{part}`" for part in dict.fromkeys(key.rpartition(".")[0] for key in keys)]
    names = [f"`{name}`" for name in dict.fromkeys(key.rpartition(".")[2] for key in keys)]
    return (
        f"* {listed(parts)} (`None`): {listed(names)} of these layers; by default those of `model.attention`."
    )


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# Recipes",
        "",
        "For anyone who trains a system or changes a setting: the shipped recipes, the model sizes, and",
        "every configuration key with its default.",
        "",
        "A recipe is a YAML file that sets what is trained and how it translates. `cotext train` accepts the",
        "name of a shipped recipe or the path of your own. `--size` selects one of the sizes below, and",
        "`key=value` arguments, such as `train.max_updates=1000`, override both. Unknown keys, and keys",
        "without an effect, are errors. The resulting configuration is saved in the run folder.",
        "",
        f"Recipes are plain YAML of at most {MAX_YAML_CHARACTERS:,} characters, without anchors, aliases,",
        "tags or repeated keys. `make docs` writes this page.",
        "",
        "An editor with the YAML language server completes and checks recipes: write the schema with",
        "`cotext schema recipe > recipe.schema.json`, and begin a recipe with",
        "`# yaml-language-server: $schema=recipe.schema.json`. For `endpoint.yaml`: `schema endpoint`.",
        "",
        "## Shipped recipes",
        "",
        "By folder. `cotext systems` lists the view, model, loss, decoding and number of parameters of each.",
        "",
    ]
    folders: dict[str, list[str]] = {}
    for name in parameters():
        folder, _, recipe = name.partition("/")
        folders.setdefault(folder, []).append(f"`{recipe}`")
    for folder, recipes in folders.items():
        lines += [WRAPPER.fill(f"* `{folder}/`: {', '.join(recipes)}")]
    lines += ["", "## Sizes", "", "| size | changes |", "|---|---|"]
    for size, sections in SIZES.items():
        changes = [f"{s}.{k}={v}" for s, values in sections.items() for k, v in values.items()]
        lines.append(f"| {size} | {', '.join(changes) or 'none: recipes are written for it'} |")
    proportions = ", ".join(f"{share} at {size}" for size, share in PROPORTIONS.items())
    lines += [
        "",
        f"Different depths of encoder and decoder keep their proportion ({proportions}):",
        "10 + 2 layers become 7 + 1 at small and 5 + 1 at tiny. Top layers (`model.attention.top.layers`)",
        "keep their number up to half of the shorter stack. Learning rates of recipes that start from",
        "another run are lower by the same factor at all sizes.",
    ]
    lines += [
        "",
        "## Every key",
        "",
        "Each key is followed by its type, its default, and what it does. The type is omitted if the",
        f"description lists all values. Limits above {SHOWN_LIMIT:,} are omitted; errors name them.",
    ]
    section = ""
    of_stacks = [key for key, _, _, what in reference() if what.startswith(OF_STACK)]
    for key, kind, default, what in reference():
        if key.partition(".")[0] != section:
            section = key.partition(".")[0]
            lines += ["", f"### {section}", ""]
        kind, _, limit = kind.partition(", at most ")
        if limit and int(limit.replace(",", "")) <= SHOWN_LIMIT:
            kind = f"{kind}, at most {limit}"
        if key not in of_stacks:
            values = [value for value in kind.split(" | ") if value != "FILE.py:CLASS"]
            described = all(f"`{value}`" in what for value in values)
            shown = f"`{default!r}`" if described else f"{kind.replace(' | ', '/')}, `{default!r}`"
            lines.append(WRAPPER.fill(f"* `{key}` ({shown}): {what}"))
        elif key == of_stacks[0]:
            lines.append(WRAPPER.fill(_stacks(of_stacks)))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    COUNTS.write_text(json.dumps(stored_parameters(), indent=1) + "\n", encoding="utf-8")
