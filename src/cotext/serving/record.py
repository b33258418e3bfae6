"""What is known of a request while it is answered: for its log line, its figures, and its limits."""

import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final

from starlette.datastructures import FormData
from starlette.types import Scope

from cotext.translation.translator import Translation

SCOPE_KEY: Final = "cotext.request"


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: nothing of one is told another. `name` may stand in logs and files; a key may not."""

    name: str = "anybody"


@dataclass(slots=True)
class RequestRecord:
    """A request: its route as a template, so that nothing that a client wrote is in it."""

    method: str
    route: str
    dialect: ModuleType | None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.monotonic)
    client: str = ""
    system: str = ""
    status: int = 0
    sentences: int = 0
    tokens: int = 0  # of the translation
    form: FormData | None = None  # whose files are closed when the request is over
    leave: list[Callable[[], None]] = field(default_factory=list)  # called when the request is over


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def record_of(scope: Scope) -> RequestRecord:
    """The record of the request with this scope."""
    record: RequestRecord = scope[SCOPE_KEY]
    return record


def begin(scope: Scope, record: RequestRecord) -> None:
    """Note the record of a request, for the task that answers it."""
    scope[SCOPE_KEY] = record
    _CURRENT.set(record)


def note_system(name: str) -> None:
    """Note the system that is asked, in the record of the request that this task or thread answers."""
    record = _CURRENT.get()
    if record is not None:
        record.system = name


def note_translated(translations: Iterable[Translation]) -> None:
    """Add what was translated to the record of the request that this task or thread answers, if it does."""
    record = _CURRENT.get()
    if record is not None:
        for each in translations:
            record.sentences += len(each.document.sentences)
            record.tokens += sum(each.tokens)


# --- What a server writes about its work: lines of JSON, without anything that a client wrote.

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
