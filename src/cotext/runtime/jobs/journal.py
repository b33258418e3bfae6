"""The journal of a job on disk: a header, then one line for each finished unit.

Every line ends with a checksum. An interrupted job resumes with the units that have no complete line. Results
stay on disk; only the offset of each line is in memory, 8 bytes per unit.
"""

import json
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from cotext.runtime import CotextError, leaves, shown
from cotext.runtime.files import checksum, replacing, sealed, unsealed

FORMAT: Final = "cotext-job"
VERSION: Final = 1
MAX_HEADER_BYTES: Final = 1 << 24  # a longer line is not a header, and is not read into memory
NOT_DONE: Final = -1  # in place of an offset
# Errors raised by a damaged line, or by a line of another program.
DAMAGE: Final = ValueError, KeyError, TypeError, OverflowError, AttributeError


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Shard `number`, from 1, of `of` shards."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `i/n`; raise CotextError for other text."""
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match and 1 <= int(match[1]) <= int(match[2]):
            return cls(int(match[1]), int(match[2]))
        raise CotextError(f"--shard {shown(text)}: write i/n, for example 1/4 to 4/4 for four shards")

    def units(self, sizes: Sequence[int]) -> range:
        """Return the units of this shard, given the sizes of all units. Shards are runs of consecutive units.

        The total size is divided evenly; a unit belongs to the shard that contains its middle. A shard
        differs from its even share by at most the largest unit. It may be empty.
        """
        total = sum(sizes)
        first = stop = end = 0
        for size in sizes:
            end += size
            # Middles ascend, so the units of lower shards come first.
            shard = 1 + min((2 * end - size) * self.of // (2 * total) if total else 0, self.of - 1)
            if shard > self.number:
                break
            first += shard < self.number
            stop += 1
        return range(first, stop)

    def __str__(self) -> str:
        """Return the value of `--shard`."""
        return f"{self.number}/{self.of}"


WHOLE: Final = Shard(1, 1)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a journal.

    `command` and `unit` (such as "documents") are used in messages. `identity` is everything that determines
    the result of the job. It must be equal in all shards and when the job resumes. `facts` are needed only
    for joining.
    """

    command: str
    unit: str
    identity: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    shard: Shard = WHOLE
    units: range = range(0)
    total: int = 0

    @property
    def of_job(self) -> dict[str, Any]:
        same = {"command": self.command, "unit": self.unit, "job": dict(self.identity)}
        return {**same, "shards": self.shard.of, "units": self.total}

    @property
    def line(self) -> bytes:
        content = {
            "format": FORMAT,
            "version": VERSION,
            **self.of_job,
            "shard": self.shard.number,
            "range": [self.units.start, self.units.stop],
            "facts": dict(self.facts),
        }
        return f"{sealed(content)}\n".encode()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the header of a journal; raise CotextError for other files and storage errors."""
        require_regular(path)
        with storage(path), path.open("rb") as file:
            line = file.readline(MAX_HEADER_BYTES)
        try:
            content = unsealed(line.decode())
            shard, units = Shard(content["shard"], content["shards"]), range(*content["range"])
            identity, facts, total = dict(content["job"]), dict(content["facts"]), int(content["units"])
            header = cls(content["command"], content["unit"], identity, facts, shard, units, total)
            right = content["format"] == FORMAT and content["version"] == VERSION
            if right and 1 <= shard.number <= shard.of and 0 <= units.start <= units.stop <= total:
                return header
        except DAMAGE:
            pass
        raise CotextError(
            f"{path}: is in the way: not a journal of this version of Cotext, or its first line is damaged; "
            "move it away, or choose another --out"
        )


class Results(Mapping[int, Mapping[str, Any]]):
    """The results in a journal by unit, read from disk on request.

    `notes` are parts of the results of unfinished units. `damaged` counts invalid lines, `resumed` the units
    that an earlier call has finished.
    """

    def __init__(self, path: Path, units: range) -> None:
        self.path, self.units = path, units
        self.notes: dict[int, list[Mapping[str, Any]]] = {}
        self.damaged = self.resumed = 0
        self.written = ""  # digest of the output after it was written
        self._offsets = array("q", [NOT_DONE]) * len(units)
        self._file: BinaryIO | None = None

    def scan(self, file: BinaryIO, accept: Callable[[int, Mapping[str, Any]], object]) -> int:
        """Index the results from the second line on; return the end of the last complete line.

        `accept` raises an error of DAMAGE for a result that does not belong to its unit.
        """
        file.seek(0)
        end = len(file.readline())
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                self._take(unsealed(line.decode()), end, accept)
            except DAMAGE:
                self.damaged += 1
            end += len(line)
        self._file = file
        return end

    def _take(
        self, entry: Mapping[str, Any], offset: int, accept: Callable[[int, Mapping[str, Any]], object]
    ) -> None:
        if "written" in entry:
            self.written = str(entry["written"])
            return
        unit = int(entry["unit"])
        if unit not in self.units:
            raise ValueError(unit)
        if "note" in entry:
            self.notes.setdefault(unit, []).append(dict(entry["note"]))
        else:
            accept(unit, entry["result"])
            self._offsets[unit - self.units.start] = offset
            self.notes.pop(unit, None)

    def __getitem__(self, unit: int) -> Mapping[str, Any]:
        """Return the result of a unit; raises CotextError if the journal was changed by another program."""
        if unit not in self:
            raise KeyError(unit)
        assert self._file is not None
        self._file.seek(self._offset(unit))
        with suppress(*DAMAGE):
            entry = unsealed(self._file.readline().decode())
            if entry["unit"] == unit:
                result: Mapping[str, Any] = entry["result"]
                return result
        raise CotextError(f"{self.path}: has changed meanwhile; run the command again")

    def __contains__(self, unit: object) -> bool:
        return isinstance(unit, int) and unit in self.units and self._offset(unit) != NOT_DONE

    def _offset(self, unit: int) -> int:
        return self._offsets[unit - self.units.start]

    def __iter__(self) -> Iterator[int]:
        return (unit for unit in self.units if unit in self)

    def __len__(self) -> int:
        return len(self.units) - self._offsets.count(NOT_DONE)


class Journal(Results):
    """The journal that this process writes; the output is `out`.

    `accept`: see `Results.scan`. `discard`: whether the journal of another job may be replaced, or None if
    the command has no option for this. `on_message` receives messages about resumption for the user.

    Entering raises CotextError if the file is not a journal, is the journal of another job, or cannot be
    written.
    """

    def __init__(
        self,
        path: Path,
        out: Path,
        header: Header,
        accept: Callable[[int, Mapping[str, Any]], object] = lambda unit, result: None,
        on_message: Callable[[str], None] = lambda text: None,
        discard: bool | None = None,
    ) -> None:
        super().__init__(path, header.units)
        self._out, self._header, self._accept = out, header, accept
        self._on_message, self._discard = on_message, discard
        self._end, self._begun = 0, False  # whether a unit has begun

    def __enter__(self) -> Self:
        with storage(self.path):
            require_regular(self.path)
            if not self.path.is_file() or not self.path.stat().st_size or not self._is_same_job():
                with replacing(self.path) as temporary:
                    temporary.write_bytes(self._header.line)
            file = self.path.open("a+b")
        try:
            with storage(self.path):
                self._end = self.scan(file, self._accept)
                file.truncate(self._end)
        except BaseException:
            file.close()
            raise
        self.resumed, self._begun = len(self), bool(self.notes)
        if self.damaged:
            self._on_message(
                f"{self.path}: damaged lines, whose {self._header.unit} are processed again: {self.damaged}"
            )
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        self._close()
        if error_type is not None and not len(self) and not self._begun:
            self.path.unlink(missing_ok=True)  # nothing to resume

    def _close(self) -> None:
        """Close the file, because Windows cannot delete an open file."""
        if self._file is not None:
            # On a full disk, closing fails again; the first failure has been reported.
            with suppress(OSError):
                self._file.close()

    def _is_same_job(self) -> bool:
        """Return whether the file is the journal of this job; raise CotextError if it must be kept."""
        before = Header.read(self.path)
        changed = differences(before.of_job, self._header.of_job)
        if not changed and (before.shard, before.units) == (self._header.shard, self._header.units):
            return True
        if not changed:
            raise CotextError(f"{self.path}: belongs to a shard that differs from its name; delete it")
        if not self._discard:
            way = "delete it" if self._discard is None else "add --overwrite to discard it"
            raise other_job(self.path, changed, way)
        self._on_message(f"{self.path}: belonged to another job, and was discarded:\n{changed}")
        return False

    def add(self, unit: int, result: Mapping[str, Any]) -> None:
        """Append the result of a unit and flush it; raises CotextError for storage errors."""
        self._offsets[unit - self.units.start] = self._append({"unit": unit, "result": result})
        self.notes.pop(unit, None)

    def note(self, unit: int, content: Mapping[str, Any]) -> None:
        """Append a part of the result of an unfinished unit; raises CotextError for storage errors."""
        self._begun = True
        self._append({"unit": unit, "note": content})

    def require_unchanged(self) -> None:
        """Raise CotextError if the output was changed since this job wrote it, and must be kept."""
        changed = self.written and self._out.is_file() and checksum(self._out) != self.written
        if changed and not self._discard:
            raise CotextError(
                f"{self._out}: has been changed since it was written; move it away, or add --overwrite to "
                "write it again"
            )

    def finish(self, keep: bool = False) -> None:
        """Delete the journal after writing the output; `keep`: record the digest of the output instead."""
        if keep:
            self._append({"written": checksum(self._out)})
        else:
            self._close()
            self.path.unlink(missing_ok=True)

    def _append(self, entry: Mapping[str, Any]) -> int:
        """Write a line and return its offset."""
        assert self._file is not None
        line, offset = f"{sealed(entry)}\n".encode(), self._end
        with storage(self.path):
            self._file.write(line)
            self._file.flush()
        self._end += len(line)
        return offset


def require_regular(path: Path) -> None:
    """Raise CotextError if the path exists and is not a regular file, such as a pipe."""
    if os.path.lexists(path) and not path.is_file():
        raise CotextError(f"{path}: is in the way, and not a regular file; move it away")


def other_job(path: Path, changed: str, way: str) -> CotextError:
    """Return the error for the journal of another job; `way` states how to remove it."""
    return CotextError(
        f"{path}: belongs to another job; pass its options to resume it, choose another --out, or {way}:\n"
        f"{changed}"
    )


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn storage errors of the block, such as a full disk, into CotextError."""
    try:
        yield
    except OSError as error:
        raise CotextError(
            f"{error.filename or path}: cannot be written: {error.strerror or error}; correct this, and "
            "run the same command to resume"
        ) from None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences between two descriptions of a job, one line per key."""
    # Values are converted as in the file: JSON turns tuples into lists.
    there, here = (
        {key: value for key, value in leaves(content) if value != {}}
        for content in (before, json.loads(json.dumps(now)))
    )
    changed = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return "\n".join(f"  {key}: {there.get(key)} before, {here.get(key)} now" for key in changed)
