"""The language of a text: measured where it can be, else a guess that says so."""

import pytest

from cotext.serving import translation
from cotext.serving.translation import Detected, detect

ENGLISH, GERMAN = "The cat sees a dog.", "Der Hund sieht die Katze."


@pytest.fixture
def without_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError

    monkeypatch.setattr(translation, "language_identifier", missing)


def test_the_likeliest_of_the_languages_asked_for() -> None:
    pytest.importorskip("py3langid")
    assert detect(ENGLISH, ["de", "en"]).language == "en"
    found = detect(GERMAN, ["en", "de"])
    assert found.language == "de"
    assert found.confidence > 0.9


def test_a_text_in_none_of_them_is_no_sure_find() -> None:
    pytest.importorskip("py3langid")
    assert detect("Le chat voit un chien dans le jardin.", ["en", "de"]).confidence < 0.05


@pytest.mark.parametrize("text", ["", "12 + 30", "  \n"])
def test_without_letters_nothing_is_known(text: str) -> None:
    assert detect(text, ["en", "de"]) == Detected("en", 0.0)


@pytest.mark.usefixtures("without_identifier")
@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        ("Это было старым.", "ru"),
        ("北京很大。", "zh"),
        ("東京は大きい。", "ja"),
        ("Ήταν παλιό.", "en"),
        ("Das war 北京.", "en"),
    ],
)
def test_a_script_is_a_guess(text: str, language: str) -> None:
    assert detect(text, ["en", "ru", "ja", "zh"]) == Detected(language, 0.0)
