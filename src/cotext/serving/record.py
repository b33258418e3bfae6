"""What is known of a request while it is answered: for its log line, its figures, and its limits."""

import secrets
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from starlette.datastructures import FormData
from starlette.types import Scope

from cotext.translation.translator import Translation

SCOPE_KEY: Final = "cotext.request"


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
