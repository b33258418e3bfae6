"""The language of a text, and how sure that is."""

import pytest

from cotext.serving.translation import Detected, detect

ENGLISH, GERMAN = "The cat sees a dog.", "Der Hund sieht die Katze."


def test_the_likeliest_of_the_languages_asked_for() -> None:
    assert detect(ENGLISH, ["de", "en"]).language == "en"
    found = detect(GERMAN, ["en", "de"])
    assert found.language == "de"
    assert found.confidence > 0.9


def test_a_text_in_none_of_them_is_no_sure_find() -> None:
    assert detect("Le chat voit un chien dans le jardin.", ["en", "de"]).confidence < 0.05


@pytest.mark.parametrize("text", ["", "12 + 30", "  \n"])
def test_without_letters_nothing_is_known(text: str) -> None:
    assert detect(text, ["en", "de"]) == Detected("en", 0.0)


def test_of_languages_that_are_not_known_the_first_is_taken() -> None:
    assert detect(ENGLISH, ["tlh", "qya"]) == Detected("tlh", 0.0)
