"""Server-sent events: framing, comments that keep a connection, and what happens when nobody reads."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from cotext.serving.own_api import Event, EventStream
from cotext.serving.record import RequestError
from cotext.serving.sharing import CancelledError
from tests.loops import loop_over
from tests.serving.loopback import events

Send = Callable[[Any], Awaitable[None]]


def sent(
    told: AsyncGenerator[Event, None],
    *,
    first: Event | None = None,
    gone: asyncio.Event | None = None,
    send: Send | None = None,
) -> tuple[dict[str, Any], str]:
    """The start of the answer and all of its text; `gone`: when the client hangs up."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, str]:
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def keep(message: dict[str, Any]) -> None:
        messages.append(message)

    scope: dict[str, Any] = {"type": "http"}
    asyncio.run(EventStream(told, first)(scope, receive, send or keep))  # type: ignore[arg-type]
    body = b"".join(message["body"] for message in messages[1:])
    return (messages or [{}])[0], body.decode()


async def of(*contents: Any) -> AsyncGenerator[Event, None]:
    for content in contents:
        yield Event("said", content)


@loop_over("text", ["a\nb\r\nc\rd\n\ndata: x", "\u2028\u0085\x00", "😀 北京 \ufeff", ": no comment", ""])
def test_any_text_is_an_event(text: str) -> None:
    start, body = sent(of(text, {"text": text}))
    assert list(events(iter(body.split("\n")))) == [("said", text), ("said", {"text": text})]
    headers = dict(start["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-accel-buffering"] == b"no"
    assert b"content-length" not in headers


def test_comments_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotext.serving.own_api.KEEP_ALIVE_SECONDS", 0.02)

    async def slow() -> AsyncGenerator[Event, None]:
        yield Event("said", 1)
        await asyncio.sleep(0.1)
        yield Event("said", 2)

    _, body = sent(slow())
    assert list(events(iter(body.split("\n")))) == [("said", 1), ("said", 2)]
    between = body[body.index("data: 1") : body.index("data: 2")]
    assert between.count("\n\n: ") >= 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RequestError(400, "too long"), "too long"),
        (OSError("/home/me"), "an internal server error"),
        (CancelledError(), "the server is being stopped"),
    ],
)
def test_what_fails_in_mid_stream_is_an_event(error: Exception, message: str) -> None:
    async def failing() -> AsyncGenerator[Event, None]:
        yield Event("said", 1)
        raise error

    _, body = sent(failing())
    [first, (kind, content)] = events(iter(body.split("\n")))
    assert first == ("said", 1)
    assert kind == "error"
    assert content["message"].startswith(message)
    assert "/home" not in body


def test_no_event_is_asked_for_before_the_one_before_it_is_sent() -> None:
    asked, gone = [], asyncio.Event()

    async def many() -> AsyncGenerator[Event, None]:
        for number in range(1000):
            asked.append(number)
            yield Event("said", number)

    async def blocked(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            asyncio.get_running_loop().call_later(0.05, gone.set)
            await asyncio.Event().wait()

    sent(many(), gone=gone, send=blocked)
    assert asked == [0]


def test_the_first_event_may_be_there_before() -> None:
    _, body = sent(of(2), first=Event("said", 1))
    assert list(events(iter(body.split("\n")))) == [("said", 1), ("said", 2)]
