"""Tiny systems that never learned anything, and a server of them in this process or in one of its own."""

from pathlib import Path
from typing import Any

import torch

from cotext.config.recipe import Config, dump_config
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, train_tokenizer
from cotext.models.build import build_model
from cotext.models.checkpoint import save_model
from cotext.serving.application import application
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import Systems, open_systems
from tests.tiny import shake
from tests.tiny_runs import run_config, toy_documents, with_section

# Views: alone, with the two sentences before on both sides, whole documents.
VIEWS: dict[str, dict[str, Any]] = {
    "sentence": {"kind": "sentence", "before": 0},
    "window": {"kind": "window", "before": 2, "max_tokens": 120},
    "document": {"kind": "document", "before": 0, "max_tokens": 200},
}
TEXTS = ["It was old! Was it new?", "<b>She said: “7 × 8 = 56” &amp; left.</b>", "Zoë's (naïve) café; 北京。"]


def tiny_tokenizer() -> Tokenizer:
    """A tokenizer that can write anything."""
    sentences = [s for d in toy_documents(24, 0) for s in (*d.source, *d.target)]
    settings = TokenizerSettings(vocabulary=340, byte_fallback=True, num_threads=1)
    return train_tokenizer(sentences + TEXTS, settings)


def write_systems(
    folder: Path, views: dict[str, dict[str, Any]] = VIEWS, first_seed: int = 1, **decode: Any
) -> list[Path]:
    """Run folders of a system for each view, from English to German, whose tokenizer can write anything."""
    plain = with_section(run_config(), "decode", **decode)
    tokenizer, runs = tiny_tokenizer(), []
    for seed, (name, view) in enumerate(views.items(), first_seed):
        runs.append(write_system(folder / name, with_section(plain, "view", **view), tokenizer, seed))
    return runs


def write_system(
    run: Path, config: Config, tokenizer: Tokenizer, seed: int, languages: str = "en-de"
) -> Path:
    """A run folder of a system that never learned anything; returns it."""
    config = config.model_copy(update={"languages": languages})
    torch.manual_seed(seed)
    model = build_model(config, tokenizer.vocabulary_size)
    shake(model)
    run.mkdir(parents=True)
    save_model(run / "model.safetensors", model.state_dict(), config, tokenizer.fingerprint, [1])
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    tokenizer.save(run / "tokenizer")
    return run


def tiny_systems(folder: Path, seed: int = 1, **decode: Any) -> Systems:
    """The systems of `write_systems`, opened."""
    return open_systems(write_systems(folder, first_seed=seed, **decode), "cpu")


def tiny_application(systems: Systems, state: Path, **settings: Any) -> Any:
    """A server of them as an ASGI application."""
    return application(Service(systems, ServerSettings(state=state, **settings)))
