import random
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotext.data import store as store_module
from cotext.data.store import TokenStore, Totals, store_writer
from cotext.runtime import CotextError
from tests.refusals import must_raise

Side = list[list[int]]

sentences = st.lists(st.integers(0, 2**31 - 1), max_size=6)
documents = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5)


def write(path: Path, corpus: list[tuple[str, Side, Side]]) -> TokenStore:
    with store_writer(path, "fingerprint") as writer:
        for document in corpus:
            writer.add(*document)
    return TokenStore(path)


def read(store: TokenStore) -> list[tuple[str, Side, Side]]:
    return [
        (document.id, [s.tolist() for s in document.source], [s.tolist() for s in document.target])
        for document in store
    ]


def corpus(size: int, seed: int = 1) -> list[tuple[str, Side, Side]]:
    generator = random.Random(seed)

    def side(sentences: int) -> Side:
        return [[generator.randrange(100) for _ in range(generator.randrange(9))] for _ in range(sentences)]

    counts = [generator.randint(1, 7) for _ in range(size)]
    return [(f"d{i}", side(count), side(count)) for i, count in enumerate(counts)]


@given(st.lists(documents, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read(
    tmp_path: Path, pairs: list[list[tuple[list[int], list[int]]]], batch_documents: int, batch_tokens: int
) -> None:
    written = [
        (f"ü {i}", [source for source, _ in document], [target for _, target in document])
        for i, document in enumerate(pairs)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "MAX_BATCH_DOCUMENTS", batch_documents)
        patch.setattr(store_module, "MAX_BATCH_TOKENS", batch_tokens)
        store = write(tmp_path / "store.arrow", written)
    assert len(store) == len(written)
    assert read(store) == written
    assert all(sentence.dtype == np.int32 for d in store for sentence in (*d.source, *d.target))
    for i, (_, source, target) in enumerate(written):
        source_lengths, target_lengths = store.lengths(i)
        assert source_lengths.tolist() == [len(sentence) for sentence in source]
        assert target_lengths.tolist() == [len(sentence) for sentence in target]
    assert store.totals == Totals(
        len(written),
        sum(len(source) for _, source, _ in written),
        sum(len(s) for _, source, _ in written for s in source),
        sum(len(s) for _, _, target in written for s in target),
    )


def test_random_access_to_more_batches_than_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_BATCH_DOCUMENTS", 3)
    monkeypatch.setattr(store_module, "OPEN_BATCHES", 2)
    written = corpus(100)
    store = write(tmp_path / "s", written)
    for i in random.Random(3).sample(range(100), 100):
        document = store[i]
        assert document.index == i
        assert (document.id, [s.tolist() for s in document.source]) == written[i][:2]
        assert store.lengths(i)[1].tolist() == [len(sentence) for sentence in written[i][2]]
    assert len(store._batches) <= 2
    with pytest.raises(IndexError, match="document 100 of 100"):
        store[100]
    with pytest.raises(IndexError):
        store.lengths(-1)


def test_tokens_are_views_of_the_file(tmp_path: Path) -> None:
    store = write(tmp_path / "s", corpus(20))
    before = pa.total_allocated_bytes()
    kept = [store[i] for i in range(20)] and [store.lengths(i) for i in range(20)]
    assert len(kept) == 20
    assert pa.total_allocated_bytes() == before
    with pytest.raises(ValueError, match="read-only"):
        store[0].source[0][:] = 0


def test_same_corpus_same_bytes_and_another_tokenizer_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, corpus(700))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    store = write(tmp_path / "s", corpus(3))
    store.require_tokenizer(SimpleNamespace(fingerprint="fingerprint"))  # type: ignore[arg-type]
    must_raise("made with another tokenizer", store.require_tokenizer, SimpleNamespace(fingerprint="else"))


def test_refused_documents_and_interruptions_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for source, target in (([[1]], [[1], [2]]), ([], [])):
        with pytest.raises(CotextError, match="document 'x'"), store_writer(path, "f") as writer:
            writer.add("x", source, target)
    assert not list(tmp_path.iterdir())
    write(path, corpus(3))
    before = path.read_bytes()

    class Interrupting(list[list[int]]):
        def __iter__(self) -> NoReturn:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), store_writer(path, "other") as writer:
        writer.add("a", Interrupting([[1]]), [[2]])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_lengths_that_disagree_with_tokens_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(path, [("a", [[1111, 2222, 3333]], [[4444]])])
    content = path.read_bytes()
    tokens = np.array([1111, 2222, 3333], np.int32).tobytes()
    # After the tokens: the offsets 0 and 1 of the list of lengths, then the one length.
    place = content.index(np.array([0, 1, 3], np.int32).tobytes(), content.index(tokens)) + 8
    path.write_bytes(content[:place] + np.array([9], np.int32).tobytes() + content[place + 4 :])
    store = TokenStore(path)
    must_raise("damaged", store.__getitem__, 0)


def test_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    must_raise("can't be read", TokenStore, path)
    write(path, corpus(300))
    whole = path.read_bytes()
    for length in (0, 1, 8, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        must_raise(f"{path.name}: ", TokenStore, path)
    path.write_text("a sentence\n" * 100)
    must_raise("not a token store", TokenStore, path)
    table = pa.table({"id": ["a"]})
    for metadata, message in (
        (None, "an Arrow file, but not a token store"),
        ({"cotext_store": "99"}, "a token store of format 99; this version reads format 1"),
        ({"cotext_store": "1"}, "damaged"),
    ):
        with pa.ipc.new_file(str(path), table.schema.with_metadata(metadata)) as writer:
            writer.write_table(table.replace_schema_metadata(metadata))
        must_raise(message, TokenStore, path)
