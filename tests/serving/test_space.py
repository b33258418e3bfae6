"""Who can take the space and the connections of whom on a real server, with or without a key."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from cotext.runtime import CotextError
from cotext.serving.application import TimedProtocol
from cotext.serving.keys import add_key
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.loopback import listening
from tests.serving.waiting import SECONDS, TEXT, Sender, until

SPACE = {"max_jobs_bytes": 800_000, "max_file_bytes": 100_000}
FILE_HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


@dataclass(slots=True)
class World:
    """A server with keys, and the clients of two of them."""

    service: Service
    address: tuple[str, int]
    victim: httpx.Client
    keys: dict[str, str]

    def head(self, path: str, announced: int, key: str = "") -> bytes:
        kind = "DeepL-Auth-Key" if path.startswith("/v2") else "Bearer"
        shown = f"Authorization: {kind} {key}\r\n" if key else ""
        return (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{shown}"
            f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {announced}\r\n\r\n"
        ).encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=SECONDS)

    def send(self, content: bytes = TEXT, who: str = "victim") -> httpx.Response:
        """Send a file in the server's own way."""
        return self.victim.post(
            "/api/files",
            files={"file": ("a.txt", content)},
            data={"system": "window"},
            headers={"Authorization": f"Bearer {self.keys[who]}"},
        )

    def done(self, content: bytes = TEXT, who: str = "victim") -> str:
        """Have a file translated."""
        answer = self.send(content, who)
        assert answer.status_code == 201, answer.text
        id = str(answer.json()["id"])
        until(lambda: self.status(id, who)["state"] == "done")
        return id

    def status(self, id: str, who: str = "victim") -> Any:
        answer = self.victim.get(f"/api/files/{id}", headers={"Authorization": f"Bearer {self.keys[who]}"})
        return answer.json() if answer.status_code == 200 else {"state": answer.status_code}


@pytest.fixture
def world(quick_systems: Systems, tmp_path: Path) -> Iterator[World]:
    path = tmp_path / "keys.json"
    keys = {name: add_key(path, name) for name in ("victim", "attacker")}
    with (
        listening(quick_systems, tmp_path / "state", keys=path, **SPACE) as (service, address),
        httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=SECONDS) as client,
    ):
        yield World(service, address, client, keys)


@contextmanager
def uploads(world: World, count: int, head: bytes) -> Iterator[list[socket.socket]]:
    """Requests that have begun, of which nothing more is sent."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(world.connect()))
            opened[-1].sendall(head)
        time.sleep(0.3)  # their heads are read
        yield opened


@loop_over("path", ["/api/files", "/v2/document"])
@loop_over("with_key", [False, True])
def test_what_is_announced_takes_no_space_of_others(world: World, path: str, with_key: bool) -> None:
    """Fifteen files of 100,000 bytes are announced, where there is space for eight."""
    id = world.done()
    head = world.head(path, 100_000, world.keys["attacker"] if with_key else "")
    with uploads(world, 15, head + FILE_HEAD):
        assert world.status(id)["state"] == "done"
        assert world.send().status_code == 201
        assert not with_key or world.send(who="attacker").status_code == 429


@pytest.mark.parametrize("coding", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_behind_its_response_is_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    monkeypatch.setattr("cotext.serving.application.REST_SECONDS", 0.5)
    head = f"POST /api/files HTTP/1.1\r\nHost: localhost\r\n{coding}\r\n\r\n".encode()
    with world.connect() as client:
        client.sendall(head)
        assert b" 403 " in client.recv(65536)
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 10:
                client.sendall(b"x" if "Length" in coding else b"1\r\nx\r\n")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_an_answer_that_is_not_taken_is_cut_off(
    quick_systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request is given up in time, and its connection is closed too, with what waits to be taken."""
    monkeypatch.setattr("cotext.serving.application.TAKE_SECONDS", 1.0)
    connections: list[TimedProtocol] = []
    made = TimedProtocol.connection_made

    def connected(protocol: TimedProtocol, transport: Any) -> None:
        made(protocol, transport)
        connections.append(protocol)

    monkeypatch.setattr(TimedProtocol, "connection_made", connected)
    with listening(quick_systems, tmp_path / "state", send_seconds=0.5) as (service, address):
        sender = Sender(service)
        ticket = sender.send()
        sender.translated(ticket)
        service.jobs.result(ticket.id, sender.client)[0].write_bytes(b"x" * (24 << 20))
        with socket.create_connection(address, timeout=SECONDS) as client:
            head = f"GET /api/files/{ticket.id}/result HTTP/1.1\r\nHost: localhost\r\n\r\n"
            client.sendall(head.encode())
            until(lambda: bool(connections) and connections[0].transport.is_closing())
            time.sleep(2)
            assert connections[0] not in connections[0].connections


def test_a_body_that_ends_behind_its_response_is_followed_by_another_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.serving.application.REST_SECONDS", 0.5)
    with world.connect() as client:
        client.sendall(b"POST /api/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nab")
        time.sleep(0.2)
        assert b" 403 " in client.recv(65536)
        client.sendall(b"cd")
        time.sleep(1)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_form_without_a_place_for_files_takes_no_file(world: World) -> None:
    """Its parts went to the folder for temporary files, 32 MB of each request, before a key was shown."""
    big = {"file": ("a.txt", b"x" * 900_000)}
    for path in ("/translate", "/v2/translate", "/v2/glossaries"):
        assert world.victim.post(path, files=big).status_code == 413, path


def test_limits_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(CotextError, match="give at least --max-files-bytes 808"):
        ServerSettings(state=tmp_path, max_file_bytes=101, max_jobs_bytes=800)
