"""Writes docs/replication.md: the papers' tables and figures, and the settings that papers leave open.

The sources of all other settings are comments in the recipes. The rest is in docs/replication.yaml.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

import yaml

from cotext.config.recipe import Config, load_config, recipe_names

PAGE = Path(__file__).with_name("replication.md")
FACTS = Path(__file__).with_name("replication.yaml")
SECTIONS = ("view", "model", "loss", "train", "decode")
NOT_TOLD = "not stated"
# Settings whose source must be recorded for every paper, in a recipe or in the facts (also: not stated).
ASKED = (
    "view.max_tokens",
    *(f"model.{key}" for key in ("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers")),
    *(f"model.{key}" for key in ("dropout", "activation_dropout", "attention_dropout", "pre_norm")),
    "loss.label_smoothing",
    "loss.glancing",
    "model.nat.codes",
    *(f"train.{key}" for key in ("learning_rate", "warmup_updates", "adam_betas", "adam_epsilon")),
    *(f"train.{key}" for key in ("max_tokens", "accumulate", "clip_norm", "max_updates")),
    *(f"train.{key}" for key in ("validate_every", "best_by", "patience", "average")),
    *(f"decode.{key}" for key in ("beam", "length_penalty", "length_penalty_form")),
    *(f"decode.{key}" for key in ("max_ratio", "max_extra")),
)
WRAPPER = TextWrapper(width=118, break_long_words=False, break_on_hyphens=False)
BULLET = TextWrapper(width=118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
OF_SEARCH = ("decode.length_penalty", "decode.length_penalty_form", "decode.max_ratio", "decode.max_extra")
# What `protocols` in replication.yaml says of the recipes of a paper, by key: its title, and how to read it.
HELD: dict[str, tuple[str, Callable[[Config], Any]]] = {
    "tokens": ("tokens per update", lambda config: config.train.max_tokens * config.train.accumulate),
    "best_by": ("best checkpoint by", lambda config: config.train.best_by),
    "penalty": ("length penalty", lambda config: config.decode.length_penalty_form),
}
TOP = """# Replication

For researchers who replicate one of the papers: which recipe reproduces each table and figure, which settings
the papers leave open, how Cotext differs, and what cannot be known.

In a recipe, a comment next to every value names its source. RECIPE is trained and measured like this; a
second stage needs `--init START`. `cotext compare` shows several runs next to the values of the papers. What
has been measured, and small experiments for many of the tables, are in [results](results.md).

```
cotext prepare --source train.en --target train.de --dev-source dev.en --dev-target dev.de --out DATA
cotext train RECIPE --data DATA --out RUN
cotext translate RUN test.en --out RUN/test.de
cotext evaluate --source test.en --hypothesis RUN/test.de --reference test.de --protocol PROTOCOL
```

Protocols: [metrics](metrics.md). *Decisions* about open questions are on the pages
[concatenation](focused-concatenation.md), [document to document](document-to-document.md),
[batch-level context](batch-level-context.md), [MCN](mcn.md) and [CASA](casa.md).

## Tables and figures

Each point has a table or figure of the paper, the recipes of its rows, and the commands that measure it.
A recipe without a folder is in the folder of the recipe before it; settings without a recipe belong to the
recipe before them.
"""
PROTOCOLS = """## Updates and scores

The size of an update at base size, and the protocols that correspond to the paper's BLEU.
"""
SETTINGS = """## What papers leave open

Settings that neither the paper nor its published code states, with the value used here, at base size.
"""
UNKNOWN = """Systems that papers use as baselines, and systems of Cotext. If a setting is not in a
recipe, its value in the paper is not known:
"""
DIFFERS = """## Where Cotext differs

Each point has the paper's way, the way of Cotext (*Here*), and the reason. Settings of a paper for corpora
and languages that the recipe does not cover are included.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key that a recipe writes, and the comment beside it."""

    key: str
    told: str

    @property
    def place(self) -> str:
        """Where it is told, without further explanation."""
        return self.told if self.told.startswith("ours") else re.split(r"[:;]", self.told)[0]


def facts() -> dict[str, Any]:
    """What is written by hand."""
    content: dict[str, Any] = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    return content


def written(recipe: str) -> list[Setting]:
    """What a recipe writes, in order; a list of mappings counts as one value."""
    text = (resources.files("cotext.config") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, path: tuple[str, ...]) -> Iterator[Setting]:
        for key, value in node.value:
            inner = (*path, key.value)
            if isinstance(value, yaml.MappingNode):
                yield from walk(value, inner)
            else:
                yield Setting(".".join(inner), lines[key.start_mark.line].partition("  # ")[2])

    return [
        setting
        for key, value in yaml.compose(text).value
        if key.value in SECTIONS
        for setting in walk(value, (key.value,))
    ]


def inherited(recipe: str) -> list[Setting]:
    """What a recipe has from those that it extends."""
    path = resources.files("cotext.config") / "recipes" / f"{recipe}.yaml"
    parents = yaml.safe_load(path.read_text(encoding="utf-8")).get("extends", [])
    above = {each.key: each for parent in parents for each in (*inherited(parent), *written(parent))}
    own = {each.key for each in written(recipe)}
    return [each for key, each in above.items() if key not in own]


def chosen(source: dict[str, Any]) -> list[str]:
    """Recipes of a source."""

    def fits(name: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    left_out = source.get("without", ())
    return [name for name in recipe_names() if fits(name, source["recipes"]) and not fits(name, left_out)]


def of_no_table() -> set[str]:
    """Recipes that stand for no row of a paper's table."""
    return {name for source in facts()["sources"] if source.get("no_table") for name in chosen(source)}


def asked(config: Config) -> list[str]:
    """Keys whose source has to be known."""
    needless = set() if config.model.writes == "left_to_right" else set(OF_SEARCH)
    if config.loss.name != "glancing":
        needless.add("loss.glancing")
    if not config.model.nat.latent:
        needless.add("model.nat.codes")
    return [key for key in ASKED if key not in needless]


def setting(config: Config, key: str) -> str:
    """A key with its value, as an override has it."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    if key == "view.mixed_with":
        return key
    return f"{key}={shown(value)}"


def shown(value: object) -> str:
    """As YAML has it, floats as people write them."""
    if isinstance(value, tuple):
        return "[" + ",".join(map(shown, value)) + "]"
    if isinstance(value, float):
        digits = f"{value:.1e}" if 0 < value < 0.01 else f"{value:g}"
        return re.sub(r"(\.0)?e-0?", "e-", digits)
    return str(value).lower() if isinstance(value, bool) else str(value) or "''"


def some_of(names: Sequence[str], of: Sequence[str]) -> str:
    """Names of recipes, as short as may be."""
    one_folder = len({name.partition("/")[0] for name in of}) == 1
    short = {name: name.partition("/")[2] if one_folder else name for name in of}
    rest = [name for name in of if name not in names]
    if not rest:
        return "all"
    if len(rest) < len(names):
        return "all but " + ", ".join(short[name] for name in rest)
    return ", ".join(short[name] for name in names)


def told_by(source: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows: where, settings, recipes; ours and what is not stated come last."""
    recipes = chosen(source)
    names: dict[tuple[str, str], list[str]] = {}
    for recipe in recipes:
        config, own = load_config(recipe), written(recipe)
        if "defaults" in source:
            own = [*inherited(recipe), *own]
        found = [(each.place, each.key) for each in own]
        for place, keys in source.get("defaults", {}).items():
            wanted = set(asked(config)) - {each.key for each in own}
            found += [(place, key) for key in keys if key in wanted]
        for place, key in found:
            names.setdefault((place, setting(config, key)), []).append(recipe)
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (place, each), having in names.items():
        rows.setdefault((place, tuple(having)), []).append(each)
    places = list(dict.fromkeys(place for place, _ in rows))
    places.sort(key=lambda place: (place == NOT_TOLD, place.startswith("ours")))
    ordered = sorted(rows.items(), key=lambda row: (places.index(row[0][0]), -len(row[0][1])))
    return [(place, code(each), some_of(having, recipes)) for (place, having), each in ordered]


def code(parts: Sequence[str]) -> str:
    """Each as code."""
    return ", ".join(f"`{part}`" for part in parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:], ""]


def in_paper(result: dict[str, Any]) -> str:
    """As in: tables 1, 8; figure 2."""
    parts = []
    for kind in ("table", "figure"):
        if numbers := result.get(f"{kind}s"):
            parts.append(f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}")
    return "; ".join(parts)


def recipes_cell(recipes: Sequence[str]) -> str:
    """Recipes and settings; what is as in the one before is left out."""
    parts, folder, last = [], "", ""
    for each in recipes:
        name, _, settings = each.partition(" ")
        brief = name.removeprefix(f"{folder}/") if folder else name
        parts.append(settings if settings and name == last else f"{brief} {settings}".strip())
        folder, last = name.partition("/")[0], name
    return code(parts)


def result(entry: dict[str, Any]) -> str:
    """One bullet: a table or figure, the recipes of its rows, and the commands that measure it."""
    where, what, run = in_paper(entry), entry["what"], entry.get("run", "")
    parts = [recipes_cell(entry.get("recipes", ())), run[:1].upper() + run[1:]]
    told = ". ".join(filter(None, parts))
    return (
        f"* **{where}** ({what}): {told}".rstrip(": ") if where else f"* {what[:1].upper()}{what[1:]}: {told}"
    )


def without_recipe(papers: Sequence[dict[str, Any]]) -> list[str]:
    """Bullets: a reason, and the rows of all papers that have no recipe for it."""
    rows: dict[str, list[str]] = {}
    for paper in papers:
        for other in paper.get("others", ()):
            rows.setdefault(other["why"], []).append(f"{other['row']} ({paper['paper']}, {in_paper(other)})")
    return [BULLET.fill(f"* {'; '.join(each)}: {why}") for why, each in rows.items()]


def difference(entry: dict[str, Any]) -> str:
    """One bullet: what a paper has, what is here, and why."""
    config = load_config(entry.get("recipe", "p-transformer/doc"))
    here = entry.get("here") or code([setting(config, key) for key in entry["keys"]])
    theirs, why = entry["theirs"].removesuffix("."), entry["why"]
    return f"* *{entry['what']}*: {theirs}. Here: {here}. {why[:1].upper()}{why[1:]}"


def page() -> str:
    """The page as Markdown."""
    known = facts()
    lines = [TOP]
    for paper in known["papers"]:
        lines += [f"### {paper['paper']}", "", WRAPPER.fill(f"*{paper['title']}.* {paper['data']}"), ""]
        lines += [
            BULLET.fill(result(r))
            for r in paper["results"]
            if not re.fullmatch("a drawing|drawings", r["what"])
        ]
        lines.append("")
    lines += ["### Rows without a recipe", "", *without_recipe(known["papers"]), "", PROTOCOLS]
    rows = [
        (
            each["paper"],
            " without ".join(code(each[part]) for part in ("recipes", "without") if part in each),
            *(f"{each[key]:,}" if isinstance(each[key], int) else each[key] for key in HELD),
            each["told"],
            code(each["bleu"]),
        )
        for each in known["protocols"]
    ]
    lines += table(("paper", "recipes", *(title for title, _ in HELD.values()), "stated in", "BLEU"), rows)
    lines.append(SETTINGS)
    for source in known["sources"]:
        rows = [row[1:] for row in told_by(source) if row[0] == NOT_TOLD]
        if rows:
            lines += [f"### Settings: {source['source']}", "", WRAPPER.fill(source["about"]), ""]
            lines += [*(BULLET.fill(f"* {recipes}: {settings}") for settings, recipes in rows), ""]
    others = [source for source in known["sources"] if "defaults" not in source]
    lines += [UNKNOWN, *(BULLET.fill(f"* {source['source']}: {source['about']}") for source in others), ""]
    lines.append(DIFFERS)
    for paper in dict.fromkeys(each["paper"] for each in known["differs"]):
        lines += [f"**{paper[0].upper()}{paper[1:]}**", ""]
        lines += [BULLET.fill(difference(each)) for each in known["differs"] if each["paper"] == paper]
        lines.append("")
    lines += ["## What cannot be known", ""]
    for paper, points in known["unknown"].items():
        bullets = [WRAPPER.fill(f"* {point}").replace("\n", "\n  ") for point in points]
        lines += [f"**{paper}**", "", *bullets, ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
