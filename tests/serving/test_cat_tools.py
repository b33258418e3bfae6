"""Requests as plugins of CAT tools send them: OPUS-CAT's."""

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.tiny_server import tiny_application

LINES = ["A cat sees.", "It runs.", "It sings!"]
OPUS_CAT = {"modelTag": "", "srcLangCode": "en", "tokenCode": "0", "trgLangCode": "de"}
ARRAYS = "{http://schemas.microsoft.com/2003/10/Serialization/Arrays}"


@pytest.fixture(scope="module")
def client(quick_systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    application = tiny_application(quick_systems, tmp_path_factory.mktemp("state"))
    with TestClient(application, base_url="http://127.0.0.1") as client:
        yield client


def get(client: TestClient, path: str, **asked: str) -> Any:
    found = client.get(path, params=asked)
    assert found.status_code == 200, found.text
    return found


def test_opus_cat_of_omegat(client: TestClient, translated: Callable[..., list[str]]) -> None:
    # As its plugin orders the fields, with the languages of the project as ISO 639-1.
    found = client.get(
        "/MTRestService/TranslateJson?input=A+cat+sees.&modelTag=&srcLangCode=en&tokenCode=0&trgLangCode=de"
    )
    assert found.json() == {"translation": translated("A cat sees.")[0]}


def test_opus_cat_lists_pairs_and_systems(client: TestClient) -> None:
    pairs = ElementTree.fromstring(get(client, "/MTRestService/ListSupportedLanguagePairs").content)
    assert pairs.tag == f"{ARRAYS}ArrayOfstring"
    assert [each.text for each in pairs] == ["en-de"]
    asked = {"tokenCode": "0", "srcLangCode": "en", "trgLangCode": "de"}
    tags = ElementTree.fromstring(get(client, "/MTRestService/GetLanguagePairModelTags", **asked).content)
    assert [each.text for each in tags] == ["window", "sentence", "document"]


def test_opus_cat_as_xml_escapes_text(client: TestClient) -> None:
    found = get(client, "/MTRestService/Translate", **OPUS_CAT, input="<b>A</b> &amp; {0}")
    text = ElementTree.fromstring(found.content).text
    assert text is not None
    assert {"<b>", "</b>", "&amp;", "{0}"} <= {
        part for part in ("<b>", "</b>", "&amp;", "{0}") if part in text
    }


def test_the_model_tag_names_a_system(client: TestClient, translated: Callable[..., list[str]]) -> None:
    lines = {"input": "\n".join(LINES)}
    for tag, system in (("sentence", "sentence"), ("", "window"), ("opus-2020-02-26", "window")):
        found = get(client, "/MTRestService/TranslateJson", **{**OPUS_CAT, **lines, "modelTag": tag})
        assert found.json()["translation"].split("\n") == translated(*LINES, system=system)


def test_opus_cat_in_a_session(client: TestClient, translated: Callable[..., list[str]]) -> None:
    path = "/session/project/MTRestService"
    found = [get(client, f"{path}/TranslateJson", **OPUS_CAT, input=line).json() for line in LINES]
    assert [each["translation"] for each in found] == translated(*LINES)
    pair = {"tokenCode": "0", "srcLangCode": "en", "trgLangCode": "de"}
    stored = get(client, f"{path}/StoreTranslation", **pair, source=LINES[1], target="Sie rennt.")
    assert stored.content == b""
    again = get(client, f"{path}/TranslateJson", **OPUS_CAT, input=LINES[1]).json()
    assert again == {"translation": "Sie rennt."}
    get(client, "/MTRestService/StoreTranslation", **pair, source=LINES[1], target="Sie rennt.")


@loop_over("asked", [{}, {**OPUS_CAT}, {**OPUS_CAT, "input": "x", "trgLangCode": "fi"}, {"input": "x"}])
def test_opus_cat_refuses_with_400(client: TestClient, asked: dict[str, str]) -> None:
    assert client.get("/MTRestService/TranslateJson", params=asked).status_code == 400


def test_deepl_in_a_session(client: TestClient, translated: Callable[..., list[str]]) -> None:
    key = {"authorization": "DeepL-Auth-Key x"}

    def send(line: str, path: str = "/v2/translate", **more: Any) -> str:
        headers = key | more.pop("headers", {})
        found = client.post(path, json={"text": [line], "target_lang": "DE", **more}, headers=headers)
        assert found.status_code == 200, found.text
        return str(found.json()["translations"][0]["text"])

    expected = translated(*LINES)
    assert [send(line, headers={"X-Cotext-Session": "deepl"}) for line in LINES] == expected
    assert [send(line, "/session/other/v2/translate") for line in LINES] == expected
    numbered = [{"session": "third", "segment": number} for number in range(len(LINES))]
    assert [send(line, cotext=each) for line, each in zip(LINES, numbered, strict=True)] == expected
    assert send(LINES[1], cotext={**numbered[1], "confirmed": "Sie rennt."}) == "Sie rennt."
    refused = client.post(
        "/v2/translate", json={"text": ["x"], "target_lang": "DE", "cotext": {"sesion": "s"}}, headers=key
    )
    assert refused.status_code == 400
