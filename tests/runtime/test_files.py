"""Files and folders appear whole or not at all."""

from pathlib import Path

import pytest

from cotext.runtime import CotextError
from cotext.runtime.files import Process, leftovers, replacing
from tests.loops import loop_over
from tests.refusals import must_raise


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new", encoding="utf-8")
        assert (path.read_text(), temporary.parent) == ("old", tmp_path)
    assert path.read_text() == "new"
    with replacing(path) as temporary:
        temporary.write_bytes(b"\xff\x00")
    assert path.read_bytes() == b"\xff\x00"
    assert names(tmp_path) == ["x.json"]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "run") as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner" / "file").write_text("content")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run" / "inner" / "file").read_text() == "content"
    assert names(tmp_path) == ["run"]


@loop_over("failure", [CotextError("refused"), KeyboardInterrupt(), ValueError("wrong")])
@loop_over("folder", [False, True])
def test_a_failure_leaves_the_old_alone(tmp_path: Path, failure: BaseException, folder: bool) -> None:
    def half(path: Path) -> None:
        with replacing(path) as temporary:
            if folder:
                temporary.mkdir()
            (temporary / "part" if folder else temporary).write_text("half")
            raise failure

    (tmp_path / "x").write_text("old")
    with pytest.raises(type(failure)) as caught:
        half(tmp_path / "x")
    assert caught.value is failure
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")


def test_storage_that_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "absent" / "x", "No such file"),
        (tmp_path / "file" / "x", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(CotextError) as caught, replacing(path) as temporary:
            temporary.write_text("x")
        assert str(caught.value).startswith(f"{path}: cannot be written: {reason}")
    assert names(tmp_path) == ["file"]


def test_a_refusal_of_a_library_s_own_kind(tmp_path: Path) -> None:
    class RefusalError(Exception):
        pass

    def refused(path: Path) -> None:
        with replacing(path, RefusalError) as temporary:
            temporary.write_text("half")
            raise RefusalError("disk full")

    must_raise(r"x: cannot be written: disk full$", refused, tmp_path / "x")
    assert names(tmp_path) == []


def test_what_a_killed_process_has_left_of_a_file_goes_when_it_is_written_again(tmp_path: Path) -> None:
    own = Process.current()
    dead = f"{own.machine}-{own.pid}-{own.start + 1}-0f0f.partial"
    (tmp_path / f".a.json.{dead}").touch()
    (tmp_path / f".b.json.{dead}").mkdir()
    (tmp_path / f".b.json.{dead}" / "file").touch()
    kept = {".a.json", ".a.json.4711", ".a.json.partial", ".hidden", f".c.{dead}", f".a.json.x.{dead}"}
    for name in kept:
        (tmp_path / name).touch()
    assert leftovers(tmp_path / "a.json") == [tmp_path / f".a.json.{dead}"]
    with replacing(tmp_path / "a.json") as temporary:
        temporary.touch()
        assert leftovers(tmp_path / "a.json") == []  # a living process's
    with replacing(tmp_path / "b.json") as temporary:
        temporary.touch()
    assert set(names(tmp_path)) == kept | {"a.json", "b.json"}
