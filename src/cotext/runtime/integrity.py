"""Detection of damage: checksums of JSON lines, and digests of files."""

import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.reading import read_bytes

MAX_SEALED_BYTES: Final = 1 << 32  # largest file of sealed lines

_SEAL = re.compile(r',\s*"crc32": "([0-9a-f]{8})"\s*\}\s*\Z')


def sealed(content: Mapping[str, Any]) -> str:
    """Return a line of JSON, without line feed, whose last entry is the CRC-32 of the text before it."""
    beginning = json.dumps(content)[:-1]
    return f'{beginning}, "crc32": "{crc32(beginning)}"}}'


def unsealed(line: str) -> dict[str, Any]:
    """Undo `sealed`; raises ValueError if the line is damaged, cut off, or has no checksum."""
    seal = _SEAL.search(line)
    if seal is None or crc32(line[: seal.start()]) != seal[1]:
        raise ValueError("damaged or cut off")
    try:
        content: dict[str, Any] = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    del content["crc32"]
    return content


def sealed_lines(path: Path, max_bytes: int = MAX_SEALED_BYTES) -> list[str]:
    """Return the lines of a file of sealed lines and, as the last item, the text after the last line feed.

    The last item is empty, unless writing was interrupted. A missing file counts as empty. Invalid UTF-8 is
    replaced, so that the checksum of its line is wrong. Raises the errors of `read_bytes`.
    """
    if not os.path.lexists(path):
        return [""]
    return read_bytes(path, max_bytes).decode(errors="replace").split("\n")


def crc32(text: str) -> str:
    """Return the CRC-32 of a text, in hexadecimal."""
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def digests(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by their paths relative to a folder, sorted."""
    return {path.relative_to(folder).as_posix(): checksum(path) for path in sorted(paths)}


def is_occupied(out: Path) -> bool:
    """Return whether the output folder exists and is not empty; raise CotextError if it is a file."""
    if out.exists() and not out.is_dir():
        raise CotextError(f"{out}: exists; choose another --out")
    return out.is_dir() and any(out.iterdir())


def require_whole(folder: Path, expected: Mapping[str, str], remedy: str) -> None:
    """Raise CotextError if a file below a folder is missing or differs from its digest.

    `remedy` states what to do.
    """
    for name, digest in expected.items():
        path = folder / name
        try:
            if not path.is_file():
                raise CotextError(f"{path}: is missing; {remedy}")
            actual = checksum(path)
        except OSError as error:
            raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None
        if actual != digest:
            raise CotextError(f"{path}: damaged, or does not belong to the other files; {remedy}")
