"""Two-pass translation of files with two runs on disk, and invalid first passes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cotext.config.recipe import Config, dump_config
from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.data.shortlist import SHORTLIST, Shortlist
from cotext.data.tokenizer import load_tokenizer
from cotext.models.build import build_model
from cotext.models.checkpoint import save_model
from cotext.runtime.jobs.journal import Journal
from cotext.translation.corpus_files import FileReport
from cotext.translation.open import open_run, open_scorer
from cotext.translation.score_file import score_file
from cotext.translation.translate_file import translate_file
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tiny import shake
from tests.tiny_runs import prepare_toy, run_config, toy_documents, with_section


def make_run(data: Path, run: Path, config: Config, seed: int) -> Path:
    """A run whose model never learned anything."""
    tokenizer = load_tokenizer(data / "tokenizer")
    torch.manual_seed(seed)
    model = build_model(config, tokenizer.vocabulary_size)
    shake(model)
    save_model(run / "model.safetensors", model.state_dict(), config, tokenizer.fingerprint, [7])
    (run / "config.yaml").write_text(dump_config(config))
    tokenizer.save(run / "tokenizer")
    return run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`window` writes in context, `sentence` without; `other` is as `sentence`, with another tokenizer."""
    folder = tmp_path_factory.mktemp("passes")
    data, other = prepare_toy(folder / "data"), prepare_toy(folder / "other data", documents=12, seed=5)
    window = run_config()
    sentence = with_section(window, "view", kind="sentence", before=0)
    make_run(data, folder / "window", window, 1)
    make_run(data, folder / "sentence", sentence, 2)
    make_run(other, folder / "other", sentence, 3)
    in_passes = with_section(window, "decode", first_pass=str(folder / "sentence"))
    make_run(data, folder / "in passes", in_passes, 4)
    documents = [Document(d.id, d.source) for d in toy_documents(6, 9)]
    write_documents(folder / "in.jsonl", documents, "jsonl")
    return folder


def translate(world: Path, out: Path, run: str = "window", first_pass: str = "sentence") -> FileReport:
    decode = {"first_pass": str(world / first_pass)}
    return translate_file(open_run(world / run, "cpu", decode), world / "in.jsonl", out)


def sentences(path: Path) -> list[tuple[str, ...]]:
    return [d.sentences for d in read_documents(path, None, side="target")]


@pytest.mark.parametrize("first_pass", ["sentence", "other", "window"])
def test_a_file_is_translated_in_two_passes(world: Path, tmp_path: Path, first_pass: str) -> None:
    """Runs with another tokenizer and the run itself will do."""
    alone = translate_file(open_run(world / "window", "cpu"), world / "in.jsonl", tmp_path / "alone.jsonl")
    report = translate(world, tmp_path / "out.jsonl", first_pass=first_pass)
    found, before = sentences(tmp_path / "out.jsonl"), sentences(world / "in.jsonl")
    assert [len(s) for s in found] == [len(s) for s in before]
    assert all(all(s) for s in found)
    own, entry = report.signature.rsplit("|", 1)
    assert own == alone.signature
    assert entry.startswith(f"first_pass:{first_pass}-")
    if first_pass != "window":
        assert found != sentences(tmp_path / "alone.jsonl")


def test_a_first_pass_decodes_as_its_own_run_says(world: Path) -> None:
    decode = {"first_pass": str(world / "sentence"), "beam": 7, "length_penalty": 2.0}
    translator = open_run(world / "window", "cpu", decode).translator
    assert translator.first_pass is not None
    assert translator.plan.options.beam == 7
    assert translator.first_pass.plan.options.beam == run_config().decode.beam
    assert translator.first_pass.plan.view != translator.plan.view


def test_the_first_pass_may_be_what_training_started_from(world: Path, tmp_path: Path) -> None:
    """As in Wu et al. 2023, whose systems are fine-tuned from the sentence model that translates first."""
    must_raise("this run was not initialised", open_run, world / "window", "cpu", {"first_pass": "init"})
    config = open_scorer(world / "window", "cpu").loaded.config
    config = with_section(config, "train", init=str(world / "sentence"))
    config = with_section(config, "decode", first_pass="init")
    run = make_run(world / "data", tmp_path / "started", config, 9)
    one, other = (
        open_run(run, "cpu", decode).translator for decode in ({}, {"first_pass": str(world / "sentence")})
    )
    assert one.signature == other.signature
    assert one.config == other.config
    assert open_scorer(run, "cpu").translator.first_pass is None


def named_in(signature: str) -> str:
    """The name of the first pass, without its decode settings."""
    return signature.rsplit("|first_pass:", 1)[1].split("(", 1)[0]


def test_names_of_first_passes_tell_their_weights_apart(world: Path, tmp_path: Path) -> None:
    first = make_run(
        world / "data", tmp_path / "sentence", open_scorer(world / "sentence", "cpu").loaded.config, 8
    )
    names = [
        named_in(open_run(world / "window", "cpu", {"first_pass": str(run)}).signature)
        for run in (world / "sentence", first, tmp_path / "." / "sentence")
    ]
    assert names[0] != names[1] == names[2]
    assert all(name.startswith("sentence-") for name in names)


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        ({"beam": 1}, ",beam:1,"),
        ({"length_penalty": 2.0}, ",lp:2,"),
        ({"length_penalty_form": "gnmt"}, ",lp:gnmt-0.6,"),
        ({"max_extra": 3}, "x+3)"),
        ({"precision": "int8"}, "-int8("),
    ],
)
def test_signatures_tell_of_decoding(world: Path, tmp_path: Path, decode: dict[str, Any], told: str) -> None:
    config = open_scorer(world / "sentence", "cpu").loaded.config
    run = make_run(world / "data", tmp_path / "sentence", with_section(config, "decode", **decode), 2)
    plain, changed = (
        open_run(world / "window", "cpu", {"first_pass": str(each)}).signature.rsplit("|first_pass:", 1)
        for each in (world / "sentence", run)
    )
    assert plain[0] == changed[0]
    assert told not in plain[1]
    assert told in changed[1]


def test_names_of_first_passes_tell_their_shortlists_apart(world: Path, tmp_path: Path) -> None:
    """A table that is made again leaves the weights as they are, and its translations are others."""
    config = with_section(open_scorer(world / "sentence", "cpu").loaded.config, "decode", shortlist=3)
    run = make_run(world / "data", tmp_path / "listed", config, 2)
    tokenizer = load_tokenizer(run / "tokenizer")

    def name(frequent: int) -> str:
        table = np.zeros((tokenizer.source_vocabulary_size, 3), np.int32)
        Shortlist(tokenizer.fingerprint, table, np.arange(frequent, dtype=np.int32)).save(run / SHORTLIST)
        return named_in(open_run(world / "window", "cpu", {"first_pass": str(run)}).signature)

    few, more = name(5), name(9)
    assert few != more
    assert name(5) == few
    assert few.rsplit("-", 1)[0] == more.rsplit("-", 1)[0]  # the run and its weights


@pytest.mark.parametrize(
    ("first_pass", "message"),
    [
        ("nowhere", r"decode\.first_pass = .*nowhere: .*no such run folder"),
        ("data", r"decode\.first_pass = .*data: .*no such model file"),
        ("in passes", r"itself uses a first pass \(.*sentence\), but at most two passes"),
    ],
)
def test_invalid_first_passes_are_refused(world: Path, tmp_path: Path, first_pass: str, message: str) -> None:
    must_raise(message, translate, world, tmp_path / "out.jsonl", first_pass=first_pass)
    must_raise("has no effect", translate, world, tmp_path / "out.jsonl", run="sentence", first_pass="other")
    assert not list(tmp_path.iterdir())


def test_scoring_needs_no_first_pass(world: Path, tmp_path: Path) -> None:
    run = tmp_path / "moved"
    shutil.copytree(world / "in passes", run)
    config = with_section(run_config(), "decode", first_pass=str(tmp_path / "gone"))
    make_run(world / "data", run, config, 4)
    must_raise(r"gone: .*no such run folder", open_run, run, "cpu")
    out = tmp_path / "out.jsonl"
    translate_file(open_run(run, "cpu", {"first_pass": ""}), world / "in.jsonl", out)
    scored, signature = score_file(open_scorer(run, "cpu"), out, None)
    assert [len(scores) for _, scores in scored] == [len(s) for s in sentences(out)]
    assert "first_pass" not in signature


def test_the_journal_tells_first_passes_apart_by_their_weights(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tmp_path / "sentence", tmp_path / "out.jsonl"
    shutil.copytree(world / "sentence", run)
    headers = calls_of(
        monkeypatch, Journal, "finish", lambda journal, *_: journal.path.read_bytes().splitlines()[0]
    )
    for changed in (False, False, True):
        if changed:
            make_run(world / "data", run, open_scorer(run, "cpu").loaded.config, 3)
        decode = {"first_pass": str(run)}
        translate_file(open_run(world / "window", "cpu", decode), world / "in.jsonl", out)
    first, same, other = (json.loads(header)["job"] for header in headers)
    assert first == same
    assert other.pop("first_pass") != same.pop("first_pass")
    assert other == same
