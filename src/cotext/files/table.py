"""The table of file formats, and how the format of a file is recognised."""

from importlib import import_module
from pathlib import Path
from typing import Final

from cotext.files.blocks import FileFormat
from cotext.runtime.errors import CotextError

# Modules that hold a format under the name FORMAT, asked in this order; importable without their libraries,
# which they import when a file is opened.
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
# Formats that any text has, taken only where its name says so.
BY_NAME: Final = frozenset({"markdown"})
# Names of corpora of one format alone (`cotext.data.formats`); any other name may be that of a corpus.
CORPORA: Final = {".jsonl": ("jsonl", "wmt"), ".tsv": ("tsv",), ".parquet": ("parquet",), ".tmx": ("tmx",)}
# Formats of which any text may be a file, though it is not recognised as one.
ANY_TEXT: Final = BY_NAME | {"html"}


def file_formats() -> dict[str, FileFormat]:
    """All formats by name, in the order in which they are asked."""
    formats: list[FileFormat] = [import_module(f"cotext.files.{module}").FORMAT for module in MODULES]
    return {format.name: format for format in formats}


def recognise(head: bytes, name: str) -> FileFormat | None:
    """The format of a file that begins so; its name decides where several formats recognise the content.

    None: not a format of files; it may be a corpus (`cotext.data.formats`).
    """
    found = [format for format in file_formats().values() if format.recognises(head)]
    suffix = Path(name).suffix.lower()
    named = [format for format in found if suffix in format.suffixes]
    return next(iter(named or (format for format in found if format.name not in BY_NAME)), None)


def require_page_name(out: Path) -> None:
    """Raise CotextError where the name of a page of HTML is that of another format."""
    require_fitting_name(out, file_formats()["html"])


def require_fitting_name(out: Path, format: FileFormat | str, source: Path | None = None) -> None:
    """Refuse an output whose name is that of another format than the one that is written.

    `format`: as text, the name of that of a corpus. A suffix that is no format's fits, and so does that of
    the source.

    Raises:
        CotextError: the name is of another format.
    """
    suffix, own = out.suffix.lower(), source.suffix.lower() if source is not None else ""
    name, suffixes = (format, ()) if isinstance(format, str) else (format.name, format.suffixes)
    if (suffix in CORPORA and name in CORPORA[suffix]) or (suffix == ".txt" and not suffixes):
        return
    known = suffix in CORPORA or any(suffix in each.suffixes for each in file_formats().values())
    # Of subtitles, each suffix is a format of its own.
    fits = suffix in suffixes and not (name == "subtitles" and own in suffixes)
    if known and suffix != own and not fits:
        wanted = own if own in suffixes or not suffixes else suffixes[0]
        hint = f"let --out end in {wanted}" if wanted else "give --out another name"
        raise CotextError(f"{out}: ends in {out.suffix}, and what is written is {name}; {hint}")


def named_format(name: str) -> FileFormat | None:
    """The format that the ending of a name says; None: none, or that of plain text."""
    suffix = Path(name).suffix.lower()
    said = [format for format in file_formats().values() if suffix in format.suffixes]
    return next((format for format in said if format.name != "prose"), None)
