"""Sessions: a document that comes segment after segment is translated as the whole of it."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from cotext.files.blocks import Block
from cotext.serving import answers, translation
from cotext.serving.answers import KEPT_SEGMENTS, Sessions
from cotext.serving.service import Service, TextRequest
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import Systems
from cotext.serving.translation import SessionPlace, session_place, translate_documents
from tests.loops import loop_over
from tests.serving.waiting import refused

DOCUMENT = ["A cat sees. It runs.", "It sings!", "A red bird.", "7 × 8", "Was it new?", "It was it."]
OTHER = "A green dog eats."


class Tool:
    """A program that asks for the segments of a document in a session."""

    def __init__(self, systems: Systems, state: Path, system: str = "window") -> None:
        self.service = Service(systems, ServerSettings(state=state))
        self.system = systems.named(system)

    def ask(self, *texts: str, session: str | None = "s", client: str = "a", **place: Any) -> list[str]:
        """The translations of segments that come in one request."""
        request = TextRequest(self.system, tuple((Block((text,), "a place"),) for text in texts))
        where = None if session is None else SessionPlace(session, **place)
        answer = asyncio.run(translate_documents(self.service, request, client, where))
        assert {pair.document for pair in answer.pairs} <= set(range(len(texts)))
        return [block.text for [block] in answer.documents]

    def one_by_one(self, texts: Iterable[str], **place: Any) -> list[str]:
        return [text for each in texts for text in self.ask(each, **place)]

    def whole(self, texts: Iterable[str], given: Mapping[int, str] | None = None) -> list[str]:
        """The translations of all segments as one document, of which some sentences are given."""
        blocks = tuple(Block((text,)) for text in texts)
        request = TextRequest(self.system, (blocks,), given={0: given or {}})
        answer = asyncio.run(self.service.translate(request, "anybody"))
        return [block.text for block in answer.documents[0]]


@pytest.fixture
def tool(quick_systems: Systems, tmp_path: Path) -> Tool:
    return Tool(quick_systems, tmp_path)


@pytest.mark.parametrize("system", ["sentence", "window"])
def test_one_by_one_is_the_whole_at_once(quick_systems: Systems, system: str, tmp_path: Path) -> None:
    tool = Tool(quick_systems, tmp_path, system)
    assert tool.one_by_one(DOCUMENT) == tool.whole(DOCUMENT)
    assert tool.ask(*DOCUMENT, session="at once") == tool.whole(DOCUMENT)
    placeholders = ["A <b>cat</b>.", "{name} was it.", "It runs."]
    assert tool.one_by_one(placeholders, session="other") == tool.whole(placeholders)


def test_context_is_what_makes_the_difference(tool: Tool) -> None:
    alone = [tool.ask(text, session=None)[0] for text in DOCUMENT]
    assert alone[0] == tool.whole(DOCUMENT)[0]
    assert alone[1:] != tool.whole(DOCUMENT)[1:]


def test_prefetched_and_asked_again_and_jumped_back(tool: Tool) -> None:
    whole = tool.whole(DOCUMENT)
    order = [0, 1, 0, 2, 1, 2, 3, 4, 4, 0, 3, 2, 4]
    assert [tool.ask(DOCUMENT[i])[0] for i in order] == [whole[i] for i in order]


def test_asked_again_is_not_searched(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tool.one_by_one(DOCUMENT)

    searched: list[int] = []
    monkeypatch.setattr(
        translation._Replay, "note", lambda log, document, window: searched.append(window.number)
    )
    assert tool.one_by_one(DOCUMENT) == first
    assert not searched
    tool.ask(OTHER)
    assert searched


def test_without_numbers_a_new_segment_stands_behind_the_one_before_it(tool: Tool) -> None:
    tool.one_by_one(DOCUMENT[:3])
    tool.ask(DOCUMENT[0])
    tool.ask(OTHER)
    tool.ask(DOCUMENT[1])
    texts = [*DOCUMENT[:3], OTHER, DOCUMENT[4]]
    assert tool.ask(DOCUMENT[4]) == tool.whole(texts)[-1:]


def test_numbers_put_segments_in_order_whenever_they_come(tool: Tool) -> None:
    texts = [*DOCUMENT[:3], DOCUMENT[1], DOCUMENT[4], DOCUMENT[2]]  # two of them twice
    whole = tool.whole(texts)
    for i in (4, 2, 0, 1, 3, 5):
        tool.ask(texts[i], number=i)
    assert [tool.ask(text, number=i)[0] for i, text in enumerate(texts)] == whole
    assert [tool.ask(texts[i], number=i)[0] for i in (5, 3, 0)] == [whole[i] for i in (5, 3, 0)]
    assert tool.ask(*texts, session="at once", number=10) == whole


def test_another_text_under_a_number_replaces_it(tool: Tool) -> None:
    for i, text in enumerate(DOCUMENT):
        tool.ask(text, number=i)
    for other in (OTHER, "42", ""):
        edited = [*DOCUMENT[:1], other, *DOCUMENT[2:]]
        assert [tool.ask(text, number=i)[0] for i, text in enumerate(edited)] == tool.whole(edited)


def test_a_confirmed_translation_is_the_context_of_what_follows(tool: Tool) -> None:
    machine = tool.one_by_one(DOCUMENT)
    for own in ("Eine rote Katze singt.", "S w S w S"):
        assert tool.ask(DOCUMENT[1], confirmed=(own,)) == [own]
        assert tool.ask(DOCUMENT[1]) == [own]
        assert tool.ask(DOCUMENT[0]) == machine[:1]
        assert tool.one_by_one(DOCUMENT[2:]) == tool.whole(DOCUMENT, {2: own})[2:] != machine[2:]


def test_a_confirmed_segment_without_a_word_is_no_context(tool: Tool) -> None:
    assert tool.ask("42", "...", confirmed=("43", "!")) == ["43", "!"]
    assert tool.one_by_one(DOCUMENT) == tool.whole(DOCUMENT)


def test_a_confirmed_translation_may_have_other_sentences(tool: Tool) -> None:
    machine = tool.one_by_one(DOCUMENT)
    for own in ("Die Katze sieht. Der Hund rennt.", "Alles in einem", "Eins. Zwei. Drei.", "x" * 5_000, " "):
        assert tool.ask(DOCUMENT[0], confirmed=(own,)) == [own]
        assert len(tool.one_by_one(DOCUMENT[1:])) == len(machine) - 1


def test_a_confirmed_translation_of_as_many_sentences_is_cut_into_them(tool: Tool) -> None:
    own = "Die Katze sieht. Sie rennt."
    assert tool.ask(DOCUMENT[0], confirmed=(own,)) == [own]  # never asked for before
    given = {0: "Die Katze sieht.", 1: "Sie rennt."}
    assert tool.one_by_one(DOCUMENT) == tool.whole(DOCUMENT, given)


def test_sessions_of_another_name_client_or_system_know_nothing_of_it(
    quick_systems: Systems, tool: Tool
) -> None:
    tool.one_by_one(DOCUMENT[:-1])
    alone = tool.ask(DOCUMENT[-1], session=None)
    assert tool.ask(DOCUMENT[-1], session="t") == alone
    assert tool.ask(DOCUMENT[-1], client="b") == alone
    window, tool.system = tool.system, quick_systems.named("sentence")
    assert tool.ask(DOCUMENT[-1]) == tool.ask(DOCUMENT[-1], session=None)
    tool.system = window
    assert tool.ask(DOCUMENT[-1]) == tool.whole(DOCUMENT)[-1:]


def test_given_up_is_not_kept(tool: Tool) -> None:
    async def given_up() -> None:
        request = TextRequest(tool.system, ((Block((DOCUMENT[0],)),),))
        task = asyncio.ensure_future(translate_documents(tool.service, request, "a", SessionPlace("s")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    assert tool.service.sessions.of("a", "s", "window").segments == []


def test_context_of_a_request_is_read_behind_that_of_the_session(tool: Tool) -> None:
    context, text = Block((DOCUMENT[1],), translate=False), Block((DOCUMENT[2],))
    answer = asyncio.run(
        translate_documents(
            tool.service, TextRequest(tool.system, ((context, text),)), "anybody", SessionPlace("s")
        )
    )
    assert answer.documents[0][0] == context
    assert answer.documents[0][1].text == tool.whole(DOCUMENT[1:3])[1]
    [kept] = tool.service.sessions.of("anybody", "s", "window").segments
    assert [block.text for block in kept.as_context.blocks] == [DOCUMENT[2]]


def test_a_session_is_bounded(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "KEPT_SEGMENTS", 3)
    whole = tool.whole(DOCUMENT)
    assert tool.one_by_one(DOCUMENT) == whole
    memory = tool.service.sessions.of("a", "s", "window")
    kept = [segment.blocks[0].text for segment in memory.segments]
    assert kept == [text for text in DOCUMENT if any(map(str.isalpha, text))][-3:]
    memory.last = 0
    tool.ask("A bird.")  # the end is farther away than the beginning
    assert [segment.blocks[0].text for segment in memory.segments] == [kept[0], "A bird.", kept[1]]
    monkeypatch.setattr(answers, "KEPT_CHARACTERS", 10)
    tool.ask(OTHER)
    assert [segment.blocks[0].text for segment in memory.segments] == [OTHER]
    assert KEPT_SEGMENTS > 3


def test_sessions_are_bounded_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("cotext.serving.answers.time.monotonic", lambda: now)
    monkeypatch.setattr(answers, "SESSIONS_OF_CLIENT", 2)
    monkeypatch.setattr(answers, "SESSIONS", 3)
    sessions = Sessions()
    first, other = sessions.of("a", "1", "x"), sessions.of("b", "1", "x")
    assert sessions.of("a", "1", "x") is first
    sessions.of("a", "2", "x")
    sessions.of("a", "3", "x")
    assert sessions.of("b", "1", "x") is other  # a client pushes out sessions of its own
    assert sessions.of("a", "1", "x") is not first
    now = answers.SESSION_SECONDS + 1
    assert sessions.of("b", "1", "x") is not other


def test_a_client_with_many_sessions_pushes_out_none_of_a_client_with_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "SESSIONS", 6)
    sessions = Sessions()
    first = sessions.of("ann", "1", "x")
    many = [sessions.of("eve", f"{n}", "x") for n in range(20)]
    many += [sessions.of("mallory", f"{n}", "x") for n in range(20)]
    assert sessions.of("ann", "1", "x") is first
    second = sessions.of("ann", "2", "x")
    assert [sessions.of("ann", name, "x") for name in "12"] == [first, second]
    assert len(sessions._memories) == 6


def asking(headers: dict[str, str], prefix: str | None) -> Request:
    """A request with these headers, at an address in a session."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw, "path_params": {"session": prefix} if prefix else {}})


@loop_over(
    ("headers", "named", "prefix", "place"),
    [
        ({}, {}, None, None),
        ({"x-cotext-session": "a"}, {}, None, SessionPlace("a", None, (None,))),
        ({"x-cotext-session": "a", "x-cotext-segment": "7"}, {}, "p", SessionPlace("a", 7, (None,))),
        ({"x-cotext-session": "a"}, {"session": "b", "segment": 3}, None, SessionPlace("b", 3, (None,))),
        ({}, {"confirmed": "t"}, "p", SessionPlace("p", None, ("t",))),
        ({}, {"confirmed": ["t", None]}, "p", SessionPlace("p", None, ("t", None))),
        ({}, {"confirmed": ["t", " "]}, "p", SessionPlace("p", None, ("t", None))),  # a field left empty
    ],
)
def test_a_place_is_named_by_headers_fields_or_address(
    headers: dict[str, str], named: dict[str, object], prefix: str | None, place: SessionPlace | None
) -> None:
    assert session_place(asking(headers, prefix), named) == place


@loop_over(
    "named",
    [
        {"session": 3},
        {"session": "a" * 201},
        {"session": "a\nb"},
        {"session": "a", "segment": -1},
        {"session": "a", "segment": "x"},
        {"session": "a", "segment": True},
        {"session": "a", "segment": 10**12},
        {"session": "a", "confirmed": 3},
        {"session": "a", "confirmed": ["x", 3]},
    ],
)
def test_what_names_no_place_is_refused(named: dict[str, object]) -> None:
    assert refused(session_place, asking({}, None), named).status == 400


def test_what_is_refused_leaves_no_trace_of_the_texts_before_it(tool: Tool) -> None:
    tool.ask("A cat sees.", "It runs.")
    before = list(tool.service.sessions.of("a", "s", "window").segments)
    refused(tool.ask, "It sings!", "the cat " * 2_000)
    error = refused(tool.ask, "A cat.", confirmed=("Eine Katze.", "Ein Hund."))
    assert "more translations" in error.message
    assert tool.service.sessions.of("a", "s", "window").segments == before
    assert tool.ask(OTHER) == tool.whole(["A cat sees.", "It runs.", OTHER])[2:]


def test_requests_of_several_texts_are_answered_one_after_the_other(tool: Tool) -> None:
    halves = [DOCUMENT[:3], DOCUMENT[3:]]

    async def together() -> list[str]:
        requests = [TextRequest(tool.system, tuple((Block((text,)),) for text in half)) for half in halves]
        place = SessionPlace("s")
        answers = [translate_documents(tool.service, request, "anybody", place) for request in requests]
        return [blocks[0].text for each in await asyncio.gather(*answers) for blocks in each.documents]

    assert asyncio.run(together()) == tool.whole(DOCUMENT)


def test_what_was_answered_or_confirmed_is_the_context_in_whole_documents(
    quick_systems: Systems, tmp_path: Path
) -> None:
    tool = Tool(quick_systems, tmp_path, "document")
    own, texts = "Ganz andere Hunde!", ["A cat sees.", "It runs."]
    assert tool.ask(texts[0], confirmed=(own,)) == [own]
    assert tool.ask(texts[1]) == tool.whole(texts, {0: own})[1:] != tool.whole(texts)[1:]
    [first] = tool.ask(DOCUMENT[1], session="other")
    assert tool.ask(OTHER, session="other") == tool.whole([DOCUMENT[1], OTHER], {0: first})[1:]


def test_a_segment_with_a_sentence_of_no_token_is_answered_alike(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no window of it, as of letters that a tokenizer drops."""
    translator = type(tool.system.opened.translator)
    encoded = translator.encoded

    def without(self: Any, name: str, sentences: Any) -> Any:
        found = encoded(self, name, sentences)
        return [[] if text == "Hm!" else each for text, each in zip(sentences, found, strict=True)]

    monkeypatch.setattr(translator, "encoded", without)
    first = tool.ask("Hm! A red bird.")
    assert first[0].startswith("Hm! ")
    assert tool.ask("Hm! A red bird.") == first
    given = {0: "Hm!", 1: first[0].removeprefix("Hm! ")}
    assert tool.ask("It runs.") == tool.whole(["Hm! A red bird.", "It runs."], given)[1:]
