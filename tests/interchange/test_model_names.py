"""Models by name: installed packages, and repositories that the hub's own client fetches from a local hub."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

import cotext as face
from cotext.cli.main import app
from cotext.interchange.model_names import known_models, name_of, resolve_run, write_checksums
from cotext.models.run_folder import noted_import
from cotext.runtime.request import Request, options_of
from cotext.serving.systems import open_systems
from tests.command_line import TINY, World, cotext, must_refuse, prepare_arguments, succeed
from tests.interchange.local_hub import LocalHub, serving
from tests.pretrained_models import marian_model
from tests.refusals import must_raise

pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "cache" / "cotext" / "models"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with serving() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        yield found


@pytest.fixture
def installed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that offers the run as en-de, as pip would have installed it."""
    site = tmp_path / "site"
    folder = copytree(world.run, site / "cotext_model_en_de")
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\nA card.\n")
    (folder / "__init__.py").write_text('raise RuntimeError("packages of models are not run")\n')
    write_checksums(folder)
    about = site / "cotext_model_en_de-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cotext-model-en-de\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[cotext.models]\nen-de = cotext_model_en_de\n")
    monkeypatch.syspath_prepend(str(site))
    return folder


def translated(world: World, name: str | Path) -> str:
    out = Path("out.de")
    succeed("translate", name, world.folder / "test.en", "--out", out, "--overwrite")
    return out.read_text()


def test_an_installed_model_goes_by_its_name(world: World, installed: Path) -> None:
    assert resolve_run("en-de") == installed
    assert [name_of(folder) for folder in (installed, world.run)] == ["en-de", str(world.run)]
    assert translated(world, "en-de") == translated(world, world.run)
    texts = ["the cat sees"]
    assert face.load("en-de", "cpu").translate(texts) == face.load(world.run, "cpu").translate(texts)
    face.translate_files(
        face.TranslationRequest(run="en-de", files=[world.folder / "test.en"], out="again.de", device="cpu")
    )
    assert Path("again.de").read_text() == Path("out.de").read_text()
    assert succeed("info", "en-de").out == succeed("info", installed).out


def test_a_name_is_a_start_and_has_a_tokenizer(world: World, installed: Path) -> None:
    succeed(*prepare_arguments(world.folder, Path("data"), "en-de"))
    settings = ("train.max_updates=1", "train.validate_bleu=false", "train.threads=1")
    recipe = ("focused-concatenation/s2to2", "--size", "tiny", "--init", "en-de")
    succeed("train", *recipe, *TINY[:5], *settings, "--data", "data", "--out", "mine")
    assert str(installed) in Path("mine/config.yaml").read_text()
    refused = cotext("train", "focused-concatenation/s2to2", "--init", "en-d", "--data", "data", "--out", "x")
    assert (refused.code, "the nearest known one is 'en-de'" in refused.err) == (2, True)


def test_a_server_calls_a_model_by_its_name(world: World, installed: Path) -> None:
    systems = open_systems(["en-de", world.run, "mine=en-de"], "cpu")
    assert [system.name for system in systems] == ["en-de", "run", "mine"]
    must_raise("two systems are called 'en-de'", open_systems, ["en-de", "en-de"], "cpu")


def test_the_folder_of_a_run_wins_over_an_installed_model(world: World, installed: Path) -> None:
    Path("en-de").mkdir()
    assert resolve_run("en-de") == installed  # a folder, and no run
    Path("en-de").rmdir()
    copytree(world.run, "en-de")
    assert resolve_run("en-de") == Path("en-de")


def test_unknown_names_get_the_nearest_one(world: World, installed: Path, hub: LocalHub) -> None:
    listed = "; `cotext models` lists the available models"
    for name, near in (("en-d", "; the nearest known one is 'en-de'"), ("zzz", listed)):
        unknown = f"{name}: no such run folder, and no installed model of this name{near}"
        assert must_raise("", resolve_run, name).endswith(unknown)
    copytree(world.run, "runs/mine")
    must_raise("the nearest known one is 'runs/mine'", resolve_run, "runs/mina")
    assert hub.asked == []  # `runs` is a folder here
    for path in ("runs/deep/er", "/owner/name2", "../x", "endpoint.yaml/../y"):
        assert resolve_run(path) == Path(path)


def test_listed_verified_and_removed(world: World, installed: Path, hub: LocalHub, cache: Path) -> None:
    hub.folders["owner/name"], hub.licences["owner/name"] = world.run, "apache-2.0"
    succeed("info", "owner/name")
    lines = succeed("models").out.splitlines()
    assert lines[0].split("\t")[:2] == ["en-de", "cc-by-4.0"]
    assert lines[0].split("\t")[3:] == ["cotext-model-en-de", str(installed)]
    assert lines[1].split("\t")[0::3] == ["owner/name", "cache"]
    assert succeed("models", "verify").out.count("checksums equal") == 2
    damaged = cache / "owner" / "name" / "config.yaml"
    damaged.write_text(damaged.read_text() + "\n")
    must_refuse(f"{damaged}: damaged", "models", "verify", "owner/name")
    assert succeed("models", "verify", "en-de").code == 0
    assert "pip uninstall cotext-model-en-de" in cotext("models", "remove", "en-de").err
    assert (installed / "model.safetensors").is_file()
    succeed("models", "remove", "owner/name")
    assert [*known_models()] == ["en-de"]
    assert "the nearest known one is 'en-de'" in cotext("models", "verify", "en-ed").err
    assert "remove NAME" in cotext("models", "remove").err


def test_without_models_the_list_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotext.interchange.model_names.known_models", dict)
    shown = succeed("models")
    assert (shown.out, "`cotext translate OWNER/NAME ...` downloads one" in shown.err) == ("", True)


@pytest.mark.parametrize("line", ["no checksum", f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/hosts", None])
def test_checksums_are_of_all_files_in_the_folder(installed: Path, line: str | None) -> None:
    (installed / "SHA256SUMS").write_text("" if line is None else f"{line}\n")
    wrong = "has no checksum of config" if line is None else "is not the checksum of a file in this folder"
    must_raise(wrong, known_models()["en-de"].verify)


def test_checksums_are_those_of_sha256sum(installed: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=installed, check=True)


def test_a_run_of_the_hub_is_fetched_once(world: World, hub: LocalHub, cache: Path) -> None:
    hub.folders["owner/name"] = world.run
    told = succeed("translate", "owner/name", world.folder / "test.en", "--out", "hub.de").err
    assert "licence: not recorded" in told
    assert Path("hub.de").read_text() == translated(world, world.run)
    assert {path.name for path in (cache / "owner").iterdir()} == {"name", ".download"}
    assert not [*(cache / "owner" / ".download").iterdir()]
    # What training needs, and translation does not, stays where it is.
    assert not (cache / "owner" / "name" / "checkpoints").exists()
    asked = len(hub.asked)
    assert face.load("owner/name", "cpu").translate(["the cat"])
    assert len(hub.asked) == asked


def test_another_model_is_imported_and_tested_by_the_way(hub: LocalHub, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    hub.folders["owner/opus-mt"] = marian_model(tmp_path / "there" / "opus-mt")
    (tmp_path / "there" / "opus-mt" / "rust_model.ot").write_bytes(b"of another program")
    hub.licences["owner/opus-mt"] = "cc-by-4.0"
    told = succeed("info", "owner/opus-mt").err
    assert "licence: cc-by-4.0" in told
    assert "self-test: against transformers" in told
    folder = resolve_run("owner/opus-mt")
    assert [noted_import(folder)[key] for key in ("folder", "licence")] == ["opus-mt", "cc-by-4.0"]
    assert not [path for path in hub.asked if "rust_model" in path]
    assert known_models()["owner/opus-mt"].licence == "cc-by-4.0"
    assert known_models()["owner/opus-mt"].verify() > 3


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml"])
def test_what_is_damaged_is_fetched_again(world: World, hub: LocalHub, name: str, tmp_path: Path) -> None:
    hub.folders["owner/name"], hub.damaged = world.run, {name}
    must_refuse(f"{name}: damaged during download", "info", "owner/name")
    assert not [name for name in known_models() if "/" in name]  # a package may be installed
    hub.folders["owner/name"], hub.damaged = copytree(world.run, tmp_path / "later"), set()
    (tmp_path / "later" / "data.json").unlink()  # as of a later revision
    succeed("info", "owner/name")
    assert not (resolve_run("owner/name") / "data.json").exists()


def test_what_the_hub_has_not(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    must_raise("owner/no: no such run folder, and not available from the hub: ", resolve_run, "owner/no")
    hub.folders["owner/no"] = tmp_path / "texts"
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("nothing")
    must_raise("contains neither a run of Cotext", resolve_run, "owner/no")
    (tmp_path / "texts" / "config.json").write_text('{"model_type": "bert"}')
    must_raise(r"owner/no: .*model_type = 'bert'", resolve_run, "owner/no")
    assert not [name for name in known_models() if "/" in name]  # a package may be installed
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    must_raise("not available from the hub", resolve_run, "owner/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    must_raise(r"from the hub: pip install '\.\[pretrained\]'", resolve_run, "owner/name")


def test_every_command_with_a_run_takes_names() -> None:
    """An option that is a run by its help is declared as one."""

    def kinds(kind: type[Request]) -> Iterator[type[Request]]:
        for each in kind.__subclasses__():
            yield each
            yield from kinds(each)

    assert app
    # Those of the package: tests define requests of their own.
    package = [kind for kind in kinds(Request) if kind.__module__.startswith("cotext.")]
    options = [(kind.__name__, *named) for kind in package for named in options_of(kind).items()]
    runs = [(kind, each) for kind, name, each in options if name in ("run", "runs", "teacher", "init")]
    assert len(runs) > 10
    # A server takes NAME=FOLDER, too, and looks names up itself.
    assert {kind for kind, each in runs if not each.is_run} == {"ServeRequest"}
