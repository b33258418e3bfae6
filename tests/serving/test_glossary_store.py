"""Glossaries on disk: each client has its own, and what cannot be a term is refused."""

import threading
from pathlib import Path

import pytest

from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError
from cotext.serving import glossary_store
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import GlossaryStore, entries_together, wishes_of
from tests.loops import loop_over

EN_DE = Languages("en", "de")


def test_a_glossary_is_kept(tmp_path: Path) -> None:
    made = GlossaryStore(tmp_path).create("ann", "animals", EN_DE, [("cat", " Katze "), ("ant", "Ameise")])
    store = GlossaryStore(tmp_path)  # as a server that starts again
    assert store.all_of("ann") == [made] == [store.get("ann", made.id)]
    assert (made.name, made.languages, made.entries) == ("animals", EN_DE, 2)
    assert store.entries("ann", made.id) == [("ant", "Ameise"), ("cat", "Katze")]
    store.delete("ann", made.id)
    assert store.all_of("ann") == []
    with pytest.raises(RequestError, match="no such glossary"):
        store.entries("ann", made.id)


def test_nothing_of_one_client_is_there_for_another(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    made = store.create("ann", "mine", EN_DE, [("a", "b")])
    assert store.all_of("bob") == []
    for asked in (
        lambda: store.get("bob", made.id),
        lambda: store.entries("bob", made.id),
        lambda: store.delete("bob", made.id),
    ):
        with pytest.raises(RequestError) as refused:
            asked()
        assert refused.value.status == 404
    assert store.entries("ann", made.id) == [("a", "b")]


@loop_over(
    ("name", "languages", "entries", "said"),
    [
        (" ", EN_DE, [("a", "b")], "name"),
        ("n\n", EN_DE, [("a", "b")], "name"),
        ("n", Languages("en", "en"), [("a", "b")], "two language codes"),
        ("n", Languages("en", "xx"), [("a", "b")], "two language codes"),
        ("n", EN_DE, [], "must have 1 to"),
        ("n", EN_DE, [("a", "b"), ("", "c")], "entry 2"),
        ("n", EN_DE, [("a", "b\x07")], "entry 1"),
        ("n", EN_DE, [("a", "b\ud800")], "entry 1"),
        ("n", EN_DE, [("a", "b"), ("c", "d"), ("a ", "e")], "entry 3 has the same source term as entry 1"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, name: str, languages: Languages, entries: list[tuple[str, str]], said: str
) -> None:
    store = GlossaryStore(tmp_path)
    with pytest.raises(RequestError, match=said) as refused:
        store.create("ann", name, languages, entries)
    assert refused.value.status == 400
    assert store.all_of("ann") == []


def test_there_is_an_end_to_glossaries_and_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotext.serving.glossary_store.MAX_GLOSSARIES", 1)
    monkeypatch.setattr("cotext.serving.glossary_store.MAX_ENTRIES", 2)
    store = GlossaryStore(tmp_path)
    store.create("ann", "n", EN_DE, [("a", "b"), ("c", "d")])
    with pytest.raises(RequestError) as refused:
        store.create("ann", "n", EN_DE, [("a", "b")])
    assert refused.value.status == 456
    with pytest.raises(RequestError, match="1 to 2 entries"):
        store.create("bob", "n", EN_DE, [("a", "b"), ("c", "d"), ("e", "f")])
    store.create("bob", "n", EN_DE, [("a", "b")])


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    threads = [
        threading.Thread(target=store.create, args=("ann", f"{n}", EN_DE, [("a", f"{n}")])) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(each.name for each in store.all_of("ann")) == [str(n) for n in range(8)]


def test_a_client_has_an_eighth_of_the_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary_store, "MAX_BYTES", 800_000)
    store = GlossaryStore(tmp_path)
    entries = [(f"{n} {'x' * 900}", "y") for n in range(80)]  # 80,000 bytes
    made = store.create("eve", "much", EN_DE, entries)
    with pytest.raises(RequestError, match="your glossaries may use 100,000 bytes at most") as refused:
        store.create("eve", "more", EN_DE, entries)
    assert refused.value.status == 456
    assert store.all_of("eve") == [made]
    mine = store.create("ann", "mine", EN_DE, [("a", "b")])

    def fill() -> None:
        for n in range(20):
            store.create(f"{n}", "much", EN_DE, entries)

    with pytest.raises(RequestError, match="no space for more glossaries") as refused:
        fill()
    assert refused.value.status == 503
    assert store.all_of("ann") == [mine]
    store.delete("eve", made.id)
    store.create("bob", "mine", EN_DE, [("a", "b")])


def test_of_several_glossaries_the_first_says_the_translation() -> None:
    entries = entries_together([[("cat", "Katze")], [("cat", "Kater"), ("dog", "Hund")]])
    assert dict(entries) == {"cat": "Katze", "dog": "Hund"}
    wishes = wishes_of(entries)
    assert wishes.glossary is not None
    assert {term.source: term.targets for term in wishes.glossary.terms} == {
        "cat": ("Katze",),
        "dog": ("Hund",),
    }
    assert not wishes_of(()).of_terms


def test_a_damaged_glossary_is_refused(tmp_path: Path) -> None:
    made = GlossaryStore(tmp_path).create("ann", "mine", EN_DE, [("a", "b")])
    path = tmp_path / "glossaries" / f"{made.id}.tsv"
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("a\tb\n")
    with pytest.raises(CotextError, match="damaged"):
        GlossaryStore(tmp_path)


def test_what_storage_does_not_delete_stays(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    made = store.create("ann", "mine", EN_DE, [("a", "b")])
    [path] = (tmp_path / "glossaries").glob("*.tsv")
    path.unlink()
    path.mkdir()
    with pytest.raises(RequestError) as refused:
        store.delete("ann", made.id)
    assert refused.value.status == 503
    assert store.all_of("ann") == [made]
