"""LibreTranslate's interface, by requests as programs send them; `libretranslatepy` is one of these."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cotext.data.documents import Document
from cotext.serving.systems import Systems
from cotext.serving.translation import Detected, detect
from tests.loops import loop_over
from tests.serving.loopback import served
from tests.serving.tiny_server import tiny_application, tiny_systems

LINES = ["A cat sees.", "It runs.", "It sings!"]
EN_DE = {"source": "en", "target": "de"}
Translated = Callable[..., list[str]]


@pytest.fixture(scope="module")
def client(quick_systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    application = tiny_application(quick_systems, tmp_path_factory.mktemp("state"), request_seconds=60.0)
    with TestClient(application, base_url="http://127.0.0.1") as client:
        yield client


def answer(client: TestClient, path: str = "/translate", **asked: Any) -> Any:
    found = client.post(path, **asked)
    assert found.status_code == 200, found.text
    return found.json()


def test_a_text_with_lines_is_a_document(client: TestClient, translated: Translated) -> None:
    text = "\n".join(LINES)
    assert answer(client, json={"q": text, **EN_DE}) == {"translatedText": "\n".join(translated(*LINES))}
    assert translated(*LINES) != translated(*LINES, together=False)
    windows = text.replace("\n", "\r\n\r\n")
    assert answer(client, json={"q": windows, **EN_DE})["translatedText"].count("\r\n\r\n") == 2


def test_items_of_a_list_are_documents_unless_they_are_one(
    client: TestClient, translated: Translated
) -> None:
    body = {"q": LINES, **EN_DE}
    assert answer(client, json=body)["translatedText"] == translated(*LINES, together=False)
    together = answer(client, json={**body, "cotext": {"document": True}})
    assert together["translatedText"] == translated(*LINES)
    assert answer(client, json={"q": LINES[:1], **EN_DE})["translatedText"] == translated(LINES[0])
    assert answer(client, json={"q": [], **EN_DE})["translatedText"] == []
    assert answer(client, json={"q": [], "source": "auto", "target": "de"})["translatedText"] == []
    mixed = answer(client, json={"q": ["", "7 × 8", LINES[0]], **EN_DE})["translatedText"]
    assert mixed == ["", "7 × 8", *translated(LINES[0])]


def test_a_system_can_be_named(client: TestClient, translated: Translated) -> None:
    body = {"q": "\n".join(LINES), **EN_DE, "cotext": {"system": "sentence"}}
    assert answer(client, json=body)["translatedText"].split("\n") == translated(*LINES, system="sentence")
    assert client.post("/translate", json={**body, "cotext": {"system": "none"}}).status_code == 404


def test_fields_come_as_json_form_multipart_or_in_the_address(client: TestClient) -> None:
    fields = {"q": LINES[0], **EN_DE, "api_key": ""}
    expected = answer(client, json=fields)
    assert answer(client, data=fields) == expected  # as Weblate did before it sent lists
    assert answer(client, files={name: (None, value) for name, value in fields.items()}) == expected
    assert answer(client, params=fields) == expected
    assert answer(client, params={"q": LINES[0]}, json=EN_DE) == expected


def test_subtitle_edit_writes_line_breaks_as_tags(client: TestClient) -> None:
    body = '{"q": "A red cat<br />sees a dog.", "source": "en", "target": "de"}'
    headers = {"content-type": "application/json; charset=utf-8", "accept": "application/json"}
    found = answer(client, content=body.encode(), headers=headers)["translatedText"]
    assert found.count("<br />") == 1
    assert "cat" not in found.replace("<br />", "")


def test_html_keeps_its_tags(client: TestClient, translated: Translated) -> None:
    html = "<p class='green'>A cat sees.</p>\n<p>It runs.</p><img src=x>"
    first, second = translated("A cat sees.", "It runs.")
    found = answer(client, json={"q": html, **EN_DE, "format": "html"})["translatedText"]
    assert found.startswith(f"<p class='green'>{first}</p>")
    assert found.endswith(f"<p>{second}</p><img src=x>")
    assert found.count("<p") == found.count("</p>") == 2
    plain = answer(client, json={"q": "<b>A cat", **EN_DE})["translatedText"]
    assert plain.count("<b>") == 1  # a placeholder, where the format is text


def test_the_source_language_is_detected(client: TestClient) -> None:
    body = {"source": "auto", "target": "de"}
    found = answer(client, json={"q": "The cat sees a dog.", **body})["detectedLanguage"]
    assert found["language"] == "en"
    assert 0 <= found["confidence"] <= 100
    several = answer(client, json={"q": LINES[:2], **body})
    assert [each["language"] for each in several["detectedLanguage"]] == ["en", "en"]
    together = answer(client, json={"q": LINES[:2], **body, "cotext": {"document": True}})
    assert len(together["detectedLanguage"]) == len(together["translatedText"]) == 2


def test_the_likeliest_of_the_languages_asked_for(client: TestClient) -> None:
    english, german = "The cat sees a dog.", "Der Hund sieht die Katze."
    [answered] = answer(client, "/detect", data={"q": german, "api_key": "x"})
    assert (answered.keys(), answered["language"]) == ({"confidence", "language"}, "de")
    assert detect(english, ["de", "en"]).language == "en"
    found = detect(german, ["en", "de"])
    assert (found.language, found.confidence > 0.9) == ("de", True)
    assert detect("Le chat voit un chien dans le jardin.", ["en", "de"]).confidence < 0.05
    for text in ("", "12 + 30", "  \n"):
        assert detect(text, ["en", "de"]) == Detected("en", 0.0)
    assert detect(english, ["tlh", "qya"]) == Detected("tlh", 0.0)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Systems]]:
    """A server whose systems have beams of three, and these."""
    folder = tmp_path_factory.mktemp("wide")
    systems = tiny_systems(folder / "runs", beam=3)
    with TestClient(tiny_application(systems, folder / "state"), base_url="http://127.0.0.1") as client:
        yield client, systems


def test_alternatives_are_the_best_translations_after_the_first(wide: tuple[TestClient, Systems]) -> None:
    client, systems = wide
    [window] = [each for each in systems if each.name == "window"]
    translator = window.opened.listing().translator
    [(_, found)] = translator.translate([Document("1", ("A cat sees.", "It runs."))])
    first, second = ([candidate.text for candidate in each] for each in found.lists)
    assert (len(set(first)), len(set(second))) == (3, 2)
    body = {**EN_DE, "cotext": {"system": "window"}}
    plain = answer(client, json={"q": "A cat sees. It runs.", **body})
    for number in (1, 2, 9):
        asked = answer(client, json={"q": "A cat sees. It runs.", **body, "alternatives": number})
        assert asked["translatedText"] == plain["translatedText"] == f"{first[0]} {second[0]}"
        # The second best of each sentence, then the third best, or the best where there is no third.
        others = [f"{first[1]} {second[1]}", f"{first[2]} {second[0]}"]
        assert asked["alternatives"] == others[:number]


def test_alternatives_of_a_list_are_of_each_text(wide: tuple[TestClient, Systems]) -> None:
    client, _ = wide
    found = answer(client, json={"q": LINES[:2], **EN_DE, "alternatives": "2"})
    single = [answer(client, json={"q": text, **EN_DE, "alternatives": 2}) for text in LINES[:2]]
    assert found["alternatives"] == [each["alternatives"] for each in single]
    assert all(len(each) == 2 for each in found["alternatives"])
    page = answer(client, json={"q": "<p>A <b>cat</b></p>", **EN_DE, "format": "html", "alternatives": 1})
    [other] = page["alternatives"]
    assert other.startswith("<p>")
    assert other != page["translatedText"]


def test_where_there_is_no_other_translation_there_is_no_alternative(
    client: TestClient, wide: tuple[TestClient, Systems]
) -> None:
    greedy = {"q": LINES[0], **EN_DE, "alternatives": 3}
    assert answer(client, json=greedy)["alternatives"] == []  # a beam of one
    assert answer(wide[0], json={**greedy, "q": "7 × 8"})["alternatives"] == []
    copied = "<p>A cat sees <code>x = 1</code>.</p>"
    found = answer(wide[0], json={**greedy, "q": copied, "format": "html"})
    assert (found["alternatives"], "<code>x = 1</code>" in found["translatedText"]) == ([], True)
    in_session = answer(wide[0], json={**greedy, "cotext": {"session": "s", "segment": 1}})
    assert in_session["alternatives"] == []
    assert "alternatives" not in answer(client, data={**greedy, "alternatives": "0"})


def test_languages_have_names_and_targets(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]


@loop_over(
    ("asked", "status", "error"),
    [
        ({}, 400, "'q' not specified"),
        ({"q": "x", "target": "de"}, 400, "'source' not specified"),
        ({"q": "x", "source": "en"}, 400, "'target' not specified"),
        ({"q": 3, **EN_DE}, 400, "'q' has to be"),
        ({"q": ["x", 3], **EN_DE}, 400, "'q' has to be"),
        ({"q": "x", "source": 7, "target": "de"}, 400, "'source' has to be a string"),
        ({"q": "x", "source": "xx", "target": "de"}, 400, "'xx' is not supported"),
        ({"q": "x", "source": "auto", "target": "fr"}, 400, "'fr' is not supported; supported pairs"),
        ({"q": "x", "source": "?", "target": "de"}, 400, "give a language code"),
        ({"q": "x", **EN_DE, "format": "xml"}, 400, "'format' not supported"),
        ({"q": "x", **EN_DE, "alternatives": -1}, 400, "alternatives"),
        ({"q": "x", **EN_DE, "cotext": 3}, 400, "cotext"),
        ({"q": "x", **EN_DE, "cotext": {"documents": True}}, 400, "cotext"),
        ({"q": "x", **EN_DE, "cotext": {"session": 3}}, 400, "session"),
        ({"q": "x", **EN_DE, "cotext": '{"session": "s", "confirmed": "\\ud800"}'}, 400, "cotext"),
        ({"q": "x", **EN_DE, "cotext": '{"session": "s", "session": "t"}'}, 400, "cotext"),
        ({"q": "x", **EN_DE, "format": "html", "session": "s", "confirmed": "y"}, 400, "plain text"),
        ({"q": "word " * 2_000, **EN_DE}, 400, "at most 1024 tokens"),
        ({"q": "x" * 200_000, **EN_DE}, 413, "bytes of text"),
        ({"q": [""] * 3_000, **EN_DE}, 413, "2,000 texts"),
        ({"q": [""] * 300, **EN_DE, "cotext": {"session": "s"}}, 413, "200 texts"),
    ],
)
def test_what_is_refused_says_why(client: TestClient, asked: Any, status: int, error: str) -> None:
    found = client.post("/translate", json=asked)
    assert found.status_code == status
    assert found.json().keys() == {"error"}
    assert error in found.json()["error"]


def test_sessions_by_header_address_and_field(client: TestClient, translated: Translated) -> None:
    expected = translated(*LINES)
    header = {"X-Cotext-Session": "header"}
    for name, send in {
        "header": lambda line: answer(client, json={"q": line, **EN_DE}, headers=header),
        "address": lambda line: answer(client, "/session/address/translate", data={"q": line, **EN_DE}),
        "field": lambda line: answer(client, json={"q": line, **EN_DE, "cotext": {"session": "field"}}),
        "form": lambda line: answer(client, data={"q": line, **EN_DE, "session": "form"}),
    }.items():
        assert [send(line)["translatedText"] for line in LINES] == expected, name
    listed = answer(client, json={"q": LINES, **EN_DE, "cotext": {"session": "list", "segment": 4}})
    assert listed["translatedText"] == expected
    two, mine = "A cat.\r\nIt runs.\r\n", "Eine Katze.\r\nSie rennt.\r\n"
    for line, own in ((LINES[0], mine[:11]), (two, mine), (two, mine[:11]), (two, mine * 2)):
        confirmed = {"session": "list", "segment": 4, "confirmed": own}
        assert answer(client, json={"q": line, **EN_DE, "cotext": confirmed})["translatedText"] == own


def test_deepl_in_a_session(client: TestClient, translated: Translated) -> None:
    key = {"authorization": "DeepL-Auth-Key x"}

    def send(line: str, path: str = "/v2/translate", **more: Any) -> str:
        headers = key | more.pop("headers", {})
        found = client.post(path, json={"text": [line], "target_lang": "DE", **more}, headers=headers)
        assert found.status_code == 200, found.text
        return str(found.json()["translations"][0]["text"])

    expected = translated(*LINES)
    assert [send(line, "/session/other/v2/translate") for line in LINES] == expected
    numbered = [{"session": "third", "segment": number} for number in range(len(LINES))]
    assert [send(line, cotext=each) for line, each in zip(LINES, numbered, strict=True)] == expected
    assert send(LINES[1], cotext={**numbered[1], "confirmed": "Sie rennt."}) == "Sie rennt."


def test_libretranslatepy(quick_systems: Systems, tmp_path: Path, translated: Translated) -> None:
    module = pytest.importorskip("libretranslatepy")
    with served(tiny_application(quick_systems, tmp_path)) as client:
        api = module.LibreTranslateAPI(str(client.base_url), "any key")
        assert api.translate("\n".join(LINES), "en", "de") == "\n".join(translated(*LINES))
        assert api.detect("The cat sees a dog.")[0]["language"] == "en"
        assert [each["code"] for each in api.languages()] == ["en", "de"]
        session = module.LibreTranslateAPI(f"{client.base_url}/session/a")
        assert [session.translate(line, "en", "de") for line in LINES] == translated(*LINES)
