"""Many clients at once on a real server, some of them hostile.

The others get what their texts are alone, which have words that no other client has: a word of somebody
else's, and any change that company makes, is seen. Memory, open files and threads stay bounded.
"""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from tests.serving.hostile_requests import ADDRESSES, BODIES, KINDS, LEAKS, PATHS, RAW, UPLOADS
from tests.serving.process import ServerProcess, serving
from tests.serving.tiny_server import tiny_systems, write_systems
from tests.serving.waiting import until
from tests.translating import translated_lines

CLIENTS = 4
WORKERS = 16
MAX_GROWTH = 200 * 2**20
SLOW_SECONDS = 60.0
NAMES = ("sentence", "window", "document")


@dataclass(slots=True)
class Known:
    """Texts that only one client has, and what they are alone, by system."""

    texts: list[str]
    answers: dict[tuple[str, str], str]

    def ask(self, chance: random.Random, system: str) -> tuple[str, str]:
        text = chance.choice(self.texts)
        return text, self.answers[text, system]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    runs = write_systems(tmp_path_factory.mktemp("runs"), beam=1)
    limits = ["--max-text-bytes", "4096", "--max-file-bytes", "65536", "--max-sentences", "40"]
    with serving(runs, tmp_path_factory.mktemp("serve") / "state", *limits) as made:
        yield made


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> list[Known]:
    """Of texts whose translations are like those of another, nothing could be seen: they are left out."""
    systems = tiny_systems(tmp_path_factory.mktemp("alone"), beam=1)
    chance = random.Random(1)
    texts = [_made_up(chance) for _ in range(4 * CLIENTS)]
    answers: dict[tuple[str, str], str] = {}
    for name in NAMES:
        found = translated_lines(systems.named(name).opened, [[text] for text in texts])
        answers |= {(text, name): answer for text, [answer] in zip(texts, found, strict=True)}
    counts = Counter((name, answer) for (_, name), answer in answers.items())
    telling = [text for text in texts if all(counts[name, answers[text, name]] == 1 for name in NAMES)]
    assert len(telling) >= 2 * CLIENTS
    return [Known(telling[number::CLIENTS], answers) for number in range(CLIENTS)]


def _made_up(chance: random.Random) -> str:
    """Three sentences of words that are nowhere else."""
    words = ["".join(chance.choices("abdegiklmnoprstuvz", k=chance.randint(4, 7))) for _ in range(6)]
    return "{} {}. {}! {} {} {}.".format(*(word.title() for word in words))


@dataclass(slots=True)
class Attack:
    """What came of a run of requests."""

    server: ServerProcess
    clients: list[Known]
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def note(self, kind: str, answer: httpx.Response) -> httpx.Response:
        self.statuses[kind, answer.status_code] += 1
        # 503: a document that is not ready, or a server that is full.
        if answer.status_code >= 500 and answer.status_code != 503:
            self.faults.append(f"{kind}: {answer.status_code} {answer.text[:300]}")
        if LEAKS.search(answer.text):
            self.faults.append(f"{kind}: leak: {answer.text[:300]}")
        return answer

    def require(self, kind: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self.faults.append(f"{kind}: {found!r} instead of {wanted!r}")


# --- good requests


async def _deepl(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    asked = [attack.clients[who].ask(chance, "sentence") for _ in range(chance.randint(1, 3))]
    body = {"text": [text for text, _ in asked], "target_lang": "DE"}
    key = {"authorization": f"DeepL-Auth-Key client-{who}"}
    answer = attack.note("deepl", await http.post("/v2/translate", json=body, headers=key))
    if answer.status_code == 200:
        found = [each["text"] for each in answer.json()["translations"]]
        attack.require("deepl", found, [wanted for _, wanted in asked])


async def _libre(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    system = chance.choice(NAMES)
    text, wanted = attack.clients[who].ask(chance, system)
    body = {"q": text, "source": "en", "target": "de", "cotext": {"system": system}}
    body["api_key"] = f"client-{who}"
    answer = attack.note("libre", await http.post("/translate", json=body))
    if answer.status_code == 200:
        attack.require("libre", answer.json()["translatedText"], wanted)


async def _own(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    system = chance.choice(NAMES)
    text, wanted = attack.clients[who].ask(chance, system)
    headers = {"authorization": f"Bearer client-{who}", "accept": "application/json"}
    body = {"system": system, "text": text}
    answer = attack.note("own", await http.post("/api/translate", json=body, headers=headers))
    if answer.status_code == 200:
        attack.require("own", answer.json()["text"], wanted)


# --- hostile requests


async def _body(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    headers = {"content-type": chance.choice(KINDS), "authorization": b"DeepL-Auth-Key \xff"}
    method = chance.choice(("POST", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"))
    content = chance.choice(BODIES)
    if chance.random() < 0.3:  # damaged anywhere
        content = bytes(b ^ (chance.random() < 0.02) * chance.randrange(256) for b in content[:4000])
    place = chance.choice(ADDRESSES)
    attack.note("body", await http.request(method, place, content=content, headers=headers))


async def _path(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    attack.note("path", await http.get(chance.choice(PATHS)))


async def _upload(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    name, content = chance.choice(UPLOADS)
    places = ("/api/files", {"system": "sentence"}), ("/v2/document", {"target_lang": "DE"})
    where, data = chance.choice(places)
    key = {"authorization": f"DeepL-Auth-Key bad-{who}"}
    attack.note("upload", await http.post(where, files={"file": (name, content)}, data=data, headers=key))


async def _raw(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    """What is no HTTP, or half of it, and then nothing or a reset."""
    address = httpx.URL(attack.server.address)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    with suppress(OSError):
        writer.write(chance.choice(RAW))
        await writer.drain()
        with suppress(TimeoutError):
            answer = await asyncio.wait_for(reader.read(2000), chance.choice((0.0, 0.02, 0.2)))
            if b" 500 " in answer[:30] or LEAKS.search(answer.decode("latin-1")):
                attack.faults.append(f"raw: {answer[:300]!r}")
        if chance.random() < 0.5:
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.close()
        await writer.wait_closed()
    attack.statuses["raw", 0] += 1


async def _gone(attack: Attack, http: httpx.AsyncClient, chance: random.Random, who: int) -> None:
    """A client that hangs up while its text is translated, or in mid-stream."""
    text = " ".join(f"Gone {chance.random()} is." for _ in range(30))
    with suppress(httpx.TimeoutException):
        body = {"system": chance.choice(NAMES), "text": text}
        await http.post("/api/translate", json=body, timeout=chance.choice((0.01, 0.05, 0.2)))
    attack.statuses["gone", 0] += 1


Kind = Callable[[Attack, httpx.AsyncClient, random.Random, int], Awaitable[None]]
GOOD: tuple[Kind, ...] = (_deepl, _libre, _own, _own, _libre)
HOSTILE: tuple[Kind, ...] = (_body, _body, _body, _path, _path, _upload, _raw, _gone)


async def _run(attack: Attack, requests: int) -> None:
    left = iter(range(requests))
    limits = httpx.Limits(max_connections=WORKERS * 2)

    async def work(http: httpx.AsyncClient, number: int) -> None:
        chance = random.Random(number)
        for _ in left:
            kind = chance.choice(GOOD if chance.random() < 0.5 else HOSTILE)
            with suppress(httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                await kind(attack, http, chance, chance.randrange(CLIENTS))

    async with httpx.AsyncClient(base_url=attack.server.address, timeout=SLOW_SECONDS, limits=limits) as http:
        await asyncio.gather(*(work(http, number) for number in range(WORKERS)))


def run_attack(server: ServerProcess, clients: list[Known], requests: int) -> Attack:
    attack = Attack(server, clients)
    process = psutil.Process(server.pid)
    # Whatever is made once; the identifier of languages takes 90 MB.
    httpx.post(f"{server.address}/detect", data={"q": "Ein Satz."}, timeout=SLOW_SECONDS).raise_for_status()
    asyncio.run(_run(attack, 20))
    memory, files, threads = process.memory_info().rss, process.num_fds(), process.num_threads()
    asyncio.run(_run(attack, requests))
    assert attack.faults == []
    for kind in ("deepl", "libre", "own"):
        assert attack.statuses[kind, 200] > requests / 60, attack.statuses
    until(lambda: process.num_fds() <= files + 10)
    assert process.memory_info().rss - memory < MAX_GROWTH
    assert process.num_threads() <= threads + 50
    assert httpx.get(f"{server.address}/ready").json() == {"status": "ready"}
    errors = [line for line in server.log if line["level"] == "error"]
    assert errors == []
    words = [text.split()[0] for known in clients for text in known.texts]
    assert not [line for line in server.log_text if any(word in line for word in words)]
    return attack


def test_good_and_hostile_clients_at_once(server: ServerProcess, clients: list[Known]) -> None:
    run_attack(server, clients, 45)


@pytest.mark.hostile
def test_ten_thousand_requests(server: ServerProcess, clients: list[Known]) -> None:
    print(run_attack(server, clients, 10_000).statuses)
