"""Translation memory: the same sentence in the same context, and nothing else."""

from pathlib import Path

from cotext.data.documents import Languages
from cotext.data.formats.xml_formats import encode_memory
from cotext.translation.terms.terms import TranslationMemory
from tests.refusals import must_raise

PAIRS = [
    ("Hello.", "Hallo.", "1"),
    ("It is old.", "Er ist alt.", "1"),
    ("A cafe\u0301.", "Eine Lampe.", "2"),
    ("It  is old.", "Sie ist\nalt.", "2"),
    ("Hello.", "Tag.", "2"),
    ("", "", "3"),
    ("Bye.", " ", "3"),
]


def test_a_sentence_is_found_behind_the_sentence_that_it_stood_behind() -> None:
    memory = TranslationMemory.of(PAIRS)
    assert memory.units == 5
    assert memory.lookup("It is old.", "Hello.") == "Er ist alt."
    assert memory.lookup("It is\u00a0old. ", "A  café.") == "Sie ist alt."
    assert memory.lookup("It is old.", None) is None
    assert memory.lookup("It is old.", "Something else.") is None
    assert memory.lookup("Hello.", None) == "Hallo."
    assert memory.lookup("hello.", None) is None
    assert memory.lookup("Bye.", "") is None


def test_the_sentences_of_documents_that_a_memory_has() -> None:
    documents = [("Hello.", "It is old.", "New."), ("It is old.",), ("A café.", "It is old.", "Hello.")]
    assert TranslationMemory.of(PAIRS).taken(documents) == {
        0: {0: "Hallo.", 1: "Er ist alt."},
        2: {0: "Eine Lampe.", 1: "Sie ist alt.", 2: "Tag."},
    }


def test_a_memory_is_read_from_tmx(tmp_path: Path) -> None:
    known = *PAIRS[:5], ("Bye.", "Tschüs.", "2")
    units = [(source, target, {"x-document": document}) for source, target, document in known]
    path = tmp_path / "memory.tmx"
    # A unit in another language is the context of the next one.
    path.write_bytes(encode_memory(units, "en", "de").replace(b'"de"><seg>Tag', b'"fr"><seg>Tag'))
    memory = TranslationMemory.read(path, Languages("en", "de"))
    assert memory.units == 5
    assert [memory.lookup("Bye.", before) for before in ("Hello.", "It is old.")] == ["Tschüs.", None]
    must_raise("no unit in en and es", TranslationMemory.read, path, Languages("en", "es"))
    must_raise("languages", TranslationMemory.read, path, Languages())
