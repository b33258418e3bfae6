"""What is published: built, installed where there is no source tree, and used from there."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import cotext
from cotext.config.recipe import recipe_names
from tests.command_line import process_environment

pytest.importorskip("hatchling", reason="builds the package with hatchling, of the extra `dev`")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that sees no source tree and no other installed copy first."""
    environment = {key: value for key, value in process_environment().items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source: Path, target: str, out: Path) -> Path:
    """Build a wheel or an sdist of a source tree without isolation, so that nothing is downloaded."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out],
        check=True,
        cwd=source,
        capture_output=True,
        env={**os.environ},
    )
    (built,) = out.iterdir()
    return built


@dataclass(frozen=True, slots=True)
class Published:
    """An sdist, the wheel made from it, and an environment that the wheel is installed in."""

    sdist: Path
    wheel: Path
    environment: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def cotext(self) -> Path:
        return self.environment / "bin" / "cotext"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("published")
    sdist = build(ROOT, "sdist", folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    wheel = build(source, "wheel", folder / "wheel")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=folder)
    python = environment / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    run(sys.executable, *install, cwd=folder)
    # Torch and the other dependencies are taken from here, behind what is installed there.
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in paths))
    return Published(sdist, wheel, environment)


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_wheel_holds_the_package_and_nothing_else(published: Published) -> None:
    with zipfile.ZipFile(published.wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "cotext"
    expected = {
        f"cotext/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "cotext/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    found = metadata(published.wheel)
    assert (found["Name"], found["Version"]) == ("cotext", cotext.__version__)
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Author"] == "Cotext developers"


def test_the_sdist_holds_what_it_takes_to_test_and_document_it(published: Published) -> None:
    with tarfile.open(published.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = ("LICENSE", "CITATION.cff", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "constraints.txt")
    assert {*top, "mkdocs.yml", "docs/compare.md", "tests/test_wheel.py", "src/cotext/py.typed"} <= names


def test_it_runs_where_there_is_no_source_tree(published: Published, tmp_path: Path) -> None:
    where = run(published.python, "-c", "import cotext; print(cotext.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(published.environment)
    assert run(published.cotext, "--version", cwd=tmp_path) == f"cotext {cotext.__version__}\n"
    assert "Usage: cotext demo" in run(published.cotext, "demo", "--help", cwd=tmp_path)
    recipes = json.loads(run(published.cotext, "systems", "--json", cwd=tmp_path))["recipes"]
    assert [each["recipe"] for each in recipes] == recipe_names()
    # Files beside the modules: the recipes, the configuration of a run, published values.
    run(published.cotext, "prepare-controlled", "1", "--out", tmp_path / "data", cwd=tmp_path)
    assert "prepared data" in run(published.cotext, "info", tmp_path / "data", cwd=tmp_path)
    tiny = ("model.dimension=16", "model.heads=2", "model.feed_forward=16", "train.max_updates=1")
    shown = run(
        published.cotext, "train", "focused-concatenation/s4to4", *tiny, "--data", tmp_path / "data",
        "--out", tmp_path / "run", "--dry-run", cwd=tmp_path,
    )  # fmt: skip
    assert "nothing was written" in shown
    values = "from cotext.evaluation.published import published_values; print(len(published_values()))"
    assert int(run(published.python, "-c", values, cwd=tmp_path)) > 100


def test_its_types_are_seen_by_those_who_use_it(published: Published, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text("import cotext\n\nreveal_type(cotext.load)\n")
    shown = run(
        sys.executable, "-m", "mypy", "--strict", "--python-executable", published.python, "use.py",
        cwd=tmp_path,
    )  # fmt: skip
    assert "-> cotext.translation.translator.Translator" in shown
