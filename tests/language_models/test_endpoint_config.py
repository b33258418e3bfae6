"""Descriptions of endpoints: what they mean, and what is refused before anything is sent."""

from pathlib import Path
from typing import Any

import pytest

from cotext.data.documents import Languages
from cotext.language_models.config import is_endpoint, read_endpoint
from tests.language_models.described import KEY, VARIABLE, described
from tests.loops import loop_over
from tests.refusals import must_raise


def test_languages_are_codes_or_names(tmp_path: Path) -> None:
    endpoint = read_endpoint(described(tmp_path, source_language="en", target_language="Swiss German"))
    assert endpoint.language_names == ("English", "Swiss German")
    assert endpoint.languages == Languages("en", "")
    endpoint = read_endpoint(described(tmp_path, source_language="english", target_language="German"))
    assert str(endpoint.languages) == "en-de"


def test_other_values_lie_over_those_of_the_file(tmp_path: Path) -> None:
    assert read_endpoint(described(tmp_path, mode="sentence"), {"mode": "document"}).mode == "document"


@loop_over(
    ("settings", "message"),
    [
        ({"mdoel": 1}, "unknown key 'mdoel'; the nearest known one is 'model'"),
        ({"model": ...}, "model is missing"),
        ({"mode": "paragraph"}, "mode = 'paragraph'"),
        ({"endpoint": "api.example.com/v1"}, "give the address of an API"),
        ({"endpoint": "http://[::1/v1"}, "give the address of an API"),
        ({"endpoint": "https://user:word@example.com/v1"}, "remove them"),
        ({"endpoint": "https://example.com/v1?key=abc"}, "remove them"),
        ({"mode": "sentence", "context": 2}, "context applies only to the modes context and chunk"),
        ({"mode": "document", "chunk": 2}, "chunk applies only to the mode chunk"),
        ({"mode": "context", "context": 0}, "is the mode sentence"),
        ({"source_language": "German", "target_language": "de"}, "are both German"),
        ({"template": "Translate!"}, "has no field {sentences}"),
        ({"template": "{sentence}"}, "is for the modes sentence and context"),
        ({"template": "{sentences}{sentences}"}, "several fields"),
        ({"template": "{sentences}", "mode": "chunk"}, "has no field {context}"),
        ({"template": "{context}{sentence}", "mode": "sentence"}, "this mode shows no context"),
        ({"timeout": 400}, "timeout = 400 is longer than total_timeout = 300"),
        ({"parameters": {"stream": True}}, "parameters: stream"),
        ({"parameters": {"top_p": {1: 2}}}, "parameters"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    path = described(tmp_path, **settings)
    found = must_raise("", read_endpoint, path)
    assert str(path) in found
    assert message in found


@pytest.mark.parametrize("settings", [{"key": KEY}, {"key": KEY.replace("-", "_")}, {"api_key": KEY}])
def test_a_key_in_the_file_is_refused_and_not_shown(tmp_path: Path, settings: dict[str, str]) -> None:
    assert "0123456789" not in must_raise("", read_endpoint, described(tmp_path, **settings))


def test_the_key_comes_from_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = read_endpoint(described(tmp_path, key=VARIABLE))
    monkeypatch.delenv(VARIABLE, raising=False)
    must_raise(VARIABLE, endpoint.secret)
    monkeypatch.setenv(VARIABLE, f"{KEY}\n")
    assert endpoint.secret() == KEY
    monkeypatch.setenv(VARIABLE, "Schlüssel-0123456789")
    assert "Schl" not in must_raise("", endpoint.secret)


def test_what_stands_where_a_run_may_stand(tmp_path: Path) -> None:
    assert is_endpoint(described(tmp_path))
    assert not is_endpoint(tmp_path)
    (tmp_path / "run.yaml").mkdir()
    assert not is_endpoint(tmp_path / "run.yaml")
