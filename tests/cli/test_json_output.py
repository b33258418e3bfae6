"""`--json`: every command that prints figures prints them for programs too."""

import inspect
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.main import get_command

from cotext.cli.main import app
from cotext.cli.options import as_json
from tests.command_line import World, documents_file, prepare_arguments, succeed, writable_copy
from tests.loops import loop_over

# What says how figures came about.
ORIGIN = ("signature", "recipe", "fingerprint")
# Each on files of the world, WORLD, and on a copy of its run, RUN, into a new folder, OUT.
COMMANDS = {
    "info-run": "info RUN",
    "info-data": "info WORLD/data",
    "systems": "systems",
    "score": "score RUN --source WORLD/test.en --target WORLD/test.de",
    "translate": "translate RUN WORLD/test.en --out OUT.de --set beam=1",
    "evaluate": "evaluate --hypothesis WORLD/test.en --hypothesis WORLD/test.de --reference WORLD/test.de "
    "--paired --samples 100",
    "evaluate-decisions": "compare-decisions WORLD-a.json WORLD-b.json",
    "contrastive": "contrastive RUN WORLD/suite.json --controls --generate --set beam=1",
    "compare": "compare RUN --source WORLD/test.en --reference WORLD/test.de --suite WORLD/suite.json "
    "--samples 100 --out OUT.html --set beam=1",
    "leaderboard": "leaderboard WORLD/test.en --reference WORLD/test.de --samples 100 --out OUT.html",
    "mbr": "mbr WORLD/test.de WORLD/test.en --out OUT",
    "attention": "attention RUN WORLD/test.en --target WORLD/test.de --out OUT",
    "context": "context RUN WORLD/test.en --target WORLD/test.de --out OUT.html --set beam=1",
    "cxmi": "cxmi RUN --source WORLD/test.en --target WORLD/test.de",
    "speed": "speed RUN --document WORLD/test.en --rounds 1 --setting one --device cpu",
    "profile": "profile --hypothesis WORLD/test.en --reference WORLD/test.de",
    "distill": "distill RUN --data WORLD/data --out OUT --set beam=1",
    "average": "average RUN --out OUT --checkpoint 3 --checkpoint 6",
}


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, beside which work may be kept."""
    return writable_copy(world.run, tmp_path_factory.mktemp("json") / "run")


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from keys_of(each)


def require_json(shown: str) -> dict[str, Any]:
    """The object that an output is, which tells where its figures are from."""
    found = json.loads(shown, parse_constant=refuse)
    assert isinstance(found, dict)
    assert set(keys_of(found)) & set(ORIGIN)
    return found


@loop_over("name", COMMANDS)
def test_figures_for_programs(world: World, run: Path, tmp_path: Path, name: str) -> None:
    if name == "evaluate-decisions":
        shown = succeed("contrastive", run, world.folder / "suite.json", "--json").out
        require_json(shown)
        for copy in "ab":
            (tmp_path / f"{copy}.json").write_text(shown)
    places = (("WORLD-", f"{tmp_path}/"), ("WORLD", world.folder), ("RUN", run), ("OUT", tmp_path / "out"))
    line = COMMANDS[name]
    for word, place in places:
        line = line.replace(word, str(place))
    require_json(succeed(*line.split(), "--json").out)


def test_prepare_reports_for_programs(world: World, tmp_path: Path) -> None:
    found = require_json(succeed(*prepare_arguments(world.folder, tmp_path / "data"), "--json").out)
    assert found["splits"]["train"]["documents"] == 24


def test_all_commands_that_print_figures_are_asked() -> None:
    """Whoever adds a command is reminded of this file."""
    # These do something, and say so.
    without = {"demo", "convert", "convert-suite", "export", "serve", "serve-key", "models", "adapt"}
    without |= {"schema"}
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    taking = {
        name for name, each in commands.items() if "json" in inspect.signature(each.callback).parameters
    }
    assert taking == commands.keys() - without
    elsewhere = {"head", "join", "prepare", "prepare-controlled", "shortlist", "train", "import"}
    elsewhere |= {"align", "audit", "rerank", "repair"}
    assert taking - elsewhere == {line.split()[0] for line in COMMANDS.values()}


def test_what_is_no_number_is_null_and_half_characters_are_escapes() -> None:
    text = as_json({"a": [math.nan, 1.5, {"b": -math.inf}], "c": (math.inf,), "d": "\udc80é"})
    assert "é" in text
    text.encode()
    found = json.loads(text, parse_constant=refuse)
    assert found == {"a": [None, 1.5, {"b": None}], "c": [None], "d": "\udc80é"}


def test_messages_stay_off_standard_output(world: World, run: Path, tmp_path: Path) -> None:
    """Lines that hold several sentences are warned of."""
    source = documents_file(tmp_path / "in.en", 1, 5)
    source.write_text("The cat sees. A dog runs. The bird sings.\n")
    outcome = succeed("translate", run, source, "--out", tmp_path / "out.de", "--json")
    require_json(outcome.out)
    assert "several sentences" in outcome.err
