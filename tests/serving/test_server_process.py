"""`cotext serve` as a process: what it prints, refuses and logs, and how it stops."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from cotext.data.documents import Languages
from cotext.serving import require_packages
from cotext.serving.application import listening_socket
from cotext.serving.keys import add_key, read_keys
from cotext.serving.systems import Systems, open_systems
from cotext.translation.open import open_run
from tests.command_line import must_refuse, succeed
from tests.refusals import must_raise
from tests.serving.loopback import listening
from tests.serving.process import ServerProcess, serving
from tests.serving.tiny_server import tiny_tokenizer, write_system, write_systems
from tests.tiny_runs import run_config

SECRET = "Zuckerwatte"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_systems(tmp_path_factory.mktemp("runs"))


def test_a_server_prints_logs_and_stops(runs: list[Path], tmp_path: Path) -> None:
    """The first curl works as it is; a request in flight is finished; nothing of a text is logged."""
    state = tmp_path / "state"
    with serving([runs[0], f"wide={runs[1]}"], state, "--max-waiting", "1") as server:
        assert server.printed[1:3] == ["  sentence  en-de", "  wide  en-de"]
        shown = subprocess.run(server.printed[-1], shell=True, capture_output=True, timeout=30, check=True)
        assert b'"translations"' in shown.stdout
        assert state.stat().st_mode & 0o777 == 0o700
        with httpx.Client(base_url=server.address, timeout=30) as client:
            assert client.get("/ready").json() == {"status": "ready"}
            client.post("/api/files", files={"file": ("a.txt", b"It is.")}).raise_for_status()
            assert not [path for path in state.rglob("*") if path.stat().st_mode & 0o077]
            with half_sent(server.address, {"system": "wide", "text": f"{SECRET}. It is. " * 3}) as rest:
                server.signal(signal.SIGTERM)
                await_ready(server.address, "stopping")
                refused = client.get("/languages")
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert refused.json()["error"]
                assert b'"signature"' in rest()
        assert server.ended() == 0
        assert server.printed[0] == f"open {server.address} in a browser"
        assert server.printed[-1].startswith("stopping")
        lines = [line for line in server.log if line["event"] == "request"]
        assert {"/v2/translate", "/api/translate"} <= {line["route"] for line in lines}
        one = next(line for line in lines if line["route"] == "/api/translate")
        assert (one["sentences"], one["system"], one["client"], one["status"]) == (6, "wide", "anybody", 200)
        assert one["tokens"] > 6
        assert not any(SECRET in line for line in server.log_text)


def test_a_second_signal_ends_it_at_once(runs: list[Path], tmp_path: Path) -> None:
    server = ServerProcess(runs[:1], tmp_path, "--max-waiting", "1")
    with half_sent(server.address, {"system": "sentence", "text": "It is."}):
        server.signal(signal.SIGINT)
        await_ready(server.address, "stopping")
        server.signal(signal.SIGINT)
        assert server.ended() == -signal.SIGINT


@contextmanager
def half_sent(address: str, body: dict[str, Any]) -> Iterator[Callable[[], bytes]]:
    """A request to translate whose body is half there; called, it sends the rest and gives the answer."""
    host, port = address.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = f"POST /api/translate HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    head += f"Accept: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + content[:10])

        def rest() -> bytes:
            connection.sendall(content[10:])
            return everything(connection)

        await_ready(address, "full")
        yield rest


def await_ready(address: str, why: str) -> None:
    """Wait until `/ready` says that the server is full, or stopping."""
    while httpx.get(f"{address}/ready").json().get("message") != why:
        time.sleep(0.01)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes the connection."""
    with suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


# --- what is refused before anything is loaded


def test_refusals_of_the_command(runs: list[Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        must_refuse(f"--port {port}", "serve", runs[0], "--port", str(port))
    must_refuse("serve-key add", "serve", runs[0], "--host", "0.0.0.0", "--port", "0")
    must_refuse("not an address", "serve", runs[0], "--host", "nowhere.invalid")
    must_refuse("no such run", "serve", tmp_path / "none", "--port", "0", "--state", tmp_path)
    must_refuse("NAME=FOLDER", "serve", runs[0], runs[0], "--port", "0", "--state", tmp_path)
    must_refuse("NAME=FOLDER", "serve", f"a={runs[0]}", f"a={runs[1]}", "--port", "0")
    must_refuse("--cors", "serve", runs[0], "--cors", "https://a.example/b", "--port", "0")
    must_refuse("--languages", "serve", runs[0], "--languages", "english", "--port", "0")
    open_to_all = tmp_path / "keys"
    add_key(open_to_all, "a")
    open_to_all.chmod(0o644)
    must_refuse(
        "chmod 600", "serve", runs[0], "--keys", open_to_all, "--port", "0", "--state", tmp_path / "s"
    )


def test_languages_of_a_run_that_knows_none(runs: list[Path], tmp_path: Path) -> None:
    run = write_system(tmp_path / "unknown", run_config(), tiny_tokenizer(), 1, languages="")
    must_raise("--languages en-de", open_systems, [run], "cpu")
    systems = open_systems([run, runs[0]], "cpu", languages=Languages("fr", "de"))
    assert [str(system.languages) for system in systems] == ["fr-de", "en-de"]
    assert systems.named("unknown").opened.signature == open_run(run, "cpu").signature


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "python_multipart", None)
    must_raise(r"python_multipart.*'\.\[serve\]'", require_packages)


# --- keys from the command line


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys.json"
    made = succeed("serve-key", "add", "weblate", "--keys", path, "--requests-per-minute", "90")
    key = made.out.strip()
    assert len(key) > 40
    [kept] = read_keys(path)
    assert (kept.name, kept.requests_per_minute) == ("weblate", 90)
    assert key not in path.read_text()
    must_refuse("already has a key of weblate", "serve-key", "add", "weblate", "--keys", path)
    listed = succeed("serve-key", "list", "--keys", path).out
    assert listed.startswith("weblate\t")
    assert "90 requests a minute" in listed
    assert key not in listed
    must_refuse("it has keys of weblate", "serve-key", "revoke", "omegat", "--keys", path)
    succeed("serve-key", "revoke", "weblate", "--keys", path)
    assert read_keys(path) == []
    for wrong in (["add"], ["list", "a"], ["make", "a"], ["add", "a b"], ["add", "../a"]):
        must_refuse("", "serve-key", *wrong, "--keys", path)
    must_refuse("", "serve-key", "list")
    path.write_text('{"keys": [{"name": "a", "sha256": "x", "made": ""}]}')
    must_refuse("damaged", "serve-key", "list", "--keys", path)


# --- connections


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n"])
def test_a_request_that_does_not_come_is_not_waited_for(
    systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Neither the first of a connection nor one after another."""
    monkeypatch.setattr("cotext.serving.application.HEAD_SECONDS", 0.2)
    with listening(systems, tmp_path) as (_, address):
        for before in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with socket.create_connection(address, timeout=10) as client:
                client.sendall(before + sent)
                assert everything(client).count(b"HTTP/1.1") == (1 if before else 0)


def test_the_host_of_an_absolute_address_counts(systems: Systems, tmp_path: Path) -> None:
    with listening(systems, tmp_path) as (_, address), httpx.Client() as client:
        for host, status in (("localhost", 200), ("evil.example", 403)):
            target = {"target": f"http://{host}/health".encode()}
            found = client.get(f"http://127.0.0.1:{address[1]}", extensions=target)
            assert found.status_code == status


def test_more_connections_than_there_may_be(
    systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.serving.application.MAX_CONNECTIONS", 3)
    with listening(systems, tmp_path) as (_, address):
        idle = [socket.create_connection(address, timeout=10) for _ in range(3)]
        time.sleep(0.1)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{address[1]}/health", timeout=10)
        for each in idle:
            each.close()
        time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{address[1]}/health", timeout=10).status_code == 200


@pytest.mark.outside
def test_the_unit_of_the_documentation_is_one(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    page = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
    [unit] = re.findall(r"```ini\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "cotext.service"
    path.write_text(unit.replace("/opt/cotext/bin/cotext", sys.executable))
    done = subprocess.run([program, "verify", path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_loopback_by_other_names() -> None:
    for host in ("localhost", "::1", "127.0.0.9"):
        if host != "::1" or Path("/proc/net/if_inet6").is_file():
            listening_socket(host, 0, False).close()
