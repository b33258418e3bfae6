"""What earlier versions have written is read: see `stored_formats.py` and docs/stability.md."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cotext.data.formats import read_documents
from tests.command_line import TINY, succeed
from tests.stored_formats import SCORE, json_outputs, missing, names

STORED = sorted(Path(__file__).parent.glob("formats-*"))


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of a version, as the working directory."""
    folder = tmp_path / "stored"
    shutil.copytree(request.param, folder)
    monkeypatch.chdir(folder)
    return folder


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def rows(scores: str) -> list[list[str]]:
    return [line.split("\t") for line in scores.splitlines()]


def test_a_run_translates_and_scores_as_before(stored: Path) -> None:
    succeed("info", "run")
    succeed("translate", "run", "test.en", "--out", "out.de")
    source = list(read_documents(stored / "test.en"))
    assert [len(each) for each in read_documents(stored / "out.de")] == [len(each) for each in source]
    (header, *kept), found = rows((stored / "scores.tsv").read_text()), rows(succeed(*SCORE).out)
    assert found.pop(0) == header
    assert [(row[0], row[1], row[3]) for row in found] == [(row[0], row[1], row[3]) for row in kept]
    # Processors round differently.
    assert [float(row[2]) for row in found] == pytest.approx([float(row[2]) for row in kept], rel=1e-3)


def test_an_engine_translates(stored: Path) -> None:
    pytest.importorskip("ctranslate2")
    succeed("translate", "engine", "test.en", "--out", "out.de")
    assert len(list(read_documents(stored / "out.de"))) == len(list(read_documents(stored / "test.en")))


def test_prepared_data_trains(stored: Path) -> None:
    recipe = ("focused-concatenation/s2to2", *TINY)
    shown = succeed("train", *recipe, "--data", "data", "--out", "new", "--dry-run").out
    assert "nothing was written" in shown


def test_suites_and_nbest_lists_are_read(stored: Path) -> None:
    succeed("contrastive", "run", "suite.json")
    succeed("mbr", "n.en.nbest.jsonl", "--out", "mbr.de")


def test_json_outputs_keep_their_keys(stored: Path) -> None:
    found = json_outputs(stored)
    for name, kept in content(stored / "json.json").items():
        assert missing(kept, found[name]) == [], name
        assert kept.get("version") == found[name].get("version"), name


def test_names_stay(stored: Path) -> None:
    found = names()
    for what, kept in content(stored / "names.json").items():
        assert not set(kept) - set(found[what]), what
