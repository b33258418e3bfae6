"""Servers that are killed while they work at files, and started again."""

from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from cotext.serving.systems import Systems
from tests.killing import Moment
from tests.serving.served import Death, Served, insisting
from tests.serving.waiting import long_text

WINDOWS = 8


@pytest.fixture
def served(systems: Systems, tmp_path: Path) -> Iterator[Served]:
    made = Served([systems.named("window").opened.folder], tmp_path, {"files_at_once": 1})
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.join()


def finished(client: httpx.Client, id: str) -> str:
    while True:
        state = str(insisting(client, f"/api/files/{id}").json()["state"])
        if state not in ("queued", "translating"):
            return state


def sent(client: httpx.Client, content: bytes) -> str:
    insisting(client, "/api/files")
    answer = client.post("/api/files", files={"file": ("a.txt", content)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_killed_in_mid_document_and_while_the_result_is_written(served: Served) -> None:
    text = long_text(WINDOWS)
    served.start(Death(windows=3))
    with served.client() as client:
        id, waiting = sent(client, text), sent(client, b"It runs. It sings.")
        served.died()
        assert len(served.windows()) == 3
        served.start(Death(moment=Moment(path=f"{id}/result.txt", operations=("replace",))))
        # Who asks for it is answered through all of this.
        served.died()
        served.start()
        assert [finished(client, id), finished(client, waiting)] == ["done", "done"]
        windows = served.windows()
        assert sorted(windows) == sorted(
            {f"{id} 0 {n}" for n in range(WINDOWS)} | {f"{waiting} 0 {n}" for n in range(2)}
        )
        undisturbed = sent(client, text)
        assert finished(client, undisturbed) == "done"
        results = [client.get(f"/api/files/{each}/result").content for each in (id, undisturbed)]
        assert results[0] == results[1]
        assert len(client.get("/api/files").json()["files"]) == 3
    assert {p.name for p in (served.state / "jobs" / id).iterdir()} == {"job.json", "result.txt"}
