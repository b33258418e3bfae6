"""`cotext adapt` on a tiny model and the controlled corpus: every step, its refusals, and going on."""

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from cotext.data.controlled import training_documents
from cotext.data.formats import read_documents, write_parallel
from cotext.data.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer
from cotext.interchange.model_names import NamedModel
from cotext.models.run_folder import describe_file
from cotext.runtime.devices import usable_cores
from cotext.training.inputs import written_config
from tests.command_line import Outcome, must_refuse, succeed
from tests.tiny_runs import run_config, with_section, write_run

COUNTS = ("--dev-documents", "3", "--test-documents", "4")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence model that learned nothing, and a corpus in two texts and in one file."""
    folder = tmp_path_factory.mktemp("adapt")
    documents = [*training_documents(16, 1)]
    write_parallel(folder / "all.en", folder / "all.de", documents, "text")
    write_parallel(folder / "all.tmx", None, documents, "tmx", ("en", "de"))
    sentences = [sentence for each in documents for sentence in (*each.source, *each.target)]
    settings = TokenizerSettings(kind="sentencepiece-bpe", vocabulary=300, num_threads=1)
    config = with_section(run_config(), "view", kind="sentence", before=0)
    config = with_section(config, "decode", beam=1).model_copy(update={"languages": "en-de"})
    write_run(folder / "model", config, train_tokenizer(sentences, settings))
    return folder


@pytest.fixture(scope="module")
def adapted(here: Path) -> Outcome:
    return succeed(*asked(here, here / "all.en", here / "all.de"))


def asked(here: Path, *corpus: str | Path) -> list[str | Path]:
    return ["adapt", here / "model", *corpus, "--out", here / "mine", "--minutes", "0.01", *COUNTS]


def test_a_sentence_model_becomes_a_document_system(here: Path, adapted: Outcome) -> None:
    run = describe_file(here / "mine" / "model.safetensors").config
    assert (run.view.kind, run.view.before, run.languages) == ("window", 3, "en-de")
    assert run.model.attention.others == "gated"
    assert (run.model.dimension, run.decode.max_extra) == (16, 2)  # as the model's
    assert "times through the corpus" in adapted.err
    succeed("translate", here / "mine", here / "all.en", "--out", here / "out.de", "--device", "cpu")


def test_the_report_has_scores_tests_and_what_changed(here: Path, adapted: Outcome) -> None:
    found = json.loads((here / "mine.adapt" / "report.json").read_text())
    assert {*found["systems"]} == {"before.jsonl", "after.jsonl"}
    [comparison] = found["paired"]["chrf"]["comparisons"]
    assert comparison["baseline"] == "before.jsonl"
    page = (here / "mine.adapt" / "report.html").read_text()
    before, after = (
        [each.sentences for each in read_documents(here / "mine.adapt" / f"{name}.jsonl")]
        for name in ("before", "after")
    )
    pairs = [pair for both in zip(before, after, strict=True) for pair in zip(*both, strict=True)]
    changed = sum(old != new for old, new in pairs)
    assert page.count("<article>") == min(20, changed)
    assert f"{changed} translations changed" in page
    assert all(f"{comparison['difference']:+.2f}" in shown for shown in (page, adapted.out))


def test_the_same_command_goes_on_and_another_one_is_refused(here: Path, adapted: Outcome) -> None:
    corpus = (here / "all.en", here / "all.de")
    (here / "mine.adapt" / "after.jsonl").unlink()
    made = (here / "mine" / "model.safetensors").stat().st_mtime_ns
    again = succeed(*asked(here, *corpus))
    assert (here / "mine" / "model.safetensors").stat().st_mtime_ns == made
    assert "--minutes has no effect" in again.err
    assert again.out.split("next:")[1] == adapted.out.split("next:")[1]
    # Another model in the run's place is translated with again.
    after, weights = here / "mine.adapt" / "after.jsonl", here / "mine" / "model.safetensors"
    later = weights.stat().st_mtime + 100
    os.utime(weights, (later, later))
    after.write_text("")
    os.utime(after, (later - 1, later - 1))
    succeed(*asked(here, *corpus))
    assert len(after.read_text().splitlines()) == 4
    # Equal translations do not mean that the model is as it was.
    after.write_bytes((here / "mine.adapt" / "before.jsonl").read_bytes())
    os.utime(after, (later + 1, later + 1))
    assert describe_file(weights).updates != [0]
    assert "mine is not shown to be better or worse than" in succeed(*asked(here, *corpus)).out
    for other in ((*corpus, "--seed", "2"), (here / "all.tmx",)):
        must_refuse("exists and is not empty; choose another --out", *asked(here, *other))


def test_a_document_system_keeps_its_configuration(here: Path, adapted: Outcome) -> None:
    """But not how it started and when its training stopped."""
    once = {"init_parts": "encoder", "freeze": "init", "blend": ("positions",), "max_epochs": 1, "threads": 2}
    first = written_config(here / "mine" / "config.yaml")
    first = with_section(first, "train", best_by="bleu", validate_bleu=True, word_dropout=0.5, **once)
    first = with_section(first, "decode", first_pass="init")
    write_run(here / "old", first, load_tokenizer(here / "model" / "tokenizer"))
    succeed("adapt", here / "old", here / "all.tmx", "--out", here / "next", "--minutes", "0.01", *COUNTS)
    second = written_config(here / "next" / "config.yaml")
    assert (second.view, second.model, second.train.init) == (first.view, first.model, str(here / "old"))
    assert (second.train.init_parts, second.train.max_epochs, second.train.word_dropout) == ("all", 0, 0)
    assert second.train.max_cpu_minutes == 0.01 * min(2, usable_cores())  # of each thread of that run
    assert second.decode.first_pass == str(here / "model")


def test_an_installed_model_is_called_by_its_name(here: Path, adapted: Outcome) -> None:
    assert f"cotext compare {here / 'model'} {here / 'mine'} " in adapted.out
    known = {"en-de": NamedModel("en-de", here / "model")}
    with patch("cotext.interchange.model_names.known_models", lambda: known):
        again = succeed(*asked(here, here / "all.en", here / "all.de"))
    assert f"cotext compare en-de {here / 'mine'} " in again.out


def test_what_cannot_be_adapted_is_refused(here: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x")
    write_parallel(here / "few.tmx", None, training_documents(2, 1), "tmx", ("en", "de"))
    write_parallel(here / "swapped.tmx", None, training_documents(2, 1), "tmx", ("de", "en"))
    (here / "copy").write_bytes((here / "all.en").read_bytes())
    for arguments, reason in (
        ((here / "model", here / "swapped.tmx"), "use the same language pair for both"),
        ((here / "none", here / "all.tmx"), "no such run folder"),
        ((here / "model", here / "all.en"), "name the target file, too"),
        ((here / "model", here / "all.tmx", "--test-documents", "500"), "set fewer aside"),
        ((here / "model", here / "all.en", here / "all.de", here / "all.en"), "one corpus path, or two"),
        ((here / "model", here / "few.tmx"), "too few to set aside"),
        ((here / "model", here / "all.en", here / "copy"), "both sides are the same text"),
    ):
        must_refuse(reason, "adapt", *arguments, *out)
        assert not list(tmp_path.iterdir())
    (tmp_path / "x.adapt").mkdir()
    (pairs := tmp_path / "x.adapt" / "pairs.tmx").write_text("of another corpus")
    must_refuse("too few to set aside", "adapt", here / "model", here / "few.tmx", *out)
    assert pairs.read_text() == "of another corpus"
