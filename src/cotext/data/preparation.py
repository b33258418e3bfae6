"""The hidden folder in which data are prepared. After an interruption, preparation resumes from it.

    .OUT.preparing/                 becomes OUT, by a single rename
    .OUT.preparing/preparing.json   the job, and for each finished stage the digests of its files
    .OUT.replaced/                  the old folder OUT, until the new one is in place

The process that prepares the data holds the lock of OUT.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cotext.data.prepared import REPORT, read_report
from cotext.runtime.errors import CotextError
from cotext.runtime.files import discard, sweep, write_text
from cotext.runtime.integrity import digests, is_occupied, require_whole, sealed, unsealed
from cotext.runtime.locks import Lock, writing
from cotext.runtime.reading import read_text

STATE: Final = "preparing.json"


class Preparation:
    """A folder in preparation: call `begin`, `note` after each stage, and `publish` after the report."""

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
        """Resume or begin a job; return its report if it is already finished, otherwise an empty dict.

        `job` contains everything that determines the content of the folder, under the keys of the report.

        Raises CotextError if the folder has other content, and must not be overwritten.
        """
        if is_occupied(self.out) and not self._overwrite:
            report = read_report(self.out)
            if not _describes(report, job):
                raise CotextError(
                    f"{self.out}: exists and is not empty; choose another folder, or add --overwrite to "
                    "replace it"
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
        """Return the record of a finished stage; None if it is unfinished or its files are damaged."""
        noted = self._stages.get(stage)
        if noted is None:
            return None
        try:
            require_whole(self.folder, noted["files"], "")
        except CotextError:
            return None
        return noted["content"]

    def note(self, stage: str, files: Iterable[Path], content: Any) -> None:
        """Record that a stage is finished, with the `files` that it has written and other `content`."""
        self._stages[stage] = {"files": digests(self.folder, files), "content": content}
        self._write_state()

    @property
    def digests(self) -> dict[str, str]:
        return {name: digest for stage in self._stages.values() for name, digest in stage["files"].items()}

    def publish(self) -> None:
        """Rename the finished folder to its final name."""
        if not self.begun:
            return
        self._lock.require()
        (self.folder / STATE).unlink(missing_ok=True)
        if is_occupied(self.out):
            os.replace(self.out, self._replaced)
        os.replace(self.folder, self.out)

    def recover(self) -> None:
        """Complete or undo an interrupted `publish`: the old folder is deleted, or gets its name back."""
        if self._replaced.is_dir():
            if is_occupied(self.out):
                shutil.rmtree(self._replaced, ignore_errors=True)
            else:
                os.replace(self._replaced, self.out)

    def _finished(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the report of a folder that only needs to be renamed; otherwise an empty dict."""
        try:
            report = read_report(self.folder)
            require_whole(self.folder, report.get("files", {}), "")
        except CotextError:
            return {}
        return report if _describes(report, job) else {}

    def _goes_on(self, job: dict[str, Any]) -> bool:
        """Load the state of an interrupted job and return True; False if there is nothing to resume."""
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
            pass  # damaged
        if not self._overwrite:
            raise CotextError(
                f"{self.folder}: contains an interrupted preparation of other files or with other "
                "settings, or is damaged; pass the same options to resume it, choose another "
                "--out, or add --overwrite to discard it"
            )
        return False

    def _write_state(self) -> None:
        content = sealed({"job": self._job, "stages": self._stages})
        write_text(self.folder / STATE, f"{content}\n")


@contextmanager
def preparing(out: Path, overwrite: bool, inputs: Sequence[Path]) -> Iterator[Preparation]:
    """Lock the folder `out` and prepare a new one in its place.

    After an interruption, the next call resumes. After an error, the partial result is deleted.

    Raises CotextError if `out` exists but is not prepared data, `out` contains an input, another process
    works on it, or files cannot be written.
    """
    out = out.resolve()
    if out.is_file():
        raise CotextError(f"{out}: is a file; pass a folder to write to")
    if is_occupied(out) and not (out / REPORT).is_file():
        raise CotextError(
            f"{out}: is not a folder of prepared data and is not replaced; choose another folder"
        )
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
        raise CotextError(f"{out}: cannot be written: {error.strerror or error}") from error


def _describes(report: dict[str, Any], job: dict[str, Any]) -> bool:
    """Return whether a report belongs to a job, that is, contains all its entries."""

    def within(part: Any, whole: Any) -> bool:
        if isinstance(part, dict) and isinstance(whole, dict):
            return all(key in whole and within(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    return "files" in report and within(job, report)
