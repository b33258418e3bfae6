"""`--json`: every command that prints figures prints them for programs too (see `golden_outputs`)."""

import inspect
import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.main import get_command

from cotext.cli.main import app
from cotext.cli.options import as_json
from tests.command_line import World, documents_file, prepare_arguments, succeed, writable_copy
from tests.golden_outputs import COMMANDS


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, beside which work may be kept."""
    return writable_copy(world.run, tmp_path_factory.mktemp("json") / "run")


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def test_prepare_for_programs(world: World, tmp_path: Path) -> None:
    found = json.loads(succeed(*prepare_arguments(world.folder, tmp_path / "data"), "--json").out)
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
    elsewhere = {"compare-decisions", "prepare", "prepare-controlled", "train", "import"}
    elsewhere |= {"align", "audit", "rerank", "repair"}
    assert taking - elsewhere == {words[0] for words in COMMANDS.values() if "--json" in words} - elsewhere


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
    json.loads(outcome.out, parse_constant=refuse)
    assert "several sentences" in outcome.err
