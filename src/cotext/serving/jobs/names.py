"""Names of files from clients, which are shown but never used as paths."""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

MAX_CHARACTERS: Final = 150
MAX_BYTES: Final = 240  # limit of file names in common file systems
_UNSAFE: Final = re.compile(r'[<>:"|?*/\\]')  # not allowed in file names on some systems
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_UNNAMED: Final = "file"


def clean_name(name: str) -> str:
    """Return the last part of a path as a name that is valid on all systems; never empty, `.` or `..`."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode()))[-1]
    # Names contain no control characters, such as those of the writing direction.
    kinds = {c: unicodedata.category(c) for c in last}
    shown = "".join(" " if kinds[c] in ("Zl", "Zp") else c for c in last if kinds[c][0] != "C")
    stem, suffix = _divided(_UNSAFE.sub("_", shown).strip(" ."))
    stem = stem[: MAX_CHARACTERS - len(suffix)]
    while len((stem + suffix).encode()) > MAX_BYTES:
        stem = stem[:-1]
    return f"{stem.strip()}{suffix}" if stem.strip() else f"{_UNNAMED}{suffix}"


def suffix_of(name: str) -> str:
    """Return the suffix for the file on disk, such as `.docx`; "" if it is not plain ASCII."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def result_name(name: str, source: str, target: str) -> str:
    """Return `NAME.de.docx` for `NAME.docx` and `NAME.en.docx`, by language codes; `name` must be clean."""
    stem, suffix = _divided(name)
    return clean_name(f"{stem.removesuffix(f'.{source}') or stem}.{target}{suffix}")


def _divided(name: str) -> tuple[str, str]:
    """Split a name before its suffix, unless the suffix is too long."""
    suffix = PurePosixPath(name).suffix if name else ""
    return (name.removesuffix(suffix), suffix) if len(suffix) <= 16 else (name, "")


def attachment(name: str) -> str:
    """Return the header `Content-Disposition` for a download with a clean name (RFC 6266, RFC 8187)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fallback = re.sub(r'[%"\\]', "_", plain).strip(" .") or _UNNAMED
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"
