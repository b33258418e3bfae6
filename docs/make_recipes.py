"""Writes docs/recipes.md, and the parameters of recipes, from the recipes and the configuration.

So that they cannot lag behind.
"""

import json
from functools import cache
from pathlib import Path

import cotext
from cotext.config.fields import LARGEST
from cotext.config.recipe import load_config, recipe_names
from cotext.config.reference import reference
from cotext.config.sizes import PROPORTIONS, SIZES
from cotext.models.describe import PARAMETERS, entry
from cotext.models.parameters import parameters_at_base
from cotext.runtime.reading import MAX_YAML_CHARACTERS

PAGE = Path(__file__).with_name("recipes.md")
COUNTS = Path(cotext.__file__).parent / "config" / "recipes" / PARAMETERS


@cache
def parameters() -> dict[str, int]:
    """The parameters of every recipe."""
    return {name: parameters_at_base(load_config(name)) for name in recipe_names()}


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# Recipes",
        "",
        "A recipe says everything that decides what is trained and how it translates. `cotext train NAME`",
        "takes a shipped one by name or a YAML file of your own by path; `--size` lays one of these sizes",
        "over it, and `key.path=value` arguments have the last word. Unknown keys are errors. The resolved",
        "configuration is written to the run folder and into every model file.",
        "",
        "The YAML of a recipe is plain: mappings, lists, texts and numbers, at most",
        f"{MAX_YAML_CHARACTERS:,} characters, without anchors, aliases and tags. No key comes twice, and a",
        "date is a text.",
        "",
        "This page is made by `make docs`; parameters are counted at base size with 32,000 subwords, without",
        "the symbols that number sentences.",
        "",
        "## Shipped recipes",
        "",
        "| recipe | view | model | loss | decoding | parameters |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, count in parameters().items():
        row = entry(name, load_config(name), count)
        cells = (name, row.view, row.model, row.loss, row.decoding, f"{count:,}")
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    lines += ["", "## Sizes", "", "| size | changes |", "| --- | --- |"]
    for size, sections in SIZES.items():
        changes = [f"{s}.{k}={v}" for s, values in sections.items() for k, v in values.items()]
        lines.append(f"| {size} | {', '.join(changes) or 'none: recipes are written for it'} |")
    proportions = ", ".join(f"{share} at {size}" for size, share in PROPORTIONS.items())
    lines += [
        "",
        f"Stacks of unequal depth keep their proportion ({proportions}): 10 + 2 layers are",
        "7 + 1 at small and 5 + 1 at tiny. Top layers of a kind (`global_layers`, `current_layers`,",
        "`context_layers`) keep their number as far as half of the shorter stack stays below them. Where",
        "training starts from another run, its learning rate is as much lower than the one above as it is",
        "below 7e-4 at base size.",
    ]
    lines += ["", "## Every key", "", f"Whole numbers are at most {LARGEST:,} where no other limit is told."]
    lines += ["", "| key | takes | default | what it does |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{key}` | {kind.replace('|', 'or')} | `{default!r}` | {what} |"
        for key, kind, default, what in reference()
    ]
    lines += [
        "",
        "The paper's sweep of context discounts is an override: `loss.context_discount=0.5`.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    COUNTS.write_text(json.dumps(parameters(), indent=1) + "\n", encoding="utf-8")
