"""`cotext serve` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 60


class ServerProcess:
    """A server that runs, its address, what it has printed, and the lines of its log."""

    def __init__(self, runs: Sequence[Path | str], state: Path, *options: str) -> None:
        command = [sys.executable, "-m", "cotext", "serve", *map(str, runs), "--state", str(state), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--device", "cpu"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self._process.pid
        self.log_text: list[str] = []
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        watchdog = threading.Timer(SECONDS, self._process.kill)
        watchdog.start()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith("curl "):
                break
        watchdog.cancel()
        assert self.printed, self.log_text
        self.address = self.printed[0].split()[1]

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.log_text)]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        code = self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self._process.stdout is not None
        self.printed += self._process.stdout.read().splitlines()
        return code

    def stop(self) -> int:
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.ended()
        finally:
            self._process.kill()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        self.log_text.extend(line.rstrip("\n") for line in self._process.stderr)


@contextmanager
def serving(runs: Sequence[Path | str], state: Path, *options: str) -> Iterator[ServerProcess]:
    server = ServerProcess(runs, state, *options)
    try:
        yield server
    finally:
        server.stop()
