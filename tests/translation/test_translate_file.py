"""Interrupted jobs, concurrent jobs and full disks."""

import json
import os
import random
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.runtime.files import sealed, unsealed, working_in
from cotext.runtime.jobs.journal import Journal
from cotext.training.trainer import MetricsLog
from cotext.translation import translate_file as jobs
from tests.command_line import (
    Outcome,
    World,
    cotext,
    documents_file,
    listing,
    must_refuse,
    prepare_arguments,
    succeed,
    train_arguments,
    writable_copy,
)
from tests.killing import killed_when
from tests.tiny_runs import toy_documents

DOCUMENTS = 8


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return documents_file(tmp_path / "in.en", DOCUMENTS, 11)


def command(world: World, source: Path, out: Path, *more: str | Path) -> list[str | Path]:
    return ["translate", world.run, source, "--out", out, *more]


def partial(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def finished_documents(out: Path) -> int:
    """How many documents the journal holds, which begins with a line about the job."""
    path = partial(out)
    return path.read_bytes().count(b"\n") - 1 if path.exists() else -1


@contextmanager
def interrupted_after(monkeypatch: pytest.MonkeyPatch, documents: int) -> Iterator[None]:
    """Ctrl-C arrives when so many documents are written."""
    add = Journal.add
    count = 0

    def add_and_interrupt(*arguments: object) -> None:
        nonlocal count
        if count == documents:
            raise KeyboardInterrupt
        count += 1
        add(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", add_and_interrupt)
        yield


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: the system refuses in the middle of a write, as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_killed_at_any_moment_a_translation_ends_the_same(world: World, tmp_path: Path) -> None:
    """kill -9 three times: before the first document, and at two random ones; then in peace."""
    count = 40
    source = documents_file(tmp_path / "in.en", count, 12)
    out, expected = tmp_path / "out.de", tmp_path / "expected.de"
    # Small batches, so that documents are finished one after the other.
    options = ["--set", "max_tokens=100", "--overwrite"]
    succeed(*command(world, source, expected, *options))
    out.write_text("an older translation\n")
    generator = random.Random()
    moments = [0, *sorted(generator.sample(range(2, count // 2), k=2))]
    for moment in moments:
        killed_when(
            lambda moment=moment: finished_documents(out) >= moment, *command(world, source, out, *options)
        )
        assert out.read_text() == "an older translation\n"
        assert moment <= finished_documents(out) < count
    shown = succeed(*command(world, source, out, *options))
    assert f"{count} documents (" in shown.out, moments
    assert out.read_bytes() == expected.read_bytes(), moments
    assert {p.name for p in tmp_path.iterdir()} == {"in.en", "out.de", "expected.de"}


def test_translations_of_another_job_are_neither_taken_over_nor_lost(
    world: World, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, fresh = tmp_path / "out.de", tmp_path / "fresh.de"
    other_source = documents_file(tmp_path / "other.en", DOCUMENTS, 14)
    other_run = tmp_path / "run"
    retrained = train_arguments(world.folder, other_run, "train.max_updates=3", "train.validate_bleu=false")
    succeed(*retrained)
    with interrupted_after(monkeypatch, 4):
        stopped = cotext(*command(world, source, out))
    assert (stopped.code, finished_documents(out)) == (130, 4)
    journal = partial(out).read_bytes()
    for differing, (run, document, *more) in (
        ("source", (world.run, other_source)),
        ("config.decode.beam: 4 before, 1 now", (world.run, source, "--set", "beam=1")),
        ("model", (world.run, source, "--checkpoint", "3")),
        ("model", (other_run, source)),
    ):
        refused = must_refuse("belongs to another job", "translate", run, document, "--out", out, *more)
        assert "add --overwrite to discard it" in refused.err
        assert f"\n  job.{differing}" in refused.err
        assert partial(out).read_bytes() == journal
        assert not out.exists()
    shown = succeed("translate", run, document, "--out", out, *more, "--overwrite")
    assert f"belonged to another job, and was discarded:\n  job.{differing}" in shown.err
    assert "from an interrupted job" not in shown.out
    succeed("translate", run, document, "--out", fresh, *more)
    assert out.read_bytes() == fresh.read_bytes()


def test_same_text_in_other_documents(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The side file says which they are, and the text file does not change."""
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    write_documents(source, [Document(d.id, d.source) for d in toy_documents(4, 3)], "docids")
    with interrupted_after(monkeypatch, 2):
        cotext(*command(world, source, out))
    side_file = tmp_path / "in.docids"
    sentences = sum(int(line.split("\t")[1]) for line in side_file.read_text().splitlines())
    side_file.write_text(side_file.read_text().replace("d0\t", "renamed\t"))
    assert "job.source: " in cotext(*command(world, source, out)).err
    succeed(*command(world, source, out, "--overwrite"))
    found = list(read_documents(out))
    assert found[0].id == "renamed"
    assert sum(map(len, found)) == sentences


@pytest.fixture(scope="module")
def half(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], bytes]:
    """A source, the lines of the journal of an interrupted job, and what comes out in the end."""
    folder = tmp_path_factory.mktemp("half")
    source, out = documents_file(folder / "in.en", DOCUMENTS, 11), folder / "out.de"
    with pytest.MonkeyPatch.context() as monkeypatch, interrupted_after(monkeypatch, 5):
        cotext(*command(world, source, out))
    lines = partial(out).read_text().splitlines()
    succeed(*command(world, source, out))
    return source, lines, out.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry["sentences"].append("more"),
        lambda entry: entry.update(id="another"),
        lambda entry: entry.update(sentences=None),
        lambda entry: entry.pop("truncated"),
    ],
)
def test_what_is_no_translation_of_its_document_is_done_again(
    world: World,
    half: tuple[Path, list[str], bytes],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
) -> None:
    """Whole lines, but not as this program writes them."""
    source, lines, expected = half
    out = tmp_path / "out.de"
    entry = unsealed(lines[2])
    change(entry["result"])
    partial(out).write_text("".join(f"{line}\n" for line in [*lines[:2], sealed(entry), *lines[3:]]))
    succeed(*command(world, source, out))
    assert out.read_bytes() == expected


def test_two_processes_on_one_output(
    world: World, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is at work, another is refused, whatever it is to write there."""
    out = tmp_path / "out.de"
    found: dict[str, Outcome] = {}
    test = world.folder / "test"
    others = {
        "translate": command(world, source, out, "--overwrite"),
        "score": ["score", world.run, "--source", f"{test}.en", "--target", f"{test}.de", "--out", out],
        "contrastive": ["contrastive", world.run, world.folder / "suite.json", "--out", out],
        "cxmi": ["cxmi", world.run, "--source", f"{test}.en", "--target", f"{test}.de", "--out", out],
        "profile": ["profile", "--hypothesis", f"{test}.de", "--reference", f"{test}.de", "--out", out],
        "context": ["context", world.run, source, "--out", out],
        "average": ["average", world.run, "--checkpoint", "3", "--out", out],
        "prepare": prepare_arguments(world.folder, out),
        "distill": ["distill", world.run, "--data", world.folder / "data", "--out", out],
        "compare": ["compare", world.run, "--suite", world.folder / "suite.json", "--out", out],
    }
    add = Journal.add

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.undo()
        found.update({name: cotext(*each) for name, each in others.items()})
        add(*arguments)

    monkeypatch.setattr(Journal, "add", meanwhile)
    succeed(*command(world, source, out))
    for name, refused in found.items():
        assert (refused.code, f"{out}: another process is working on it" in refused.err) == (2, True), name
    assert {p.name for p in tmp_path.iterdir()} == {"in.en", "out.de"}


def test_two_processes_in_one_folder(world: World, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    commands = {
        "train": train_arguments(world.folder, out),
        "attention": ["attention", world.run, source, "--out", out],
        "demo": ["demo", "--out", out],
    }
    with working_in(out):
        for arguments in commands.values():
            must_refuse(f"{out}: another process is working on it", *arguments)
    assert list(out.iterdir()) == []
    # Two comparisons of a run would both keep there what they measure.
    run = writable_copy(world.run, tmp_path / "run")
    with working_in(run / "compared"):
        command = ("compare", run, "--suite", world.folder / "suite.json", "--out", tmp_path / "page")
        must_refuse("compared: another process is working on it", *command)


def test_a_request_to_end_is_a_message_and_the_same_command_goes_on(
    world: World, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, which without a handler would leave the lock behind."""
    out, before = tmp_path / "out.de", signal.getsignal(signal.SIGTERM)
    add = Journal.add

    def add_and_terminate(*arguments: Any) -> None:
        add(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", add_and_terminate)
        stopped = cotext(*command(world, source, out))
    assert (stopped.code, "interrupted; to resume train" in stopped.err) == (130, True)
    assert signal.getsignal(signal.SIGTERM) is before
    assert {p.name for p in tmp_path.iterdir()} == {"in.en", "out.de.partial"}
    assert "(1 document from an interrupted job)" in succeed(*command(world, source, out)).out


def test_an_interruption_after_the_last_document_costs_nothing(
    world: World, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.de"
    with monkeypatch.context() as patched:
        patched.setattr(jobs, "write_translations", interrupt)
        assert cotext(*command(world, source, out)).code == 130
    assert finished_documents(out) == DOCUMENTS
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "finish", interrupt)
        assert cotext(*command(world, source, out)).code == 130
    written = out.read_bytes()
    assert f"({DOCUMENTS} documents from an interrupted job)" in succeed(*command(world, source, out)).out
    assert out.read_bytes() == written


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_a_full_disk_while_translating(world: World, source: Path, tmp_path: Path) -> None:
    out, expected = tmp_path / "out.de", tmp_path / "expected.de"
    succeed(*command(world, source, expected))
    with pytest.MonkeyPatch.context() as monkeypatch, interrupted_after(monkeypatch, 1):
        cotext(*command(world, source, out))
    heading = partial(out).read_bytes().index(b"\n")
    partial(out).unlink()
    out.write_text("older\n")
    before = listing(tmp_path)
    assert "exists; choose another name, or add --overwrite" in cotext(*command(world, source, out)).err
    overwriting = command(world, source, out, "--overwrite")
    with files_of_at_most(heading - 10):
        must_refuse("out.de.partial: cannot be written: File too large", *overwriting)
    assert listing(tmp_path) == before
    with files_of_at_most(heading + 800):
        must_refuse("run the same command to resume", *overwriting)
    assert out.read_text() == "older\n"
    done = finished_documents(out)
    assert 0 < done < DOCUMENTS
    with files_of_at_most(heading - 10):
        assert cotext(*command(world, source, out)).code == 2
    assert finished_documents(out) == done
    assert f"({done} documents from an interrupted job)" in succeed(*command(world, source, out)).out
    assert out.read_bytes() == expected.read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"in.en", "out.de", "expected.de"}


def test_a_full_disk_while_the_translation_gets_its_name(world: World, source: Path, tmp_path: Path) -> None:
    """The journal fits, the output does not: nothing has to be translated again."""
    out = tmp_path / "out.jsonl"
    jsonl = tmp_path / "in.jsonl"
    write_documents(jsonl, [Document("x", ("cat " * 60,) * 60)], "jsonl")
    arguments = command(
        world, jsonl, out, "--set", "max_ratio=0.01", "--set", "beam=1", "--set", "max_extra=1"
    )
    before = listing(tmp_path)
    with files_of_at_most(jsonl.stat().st_size - 1000):
        must_refuse("out.jsonl: cannot be written: File too large", *arguments)
    assert listing(tmp_path).keys() == before.keys() | {"out.jsonl.partial"}
    assert "(1 document from an interrupted job)" in succeed(*arguments).out


def test_a_full_disk_while_preparing(world: World, tmp_path: Path) -> None:
    for size in (500, 3_000):
        with files_of_at_most(size):
            refused = cotext(*prepare_arguments(world.folder, tmp_path / "data"))
        assert (refused.code, "Traceback" in refused.err) == (2, False), size
        assert "data" in refused.err
        assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_training(world: World, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = train_arguments(world.folder, run, "train.validate_bleu=false")
    with files_of_at_most(20_000):
        must_refuse("cannot be written", *arguments)
    assert not list(run.rglob(".*"))
    # Room again: the same command goes on, and arrives where it would have.
    assert "finished at update 6" in succeed(*arguments).out
    found, wanted = load_file(run / "model.safetensors"), load_file(world.run / "model.safetensors")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("name", ["score", "contrastive", "average"])
def test_a_full_disk_while_writing_results(world: World, tmp_path: Path, name: str) -> None:
    out, test = tmp_path / "results", world.folder / "test"
    arguments = {
        "score": ["--source", f"{test}.en", "--target", f"{test}.de"],
        "contrastive": [world.folder / "suite.json"],
        "average": ["--checkpoint", "3"],
    }[name]
    with files_of_at_most(100):
        must_refuse("File too large", name, world.run, *arguments, "--out", out)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_stops_training(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    endless = ("train.max_updates=100000", "train.log_every=1", "train.validate_every=100000")

    def write_and_interrupt(log: MetricsLog, kind: str, figures: dict[str, float]) -> None:
        write(log, kind, figures)
        if figures["update"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    write = MetricsLog.write
    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write_and_interrupt)
        stopped = cotext(*train_arguments(world.folder, run, *endless))
    # Not 0: what should follow a whole training must not follow this.
    assert stopped.code == 130, stopped
    [update] = map(int, re.findall(r"stopped at update (\d+), not validated yet\n", stopped.out))
    assert f"stopped at update {update}; the same command resumes from there" in stopped.err
    assert "Traceback" not in stopped.err
    assert [p.name for p in (run / "checkpoints").iterdir()] == [f"{update:08d}"]
    went_on = succeed(*train_arguments(world.folder, run, *endless, f"train.max_updates={update + 1}"))
    assert f"going on from update {update}" in went_on.err
    assert f"finished at update {update + 1}" in went_on.out
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [e["update"] for e in entries if e["kind"] == "train"] == list(range(1, update + 2))
