"""The lines of a part of a shard: a header, then what was found for each unit, each with a checksum."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import unsealed

FORMAT: Final = "cotext-shard"
VERSION: Final = 1
NOT_DONE: Final = -1  # in place of an offset


def read_header(line: bytes, path: Path) -> dict[str, Any]:
    """Read the first line of a part.

    Raises:
        CotextError: it is damaged, of another version, or of no part.
    """
    try:
        header = unsealed(line.decode())
        whole = {**header, "job": dict(header["job"]), "joining": dict(header["joining"])}
        number, of = map(int, header["shard"])
        first, stop, total = map(int, header["units"])
        of_this_version = header["format"] == FORMAT and header["version"] == VERSION
        if of_this_version and 1 <= number <= of and 0 <= first <= stop <= total:
            return whole
    except (ValueError, KeyError, TypeError):
        pass
    raise CotextError(
        f"{path}: its first line is damaged, or it is no part of a shard of this version of Cotext; delete "
        "it, and run that shard again"
    )


def of_shard(header: Mapping[str, Any]) -> dict[str, Any]:
    """What a part must share with the process that goes on with it."""
    return {key: value for key, value in header.items() if key != "joining"}


def of_job(header: Mapping[str, Any]) -> dict[str, Any]:
    """What all parts of a job share."""
    same = {key: header[key] for key in ("command", "unit", "job")}
    return {**same, "shards": header["shard"][1], "units": header["units"][2]}


def entries(file: BinaryIO, first: int) -> Iterator[tuple[int | None, int, int]]:
    """The unit of every line, None where it is damaged, and where the line begins and ends.

    A line that was cut off is left out.
    """
    file.seek(first)
    begins = first
    for line in file:
        if not line.endswith(b"\n"):
            return
        ends = begins + len(line)
        yield _unit(line), begins, ends
        begins = ends


def _unit(line: bytes) -> int | None:
    try:
        return int(unsealed(line.decode())["index"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def read_at(file: BinaryIO, offset: int, unit: int, path: Path) -> dict[str, Any]:
    """The line of a unit, which begins at `offset`; raises CotextError where another stands there."""
    file.seek(offset)
    with suppress(ValueError):
        found = unsealed(file.readline().decode())
        if found.get("index") == unit:
            return found
    raise CotextError(f"{path}: has changed meanwhile; run the command again")


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


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two descriptions of a job, a line for each key."""
    # As it is read back: JSON knows no tuples.
    there, here = _flat(before), _flat(json.loads(json.dumps(now)))
    changed = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return "\n".join(f"  {key}: {there.get(key)} there, {here.get(key)} now" for key in changed)


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries under dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in content.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves
