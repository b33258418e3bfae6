"""Shards of a long job: consecutive units of it, each shard done by a process of its own, and joined at last.

    OUT.shards/2-of-4.jsonl   the part of shard 2 of 4: a header, then what was found for each of its units
    OUT.shards/2-of-4.lock    held by the process that is at work on it

A unit is what is never divided: a document, or documents or examples that share batches. Every unit that is
done is appended at once, with a checksum at the end of its line; a shard that was interrupted goes on after
the last of them. Findings stay on disk: memory holds where each of them lies, 8 bytes a unit.
"""

import json
import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import require_new
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.locks import beside, holding, require_free, writing

FORMAT: Final = "cotext-shard"
VERSION: Final = 1
PARTS: Final = "*.jsonl"
LOCKS: Final = "*.lock"
NOT_DONE: Final = -1  # in place of an offset


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Shard `number`, from 1, of `of` shards."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `i/n`.

        Raises:
            CotextError: no such shard.
        """
        found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if found and 1 <= int(found[1]) <= int(found[2]):
            return cls(int(found[1]), int(found[2]))
        raise CotextError(f"--shard {shown(text)}: write i/n, as in 1/4 to 4/4 for four shards")

    def units(self, sizes: Sequence[int]) -> range:
        """The units of this shard, given the sentences of all: consecutive ones, every unit in one shard.

        A unit belongs where its middle lies when all sentences are divided evenly. A shard differs from its
        even share by the largest unit at most; there may be nothing in it.
        """
        total = sum(sizes)
        ends = accumulate(sizes)
        # Middles ascend, so that the units of lower shards come first.
        shards = [
            min((2 * end - size) * self.of // (2 * total) if total else 0, self.of - 1)
            for end, size in zip(ends, sizes, strict=True)
        ]
        return range(bisect_right(shards, self.number - 2), bisect_right(shards, self.number - 1))

    def __str__(self) -> str:
        """As it is given on the command line."""
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, slots=True)
class ShardedJob:
    """A job that is divided: `identity` is all that decides its result, and must be equal in all shards.

    `command` and `unit`, a noun in the plural, name it; `joining` is what joining needs to know besides.
    """

    command: str
    unit: str
    identity: Mapping[str, Any]
    joining: Mapping[str, Any]

    def header(self, shard: Shard, units: range, total: int) -> dict[str, Any]:
        """The first line of a part."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "command": self.command,
            "shard": [shard.number, shard.of],
            "unit": self.unit,
            "units": [units.start, units.stop, total],
            "job": dict(self.identity),
            "joining": dict(self.joining),
        }


def folder_of(out: Path) -> Path:
    """Where the parts of an output stand."""
    return out.with_name(f"{out.name}.shards")


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a shard has done: `units` of it hold `sentences`, and `resumed` of them were done before."""

    shard: Shard
    unit: str
    units: int
    sentences: int
    resumed: int
    signature: str
    damaged: Path | None = None  # the part, where a line of it was damaged


class Part:
    """The part of one shard, which this process writes and holds; units have their numbers in the whole job.

    `damaged`: a line of it was, and what follows that line is done again.

    Raises, when it is entered, CotextError: another process is at work on the shard or joins, the part is of
    another job, the output exists, or storage refuses.
    """

    def __init__(self, out: Path, shard: Shard, sizes: Sequence[int], job: ShardedJob) -> None:
        self.out, self.shard = out, shard
        self.path = folder_of(out) / f"{shard.number}-of-{shard.of}.jsonl"
        self.units, self.unit = shard.units(sizes), job.unit
        self.damaged = False
        self._header = job.header(shard, self.units, len(sizes))
        self._offsets = array("q", [NOT_DONE]) * len(self.units)
        self._end = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Take over what is there, up to a line that is damaged or cut off."""
        with ExitStack() as stack, storage(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_suffix(".lock")
            stack.enter_context(holding(lock, f"{self.out}: shard {self.shard}"))
            # First what is held, then a look at what others hold: of two processes, at least one sees the
            # other.
            require_free(beside(self.out), str(self.out))
            require_new(self.out)
            if os.path.lexists(self.path) and not self.path.is_file():
                raise CotextError(f"{self.path}: is in the way, and no regular file; move it away")
            self._file = stack.enter_context(self.path.open("a+b"))
            self._take_over()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What a full disk has refused once is refused again here, and has been reported.
        with suppress(OSError):
            self._stack.close()

    def __contains__(self, unit: int) -> bool:
        """Whether a unit is done."""
        return self._offsets[unit - self.units.start] != NOT_DONE

    def done(self) -> list[int]:
        """The units that are done."""
        return [unit for unit in self.units if unit in self]

    def add(self, unit: int, found: Mapping[str, Any]) -> None:
        """Append what was found for a unit, and push it to the disk.

        Raises:
            CotextError: storage refuses.
        """
        self._offsets[unit - self.units.start] = self._append({"index": unit, **found})

    def read(self, unit: int) -> dict[str, Any]:
        """What was found for a unit that is done.

        Raises:
            CotextError: somebody has changed the part since.
        """
        return _read_at(self._file, self._offsets[unit - self.units.start], unit, self.path)

    def report(self, sentences: int, resumed: int, signature: str) -> ShardReport:
        """What the shard has done, of which `resumed` units before; `signature` says how."""
        damaged = self.path if self.damaged else None
        return ShardReport(self.shard, self.unit, len(self.units), sentences, resumed, signature, damaged)

    def _take_over(self) -> None:
        self._file.seek(0)
        line = self._file.readline()
        if not line.endswith(b"\n"):  # new, or cut off before anything was found
            self._file.truncate(0)
            self._append(self._header)
            return
        there = _header(line, self.path)
        if changed := differences(_compared(there), _compared(self._header)):
            raise CotextError(
                f"{self.path}: is of another job; give the same again to go on with it, choose another "
                f"--out, or delete it:\n{changed}"
            )
        self._end = len(line)
        for unit, offset, end in _entries(self._file, len(line)):
            if unit is None or unit not in self.units:
                self.damaged = True
                break
            self._offsets[unit - self.units.start] = offset
            self._end = end
        self._file.truncate(self._end)

    def _append(self, content: Mapping[str, Any]) -> int:
        """Write a line; returns where it begins."""
        line, begins = f"{sealed(content)}\n".encode(), self._end
        with storage(self.path):
            self._file.write(line)
            self._file.flush()
        self._end += len(line)
        return begins


class JoinedParts:
    """The parts of all shards of a job, every unit of which is done; units are read in their order.

    `job`, `joining` and `command` are as in `ShardedJob`; `total` counts the units.
    """

    def __init__(self, paths: Sequence[Path], headers: Sequence[Mapping[str, Any]]) -> None:
        first = headers[0]
        self.command = str(first["command"])
        self.job: dict[str, Any] = first["job"]
        self.joining: dict[str, Any] = first["joining"]
        self.total = int(first["units"][2])
        self._paths = paths
        self._firsts = [header["units"][0] for header in headers]
        self._offsets = array("q", [NOT_DONE]) * self.total
        self._open: tuple[int, BinaryIO] | None = None

    def missing(self, number: int, units: range) -> int:
        """Note where the units of a part lie; the number of those that are not there."""
        with self._paths[number].open("rb") as file:
            for unit, offset, _ in _entries(file, len(file.readline())):
                if unit is None or unit not in units:
                    break
                self._offsets[unit] = offset
        return self._offsets[units.start : units.stop].count(NOT_DONE)

    def read(self, unit: int) -> dict[str, Any]:
        """What was found for a unit.

        Raises:
            CotextError: somebody has changed the part since.
        """
        number = bisect_right(self._firsts, unit) - 1
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, self._paths[number].open("rb")
        return _read_at(self._open[1], self._offsets[unit], unit, self._paths[number])

    def close(self) -> None:
        """Close the part that was read last."""
        if self._open is not None:
            self._open[1].close()


@contextmanager
def joining(out: Path, overwrite: bool = False) -> Iterator[JoinedParts]:
    """Hold an output and the parts of its shards, all of which are done; the parts are deleted at the end.

    `overwrite`: the output may exist.

    Raises:
        CotextError: there are none; one is missing, there twice, not finished or of another job; a process is
            at work on one, or on the output; the output exists; storage refuses.
    """
    folder = folder_of(out)
    with storage(folder), writing(out):
        for lock in sorted(folder.glob(LOCKS)):
            require_free(lock, f"{out}: shard {lock.stem.replace('-of-', '/')}")
        if out.exists() and not overwrite:
            raise CotextError(f"{out}: exists; move it away, or add --overwrite to replace it")
        parts = _parts(out, sorted(folder.glob(PARTS)))
        try:
            yield parts
        finally:
            parts.close()
        for path in folder.glob(PARTS):
            path.unlink()
        with suppress(OSError):  # somebody else's files are in it
            folder.rmdir()


def _parts(out: Path, paths: Sequence[Path]) -> JoinedParts:
    """The parts of a job, checked."""
    if not paths:
        raise CotextError(
            f"{folder_of(out)}: no parts of shards are there, so that nothing can be joined; give the --out "
            "that the shards were given"
        )
    found: dict[Shard, tuple[Path, dict[str, Any]]] = {}
    of_first: dict[str, Any] = {}
    for path in paths:
        with path.open("rb") as file:
            header = _header(file.readline(), path)
        shard, whose = Shard(*header["shard"]), _of_job(header)
        if changed := differences(of_first or whose, whose):
            raise CotextError(f"{path}: is of another job than {paths[0].name}; move it away:\n{changed}")
        of_first = whose
        if shard in found:
            raise CotextError(
                f"{path} and {found[shard][0]}: both are of shard {shard}; move one of them away"
            )
        found[shard] = path, header
    of, unit = of_first["shards"], of_first["unit"]
    if absent := [number for number in range(1, of + 1) if Shard(number, of) not in found]:
        raise CotextError(
            f"{folder_of(out)}: {_named(absent, of)} missing; run {'it' if len(absent) == 1 else 'them'} (as "
            f"an array of SLURM: --array={in_ranges(absent)}), then join again"
        )
    ordered = [found[shard] for shard in sorted(found)]
    joined = JoinedParts([path for path, _ in ordered], [header for _, header in ordered])
    _require_consecutive(ordered, unit)
    lacking = {}
    for number, (_, header) in enumerate(ordered):
        if missing := joined.missing(number, range(*header["units"][:2])):
            lacking[number + 1] = f"{missing:,} of {header['units'][1] - header['units'][0]:,} {unit}"
    if lacking:
        each = "; ".join(f"shard {number}/{of} lacks {what}" for number, what in [*lacking.items()][:10])
        raise CotextError(
            f"{folder_of(out)}: {_named([*lacking], of)} not finished; run the same command once more (as an "
            f"array of SLURM: --array={in_ranges([*lacking])}), then join again: {each}"
        )
    return joined


def _require_consecutive(parts: Sequence[tuple[Path, Mapping[str, Any]]], unit: str) -> None:
    """Refuse parts that leave units out, or share some."""
    due = 0
    for path, header in parts:
        first, stop, total = header["units"]
        if first != due or (path == parts[-1][0] and stop != total):
            raise CotextError(f"{path}: its {unit} do not follow those of the shard before; run it again")
        due = stop


def _named(numbers: Sequence[int], of: int) -> str:
    """As in "shards 3, 5-7 of 8 are"."""
    several = len(numbers) > 1
    return f"shard{'s' if several else ''} {in_ranges(numbers)} of {of} {'are' if several else 'is'}"


def in_ranges(numbers: Iterable[int]) -> str:
    """Ascending whole numbers as in `3,5-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _header(line: bytes, path: Path) -> dict[str, Any]:
    """Read the first line of a part.

    Raises:
        CotextError: it is damaged, of another version, or of no part.
    """
    try:
        header = unsealed(line.decode())
        whole = {**header, "job": dict(header["job"]), "joining": dict(header["joining"])}
        number, of = map(int, header["shard"])
        first, stop, total = map(int, header["units"])
        of_this_version = header["format"] == FORMAT and header["version"] == VERSION
        if of_this_version and 1 <= number <= of and 0 <= first <= stop <= total:
            return whole
    except (ValueError, KeyError, TypeError):
        pass
    raise CotextError(
        f"{path}: its first line is damaged, or it is no part of a shard of this version of Cotext; delete "
        "it, and run that shard again"
    )


def _compared(header: Mapping[str, Any]) -> dict[str, Any]:
    """What a part must share with the process that goes on with it."""
    return {key: value for key, value in header.items() if key != "joining"}


def _of_job(header: Mapping[str, Any]) -> dict[str, Any]:
    """What all parts of a job share."""
    same = {key: header[key] for key in ("command", "unit", "job")}
    return {**same, "shards": header["shard"][1], "units": header["units"][2]}


def _entries(file: BinaryIO, first: int) -> Iterator[tuple[int | None, int, int]]:
    """The unit of every line, None where it is damaged, and where the line begins and ends.

    A line that was cut off is left out.
    """
    file.seek(first)
    begins = first
    for line in file:
        if not line.endswith(b"\n"):
            return
        ends = begins + len(line)
        yield _unit(line), begins, ends
        begins = ends


def _unit(line: bytes) -> int | None:
    try:
        return int(unsealed(line.decode())["index"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _read_at(file: BinaryIO, offset: int, unit: int, path: Path) -> dict[str, Any]:
    file.seek(offset)
    with suppress(ValueError):
        found = unsealed(file.readline().decode())
        if found.get("index") == unit:
            return found
    raise CotextError(f"{path}: has changed meanwhile; run the command again")


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Say what storage refuses in the block.

    Raises:
        CotextError: a full disk, no permission and the like.
    """
    try:
        yield
    except OSError as error:
        raise CotextError(
            f"{error.filename or path}: cannot be written: {error.strerror or error}; put that right, and "
            "the same command resumes from there"
        ) from None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two descriptions of a job, a line for each key."""
    # As it is read back: JSON knows no tuples.
    there, here = _flat(before), _flat(json.loads(json.dumps(now)))
    changed = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return "\n".join(f"  {key}: {there.get(key)} there, {here.get(key)} now" for key in changed)


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries under dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in content.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves
