"""`cotext adapt` on a tiny model and the controlled corpus: every step, its refusals, and going on."""

import json
from pathlib import Path

import pytest
from command_line import Outcome, cotext, succeed
from tiny_runs import run_config, with_section, write_run

from cotext.data.controlled.contrast import training_documents
from cotext.data.formats import read_documents, read_parallel, write_parallel
from cotext.data.tokenizer import TokenizerSettings, train_tokenizer
from cotext.models.run_folder import describe_file
from cotext.training.start_settings import written_config

DOCUMENTS = 30
COUNTS = ("--dev-documents", "3", "--test-documents", "4")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence model that learned nothing, and a corpus in two texts and in one file."""
    folder = tmp_path_factory.mktemp("adapt")
    documents = [*training_documents(DOCUMENTS, 1)]
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
    corpus = (here / "all.en", here / "all.de")
    return succeed("adapt", here / "model", *corpus, "--out", here / "mine", "--minutes", "0.05", *COUNTS)


def test_a_sentence_model_becomes_a_document_system(here: Path, adapted: Outcome) -> None:
    run = describe_file(here / "mine" / "model.safetensors").config
    assert (run.view.kind, run.view.before, run.languages) == ("window", 3, "en-de")
    assert run.model.attention.others == "gated"
    assert (run.model.dimension, run.decode.max_extra) == (16, 2)  # as the model's
    assert "times through the corpus" in adapted.err
    assert f"cotext translate {here / 'mine'} " in adapted.out
    succeed("translate", here / "mine", here / "all.en", "--out", here / "out.de", "--device", "cpu")


def test_whole_documents_are_set_aside(here: Path, adapted: Outcome) -> None:
    whole = [each.source for each in read_parallel(here / "all.en", here / "all.de")]
    splits = {
        split: [each.source for each in read_parallel(here / "mine.adapt" / f"{split}.jsonl", None)]
        for split in ("train", "dev", "test")
    }
    assert {name: len(each) for name, each in splits.items()} == {"train": 23, "dev": 3, "test": 4}
    assert sorted(document for each in splits.values() for document in each) == sorted(whole)


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
    changed = [
        new for pair in zip(before, after, strict=True) for old, new in zip(*pair, strict=True) if old != new
    ]
    assert page.count("<article>") == min(20, len(changed))
    assert f"{len(changed)} translations changed" in page
    assert "What to run next" in page
    assert f"{comparison['difference']:+.2f}" in page
    assert f"{comparison['difference']:+.2f}" in adapted.out


def test_the_same_command_goes_on_and_another_one_is_refused(here: Path, adapted: Outcome) -> None:
    corpus = (here / "all.en", here / "all.de")
    (here / "mine.adapt" / "after.jsonl").unlink()
    made = (here / "mine" / "model.safetensors").stat().st_mtime_ns
    again = succeed("adapt", here / "model", *corpus, "--out", here / "mine", "--minutes", "0.05", *COUNTS)
    assert (here / "mine" / "model.safetensors").stat().st_mtime_ns == made
    assert "times through the corpus" not in again.err
    assert again.out.split("next:")[1] == adapted.out.split("next:")[1]
    for other in ((*corpus, "--seed", "2"), (corpus[0], here / "all.en")):
        refused = cotext("adapt", here / "model", *other, "--out", here / "mine", *COUNTS)
        assert (refused.code, "made of another corpus or model" in refused.err) == (2, True)


def test_a_document_system_keeps_its_configuration(here: Path, adapted: Outcome) -> None:
    succeed("adapt", here / "mine", here / "all.tmx", "--out", here / "next", "--minutes", "0.02", *COUNTS)
    first, second = (written_config(here / name / "config.yaml") for name in ("mine", "next"))
    assert second.view == first.view
    assert second.model == first.model
    assert second.train.init == str(here / "mine")


def test_a_corpus_of_one_document_is_cut_and_said_to_be(here: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.en", tmp_path / "one.de"
    for name, path in zip(("all.en", "all.de"), one, strict=True):
        path.write_text("".join(f"{line}\n" for line in (here / name).read_text().split("\n") if line))
    out = tmp_path / "mine"
    few = ("--dev-documents", "1", "--test-documents", "2", "--minutes", "0.01")
    told = succeed("adapt", here / "model", *one, "--out", out, *few)
    assert "too few documents; it was cut into" in told.out
    lengths = [len(each.source) for each in read_parallel(tmp_path / "mine.adapt" / "test.jsonl", None)]
    assert max(lengths) <= 20
    refused = cotext("adapt", here / "model", *one, "--out", tmp_path / "b", "--test-documents", "500")
    assert (refused.code, "lower --dev-documents" in refused.err) == (2, True)
    assert not (tmp_path / "b.adapt").exists()


def test_what_cannot_be_adapted_is_refused(here: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x")
    reversed_sides = (here / "all.de", here / "all.en")
    for arguments, reason in (
        ((here / "model", *reversed_sides), "and give one of the same language pair"),
        ((here / "none", here / "all.tmx"), "no such run folder"),
        ((here / "model", here / "all.en"), "name the target file too"),
        ((here / "model", here / "all.en", here / "all.de", here / "all.en"), "one file or two"),
    ):
        refused = cotext("adapt", *arguments, *out)
        assert refused.code == 2, arguments
        assert reason.removeprefix("and ") in refused.err
        assert not [*tmp_path.iterdir()]
