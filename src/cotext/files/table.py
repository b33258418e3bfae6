"""Table of file formats, and detection of the format of a file."""

from importlib import import_module
from pathlib import Path
from typing import Final

from cotext.files.blocks import FileFormat
from cotext.runtime.errors import CotextError

# Modules that define FORMAT, in the order in which they are tried. They import their libraries only when a
# file is opened.
MODULES: Final[tuple[str, ...]] = (
    "html",
    "docx",
    "epub",
    "pptx",
    "subtitles",
    "xliff",
    "po",
    "text",
    "markdown",
)
# Formats that fit any text, and are used only if the file name has their suffix.
BY_NAME: Final = frozenset({"markdown"})
# Suffixes that only certain corpus formats use (`cotext.data.formats`).
CORPORA: Final = {".jsonl": ("jsonl", "wmt"), ".tsv": ("tsv",), ".tmx": ("tmx",)}
# Formats whose files may not be recognisable by content.
ANY_TEXT: Final = BY_NAME | {"html"}


def file_formats() -> dict[str, FileFormat]:
    """Return all formats by name, in the order in which they are tried."""
    formats: list[FileFormat] = [import_module(f"cotext.files.{module}").FORMAT for module in MODULES]
    return {format.name: format for format in formats}


def file_suffixes() -> list[str]:
    """Return the suffixes of all formats, sorted."""
    return sorted({suffix for format in file_formats().values() for suffix in format.suffixes})


def recognise(head: bytes, name: str) -> FileFormat | None:
    """Return the format of a file, detected from its first bytes; its name decides between several.

    Returns None if no file format fits; the file may be a corpus (`cotext.data.formats`).
    """
    fitting = [format for format in file_formats().values() if format.recognises(head)]
    suffix = Path(name).suffix.lower()
    named = [format for format in fitting if suffix in format.suffixes]
    return next(iter(named or (format for format in fitting if format.name not in BY_NAME)), None)


def require_page_name(out: Path) -> None:
    """Raise CotextError if the name of an HTML page has the suffix of another format."""
    require_fitting_name(out, file_formats()["html"])


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
    """Return the format with the suffix of a file name; None if there is none, or for plain text."""
    suffix = Path(name).suffix.lower()
    formats = (format for format in file_formats().values() if suffix in format.suffixes)
    return next((format for format in formats if format.name != "prose"), None)
