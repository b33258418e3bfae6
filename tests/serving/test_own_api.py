"""The own API: what the page is made with."""

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.runtime.files import sealed
from cotext.serving.answers import SourceSentence
from cotext.serving.keys import add_key
from tests.loops import loop_over
from tests.serving.loopback import events, served
from tests.serving.tiny_server import tiny_application
from tests.translating import translated_lines

if TYPE_CHECKING:
    from cotext.serving.systems import Systems

JSON = {"accept": "application/json"}
TEXT = "The cat sees a dog.  It runs.\n\n \r\n42\nIt sings! It is {name}. Zoë left."
NAMES = ("sentence", "window", "document")


def streamed(client: httpx.Client, content: Any) -> list[tuple[str, Any]]:
    with client.stream("POST", "/api/translate", json=content) as answer:
        assert answer.status_code == 200
        return list(events(answer.iter_lines()))


def translated(client: httpx.Client, content: Any) -> Any:
    answer = client.post("/api/translate", json=content, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: httpx.Client, path: str, content: Any, status: int = 400) -> str:
    answer = client.post(path, json=content)
    assert answer.status_code == status
    message: str = answer.json()["message"]
    return message


def test_systems(server: httpx.Client) -> None:
    found = server.get("/api/systems").json()
    assert [each["name"] for each in found["systems"]] == list(NAMES)
    assert [each["view"] for each in found["systems"]] == list(NAMES)
    assert [each["context_sentences"] for each in found["systems"]] == [None, 2, None]
    assert [each["explains"] for each in found["systems"]] == [False, True, True]
    assert [each["controlled"] for each in found["systems"]] == [False, False, False]
    assert found["systems"][0]["source"] == {"code": "en", "name": "English"}
    assert {".docx", ".txt"} <= set(found["file_suffixes"])
    assert found["limits"]["sentences"] == 2000


def test_systems_trained_on_the_controlled_corpus_say_so(systems: "Systems", tmp_path: Path) -> None:
    from cotext.serving.systems import System, Systems

    content = {"folder": "data", "checksums": {}, "controlled": True}
    (tmp_path / "data.json").write_text(sealed(content), encoding="utf-8")
    opened = replace(systems.named("window").opened, folder=tmp_path)
    with served(tiny_application(Systems([System("demo", opened)]), tmp_path / "state")) as client:
        [found] = client.get("/api/systems").json()["systems"]
    assert found["controlled"] is True


@pytest.mark.parametrize("name", NAMES)
def test_sentences_come_as_they_are_done(server: httpx.Client, systems: "Systems", name: str) -> None:
    found = streamed(server, {"system": name, "text": TEXT})
    kinds = [kind for kind, _ in found]
    assert kinds == ["start", *["sentence"] * 5, "done"]
    start, done = found[0][1], found[-1][1]
    assert [(s["number"], s["paragraph"], s["before"], s["source"]) for s in start["sentences"]] == [
        (0, 0, "", "The cat sees a dog."),
        (1, 0, "  ", "It runs."),
        (2, 4, "", "It sings!"),
        (3, 4, " ", "It is {name}."),
        (4, 4, " ", "Zoë left."),
    ]
    assert start["paragraphs"] == 5
    assert sorted(event["number"] for _, event in found[1:-1]) == list(range(5))
    lines = TEXT.replace("\r\n", "\n").split("\n")
    [texts] = translated_lines(systems.named(name).opened, [lines])
    assert done["text"] == "\n".join(texts[:2]) + "\n" + texts[2] + "\r\n" + "\n".join(texts[3:])
    assert texts[3] == "42"
    alone = translated(server, {"system": name, "text": TEXT})
    assert alone["text"] == done["text"]
    assert of_sentences(alone) == of_sentences(done)
    reach = {"sentence": [4, 5], "window": [2, 5], "document": [0, 5]}
    assert done["sentences"][4]["context"] == reach[name]


@loop_over("text", ["", " ", "\n", "\r\n\t\r\r\n \n", "\u3000\n42 – 7\n", "\x00\n\x85"])
def test_text_without_words_comes_back(server: httpx.Client, text: str) -> None:
    found = streamed(server, {"system": "document", "text": text})
    assert [kind for kind, _ in found] == ["start", "done"]
    assert found[1][1]["text"] == text


@settings(max_examples=10)
@given(st.lists(st.text(max_size=12), max_size=6).map("\n".join))
def test_any_text_keeps_its_lines(server: httpx.Client, text: str) -> None:
    found = streamed(server, {"system": "window", "text": text})
    start, done = found[0][1], found[-1][1]
    assert done["text"].count("\n") == text.count("\n")
    assert len(done["sentences"]) == len(start["sentences"]) == len(found) - 2
    for line, own in zip(done["text"].split("\n"), text.split("\n"), strict=True):
        spaces = [len(x) - len(x.lstrip(" ")) for x in (line, own)]
        assert spaces[0] == spaces[1] or not own.strip()


def test_a_very_long_line(server: httpx.Client) -> None:
    sentences = 20
    done = translated(server, {"system": "window", "text": "It was old. " * sentences})
    assert len(done["sentences"]) == sentences
    assert sum(each["low"] for each in done["sentences"]) == sentences // 10
    lowest = max(each["confidence"] for each in done["sentences"] if each["low"])
    assert all(each["confidence"] >= lowest for each in done["sentences"] if not each["low"])
    assert "line 2: " in refused(server, "/api/translate", {"system": "window", "text": "\n" + "was " * 2000})
    assert "known systems are" in refused(server, "/api/translate", {"system": "/etc", "text": "A."}, 404)


@loop_over(
    ("content", "said"),
    [
        ({"text": "A."}, "system"),
        ({"system": "window"}, "text"),
        ({"system": "window", "text": 3}, "text"),
        ({"system": "window", "text": "A.", "glossary": "yes"}, "glossary"),
        ({"system": "window", "text": "A.", "more": 1}, "more"),
        ({"system": "window", "text": "A cat.", "glossary": [["cat", "Katze"], ["cat", "Kater"]]}, "entry 2"),
        ({"system": "window", "text": "A cat.", "glossary": [["", "Katze"]]}, "not a valid term"),
    ],
)
def test_what_cannot_be_translated(server: httpx.Client, content: Any, said: str) -> None:
    assert said in refused(server, "/api/translate", content)


def test_limits(systems: "Systems", tmp_path: Path) -> None:
    application = tiny_application(systems, tmp_path, max_text_bytes=40, max_sentences=2)
    with served(application) as client:
        long, many = ({"system": "window", "text": text} for text in ("ä" * 20 + "x", "A.\nB.\nC."))
        assert "41 bytes" in refused(client, "/api/translate", long, 413)
        assert "3 sentences" in refused(client, "/api/translate", many, 413)
        for sides, said in ((["x" * 21], "42 bytes"), (["A."] * 3, "3 sentences")):
            asked = {"sources": sides, "targets": sides, "sentence": 0, "characters": [0, 1]}
            assert said in refused(client, "/api/explain", {"system": "window", **asked}, 413)


def test_terms_are_kept_and_told(server: httpx.Client) -> None:
    asked = {"system": "window", "text": "A red cat. It runs.", "glossary": [["cat", "Mieze"]]}
    first, second = translated(server, asked)["sentences"]
    assert "Mieze" in first["target"]
    assert (first["terms"], second["terms"]) == (["Mieze"], [])


def test_a_system_that_takes_no_terms(
    systems: "Systems", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(systems.named("sentence").opened.translator)
    monkeypatch.setattr(kind, "supports_terms", property(lambda _: False))
    with served(tiny_application(systems, tmp_path)) as client:
        asked = {"system": "sentence", "text": "A cat.", "glossary": [["cat", "Katze"]]}
        assert "glossary" in refused(client, "/api/translate", asked)
        assert not client.get("/api/systems").json()["systems"][0]["takes_terms"]


def of_sentences(done: Any) -> list[Any]:
    """All that is told of sentences; probabilities differ in their last digits from batch to batch."""
    return [{**each, "confidence": pytest.approx(each["confidence"], abs=2e-4)} for each in done["sentences"]]


def test_nothing_is_held_back(systems: "Systems", tmp_path: Path) -> None:
    application = tiny_application(systems, tmp_path)
    service, heard = application.state.service, Flag()
    whole = service.translate

    async def translate(request: Any, client: Any, listener: Any) -> Any:
        listener([SourceSentence(0, 0, 0, "A cat.")])
        listener((0, 0, "early"))
        assert await asyncio.to_thread(heard.wait, 10)
        return await whole(request, client)

    service.translate = translate
    with (
        served(application) as client,
        client.stream("POST", "/api/translate", json={"system": "window", "text": "A cat."}) as answer,
    ):
        told = events(answer.iter_lines())
        assert next(told)[0] == "start"
        assert next(told) == ("sentence", {"number": 0, "target": "early"})
        heard.set()
        assert next(told)[0] == "done"


def test_hanging_up_cancels_the_translation(systems: "Systems", tmp_path: Path) -> None:
    application = tiny_application(systems, tmp_path)
    cancelled = Flag()

    async def translate(request: Any, client: Any, listener: Any) -> None:
        listener([SourceSentence(0, 0, 0, "A cat.")])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    application.state.service.translate = translate
    asked = {"system": "window", "text": "A cat."}
    with served(application) as client:
        with client.stream("POST", "/api/translate", json=asked) as answer:
            assert next(events(answer.iter_lines()))[0] == "start"
        assert cancelled.wait(10)
        cancelled.clear()
        with pytest.raises(httpx.ReadTimeout):
            client.post("/api/translate", json=asked, headers=JSON, timeout=0.3)
        assert cancelled.wait(10)


def test_keys_are_asked_for(systems: "Systems", tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    ann = {"authorization": f"Bearer {add_key(keys, 'ann')}"}
    with served(tiny_application(systems, tmp_path / "state", keys=keys)) as client:
        assert client.get("/api/systems").status_code == 403
        assert client.get("/api/systems", headers={"authorization": "Bearer no"}).status_code == 403
        for path in ("/api/translate", "/api/explain"):
            assert client.post(path, json={}).status_code == 403
        assert client.get("/api/systems", headers=ann).json()["key_required"] is True
