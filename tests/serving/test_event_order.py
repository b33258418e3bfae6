"""Clients in any order of events: every answer is what the document gives alone, and all is free afterwards.

Drawn from seeds: texts, the same asked twice, sessions of one name, files; clients who hang up, come back and
ask again, cancel and delete.
"""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cotext.files.blocks import Block
from cotext.serving import answers
from cotext.serving.service import Service, TextRequest
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import System, Systems
from cotext.serving.translation import SessionPlace, translate_documents
from tests.serving.test_load import NAMES, alone, assert_same, drawn, many, sentence, texts_of
from tests.serving.waiting import SECONDS, Sender, until

__all__ = ["many"]


class Events:
    """What clients do with a service; `seen` counts what was compared."""

    def __init__(self, service: Service, draw: random.Random) -> None:
        self.service, self.draw = service, draw
        self.seen = {"texts": 0, "segments": 0, "files": 0}

    async def moment(self, longest: float = 0.3) -> None:
        await asyncio.sleep(self.draw.random() * longest)

    async def text(self, request: TextRequest, client: str) -> None:
        """A text, asked for until the client stays for the answer, perhaps by two at once."""
        expected = alone(request)
        await self.moment()
        while self.draw.random() < 0.3:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.service.translate(request, client), self.draw.random() * 0.1)
            await self.moment(0.1)
        await asyncio.gather(*(self.heard(request, client, expected) for _ in range(self.draw.randint(1, 2))))

    async def heard(self, request: TextRequest, client: str, expected: Any) -> None:
        heard: list[Any] = []
        answer = await self.service.translate(request, client, heard.append)
        assert_same(answer, expected)
        assert sorted(heard[1:]) == [(d, j, target) for d, _, j, _, target in texts_of(expected)]
        self.seen["texts"] += 1

    async def session(self, system: System, client: str, numbered: bool) -> None:
        """The segments of a document one by one, in a session whose name all clients have."""
        texts = list(dict.fromkeys(sentence(self.draw) for _ in range(6)))
        whole = alone(TextRequest(system, (tuple(Block((text,)) for text in texts),)))
        expected = [block.text for block in whole.documents[0]]
        for number, text in enumerate(texts):
            await self.moment(0.1)
            request = TextRequest(system, ((Block((text,)),),))
            place = SessionPlace(f"one {numbered}", number if numbered else None)
            while self.draw.random() < 0.3:
                with suppress(TimeoutError):
                    asking = translate_documents(self.service, request, client, place)
                    await asyncio.wait_for(asking, self.draw.random() * 0.05)
            for _ in range(self.draw.randint(1, 2)):
                answer = await translate_documents(self.service, request, client, place)
                assert [block.text for block in answer.documents[0]] == [expected[number]]
            self.seen["segments"] += 1

    async def file(self, system: System, client: str) -> None:
        """A file, which may be deleted at any moment."""
        text = " ".join(sentence(self.draw) for _ in range(self.draw.randint(1, 6)))
        [[block]] = alone(TextRequest(system, ((Block((text,)),),))).documents
        sender = Sender(self.service, client, system.name)
        await self.moment()
        while True:
            ticket = await asyncio.to_thread(sender.send, f"{text}\n".encode())
            if self.draw.random() < 0.7:
                break
            await self.moment(0.1)
            await asyncio.to_thread(self.service.jobs.delete, ticket.id, client, ticket.key)
        found = await asyncio.to_thread(sender.translated, ticket)
        assert found.decode() == f"{block.text}\n"
        self.seen["files"] += 1

    def drawn(self, systems: Systems, count: int) -> list[Coroutine[Any, Any, None]]:
        """So many events; each client has one session of a kind alone."""
        found: list[Coroutine[Any, Any, None]] = []
        for number in range(count):
            system, client = systems.named(self.draw.choice(NAMES)), f"client {number % 7}"
            kind = self.draw.random()
            if kind < 0.7:
                found.append(self.text(drawn(system, self.draw), client))
            elif kind < 0.8:
                found.append(self.file(systems.named(self.draw.choice(["sentence", "window"])), client))
            else:
                one_by_one = systems.named(self.draw.choice(["sentence", "window", "in passes"]))
                found.append(self.session(one_by_one, f"alone {number}", self.draw.random() < 0.5))
        return found


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 24), *(pytest.param(seed, 250, marks=pytest.mark.hostile) for seed in range(1, 5))],
)
def test_any_order_of_events(
    many: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    monkeypatch.setattr(answers, "LINGER_SECONDS", 0.02)
    settings = ServerSettings(
        state=tmp_path, batch_tokens=600, max_waiting=2 * count, max_waiting_of_client=count
    )
    service = Service(many, settings)
    events = Events(service, random.Random(seed))

    async def all_at_once() -> None:
        async with asyncio.timeout(10 * SECONDS):
            await asyncio.gather(*events.drawn(many, count))

    asyncio.run(all_at_once())
    assert min(events.seen.values()) >= count // 20
    shared = [service.shared(system) for system in many]
    until(lambda: not any(each._flows for each in shared))
    assert not any(pool.documents for each in shared for pool in each._pools.values())
    until(lambda: not service.jobs._running)
    asyncio.run(service.stop())
    assert not service._requests.pending
    files = service.jobs.table.everything()
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {row.id for row in files}
