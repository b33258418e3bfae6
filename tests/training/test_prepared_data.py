"""A run knows the data that it was trained on."""

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cotext.data.documents import Languages
from cotext.data.prepared import file_digests, read_report, write_report
from cotext.models.run_folder import noted_data
from cotext.runtime import CotextError
from cotext.runtime.files import checksum
from cotext.training.inputs import note_data, open_data
from tests.refusals import must_raise
from tests.tiny_runs import prepare_toy, run_config, train_here


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return prepare_toy(tmp_path / "data")


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Path:
    train_here(run_config(max_updates=1), data, tmp_path / "run")
    return tmp_path / "run"


def noted(run: Path) -> str:
    folder = noted_data(run)["folder"]
    assert isinstance(folder, str)
    return folder


def test_what_is_noted(data: Path, run: Path) -> None:
    opened = open_data(data)
    assert (opened.train.totals.documents, opened.dev.totals.documents) == (24, 4)
    digests = {name: checksum(data / name) for name in ("train.arrow", "dev.arrow", "dev.jsonl")}
    assert noted_data(run) == {
        "folder": str(data.resolve()),
        "train": asdict(opened.train.totals),
        "dev": asdict(opened.dev.totals),
        "checksums": {**digests, "tokenizer": opened.tokenizer.fingerprint},
    }


@pytest.mark.parametrize(
    ("report", "noted"),
    [
        ({"command": {"controlled": 2}}, True),
        ({"command": {"distill": "runs/a"}, "prepared": {"command": {"controlled": 2}}}, True),
        ({"command": {"train_files": ["a.en"]}}, None),
    ],
)
def test_the_corpus_is_noted(data: Path, tmp_path: Path, report: dict[str, Any], noted: bool | None) -> None:
    """Also where a corpus was distilled from it."""
    write_report(data, report)
    note_data(tmp_path, open_data(data), {})
    assert noted_data(tmp_path).get("controlled") == noted


DAMAGED = [None, b"", b"{", b"[1]", b'{"folder": 3}', b"{}", b"\xff", b'{"folder": "\\ud800"}', b"[" * 10**5]


@pytest.mark.parametrize("content", DAMAGED)
def test_nothing_noted_or_damaged(data: Path, run: Path, content: bytes | None) -> None:
    (run / "data.json").unlink()
    if content is not None:
        (run / "data.json").write_bytes(content)
    # Going on with the run puts it right.
    assert train_here(run_config(max_updates=2), data, run).finished
    assert noted(run) == str(data.resolve())


def test_going_on_with_data_that_was_moved_notes_its_new_place(data: Path, run: Path, tmp_path: Path) -> None:
    data.rename(tmp_path / "moved")
    train_here(run_config(max_updates=2), tmp_path / "moved", run)
    assert noted(run) == str((tmp_path / "moved").resolve())


@pytest.mark.parametrize("name", ["train.arrow", "dev.arrow", "dev.jsonl"])
def test_data_that_are_not_what_their_report_says(data: Path, tmp_path: Path, name: str) -> None:
    """Damaged between preparing and training: no run is begun."""
    write_report(data, {"files": file_digests(data)})
    train_here(run_config(max_updates=1), data, tmp_path / "one")
    content = bytearray((data / name).read_bytes())
    content[len(content) // 2] ^= 1
    (data / name).write_bytes(content)
    with pytest.raises(CotextError, match=f"{name}: damaged, or does not belong.*; prepare the corpus again"):
        train_here(run_config(max_updates=1), data, tmp_path / "two")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"files": [1]}', b"\xff", b"[" * 10**5])
def test_a_damaged_report(data: Path, tmp_path: Path, content: bytes) -> None:
    (data / "report.json").write_bytes(content)
    with pytest.raises(
        CotextError, match=r"report\.json: (damaged|not valid JSON|cannot be read: not a text)"
    ):
        train_here(run_config(max_updates=1), data, tmp_path / "run")


def test_a_report_of_which_one_character_is_another(data: Path) -> None:
    """Wherever it stands: what the report says of languages and lengths is used, too."""
    write_report(data, {"languages": {"source": "en", "target": "de"}, "files": {}})
    path = data / "report.json"
    whole = path.read_text()
    assert open_data(data).languages == Languages("en", "de")
    for at in range(len(whole)):
        if whole[at].isspace():
            continue
        path.write_text(f"{whole[:at]}{chr(ord(whole[at]) ^ 1)}{whole[at + 1 :]}")
        with contextlib.suppress(CotextError):
            assert read_report(data)["languages"] == {"source": "en", "target": "de"}, at


def test_data_without_a_report_are_not_whole(data: Path) -> None:
    (data / "report.json").unlink()
    must_raise("no prepared data there", open_data, data)
