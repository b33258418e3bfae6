"""Files of a server under test: sent, refused, and waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pytest

from cotext.serving.record import RequestError
from cotext.serving.service import Service
from cotext.serving.state import JobOptions, JobStatus, JobTicket

SECONDS = 60.0
TEXT = b"The cat sees a dog. It runs.\n\nIt sings!\n"


@dataclass(frozen=True, slots=True)
class Sender:
    """A client of the jobs of a service."""

    service: Service
    client: str = "anybody"
    system: str = "window"

    def send(self, content: bytes = TEXT, name: str = "a.txt") -> JobTicket:
        system = self.service.systems.named(self.system)
        return self.service.jobs.submit(self.client, system, BytesIO(content), name, JobOptions())

    def status(self, ticket: JobTicket) -> JobStatus:
        return self.service.jobs.status(ticket.id, self.client, ticket.key)

    def finished(self, ticket: JobTicket) -> JobStatus:
        until(lambda: self.status(ticket).finished)
        return self.status(ticket)

    def translated(self, ticket: JobTicket) -> bytes:
        status = self.finished(ticket)
        assert status.state == "done", status.message
        return self.service.jobs.result(ticket.id, self.client, ticket.key)[0].read_bytes()


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> RequestError:
    """The error of a call that has to be refused."""
    with pytest.raises(RequestError) as error:
        call(*arguments, **options)
    return error.value


def until(ready: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def long_text(sentences: int) -> bytes:
    """A document of so many sentences, all different."""
    return " ".join(f"It {n} runs." for n in range(sentences)).encode()
