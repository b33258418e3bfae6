from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import httpx2 as httpx
    from playwright.sync_api import Browser

    from cotext.serving.systems import Systems
    from tests.serving.browsing import Open
    from tests.serving.fake_own_api import Told


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> "Systems":
    """Three opened tiny systems from English to German: sentence, window, document."""
    from tests.serving.tiny_server import tiny_systems

    return tiny_systems(tmp_path_factory.mktemp("systems"))


@pytest.fixture(scope="session")
def quick_systems(systems: "Systems") -> "Systems":
    """The same with greedy search and short sentences, windows first."""
    from cotext.serving.systems import System, Systems

    found = [System(each.name, each.opened.with_decode({"beam": 1, "max_extra": 6})) for each in systems]
    return Systems(sorted(found, key=lambda system: system.name != "window"))


@pytest.fixture(scope="module")
def server(systems: "Systems", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[httpx.Client]":
    """A client of a server of the tiny systems."""
    from tests.serving.loopback import served
    from tests.serving.tiny_server import tiny_application

    with served(tiny_application(systems, tmp_path_factory.mktemp("state"))) as client:
        yield client


@pytest.fixture
def translated(quick_systems: "Systems") -> Callable[..., list[str]]:
    """The translations of lines by a quick system without a server: as one document, or of each by itself."""
    from tests.translating import translated_lines

    def translate(*lines: str, together: bool = True, system: str = "window") -> list[str]:
        documents = [lines] if together else [(line,) for line in lines]
        found = translated_lines(quick_systems.named(system).opened, documents)
        return [line for lines in found for line in lines]

    return translate


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, one for the tests of a file."""
    from tests.serving.browsing import chromium

    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def fake_server() -> "Iterator[tuple[Told, str]]":
    """A server whose answers tests decide, and its address."""
    from tests.serving.fake_own_api import Told, fake
    from tests.serving.loopback import served

    told = Told()
    with served(fake(told)) as client:
        yield told, str(client.base_url)


@pytest.fixture
def told(fake_server: "tuple[Told, str]") -> "Told":
    """What the fake server does in this test."""
    fake_server[0].__init__()  # type: ignore[misc]
    return fake_server[0]


@pytest.fixture
def visit(browser: "Browser", fake_server: "tuple[Told, str]", told: "Told") -> "Open":
    """Opens the page of the fake server, as `browsing.opened`."""
    from functools import partial

    from tests.serving.browsing import opened

    return partial(opened, browser, fake_server[1])
