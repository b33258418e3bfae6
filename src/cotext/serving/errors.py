"""What a client is told when a request cannot be answered; every dialect writes it in its own form."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

STOPPED_SECONDS: Final = 10.0
# Two parts at least: "and/or" and "/v2" are no paths of this machine.
_ABSOLUTE_PATH: Final = re.compile(r"(?<![\w/:<.])/(?:[^\s/:'\"(),;<>]+/)+([^\s/:'\"(),;<>]*)")


class RequestError(Exception):
    """A request that is refused: an HTTP status, and what is wrong and what to do, for the client's eyes.

    The message never has a path of this machine, nor text of another client. `retry_after`: seconds.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def stopping() -> RequestError:
    """What is told of work that ends, or is not begun, because the server stops."""
    return RequestError(503, "the server stops; try again later", STOPPED_SECONDS)


def without_paths(message: str, names: Mapping[Path, str]) -> str:
    """A message for a client: of paths of this machine, only the last part is left.

    `names`: what known ones are called, which are found with spaces in their names, and relative ones.
    """
    forms = {form: name for path, name in names.items() for form in (str(path), str(path.absolute()))}
    for form in sorted(forms, key=len, reverse=True):
        if form not in (".", "/"):
            message = message.replace(form, forms[form])
    return _ABSOLUTE_PATH.sub(lambda match: match[1] or "...", message)
