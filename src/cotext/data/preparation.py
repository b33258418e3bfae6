"""Atomic replacement of a folder of prepared data.

    .OUT.replaced/    the old folder OUT, until the new one is in place

The process that prepares the data holds the lock of OUT. After an interruption, it begins again.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotext.data.prepared import REPORT, read_report
from cotext.runtime import CotextError
from cotext.runtime.files import Lock, discard, is_occupied, replacing, require_whole, sweep, writing


def prepared(
    out: Path,
    overwrite: bool,
    inputs: Sequence[Path],
    job: dict[str, Any],
    build: Callable[[Path], dict[str, Any]],
) -> dict[str, Any]:
    """Call `build` with a new folder, which it fills and which then becomes `out`; return its report.

    `job` contains everything that determines the content of the folder, under the keys of the report. If
    `out` is already the result of this job, nothing is done, unless `overwrite` is set. After an error, `out`
    is unchanged.

    Raises CotextError if `out` has other content (with `overwrite`: if it is not prepared data) or contains
    an input. Also if another process works on it, or files cannot be written.
    """
    out = out.resolve()
    if out.is_file():
        raise CotextError(f"{out}: is a file; pass a folder to write to")
    inside = next((path for path in inputs if path.resolve().is_relative_to(out)), None)
    if inside is not None:
        raise CotextError(f"{inside}: lies inside the folder to be replaced, {out}; choose another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writing(out) as lock:
            sweep(out, alone=True)
            _recover(out)
            if is_occupied(out):
                if not (out / REPORT).is_file():
                    raise CotextError(
                        f"{out}: is not a folder of prepared data and is not replaced; choose another folder"
                    )
                if not overwrite:
                    return _same(out, job)
            with replacing(out, put=lambda temporary, path: _put(temporary, path, lock)) as folder:
                folder.mkdir()
                return build(folder)
    except OSError as error:
        raise CotextError(f"{out}: cannot be written: {error.strerror or error}") from error


def _same(out: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Return the report of an existing folder; raises CotextError unless it is the result of `job`."""
    report = read_report(out)
    tokenizer = {name: report.get("tokenizer", {}).get(name) for name in job["tokenizer"]}
    if "files" not in report or not job.items() <= {**report, "tokenizer": tokenizer}.items():
        raise CotextError(
            f"{out}: exists and is not empty; choose another folder, or add --overwrite to replace it"
        )
    require_whole(out, report["files"], "prepare it again, with --overwrite")
    return report


def _replaced(out: Path) -> Path:
    return out.with_name(f".{out.name}.replaced")


def _put(folder: Path, out: Path, lock: Lock) -> None:
    """Rename a finished folder to its final name."""
    lock.require()
    try:
        if (out / REPORT).is_file():  # other, newer content is not replaced
            os.replace(out, _replaced(out))
        os.replace(folder, out)
    finally:
        _recover(out)


def _recover(out: Path) -> None:
    """Complete or undo an interrupted `_put`: the old folder is deleted, or gets its name back."""
    old = _replaced(out)
    sweep(old)
    if old.is_dir():
        if is_occupied(out):
            discard(old)
        else:
            os.replace(old, out)
