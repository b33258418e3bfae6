"""How the units of a job are divided, and what keeps parts of other jobs out."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.runtime.errors import CotextError
from cotext.runtime.joining import in_ranges, joining
from cotext.runtime.shards import Part, Shard, ShardedJob, folder_of

JOB = ShardedJob("score", "documents", {"model": "a", "config": {"beam": 4}}, {"signature": "s"})
SIZES = [5, 1, 1, 8, 2, 3]


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


@given(st.sets(st.integers(1, 30)))
def test_ranges_are_as_arrays_of_slurm_take_them(numbers: set[int]) -> None:
    written = in_ranges(sorted(numbers))
    found: list[int] = []
    for each in filter(None, written.split(",")):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(numbers)
    assert in_ranges([1, 2, 4]) == "1-2,4"


def do(out: Path, shard: Shard, job: ShardedJob = JOB, units: int = 99, sizes: list[int] = SIZES) -> Part:
    """Do so many units of a shard."""
    with Part(out, shard, sizes, job) as part:
        for unit in [unit for unit in part.units if unit not in part][:units]:
            part.add(unit, {"found": f"{unit}é"})
    return part


def joined(out: Path) -> list[str]:
    with joining(out) as parts:
        assert (parts.command, parts.total, parts.joining) == ("score", len(SIZES), {"signature": "s"})
        return [parts.read(unit)["found"] for unit in range(parts.total)]


def test_parts_come_back_in_order_and_are_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (3, 1, 2):
        do(out, Shard(number, 3))
    assert joined(out) == [f"{unit}é" for unit in range(len(SIZES))]
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_part_cut_anywhere_is_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    out = tmp_path_factory.mktemp("cut") / "out"
    part = do(out, Shard(1, 1))
    content = part.path.read_bytes()
    kept = content[: data.draw(st.integers(0, len(content)))]
    lines = kept.count(b"\n")
    garbage = data.draw(st.sampled_from([b"", b"\0\0", b"{}\n"])) if lines else b""
    part.path.write_bytes(kept + garbage)
    with Part(out, Shard(1, 1), SIZES, JOB) as again:
        assert again.done() == list(range(max(0, lines - 1)))
        assert again.damaged == (garbage == b"{}\n")
    do(out, Shard(1, 1))
    assert joined(out) == [f"{unit}é" for unit in range(len(SIZES))]


def test_what_a_job_was_refused_over_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(CotextError, match="no use"), Part(out, Shard(1, 2), SIZES, JOB):
        raise CotextError("no use")
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    with pytest.raises(CotextError, match="out: exists"):
        do(out, Shard(1, 2))
    assert list(tmp_path.iterdir()) == [out]


def test_parts_of_another_job_are_refused_before_any_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    do(out, Shard(1, 2))
    for other, of, line in (
        (
            ShardedJob("score", "documents", {"model": "b", "config": {"beam": 4}}, {}),
            2,
            "job.model: a there, b",
        ),
        (
            ShardedJob("score", "documents", {"model": "a", "config": {"beam": 1}}, {}),
            2,
            "beam: 4 there, 1 now",
        ),
        (ShardedJob("cxmi", "documents", JOB.identity, {}), 2, "command: score there, cxmi now"),
        (JOB, 3, "shards: 2 there, 3 now"),
    ):
        with pytest.raises(CotextError, match=line):
            do(out, Shard(2, of), other)
    assert [path.name for path in folder_of(out).iterdir()] == ["1-of-2.jsonl"]


def refused(out: Path) -> str:
    before = sorted(folder_of(out).glob("*"))
    with pytest.raises(CotextError) as error, joining(out):
        raise AssertionError("joined")
    assert sorted(folder_of(out).glob("*")) == before
    return str(error.value)


def test_shards_that_are_not_all_there_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "out.shards: no parts of shards are there" in refused(out)
    for number in (1, 5):
        do(out, Shard(number, 6))
    assert "shards 2-4,6 of 6 are missing; run them (as an array of SLURM: --array=2-4,6)" in refused(out)
    for number in (2, 3, 6):
        do(out, Shard(number, 6))
    do(out, Shard(4, 6), units=0)
    said = refused(out)
    assert "shard 4 of 6 is not finished; run the same command once more" in said
    assert said.endswith("shard 4/6 lacks 1 of 1 documents")


def test_a_part_there_twice_or_of_another_job_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one, two = (do(out, Shard(number, 2)).path for number in (1, 2))
    copy = one.with_name("1-of-2 copy.jsonl")
    copy.write_bytes(one.read_bytes())
    said = refused(out)
    assert said == f"{one} and {copy}: both are of shard 1/2; move one of them away"
    copy.unlink()
    elsewhere = tmp_path / "elsewhere"
    do(elsewhere, Shard(2, 2), ShardedJob("score", "documents", {**JOB.identity, "model": "b"}, {}))
    two.write_bytes((folder_of(elsewhere) / two.name).read_bytes())
    assert (
        f"{two}: is of another job than 1-of-2.jsonl; move it away:\n  job.model: a there, b now"
        in refused(out)
    )
    two.write_text('{"mine": 1}\n')
    assert f"{two}: its first line is damaged, or it is no part" in refused(out)


def test_shards_that_divide_otherwise_are_refused(tmp_path: Path) -> None:
    """As where sizes were counted otherwise, though all else is equal."""
    out = tmp_path / "out"
    do(out, Shard(1, 2))
    do(out, Shard(2, 2), sizes=[50, 1, 1, 1, 1, 1])
    assert "2-of-2.jsonl: its documents do not follow those of the shard before" in refused(out)


def test_an_output_that_exists_is_not_replaced_unasked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    do(out, Shard(1, 1))
    out.write_text("mine")
    assert f"{out}: exists; move it away, or add --overwrite" in refused(out)
    with joining(out, overwrite=True) as parts:
        assert parts.total == len(SIZES)


def test_nobody_joins_while_a_shard_is_at_work_nor_begins_while_somebody_joins(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Part(out, Shard(1, 1), SIZES, JOB) as part:
        for unit in part.units:
            part.add(unit, {})
        with pytest.raises(CotextError, match="shard 1/1: another process is at work on it"), joining(out):
            raise AssertionError("joined")
    with joining(out), pytest.raises(CotextError, match="out: another process is at work on it"):
        do(out, Shard(1, 1))
