"""The table of file formats, and how the format of a file is recognised."""

from importlib import import_module
from pathlib import Path
from typing import Final

from cotext.files.blocks import FileFormat

# Modules that hold a format under the name FORMAT, asked in this order; importable without their libraries,
# which they import when a file is opened.
MODULES: Final[tuple[str, ...]] = (
    "wmt",
    "html",
    "docx",
    "odt",
    "epub",
    "pptx",
    "xlsx",
    "subtitles",
    "xliff",
    "tmx",
    "po",
    "json",
    "yaml",
    "text",
    "markdown",
)
# Formats that any text has, taken only where its name says so.
BY_NAME: Final = frozenset({"markdown", "yaml"})
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


def named_format(name: str) -> FileFormat | None:
    """The format that the ending of a name says; None: none, or that of plain text."""
    suffix = Path(name).suffix.lower()
    said = [format for format in file_formats().values() if suffix in format.suffixes]
    return next((format for format in said if format.name != "prose"), None)
