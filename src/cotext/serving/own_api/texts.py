"""A document as the own API translates it: lines as paragraphs, sentences as they are done."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field, StrictBool, StrictStr

from cotext.files.translate_blocks import PairedSentence
from cotext.runtime.errors import shown
from cotext.serving.answers import Listener, SourceSentence, TextAnswer
from cotext.serving.errors import RequestError
from cotext.serving.event_stream import Event, Events
from cotext.serving.fragments import PlainText
from cotext.serving.glossary_store import distinct, wishes_of
from cotext.serving.requests import Body
from cotext.serving.service import Client, Service, TextRequest
from cotext.serving.sharing import Work
from cotext.serving.systems import System
from cotext.translation.confidence import least_sure


class TranslateBody(Body):
    """A text to be translated as one document; `given` by number of sentence."""

    system: StrictStr
    text: StrictStr
    glossary: tuple[tuple[StrictStr, StrictStr], ...] = ()
    given: dict[StrictStr, StrictStr] = Field(default_factory=dict)
    fast: StrictBool = False


async def events_of(service: Service, system: System, body: TranslateBody, client: Client) -> Events:
    """The events of a translation: `start`, `sentence` as each is done, `done`; none before all is checked.

    Closing the generator stops the work.

    Raises:
        RequestError: as `Service.translate`; 400, the translation of a sentence is given that is not there.
    """
    begun = time.monotonic()
    lines = await service.in_thread(partial(PlainText, body.text, "1", ""), Work(client.name))
    given, wishes = _given(body.given), wishes_of(distinct(body.glossary))
    request = TextRequest(system, (tuple(lines.blocks),), wishes, {0: given}, body.fast)
    # As many entries as sentences at most, and what they hold is part of the answer.
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    paragraphs = len(lines.blocks)
    heard = Listener(
        lambda sentences: queue.put_nowait(Event("start", _start(system, paragraphs, sentences))),
        lambda _, number, target: queue.put_nowait(Event("sentence", {"number": number, "target": target})),
    )
    task = asyncio.ensure_future(service.translate(request, client, heard))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        answer = await task
        done = _done(answer, given, system.opened.signature)
        text, seconds = lines.written(answer.documents[0]), round(time.monotonic() - begun, 3)
        yield Event("done", {**done, "text": text, "seconds": seconds})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def last_of(events: Events) -> Any:
    """The content of the last event, once all have come."""
    return [event.content async for event in events][-1]


def _start(system: System, paragraphs: int, sentences: Sequence[SourceSentence]) -> dict[str, Any]:
    """All sentences, as the model reads them."""
    described = [
        {"number": each.number, "paragraph": each.block, "source": each.text, "before": each.before}
        for each in sentences
    ]
    return {"system": system.name, "paragraphs": paragraphs, "sentences": described}


def _given(given: Mapping[str, str]) -> dict[int, str]:
    found = {}
    for number, target in given.items():
        if not re.fullmatch("[0-9]{1,9}", number):
            raise RequestError(400, f"given: {shown(number)} is no sentence; they are counted from 0")
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
