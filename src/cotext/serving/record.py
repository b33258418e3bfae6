"""Errors of requests, with messages for clients; records of requests for logs and limits; the log."""

import json
import logging
import re
import secrets
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cotext.translation.translator import Translation

USUAL_RETRY_SECONDS: Final = 10.0
# A path has at least two parts: "and/or" and "/v2" are not paths of this machine.
_ABSOLUTE_PATH: Final = re.compile(r"(?<![\w/:<.])/(?:[^\s/:'\"(),;<>]+/)+([^\s/:'\"(),;<>]*)")


class RequestError(Exception):
    """An error response: an HTTP status, and a message for the client.

    The message contains no path of this machine or text of another client. `retry_after`: seconds (429, 503).
    """

    def __init__(self, status: int, message: str, retry_after: float = USUAL_RETRY_SECONDS) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def stopping() -> RequestError:
    """Return the error for work that is cancelled or not started because the server stops."""
    return RequestError(503, "the server is being stopped; try again later")


def without_paths(message: str, names: Mapping[Path, str]) -> str:
    """Return a message with paths of this machine reduced to their last part.

    `names`: replacements of known paths, which may contain spaces or be relative.
    """
    forms = {form: name for path, name in names.items() for form in (str(path), str(path.absolute()))}
    for form in sorted(forms, key=len, reverse=True):
        if form not in (".", "/"):
            message = message.replace(form, forms[form])
    return _ABSOLUTE_PATH.sub(lambda match: match[1] or "...", message)


# --- Records of requests.


@dataclass(slots=True)
class RequestRecord:
    """The record of a request, without text of the client: the route is a template."""

    method: str
    route: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.monotonic)
    client: str = ""
    system: str = ""
    status: int = 0
    sentences: int = 0
    tokens: int = 0  # number of target tokens
    has_slot: bool = False


_OUTSIDE: Final = RequestRecord("", "")  # written outside of requests, and never read
CURRENT: Final[ContextVar[RequestRecord]] = ContextVar("request", default=_OUTSIDE)


def note_translated(translations: Iterable[Translation]) -> None:
    """Add translations to the record of the current request."""
    record = CURRENT.get()
    for translation in translations:
        record.sentences += len(translation.document.sentences)
        record.tokens += sum(translation.tokens)


# --- The log: lines of JSON, without text of clients.

LOGGER: Final = "cotext.serving"
MAX_FRAMES: Final = 12
# Called every few seconds, so only errors are logged; they also work while the server stops.
MONITORING_ROUTES: Final = frozenset({"/health", "/ready"})
_log = logging.getLogger(LOGGER)


def log_request(record: RequestRecord) -> None:
    if not _log.isEnabledFor(logging.INFO) or (record.route in MONITORING_ROUTES and record.status < 400):
        return
    names = ("method", "route", "status", "client", "system", "sentences", "tokens")
    content = {name: getattr(record, name) for name in names}
    times = {"seconds": round(time.monotonic() - record.started, 4), "request": record.id}
    _log.info("request", extra={"content": content | times})


def log_error(record: RequestRecord, error: BaseException) -> str:
    """Log an internal error, without its message, which may quote a client; return one for the client."""
    content = {"request": record.id, "route": record.route, **kind_and_place(error)}
    _log.error("error", extra={"content": content})
    return f"an internal server error occurred; it is in the log as {record.id}"


def kind_and_place(error: BaseException) -> dict[str, Any]:
    """Return the type of an exception and the last frames of its traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return {"error": type(error).__name__, "at": [f"{f.filename}:{f.lineno} {f.name}" for f in frames]}


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


class JsonLines(logging.Formatter):
    """Formatter of log records as lines of JSON, without messages of exceptions and libraries.

    These messages may quote a client.
    """

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name == LOGGER or record.name.startswith(f"{LOGGER}.")
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage().strip() if is_own else "message",
            "logger": record.name,
        }
        content |= record.__dict__.get("content", {})
        if record.exc_info and record.exc_info[1] is not None:
            content |= kind_and_place(record.exc_info[1])
        return _ENCODE(content)


def log_to_standard_error() -> None:
    """Send all logs of this process to standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    logging.getLogger().handlers = [handler]
    for name, level in ((None, logging.WARNING), (LOGGER, logging.INFO)):
        logging.getLogger(name).setLevel(level)
