"""Resumable jobs: units of work whose results are stored in a journal, by one process or in shards.

    OUT.partial               journal of one process, which writes OUT at the end
    OUT.shards/2-of-4.jsonl   journal of shard 2 of 4; `joining` reads all of them
    OUT.shards/2-of-4.lock    held by the process that works on the shard

A unit is a document, or several documents or examples that share batches. It is never divided.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from cotext.runtime import CotextError, __version__
from cotext.runtime.files import holding, lock_path, require_free, require_new, writing
from cotext.runtime.jobs.journal import (
    WHOLE,
    Header,
    Journal,
    Results,
    Shard,
    differences,
    other_job,
    storage,
)

JOURNALS: Final = "*.jsonl"
LOCKS: Final = "*.lock"
Report = TypeVar("Report")


class Job(ABC, Generic[Report]):
    """A job whose units are numbered from 0, and that writes `out` at the end.

    `sizes`, the numbers of sentences of all units, are used to divide the job into shards and to count
    progress. A job with a `shard` processes only the units of that shard. `identity` is everything that
    determines the result. `facts`, with the key `signature`, is what `joining` needs in addition.
    """

    command: ClassVar[str]
    unit: ClassVar[str]  # the name of units, in the plural
    out: Path
    identity: Mapping[str, Any]
    facts: Mapping[str, Any]
    sizes: Sequence[int]
    shard: Shard | None = None
    tell: Callable[[str], None] = staticmethod(lambda message: None)  # receives messages for the user

    @property
    def units(self) -> range:
        return range(len(self.sizes)) if self.shard is None else self.shard.units(self.sizes)

    @property
    def header(self) -> Header:
        total, shard = len(self.sizes), self.shard or WHOLE
        identity = {"cotext": __version__, **self.identity}
        return Header(self.command, self.unit, identity, self.facts, shard, self.units, total)

    def size(self, unit: int) -> int:
        """Return the contribution of a unit to the progress."""
        return self.sizes[unit]

    @abstractmethod
    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Process units in ascending order; yield each with its result as soon as it is finished.

        A result is a mapping that can be written as JSON. `on_size` is called with the sizes of finished
        parts. `journal` has notes on units that were begun.
        """

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Raise ValueError, KeyError or TypeError if an entry cannot be the result of a unit."""

    def write(self, results: Results) -> Report:
        """Write the output, given the results of all units."""
        raise NotImplementedError(f"{self.command} writes its output when shards are joined")


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Report on a shard: `units` with `sentences` in total; `resumed` units were done by an earlier call."""

    shard: Shard
    unit: str
    units: int
    sentences: int
    resumed: int
    signature: str
    messages: tuple[str, ...] = ()


def journal_of(out: Path) -> Path:
    """Return the path of the journal of an output that one process writes."""
    return out.with_name(f"{out.name}.partial")


def folder_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.shards")


def run(
    job: Job[Report],
    on_size: Callable[[int], None] = lambda size: None,
    overwrite: bool | None = False,
    keep: bool = False,
) -> Report:
    """Process the unfinished units of a job in this process, and write the output.

    `overwrite`: the results of an interrupted job with other settings may be discarded. None: they may not,
    and messages do not suggest --overwrite. `keep`: the journal is kept until `forget` is called. Raises
    CotextError if another process writes the output; also the errors of `Journal` and the job.
    """
    path = journal_of(job.out)
    with (
        writing(job.out) as lock,
        Journal(path, job.out, job.header, job.check, job.tell, overwrite) as journal,
    ):
        _work(job, journal, on_size)
        lock.require()
        journal.require_unchanged()
        report = job.write(journal)
        journal.finish(keep)
    return report


def forget(out: Path) -> None:
    """Delete the journal that `run` has kept, unless another process uses it."""
    with suppress(CotextError), writing(out):
        journal_of(out).unlink(missing_ok=True)


def run_shard(
    job: Job[Any],
    on_start: Callable[[int], None] = lambda total: None,
    on_size: Callable[[int], None] = lambda size: None,
) -> ShardReport:
    """Process the unfinished units of a shard. `on_start` is called with the size of the shard.

    Raises CotextError if another process works on the shard or joins shards, or the output exists; also the
    errors of `Journal` and the job.
    """
    out, shard = job.out, job.shard
    assert shard is not None
    path = folder_of(out) / f"{shard.number}-of-{shard.of}.jsonl"
    messages: list[str] = []
    require_new(out)
    try:
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with holding(path.with_suffix(".lock"), f"{out}: shard {shard}"):
            # The lock is taken before other locks are checked, so that one of two processes finds the other.
            require_free(lock_path(out), str(out))
            require_new(out)
            header = job.header
            others = sorted(folder_of(out).glob(JOURNALS))
            if others and (changed := differences(Header.read(others[0]).of_job, header.of_job)):
                raise other_job(others[0], changed, f"delete {folder_of(out)}")
            with Journal(path, out, header, job.check, messages.append) as journal:
                size = sum(map(job.size, journal.units))
                on_start(size)
                _work(job, journal, on_size)
    finally:
        with suppress(OSError):  # not empty
            path.parent.rmdir()
    return ShardReport(
        shard, job.unit, len(journal.units), size, journal.resumed, job.facts["signature"], tuple(messages)
    )


def _work(job: Job[Any], journal: Journal, on_size: Callable[[int], None]) -> None:
    on_size(sum(map(job.size, journal)))
    todo = [unit for unit in journal.units if unit not in journal]
    for unit, result in job.work(todo, journal, on_size):
        journal.add(unit, result)


class Joined(Results):
    """The results of all shards of a job. `header` is the header of its first shard."""

    def __init__(self, journals: Sequence[tuple[Path, Header]]) -> None:
        self.header = journals[0][1]
        super().__init__(journals[0][0], range(self.header.total))
        self._journals = journals
        self._firsts = [header.units.start for _, header in journals]
        self._opened = NONE_OPEN
        self._lacking: dict[int, int] = {}
        for number, (path, header) in enumerate(journals):
            self._open(number)
            assert self._file is not None
            shard = Results(path, header.units)
            shard.scan(self._file, lambda unit, result: None)
            self._offsets[header.units.start : header.units.stop] = shard._offsets
            if missing := len(header.units) - len(shard):
                self._lacking[number + 1] = missing

    def _open(self, number: int) -> None:
        """Open the journal of a shard and close the previous one, because there may be thousands."""
        if number != self._opened:
            self.close()
            self.path = self._journals[number][0]
            self._file, self._opened = self.path.open("rb"), number

    def __getitem__(self, unit: int) -> Mapping[str, Any]:
        """Return the result of a unit, as `Results` does."""
        self._open(bisect_right(self._firsts, unit) - 1)
        return super().__getitem__(unit)

    def close(self) -> None:
        """Close the file that was read last."""
        if self._file is not None:
            self._file.close()
        self._opened = NONE_OPEN

    def require_finished(self, folder: Path) -> None:
        """Raise CotextError if shards are unfinished, overlap, or leave units out."""
        due = 0
        for path, header in self._journals:
            last = path == self._journals[-1][0]
            if header.units.start != due or (last and header.units.stop != header.total):
                fault = (
                    "begin where the previous shard ends" if header.units.start != due else "reach the end"
                )
                raise CotextError(f"{path}: its {header.unit} do not {fault}; run this shard again")
            due = header.units.stop
        if not self._lacking:
            return
        of, lacking = self.header.shard.of, []
        for number, missing in [*self._lacking.items()][:10]:
            _, header = self._journals[number - 1]
            lacking.append(f"shard {number}/{of} lacks {missing:,} of {len(header.units):,} {header.unit}")
        raise CotextError(
            f"{folder}: {_named([*self._lacking], of)} not finished; run the same command again (as a "
            f"SLURM job array: --array={in_ranges(self._lacking)}), then join again: {'; '.join(lacking)}"
        )


NONE_OPEN: Final = -1  # no shard is open


@contextmanager
def joining(out: Path, overwrite: bool = False) -> Iterator[Joined]:
    """Lock an output and yield the results of its shards; the journals are deleted at the end.

    `overwrite`: an output file may be replaced. Raises CotextError if there are no shards, or one is missing,
    duplicated, unfinished or of another job. It is also raised if a process works on a shard or on the
    output, the output exists, or files cannot be written.
    """
    folder = folder_of(out)
    with storage(folder), writing(out):
        _require_nobody(out)
        joined_before = f"if it is the joined output of these shards, delete {folder}; otherwise"
        if out.is_dir() and any(out.iterdir()):
            raise CotextError(f"{out}: is a folder that is not empty; {joined_before} move the folder away")
        if out.exists() and not (overwrite or out.is_dir()):
            raise CotextError(
                f"{out}: exists; {joined_before} move it away, or add --overwrite to replace it"
            )
        joined = Joined(_journals(folder))
        try:
            joined.require_finished(folder)
            yield joined
        finally:
            joined.close()
        clear(out)


def _require_nobody(out: Path) -> None:
    """Raise CotextError if a process works on a shard; the locks of dead processes are deleted."""
    for lock in sorted(folder_of(out).glob(LOCKS)):
        require_free(lock, f"{out}: shard {lock.stem.replace('-of-', '/')}")


def clear(out: Path) -> None:
    """Delete the journals of a finished output; raise CotextError if a process works on a journal."""
    _require_nobody(out)
    for path in folder_of(out).glob(JOURNALS):
        path.unlink()
    with suppress(OSError):  # the folder contains other files, or does not exist
        folder_of(out).rmdir()


def _journals(folder: Path) -> list[tuple[Path, Header]]:
    """Return the journals of all shards of a job, in order."""
    paths = sorted(folder.glob(JOURNALS))
    if not paths:
        raise CotextError(
            f"{folder}: contains no results of shards to join; use the --out with which the shards were run"
        )
    journals: dict[Shard, tuple[Path, Header]] = {}
    first: Header | None = None
    for path in paths:
        header = Header.read(path)
        first = first or header
        if changed := differences(first.of_job, header.of_job):
            raise CotextError(
                f"{path}: belongs to a different job from {paths[0].name}; move it away:\n{changed}"
            )
        if header.shard in journals:
            other = journals[header.shard][0]
            raise CotextError(
                f"{path} and {other}: both belong to shard {header.shard}; move one of them away"
            )
        journals[header.shard] = path, header
    of = header.shard.of
    if absent := [number for number in range(1, of + 1) if Shard(number, of) not in journals]:
        raise CotextError(
            f"{folder}: {_named(absent, of)} missing; run {'it' if len(absent) == 1 else 'them'} (as a "
            f"SLURM job array: --array={in_ranges(absent)}), then join again"
        )
    return [journals[shard] for shard in sorted(journals)]


def _named(numbers: Sequence[int], of: int) -> str:
    """Format the numbers of shards, such as "shards 3,5-7 of 8 are"."""
    several = len(numbers) > 1
    return f"shard{'s' if several else ''} {in_ranges(numbers)} of {of} {'are' if several else 'is'}"


def in_ranges(numbers: Iterable[int]) -> str:
    """Format ascending integers, such as `3,5-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
