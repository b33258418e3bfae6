"""`train.max_tokens = auto`, and activations that are computed once more."""

from pathlib import Path

import pytest
import torch
from tiny_runs import assert_same_file, prepare_toy, run_config, silent, train_here

from cotext.config.recipe import Config
from cotext.runtime.errors import CotextError
from cotext.training import batch_size
from cotext.training.run import train
from cotext.training.setup import set_up
from cotext.training.start_settings import written_config


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_toy(tmp_path_factory.mktemp("data"))


def config_of(**settings: object) -> Config:
    settings = {"max_updates": 2, "validate_every": 2, "average": 1, "log_every": 1, **settings}
    return run_config(**settings)


def test_what_fits_follows_the_line_through_two_sizes() -> None:
    taken = [10_000 + 80 * size for size in (1000, 2000)]
    found = batch_size.tokens_that_fit([1000, 2000], taken, room=10_000 + 80 * 7_200)
    assert found == 7000
    assert batch_size.tokens_that_fit([1000, 2000], taken, room=-1.0) == 0
    assert batch_size.tokens_that_fit([1000, 2000], taken, room=1e18) == batch_size.LARGEST


def test_twice_the_memory_is_about_twice_the_tokens(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(free: int) -> int:
        monkeypatch.setattr(batch_size, "free_memory", lambda: free)
        setup = set_up(config_of(max_tokens="auto"), data, Path("nowhere"), "test", "cpu")
        return setup.config.train.batch_tokens

    one, two = found(2**28), found(2**29)
    assert one > 10_000
    assert 1.8 < two / one < 2.2
    with pytest.raises(CotextError, match="does not fit into the memory that is free; lower it"):
        found(2**16)


def test_the_model_and_random_numbers_are_as_they_were(data: Path) -> None:
    weights = []
    for max_tokens in (500, "auto"):
        setup = set_up(config_of(max_tokens=max_tokens), data, Path("nowhere"), "test", "cpu")
        assert all(p.grad is None for p in setup.model.parameters())
        weights.append([*setup.model.state_dict().values(), torch.rand(3)])
    assert all(map(torch.equal, *weights))


def test_the_run_says_how_many_and_goes_on_with_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "free_memory", lambda: 2**28)
    said: list[str] = []
    callbacks = silent()
    callbacks.on_message = said.append
    train(config_of(max_tokens="auto"), data, tmp_path / "run", callbacks)
    settled = written_config(tmp_path / "run" / "config.yaml").train.batch_tokens
    assert f"train.max_tokens = {settled:,}, of what memory holds" in said
    monkeypatch.setattr(batch_size, "free_memory", lambda: 2**30)
    progress = train_here(config_of(max_tokens="auto", max_updates=4), data, tmp_path / "run")
    assert progress.update == 4
    assert written_config(tmp_path / "run" / "config.yaml").train.batch_tokens == settled


def test_activations_computed_once_more_are_the_same(data: Path, tmp_path: Path) -> None:
    """With dropout: random numbers are the same ones."""
    for name, recomputed in (("kept", False), ("again", True)):
        train_here(config_of(checkpoint_activations=recomputed), data, tmp_path / name)
    assert_same_file(*(tmp_path / name / "model.safetensors" for name in ("kept", "again")))


def test_activations_computed_once_more_take_less_memory(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_size, "free_memory", lambda: 2**28)
    found = []
    for recomputed in (False, True):
        config = config_of(max_tokens="auto", checkpoint_activations=recomputed)
        found.append(set_up(config, data, Path("nowhere"), "test", "cpu").config.train.batch_tokens)
    kept, again = found
    assert again > 1.5 * kept


class TestFreeMemory:
    def test_of_the_machine_and_of_the_group(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  4000 kB\n")
        monkeypatch.setattr(batch_size, "MEMINFO", tmp_path / "meminfo")
        monkeypatch.setattr(batch_size, "CGROUP", tmp_path)
        assert batch_size.free_memory() == 4_096_000
        (tmp_path / "memory.current").write_text("1000\n")
        (tmp_path / "memory.max").write_text("max\n")
        assert batch_size.free_memory() == 4_096_000
        (tmp_path / "memory.max").write_text("51000\n")
        assert batch_size.free_memory() == 50_000

    def test_a_system_that_does_not_tell(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batch_size, "MEMINFO", tmp_path / "none")
        assert batch_size.free_memory() > 2**28
