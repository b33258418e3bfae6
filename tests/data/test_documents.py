import dataclasses

import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.runtime.errors import CotextError


def test_the_length_of_a_document_is_its_number_of_sentences() -> None:
    assert len(Document("a", ("One.", "", "Three."))) == 3
    assert len(ParallelDocument("a", ("One.", "Two."), ("Eins.", "Zwei."))) == 2


def test_sides_of_different_length_are_refused_with_both_counts() -> None:
    with pytest.raises(CotextError, match=r"document 'news/7': 2 source sentences but 1 target"):
        ParallelDocument("news/7", ("One.", "Two."), ("Eins.",))


def test_documents_are_values() -> None:
    first, second = Document("a", ("One.",)), Document("a", ("One.",))
    assert first == second
    assert {first, second} == {first}
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.id = "b"  # type: ignore[misc]
