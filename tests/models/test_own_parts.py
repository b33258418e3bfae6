"""Parts of a user's file, as docs/slots.md shows them: trained, kept with the run, run only when trusted."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cotext as package
from cotext import load
from cotext.config import parts as own_code
from cotext.config.recipe import load_config
from cotext.layers.multi_head import Score
from cotext.models.checks import own_part
from cotext.runtime import CotextError
from tests.command_line import TINY, World, cotext, must_refuse, process_environment, succeed
from tests.refusals import must_raise

PAGE = (Path(__file__).parents[2] / "docs" / "slots.md").read_text(encoding="utf-8")


def block(kind: str, beginning: str) -> str:
    """The code block of the page that begins like this."""
    return next(
        text for text in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(beginning)
    )


@pytest.fixture
def idea(tmp_path: Path) -> Path:
    """The recipe of the page, with its file beside it."""
    (tmp_path / "idea.py").write_text(block("python", "import torch"), encoding="utf-8")
    (tmp_path / "idea.yaml").write_text(block("yaml", "extends"), encoding="utf-8")
    return tmp_path / "idea.yaml"


@pytest.fixture(autouse=True)
def nothing_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has agreed to nothing, and a process that has run nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    forget()


def forget() -> None:
    own_code._codes.clear()
    for name in [name for name in sys.modules if name.startswith("cotext_own_code_")]:
        del sys.modules[name]


def trained(idea: Path, world: World, *options: str) -> Path:
    run = idea.parent / "run"
    data = ("--data", world.folder / "data", "--out", run)
    succeed("train", idea, *data, *TINY, "train.max_updates=3", *options)
    return run


def test_an_idea_of_the_page_is_trained_and_translates(idea: Path, world: World) -> None:
    run = trained(idea, world, "--trust-code")
    assert (run / "code" / "idea.py").read_text() == (idea.parent / "idea.py").read_text()
    digest = own_code.Code.read(idea.parent / "idea.py").digest[:16]
    assert f"idea.py:Temperature@{digest}" in (run / "config.yaml").read_text()
    # A later process, without the folder of the recipe, and without asking again.
    forget()
    (idea.parent / "idea.py").unlink()
    told = json.loads(
        succeed("translate", run, world.folder / "test.en", "--out", idea.parent / "out", "--json").out
    )
    assert f"idea.py:EarlierMean@{digest}" in told["signature"]
    assert len((idea.parent / "out").read_text().splitlines()) == len(
        (world.folder / "test.en").read_text().splitlines()
    )
    info = succeed("info", run).out.replace("\n", "")
    assert f"idea.py:EarlierMean@{digest}" in info
    assert ", code/idea.py (" in info
    succeed("export", run, "--to", "hub", "--out", idea.parent / "hub")
    card = (idea.parent / "hub" / "README.md").read_text()
    assert "loading runs code/idea.py with all your permissions" in card.partition("trust_code=True")[2]


def test_code_is_not_run_before_the_user_agrees_nor_if_changed(
    idea: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", idea, "--data", world.folder / "data", "--out", idea.parent / "run", *TINY)
    must_refuse("idea.py: the model needs this Python file", *command)
    assert not (idea.parent / "run").exists()
    run = trained(idea, world, "--trust-code")
    forget()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(idea.parent / "of another user"))
    must_raise("trust_code=True", load, run)
    translated = load(run, trust_code=True).translate(["the cat"])
    forget()
    assert load(run).translate(["the cat"]) == translated
    kept = run / "code" / "idea.py"
    kept.write_text(kept.read_text() + "\nprint('other')\n")
    forget()
    command = ("translate", run, world.folder / "test.en", "--out", idea.parent / "out", "--trust-code")
    must_refuse("restore it, or train a new run", *command)
    kept.unlink()
    forget()
    must_refuse("code/idea.py: is missing in the run folder", *command)
    code = idea.parent / "idea.py"
    code.write_text(code.read_text() + "\n")
    forget()
    command = ("train", idea, "--data", world.folder / "data", "--out", run, *TINY, "--trust-code")
    must_refuse("model.document_layer", *command)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Layer: pass", "no class with this name is a subclass of cotext.layers.multi_head.Score"),
        ("Layer = 1", "no class with this name"),
        ("1 / 0", "ZeroDivisionError"),
        ("class Layer(", "SyntaxError"),
    ],
)
def test_files_that_hold_no_part(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "idea.py").write_text(text, encoding="utf-8")
    (tmp_path / "idea.yaml").write_text("model: {attention: {score: idea.py:Layer}}", encoding="utf-8")
    name = load_config(str(tmp_path / "idea.yaml")).model.attention.score
    with own_code.trusting(True), pytest.raises(CotextError, match=message):
        own_part(name, Score)


def test_a_layer_that_does_not_say_how_far_it_sees_is_refused_when_training_starts(
    idea: Path, world: World
) -> None:
    code = idea.parent / "idea.py"
    code.write_text(code.read_text().replace("def reach(", "def range("), encoding="utf-8")
    outcome = cotext(
        "train", idea, "--data", world.folder / "data", "--out", idea.parent / "run", *TINY, "--trust-code"
    )
    assert outcome.code == 2
    assert "idea.py:EarlierMean: does not define reach" in outcome.err.replace("\n", " ")
    assert not (idea.parent / "run").exists()


def test_wrong_names_are_told_with_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(
        CotextError, match=r"'hierarchical', 'selective' or a class of a file, such as idea\.py:MyPart"
    ):
        load_config("han/joint", overrides=["model.document_layer=gate"])
    with pytest.raises(CotextError, match=r"none\.py"):
        load_config("han/joint", overrides=[f"model.document_layer={tmp_path}/none.py:Layer"])


def test_a_document_layer_costs_a_part_a_line_and_a_recipe(tmp_path: Path, world: World) -> None:
    """What the page says, carried out on a copy of the package."""
    source = Path(package.__file__).parent
    copy = shutil.copytree(source, tmp_path / "src" / "cotext", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "models" / "earlier_mean.py").write_text(block("python", "import torch"), encoding="utf-8")
    table = copy / "config" / "parts.py"
    line = block("python", '    "earlier_mean"')
    text = table.read_text(encoding="utf-8")
    place = text.index("}", text.index("DOCUMENT_LAYERS"))
    table.write_text(text[:place] + line + text[place:], encoding="utf-8")
    recipe = copy / "config" / "recipes" / "earlier-mean"
    recipe.mkdir()
    (recipe / "base.yaml").write_text(
        "extends: [focused-concatenation/s4to4]\nmodel:\n  document_layer: earlier_mean\n", encoding="utf-8"
    )
    environment = process_environment() | {"PYTHONPATH": str(tmp_path / "src")}

    def run(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "cotext", *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = tmp_path / "run"
    run(
        "train",
        "earlier-mean/base",
        "--data",
        world.folder / "data",
        "--out",
        out,
        *TINY,
        "train.max_updates=3",
    )
    run("translate", out, world.folder / "test.en", "--out", tmp_path / "out")
    assert len((tmp_path / "out").read_text().splitlines()) >= 3
    assert "earlier-mean/base" in run("systems")


def test_two_files_of_one_name_are_refused_before_training(idea: Path, world: World) -> None:
    """A run keeps its files in one folder, by their names: the second would replace the first."""
    other = idea.parent / "other" / "idea.py"
    other.parent.mkdir()
    other.write_text((idea.parent / "idea.py").read_text() + "\n", encoding="utf-8")
    data = ("--data", world.folder / "data", "--out", idea.parent / "run")
    score = f"model.decoder.score={other}:Temperature"
    must_refuse("two different files are called idea.py", "train", idea, *data, *TINY, score, "--trust-code")
    assert not (idea.parent / "run" / "code").exists()
