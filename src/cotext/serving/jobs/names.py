"""The names that clients give to files: data to be shown, from which no path is made."""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

MAX_CHARACTERS: Final = 150
MAX_BYTES: Final = 240  # of a name in the file systems that results are saved to
_UNSAFE: Final = re.compile(r'[<>:"|?*/\\]')  # in names of files on some system
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_UNNAMED: Final = "file"


def clean_name(name: str) -> str:
    """The last part of a client's name for a file, as any system can save it; never empty, `.` or `..`."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode()))[-1]
    shown = "".join(" " if unicodedata.category(c) in ("Zl", "Zp") else c for c in last if _visible(c))
    stem, suffix = _divided(_UNSAFE.sub("_", shown).strip(" ."))
    stem = stem[: MAX_CHARACTERS - len(suffix)]
    while len((stem + suffix).encode()) > MAX_BYTES:
        stem = stem[:-1]
    return f"{stem.strip()}{suffix}" if stem.strip() else f"{_UNNAMED}{suffix}"


def _visible(character: str) -> bool:
    """Whether it is no control character, and none that turns the direction of what is shown."""
    return not unicodedata.category(character).startswith("C")


def suffix_of(name: str) -> str:
    """The ending of a name for the file on this machine, such as `.docx`; empty where it has no plain one."""
    found = PurePosixPath(name).suffix.lower()
    return found if _SUFFIX.fullmatch(found) else ""


def result_name(name: str, source: str, target: str) -> str:
    """`NAME.de.docx` for `NAME.docx` and `NAME.en.docx`, by the codes of the languages; names are clean."""
    stem, suffix = _divided(name)
    return clean_name(f"{stem.removesuffix(f'.{source}') or stem}.{target}{suffix}")


def _divided(name: str) -> tuple[str, str]:
    """A name before and from its ending, which is no longer than endings are."""
    suffix = PurePosixPath(name).suffix if name else ""
    return (name.removesuffix(suffix), suffix) if len(suffix) <= 16 else (name, "")


def attachment(name: str) -> str:
    """The value of `Content-Disposition` for a file to be saved under a clean name (RFC 6266, RFC 8187)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fallback = re.sub(r'[%"\\]', "_", plain).strip(" .") or _UNNAMED
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"
