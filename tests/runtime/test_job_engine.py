"""The engine of long jobs: journals, shards, joining, and what keeps other jobs out."""

import itertools
import json
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.runtime import CotextError
from cotext.runtime.files import replacing, sealed, unsealed
from cotext.runtime.jobs.engine import (
    Job,
    ShardReport,
    folder_of,
    forget,
    in_ranges,
    joining,
    journal_of,
    run,
    run_shard,
)
from cotext.runtime.jobs.journal import Journal, Results, Shard
from tests.killing import Moment, die_at
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny_runs import PROCESSES

SIZES = [5, 1, 1, 8, 2, 3]
OTHER = {"model": "b", "config": {"beam": 4}}


def test_a_journal_whose_lines_are_exchanged_while_it_is_read_is_refused(tmp_path: Path) -> None:
    job = Copy(tmp_path / "out")
    path = journal_of(job.out)
    with Journal(path, job.out, job.header) as journal:
        for unit in job.units:
            journal.add(unit, {"text": f"{unit}"})
        header, first, second, *rest = path.read_bytes().splitlines(keepends=True)
        assert len(first) == len(second)
        path.write_bytes(b"".join([header, second, first, *rest]))
        assert journal[2] == {"text": "2"}
        with pytest.raises(CotextError, match="changed"):
            journal[0]


@dataclass
class Copy(Job[int]):
    """A job that writes its units, one per line; returns how many were done before."""

    command, unit = "copy", "documents"

    out: Path
    shard: Shard | None = None
    sizes: Sequence[int] = tuple(SIZES)
    identity: Mapping[str, Any] = None  # type: ignore[assignment]
    stop: int = 99  # after so many units
    windows: int = 99  # after so many windows

    def __post_init__(self) -> None:
        self.identity = self.identity or {"model": "a", "config": {"beam": 4}}
        self.facts = {"signature": "s"}
        self.told: list[str] = []
        self.tell = self.told.append
        self.begun: dict[int, list[Mapping[str, Any]]] = {}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        self.begun = dict(journal.notes)
        for unit in todo:
            if not self.stop:
                raise KeyboardInterrupt
            self.stop -= 1
            for window in range(len(journal.notes.get(unit, ())), 2):
                if not self.windows:
                    raise KeyboardInterrupt
                self.windows -= 1
                journal.note(unit, {"window": window})
            yield unit, {"text": f"{unit}é"}
            on_size(self.sizes[unit])

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        if entry["text"] != f"{unit}é":
            raise ValueError(unit)

    def write(self, results: Results) -> int:
        write(self.out, results)
        return results.resumed


def write(out: Path, results: Results) -> None:
    with replacing(out) as temporary:
        temporary.write_text("".join(f"{entry['text']}\n" for entry in results.values()))


def join(out: Path) -> None:
    with joining(out) as parts:
        assert (parts.header.command, parts.header.facts) == ("copy", {"signature": "s"})
        write(out, parts)


WANTED = "".join(f"{unit}é\n" for unit in range(len(SIZES)))


def interrupted(job: Copy) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(job) if job.shard is None else run_shard(job)


def one_process(out: Path) -> None:
    run(Copy(out), overwrite=True)


def several_files(out: Path) -> None:
    others = [out.with_name("first"), out]
    for each in others:
        run(Copy(each), keep=True)
    for each in others:
        forget(each)


def two_shards(out: Path) -> None:
    for number in (2, 1) if not out.exists() else ():
        run_shard(Copy(out, Shard(number, 2)))
    if not out.exists():
        join(out)
    else:  # killed while the journals were deleted
        must_raise(f"{out}: exists.*delete {folder_of(out)};", join, out)
        shutil.rmtree(folder_of(out), ignore_errors=True)


def killed(work: Callable[[Path], None], number: int, out: Path) -> None:
    die_at(Moment(number))
    work(out)


@pytest.mark.parametrize(
    ("work", "names"),
    [(one_process, {"out"}), (several_files, {"first", "out"}), (two_shards, {"out"})],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_killed_at_every_file_operation_it_ends_the_same(
    tmp_path: Path, work: Callable[[Path], None], names: set[str]
) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = PROCESSES.Process(target=killed, args=(work, number, folder / "out"))
        process.start()
        process.join(timeout=60)
        assert process.exitcode in (0, -signal.SIGKILL)
        work(folder / "out")
        assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(names, WANTED)
        if process.exitcode == 0:
            break
    assert number > 5


def test_killed_after_every_unit_none_is_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for done in range(len(SIZES) - 1):
        interrupted(Copy(out, stop=1))
        assert journal_of(out).exists()
        assert not out.exists(), done
    assert run(Copy(out, stop=1)) == len(SIZES) - 1
    assert (out.read_text(), list(tmp_path.iterdir())) == (WANTED, [out])


@pytest.mark.parametrize("windows", [1, 3])
def test_what_is_noted_of_a_unit_is_there_again(tmp_path: Path, windows: int) -> None:
    interrupted(Copy(tmp_path / "out", windows=windows))
    job = Copy(tmp_path / "out")
    assert run(job) == windows // 2
    assert job.begun == {windows // 2: [{"window": 0}]}


@settings(max_examples=40)
@given(data=st.data())
def test_a_journal_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte a write ends at; the header appears whole."""
    out = tmp_path_factory.mktemp("cut") / "out"
    interrupted(Copy(out, stop=5))
    content = journal_of(out).read_bytes()
    heading = content.index(b"\n") + 1
    kept = content[: data.draw(st.integers(heading, len(content)))]
    garbage = data.draw(st.sampled_from([b"", b"\0\0", b"{}\n"]))
    journal_of(out).write_bytes(kept + garbage)
    job = Copy(out)
    assert run(job) == kept.count(b'"result"') - (kept[-1:] != b"\n" and b'"result"' in kept.splitlines()[-1])
    assert ("whose documents are processed again: 1" in "".join(job.told)) == (b"\n" in garbage)
    assert out.read_text() == WANTED


@settings(max_examples=40)
@given(data=st.data())
def test_any_byte_of_a_journal_changed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    out = tmp_path_factory.mktemp("byte") / "out"
    interrupted(Copy(out, stop=5))
    content = bytearray(journal_of(out).read_bytes())
    heading = content.index(b"\n") + 1
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    journal_of(out).write_bytes(content)
    if place < heading:
        must_raise("is in the way: not a journal", run, Copy(out))
        assert journal_of(out).read_bytes() == content
    else:
        run(Copy(out))
        assert out.read_text() == WANTED


@loop_over(
    "change",
    [
        lambda entry: entry["result"].update(text="another"),
        lambda entry: entry.update(result=[]),
        lambda entry: entry.update(unit=10**6),
        lambda entry: entry.update(unit="first"),
        lambda entry: entry.update(unit=math.inf),
        lambda entry: entry.pop("result"),
        lambda entry: entry.update(note=1),
    ],
)
def test_lines_that_no_job_writes_are_redone(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    out = tmp_path / "out"
    interrupted(Copy(out, stop=2))
    lines = journal_of(out).read_text().splitlines()
    entry = unsealed(lines[3])
    assert entry["result"] == {"text": "0é"}
    change(entry)
    lines[3] = sealed(entry)
    journal_of(out).write_text("".join(f"{line}\n" for line in lines))
    assert run(Copy(out)) == 1
    assert out.read_text() == WANTED


def test_a_file_of_somebody_else_in_the_way_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for content in (b"my notes\n", b'{"id": 1}\n', b"\xff\xfe\x00", b"[1, 2]\n", b'{"mine": 1}'):
        journal_of(out).write_bytes(content)
        must_raise(r"out\.partial: is in the way", run, Copy(out), overwrite=True)
        assert journal_of(out).read_bytes() == content
    journal_of(out).unlink()
    os.mkfifo(journal_of(out))
    must_raise(r"out\.partial: is in the way, and not a regular file", run, Copy(out), overwrite=True)
    folder_of(out).mkdir()
    os.mkfifo(folder_of(out) / "2-of-2.jsonl")
    for refuse in (join, lambda out: run_shard(Copy(out, Shard(1, 2)))):
        must_raise(r"2-of-2\.jsonl: is in the way, and not a regular file", refuse, out)


def test_results_of_another_job_are_neither_taken_over_nor_lost(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(Copy(out, stop=2))
    before = journal_of(out).read_bytes()
    for overwrite, way in ((False, "add --overwrite to discard it"), (None, "delete it")):
        with pytest.raises(CotextError, match=f"or {way}:\n  job.model: a before, b now$"):
            run(Copy(out, identity=OTHER), overwrite=overwrite)
        assert journal_of(out).read_bytes() == before
    job = Copy(out, identity=OTHER)
    assert run(job, overwrite=True) == 0
    assert "belonged to another job, and was discarded:\n  job.model: a before, b now" in job.told[0]


def test_what_a_job_was_refused_over_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for shard in (None, Shard(1, 2)):
        with pytest.raises(KeyboardInterrupt):
            run(Copy(out, stop=0)) if shard is None else run_shard(Copy(out, shard, stop=0))
        assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    must_raise("out: exists", run_shard, Copy(out, Shard(1, 2)))
    assert list(tmp_path.iterdir()) == [out]


def test_what_was_changed_since_it_was_written_is_not_lost(tmp_path: Path) -> None:
    """Where several files are written, and the journal of a finished one is kept."""
    out = tmp_path / "out"
    run(Copy(out), keep=True)
    assert run(Copy(out, stop=0), keep=True) == len(SIZES)
    out.write_text("mine")
    must_raise("out: has been changed since it was written", run, Copy(out), keep=True)
    assert out.read_text() == "mine"
    run(Copy(out), overwrite=True, keep=True)
    forget(out)
    assert (out.read_text(), list(tmp_path.iterdir())) == (WANTED, [out])


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, add = tmp_path / "out", Journal.add

    def full(journal: Journal, unit: int, result: Mapping[str, Any]) -> None:
        if unit == 3:
            journal._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb")
        add(journal, unit, result)

    monkeypatch.setattr(Journal, "add", full)
    must_raise(r"out\.partial: cannot be written: No space left.*command to resume", run, Copy(out))
    monkeypatch.undo()
    assert run(Copy(out)) == 3
    assert out.read_text() == WANTED


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 12))
def test_every_unit_is_in_one_shard_and_shards_are_even(sizes: list[int], of: int) -> None:
    shards = [Shard(number, of).units(sizes) for number in range(1, of + 1)]
    assert [unit for shard in shards for unit in shard] == list(range(len(sizes)))
    assert all(one.stop == other.start for one, other in pairwise(shards))
    even, largest = sum(sizes) / of, max(sizes, default=0)
    assert all(abs(sum(sizes[unit] for unit in shard) - even) <= largest for shard in shards)


def test_a_large_unit_leaves_other_shards_little() -> None:
    assert [list(Shard(n, 3).units([1, 1, 20, 1, 1])) for n in (1, 2, 3)] == [[0, 1], [2], [3, 4]]
    assert [len(Shard(n, 4).units([1])) for n in (1, 2, 3, 4)] == [0, 0, 1, 0]


@loop_over("text", ["0/3", "4/3", "3", "a/b", "1/", "-1/3", "1/2/3", ""])
def test_there_is_no_such_shard(text: str) -> None:
    must_raise("write i/n", Shard.parse, text)


@given(st.sets(st.integers(1, 30)))
def test_ranges_are_as_arrays_of_slurm_take_them(numbers: set[int]) -> None:
    written = in_ranges(sorted(numbers))
    found: list[int] = []
    for each in filter(None, written.split(",")):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(numbers)
    assert in_ranges([1, 2, 4]) == "1-2,4"


def shard(out: Path, number: int, of: int, **changed: Any) -> ShardReport:
    return run_shard(Copy(out, Shard(number, of), **changed))


def test_shards_are_joined_in_order_and_their_journals_deleted(tmp_path: Path) -> None:
    """More of them than units, some without any; the journal of one process beside them is another's."""
    out, of = tmp_path / "out", 9
    interrupted(Copy(out, stop=1))
    for number in (3, 1, *range(4, of + 1), 2):
        report = shard(out, number, of)
        assert (report.resumed, report.signature) == (0, "s")
        assert shard(out, number, of, stop=0).resumed == report.units
    join(out)
    assert out.read_text() == WANTED
    assert sorted(tmp_path.iterdir()) == [out, journal_of(out)]


def test_progress_is_that_of_the_shard(tmp_path: Path) -> None:
    seen: list[int] = []
    interrupted(Copy(tmp_path / "out", Shard(2, 2), stop=1))
    report = run_shard(Copy(tmp_path / "out", Shard(2, 2)), seen.append, seen.append)
    assert seen == [13, 8, 2, 3]  # of the shard, before, and of the two units that are left
    assert (report.units, report.sentences, report.resumed) == (3, 13, 1)


def test_journals_of_another_job_are_refused_before_any_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shard(out, 1, 2)
    for of, changed, line in (
        (2, {"identity": OTHER}, "job.model: a before, b now"),
        (2, {"identity": {"model": "a", "config": {"beam": 1}}}, "job.config.beam: 4 before, 1 now"),
        (3, {}, "shards: 2 before, 3 now"),
    ):
        must_raise(f"or delete {folder_of(out)}:\n  {line}", shard, out, 2, of, stop=0, **changed)
    assert [path.name for path in folder_of(out).iterdir()] == ["1-of-2.jsonl"]


def refused(out: Path) -> str:
    before = sorted(folder_of(out).glob("*"))
    message = must_raise("", join, out)
    assert sorted(folder_of(out).glob("*")) == before
    return message


def test_shards_that_are_not_all_there_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "out.shards: contains no results of shards" in refused(out)
    for number in (1, 5):
        shard(out, number, 6)
    assert "shards 2-4,6 of 6 are missing; run them (as a SLURM job array: --array=2-4,6)" in refused(out)
    for number in (2, 3, 6):
        shard(out, number, 6)
    shard(out, 4, 6)
    path = folder_of(out) / "4-of-6.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"text": "3', b'"text": "4'))
    said = refused(out)
    assert "shard 4 of 6 is not finished; run the same command again" in said
    assert said.endswith("shard 4/6 lacks 1 of 1 documents")


def test_a_journal_there_twice_or_of_another_job_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        shard(out, number, 2)
    one, two = (folder_of(out) / f"{number}-of-2.jsonl" for number in (1, 2))
    copy = one.with_name("1-of-2 copy.jsonl")
    copy.write_bytes(one.read_bytes())
    said = refused(out)
    assert said == f"{one} and {copy}: both belong to shard 1/2; move one of them away"
    copy.unlink()
    shard(tmp_path / "elsewhere", 2, 2, identity=OTHER)
    two.write_bytes((folder_of(tmp_path / "elsewhere") / two.name).read_bytes())
    assert (
        f"{two}: belongs to a different job from 1-of-2.jsonl; move it away:\n  job.model: a before, b"
        in refused(out)
    )
    two.write_text('{"mine": 1}\n')
    assert f"{two}: is in the way: not a journal of" in refused(out)


def test_shards_that_divide_otherwise_are_refused(tmp_path: Path) -> None:
    """As where sizes were counted otherwise, though all else is equal."""
    out = tmp_path / "out"
    shard(out, 1, 2)
    shard(out, 2, 2, sizes=[50, 1, 1, 1, 1, 1])
    assert "2-of-2.jsonl: its documents do not begin where the previous shard ends" in refused(out)


def test_the_last_shard_must_reach_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        shard(out, number, 2)
    for path in folder_of(out).glob("*.jsonl"):
        header, results = path.read_text().split("\n", 1)
        content = {key: value for key, value in unsealed(header).items() if key != "crc32"}
        content["units"] = len(SIZES) + 1
        path.write_text(f"{sealed(content)}\n{results}")
    assert "2-of-2.jsonl: its documents do not reach the end; run this shard again" in refused(out)


def test_an_output_that_exists_is_not_replaced_unasked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shard(out, 1, 1)
    out.write_text("mine")
    assert f"{out}: exists; if it is the joined output" in refused(out)
    with joining(out, overwrite=True) as parts:
        assert len(parts) == len(SIZES)


def test_nobody_joins_while_a_shard_is_at_work_nor_begins_while_somebody_joins(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shard(out, 1, 1)

    class Meanwhile(Copy):
        def work(self, *arguments: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
            must_raise("shard 1/1: another process is working on it", join, out)
            return super().work(*arguments)

    run_shard(Meanwhile(out, Shard(1, 1)))
    with joining(out), pytest.raises(CotextError, match="out: another process is working on it"):
        shard(out, 1, 1)


def test_headers_of_other_versions_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(Copy(out, stop=1))
    heading, rest = journal_of(out).read_text().split("\n", 1)
    for change in ({"version": 2}, {"format": "other"}, {"range": [3, 2]}, {"shard": 2}, {"job": 1}):
        changed = sealed({**unsealed(heading), **change})
        journal_of(out).write_text(f"{changed}\n{rest}")
        must_raise("not a journal of this version", run, Copy(out))
    assert json.loads(heading)["units"] == len(SIZES)
