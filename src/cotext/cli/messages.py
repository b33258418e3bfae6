"""Error messages for a terminal: short, and in printable characters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotext.runtime.errors import CotextError, shown, visible

if TYPE_CHECKING:
    from cotext.translation.open import OpenedRun

MAX_MESSAGE_LINES = 24
MAX_MESSAGE_WIDTH = 600  # characters of a line: a few of a screen
# What typer raises for arguments that do not fit, of which it exports one kind.
UsageError: Any = typer.BadParameter.__base__


def on_a_screen(message: str) -> str:
    """The beginning of a long message, and of long lines the beginning and the end."""
    lines = message.splitlines()
    shown_lines = [_shortened(line) for line in lines[:MAX_MESSAGE_LINES]]
    if len(lines) > MAX_MESSAGE_LINES:
        shown_lines.append(f"... and {len(lines) - MAX_MESSAGE_LINES:,} more lines")
    return "\n".join(shown_lines)


def _shortened(line: str) -> str:
    half = MAX_MESSAGE_WIDTH // 2
    return line if len(line) <= MAX_MESSAGE_WIDTH else f"{line[:half]} ... {line[-half:]}"


def printable(text: str) -> str:
    """Lines that come from files: long ones shortened, control and half characters as escapes."""
    lines = text.splitlines()
    shown_lines = map(_shortened, lines)
    return "\n".join(map(visible, shown_lines))


@contextmanager
def short_refusals() -> Iterator[None]:
    """Shorten what typer says of arguments: it repeats them, however long they are."""
    try:
        yield
    except UsageError as error:
        error.message = on_a_screen(error.message)
        raise


def require_text(number: int, argument: str) -> None:
    """Refuse what could be neither shown nor noted in any file: all of them are texts in UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise CotextError(
            f"argument {number}, {shown(argument)}: not UTF-8; give files and folders names in UTF-8"
        ) from None


def tell_slow_precision(opened: "OpenedRun") -> None:
    """Say so where the precision of a run is slow on its device."""
    from cotext.runtime.progress import say

    if opened.slow:
        say(opened.slow)


def tell_faults(out: Path, faults: str) -> None:
    """Print what the mechanical checks found in a translated file."""
    if faults:
        typer.echo(f"{printable(str(out))}: to look at: {printable(faults)}")


def tell_corpus_faults(out: Path, source: Path, format: str, target_language: str) -> None:
    """Check a translated corpus mechanically, and print what is found."""
    from cotext.files.mechanical import corpus_in_words

    tell_faults(out, corpus_in_words(source, out, format, target_language))
