"""Glossaries on disk: each client has its own, and what cannot be a term is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cotext.data.documents import Languages
from cotext.serving.state import GlossaryStore
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.serving.waiting import refused

EN_DE = Languages("en", "de")


def test_a_glossary_is_kept_for_its_client(tmp_path: Path) -> None:
    made = GlossaryStore(tmp_path).create("ann", "animals", EN_DE, [("cat", " Katze "), ("ant", "Ameise")])
    store = GlossaryStore(tmp_path)  # as a server that starts again
    assert store.all_of("ann") == [made] == [store.get("ann", made.id)]
    assert (made.name, made.languages, made.entries) == ("animals", EN_DE, 2)
    assert store.entries("ann", made.id) == [("ant", "Ameise"), ("cat", "Katze")]
    assert store.all_of("bob") == []
    for method in (store.get, store.entries, store.delete):
        assert refused(method, "bob", made.id).status == 404
    store.delete("ann", made.id)
    assert store.all_of("ann") == GlossaryStore(tmp_path).all_of("ann") == []
    assert "no such glossary" in refused(store.entries, "ann", made.id).message


@loop_over(
    ("name", "entries", "message"),
    [
        ("n\n", [("a", "b")], "name"),
        ("n" * 1025, [("a", "b")], "name"),
        ("n", [], "no entry"),
        ("n", [("a", "b"), ("", "c")], "entry 2"),
        ("n", [("a", "b\x07")], "entry 1"),
        ("n", [("a", "b\ud800")], "entry 1"),
        ("n", [("a", "b"), ("c", "d"), ("a ", "e")], "entry 3 has the same source term as entry 1"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, name: str, entries: list[tuple[str, str]], message: str
) -> None:
    store = GlossaryStore(tmp_path)
    error = refused(store.create, "ann", name, EN_DE, entries)
    assert (error.status, message in error.message) == (400, True)
    assert store.all_of("ann") == []


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.create("ann", f"{n}", EN_DE, [("a", f"{n}")]), range(8)))
    assert sorted(each.name for each in store.all_of("ann")) == [str(n) for n in range(8)]


def test_a_client_has_a_number_of_glossaries_and_an_eighth_of_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.serving.state.MAX_BYTES", 800_000)
    monkeypatch.setattr("cotext.serving.state.MAX_GLOSSARIES", 2)
    store = GlossaryStore(tmp_path)
    entries = [(f"{n} {'x' * 900}", "y") for n in range(80)]  # 80,000 bytes
    made = store.create("eve", "much", EN_DE, entries)
    store = GlossaryStore(tmp_path)  # sizes are known after a new start
    error = refused(store.create, "eve", "more", EN_DE, entries)
    assert "2 glossaries at most, and 100,000 bytes together" in error.message
    assert error.status == 456
    assert store.all_of("eve") == [made]
    mine = [store.create("ann", "mine", EN_DE, [("a", "b")]) for _ in range(2)]
    assert refused(store.create, "ann", "mine", EN_DE, [("a", "b")]).status == 456

    def fill() -> None:
        for n in range(20):
            store.create(f"{n}", "much", EN_DE, entries)

    error = refused(fill)
    assert (error.status, "no space for more glossaries" in error.message) == (503, True)
    assert store.all_of("ann") == mine
    store.delete("eve", made.id)
    store.create("bob", "mine", EN_DE, [("a", "b")])


def test_a_damaged_glossary_is_refused_and_an_unfinished_one_deleted(tmp_path: Path) -> None:
    made = GlossaryStore(tmp_path).create("ann", "mine", EN_DE, [("a", "b")])
    path = tmp_path / "glossaries" / f"{made.id}.tsv"
    assert path.stat().st_mode & 0o077 == 0
    unfinished = path.with_name(".b.tsv")  # of a server that was killed
    unfinished.write_text('{"id')
    assert GlossaryStore(tmp_path).all_of("ann") == [made]
    assert not unfinished.exists()
    path.write_text("a\tb\n")
    must_raise("damaged", GlossaryStore, tmp_path)


def test_what_storage_refuses_changes_nothing(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    made = store.create("ann", "mine", EN_DE, [("a", "b")])
    [path] = (tmp_path / "glossaries").glob("*.tsv")
    path.unlink()
    path.mkdir()
    assert refused(store.delete, "ann", made.id).status == 503
    path.rmdir()
    path.parent.rmdir()
    path.parent.write_text("not a folder")
    assert refused(store.create, "ann", "more", EN_DE, [("a", "b")]).status == 503
    assert store.all_of("ann") == [made]
