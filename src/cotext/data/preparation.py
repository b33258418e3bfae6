"""The hidden folder in which a folder is prepared; what an interrupted preparation has done stays there.

    .OUT.preparing/                 what becomes OUT, by a single rename
    .OUT.preparing/preparing.json   what is prepared, and of each stage that is done the digests of its files
    .OUT.replaced/                  the folder whose place OUT takes, until it has

Whoever works there holds the lock of OUT.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cotext.data.prepared import REPORT, read_report
from cotext.runtime.errors import CotextError
from cotext.runtime.files import discard, replacing, sweep
from cotext.runtime.integrity import digests, require_whole, sealed, unsealed
from cotext.runtime.locks import Lock, writing
from cotext.runtime.reading import read_text

STATE: Final = "preparing.json"


class Preparation:
    """A folder in the making: `begin`, note the stages that are done, write the report, `publish`."""

    def __init__(self, out: Path, overwrite: bool, lock: Lock) -> None:
        self.out = out
        self.folder = out.with_name(f".{out.name}.preparing")
        self.begun = False
        self._replaced = out.with_name(f".{out.name}.replaced")
        self._overwrite = overwrite
        self._lock = lock
        self._job: dict[str, Any] = {}
        self._stages: dict[str, Any] = {}

    def begin(self, job: dict[str, Any]) -> dict[str, Any]:
        """Go on with what is there of a job, or begin it; returns the report, if all is done already.

        `job` holds, under the keys of the report, all that decides the content of the folder.

        Raises:
            CotextError: there is something else, and it may not be overwritten.
        """
        if _occupied(self.out) and not self._overwrite:
            report = read_report(self.out)
            if not _describes(report, job):
                raise CotextError(
                    f"{self.out}: is there already and not empty; choose another folder, or allow "
                    "overwriting (--overwrite)"
                )
            require_whole(self.out, report.get("files", {}), "prepare it again, with --overwrite")
            return report
        sweep(self.folder)
        if self.folder.exists():
            report = self._finished(job)
            if report or self._goes_on(job):
                self.begun = True
                return report
            discard(self.folder)
        self.folder.mkdir(parents=True)
        self.begun, self._job = True, job
        self._write_state()
        return {}

    def done(self, stage: str) -> Any:
        """What was noted of a stage that is done; None where it is to be done, or its files are damaged."""
        noted = self._stages.get(stage)
        if noted is not None:
            try:
                require_whole(self.folder, noted["files"], "")
            except CotextError:
                return None
            return noted["content"]
        return None

    def note(self, stage: str, files: Iterable[Path], content: Any) -> None:
        """A stage is done: it has written `files`; `content` is what else is to be known of it."""
        self._stages[stage] = {"files": digests(self.folder, files), "content": content}
        self._write_state()

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the files of all stages that are done."""
        return {name: digest for stage in self._stages.values() for name, digest in stage["files"].items()}

    def publish(self) -> None:
        """Give the folder, whose report is written, its name, unless it has it."""
        if not self.begun:
            return
        self._lock.require()
        (self.folder / STATE).unlink(missing_ok=True)
        if _occupied(self.out):
            os.replace(self.out, self._replaced)
        os.replace(self.folder, self.out)

    def recover(self) -> None:
        """Put right what was cut short between the two renames, or after them."""
        if self._replaced.is_dir():
            if _occupied(self.out):
                shutil.rmtree(self._replaced, ignore_errors=True)
            else:
                os.replace(self._replaced, self.out)

    def _finished(self, job: dict[str, Any]) -> dict[str, Any]:
        """The report of a folder that lacks its name alone; nothing where it lacks more."""
        try:
            report = read_report(self.folder)
            require_whole(self.folder, report.get("files", {}), "")
        except CotextError:
            return {}
        return report if _describes(report, job) else {}

    def _goes_on(self, job: dict[str, Any]) -> bool:
        """Take up what an interruption has left of the same job; False where there is nothing to keep.

        Raises:
            CotextError: it is from another job and may not be discarded, or from none.
        """
        path = self.folder / STATE
        if not path.exists() and not (self.folder / REPORT).exists():
            if any(not entry.name.startswith(f".{STATE}") for entry in self.folder.iterdir()):
                raise CotextError(
                    f"{self.folder}: is in the way, and not from an interrupted preparation; move it away"
                )
            return False
        try:
            state = unsealed(read_text(path))
            if state["job"] == job:
                self._job, self._stages = job, state["stages"]
                return True
        except (CotextError, ValueError, KeyError):
            pass  # damaged: nobody knows what it is
        if not self._overwrite:
            raise CotextError(
                f"{self.folder}: holds what an interrupted preparation from other files or with other "
                "settings has done, or is damaged; give the same again to go on with it, choose another "
                "--out, or add --overwrite to discard it"
            )
        return False

    def _write_state(self) -> None:
        with replacing(self.folder / STATE) as temporary:
            content = sealed({"job": self._job, "stages": self._stages})
            temporary.write_text(f"{content}\n", encoding="utf-8")


@contextmanager
def preparing(out: Path, overwrite: bool, inputs: Sequence[Path]) -> Iterator[Preparation]:
    """Hold the folder `out` against other processes and make a new one in its place.

    An interruption leaves what is done to the next call; an error leaves nothing.

    Raises:
        CotextError: something else than a prepared folder is there, or an input lies in it; another process
            is at work on it; storage refuses.
    """
    out = out.resolve()
    if out.is_file():
        raise CotextError(f"{out}: is a file; name a folder to write to")
    if _occupied(out) and not (out / REPORT).is_file():
        raise CotextError(f"{out}: holds something else than prepared data, and is left alone; name another")
    inside = next((path for path in inputs if path.resolve().is_relative_to(out)), None)
    if inside is not None:
        raise CotextError(f"{inside}: lies inside the folder to be replaced, {out}; choose another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writing(out) as lock:
            work = Preparation(out, overwrite, lock)
            work.recover()
            try:
                yield work
            except Exception:
                if work.begun:
                    discard(work.folder)
                raise
            finally:
                work.recover()
    except OSError as error:
        raise CotextError(f"{out}: can't be written: {error.strerror or error}") from error


def _occupied(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _describes(report: dict[str, Any], job: dict[str, Any]) -> bool:
    """Whether a report, with digests, is that of a job: what it says includes all that the job says."""

    def within(part: Any, whole: Any) -> bool:
        if isinstance(part, dict) and isinstance(whole, dict):
            return all(key in whole and within(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    return "files" in report and within(job, report)
