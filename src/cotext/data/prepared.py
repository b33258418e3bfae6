"""The report of a prepared folder: inputs, settings, and a digest of every file. It is written last."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import crc32, digests, require_whole
from cotext.runtime.reading import read_json

REPORT: Final = "report.json"
TRAIN: Final = "train.arrow"  # a token store
_CHECKSUM: Final = "crc32"  # the entry of the report with the checksum of all others


def write_report(folder: Path, content: Mapping[str, Any]) -> None:
    """Write report.json with a checksum. Its presence means that the folder is complete."""
    plain = json.loads(json.dumps(content))  # as it will be read back
    text = json.dumps({**plain, _CHECKSUM: _checksum(plain)}, indent=2, ensure_ascii=False)
    with replacing(folder / REPORT) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def read_report(folder: Path) -> dict[str, Any]:
    """Return the content of report.json, or an empty dict if it does not exist.

    Raises:
        CotextError: the report is damaged; also the errors of `read_json`.
    """
    path = folder / REPORT
    if not path.exists():
        return {}
    content = read_json(path)
    noted = content.pop(_CHECKSUM, None)
    if noted != _checksum(content) or not isinstance(content.get("files", {}), dict):
        raise CotextError(f"{path}: damaged: not as it was written; prepare the corpus again")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return crc32(json.dumps(content, sort_keys=True))


def file_digests(folder: Path, without: Iterable[str] = ()) -> dict[str, str]:
    """Return the digests of the files in a folder, except the report, hidden files and patterns `without`."""
    left_out = (REPORT, ".*", *without)
    files = (path for path in folder.rglob("*") if path.is_file())
    return digests(folder, (path for path in files if not any(map(path.match, left_out))))


def checked_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Check files of a prepared folder and return their digests; files that never existed are skipped.

    Raises:
        CotextError: a file is missing or differs from the report. Without a report, nothing is checked.
    """
    noted = read_report(folder).get("files", {})
    names = [name for name in names if name in noted or (folder / name).is_file()]
    expected = {name: noted[name] for name in names if name in noted}
    require_whole(folder, expected, "prepare the corpus again")
    return {name: expected.get(name) or checksum(folder / name) for name in names}
