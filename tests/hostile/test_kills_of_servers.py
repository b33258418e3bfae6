"""Servers of files, killed at moments drawn at random: nothing is lost, doubled, or done twice."""

import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.hostile.attacks import Attacks
from tests.killing import Moment
from tests.serving.served import Death, Served, insisting
from tests.serving.tiny_server import VIEWS, write_systems
from tests.serving.waiting import long_text

ROUNDS = 3  # servers, each killed several times
KILLS = 6
FILES = 5
# What a server does with files, in the order in which it does it.
MOMENTS = ("source.txt", "result.txt", "result.txt.partial", "job.json", "")


class Sending(threading.Thread):
    """A client that sends files whatever happens, and asks for them until all are done."""

    def __init__(self, served: Served, contents: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.served, self.contents = served, contents
        self.ids: dict[str, bytes] = {}
        self.broken = 0
        self.problems: list[str] = []
        self.done: set[str] = set()

    def run(self) -> None:
        with self.served.client() as client:
            for content in self.contents:
                while True:
                    insisting(client, "/api/files")
                    try:
                        answer = client.post("/api/files", files={"file": ("a.txt", content)})
                    except httpx.TransportError:
                        self.broken += 1
                        continue
                    if answer.status_code != 201:
                        self.problems.append(answer.text)
                        return
                    self.ids[answer.json()["id"]] = content
                    break
            while self.done != self.ids.keys() and not self.problems:
                for id in self.ids:
                    answer = insisting(client, f"/api/files/{id}")
                    state = answer.json().get("state", answer.text)
                    if state == "done":
                        self.done.add(id)
                    elif state not in ("queued", "translating"):
                        self.problems.append(str(state))
                time.sleep(0.05)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_servers_of_files_are_killed(attacks: Attacks, tmp_path: Path, number: int) -> None:
    runs = write_systems(tmp_path / "systems", {name: VIEWS[name] for name in ("window", "document")})
    served = Served(runs[:1], tmp_path, {"files_at_once": 2})
    contents = [long_text(4 + 3 * n) for n in range(FILES)]
    sending = Sending(served, contents)
    sending.start()
    for _ in range(KILLS):
        kind = attacks.random.choice(["windows", "operation", "time"])
        death = None
        if kind == "windows":
            death = Death(windows=attacks.random.randint(1, 12))
        elif kind == "operation":
            moment = Moment(attacks.random.randint(1, 6), attacks.random.choice(MOMENTS))
            death = Death(moment=moment)
        served.start(death)
        served.process.join(timeout=attacks.random.uniform(1.0, 5.0))
        killed_itself = served.process.exitcode is not None
        served.kill() if not killed_itself else served.died()
        attacks.unharmed()
    served.start()
    sending.join(timeout=300)
    assert not sending.is_alive()
    assert sending.problems == []
    with served.client() as client:
        known = {each["id"]: each for each in insisting(client, "/api/files").json()["files"]}
        # An answer that was lost may be of a file that was taken.
        assert sending.ids.keys() <= known.keys()
        assert len(known) <= FILES + sending.broken
        results = {id: client.get(f"/api/files/{id}/result").content for id in sending.ids}
        searched = Counter(served.windows())
        assert {window: count for window, count in searched.items() if count > 1} == {}
        served.kill()
        shutil.rmtree(served.state)
        served.start()
        insisting(client, "/api/files")
        for id, content in sending.ids.items():
            answer = client.post("/api/files", files={"file": ("a.txt", content)})
            again = answer.json()["id"]
            while insisting(client, f"/api/files/{again}").json()["state"] != "done":
                time.sleep(0.05)
            assert client.get(f"/api/files/{again}/result").content == results[id]
    served.kill()
