"""Generated settings: recipes and overrides that may be anything. Refused in a message, or they train."""

import json
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotext.config.recipe import Config, keys, load_config, recipe_names
from cotext.config.sizes import STACKS
from tests.command_line import RECIPE, TINY, World
from tests.hostile.attacks import Attacks

KEYS = [key for key, _ in keys(Config)]
NUMBERS = ["0", "-1", "1", "2", "3", "7", "1e-3", "0.5", "1e9", "1e300", "-0.0", ".inf", ".nan", "9" * 400]
WORDS = ["", "true", "null", "none", "corpus", "epoch", "init", "sentence", "window", "document", "bracket"]
WORDS += ["numbered", "non_autoregressive", "flat", "nodes", "memory", "gated", "segment_gate", "datapoints"]
WORDS += ["xavier", "~", "2001-99-99"]
SHAPES = ["[]", "{}", "[1, 2]", "{a: 1}", "[[[[", "*a", "&a [*a]", "!!python/object:os.system x", "\ud800"]


@cache
def recipes() -> dict[str, Config]:
    """Every shipped recipe: read by the attacks, and not where tests are only counted."""
    return {name: load_config(name, "tiny") for name in recipe_names()}


def shallow(recipe: str) -> Iterator[str]:
    """Overrides for stacks of one layer: no more top layers than that."""
    model = recipes()[recipe].model
    for stack in STACKS:
        top = getattr(model, stack).top
        if top is not None and top.layers > 1:
            yield f"model.{stack}.top.layers=1"


def usual(key: str, attacks: Attacks) -> str:
    """What some recipe has for a key."""
    found: Any = attacks.random.choice(list(recipes().values())).model_dump(mode="json")
    for part in key.split("."):
        found = found[part]
    return json.dumps(found)


def value(attacks: Attacks) -> str:
    """What may stand behind `key=`."""
    draw = attacks.random
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(NUMBERS)
    if kind < 0.75:
        return draw.choice(WORDS)
    if kind < 0.9:
        return draw.choice(SHAPES)
    return "".join(draw.choices(string.printable, k=draw.randint(1, 40)))


def override(attacks: Attacks) -> str:
    """A key, now and then one that nobody has, and a value."""
    draw = attacks.random
    key = draw.choice(KEYS)
    if draw.random() < 0.6:
        return f"{key}={usual(key, attacks)}"
    if draw.random() < 0.1:
        at = draw.randrange(len(key))
        key = key[:at] + draw.choice([".", "", "x", "..", "é", "\x00"]) + key[at + 1 :]
    return f"{key}={value(attacks)}"


def nested(attacks: Attacks, depth: int = 0) -> Any:
    """Any YAML."""
    draw = attacks.random
    kind = draw.random()
    if depth > 4 or kind < 0.5:
        return draw.choice([None, True, -1, 0, 10**30, 1.5, float("nan"), "", "x" * 50, "corpus", *WORDS])
    if kind < 0.65:
        return [nested(attacks, depth + 1) for _ in range(draw.randint(0, 4))]
    names = [key.rpartition(".")[2] for key in KEYS]
    return {draw.choice(names): nested(attacks, depth + 1) for _ in range(draw.randint(0, 4))}


def mutated(text: str, attacks: Attacks) -> str:
    """A text with some characters gone, doubled or replaced."""
    draw = attacks.random
    characters = list(text)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(characters) + 1)
        characters[at : at + draw.randint(0, 3)] = draw.choice(
            ["", ":", "- ", "\n", "{", "}", "\t", "9", "'"]
        )
    return "".join(characters)


@pytest.mark.parametrize("part", range(4))
def test_overrides(attacks: Attacks, world: World, tmp_path: Path, part: int) -> None:
    for number in range(150):
        given = [override(attacks) for _ in range(attacks.random.randint(1, 3))]
        recipe = attacks.random.choice([name for name, config in recipes().items() if not config.train.init])
        out = tmp_path / "run"
        tiny = [*TINY, *shallow(recipe), "train.max_updates=1"]
        places = ("--data", world.folder / "data", "--out", out)
        command = ("train", recipe, *tiny, *given, "--size", "tiny", *places, "--dry-run")
        attacks.run(f"{number}: {recipe} {given!r}", *command)
        if out.exists():
            attacks.fail(f"{number}: {given!r}", "left a run folder")
            break


@pytest.mark.parametrize("kind", ["nested", "mutated"])
def test_recipes(attacks: Attacks, world: World, tmp_path: Path, kind: str) -> None:
    written = yaml.safe_dump(load_config(RECIPE, "tiny", TINY).model_dump(mode="json"))
    for number in range(200):
        content = yaml.safe_dump(nested(attacks)) if kind == "nested" else mutated(written, attacks)
        path, out = tmp_path / "recipe.yaml", tmp_path / "run"
        path.write_text(content, encoding="utf-8", errors="surrogateescape")
        attacks.run(
            f"{number}: {content[:300]!r}",
            *("train", path, *TINY, "train.max_updates=1", "--data", world.folder / "data", "--out", out),
            "--dry-run",
        )


def test_settings_of_decoding(attacks: Attacks, world: World, tmp_path: Path) -> None:
    settings = [key.removeprefix("decode.") for key in KEYS if key.startswith("decode.")]
    source = world.folder / "test.en"
    lines = source.read_text(encoding="utf-8").count("\n")
    for number in range(150):
        given = [
            f"{attacks.random.choice(settings)}={value(attacks)}" for _ in range(attacks.random.randint(1, 2))
        ]
        out = tmp_path / "out.de"
        arguments = [part for each in given for part in ("--set", each)]
        outcome = attacks.run(
            f"{number}: {given!r}", "translate", world.run, source, *arguments, "--out", out
        )
        written = outcome is not None and outcome.code == 0
        if written and out.read_text(encoding="utf-8").count("\n") != lines:
            attacks.fail(f"{number}: {given!r}", "lines lost")
        for path in tmp_path.iterdir():
            path.unlink()
