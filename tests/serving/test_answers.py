"""Requests of a service: equal ones are computed once, those that nobody waits for stop, limits hold."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from cotext.files.blocks import Block
from cotext.serving import answers
from cotext.serving.answers import Event, TextAnswer
from cotext.serving.record import RequestError
from cotext.serving.service import Service, TextRequest
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import Work
from cotext.serving.systems import System, Systems
from cotext.translation.open import Terminology
from cotext.translation.terms.terms import Glossary
from cotext.translation.window_search import WindowSearch
from tests.noting import calls_of

TEXT = "The cat sees a dog. It runs. The bird sings. A red fish eats. The dog runs."
ANNA, BEN = "anna", "ben"


@pytest.fixture
def service(systems: Systems, tmp_path: Path) -> Iterator[Service]:
    made = Service(
        systems, ServerSettings(state=tmp_path, max_sentences=20, max_waiting=4, max_waiting_of_client=3)
    )
    yield made
    asyncio.run(made.stop())


def request(service: Service, text: str = TEXT, name: str = "window", **more: Any) -> TextRequest:
    return TextRequest(service.systems.named(name), ((Block((text,)),),), **more)


def held(service: Service, then: Callable[[], Coroutine[Any, Any, Any]], name: str = "window") -> Any:
    """What a coroutine gives that begins while nothing is searched."""

    async def whole() -> Any:
        with service.shared(service.systems.named(name)).exclusively(Work()):
            task = asyncio.ensure_future(then())
            await until(lambda: bool(service._requests.pending) or task.done())
            await until(lambda: all(p.events for p in service._requests.pending))
            await asyncio.sleep(0.02)
        return await task

    return asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many windows each batch has."""
    return calls_of(monkeypatch, WindowSearch, "search", lambda search, groups, *told: len(groups))


def test_equal_requests_of_a_client_are_computed_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = searched(monkeypatch)

    async def several() -> list[TextAnswer]:
        equal = [service.translate(request(service), ANNA) for _ in range(5)]
        return list(await asyncio.gather(*equal, service.translate(request(service), BEN)))

    found = held(service, several)
    assert sum(windows) == 2 * 5
    assert all(each.documents == found[0].documents for each in found)
    assert found[0] is found[4]
    assert found[0] is not found[5]  # nothing of one client is another's
    windows.clear()
    assert asyncio.run(service.translate(request(service), ANNA)) is found[0]
    assert not windows
    monkeypatch.setattr(answers, "KEPT_SECONDS", 0.0)
    again = asyncio.run(service.translate(request(service), ANNA))
    assert again.documents == found[0].documents
    assert sum(windows) == 5


def test_cached_answers_are_bounded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = searched(monkeypatch)
    asyncio.run(service.translate(request(service), ANNA))
    size = service._requests._bytes
    monkeypatch.setattr(answers, "KEPT_BYTES", 2 * size + size // 2)
    others = [request(service, TEXT.replace("bird", f"bir{n}")) for n in range(2)]
    for asked in (*others, request(service, 4 * f"{TEXT} ")):  # the last one is too large
        asyncio.run(service.translate(asked, ANNA))
    windows.clear()
    for asked in others:
        asyncio.run(service.translate(asked, ANNA))
    assert not windows
    asyncio.run(service.translate(request(service), ANNA))  # the oldest one was dropped
    assert windows


def test_what_decides_an_answer_tells_requests_apart(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = searched(monkeypatch)
    own = request(service)
    different = [
        own,
        request(service, TEXT + " It eats."),
        request(service, name="sentence"),
        request(service, given={0: {0: "Ja!"}}),
        request(service, given={0: {1: "Ja!"}}),
        request(service, alternatives=True),
        request(service, terminology=Terminology(Glossary.of({"cat": "Kater"}))),
        request(service, terminology=Terminology(Glossary.of({"cat": "Katze"}))),
        TextRequest(own.system, ((Block((TEXT,), split=False),),)),
        TextRequest(own.system, ((Block(("It sings.",), translate=False), *own.documents[0]),)),
        TextRequest(own.system, (own.documents[0], own.documents[0])),
    ]
    for each in different:
        windows.clear()
        asyncio.run(service.translate(each, ANNA))
        assert windows, each


def test_whoever_comes_later_hears_what_was_missed(service: Service) -> None:
    heard: list[list[Event]] = [[], [], []]

    async def come(number: int) -> TextAnswer:
        return await service.translate(request(service), ANNA, heard[number].append)

    async def several() -> TextAnswer:
        first = asyncio.ensure_future(come(0))
        await until(lambda: len(heard[0]) > 2)
        await come(1)
        await first
        return await come(2)

    answer = asyncio.run(several())
    expected = [(0, pair.number, pair.target) for pair in answer.pairs]
    for [sources, *sentences] in heard:
        assert isinstance(sources, list)
        assert [sentence.number for sentence in sources] == [0, 1, 2, 3, 4]
        assert sentences == expected  # in the window view, in the order of the text


def test_work_that_nobody_waits_for_stops(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LINGER_SECONDS", 0.05)

    async def gone() -> Work:
        [first, second] = [asyncio.ensure_future(service.translate(request(service), ANNA)) for _ in range(2)]
        await until(lambda: len(service._requests.pending) == 1 and service._requests.pending[0].waiting == 2)
        [asked] = service._requests.pending
        first.cancel()
        await asyncio.sleep(0.1)
        assert not asked.work.cancelled
        assert not asked.work.background
        second.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asked.work.background  # behind what somebody waits for
        await until(lambda: asked.work.cancelled)
        return asked.work

    with service.shared(service.systems.named("window")).exclusively(Work()):  # so that it can't be done
        asyncio.run(gone())
    asyncio.run(until(lambda: not service._requests.pending))


def test_whoever_asks_again_in_time_goes_on_with_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the client of DeepL does, which waits for ten seconds at a time."""
    windows = searched(monkeypatch)

    async def again() -> TextAnswer:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(service.translate(request(service), ANNA), 0.01)
        [asked] = service._requests.pending
        answering = asyncio.ensure_future(service.translate(request(service), ANNA))
        await until(lambda: not asked.work.background)
        return await answering

    held(service, again)
    assert sum(windows) == 5


def test_above_the_limit_what_nobody_waits_for_stops_at_once(service: Service) -> None:
    async def many() -> None:
        for n in range(6):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(service.translate(request(service, f"{TEXT} {n}."), ANNA), 0.01)
        await until(lambda: sum(not asked.work.cancelled for asked in service._requests.pending) == 3)

    held(service, many)


def test_what_is_not_done_in_time_is_refused(systems: Systems, tmp_path: Path) -> None:
    service = Service(systems, ServerSettings(state=tmp_path, request_seconds=0.05, stop_seconds=0.1))

    async def late() -> None:
        with pytest.raises(RequestError, match=r"not done within 0\.05 seconds") as refused:
            await service.translate(request(service), ANNA)
        assert refused.value.status == 503
        await service.stop()

    held(service, late)


def test_given_translations_are_kept_and_are_context(service: Service) -> None:
    plain, found = (
        asyncio.run(service.translate(request(service, given=given), ANNA)).pairs
        for given in ({}, {0: {1: "der hund der hund rote vogel"}})
    )
    assert (found[1].target, found[1].taken) == ("der hund der hund rote vogel", True)
    assert found[0].target == plain[0].target
    assert [pair.target for pair in found[2:]] != [pair.target for pair in plain[2:]]


def test_documents_are_counted_as_they_were_sent(service: Service) -> None:
    """Empty ones among them, too."""
    system = service.systems.named("sentence")
    texts = ("", "The cat runs. It eats.", " ", "A dog.")
    heard: list[Any] = []
    asked = TextRequest(system, tuple((Block((text,)),) for text in texts), given={3: {0: "Ein Hund!"}})
    answer = asyncio.run(service.translate(asked, ANNA, heard.append))
    assert [(pair.document, pair.number) for pair in answer.pairs] == [(1, 0), (1, 1), (3, 0)]
    sources = [(each.document, each.number, each.text) for each in heard[0]]
    assert sources == [(1, 0, "The cat runs."), (1, 1, "It eats."), (3, 0, "A dog.")]
    assert [len(document) for document in answer.documents] == [1] * 4
    assert answer.documents[3][0].text == "Ein Hund!"


def test_too_little_memory_for_a_sentence_is_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*arguments: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(WindowSearch, "_search", search)
    with pytest.raises(RequestError, match="needs more memory than is available") as refused:
        asyncio.run(service.translate(request(service), ANNA))
    assert refused.value.status == 413


@pytest.mark.parametrize("is_held", [False, True])
def test_a_server_that_stops_finishes_what_it_can_and_takes_no_more(
    systems: Systems, tmp_path: Path, is_held: bool
) -> None:
    service = Service(systems, ServerSettings(state=tmp_path, stop_seconds=0.05 if is_held else 60.0))
    model = service.shared(service.systems.named("window"))

    async def stopped() -> None:
        with model.exclusively(Work()) if is_held else nullcontext():
            begun = asyncio.ensure_future(service.translate(request(service), ANNA))
            await until(lambda: bool(service._requests.pending))
            stopping = asyncio.ensure_future(service.stop())
            await asyncio.sleep(0.2)
            with pytest.raises(RequestError, match="the server is being stopped"):
                await service.translate(request(service), BEN)
            assert not (is_held and begun.done())
        await stopping
        if is_held:
            with pytest.raises(RequestError, match="the server is being stopped"):
                await begun
        else:
            assert len((await begun).pairs) == 5

    asyncio.run(stopped())


def test_what_free_search_left_out_is_heard_as_it_is_answered(systems: Systems, tmp_path: Path) -> None:
    opened = systems.named("window").opened.with_decode({"align": "free"})
    service = Service(Systems([System("free", opened)]), ServerSettings(state=tmp_path))
    heard: list[Event] = []

    async def ask() -> TextAnswer:
        answer = await service.translate(request(service, 3 * f"{TEXT} ", "free"), ANNA, heard.append)
        await service.stop()
        return answer

    targets = [(0, pair.number, pair.target) for pair in asyncio.run(ask()).pairs]
    assert "" in [target for _, _, target in targets]
    assert sorted(heard[1:]) == targets  # type: ignore[type-var]
