"""What a server writes about its work: lines of JSON, without anything that a client wrote."""

import json
import logging
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import Any, Final

from cotext.serving.record import RequestRecord

LOGGER: Final = "cotext.serving"
MAX_FRAMES: Final = 12
# Asked every few seconds by whoever watches a server.
QUIET_ROUTES: Final = frozenset({"/health", "/ready", "/metrics"})
_log = logging.getLogger(LOGGER)


def log(event: str, level: int = logging.INFO, **content: Any) -> None:
    """Write a line about an event; `content` holds nothing that a client wrote."""
    _log.log(level, event, extra={"content": content})


def log_request(record: RequestRecord) -> None:
    """Write a line about a request that is over."""
    if record.route in QUIET_ROUTES and record.status < 400:
        return
    log(
        "request",
        method=record.method,
        route=record.route,
        status=record.status,
        seconds=round(time.monotonic() - record.started, 4),
        client=record.client,
        system=record.system,
        sentences=record.sentences,
        tokens=record.tokens,
        request=record.id,
    )


def log_error(record: RequestRecord, error: BaseException) -> None:
    """Write a line about a fault of ours: its kind and where it happened; its message may quote a client."""
    log("error", logging.ERROR, request=record.id, route=record.route, **kind_and_place(error))


def kind_and_place(error: BaseException) -> dict[str, Any]:
    """The kind of an exception, and the last lines of code that it came through."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return {
        "error": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


class JsonLines(logging.Formatter):
    """A line of JSON for each record; of exceptions, the kind and place alone.

    What libraries say may quote a client: that they said something is told, and not what.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage().strip() if _is_ours(record.name) else "message",
            "logger": record.name,
        }
        content |= record.__dict__.get("content", {})
        if record.exc_info and record.exc_info[1] is not None:
            content |= kind_and_place(record.exc_info[1])
        return json.dumps(content, ensure_ascii=False)


def log_to_standard_error() -> None:
    """Send what this process has to say to standard error, a line of JSON each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    logging.getLogger().handlers = [handler]
    for name, level in ((None, logging.WARNING), (LOGGER, logging.INFO)):
        logging.getLogger(name).setLevel(level)


def _is_ours(name: str) -> bool:
    return name == LOGGER or name.startswith(f"{LOGGER}.")
