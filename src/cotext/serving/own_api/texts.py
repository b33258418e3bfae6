"""A document as the own API translates it: lines as paragraphs, sentences as they are done."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from cotext.data.splitting import Splitting
from cotext.files.block_sentences import cut, with_placeholders
from cotext.files.blocks import Block
from cotext.files.translate_blocks import PairedSentence
from cotext.serving.answers import Listener, SourceSentence, TextAnswer
from cotext.serving.errors import RequestError
from cotext.serving.event_stream import Event, Events
from cotext.serving.glossary_store import distinct, wishes_of
from cotext.serving.service import Client, Service, TextRequest
from cotext.serving.sharing import Work
from cotext.serving.systems import System
from cotext.translation.confidence import least_sure

_BREAK: Final = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class Asked:
    """A text to be translated as one document, as a client asks for it; `given` by number of sentence."""

    system: System
    text: str
    glossary: tuple[tuple[str, str], ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    fast: bool = False


@dataclass(frozen=True, slots=True)
class _Lines:
    """The paragraphs of a text, and what ends each but the last."""

    blocks: tuple[Block, ...]
    breaks: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "_Lines":
        parts = _BREAK.split(text)
        lines = enumerate(parts[::2], 1)
        blocks = (Block((line,) if line else (), f"line {number}") for number, line in lines)
        return cls(tuple(blocks), tuple(parts[1::2]))

    def joined(self, blocks: list[Block]) -> str:
        """The text of as many other blocks."""
        lines = [block.text for block in blocks]
        return "".join(part for pair in zip(lines, (*self.breaks, ""), strict=True) for part in pair)


async def events_of(service: Service, asked: Asked, client: Client) -> Events:
    """The events of a translation: `start`, `sentence` as each is done, `done`; none before all is checked.

    Closing the generator stops the work.

    Raises:
        RequestError: as `Service.translate`; 400, the translation of a sentence is given that is not there.
    """
    begun = time.monotonic()
    lines = _Lines.of(asked.text)
    before = await service.in_thread(partial(_before, asked.system, lines), Work(client.name))
    given, wishes = _given(asked, len(before)), wishes_of(distinct(asked.glossary))
    request = TextRequest(asked.system, (lines.blocks,), wishes, {0: given}, asked.fast)
    # As many entries as sentences at most, and what they hold is part of the answer.
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    heard = Listener(
        lambda sentences: queue.put_nowait(Event("start", _start(asked.system, lines, sentences, before))),
        lambda _, number, target: queue.put_nowait(Event("sentence", {"number": number, "target": target})),
    )
    task = asyncio.ensure_future(service.translate(request, client, heard))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        answer = await task
        done = _done(answer, given, asked.system.opened.signature)
        text, seconds = lines.joined(answer.documents[0]), round(time.monotonic() - begun, 3)
        yield Event("done", {**done, "text": text, "seconds": seconds})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def first_of(events: Events) -> Event:
    """The first event."""
    return await anext(events)


async def last_of(events: Events) -> Any:
    """The content of the last event, once all have come."""
    return [event.content async for event in events][-1]


def _before(system: System, lines: _Lines) -> list[str]:
    """What stands between each sentence and the one before it in its paragraph."""
    splitter = Splitting().splitter(system.languages.source)
    found: list[str] = []
    for block in lines.blocks:
        pieces = with_placeholders(block.pieces)
        parts = cut(replace(block, pieces=pieces), splitter.spans).parts
        found += (Block(before).text for before in parts.between[:-1])
    return found


def _start(
    system: System, lines: _Lines, sentences: Sequence[SourceSentence], before: Sequence[str]
) -> dict[str, Any]:
    """All sentences, as the model reads them."""
    described = [
        {"number": each.number, "paragraph": each.block, "source": each.text, "before": space}
        for each, space in zip(sentences, before, strict=True)
    ]
    return {"system": system.name, "paragraphs": len(lines.blocks), "sentences": described}


def _given(asked: Asked, sentences: int) -> dict[int, str]:
    found = {}
    for number, target in asked.given.items():
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= sentences:
            raise RequestError(
                400, f"given: there is no sentence {number[:20]}; there are {sentences}, counted from 0"
            )
        if not target.strip():
            raise RequestError(400, f"given: sentence {number} has no words; leave it out to be translated")
        found[int(number)] = " ".join(target.split())
    return found


def _done(answer: TextAnswer, given: Mapping[int, str], signature: str) -> dict[str, Any]:
    """What is told of the sentences of a translation."""
    sure = [None if pair.number in given else pair.confidence for pair in answer.pairs]
    sentences = [
        _sentence(pair, confidence, low, pair.number in given)
        for pair, confidence, low in zip(answer.pairs, sure, least_sure(sure), strict=True)
    ]
    return {"sentences": sentences, "signature": signature}


def _sentence(pair: PairedSentence, confidence: float | None, low: bool, given: bool) -> dict[str, Any]:
    return {
        "number": pair.number,
        "target": pair.target,
        "confidence": None if confidence is None else round(confidence, 4),
        "low": low,
        "given": given,
        "terms": list(pair.terms),
        "context": [pair.visible.start, pair.visible.stop],
    }
