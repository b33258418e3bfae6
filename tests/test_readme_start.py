"""The commands of the README's beginning, run as printed, with small stand-ins for downloads and time."""

import random
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cotext.cli.main import app
from tests.command_line import TINY, succeed
from tests.data.test_document_alignment import pairs_of
from tests.files import structures
from tests.interchange.local_hub import serving
from tests.pretrained_models import FOLDERS
from tests.tiny_runs import make_controlled_corpora_small

pytest.importorskip("huggingface_hub")
ROOT = Path(__file__).resolve().parents[1]
BEGINNING = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Prepare")[0]
NAME = "Helsinki-NLP/opus-mt-en-de"
# Replaced for time: the size of the corpus and of the model, and the length of training.
SHORTER = {
    "adapt": "--minutes 0.01 --dev-documents 1 --test-documents 2",
    "train": " ".join((*TINY, "train.max_updates=1", "train.max_tokens=3000", "decode.beam=1")),
}
# Neither runs here: these make an environment, and this one serves until it is stopped.
SETUP = ("make demo", "source .venv/bin/activate")


def commands() -> list[str]:
    lines = [line for block in BEGINNING.split("```")[1::2] for line in block.strip().splitlines()]
    return [" ".join(shlex.split(line, comments=True)) for line in lines]


def test_the_first_translation_stands_within_150_words() -> None:
    before, _, _ = BEGINNING.partition("cotext translate")
    assert len(before.split()) < 150


def test_a_path_has_six_commands_at_most() -> None:
    assert max(len(block.strip().splitlines()) for block in BEGINNING.split("```")[1::2]) <= 6


def test_the_commands_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = commands()
    assert [line for line in found if line in SETUP] == [*SETUP]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_controlled_corpora_small(monkeypatch)
    FOLDERS["swish"](tmp_path / "hub")
    for name in ("manual.docx", "letter.docx"):
        Path(name).write_bytes(structures.STRUCTURES["docx"](random.Random(1))[0])
    for side, folder in enumerate(("letters", "briefe")):
        Path(folder).mkdir()
        for n in range(10):
            texts = [f"{pair[side].capitalize()}." for pair in pairs_of(6, n)]
            Path(folder, f"letter{n}.html").write_text(f"<p>{' '.join(texts)}</p>")
    group: Any = get_command(app)
    with serving() as hub:
        hub.folders[NAME], hub.licences[NAME] = tmp_path / "hub", "apache-2.0"
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        for line in found:
            if line in SETUP:
                continue
            first, command, *words = line.split()
            assert first == "cotext"
            if command == "serve":
                runs = group.commands[command].make_context(command, words).params["runs"]
                assert all((Path(run) / "model.safetensors").is_file() for run in runs)
                continue
            fewer = ["100" if word == "small" else word for word in words]
            succeed(command, *fewer, *SHORTER.get(command, "").split())
    assert Path("handbuch.docx").read_bytes()[:2] == b"PK"
    assert Path("neu.docx").read_bytes()[:2] == b"PK"


def test_make_installs_packages_with_models(tmp_path: Path) -> None:
    """What `make` would run, without running it."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    def steps() -> str:
        make = ["make", "--no-print-directory", "--dry-run", "demo"]
        return subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "packages/" not in steps()
    (tmp_path / "packages" / "model").mkdir(parents=True)
    (tmp_path / "packages" / "model" / "pyproject.toml").touch()
    assert "pip install -q --no-deps --no-build-isolation packages/model/\n" in steps()
