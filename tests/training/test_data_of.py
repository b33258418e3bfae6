"""A run knows the data that it was trained on."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import prepare_toy, run_config, train_here

from cotext.data.languages import Languages
from cotext.data.prepared import file_digests, read_report, write_report
from cotext.models.run_folder import noted_data
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.integrity import sealed, unsealed
from cotext.training.prepared_data import data_of, note_data, open_data


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
    train, dev = opened.train.totals, opened.dev.totals
    assert (train.documents, dev.documents) == (24, 4)
    digests = {name: checksum(data / name) for name in ("train.arrow", "dev.arrow", "dev.jsonl")}
    assert noted_data(run) == {
        "folder": str(data.resolve()),
        "train": {
            "documents": 24,
            "sentences": train.sentences,
            "source_tokens": train.source_tokens,
            "target_tokens": train.target_tokens,
        },
        "dev": {
            "documents": 4,
            "sentences": dev.sentences,
            "source_tokens": dev.source_tokens,
            "target_tokens": dev.target_tokens,
        },
        "checksums": {**digests, "tokenizer": opened.tokenizer.fingerprint},
        "usual_source_tokens": 0,  # data without a report
    }


@pytest.mark.parametrize(
    ("report", "noted"),
    [
        ({"command": {"controlled": 2}}, True),
        ({"command": {"distill": "runs/a"}, "prepared": {"command": {"controlled": 2}}}, True),
        ({"command": {"train_files": ["a.en"]}}, None),
    ],
)
def test_the_controlled_corpus_is_noted(
    data: Path, tmp_path: Path, report: dict[str, Any], noted: bool | None
) -> None:
    """Also where a corpus was distilled from it."""
    write_report(data, report)
    note_data(tmp_path, open_data(data), {})
    assert noted_data(tmp_path).get("controlled") == noted


def test_a_relative_folder_is_found_from_anywhere(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train_here(run_config(max_updates=1), Path("data"), Path("here"))
    monkeypatch.chdir(data)
    assert data_of(tmp_path / "here", None).folder == data.resolve()


def test_the_folder_given_comes_before_the_one_noted(data: Path, run: Path, tmp_path: Path) -> None:
    assert data_of(run, None).folder == data.resolve()
    moved = tmp_path / "moved"
    data.rename(moved)
    with pytest.raises(
        CotextError, match=r"data: the data that .*run was trained on is no longer there; give --data"
    ):
        data_of(run, None)
    found = data_of(run, moved)
    assert (found.folder, found.train.totals.documents) == (moved, 24)


@pytest.mark.parametrize("given", [False, True])
def test_data_of_another_tokenizer(data: Path, run: Path, tmp_path: Path, given: bool) -> None:
    other = prepare_toy(tmp_path / "other", seed=9)
    if not given:
        shutil.rmtree(data)
        other = other.rename(data)
    with pytest.raises(
        CotextError, match=r"prepared with another tokenizer than that of .*run; give --data FOLDER"
    ):
        data_of(run, other if given else None)


def test_no_data_in_the_folder_given(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CotextError, match="no prepared data there"):
        data_of(run, tmp_path)


DAMAGED = [None, b"", b"{", b"[1]", b'{"folder": 3}', b"{}", b"\xff", b'{"folder": "\\ud800"}', b"[" * 10**5]


@pytest.mark.parametrize("content", DAMAGED)
def test_nothing_noted_or_damaged(data: Path, run: Path, content: bytes | None) -> None:
    (run / "data.json").unlink()
    if content is not None:
        (run / "data.json").write_bytes(content)
    with pytest.raises(CotextError, match="give --data FOLDER"):
        data_of(run, None)
    # Going on with the run puts it right.
    assert train_here(run_config(max_updates=2), data, run).finished
    assert data_of(run, None).folder == data.resolve()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(CotextError, match="nowhere"):
        data_of(tmp_path / "nowhere", None)


def test_going_on_with_data_that_was_moved_notes_its_new_place(data: Path, run: Path, tmp_path: Path) -> None:
    data.rename(tmp_path / "moved")
    train_here(run_config(max_updates=2), tmp_path / "moved", run)
    assert noted(run) == str((tmp_path / "moved").resolve())


def test_data_that_is_refused_is_not_noted(data: Path, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    shutil.copy(other / "dev.arrow", other / "train.arrow")
    with pytest.raises(CotextError, match="trained on other data"):
        train_here(run_config(max_updates=2), other, run)
    assert noted(run) == str(data.resolve())


@pytest.mark.parametrize("change", [{"folder": 3}, {"folder": None}, {"checksums": []}])
def test_a_note_of_another_kind(run: Path, change: dict[str, object]) -> None:
    path = run / "data.json"
    path.write_text(sealed({**unsealed(path.read_text()), **change}))
    with pytest.raises(CotextError, match=r"data\.json is missing or damaged"):
        data_of(run, None)


def test_a_digit_that_has_changed(run: Path) -> None:
    """The folder may still be there; that it is the right one, nobody knows."""
    path = run / "data.json"
    path.write_text(path.read_text().replace('"documents": 24', '"documents": 25'))
    with pytest.raises(CotextError, match=r"data\.json is missing or damaged"):
        data_of(run, None)


@pytest.mark.parametrize("name", ["train.arrow", "dev.arrow", "dev.jsonl"])
def test_data_that_are_not_what_their_report_says(data: Path, tmp_path: Path, name: str) -> None:
    """Damaged between preparing and training: no run is begun."""
    write_report(data, {"files": file_digests(data)})
    train_here(run_config(max_updates=1), data, tmp_path / "one")
    content = bytearray((data / name).read_bytes())
    content[len(content) // 2] ^= 1
    (data / name).write_bytes(content)
    with pytest.raises(
        CotextError, match=f"{name}: damaged, or of another origin.*; prepare the corpus again"
    ):
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
    with pytest.raises(CotextError, match="no prepared data there"):
        open_data(data)
