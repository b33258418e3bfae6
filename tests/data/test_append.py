"""Prepared data to which documents are appended: as if all had been prepared at once."""

import json
from pathlib import Path

import pytest
from command_line import cotext, prepare_arguments, succeed, write_corpus
from killing import Moment, run_killed

from cotext.data.append import append
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.data.prepare import prepare
from cotext.data.requests import AppendRequest, PreparationRequest
from cotext.data.store import TokenStore
from cotext.runtime.errors import CotextError

NEW = [
    ParallelDocument("1", ("We saw a river.", "It was cold."), ("Wir sahen einen Fluss.", "Er war kalt.")),
    ParallelDocument("2", ("The house was near.",), ("Das Haus war nah.",)),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Prepared data in `data`, and more documents in new.en and new.de."""
    write_corpus(tmp_path)
    write_parallel(tmp_path / "dev.en", tmp_path / "dev.de", [*NEW[:1], *dev(tmp_path)], "text")
    succeed(*prepare_arguments(tmp_path, tmp_path / "data"))
    write_parallel(tmp_path / "new.en", tmp_path / "new.de", NEW, "text")
    return tmp_path


def dev(folder: Path) -> list[ParallelDocument]:
    return list(read_parallel(folder / "dev.en", folder / "dev.de"))


def documents(store: TokenStore) -> list[tuple[list[list[int]], list[list[int]]]]:
    return [([s.tolist() for s in d.source], [t.tolist() for t in d.target]) for d in store]


def command(folder: Path, name: str = "new") -> list[str | Path]:
    sides = ["--source", folder / f"{name}.en", "--target", folder / f"{name}.de"]
    return ["append", *sides, "--out", folder / "data"]


def test_as_if_prepared_at_once(folder: Path) -> None:
    data = folder / "data"
    first = (data / "train.arrow").read_bytes()
    kept = {path: path.read_bytes() for path in (*data.glob("tokenizer/*"), *data.glob("dev.*"))}
    report = append(AppendRequest(source=folder / "new.en", target=folder / "new.de", out=data))
    store = TokenStore(data / "train.arrow")
    assert len(store.shards) == 2
    assert next(store.shard_paths()).read_bytes() == first
    assert {path: path.read_bytes() for path in kept} == kept
    [appended] = json.loads((data / "report.json").read_text())["appended"]
    assert (appended["documents"], appended["sentences"]) == (2, 3)
    assert appended["overlap"]["dev"]["pairs"] == 2
    assert "of what was appended, dev: of " in report.render()
    whole = [*read_parallel(folder / "train.en", folder / "train.de"), *NEW]
    write_parallel(folder / "whole.en", folder / "whole.de", whole, "text")
    names = {"source": "whole.en", "target": "whole.de", "dev_source": "dev.en", "dev_target": "dev.de"}
    sides = {side: folder / name for side, name in names.items()}
    at_once = prepare(PreparationRequest(**sides, out=folder / "at-once", tokenizer=str(data)))
    assert at_once.splits["train"] == report.splits["train"]
    assert documents(TokenStore(folder / "at-once" / "train.arrow")) == documents(store)


def test_again_and_what_is_there_already(folder: Path) -> None:
    assert "2 documents, 3 sentence pairs, appended from" in succeed(*command(folder)).out
    before = {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")}
    succeed(*command(folder))  # has nothing to do
    assert {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")} == before
    write_parallel(folder / "third.en", folder / "third.de", NEW[1:], "text")
    succeed(*command(folder, "third"))
    for name in ("new", "train", "dev"):
        refused = cotext(*command(folder, name))
        assert (refused.code, f"{name}.en: is in" in refused.err) == (2, True)
    store = TokenStore(folder / "data" / "train.arrow")
    assert [shard.documents for shard in store.shards] == [24, 2, 1]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_the_same_name_with_other_content(folder: Path) -> None:
    """Every text that was appended stays known, though its name is that of another by now."""
    succeed(*command(folder))
    write_parallel(folder / "new.en", folder / "new.de", NEW[1:], "text")
    succeed(*command(folder))
    write_parallel(folder / "new.en", folder / "new.de", NEW, "text")
    refused = cotext(*command(folder))
    assert (refused.code, "new.en: is in" in refused.err) == (2, True), refused.err
    appended = json.loads((folder / "data" / "report.json").read_text())["appended"]
    assert len({each["inputs"][str(folder / "new.en")] for each in appended}) == 2


def test_files_of_others_stay(folder: Path) -> None:
    (folder / "data" / "notes").mkdir()
    (folder / "data" / "notes" / "mine.txt").write_text("whose it is")
    succeed(*command(folder))
    assert (folder / "data" / "notes" / "mine.txt").read_text() == "whose it is"


def test_refusals(folder: Path) -> None:
    with pytest.raises(CotextError, match="no prepared data there to append to"):
        append(AppendRequest(source=folder / "new.en", target=folder / "new.de", out=folder / "nowhere"))
    for other in (["--vocabulary", "9"], ["--seed", "1"], ["--language", "de"]):
        refused = cotext(*command(folder), *other)
        assert (refused.code, "No such option" in refused.err) == (2, True)
    path = folder / "data" / "train.arrow"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    with pytest.raises(CotextError, match=r"train\.arrow: damaged"):
        append(AppendRequest(source=folder / "new.en", target=folder / "new.de", out=folder / "data"))
    assert not (folder / ".data.preparing").exists()


@pytest.mark.parametrize(
    "moment",
    [
        Moment(path="train.arrow", operations=("replace",)),
        Moment(path="report.json", operations=("replace",)),
        Moment(number=2, path="/data", operations=("replace",)),
    ],
    ids=lambda moment: f"{moment.number}-{moment.path[-6:]}",
)
def test_killed_and_done_again(folder: Path, moment: Moment) -> None:
    assert run_killed(command(folder), moment)
    succeed(*command(folder))
    assert [s.documents for s in TokenStore(folder / "data" / "train.arrow").shards] == [24, 2]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
