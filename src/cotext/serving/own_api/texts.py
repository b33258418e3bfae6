"""Translation of a document in the own API: lines are paragraphs, and each sentence is an event."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import StrictStr

from cotext.serving.answers import Listener, SourceSentence, TextAnswer
from cotext.serving.event_stream import Event, Events
from cotext.serving.fragments import PlainText
from cotext.serving.requests import Body
from cotext.serving.service import Client, Service, TextRequest
from cotext.serving.sharing import Work
from cotext.serving.systems import System
from cotext.serving.terms import distinct, wishes_of
from cotext.translation.confidence import least_sure


class TranslateBody(Body):
    """Request to translate a text as one document."""

    system: StrictStr
    text: StrictStr
    glossary: tuple[tuple[StrictStr, StrictStr], ...] = ()


async def events_of(service: Service, system: System, body: TranslateBody, client: Client) -> Events:
    """Yield the events `start`, `sentence` (for each translated one) and `done`; closing cancels the work.

    Raises:
        RequestError: before the first event: the errors of `Service.translate`; 400, a term is invalid.
    """
    begun = time.monotonic()
    lines = await service.in_thread(partial(PlainText, body.text, "1", ""), Work(client.name))
    wishes = wishes_of(distinct(body.glossary))
    request = TextRequest(system, (tuple(lines.blocks),), wishes)
    # Bounded by the number of sentences.
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def on_start(sentences: Sequence[SourceSentence]) -> None:
        described = [
            {"number": s.number, "paragraph": s.block, "source": s.text, "before": s.before}
            for s in sentences
        ]
        start = {"system": system.name, "paragraphs": len(lines.blocks), "sentences": described}
        queue.put_nowait(Event("start", start))

    def on_sentence(document: int, number: int, target: str) -> None:
        queue.put_nowait(Event("sentence", {"number": number, "target": target}))

    task = asyncio.ensure_future(service.translate(request, client, Listener(on_start, on_sentence)))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        answer = await task
        done = _done(answer, system.opened.signature)
        text, seconds = lines.written(answer.documents[0]), round(time.monotonic() - begun, 3)
        yield Event("done", {**done, "text": text, "seconds": seconds})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def last_of(events: Events) -> Any:
    return [event.content async for event in events][-1]


def _done(answer: TextAnswer, signature: str) -> dict[str, Any]:
    """Return the content of the event `done`."""
    sure = [pair.confidence for pair in answer.pairs]
    sentences = [
        {
            "number": pair.number,
            "target": pair.target,
            "confidence": None if confidence is None else round(confidence, 4),
            "low": low,
            "terms": list(pair.terms),
            "context": [pair.visible.start, pair.visible.stop],
        }
        for pair, confidence, low in zip(answer.pairs, sure, least_sure(sure), strict=True)
    ]
    return {"sentences": sentences, "signature": signature}
