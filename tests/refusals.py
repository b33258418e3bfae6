"""Check that a function raises an error; for commands, see `must_refuse` of tests/command_line.py."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cotext.runtime import CotextError


def must_raise(message: str, function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Call a function that must raise CotextError with a matching message; return the message.

    An iterator that it returns is read to its end.
    """
    with pytest.raises(CotextError, match=message or None) as caught:
        _read(function(*arguments, **options))
    return str(caught.value)


def _read(found: object) -> None:
    for _ in found if isinstance(found, Iterator) else ():
        pass
