"""Shards of a long job: consecutive units of it, each shard done by a process of its own, and joined at last.

    OUT.shards/2-of-4.jsonl   the part of shard 2 of 4: a header, then what was found for each of its units
    OUT.shards/2-of-4.lock    held by the process that is at work on it

A unit is what is never divided: a document, or documents or examples that share batches. Every unit that is
done is appended at once, with a checksum at the end of its line; a shard that was interrupted goes on after
the last of them. Findings stay on disk: memory holds where each of them lies, 8 bytes a unit.
"""

import os
import re
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import require_new
from cotext.runtime.integrity import sealed
from cotext.runtime.locks import beside, holding, require_free
from cotext.runtime.shard_lines import (
    FORMAT,
    NOT_DONE,
    VERSION,
    differences,
    entries,
    of_job,
    of_shard,
    read_at,
    read_header,
    storage,
)

PARTS: Final = "*.jsonl"
LOCKS: Final = "*.lock"


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
        first = stop = end = 0
        for size in sizes:
            end += size
            # Middles ascend, so that the units of lower shards come first.
            shard = 1 + min((2 * end - size) * self.of // (2 * total) if total else 0, self.of - 1)
            if shard > self.number:
                break
            first += shard < self.number
            stop += 1
        return range(first, stop)

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
        require_new(self.out)
        try:
            with storage(self.path), ExitStack() as stack:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock = self.path.with_suffix(".lock")
                stack.enter_context(holding(lock, f"{self.out}: shard {self.shard}"))
                # First what is held, then a look at what others hold: of two processes, at least one sees
                # the other.
                require_free(beside(self.out), str(self.out))
                require_new(self.out)
                self._require_same_job()
                self._file = stack.enter_context(self.path.open("a+b"))
                self._take_over()
                self._stack = stack.pop_all()
        except CotextError:
            self._clear_away()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is not None and issubclass(error_type, CotextError) and not self.done():
            self.path.unlink(missing_ok=True)  # there is nothing to go on with
        # What a full disk has refused once is refused again here, and has been reported.
        with suppress(OSError):
            self._stack.close()
        self._clear_away()

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
        return read_at(self._file, self._offsets[unit - self.units.start], unit, self.path)

    def report(self, sentences: int, resumed: int, signature: str) -> ShardReport:
        """What the shard has done, of which `resumed` units before; `signature` says how."""
        damaged = self.path if self.damaged else None
        return ShardReport(self.shard, self.unit, len(self.units), sentences, resumed, signature, damaged)

    def _clear_away(self) -> None:
        with suppress(OSError):  # not empty
            self.path.parent.rmdir()

    def _require_same_job(self) -> None:
        """Raise CotextError where there are parts of another job, or where something is in the way."""
        if os.path.lexists(self.path) and not self.path.is_file():
            raise CotextError(f"{self.path}: is in the way, and no regular file; move it away")
        for path in sorted(self.path.parent.glob(PARTS)):
            with path.open("rb") as file:
                line = file.readline()
            if not line.endswith(b"\n"):  # new, or cut off before anything was found
                continue
            if changed := differences(of_job(read_header(line, path)), of_job(self._header)):
                raise CotextError(
                    f"{path}: is of another job; give the same again to go on with it, choose another --out, "
                    f"or delete {folder_of(self.out)}:\n{changed}"
                )
            return

    def _take_over(self) -> None:
        self._file.seek(0)
        line = self._file.readline()
        if not line.endswith(b"\n"):
            self._file.truncate(0)
            self._append(self._header)
            return
        if differences(of_shard(read_header(line, self.path)), of_shard(self._header)):
            raise CotextError(f"{self.path}: is of another shard than its name says; delete it")
        self._end = len(line)
        for unit, offset, end in entries(self._file, len(line)):
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
