"""Records of requests for logs and limits, and the log of the server."""

import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cotext.translation.translator import Translation


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
    content = {
        "method": record.method,
        "route": record.route,
        "status": record.status,
        "seconds": round(time.monotonic() - record.started, 4),
        "client": record.client,
        "system": record.system,
        "sentences": record.sentences,
        "tokens": record.tokens,
        "request": record.id,
    }
    _log.info("request", extra={"content": content})


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
