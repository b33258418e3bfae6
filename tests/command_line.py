"""The command line under test: run in this process, on a trained system that all tests share."""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import typer.main

from cotext.cli import main as cli
from cotext.cli.main import app, main
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.documents import Document
from cotext.data.formats import write_documents, write_parallel
from tests.tiny_runs import toy_documents

RECIPE = "focused-concatenation/s2to2"
TINY = (
    *("model.dimension=16", "model.feed_forward=32", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
    *("train.max_updates=6", "train.max_tokens=500", "train.warmup_updates=2", "train.validate_every=3"),
    *("train.validate_sentences=8", "train.log_every=2", "train.average=2", "train.threads=1"),
    "train.validate_bleu=false",  # takes two thirds of the time of such a training
    *("decode.max_ratio=1.0", "decode.max_extra=3"),
)
WITH_BLEU = "train.validate_bleu=true"  # overrides these


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class World:
    """A folder with a parallel corpus (train, dev and test, .en and .de), a suite, `data` and `run`."""

    folder: Path
    prepared: Outcome
    trained: Outcome

    @property
    def run(self) -> Path:
        return self.folder / "run"


@cache
def commands() -> Callable[[], None]:
    """The application's tree of commands, made only once (building it takes 1/60 s)."""
    return typer.main.get_command(app)


def cotext(*arguments: str | Path) -> Outcome:
    """Run a command as the installed script would."""
    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    tree = commands() if cli.app is app else cli.app  # a test may have replaced it
    before = signal.getsignal(signal.SIGINT)
    with (
        patch.object(sys, "argv", ["cotext", *map(str, arguments)]),
        patch.object(cli, "app", tree),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        if code == cli.INTERRUPTED:
            signal.signal(signal.SIGINT, before)
    assert code is None or isinstance(code, int), code
    return Outcome(code or 0, out.getvalue(), err.getvalue())


def succeed(*arguments: str | Path) -> Outcome:
    outcome = cotext(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def must_refuse(words: str | tuple[str, ...], *arguments: str | Path) -> Outcome:
    """Run a command that must end with exit code 2 and a message with these words, ignoring line breaks."""
    outcome = cotext(*arguments)
    assert outcome.code == 2, outcome
    shown = " ".join(outcome.err.split())
    for each in (words,) if isinstance(words, str) else words:
        assert each in outcome.err or each in shown, outcome.err
    return outcome


def process_environment() -> dict[str, str]:
    """The environment of started processes: one thread, no accelerator."""
    settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    return {**os.environ, **settings, "PYTHONWARNINGS": "ignore"}


def start(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Run a command in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "cotext", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=process_environment(),
        # If the tests run in the background, Ctrl-C is ignored, and children inherit this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@contextmanager
def piped(content: bytes) -> Iterator[Path]:
    """The name that a shell gives `<(...)`."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as stream:
            stream.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield Path(f"/dev/fd/{reading}")
    finally:
        os.close(reading)
        writer.join()


def commands_of(heading: str, page: str = "README.md") -> list[list[str]]:
    """The words of the commands in the first block of a section, without comments."""
    text = (Path(__file__).resolve().parents[1] / page).read_text(encoding="utf-8")
    block = text.split(f"\n## {heading}\n")[1].split("```")[1]
    return [line.split("  #")[0].split() for line in block.strip().splitlines()]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listing(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def writable_copy(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


def write_corpus(folder: Path) -> None:
    """train, dev and test as text, and suite.json: an article that is right and one that is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", 24, 0), ("dev", 4, 1), ("test", 5, 2)):
        documents = toy_documents(count, seed)
        write_parallel(folder / f"{name}.en", folder / f"{name}.de", documents, "text")
    examples = [
        ContrastiveExample(
            id=document.id,
            phenomenon="order",
            distance=len(document.source) - 1,
            source=document.source,
            candidates=(document.target, (*document.target[:-1], f"{document.target[-1]} und")),
            correct=0,
            tags={"side": "left" if number % 2 else "right"},
        )
        for number, document in enumerate(toy_documents(6, 3))
    ]
    write_suite(folder / "suite.json", ContrastiveSuite("toy/order", "en", "de", tuple(examples)))


def prepare_arguments(folder: Path, out: Path, tokenizer: str | Path | None = None) -> list[str | Path]:
    """Of a new vocabulary, or with the tokenizer of a folder."""
    sides = [("--source", "train.en"), ("--target", "train.de")]
    sides += [("--dev-source", "dev.en"), ("--dev-target", "dev.de")]
    files = [part for option, name in sides for part in (option, folder / name)]
    pieces = ("--vocabulary", "48") if tokenizer is None else ("--tokenizer", tokenizer)
    return ["prepare", *files, *pieces, "--out", out]


def train_arguments(folder: Path, out: Path, *overrides: str | Path) -> list[str | Path]:
    return ["train", RECIPE, *TINY, *overrides, "--data", folder / "data", "--out", out]


def documents_file(path: Path, count: int, seed: int, format: str = "text") -> Path:
    """Source documents to translate."""
    documents = [Document(d.id, d.source) for d in toy_documents(count, seed)]
    write_documents(path, documents, format)
    return path


@cache
def make_world(folder: Path) -> World:
    """Prepare and train once for all test files of a test session, which is identified by a folder."""
    write_corpus(folder)
    prepared = succeed(*prepare_arguments(folder, folder / "data"))
    trained = succeed(*train_arguments(folder, folder / "run", WITH_BLEU))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    return World(folder, prepared, trained)
