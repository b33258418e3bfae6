"""`train.checkpoint_activations`: activations that are computed once more."""

from pathlib import Path

import torch

from cotext.config.recipe import Config
from cotext.data.sampling import Cursor
from cotext.losses.build import build_loss
from cotext.training.setup import set_up
from tests.tiny_runs import assert_same_file, run_config, train_here


def config_of(recomputed: bool) -> Config:
    return run_config(
        max_updates=2, validate_every=2, average=1, log_every=1, checkpoint_activations=recomputed
    )


def test_they_are_the_same(data: Path, tmp_path: Path) -> None:
    """With dropout: random numbers are the same ones."""
    for name, recomputed in (("kept", False), ("again", True)):
        train_here(config_of(recomputed), data, tmp_path / name)
    assert_same_file(*(tmp_path / name / "model.safetensors" for name in ("kept", "again")))


def bytes_kept(recomputed: bool, data: Path) -> int:
    """Bytes that the forward pass of a batch keeps for the backward pass."""
    setup = set_up(config_of(recomputed), data, Path("nowhere"), "test", "cpu")
    batch, _ = next(setup.corpus.sampler(setup.config.train, 2000).batches(Cursor()))
    loss = build_loss(setup.config.loss)
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss(setup.model.train(), loss.laid_out(setup.model, batch, training=True), 0.0)
    return sum(kept.values())


def test_they_take_less_memory(data: Path) -> None:
    assert bytes_kept(False, data) > 1.5 * bytes_kept(True, data)
