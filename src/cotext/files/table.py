"""Table of file formats, and detection of the format of a file."""

from importlib import import_module
from pathlib import Path
from typing import Final

from cotext.data.formats import BEGINNING_BYTES, FORMATS, detect_format
from cotext.data.formats.streams import MAX_WHOLE_BYTES, binary_kind, check_readable
from cotext.files.blocks import FileFormat
from cotext.runtime import CotextError, nearest, shown

# Modules that define FORMAT, in the order in which they are tried. They import their libraries only when a
# file is opened.
MODULES: Final = ("html", "docx", "epub", "pptx", "subtitles", "xliff", "po", "text", "markdown")
# Formats that fit any text, and are used only if the file name has their suffix.
BY_NAME: Final = frozenset({"markdown"})
# Suffixes that only certain corpus formats use (`cotext.data.formats`).
CORPORA: Final = {".jsonl": ("jsonl", "wmt"), ".tsv": ("tsv",), ".tmx": ("tmx",)}
# Formats whose files may not be recognisable by content.
ANY_TEXT: Final = BY_NAME | {"html"}
PLAIN: Final = ("text", "tsv")  # corpus formats that cannot be detected from the content
GENERIC: Final = "prose"  # the format of any text that is not a corpus


def file_formats() -> dict[str, FileFormat]:
    """Return all formats by name, in the order in which they are tried."""
    formats: list[FileFormat] = [import_module(f"cotext.files.{module}").FORMAT for module in MODULES]
    return {format.name: format for format in formats}


def file_suffixes() -> list[str]:
    """Return the suffixes of all formats, sorted."""
    return sorted({suffix for format in file_formats().values() for suffix in format.suffixes})


def recognise(head: bytes, name: str) -> FileFormat | None:
    """Return the format of a file, detected from its first bytes; if several fit, its name decides.

    Returns None if no file format fits; the file may be a corpus (`cotext.data.formats`).
    """
    fitting = [format for format in file_formats().values() if format.recognises(head)]
    suffix = Path(name).suffix.lower()
    named = [format for format in fitting if suffix in format.suffixes]
    return next(iter(named or (format for format in fitting if format.name not in BY_NAME)), None)


def require_fitting_name(out: Path, format: FileFormat | str, source: Path | None = None) -> None:
    """Raise CotextError if an output has the suffix of a format other than the one that is written.

    `format`: a file format, or the name of a corpus format. Unknown suffixes and the suffix of the source are
    allowed.
    """
    suffix, source_suffix = out.suffix.lower(), source.suffix.lower() if source is not None else ""
    name, suffixes = (format, ()) if isinstance(format, str) else (format.name, format.suffixes)
    if (suffix in CORPORA and name in CORPORA[suffix]) or (suffix == ".txt" and not suffixes):
        return
    known = suffix in CORPORA or any(suffix in other.suffixes for other in file_formats().values())
    # Each suffix of subtitles is a separate format.
    fits = suffix in suffixes and not (name == "subtitles" and source_suffix in suffixes)
    if known and suffix != source_suffix and not fits:
        wanted = source_suffix if source_suffix in suffixes or not suffixes else suffixes[0]
        hint = f"let --out end in {wanted}" if wanted else "give --out another name"
        raise CotextError(f"{out}: ends in {out.suffix}, but the output is written as {name}; {hint}")


def named_format(name: str) -> FileFormat | None:
    """Return the format with the suffix of a file name; None if there is none, or it is plain text."""
    suffix = Path(name).suffix.lower()
    formats = (format for format in file_formats().values() if suffix in format.suffixes)
    return next((format for format in formats if format.name != "prose"), None)


def read_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises CotextError if the path is not a regular file, cannot be read, or is larger than MAX_WHOLE_BYTES.
    """
    _check_regular(path)
    if (size := path.stat().st_size) > MAX_WHOLE_BYTES:
        raise CotextError(f"{path}: has {size:,} bytes, but the limit is {MAX_WHOLE_BYTES:,}; split it")
    return _beginning(path, size)


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise CotextError(f"{path}: is a folder; give the files in it, such as {path}/*")
    check_readable(path)
    if not path.is_file():
        raise CotextError(
            f"{path}: is not a regular file; copy it to a regular file, or give - for standard input"
        )


def format_of(path: Path, name: str | None = None) -> FileFormat | str:
    """Return the format of a file, or the name of a corpus format; detected from the content unless named.

    Raises CotextError if the format is unknown, the file is empty, or its content does not fit its suffix.
    """
    formats = file_formats()
    if name is not None:
        if name in formats:
            return formats[name]
        if name.partition(":")[0] in FORMATS:
            return name
        known = [*formats, *FORMATS]
        nearest_names = nearest(name, known)
        hint = f"did you mean {nearest_names[0]}? " if nearest_names else ""
        raise CotextError(f"unknown format {shown(name)}: {hint}known formats are {', '.join(known)}")
    _check_regular(path)
    if not (head := _beginning(path, BEGINNING_BYTES)):
        raise CotextError(f"{path}: is empty: there is nothing to translate; omit this file")
    recognised = recognise(head, path.name)
    if recognised is not None and recognised.name != GENERIC:
        return recognised
    if kind := binary_kind(head):
        raise CotextError(
            f"{path}: not a supported format: it looks like {kind}; save it in a supported format, such as "
            ".docx or plain text"
        )
    if (corpus := detect_format(path)) not in PLAIN:
        return corpus
    named = named_format(path.name)
    if named is None:
        return corpus if recognised is None or corpus != "text" else recognised
    if named.name not in ANY_TEXT:
        raise CotextError(
            f"{path}: ends in {path.suffix}, but it contains only text; save it as {path.suffix} again, "
            "or rename it to .txt to translate it as text (--format prose)"
        )
    return named


def _beginning(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None
