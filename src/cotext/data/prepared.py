"""The report of a prepared folder, written last: what it was made from, and a digest of every file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import crc32, digests, require_whole
from cotext.runtime.reading import read_json

REPORT: Final = "report.json"
TRAIN: Final = "train.arrow"  # a token store: a file, or a folder of them
MANIFEST: Final = "manifest.json"  # of a token store that is a folder
_CHECKSUM: Final = "crc32"  # an entry of the report, over all others


def write_report(folder: Path, content: Mapping[str, Any]) -> None:
    """Write report.json, with a checksum: it says that everything else in the folder is whole."""
    plain = json.loads(json.dumps(content))  # as it will be read
    text = json.dumps({**plain, _CHECKSUM: _checksum(plain)}, indent=2, ensure_ascii=False)
    with replacing(folder / REPORT) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def read_report(folder: Path) -> dict[str, Any]:
    """The content of report.json; empty where there is none.

    Raises:
        CotextError: it is damaged, or as `read_json`.
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


def store_exists(path: Path) -> bool:
    """Whether a store, damaged or not, has this name."""
    return digest_file(path).is_file()


def digest_file(path: Path) -> Path:
    """The file whose digest stands for that of a whole store: itself, or the manifest of shards."""
    return path / MANIFEST if path.is_dir() else path


def store_files(path: Path) -> list[Path]:
    """All files of a store that is whole."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


def file_digests(folder: Path, without: Iterable[str] = ()) -> dict[str, str]:
    """Digests of the files of a folder that is ready but for its report; `without` are patterns of names.

    What is hidden is no part of it.
    """
    left_out = (REPORT, ".*", *without)
    files = (path for path in folder.rglob("*") if path.is_file())
    return digests(folder, (path for path in files if not any(map(path.match, left_out))))


def checked_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Digests of some files of a prepared folder, those that are there.

    Raises:
        CotextError: one is missing or not what the report says; without a report, nothing is known of them.
    """
    noted = read_report(folder).get("files", {})
    names = [name for name in names if name in noted or (folder / name).is_file()]
    expected = {name: noted[name] for name in names if name in noted}
    require_whole(folder, expected, "prepare the corpus again")
    return {name: expected.get(name) or checksum(folder / name) for name in names}


def digest_of_store(folder: Path) -> str:
    """The digest that stands for the training corpus of a prepared folder.

    Raises:
        CotextError: the file is not what the report of the folder says.
    """
    name = digest_file(folder / "train.arrow").relative_to(folder).as_posix()
    return checked_digests(folder, [name])[name]
