"""Prepared data and training runs small enough to train them many times in a test."""

import multiprocessing
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cotext.config.recipe import Config, dump_config, parse_config
from cotext.data import controlled
from cotext.data import prepare as preparation
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepared import write_report
from cotext.data.store import store_writer
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, train_tokenizer
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model
from cotext.runtime.files import unsealed
from cotext.training import resume as training_state
from cotext.training.resume import TrainingProgress
from cotext.training.run import train
from cotext.training.trainer import Trainer, TrainingCallbacks
from tests.refusals import must_raise

WORDS = {
    "the": "die", "cat": "katze", "dog": "hund", "bird": "vogel", "fish": "fisch", "sees": "sieht",
    "eats": "isst", "runs": "rennt", "sings": "singt", "a": "eine", "and": "und", "red": "rote",
    "green": "gruene", "big": "grosse", "small": "kleine",
}  # fmt: skip

# What is promised bit for bit is promised on the CPU.
os.environ.setdefault("ACCELERATE_USE_CPU", "true")

# Forked from a server that has imported everything already: a process costs little. What is not named here,
# every child imports anew: the command line and pytest alone took a third of a second of each.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("pytest", "hypothesis.strategies", "cotext.cli.main", "cotext.data.prepare"),
        *("cotext.translation.open", "cotext.files.translate_files", "cotext.files.po"),
        *("cotext.training.distillation", "rich.progress", "cotext.training.run", "torch._dynamo"),
        *("torch.distributed.fsdp", "torch.distributed.tensor.parallel"),
        *("cotext.serving.application", "uvicorn"),
    ]
)


def toy_documents(count: int, seed: int) -> list[ParallelDocument]:
    """Documents of 1 to 6 sentences of 1 to 8 words, translated word for word."""
    generator = random.Random(seed)
    documents = []
    for number in range(count):
        source = tuple(
            " ".join(generator.choices(list(WORDS), k=generator.randint(1, 8)))
            for _ in range(generator.randint(1, 6))
        )
        target = tuple(" ".join(WORDS[word] for word in sentence.split()) for sentence in source)
        documents.append(ParallelDocument(f"d{number}", source, target))
    return documents


def prepare_toy(folder: Path, documents: int = 24, seed: int = 0) -> Path:
    """A folder as `prepare` makes it; returns it."""
    train_documents, dev_documents = toy_documents(documents, seed), toy_documents(4, seed + 1)
    sentences = [s for d in train_documents for s in (*d.source, *d.target)]
    settings = TokenizerSettings(vocabulary=48, byte_fallback=False, num_threads=1)
    tokenizer = train_tokenizer(sentences, settings)
    tokenizer.save(folder / "tokenizer")
    for name, corpus in (("train", train_documents), ("dev", dev_documents)):
        with store_writer(folder / f"{name}.arrow", tokenizer.fingerprint) as writer:
            for d in corpus:
                writer.add(d.id, tokenizer.encode_batch(d.source), tokenizer.encode_batch(d.target))
        write_parallel(folder / f"{name}.jsonl", None, corpus, "jsonl")
    write_report(folder, {})  # no digests: tests change what is there
    return folder


def make_controlled_corpora_small(patch: pytest.MonkeyPatch) -> None:
    """Less of what takes time whatever the size: documents of the tokenizer, dev and test set, suites."""
    suites = preparation.contrastive_suites
    patch.setattr(preparation, "contrastive_suites", lambda seed, n, *order: suites(seed, min(n, 12), *order))
    patch.setattr(preparation, "CONTROLLED_TOKENIZER_DOCUMENTS", 500)
    patch.setattr(controlled, "HELD_OUT", dict.fromkeys(controlled.HELD_OUT, 10))


def run_config(**train_settings: Any) -> Config:
    """Windows of two sentences, dropout, about seven batches an epoch in three pools."""
    content = {
        "view": {"kind": "window", "before": 1, "max_tokens": 60},
        "model": {
            **{"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
            **{"dropout": 0.2, "attention_dropout": 0.1},
        },
        "loss": {"context_discount": 0.5},
        "train": {
            **{"max_updates": 12, "max_tokens": 500, "warmup_updates": 4, "learning_rate": 5e-3},
            **{"pool_tokens": 700, "validate_every": 4, "log_every": 3, "validate_bleu": False},
            **{"average": 2, "patience": 0, "threads": 1, **train_settings},
        },
        "decode": {"max_ratio": 1.0, "max_extra": 2},
    }
    return parse_config(content, "test")


def with_section(config: Config, section: str, **values: Any) -> Config:
    """The configuration with some values of a section changed."""
    content = config.model_dump(mode="json")
    content[section] = {**content[section], **values}
    return parse_config(content, "test")


def write_run(run: Path, config: Config, tokenizer: Tokenizer) -> Path:
    """A run folder with fresh weights, as if trained; returns it."""
    torch.manual_seed(0)
    run.mkdir(parents=True)
    tokenizer.save(run / "tokenizer")
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    weights = build_model(config, tokenizer.vocabulary_size).state_dict()
    ckpt.save_model(run / "model.safetensors", weights, config, tokenizer.fingerprint, [1])
    return run


def silent() -> TrainingCallbacks:
    """Callbacks that nobody reads."""
    return TrainingCallbacks()


def train_here(config: Config, data: Path, run: Path) -> TrainingProgress:
    """Train in this process."""
    return train(config, data, run, silent())


def told_in_training(config: Config, data: Path, run: Path) -> list[str]:
    """Train in this process; returns what it says."""
    messages: list[str] = []
    train(config, data, run, replace(silent(), on_message=messages.append))
    return messages


def training_is_refused(config: Config, data: Path, run: Path, message: str) -> None:
    """Train in this process; it ends with the message, a pattern."""
    must_raise(message, train_here, config, data, run)


def without_dropout(config: Config) -> Config:
    return with_section(config, "model", dropout=0.0, attention_dropout=0.0)


def train_to_a_mean(config: Config, data: Path, run: Path) -> None:
    """Train so that each checkpoint counts as better than those before it, and their mean as no worse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_quality", lambda trainer, figures: float(trainer.progress.update))
        train_here(config, data, run)


def journal(run: Path) -> list[dict[str, Any]]:
    """The reports of a run without what the clock decides."""
    entries = [unsealed(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timing = ("time", "tokens_per_second", "waiting_share")
    return [{k: v for k, v in entry.items() if k not in timing} for entry in entries]


def assert_same_file(a: Path, b: Path) -> None:
    one, other = load_file(a), load_file(b)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def assert_same_run(run: Path, expected: Path) -> None:
    """Same final model, same checkpoints, optimizer and random state, same reports but for timing."""
    assert_same_file(run / "model.safetensors", expected / "model.safetensors")
    assert ckpt.checkpoints(run) == ckpt.checkpoints(expected)
    for update in ckpt.checkpoints(run):
        folder, other = ckpt.checkpoint_folder(run, update), ckpt.checkpoint_folder(expected, update)
        assert_same_file(folder / "model.safetensors", other / "model.safetensors")
    for path in (other / "optimizer.safetensors", *other.glob("process-*.safetensors")):
        assert_same_file(folder / path.name, path)
    assert training_state.load_progress(folder) == training_state.load_progress(other)
    assert journal(run) == journal(expected)
