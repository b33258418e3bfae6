"""The service under all dialects: texts in, as many texts out, each document by itself."""

import asyncio
from pathlib import Path

import pytest

from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import translate_blocks
from cotext.serving.service import Client, Service, TextRequest
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import Systems

DOCUMENTS = (
    (Block(("The cat sees a dog. It runs.",)), Block(("It sings!",))),
    (Block(("A red bird eats.",)),),
)


@pytest.mark.parametrize("name", ["sentence", "window", "document"])
def test_a_request_is_translated_as_a_file_is(systems: Systems, name: str, tmp_path: Path) -> None:
    service = Service(systems, ServerSettings(state=tmp_path))
    system = systems.named(name)
    answer = asyncio.run(service.translate(TextRequest(system, DOCUMENTS), Client()))
    plain = translate_blocks(system.opened, Contents([list(blocks) for blocks in DOCUMENTS]))
    assert answer.documents == plain
    assert [pair.source for pair in answer.pairs] == [
        "The cat sees a dog.", "It runs.", "It sings!", "A red bird eats."
    ]  # fmt: skip
