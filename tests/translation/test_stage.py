"""Translation as a stage of a data engine, without an engine."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tiny_runs import prepare_toy, run_config, toy_documents, with_section, write_run

from cotext.data.documents import Document
from cotext.data.shortlist import SHORTLIST, Shortlist
from cotext.models.checkpoint import load_weights, save_model
from cotext.runtime.errors import CotextError
from cotext.training.prepared_data import open_data
from cotext.translation.open import open_run
from cotext.translation.ray_data import TABLE_DOCUMENTS, RayCluster, tables_of, workers_of
from cotext.translation.ray_stage import ADDED, Translate, documents_of, files_of, table_of, translations_of

MODEL = "model.safetensors"
DOCUMENTS = [Document(d.id, d.source) for d in toy_documents(9, 5)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    config = with_section(run_config(), "decode", max_source_tokens=100)
    return write_run(folder / "run", config, open_data(prepare_toy(folder / "data")).tokenizer)


def test_as_many_documents_out_as_in_each_as_alone(run: Path) -> None:
    expected = dict(open_run(run).translator.translate(DOCUMENTS))
    mark = pa.array(range(len(DOCUMENTS)))
    given = table_of(DOCUMENTS, mark=mark)
    found = Translate(run)(given)
    assert found.select(given.column_names).equals(given)
    assert found.column_names == [*given.column_names, *ADDED]
    for number, translation in enumerate(translations_of(found)):
        assert translation == expected[number]
    # Divided and reordered by an engine: the same.
    stage = Translate(run)
    parts = [stage(given.take(rows)) for rows in ([8, 0, 3], [1, 2], [4, 5, 6, 7])]
    again = pa.concat_tables(parts).sort_by("mark")
    assert again.column("target").equals(found.column("target"))


def test_a_document_that_cannot_be_translated_stays_with_its_reason(run: Path) -> None:
    long = Document("long", ("the cat sees " * 200,))
    found = Translate(run)(table_of([DOCUMENTS[0], long, DOCUMENTS[1]])).to_pylist()
    assert [row["id"] for row in found] == [DOCUMENTS[0].id, "long", DOCUMENTS[1].id]
    assert [row["problem"] is None for row in found] == [True, False, True]
    assert "max_source_tokens" in found[1]["problem"]
    assert found[1]["target"] is None
    assert len(found[2]["target"]) == len(DOCUMENTS[1])
    with pytest.raises(CotextError, match="max_source_tokens"):
        translations_of(Translate(run)(table_of([long])))


def test_equal_ids_and_documents_without_a_sentence(run: Path) -> None:
    """A row stays at its place, whatever it is called, and though there is nothing in it."""
    given = [
        Document("same", ("the cat sees a dog",)),
        Document("same", ()),
        Document("same", ("a dog", "a")),
    ]
    stage = Translate(run)
    alone = [stage(table_of([document])).to_pylist() for document in given]
    found = stage(table_of(given)).to_pylist()
    assert [row["target"] for row in found] == [row["target"] for [row] in alone]
    assert [len(row["target"]) for row in found] == [1, 0, 2]
    assert not any(row["problem"] for row in found)


def test_no_documents_and_documents_without_sentences(run: Path) -> None:
    assert Translate(run)(table_of([])).num_rows == 0
    [row] = Translate(run)(pa.table({"id": ["d"], "sentences": [["", ""]]})).to_pylist()
    assert (row["target"], row["problem"]) == (["", ""], None)


def test_it_travels_as_its_settings(run: Path) -> None:
    stage = Translate(run, {"beam": 2}, "cpu", threads=1)
    assert stage.opened.config.decode.beam == 2
    sent = pickle.dumps(stage)
    assert len(sent) < 1000  # no model
    assert pickle.loads(sent).settings == stage.settings


def write_shortlist(run: Path, token: int) -> None:
    tokenizer = open_run(run).loaded.tokenizer
    candidates = np.full((tokenizer.source_vocabulary_size, 2), token, np.int32)
    Shortlist(tokenizer.fingerprint, candidates, np.arange(4, dtype=np.int32)).save(run / SHORTLIST)


def test_a_shortlist_made_anew_since_the_work_was_given_out_is_refused(run: Path, tmp_path: Path) -> None:
    folder, decode = Path(shutil.copytree(run, tmp_path / "run")), {"shortlist": 2}
    write_shortlist(folder, 5)
    files = files_of(open_run(folder, decode=decode))
    assert files.keys() == {"configuration", "model", "tokenizer", "shortlist"}
    assert Translate(folder, decode, files=files)(table_of(DOCUMENTS)).num_rows == len(DOCUMENTS)
    write_shortlist(folder, 6)
    with pytest.raises(CotextError, match="given out: another shortlist; every machine must"):
        Translate(folder, decode, files=files)(table_of(DOCUMENTS))
    with pytest.raises(CotextError, match="another configuration and shortlist; every machine must"):
        Translate(folder, files=files)(table_of(DOCUMENTS))


def test_another_model_under_the_same_name_is_refused(run: Path, tmp_path: Path) -> None:
    """That of the first pass, too; its folder may have another name."""
    first, other = (Path(shutil.copytree(run, tmp_path / name)) for name in ("first", "other"))
    files = files_of(open_run(run, decode={"first_pass": str(first)}))
    assert files == files_of(open_run(run, decode={"first_pass": str(other)}))
    loaded = open_run(run).loaded
    tensors = {name: 2 * tensor for name, tensor in load_weights(run / MODEL).items()}
    save_model(other / MODEL, tensors, loaded.config, loaded.tokenizer.fingerprint, [1])
    with pytest.raises(CotextError, match="given out: another first pass's model; every"):
        Translate(run, {"first_pass": str(other)}, files=files)(table_of(DOCUMENTS))
    with pytest.raises(CotextError, match="given out: another model; every"):
        Translate(other, files=files_of(open_run(run)))(table_of(DOCUMENTS))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"id": ["a"], "text": [["b"]]}), "the columns id, text"),
        (pa.table({"source": [["b"]]}), "a document needs `id`"),
        (pa.table({"id": ["a"], "source": ["b"]}), "a list of texts a row is needed, and it is string"),
        (pa.table({"id": ["a"], "source": pa.array([None], pa.list_(pa.string()))}), "no nulls"),
        (pa.table({"id": ["a"], "source": [["b", None]]}), "document 'a'"),
    ],
)
def test_tables_that_hold_no_documents(table: pa.Table, message: str) -> None:
    with pytest.raises(CotextError, match=message):
        documents_of(table)


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_documents_are_handed_out_in_tables(workers: int) -> None:
    documents = [Document(str(n), ("x",) * (1 + n % 7)) for n in range(100)]
    tables = tables_of(documents, workers)
    assert len(tables) >= min(100, workers * 3)
    assert max(map(len, tables)) <= TABLE_DOCUMENTS
    assert [n for table in tables for n in table.column("number").to_pylist()] == list(range(100))
    assert [d for table in tables for d in documents_of(table)] == documents
    assert tables_of([], workers) == []


def test_the_workers_that_a_cluster_has_room_for() -> None:
    assert workers_of(RayCluster(), {"CPU": 8.0}) == (8, "cpu")
    assert workers_of(RayCluster(cpus=3), {"CPU": 8.0}) == (2, "cpu")
    assert workers_of(RayCluster(), {"CPU": 8.0, "GPU": 2.0}) == (2, "cuda")
    assert workers_of(RayCluster(device="cpu", workers=5), {"CPU": 8.0, "GPU": 2.0}) == (5, "cpu")
    for cluster, there in ((RayCluster(workers=9), {"CPU": 8.0}), (RayCluster(device="cuda"), {"CPU": 8.0})):
        with pytest.raises(CotextError, match="room for"):
            workers_of(cluster, there)
