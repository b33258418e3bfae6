"""The parts of all shards of a job as one, once all of them are there and done."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cotext.runtime.errors import CotextError
from cotext.runtime.locks import require_free, writing
from cotext.runtime.shard_lines import NOT_DONE, differences, entries, of_job, read_at, read_header, storage
from cotext.runtime.shards import LOCKS, PARTS, Shard, folder_of


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
            for unit, offset, _ in entries(file, len(file.readline())):
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
        return read_at(self._open[1], self._offsets[unit], unit, self._paths[number])

    def close(self) -> None:
        """Close the part that was read last."""
        if self._open is not None:
            self._open[1].close()


@contextmanager
def joining(out: Path, overwrite: bool = False) -> Iterator[JoinedParts]:
    """Hold an output and the parts of its shards, all of which are done; the parts are deleted at the end.

    `overwrite`: the output may exist, if it is a file.

    Raises:
        CotextError: there are none; one is missing, there twice, not finished or of another job; a process is
            at work on one, or on the output; the output exists; storage refuses.
    """
    folder = folder_of(out)
    with storage(folder), writing(out):
        _require_nobody(out)
        if out.is_dir() and any(out.iterdir()):
            raise CotextError(
                f"{out}: is a folder that holds something, and is not replaced; move it away; if it "
                f"is what these shards were joined to before, delete {folder}"
            )
        if out.exists() and not (overwrite or out.is_dir()):
            raise CotextError(
                f"{out}: exists; move it away, or add --overwrite to replace it; if it is what these shards "
                f"were joined to before, delete {folder}"
            )
        parts = _parts(out, sorted(folder.glob(PARTS)))
        try:
            yield parts
        finally:
            parts.close()
        clear(out)


def _require_nobody(out: Path) -> None:
    """Raise CotextError where a process is at work on a shard; the locks of dead ones are deleted."""
    for lock in sorted(folder_of(out).glob(LOCKS)):
        require_free(lock, f"{out}: shard {lock.stem.replace('-of-', '/')}")


def clear(out: Path) -> None:
    """Delete the parts of an output, which is written; raises CotextError where a process holds one."""
    folder = folder_of(out)
    _require_nobody(out)
    for path in folder.glob(PARTS):
        path.unlink()
    with suppress(OSError):  # somebody else's files are in it, or nothing is
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
            header = read_header(file.readline(), path)
        shard, whose = Shard(*header["shard"]), of_job(header)
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
