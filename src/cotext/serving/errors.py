"""Errors of requests, with messages for clients."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

STOPPED_SECONDS: Final = 10.0
# A path has at least two parts: "and/or" and "/v2" are not paths of this machine.
_ABSOLUTE_PATH: Final = re.compile(r"(?<![\w/:<.])/(?:[^\s/:'\"(),;<>]+/)+([^\s/:'\"(),;<>]*)")


class RequestError(Exception):
    """An error response: an HTTP status, and a message for the client.

    The message never contains a path of this machine or text of another client. `retry_after`: seconds.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def stopping() -> RequestError:
    """Return the error for work that is cancelled or not started because the server stops."""
    return RequestError(503, "the server is being stopped; try again later", STOPPED_SECONDS)


def without_paths(message: str, names: Mapping[Path, str]) -> str:
    """Return a message with paths of this machine reduced to their last part.

    `names`: replacements of known paths, which may contain spaces or be relative.
    """
    forms = {form: name for path, name in names.items() for form in (str(path), str(path.absolute()))}
    for form in sorted(forms, key=len, reverse=True):
        if form not in (".", "/"):
            message = message.replace(form, forms[form])
    return _ABSOLUTE_PATH.sub(lambda match: match[1] or "...", message)
