"""Two processes train what one process would on the batches of both."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cotext.config.recipe import Config, dump_config, load_config, parse_config
from cotext.data.batch import Batch
from cotext.data.documents import Document
from cotext.data.sampling import Cursor
from cotext.models import checkpoint as ckpt
from cotext.training import resume as training_state
from cotext.training import run as training_run
from cotext.training.inputs import corpus_of, open_data
from cotext.training.resume import require_shardable
from cotext.training.trainer import Trainer
from cotext.translation.open import open_run
from tests.command_line import free_port
from tests.refusals import must_raise
from tests.tiny_runs import (
    PROCESSES,
    assert_same_file,
    assert_same_run,
    journal,
    run_config,
    silent,
    train_here,
    with_section,
    without_dropout,
)


class TellingTrainer(Trainer):
    """Notes which documents it sees and leaves its weights beside the run."""

    def train(self) -> Any:
        self.documents: set[int] = set()
        progress = super().train()
        rank = self.accelerator.process_index
        documents = torch.tensor(sorted(self.documents))
        save_file({"documents": documents, **self.model.state_dict()}, self.run / f"rank-{rank}.safetensors")
        return progress

    def _update(self, batches: list[Batch], stop_requested: bool) -> None:
        if self.cursor.epoch == 0:
            for batch in batches:
                self.documents.update(batch.source.document.tolist())
        super()._update(batches, stop_requested)


class SignalledTrainer(TellingTrainer):
    """Its second process is told to stop."""

    def _update(self, batches: list[Batch], stop_requested: bool) -> None:
        super()._update(batches, stop_requested)
        if self.progress.update == 2 and self.accelerator.process_index == 1:
            os.kill(os.getpid(), signal.SIGTERM)


class BothShards(Trainer):
    """One process that sees what two processes see, as two batches of one update."""

    def _updates(self) -> Generator[tuple[list[Batch], float]]:
        train = self.config.train
        samplers = [self.corpus.sampler(train, train.max_tokens, shard, 2) for shard in (0, 1)]
        streams = [sampler.batches(Cursor()) for sampler in samplers]
        while True:
            yield [batch for s in streams for batch, _ in islice(s, train.accumulate)], 0.0


def one_of_two(rank: int, port: int, trainer: type[Trainer], config: Config, data: Path, run: Path) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    os.environ.pop("ACCELERATE_USE_CPU", None)  # as for users who do not know of it
    training_run.Trainer = trainer  # type: ignore[misc]
    training_run.train(config, data, run, silent())
    torch.distributed.destroy_process_group()


def train_in_two(config: Config, data: Path, run: Path, trainer: type[Trainer] = TellingTrainer) -> None:
    port = free_port()
    processes = [
        PROCESSES.Process(target=one_of_two, args=(rank, port, trainer, config, data, run), daemon=True)
        for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]


SHARDED = [
    "p-transformer/ctx",
    "g-transformer/randinit",
    "mcn/final",
    "docflat/docflat-c",
    "casa/latent-glat",
    "han/joint",
]


def in_parts(config: Config, **train_settings: Any) -> Config:
    return with_section(config, "train", shard_model=True, validate_bleu=False, **train_settings)


@pytest.mark.parametrize(
    ("accumulate", "clip_norm", "parts", "foreign_weight"),
    [(1, 0.0, False, 0.5), (2, 0.05, False, 0.0), (2, 0.05, True, 0.5)],
)
def test_two_processes_equal_one_fed_the_batches_of_both(
    data: Path, tmp_path: Path, accumulate: int, clip_norm: float, parts: bool, foreign_weight: float
) -> None:
    """Each with the whole model, or with a part of it."""
    config = without_dropout(
        run_config(
            max_updates=1, max_tokens=200, accumulate=accumulate, clip_norm=clip_norm, average=1, log_every=1
        )
    )
    config = with_section(config, "loss", foreign_weight=foreign_weight)
    two, one = tmp_path / "two", tmp_path / "one"
    train_in_two(in_parts(config) if parts else config, data, two, Trainer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "Trainer", BothShards)
        train_here(config, data, one)
    assert_same_gradients(two, one)
    (of_two, *_), (of_one, *_) = journal(two), journal(one)
    more = ["true_minus_foreign"] if foreign_weight else []
    for figure in ("loss", "nll_current", "nll_context", "grad_norm", *more):
        assert of_two[figure] == pytest.approx(of_one[figure], rel=1e-5)


def assert_same_gradients(run: Path, expected: Path) -> None:
    """Of the first update; files of both runs hold whole tensors."""
    moments = [
        load_file(ckpt.checkpoint_folder(each, 1) / "optimizer.safetensors") for each in (run, expected)
    ]
    assert moments[0].keys() == moments[1].keys()
    for name, moment in moments[0].items():
        if name.endswith("|exp_avg"):  # after one update: (1 - beta) times the gradient
            torch.testing.assert_close(moment, moments[1][name], rtol=1e-4, atol=1e-7, msg=name)
    assert any(bool(moment.any()) for moment in moments[0].values())


@pytest.fixture(scope="module")
def demanding(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """Position tables grow differently on the two processes, validation batches are of unequal number.

    One process translates for BLEU while the other waits. Returns configuration and finished run.
    """
    config = with_section(
        run_config(max_updates=8, max_tokens=150, average=1, validate_bleu=True, validate_sentences=8),
        "model",
        positions="shifted",
        shift=1100,
    )
    run = tmp_path_factory.mktemp("distributed") / "demanding"
    train_in_two(config, data, run)
    return config, run


def test_processes_end_with_the_same_weights(demanding: tuple[Config, Path]) -> None:
    weights = [load_file(demanding[1] / f"rank-{rank}.safetensors") for rank in (0, 1)]
    seen = [set(w.pop("documents").tolist()) for w in weights]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
    assert seen[0]
    assert seen[1]
    assert seen[0].isdisjoint(seen[1])  # whole documents: no document is seen by both
    bleu = [entry["bleu"] for entry in journal(demanding[1]) if entry["kind"] == "validation"]
    assert len(bleu) == 2


def test_two_processes_resume_exactly(data: Path, demanding: tuple[Config, Path], tmp_path: Path) -> None:
    config, whole = demanding
    run = tmp_path / "run"
    train_in_two(with_section(config, "train", max_updates=4), data, run)
    train_in_two(config, data, run)
    assert_same_file(run / "model.safetensors", whole / "model.safetensors")
    for path in (ckpt.checkpoint_folder(whole, 8)).glob("*.safetensors"):
        assert_same_file(ckpt.checkpoint_folder(run, 8) / path.name, path)
    states = [load_file(ckpt.checkpoint_folder(run, 8) / f"process-{rank}.safetensors") for rank in (0, 1)]
    assert not torch.equal(states[0]["random"], states[1]["random"])  # dropout differs between processes


def test_a_signal_to_one_stops_both(data: Path, demanding: tuple[Config, Path], tmp_path: Path) -> None:
    config, whole = demanding
    run = tmp_path / "run"
    train_in_two(config, data, run, SignalledTrainer)
    assert ckpt.checkpoints(run) == [3]
    train_in_two(config, data, run)
    assert_same_run(run, whole)


def test_fewer_validation_batches_than_processes(data: Path, tmp_path: Path) -> None:
    config = run_config(max_updates=1, max_tokens=5000, average=1)
    train_in_two(config, data, tmp_path / "two")
    (validation,) = [entry for entry in journal(tmp_path / "two") if entry["kind"] == "validation"]
    assert validation["nll_current"] > 0
    assert training_state.load_progress(ckpt.checkpoint_folder(tmp_path / "two", 1)).processes == 2


def test_processes_validate_together_after_an_epoch(data: Path, tmp_path: Path) -> None:
    """Their shards end at different updates; both have seen theirs, one of them a little more."""
    config = run_config(validate_every="epoch", max_updates=15, max_tokens=100, average=1)
    train_in_two(config, data, tmp_path / "two")
    progress = training_state.load_progress(ckpt.checkpoint_folder(tmp_path / "two", 15))
    corpus, ends = corpus_of(config, open_data(data)), []
    for shard in (0, 1):
        sampler = corpus.sampler(config.train, config.train.max_tokens, shard, 2)
        epochs = [after.epoch for _, after in islice(sampler.batches(Cursor()), 16)]
        ends.append([n for n, (one, other) in enumerate(pairwise(epochs), start=1) if other > one])
    assert ends[0] != ends[1]
    together = [max(both) for both in zip(*ends, strict=False)]
    assert progress.epoch == len(together) > 0
    assert progress.validated == [*together, 15]


def test_parameters_that_no_batch_uses(data: Path, tmp_path: Path) -> None:
    """Those of the global layer; in one process they stay as they were, too."""
    like = run_config(max_updates=2, max_tokens=150, average=1)
    config = load_config("mcn/final-sent", "tiny").model_copy(update={"train": like.train})
    train_in_two(config, data, tmp_path / "two")
    train_here(config, data, tmp_path / "one")
    two, one = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    unused = [name for name in one if name.startswith("source_document.")]
    assert unused
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]) == (name in unused), name


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(), (1, 2)])
def test_the_usual_launcher(data: Path, tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """`torchrun`; that of Accelerate starts a single process on a machine without GPUs."""
    (tmp_path / "recipe.yaml").write_text(dump_config(run_config(max_updates=4)))
    launcher = ["torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    arguments = [str(tmp_path / "recipe.yaml"), "--data", str(data), "--out", str(tmp_path / "run")]
    if seeds:
        arguments += ["--seeds", ",".join(map(str, seeds))]
    port = f"--master-port={free_port()}"
    done = subprocess.run(
        [sys.executable, "-m", *launcher, port, "-m", "cotext.cli.main", "train", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for run in [tmp_path / "run" / f"seed-{seed}" for seed in seeds] or [tmp_path / "run"]:
        progress = training_state.load_progress(ckpt.checkpoint_folder(run, 4))
        assert (progress.processes, progress.finished) == (2, True)


def test_two_processes_keep_one_codebook(data: Path, tmp_path: Path) -> None:
    """Of CASA-Latent, whose codes follow what both processes see; no gradient keeps them together."""
    content = run_config(max_updates=3, max_tokens=200, average=1, word_dropout=0.0).model_dump(mode="json")
    content["view"] = {"kind": "document", "separators": "bracket", "max_tokens": 60}
    content["model"] |= {
        "writes": "non_autoregressive",
        "attention": {"span": "sentence", "top": {"layers": 1, "span": "nodes"}},
        "nat": {"latent": True, "codes": 4},
    }
    content["loss"] = {"name": "glancing"}
    config = parse_config(content, "test")
    train_in_two(config, data, tmp_path / "run")
    ranks = [load_file(tmp_path / "run" / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for name in ("vectors", "count", "total"):
        one, other = (rank[f"latent.codebook.{name}"] for rank in ranks)
        assert torch.equal(one, other), name
    assert not torch.equal(ranks[0]["latent.codebook.count"], torch.ones(4))


@pytest.mark.slow
def test_a_divided_model_resumes_exactly_and_translates_in_one_process(data: Path, tmp_path: Path) -> None:
    config = in_parts(run_config(max_updates=4, validate_every=2, max_tokens=150))
    whole, run = tmp_path / "whole", tmp_path / "run"
    train_in_two(config, data, whole, Trainer)
    train_in_two(with_section(config, "train", max_updates=2), data, run, Trainer)
    train_in_two(config, data, run, Trainer)
    assert_same_file(run / "model.safetensors", whole / "model.safetensors")
    for path in (ckpt.checkpoint_folder(whole, 4)).glob("*.safetensors"):
        assert_same_file(ckpt.checkpoint_folder(run, 4) / path.name, path)
    documents = list(open_run(run).translator.translate([Document("d", ("the cat sees", "a dog"))]))
    assert len(documents[0][1].document) == 2
    # Whole again from here on.
    train_in_two(with_section(config, "train", max_updates=6, shard_model=False), data, run)
    assert ckpt.checkpoints(run)[-1] == 6


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SHARDED)
def test_every_kind_of_system_can_be_divided(data: Path, tmp_path: Path, recipe: str) -> None:
    like = run_config(max_updates=1, max_tokens=150, average=1)
    config = without_dropout(load_config(recipe, "tiny").model_copy(update={"train": like.train}))
    train_in_two(in_parts(config), data, tmp_path / "parts", Trainer)
    train_in_two(config, data, tmp_path / "whole", Trainer)
    assert_same_gradients(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(
    ("processes", "settings", "message"),
    [
        (1, {}, "there is only one; start several"),
        (2, {"validate_bleu": True}, "train.validate_bleu = false"),
    ],
)
def test_what_is_not_divided(processes: int, settings: dict[str, Any], message: str) -> None:
    config = run_config(**{"shard_model": True, **settings}).train
    must_raise(message, require_shardable, config, processes)
