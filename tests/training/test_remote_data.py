"""Training on prepared data at an address, and in several files."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from tiny_runs import assert_same_run, prepare_toy, run_config, train_here

from cotext.data import store as stores
from cotext.data.prepared import file_digests, write_report
from cotext.data.sampling import SHARDS_SHUFFLED, epoch_order
from cotext.runtime.errors import CotextError
from cotext.training import remote_data
from cotext.training.dry_run import dry_run
from cotext.training.prepared_data import data_of, open_data


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training corpus of several files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "MAX_SHARD_TOKENS", 60)
        folder = prepare_toy(tmp_path_factory.mktemp("remote") / "data")
    write_report(folder, {"files": file_digests(folder)})
    return folder


@pytest.fixture
def address(prepared: Path) -> Iterator[str]:
    """The same in a file system of fsspec's in memory."""
    system = fsspec.filesystem("memory")
    system.put(str(prepared), "/prepared", recursive=True)
    yield "memory://prepared"
    system.rm("/prepared", recursive=True)


def test_training_at_an_address_is_training_beside_it(
    prepared: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_data, "SHARDS_ON_DISK", 2)
    monkeypatch.setattr("cotext.training.prepared_data.SHARDS_ON_DISK", 2)
    config = run_config(max_updates=4, pool_tokens=200)
    train_here(config, prepared, tmp_path / "near")
    train_here(config, Path(address), tmp_path / "far")
    assert_same_run(tmp_path / "far", tmp_path / "near")
    again = data_of(tmp_path / "far", None)  # by what the run notes
    assert again.address == "memory:///prepared"


def test_shards_take_room_only_while_they_are_open(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotext.training.prepared_data.SHARDS_ON_DISK", 2)
    data = open_data(Path(address))
    assert len(data.train.shards) > 3
    assert len(list(data.train)) == len(data.train)
    left = sorted(path.name for path in (data.folder / "train.arrow").iterdir())
    assert left == ["manifest.json"]
    assert len(data.train._files) == 2


def test_a_shard_that_is_damaged_or_gone_at_the_address(address: str) -> None:
    data, system = open_data(Path(address)), fsspec.filesystem("memory")
    with system.open("/prepared/train.arrow/00001.arrow", "ab") as file:
        file.write(b"x")
    with pytest.raises(CotextError, match=r"00001\.arrow: not the shard that"):
        list(data.train)
    system.rm("/prepared/train.arrow/00001.arrow")
    with pytest.raises(CotextError, match=r"memory:///prepared/train\.arrow/00001\.arrow: no such file"):
        list(data.train)
    with pytest.raises(CotextError, match=r"memory:///prepared/none/report\.json: no such file"):
        open_data(Path(f"{address}/none"))


@pytest.mark.parametrize("name", ["tokenizer/../../stray", "dev./../../stray"])
def test_a_report_at_an_address_names_no_file_outside(address: str, tmp_path: Path, name: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/prepared/stray", b"x")
    system.rm("/prepared/report.json")
    write_report(tmp_path, {"files": {name: "0"}})
    system.put(str(tmp_path / "report.json"), "/prepared/report.json")
    with pytest.raises(CotextError, match=r"report\.json: names a file outside"):
        open_data(Path(address))


def test_an_epoch_reads_each_file_once_and_every_document() -> None:
    sizes = np.random.default_rng(0).integers(1, 30, 3 * SHARDS_SHUFFLED + 1)
    ends = np.cumsum(sizes)
    ranges = [range(end - size, end) for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
    orders = [epoch_order(ranges, np.random.default_rng([1, epoch])) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(ends[-1]))
        files = np.searchsorted(ends, order, side="right").tolist()
        first = {file: files.index(file) for file in files}
        last = {file: place for place, file in enumerate(files)}
        for place in range(len(files)):
            assert sum(first[f] <= place <= last[f] for f in first) <= SHARDS_SHUFFLED
    assert not np.array_equal(*orders)


def test_one_file_is_shuffled_as_a_whole() -> None:
    """As it was before there were several: runs go on in the same order."""
    order = epoch_order([range(100)], np.random.default_rng([1, 2]))
    assert np.array_equal(order, np.random.default_rng([1, 2]).permutation(100))


def test_a_dry_run_fetches_no_more_than_it_trains_on(address: str, tmp_path: Path) -> None:
    """Instances of a corpus whose files would all have to be fetched are not counted."""
    found = dry_run(run_config(max_updates=4), Path(address), tmp_path / "run", "none", "cpu")
    assert found.training_instances is None
    assert found.development_instances.instances > 0
    assert "instances    not counted" in found.render()
