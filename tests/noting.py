"""What functions of the package are called with while a test runs."""

from collections.abc import Callable
from typing import Any

import pytest


def calls_of(patch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., Any]) -> list[Any]:
    """What `note` makes of the arguments of every call of a function or method, which runs as before."""
    noted: list[Any] = []
    work = getattr(owner, name)

    def noting(*arguments: Any, **options: Any) -> Any:
        noted.append(note(*arguments, **options))
        return work(*arguments, **options)

    patch.setattr(owner, name, noting)
    return noted
