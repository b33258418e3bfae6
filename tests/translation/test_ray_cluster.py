"""Workers of a cluster, without a cluster."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cotext.data.documents import Document
from cotext.data.shortlist import SHORTLIST, Shortlist
from cotext.models.checkpoint import load_weights, save_model
from cotext.training.inputs import open_data
from cotext.translation import ray_cluster
from cotext.translation.engine_cache import open_to_translate
from cotext.translation.open import open_run
from cotext.translation.ray_cluster import (
    LOT_DOCUMENTS,
    DocumentWorker,
    files_of,
    lots_of,
    placed,
    workers_of,
)
from cotext.translation.requests import ClusterOptions
from tests.refusals import must_raise
from tests.tiny_runs import prepare_toy, run_config, toy_documents, with_section, write_run

MODEL = "model.safetensors"
DOCUMENTS = [Document(d.id, d.source) for d in toy_documents(9, 5)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    config = with_section(run_config(), "decode", max_source_tokens=100)
    return write_run(folder / "run", config, open_data(prepare_toy(folder / "data")).tokenizer)


def worker(run: Path, files: dict[str, str], **decode: object) -> DocumentWorker:
    return DocumentWorker(run, "cpu", decode, None, files)


def write_shortlist(run: Path, token: int) -> None:
    tokenizer = open_run(run).loaded.tokenizer
    candidates = np.full((tokenizer.source_vocabulary_size, 2), token, np.int32)
    Shortlist(tokenizer.fingerprint, candidates, np.arange(4, dtype=np.int32)).save(run / SHORTLIST)


def test_a_shortlist_made_anew_since_the_work_was_given_out_is_refused(run: Path, tmp_path: Path) -> None:
    folder, decode = Path(shutil.copytree(run, tmp_path / "run")), {"shortlist": 2}
    write_shortlist(folder, 5)
    files = files_of(open_run(folder, decode=decode))
    assert files.keys() == {"configuration", "model", "tokenizer", "shortlist"}
    assert len(worker(folder, files, shortlist=2).translate(DOCUMENTS)) == len(DOCUMENTS)
    write_shortlist(folder, 6)
    must_raise("another shortlist; every machine needs", worker, folder, files, shortlist=2)
    must_raise("another configuration and shortlist; every machine needs", worker, folder, files)


def test_another_model_under_the_same_name_is_refused(run: Path, tmp_path: Path) -> None:
    """That of the first pass, too; its folder may have another name."""
    first, other = (Path(shutil.copytree(run, tmp_path / name)) for name in ("first", "other"))
    files = files_of(open_run(run, decode={"first_pass": str(first)}))
    assert files == files_of(open_run(run, decode={"first_pass": str(other)}))
    loaded = open_run(run).loaded
    tensors = {name: 2 * tensor for name, tensor in load_weights(run / MODEL).items()}
    save_model(other / MODEL, tensors, loaded.config, loaded.tokenizer.fingerprint, [1])
    must_raise("another first pass's model; every", worker, run, files, first_pass=str(other))
    must_raise("another model; every", worker, other, files_of(open_run(run)))


class Here:
    """As much of Ray as gives work out: its workers are in this process."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1}

    def remote(self, **_: object) -> Any:
        return lambda made: SimpleNamespace(remote=made)


@pytest.mark.parametrize("decode", [{}, {"engine": "torch", "beam": 2}])
def test_a_worker_takes_a_run(run: Path, decode: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The main process has chosen between PyTorch and CTranslate2."""
    monkeypatch.setattr(ray_cluster, "_connect", lambda address: Here())
    for opened in (open_to_translate(run, "cpu", decode, without="--on"), open_run(run, "cpu", decode)):
        on_ray: Any = placed(opened, ClusterOptions(device="cpu", on="ray"), decode).translator
        assert len(on_ray._make().translate(DOCUMENTS)) == len(DOCUMENTS)


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_documents_are_handed_out_in_lots(workers: int) -> None:
    documents = [Document(str(n), ("x",) * (1 + n % 7)) for n in range(100)]
    lots = lots_of(documents, workers)
    assert len(lots) >= min(100, workers * 3)
    assert max(map(len, lots)) <= LOT_DOCUMENTS
    assert [n for lot in lots for n in lot] == list(range(100))
    assert lots_of([], workers) == []


def test_the_workers_that_a_cluster_has_room_for() -> None:
    def found(there: dict[str, float], **given: Any) -> tuple[int, str]:
        return workers_of(ClusterOptions(on="ray", **given), there)

    assert found({"CPU": 8.0}) == (8, "cpu")
    assert found({"CPU": 8.0, "GPU": 2.0}) == (2, "cuda")
    assert found({"CPU": 8.0, "GPU": 2.0}, device="cpu", workers=5) == (5, "cpu")
    for given in ({"workers": 9}, {"device": "cuda"}):
        must_raise("room for", found, {"CPU": 8.0}, **given)
