"""`/api/files`: files are sent, watched, fetched and forgotten; forms that are too much, or none."""

import errno
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO

import pytest
from starlette.datastructures import UploadFile
from starlette.testclient import TestClient

from cotext.files.table import file_formats, recognise
from cotext.serving import requests
from cotext.serving.requests import Form
from cotext.serving.state import JobTicket, Space
from cotext.serving.systems import System, Systems
from tests.command_line import succeed
from tests.files import structures
from tests.loops import loop_over
from tests.serving.loopback import sent_for, served
from tests.serving.test_serving_commands import commands, curl
from tests.serving.tiny_server import tiny_application
from tests.serving.waiting import TEXT, until

CORPORA = {
    "documents.jsonl": b'{"id": "a", "sentences": ["It runs.", "It sings!"]}\n',
    "table.tsv": b"a\tIt runs.\na\tIt sings!\nb\tA dog eats.\n",
}


@pytest.fixture
def client(systems: Systems, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a small server."""
    made = tiny_application(systems, tmp_path / "state", max_file_bytes=200_000, max_text_bytes=2_000)
    with TestClient(made, base_url="http://localhost") as client, closing(made.state.service.jobs):
        yield client


def sent(client: TestClient, content: bytes = TEXT, name: str = "a.txt", **fields: str) -> str:
    answer = client.post("/api/files", files={"file": (name, content)}, data={"system": "window", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def left(client: TestClient) -> list[Any]:
    """The folders of jobs, and the reserved space."""
    app: Any = client.app
    jobs = app.state.service.jobs
    return [*jobs.table.root.iterdir(), *jobs._space._entries]


def finished(client: TestClient, id: str) -> dict[str, Any]:
    """The status of a file, once nothing more will happen."""
    until(lambda: client.get(f"/api/files/{id}").json()["state"] in ("done", "error"))
    status: dict[str, Any] = client.get(f"/api/files/{id}").json()
    return status


def test_a_file_from_its_upload_to_its_download(client: TestClient) -> None:
    terms = [["cat", "Ding"], *([f"{'long ' * 20}{n}", "x"] for n in range(99))]  # more than 2,000 bytes
    id = sent(client, name="Grüße.txt", glossary=json.dumps(terms))
    last = finished(client, id)
    assert (last["state"], last["sentences_done"], last["sentences"]) == ("done", 3, 3)
    assert client.get("/api/files").json() == {"files": [last]}
    answer = client.get(f"/api/files/{id}/result")
    assert "Ding" in answer.text
    assert answer.headers["content-disposition"].endswith("filename*=UTF-8''Gr%C3%BC%C3%9Fe.de.txt")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert client.delete(f"/api/files/{id}").status_code == 204
    for path in ("", "/result"):
        assert client.get(f"/api/files/{id}{path}").status_code == 404
    assert client.get("/api/files").json() == {"files": []}


def drawn() -> dict[str, tuple[bytes, str]]:
    """A file of each format, and the ending of its name."""
    found = {}
    for name, make in structures.STRUCTURES.items():
        for seed in range(20):
            content, file_name = make(random.Random(seed))
            format = recognise(content, file_name)
            if format is not None and format.name == name:
                found[name] = content, Path(file_name).suffix
                break
    return found


def test_every_format_comes_back_as_from_the_command(
    client: TestClient, systems: Systems, tmp_path: Path
) -> None:
    assert set(drawn()) == set(file_formats())
    files = CORPORA | {f"{name}{suffix}": content for name, (content, suffix) in drawn().items()}
    (tmp_path / "files").mkdir()
    for name, content in files.items():
        (tmp_path / "files" / name).write_bytes(content)
    run = systems.named("sentence").opened.folder
    paths = sorted((tmp_path / "files").iterdir())
    succeed("translate", run, *paths, "--out-dir", tmp_path / "out", "--device", "cpu")
    ids = {path.name: sent(client, path.read_bytes(), path.name, system="sentence") for path in paths}
    for name, id in ids.items():
        last = finished(client, id)
        assert last["state"] == "done", (name, last["message"])
        assert client.get(f"/api/files/{id}/result").content == (tmp_path / "out" / name).read_bytes(), name


def test_a_text_that_could_be_a_corpus_is_one_document(
    client: TestClient, systems: Systems, tmp_path: Path
) -> None:
    content = b"\n  The cat sees a dog\n\n\nIt runs\r\n* It sings"
    (tmp_path / "list.txt").write_bytes(content)
    run = systems.named("window").opened.folder
    written = tmp_path / "out.txt"
    succeed("translate", run, tmp_path / "list.txt", "--format", "prose", "--out", written, "--device", "cpu")
    for name in ("list.txt", "list"):
        id = sent(client, content, name)
        last = finished(client, id)
        assert (last["state"], last["sentences"]) == ("done", 3), last["message"]
        result = client.get(f"/api/files/{id}/result").content
        assert result == written.read_bytes()
        assert (result[:3], result.count(b"\n"), result.count(b"\r\n* "), result[-1:] == b"\n") == (
            b"\n  ", 5, 1, False
        )  # fmt: skip


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_documentation(systems: Systems, tmp_path: Path) -> None:
    (tmp_path / "letter.docx").write_bytes(drawn()["docx"][0])
    named = Systems([System("a", systems.named("sentence").opened)])
    with served(tiny_application(named, tmp_path / "state")) as client:
        address = str(client.base_url).rstrip("/")
        send, *others = commands("docs/serving-apis.md", "## Files")
        id = json.loads(curl(send, address, tmp_path))["id"]
        look, *others = (each.replace("/ID", f"/{id}") for each in others)
        until(lambda: json.loads(curl(look, address, tmp_path))["state"] == "done")
        for each in others:
            curl(each, address, tmp_path)
    assert (tmp_path / "letter.de.docx").read_bytes()[:2] == b"PK"


def form(*parts: tuple[str, bytes], end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n%s\r\n\r\n%s\r\n" % (h.encode("latin-1"), c) for h, c in parts) + end


FILE = 'Content-Disposition: form-data; name="file"; filename="a.txt"'
SYSTEM = ('Content-Disposition: form-data; name="system"', b"window")
GLOSSARY = SYSTEM[0].replace("system", "glossary")
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
WRONG: dict[str, tuple[bytes, int, str]] = {
    "no file": (form(SYSTEM), 400, "no file"),
    "a field called file": (form(('Content-Disposition: form-data; name="file"', TEXT)), 400, "no file"),
    "two files": (form((FILE, TEXT), (FILE, TEXT)), 400, "several"),
    "cut short": (form((FILE, TEXT), end=b""), 400, "incomplete: its end is missing"),
    "cut in a header": (b"--b\r\nContent-Dispo", 400, "incomplete: its end is missing"),
    "no form": (b"hello", 400, "damaged"),
    "nothing": (b"", 400, "incomplete: its end is missing"),
    "no name": (form(("Content-Disposition: form-data", TEXT)), 400, "damaged"),
    "too long a header": (form((f"{FILE}; x={'y' * 9000}", TEXT)), 400, "damaged"),
    "NUL in a name": (form((FILE, TEXT), (SYSTEM[0].replace("sys", "s\0s"), b"")), 400, "NUL"),
    "too many fields": (form((FILE, TEXT), *[SYSTEM] * 99), 413, "more than 64 fields"),
    "too long a field": (form((FILE, TEXT), (SYSTEM[0], b"x" * 80_000)), 413, "bytes in the fields"),
    "too long fields": (form((FILE, TEXT), *[(SYSTEM[0], b"x" * 20_000)] * 4), 413, "bytes in the fields"),
    "too long a file": (form((FILE, b"x" * 201_000), SYSTEM), 413, "200,000 bytes"),
    "an empty file": (form((FILE, b""), SYSTEM), 400, "a.txt: is empty"),
    "an unknown system": (form((FILE, TEXT), (SYSTEM[0], b"none")), 404, "unknown system"),
    "an empty term": (form((FILE, TEXT), (GLOSSARY, b'[["", "x"]]')), 400, "not a valid term"),
    "a term twice": (form((FILE, TEXT), (GLOSSARY, b'[["it", "es"], ["it", "er"]]')), 400, "entry 2"),
    "no glossary": (form((FILE, TEXT), (GLOSSARY, b"[[1]]")), 400, "pairs"),
    "terms of two letters": (form((FILE, TEXT), (GLOSSARY, b'{"it": "es"}')), 400, "pairs"),
    "half a character": (form((FILE, TEXT), (GLOSSARY, b'[["it", "\\ud800"]]')), 400, "pairs"),
}


@loop_over("name", WRONG)
@loop_over("size", [7, 100_000])
def test_a_form_that_is_wrong_leaves_nothing(client: TestClient, name: str, size: int) -> None:
    content, status, words = WRONG[name]
    pieces = (content[at : at + size] for at in range(0, len(content), size))
    if len(content) < 100_000 or size > 7:
        answer = client.post("/api/files", content=pieces, headers=FORM)
        assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text
    assert left(client) == []
    assert client.get("/api/files").json() == {"files": []}


def test_a_body_without_end_is_refused_while_it_arrives(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        yield b"--b\r\n" + FILE.encode() + b"\r\n\r\n"
        for _ in range(400):
            yield b"x" * 10_000

    assert client.post("/api/files", content=endless(), headers=FORM).status_code == 413
    answer = client.post("/api/files", content=b"", headers={**FORM, "Content-Length": str(10**12)})
    assert answer.status_code == 413
    assert left(client) == []


@loop_over("kind", ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary="])
def test_another_kind_of_body_is_refused(client: TestClient, kind: str) -> None:
    answer = client.post("/api/files", content=b"x", headers={"Content-Type": kind})
    assert (answer.status_code, "multipart" in answer.json()["message"]) == (400, True)


@loop_over("piece", [1, 61, 4096])
def test_a_file_arrives_whole_in_whatever_pieces(client: TestClient, piece: int) -> None:
    tricky = b"The cat\r\n--c\r\n-- runs.\r\n--cx--\r\n\r\n\r\n--"
    content = form(SYSTEM, (FILE.replace("a.txt", "Gr\xfc\xdfe.txt"), tricky))
    pieces = (content[at : at + piece] for at in range(0, len(content), piece))
    seen = {}

    def submit(client: Any, system: Any, file: BinaryIO, name: str, *others: object) -> JobTicket:
        seen["content"], seen["name"] = file.read(), name
        return JobTicket("id", "key")

    client.app.state.service.jobs.submit = submit  # type: ignore[attr-defined]
    assert client.post("/api/files", content=pieces, headers=FORM).json() == {"id": "id"}
    assert seen == {"content": tricky, "name": "Grüße.txt"}


def test_files_arrive_in_the_folder_of_jobs(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Form, "spool_max_size", 100)
    folders = []

    def stored(size: int, dir: str) -> Any:
        folders.append((size, dir))
        return SpooledTemporaryFile(size, dir=dir)

    monkeypatch.setattr(requests, "SpooledTemporaryFile", stored)
    sent(client, TEXT * 30)
    assert folders == [(100, str(left(client)[0].parent))]


def test_an_upload_without_length_takes_the_space_of_the_largest(client: TestClient) -> None:
    jobs = client.app.state.service.jobs  # type: ignore[attr-defined]
    jobs._space = Space(1_600_000)
    jobs.reserve("anybody", 1)
    answer = client.post("/api/files", content=iter([form((FILE, TEXT), SYSTEM)]), headers=FORM)
    assert (answer.status_code, "allowed per client" in answer.json()["message"]) == (429, True)


def test_a_disk_that_is_full_while_a_file_arrives(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(UploadFile, "write", full)
    answer = client.post("/api/files", files={"file": ("a.txt", TEXT)})
    assert (answer.status_code, "too little disk space" in answer.json()["message"]) == (503, True)
    assert "retry-after" in answer.headers


def test_nothing_is_left_of_a_client_that_hangs_up(client: TestClient) -> None:
    begun = {"type": "http.request", "body": form((FILE, TEXT))[:60], "more_body": True}
    gone = {"type": "http.disconnect"}
    sent_for(client.app, "/api/files", begun, gone, content_type=FORM["Content-Type"])
    assert left(client) == []
    until(lambda: client.get("/api/files").json() == {"files": []})
