from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cotext.serving.systems import Systems


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> "Systems":
    """Three opened tiny systems from English to German: sentence, window, document."""
    from tiny_server import tiny_systems

    return tiny_systems(tmp_path_factory.mktemp("systems"))


@pytest.fixture(scope="session")
def quick_systems(systems: "Systems") -> "Systems":
    """The same with greedy search and short sentences, windows first."""
    from cotext.serving.systems import System, Systems

    found = [System(each.name, each.opened.with_decode({"beam": 1, "max_extra": 6})) for each in systems]
    return Systems(sorted(found, key=lambda system: system.name != "window"))


@pytest.fixture
def translated(quick_systems: "Systems") -> Callable[..., list[str]]:
    """The translations of lines by a quick system without a server: as one document, or of each by itself."""
    from cotext.decoding.translate_blocks import translate_blocks
    from cotext.files.blocks import Block, Contents

    def translate(*lines: str, together: bool = True, system: str = "window") -> list[str]:
        documents = [lines] if together else [(line,) for line in lines]
        contents = Contents([[Block((line,)) for line in each] for each in documents])
        found = translate_blocks(quick_systems.named(system).opened, contents)
        return [block.text for blocks in found for block in blocks]

    return translate
