"""A package of models: as it is made, found by name, and without paths of the machine that made it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.pretrained.model_package import write_package
from cotext.interchange.model_names import NamedModel, known_models
from tests.command_line import World, succeed
from tests.refusals import must_raise

PACKAGES = sorted((Path(__file__).resolve().parents[2] / "packages").glob("*/pyproject.toml"))


def models_of(project_file: Path) -> list[NamedModel]:
    """The models of a package that is not installed, by its entry points."""
    project = tomllib.loads(project_file.read_text())["project"]
    return [
        NamedModel(name, project_file.parent.joinpath(*module.split(".")), project["name"])
        for name, module in project["entry-points"]["cotext.models"].items()
    ]


@pytest.mark.skipif(not PACKAGES, reason="no package with a model is in the repository")
def test_packages_of_the_repository_are_whole() -> None:
    for model in (model for path in PACKAGES for model in models_of(path)):
        assert model.verify() > 3
        assert model.licence


def test_models_are_found_by_name(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    licence, sources = tmp_path / "gpl-3.0-or-later", tmp_path / "sources.md"
    licence.write_text("the text of the licence")
    sources.write_text("## Training data\n\nParts and licences.\n")
    package = tmp_path / "cotext-model-en-de-test"
    write_package(package, licence, sources, {"en-de-test": world.run, "en-de-two": world.run}, [])

    module = package / "cotext_model_en_de_test"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["license"] == "GPL-3.0-or-later"
    assert sorted(path.name for path in module.iterdir()) == ["en_de_test", "en_de_two"]
    files = [path for path in package.rglob("*") if path.is_file()]
    assert not [path for path in files if str(tmp_path.parent).encode() in path.read_bytes()]
    card = (package / "README.md").read_text()
    assert "license: gpl-3.0-or-later" in card
    assert card.endswith("Parts and licences.\n")

    made = models_of(package / "pyproject.toml")
    assert [model.name for model in made] == ["en-de-test", "en-de-two"]
    assert all(model.verify() > 3 and model.licence == "gpl-3.0-or-later" for model in made)

    # As pip puts it into an environment.
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run([sys.executable, *install, str(site), str(package)], check=True)
    monkeypatch.syspath_prepend(str(site))
    found = known_models()
    assert {"en-de-test", "en-de-two"} <= set(found)
    assert found["en-de-test"].licence == "gpl-3.0-or-later"
    assert found["en-de-test"].verify() > 3
    source, out = tmp_path / "letter.en", tmp_path / "letter.de"
    source.write_text("It is old.\nIt is new.\n")
    succeed("translate", "en-de-test", source, "--out", out)
    again = tmp_path / "again.de"
    succeed("translate", world.run, source, "--out", again, "--set", "precision=int8")
    assert out.read_text() == again.read_text()


def test_an_unknown_licence_is_refused(world: World, tmp_path: Path) -> None:
    licence = tmp_path / "mine"
    licence.write_text("all mine")
    models = {"a": world.run}
    must_raise("not a known licence", write_package, tmp_path / "package", licence, licence, models, [])
