"""Partial output of the shards of a distillation, in a hidden folder next to the output.

    .OUT.distilling/distillation.json   what is distilled, and how; stays in the output
    .OUT.distilling/part-2-of-4.jsonl   what shard 2 of 4 has translated, one line per document
    .OUT.distilling/part-2-of-4.lock    held by the process that is at work on shard 2 of 4
    .OUT.distilling/report.json         all is translated and written; what is left is to give it its name

Every finished document is appended at once, with a checksum at the end of its line. Translations stay on
disk: memory holds where each of them lies, 12 bytes per document of the corpus.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from cotext.data.prepared import REPORT
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import discard, replacing, sweep
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.locks import beside, holding, require_free, writing
from cotext.runtime.reading import read_json

JOB = "distillation.json"
PARTS = "part-*.jsonl"
LOCKS = "part-*.lock"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of the documents: those at the indices `number` - 1, `number` - 1 + `of`, ..."""

    number: int = 1
    of: int = 1

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

    def documents(self, count: int) -> range:
        """The indices of the documents of this shard, of `count` in all."""
        return range(self.number - 1, count, self.of)

    @property
    def part(self) -> str:
        """The name of the file for what it translates."""
        return f"part-{self.number}-of-{self.of}.jsonl"

    def __str__(self) -> str:
        """As it is given on the command line."""
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, slots=True)
class Entry:
    """The translation of one document; `sentences` is None where the teacher refuses it.

    Sentences are counted from 0: `cut`, `long` and `missing` as in `cotext.decoding.translator.Translation`.
    """

    index: int
    sentences: tuple[str, ...] | None
    cut: tuple[int, ...] = ()
    long: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()


class Parts:
    """The parts of all shards, of which this process writes one: it has to hold the shard."""

    def __init__(self, folder: Path, shard: Shard, documents: int) -> None:
        self.path = folder / shard.part
        self._files: list[BinaryIO] = []
        self.damaged = 0  # parts in which a line is, and what follows it has to be translated again
        self._file = np.full(documents, -1, np.int32)
        self._offset = np.zeros(documents, np.int64)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Take over what is there, up to a line that is damaged or cut off."""
        with ExitStack() as stack, storage(self.path):
            others = [path for path in sorted(self.path.parent.glob(PARTS)) if path != self.path]
            for path in (self.path, *others):
                if os.path.lexists(path) and not path.is_file():
                    raise CotextError(f"{path}: is in the way, and no regular file; move it away")
            self._own = stack.enter_context(self.path.open("a+b"))
            for path in others:
                self._take_over(stack.enter_context(path.open("rb")))
            self._end = self._take_over(self._own)
            self._own.truncate(self._end)
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

    def __contains__(self, index: int) -> bool:
        """Whether a document is done, whichever shard did it."""
        return bool(self._file[index] >= 0)

    def add(self, entry: Entry) -> None:
        """Append one document and push it to the disk.

        Raises:
            CotextError: storage refuses.
        """
        line = f"{sealed(asdict(entry))}\n".encode()
        with storage(self.path):
            self._own.write(line)
            self._own.flush()
        self._file[entry.index], self._offset[entry.index] = len(self._files) - 1, self._end
        self._end += len(line)

    def read(self, index: int) -> Entry:
        """The translation of a finished document.

        Raises:
            CotextError: somebody has changed the part since.
        """
        file = self._files[self._file[index]]
        file.seek(int(self._offset[index]))
        entry = _parse(file.readline())
        if entry is None or entry.index != index:
            raise CotextError(f"{self.path.parent}: a part has changed meanwhile; run the command again")
        return entry

    def _take_over(self, file: BinaryIO) -> int:
        """Note where the documents of a part lie; returns the number of bytes that are whole."""
        self._files.append(file)
        end = 0
        file.seek(0)
        for line in file:
            entry = _parse(line)
            if entry is None or not 0 <= entry.index < len(self._file):
                self.damaged += line.endswith(b"\n")
                break
            self._file[entry.index], self._offset[entry.index] = len(self._files) - 1, end
            end += len(line)
        return end


def _parse(line: bytes) -> Entry | None:
    """A line of a part; None where it was cut off or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        content = unsealed(line.decode())
        sentences = content["sentences"]
        return Entry(
            int(content["index"]),
            None if sentences is None else tuple(map(str, sentences)),
            **{key: tuple(map(int, content[key])) for key in ("cut", "long", "missing")},
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


@contextmanager
def working_folder(out: Path, job: dict[str, Any], shard: Shard | None) -> Iterator[Path]:
    """Make the hidden folder of a job, or go on with it; without a shard, nobody else may be at work in it.

    Raises:
        CotextError: it holds another job or something else, or processes are in each other's way.
    """
    folder = out.with_name(f".{out.name}.distilling")
    with ExitStack() as stack:
        with storage(folder):
            _hold(stack, out, folder, shard)
            names = [p.name for p in folder.iterdir() if not p.match(LOCKS) and JOB not in p.name]
            if names and not (folder / JOB).exists():
                raise CotextError(f"{folder}: is in the way, and not from a distillation; move it away")
            begun = (folder / JOB).exists()
            if begun and not (shard is None and _nothing_done(folder)):
                _require_same(folder, job)
            if shard is None or not begun:
                with replacing(folder / JOB) as temporary:
                    temporary.write_text(json.dumps(job, indent=1, ensure_ascii=False), encoding="utf-8")
        try:
            yield folder
        except CotextError:
            # As when the teacher turns out to be of no use: there is nothing to go on with.
            if shard is None and _nothing_done(folder):
                discard(folder)
            raise


def _hold(stack: ExitStack, out: Path, folder: Path, shard: Shard | None) -> None:
    """Make the folder and hold a shard, or all of them with the output.

    First what is held, then a look at what others hold: of two processes, at least one sees the other.
    """
    if shard is not None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / shard.part).with_suffix(".lock")
        stack.enter_context(holding(lock, f"{out}: shard {shard}"))
        require_free(beside(out), str(out))
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    stack.enter_context(writing(out))
    for lock in folder.glob(LOCKS):
        require_free(lock, f"{out}: {lock.stem}")
    sweep(folder)
    folder.mkdir(exist_ok=True)


def _nothing_done(folder: Path) -> bool:
    """Whether no document is translated, nor a corpus written that awaits its name."""
    return not (folder / REPORT).exists() and not any(p.stat().st_size for p in folder.glob(PARTS))


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


def _require_same(folder: Path, job: dict[str, Any]) -> None:
    if changed := differences(folder, job):
        raise CotextError(
            f"{folder}: holds what an interrupted distillation of other data, another teacher or other "
            "settings has translated; give the same again, choose another --out, or delete that folder:\n"
            + changed
        )


def differences(folder: Path, job: dict[str, Any]) -> str:
    """The differences between a job and the one that the folder belongs to, a line for each key.

    Raises:
        CotextError: the folder does not say whose it is.
    """
    try:
        there = read_json(folder / JOB)
    except CotextError as error:
        raise CotextError(f"{error}; delete the folder to start anew") from None
    # As it is read back: JSON knows no tuples.
    before, now = _flat(there), _flat(json.loads(json.dumps(job)))
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return "\n".join(f"  {key}: {before.get(key)} there, {now.get(key)} now" for key in changed)


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries under dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in content.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves
