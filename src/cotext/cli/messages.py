"""Error messages for a terminal: short, and in printable characters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from cotext.runtime import CotextError, shown, visible

if TYPE_CHECKING:
    from cotext.translation.open import OpenedRun

MAX_MESSAGE_LINES = 24
MAX_MESSAGE_WIDTH = 600  # characters of a line: some lines on a screen
# Base class of the errors that typer raises for invalid arguments; typer does not export it.
UsageError: Any = typer.BadParameter.__base__


def on_a_screen(message: str) -> str:
    """Shorten a message to `MAX_MESSAGE_LINES` lines, and long lines to their beginning and end."""
    lines = message.splitlines()
    shown_lines = [_shortened(line) for line in lines[:MAX_MESSAGE_LINES]]
    if len(lines) > MAX_MESSAGE_LINES:
        shown_lines.append(f"... and {len(lines) - MAX_MESSAGE_LINES:,} more lines")
    return "\n".join(shown_lines)


def _shortened(line: str) -> str:
    half = MAX_MESSAGE_WIDTH // 2
    return line if len(line) <= MAX_MESSAGE_WIDTH else f"{line[:half]} ... {line[-half:]}"


def printable(text: str) -> str:
    """Return text from files for a terminal: long lines shortened, control and half characters escaped."""
    return "\n".join(visible(_shortened(line)) for line in text.splitlines())


@contextmanager
def short_refusals() -> Iterator[None]:
    """Shorten the error messages of typer, which contain the whole arguments and the class of the error."""
    try:
        yield
    except UsageError as error:
        error.message = on_a_screen(error.message.replace("Value error, ", "", 1))
        raise


def require_text(number: int, argument: str) -> None:
    """Raise CotextError for an argument that is not valid UTF-8 and could not be printed or stored."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise CotextError(
            f"argument {number}, {shown(argument)}: not UTF-8; rename files and folders to names in UTF-8"
        ) from None


def tell_slow_precision(opened: "OpenedRun") -> None:
    """Print a warning if the precision of a run is slow on its device."""
    from cotext.runtime.progress import say

    if opened.slow:
        say(opened.slow)
