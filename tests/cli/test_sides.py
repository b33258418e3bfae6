"""Which side every command says that a text is of: tokenizers of two languages split each its own way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotext.data.formats import write_parallel
from cotext.data.tokenizer import SentencePieceTokenizer
from tests.command_line import WITH_BLEU, World, prepare_arguments, succeed, train_arguments
from tests.loops import loop_over
from tests.tiny_runs import WORDS, toy_documents

TEXTS = [d for count, seed in ((24, 0), (4, 1), (5, 2), (6, 3)) for d in toy_documents(count, seed)]
KNOWN = {
    "source": {sentence for document in TEXTS for sentence in document.source},
    "target": {sentence for document in TEXTS for sentence in document.target},
}
# Arguments of every command that reads or writes text, and the sides that it must encode.
BOTH, SOURCE = ("source", "target"), ("source",)
COMMANDS: dict[str, tuple[Callable[[World, Path], list[str | Path]], tuple[str, ...]]] = {
    "prepare": (lambda w, out: prepare_arguments(w.folder, out / "data"), BOTH),
    "train": (lambda w, out: train_arguments(w.folder, out / "run", WITH_BLEU), BOTH),
    "dry-run": (lambda w, out: [*train_arguments(w.folder, out / "run"), "--dry-run"], ()),
    "translate": (lambda w, out: ["translate", w.run, w.folder / "test.en", "--out", out / "t.de"], BOTH),
    "first pass": (
        lambda w, out: [
            *("translate", w.run, w.folder / "test.en", "--out", out / "t.de"),
            *("--set", f"first_pass={w.run}"),
        ],
        BOTH,
    ),
    "score": (lambda w, out: ["score", w.run, *texts(w)], BOTH),
    "contrastive": (lambda w, out: ["contrastive", w.run, w.folder / "suite.json"], BOTH),
    "cxmi": (lambda w, out: ["cxmi", w.run, *texts(w)], BOTH),
    "context": (
        lambda w, out: ["context", w.run, *pair(w, out), "--document", "d1", "--out", out / "c.html"],
        BOTH,
    ),
    "attention": (
        lambda w, out: ["attention", w.run, *pair(w, out), "--document", "d1", "--out", out / "a.html"],
        BOTH,
    ),
    "speed": (lambda w, out: ["speed", w.run, "--document", w.folder / "test.en", "--rounds", "1"], BOTH),
    "distill": (lambda w, out: ["distill", w.run, "--data", w.folder / "data", "--out", out / "kd"], BOTH),
    "head": (lambda w, out: ["head", w.folder / "data", "--split", "dev"], ()),
}


def texts(world: World) -> list[str | Path]:
    """The test set."""
    return ["--source", world.folder / "test.en", "--target", world.folder / "test.de"]


def pair(world: World, folder: Path) -> list[str | Path]:
    """A parallel corpus whose documents have names."""
    write_parallel(folder / "d.en", folder / "d.de", toy_documents(5, 2), "docids")
    return [folder / "d.en", "--target", folder / "d.de"]


@loop_over("command", COMMANDS)
def test_sides_are_told(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    arguments, wanted = COMMANDS[command]
    seen: dict[str, set[str]] = {"source": set(), "target": set()}
    plain = SentencePieceTokenizer.encode, SentencePieceTokenizer.encode_batch, SentencePieceTokenizer.decode

    def encode(self: Any, sentence: str, side: str = "source") -> Any:
        seen[side].add(sentence)
        return plain[0](self, sentence, side)

    def encode_batch(self: Any, sentences: list[str], side: str = "source") -> Any:
        seen[side].update(sentences)
        return plain[1](self, sentences, side)

    def decode(self: Any, ids: list[int], side: str = "target") -> str:
        text = plain[2](self, ids)
        assert " " not in text or text not in KNOWN["target" if side == "source" else "source"]
        return text

    for name, spy in (("encode", encode), ("encode_batch", encode_batch), ("decode", decode)):
        monkeypatch.setattr(SentencePieceTokenizer, name, spy)
    succeed(*arguments(world, tmp_path))
    assert all(word in WORDS for text in seen["source"] for word in text.split())
    assert not {text for text in seen["target"] if text.split()} & KNOWN["source"]
    assert [side for side in BOTH if seen[side]] == list(wanted)
