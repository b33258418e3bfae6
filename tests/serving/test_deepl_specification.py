"""Answers against DeepL's published specification, and requests as other clients than DeepL's send them.

Requests that schemathesis makes up follow the specification or break it: no fault of the server, and
nothing of its machine in an answer.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings

from cotext.serving import deepl
from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.hostile_requests import LEAKS
from tests.serving.loopback import served
from tests.serving.tiny_server import tiny_application
from tests.serving.waiting import until

SPECIFICATION = Path(__file__).resolve().parents[3] / "shared" / "deepl" / "openapi.yaml"
KEY = {"Authorization": "DeepL-Auth-Key k"}
TEXT = {"text": ["The cat."], "target_lang": "DE"}


@pytest.fixture(scope="module")
def server(systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    state = tmp_path_factory.mktemp("state")
    with served(tiny_application(systems, state, max_text_bytes=8_000, max_sentences=20)) as client:
        client.headers.update(KEY)
        yield client


@cache
def specification() -> Any:
    if not SPECIFICATION.is_file():
        pytest.skip(f"{SPECIFICATION} is not there")
    return yaml.load(SPECIFICATION.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def resolved(content: Any) -> Any:
    while isinstance(content, dict) and "$ref" in content:
        found = specification()
        for part in content["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        content = found
    return content


def check(answer: httpx.Response, path: str) -> httpx.Response:
    """The answer, which is as the specification of its path says."""
    import jsonschema

    known = specification()
    told = known["paths"][path][answer.request.method.lower()]["responses"]
    statuses = {int(status): described for status, described in told.items()}
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    content = resolved(statuses[answer.status_code]).get("content")
    if not content:
        return answer
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in content
    if schema := content[kind].get("schema") if kind == "application/json" else None:
        whole = {"components": known["components"], **schema}
        jsonschema.validate(answer.json(), whole, format_checker=jsonschema.FormatChecker())
    return answer


def translated(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["translations"]]


@loop_over(
    "asked",
    [
        TEXT,
        TEXT | {"source_lang": "EN", "context": "A dog. It runs.", "show_billed_characters": True},
        TEXT | {"model_type": "latency_optimized", "preserve_formatting": True, "formality": "prefer_less"},
        TEXT | {"tag_handling": "xml", "tag_handling_version": "v2", "ignore_tags": ["x"]},
        TEXT | {"tag_handling": "html", "split_sentences": "nonewlines", "outline_detection": False},
        TEXT | {"enable_beta_languages": True, "target_lang": "de-AT"},
        TEXT | {"target_lang": "FR"},
        TEXT | {"text": ["a" * 17_000]},
        TEXT | {"tag_handling_version": "v9"},
        TEXT | {"glossary_id": "none", "source_lang": "EN"},
        TEXT | {"glossary_ids": list("123456")},
        TEXT | {"text": [["a"]]},
        TEXT | {"target_lang": ["DE", "EN"]},
        {"text": ["The cat."]},
        TEXT | {"text": [""] * 21},  # too many, and too many for so much context
        TEXT | {"text": ["4"] * 20, "context": "4\n" * 3_500},
    ],
)
def test_translations(server: httpx.Client, asked: dict[str, Any]) -> None:
    answer = check(server.post("/v2/translate", json=asked), "/v2/translate")
    assert answer.status_code == 413 or len(asked["text"]) == 1


def test_languages_and_usage(server: httpx.Client) -> None:
    for kind in ("", "?type=source", "?type=target", "?type=x"):
        check(server.get(f"/v2/languages{kind}"), "/v2/languages")
    check(server.get("/v2/usage"), "/v2/usage")
    check(server.get("/v2/glossary-language-pairs"), "/v2/glossary-language-pairs")


def test_glossaries(server: httpx.Client) -> None:
    path = "/v2/glossaries"
    asked = {"name": "n", "source_lang": "en", "target_lang": "de"}
    asked |= {"entries": "\ufeffa\tb\n", "entries_format": "tsv"}
    made = check(server.post(path, json=asked), path).json()
    assert check(server.post(path, data=asked), path).status_code == 201
    for wrong in (
        {"entries": "a"}, {"entries": "a\tb\tc"}, {"entries": "a", "entries_format": "csv"},
        {"source_lang": ""}, {"entries_format": "xls"},
    ):  # fmt: skip
        assert check(server.post(path, json=asked | wrong), path).status_code == 400, wrong
    check(server.get(path), path)
    of_one, one = f"{path}/{made['glossary_id']}", f"{path}/{{glossary_id}}"
    check(server.get(of_one), one)
    assert check(server.get(f"{of_one}/entries"), f"{one}/entries").text == "a\tb"
    wrong_kind = server.get(f"{of_one}/entries", headers={"Accept": "application/json"})
    assert check(wrong_kind, f"{one}/entries").status_code == 415
    assert check(server.delete(of_one), one).status_code == 204
    for gone in (server.get(of_one), server.delete(of_one)):
        assert check(gone, one).status_code == 404


def test_documents(server: httpx.Client) -> None:
    path = "/v2/document"
    file = {"file": ("a.txt", b"The cat runs.\n")}
    asked = {"target_lang": "DE", "source_lang": "EN"}
    made = check(server.post(path, data=asked, files=file), path).json()
    key = {"document_key": made["document_key"]}
    of_one, one = f"{path}/{made['document_id']}", f"{path}/{{document_id}}"
    until(lambda: check(server.post(of_one, json=key), one).json()["status"] == "done")
    check(server.post(of_one, data=key), one)
    check(server.post(of_one, json={}), one)
    check(server.post(of_one, json={"document_key": "x"}), one)
    check(server.post(f"{of_one}/result", json={"document_key": "x"}), f"{one}/result")
    assert check(server.post(f"{of_one}/result", json=key), f"{one}/result").status_code == 200
    assert check(server.post(f"{of_one}/result", json=key), f"{one}/result").status_code == 404
    for pair in ("target_lang", "FR"), ("target_lang", ""), ("output_format", "docx"), ("formality", "less"):
        assert check(server.post(path, data=asked | dict([pair]), files=file), path).status_code == 400
    binary = {"file": ("a.bin", b"\0\1\xff" * 99)}
    assert check(server.post(path, data=asked, files=binary), path).status_code == 400


# --- other clients


def test_weblate_has_its_placeholders_back(server: httpx.Client) -> None:
    """The fields that Weblate sends; its placeholders are elements, and its text is escaped."""
    texts = [
        'The cat sees <x id="7"></x> &lt;dogs&gt;.',
        '<x id="0"></x>The cat<x id="1"></x> runs, <x id="2"></x> &amp; <x id="3"></x>',
        '<x id="12"></x>',
    ]
    asked = {
        "text": texts, "source_lang": "EN", "target_lang": "DE", "formality": "default", "ignore_tags": ["x"],
        "tag_handling": "xml", "context": "A cat, a dog", "model_type": "prefer_quality_optimized",
    }  # fmt: skip
    found = translated(server.post("/v2/translate", json=asked))
    for text, target in zip(texts, found, strict=True):
        for number in range(20):
            element = f'<x id="{number}"></x>'
            assert target.count(element) == text.count(element)
    assert found[2] == texts[2]
    assert server.get("/v2/languages", params={"type": "target"}).json()[0]["language"] == "DE"


def test_forms_and_keys_in_fields(server: httpx.Client) -> None:
    [wanted] = translated(server.post("/v2/translate", json=TEXT))
    form = {"auth_key": "k", "text": ["The cat.", "The cat."], "target_lang": "de", "split_sentences": "1"}
    with httpx.Client(base_url=server.base_url) as client:
        found = translated(client.post("/v2/translate", data=form | {"preserve_formatting": "0"}))
        # Of a form, also the members of `cotext` are fields.
        assert client.post("/v2/translate", data=form | {"session": "s", "system": "none"}).status_code == 404
    assert found == [wanted, wanted]
    html = {"text": "<p>The cat</p>", "target_lang": "DE", "tag_handling": "html", "ignore_tags": "x,y"}
    [found_html] = translated(server.post("/v2/translate", data=html))
    assert (found_html[:3], found_html[-4:]) == ("<p>", "</p>")


def test_a_get_may_have_its_fields_in_a_body(server: httpx.Client) -> None:
    answer = server.request("GET", "/v2/languages", data={"type": "target"})
    assert [each["language"] for each in answer.json()] == ["DE"]


def test_markup_nested_deeply_is_translated_or_refused(server: httpx.Client) -> None:
    for text in ("<a>" * 500 + "The cat." + "</a>" * 500, "<a>" * 1000, "The <b>" * 20 + "cat" + "</b>" * 20):
        for kind in ("xml", "html"):
            asked = {"text": text, "target_lang": "DE", "tag_handling": kind}
            answer = server.post("/v2/translate", json=asked)
            assert answer.status_code in (200, 400), answer.text


# --- made-up requests


@cache
def described() -> Any:
    import schemathesis

    return schemathesis.openapi.from_dict(specification())


def attack(server: httpx.Client, place: str, examples: int) -> None:
    import schemathesis

    paths = described().raw_schema["paths"]
    known = next((path for path in paths if re.sub("{.*?}", "", path) == re.sub("{.*?}", "", place)), None)
    for method in ("get", "post", "put", "patch", "delete") if known is not None else ():
        if method not in paths[known]:
            continue
        operation = described()[known][method.upper()]
        modes = list(schemathesis.GenerationMode)
        if not operation.body and not operation.query:
            modes.remove(schemathesis.GenerationMode.NEGATIVE)  # nothing in it could be broken
        for mode in modes:
            # Of the cases that one is made of, some have parts that cannot be negated.
            unhealthy = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example]

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=[*unhealthy, HealthCheck.data_too_large],
            )
            def ask(case: Any) -> None:
                answer = case.call(base_url=str(server.base_url), headers=KEY, timeout=30)
                said = (place, method, answer.status_code, answer.text[:500])  # noqa: B023
                assert answer.status_code < 500 or answer.status_code == 503, said
                assert not LEAKS.search(answer.text), said
                assert answer.headers["x-content-type-options"] == ["nosniff"], said

            ask()


@loop_over("place", ("/v2/translate", "/v2/document", "/v2/glossaries", "/v2/usage", "/v2/languages"))
def test_made_up_requests(server: httpx.Client, place: str) -> None:
    attack(server, place, 3)


@pytest.mark.hostile
def test_many_made_up_requests(server: httpx.Client) -> None:
    for place in {route.path for route in deepl.routes()}:
        attack(server, place, 100)
