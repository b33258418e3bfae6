"""Translation on a cluster of Ray: several nodes on this machine, of which a worker, then a node, is lost."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.runtime import CotextError
from cotext.training.inputs import open_data
from cotext.translation.open import open_run
from cotext.translation.ray_cluster import placed
from cotext.translation.requests import ClusterOptions
from tests.command_line import cotext, succeed
from tests.tiny_runs import prepare_toy, run_config, toy_documents, write_run

pytestmark = pytest.mark.outside
DOCUMENTS = [Document(d.id, d.source) for d in toy_documents(1500, 5)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ray")
    return prepare_toy(tmp_path_factory.mktemp("scale") / "data")


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    return write_run(data.parent / "run", run_config(), open_data(data).tokenizer)


@pytest.fixture(scope="module")
def cluster(data: Path) -> Iterator[Any]:
    """A head that works itself as little as possible, and two nodes."""
    import ray
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = {"num_cpus": 0, "ray_client_server_port": port}
    found = Cluster(initialize_head=True, head_node_args=head)
    found.for_clients = f"ray://127.0.0.1:{port}"
    for _ in range(2):
        found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


def workers() -> list[int]:
    """The processes that translate."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::DocumentWorker"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_it_is_as_without_a_cluster(run: Path, data: Path, cluster: Any, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    write_documents(source, DOCUMENTS[:90], "jsonl")
    succeed("translate", run, source, "--out", tmp_path / "here.jsonl")
    succeed("translate", run, source, "--out", tmp_path / "far.jsonl", "--on", cluster.address)
    assert (tmp_path / "far.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    succeed("distill", run, "--data", data, "--out", tmp_path / "here")
    succeed("distill", run, "--data", data, "--out", tmp_path / "far", "--on", cluster.address)
    assert (tmp_path / "far" / "train.arrow").read_bytes() == (tmp_path / "here" / "train.arrow").read_bytes()


def test_a_client_from_outside_the_cluster(run: Path, cluster: Any, tmp_path: Path) -> None:
    """In a process of its own, as this one is connected already, in the other way."""
    source = tmp_path / "in.jsonl"
    write_documents(source, DOCUMENTS[:30], "jsonl")
    succeed("translate", run, source, "--out", tmp_path / "here.jsonl")
    far = ["translate", run, source, "--out", tmp_path / "far.jsonl", "--on", cluster.for_clients]
    subprocess.run([sys.executable, "-m", "cotext", *map(str, far)], check=True)
    assert (tmp_path / "far.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def test_what_workers_refuse_is_told(run: Path, cluster: Any, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    write_documents(source, DOCUMENTS[:9], "jsonl")
    opened = placed(open_run(run), ClusterOptions(on=cluster.address), {})
    weights = run / "model.safetensors"
    content = weights.read_bytes()
    try:
        weights.unlink()
        with pytest.raises(CotextError, match=r"a worker of the cluster: .*model\.safetensors"):
            list(opened.translator.translate(DOCUMENTS[:9]))
    finally:
        weights.write_bytes(content)
    shown = cotext(
        "translate", run, source, "--out", tmp_path / "o", "--on", cluster.address, "--workers", "9"
    )
    assert (shown.code, "room for 2 workers" in shown.err) == (2, True)
    assert not (tmp_path / "o.partial").exists()


def test_lost_workers_and_nodes_lose_no_document(run: Path, cluster: Any) -> None:
    """Last, as it takes a node away."""
    expected = dict(open_run(run).translator.translate(DOCUMENTS))
    opened = placed(open_run(run), ClusterOptions(on=cluster.address), {})
    found = {}
    for number, translation in opened.translator.translate(DOCUMENTS):
        assert number not in found
        found[number] = translation.document
        if len(found) == 150:
            os.kill(workers()[0], signal.SIGKILL)
        if len(found) == 600:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    assert found == {number: translation.document for number, translation in expected.items()}
