"""A server in a process of its own, that may be killed at any moment and started again."""

import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.command_line import free_port
from tests.killing import Moment, die_at
from tests.serving.waiting import SECONDS
from tests.tiny_runs import PROCESSES


@dataclass(frozen=True, slots=True)
class Death:
    """When a server kills itself: once so many windows are in journals, or before a file operation."""

    windows: int = 0
    moment: Moment | None = None


@dataclass(slots=True)
class Served:
    """The server of some runs on a state folder and a port that stay the same."""

    runs: list[Path]
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: ForkServerProcess | None = None

    @property
    def log(self) -> Path:
        return self.folder / "windows.log"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def start(self, death: Death | None = None) -> None:
        arguments = (self.runs, self.folder, self.port, self.settings, death)
        self.process = PROCESSES.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.died()

    def died(self) -> None:
        """Wait until it has killed itself."""
        assert self.process is not None
        self.process.join(SECONDS)
        assert self.process.exitcode == -signal.SIGKILL, self.process.exitcode

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=SECONDS)

    def windows(self) -> list[str]:
        """The windows that were searched and are in a journal: job, document and number of each."""
        return self.log.read_text().splitlines()


def insisting(client: httpx.Client, path: str) -> httpx.Response:
    """The answer to a request that is repeated until there is a server."""
    deadline = time.monotonic() + 10 * SECONDS
    while True:
        try:
            return client.get(path)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _serve(runs: list[Path], folder: Path, port: int, settings: dict[str, Any], death: Death | None) -> None:
    import torch
    import uvicorn

    from cotext.serving.application import application
    from cotext.serving.service import Service
    from cotext.serving.settings import ServerSettings
    from cotext.serving.systems import open_systems
    from cotext.translation.translate_file import NotedWindows

    torch.set_num_threads(1)
    plain, noted = NotedWindows.note, 0

    def note(self: Any, document: int, window: Any) -> None:
        nonlocal noted
        plain(self, document, window)
        with (folder / "windows.log").open("a") as log:
            log.write(f"{self._journal.path.parent.name} {self._units[document]} {window.number}\n")
        noted += 1
        if death is not None and noted == death.windows:
            os.kill(os.getpid(), signal.SIGKILL)

    NotedWindows.note = note  # type: ignore[method-assign]
    service = Service(
        open_systems(runs, "cpu", threads=1), ServerSettings(state=folder / "state", **settings)
    )
    if death is not None and death.moment is not None:
        die_at(death.moment)
    service.jobs.start()
    uvicorn.run(application(service), host="127.0.0.1", port=port, log_level="error")
