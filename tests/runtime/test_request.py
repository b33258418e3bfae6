"""Requests: conversion, rules declared with a field, and options made from fields."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from cotext.cli.options import command
from cotext.runtime import CotextError
from cotext.runtime.request import Request, option, options_of
from tests.loops import loop_over
from tests.refusals import must_raise


class Shared(Request):
    device: str | None = option("Device.", default=None)


class Example(Shared):
    run: Path = option("Run.", argument=True)
    files: Sequence[Path] = option("Files.", default=())
    level: Literal["low", "high"] = option("Level.", default="low")
    rounds: int = option("Rounds.", default=1, least=1, needs="level=high")
    comet: str | None = option("Model.", default=None)
    comet_context: int = option("Context.", default=0, needs=("comet", "files"))
    decode: Mapping[str, Any] = option("Settings.", name="set", default_factory=dict)
    draw: bool = option("Draw.", default=True)
    quick: bool = option("Quick.", default=False)

    def check(self) -> None:
        if self.quick and self.draw:
            raise CotextError("--quick draws nothing: add --no-draw")


def test_paths_and_sequences_are_converted() -> None:
    made = Example(run="a", files="b")  # type: ignore[arg-type]
    assert (made.run, made.files, made.decode) == (Path("a"), (Path("b"),), {})
    assert Example(run=Path("a"), files=["b", Path("c")]).files == (Path("b"), Path("c"))  # type: ignore[list-item]
    assert made == Example(run=Path("a"), files=[Path("b")])
    assert Example(run=".", files=[]).run == Path.cwd()  # type: ignore[arg-type]


@loop_over(
    ("given", "message"),
    [
        ({"level": "middle"}, r"--level 'middle': choose one of low, high"),
        ({"level": "high", "rounds": 0}, r"--rounds 0: must be finite and at least 1"),
        ({"level": "high", "rounds": float("nan")}, r"--rounds nan: must be finite"),
        ({"rounds": 2}, r"--rounds needs --level high"),
        ({"comet_context": 2}, r"--comet-context needs --comet or --files"),
        ({"quick": True}, r"--quick draws nothing"),
    ],
)
def test_what_a_request_refuses(given: dict[str, Any], message: str) -> None:
    must_raise(message, Example, run=Path("a"), **given)


@pytest.mark.parametrize(
    "given",
    [
        {"level": "high", "rounds": 2},
        {"comet": "x", "comet_context": 2},
        {"files": ["a"], "comet_context": 2},
    ],
)
def test_what_another_option_allows(given: dict[str, Any]) -> None:
    Example(run=Path("a"), **given)


def test_fields_of_the_class_stand_before_those_of_its_bases_and_required_ones_first() -> None:
    class Later(Example):
        out: Path = option("Output.")

    assert [*options_of(Later)][:2] == ["out", "run"]
    assert [*options_of(Later)][-1] == "device"


def test_options_of_a_command_are_the_fields() -> None:
    found: list[tuple[Example, bool]] = []

    def run(request: Example, json: bool = False) -> None:
        found.append((request, json))

    app = typer.Typer()
    app.command()(command(run))
    words = "there --files a --files b --level high --rounds 3 --set beam=2 --no-draw --json"
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    request = Example(
        run=Path("there"),
        files=[Path("a"), Path("b")],
        level="high",
        rounds=3,
        decode={"beam": 2},
        draw=False,
    )
    assert found == [(request, True)]
    assert CliRunner().invoke(app, ["there"]).exit_code == 0
    assert found[1] == (Example(run=Path("there")), False)
    assert CliRunner().invoke(app, []).exit_code == 2
    assert CliRunner().invoke(app, ["there", "--no-quick"]).exit_code == 2
