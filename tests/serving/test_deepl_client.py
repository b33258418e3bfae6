"""DeepL's own client against a server: what it sends is understood, and what it reads is there."""

import io
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import deepl
import httpx2 as httpx
import pytest

from cotext.serving.systems import System, Systems
from tests.serving.loopback import served
from tests.serving.tiny_server import tiny_application
from tests.translating import translated_lines

TEXTS = ["The cat sees a dog.", "It runs.", "It sings!"]
Translated = Callable[..., list[list[str]]]
DOCUMENT = {"cotext": {"document": True, "system": "window"}}
WINDOW = {"cotext": {"system": "window"}}


@pytest.fixture
def client(server: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> deepl.DeepLClient:
    # The client asks every five seconds how far a document is.
    monkeypatch.setattr(
        "deepl.translator.time", SimpleNamespace(sleep=lambda _: time.sleep(0.02), time=time.time)
    )
    return deepl.DeepLClient("a key", server_url=str(server.base_url))


@pytest.fixture
def translated(systems: Systems) -> Translated:
    """Documents of lines, translated without a server."""

    def translate(*documents: list[str], system: str = "window") -> list[list[str]]:
        return translated_lines(systems.named(system).opened, documents)

    return translate


def test_a_text_and_texts(client: deepl.DeepLClient, translated: Translated) -> None:
    [[one], [two]] = translated(TEXTS[:1], TEXTS[1:2], system="sentence")
    found = client.translate_text(TEXTS[0], target_lang="DE")
    assert isinstance(found, deepl.TextResult)
    assert (found.text, found.detected_source_lang) == (one, "EN")
    assert (found.billed_characters, found.model_type_used) == (len(TEXTS[0]), None)
    many = client.translate_text([TEXTS[1], "", TEXTS[0]], source_lang="en", target_lang="de")
    assert isinstance(many, list)
    assert [each.text for each in many] == [two, "", one]


def test_texts_share_no_context_unless_they_are_a_document(
    client: deepl.DeepLClient, translated: Translated
) -> None:
    def texts(extra: dict[str, object]) -> list[str]:
        found = client.translate_text(TEXTS, target_lang="DE", extra_body_parameters=extra)
        assert isinstance(found, list)
        return [each.text for each in found]

    apart = [line for [line] in translated(*([text] for text in TEXTS))]
    [together] = translated(TEXTS)
    assert together != apart  # or the test would see nothing
    assert texts(WINDOW) == apart
    assert texts(DOCUMENT) == together


def test_context_is_read_and_left_out(client: deepl.DeepLClient, translated: Translated) -> None:
    found = client.translate_text(
        TEXTS[2], target_lang="DE", context="\n".join(TEXTS[:2]), extra_body_parameters=WINDOW
    )
    assert isinstance(found, deepl.TextResult)
    [[_, _, wanted]] = translated(TEXTS)
    assert found.text == wanted
    assert found.billed_characters == len(TEXTS[2])


def test_lines_and_sentences_of_a_text_share_context_and_its_white_space_stays(
    client: deepl.DeepLClient, translated: Translated
) -> None:
    [[one, two, three]] = translated(TEXTS)
    text = f"  {TEXTS[0]}  {TEXTS[1]}\n\n\t{TEXTS[2]}\r\n"
    found = client.translate_text(text, target_lang="DE", extra_body_parameters=WINDOW)
    assert isinstance(found, deepl.TextResult)
    assert found.text == f"  {one}  {two}\n\n\t{three}\r\n"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target_lang": "FR"}, "target language.*not supported; supported pairs are en-de"),
        ({"source_lang": "XX"}, "source.*not supported"),
        ({"source_lang": "de"}, "source language.*not supported; supported pairs are en-de"),
        ({"formality": "more"}, "Target language.*formality"),
        ({"formality": "rude"}, "formality"),
        ({"split_sentences": "2"}, "split_sentences"),
        ({"tag_handling": "yaml"}, "tag_handling"),
        ({"model_type": "best"}, "model_type"),
        ({"style_rule": "a"}, "style_id"),
        ({"glossary": "none", "source_lang": "EN"}, "no such glossary"),
        ({"extra_body_parameters": {"cotext": {"document": "x"}}}, "document"),
        ({"extra_body_parameters": {"cotext": "{"}}, "cotext"),
        ({"extra_body_parameters": {"cotext": {"system": "none"}}}, "known systems are"),
        ({"extra_body_parameters": {"text": ["a", 1]}}, "'text' has to be"),
        ({"extra_body_parameters": {"text": []}}, "'text' not specified"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_name(
    client: deepl.DeepLClient, asked: dict[str, object], said: str
) -> None:
    with pytest.raises(deepl.DeepLException, match=said) as refused:
        client.translate_text(TEXTS[0], **({"target_lang": "DE"} | asked))  # type: ignore[arg-type]
    assert refused.value.http_status_code in (400, 404)


def test_languages_are_those_of_the_systems(client: deepl.DeepLClient) -> None:
    [source], [target] = client.get_source_languages(), client.get_target_languages()
    assert (source.code, source.name) == ("EN", "English")
    assert (target.code, target.name, target.supports_formality) == ("DE", "German", False)
    [pair] = client.get_glossary_languages()
    assert (pair.source_lang, pair.target_lang) == ("en", "de")
    assert not client.get_usage().any_limit_reached


def test_documents_are_recognised_by_what_they_hold(
    client: deepl.DeepLClient, translated: Translated
) -> None:
    [[one]] = translated(TEXTS[:1], system="sentence")
    page = io.BytesIO(f"<!DOCTYPE html><html><body><p>{TEXTS[0]}</p></body></html>".encode())
    made = io.BytesIO()
    status = client.translate_document(page, made, target_lang="DE")  # uploaded under the name "file"
    assert (status.done, status.billed_characters) == (True, len(TEXTS[0]))
    assert made.getvalue().decode() == f"<!DOCTYPE html><html><body><p>{one}</p></body></html>"


def test_a_document_is_fetched_once_and_with_its_key(client: deepl.DeepLClient, tmp_path: Path) -> None:
    handle = client.translate_document_upload(TEXTS[0], target_lang="DE", filename="a.txt")
    wrong = deepl.DocumentHandle(handle.document_id, "0" * 64)
    with pytest.raises(deepl.DeepLException) as refused:
        client.translate_document_get_status(wrong)
    assert refused.value.http_status_code == 404
    assert client.translate_document_wait_until_done(handle).done
    for each, status in [(wrong, 404), (handle, None), (handle, 404)]:
        made = io.BytesIO()
        if status is None:
            client.translate_document_download(each, made)
            assert made.getvalue()
            continue
        with pytest.raises(deepl.DeepLException) as refused:
            client.translate_document_download(each, made)
        assert refused.value.http_status_code == status


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_glossaries(client: deepl.DeepLClient) -> None:
    made = client.create_glossary("animals", "EN", "DE", {"cat": "Katze", "dog": "Hund"})
    assert (made.name, made.ready, made.entry_count) == ("animals", True, 2)
    assert (made.source_lang, made.target_lang) == ("EN", "DE")
    assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
    assert client.get_glossary_entries(made) == {"cat": "Katze", "dog": "Hund"}
    assert made.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    [found] = client.translate_text(
        ["The cat sees a dog."], source_lang="EN", target_lang="DE", glossary=made
    )
    assert {"Katze", "Hund"} <= words(found.text)
    client.delete_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)
    with pytest.raises(deepl.DeepLException, match=r"target language.*not supported; supported pairs"):
        client.create_glossary("n", "EN", "XX", {"a": "b"})


def test_a_glossary_from_csv(client: deepl.DeepLClient) -> None:
    table = '"cat, big",Löwe,en,de\r\n\r\ndog,"der ""Hund"""\r\n'
    made = client.create_glossary_from_csv("animals", "EN", "DE", table)
    assert client.get_glossary_entries(made) == {"cat, big": "Löwe", "dog": 'der "Hund"'}


def test_several_glossaries_at_once(client: deepl.DeepLClient) -> None:
    made = [
        client.create_glossary("a", "EN", "DE", {"cat": "Katze"}),
        client.create_glossary("b", "EN", "DE", {"cat": "Kater", "dog": "Hund"}),
    ]
    asked = {"source_lang": "EN", "target_lang": "DE"}
    [found] = client.translate_text(["The cat sees a dog."], glossary_ids=made, **asked)
    assert {"Katze", "Hund"} <= words(found.text)
    document = io.BytesIO()
    client.translate_document(io.BytesIO(b"The cat sees a dog.\n"), document, glossary_ids=made, **asked)
    assert {"Katze", "Hund"} <= words(document.getvalue().decode())
    # In a session, a segment with other terms is translated again.
    session = {"cotext": {"session": "s"}}
    for each, word in zip(made, ("Katze", "Kater"), strict=True):
        [found] = client.translate_text(
            ["The cat sees a dog."], glossary=each, extra_body_parameters=session, **asked
        )
        assert word in words(found.text)


def test_each_text_has_the_system_of_its_own_language(systems: Systems, tmp_path: Path) -> None:
    english = systems.named("sentence")
    config = english.opened.loaded.config.model_copy(update={"languages": "ru-de"})
    loaded = replace(english.opened.loaded, config=config)
    russian = System("russian", replace(english.opened, loaded=loaded))
    with served(tiny_application(Systems([english, russian]), tmp_path)) as server:
        client = deepl.DeepLClient("k", server_url=str(server.base_url))
        found = client.translate_text(["The cat sees a dog.", "Кошка видит собаку.", "It"], target_lang="DE")
        assert [each.detected_source_lang for each in found] == ["EN", "RU", "EN"]
        [told] = client.translate_text(["Кошка"], source_lang="EN", target_lang="DE")
        assert told.detected_source_lang == "EN"
        with pytest.raises(deepl.DeepLException, match="'source_lang' not specified"):
            client.translate_document_upload("Кошка", target_lang="DE", filename="a.txt")
