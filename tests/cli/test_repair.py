"""DocRepair (Voita et al. 2019) in miniature: round trips of documents, and the repair of a translation."""

import json
from pathlib import Path

import pytest

from cotext.data.formats import read_documents
from cotext.translation.open import open_run
from tests.command_line import TINY, World, cotext, documents_file, must_refuse, succeed
from tests.translation.test_first_pass import make_run
from tests.translation.test_translate_file import finished_documents, interrupted_after

SAMPLED = ["--set", "beam=1", "--set", "sampling={temperature: 0.5}"]


@pytest.fixture(scope="module")
def repairer(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run`, trained by the commands of docs/monolingual.md, and the round trips of its documents."""
    folder = tmp_path_factory.mktemp("repair")
    config = open_run(world.run, "cpu").loaded.config
    sentences = config.view.model_copy(update={"kind": "sentence", "before": 0})
    for pair, seed in (("en-de", 3), ("de-en", 4)):
        changed = config.model_copy(update={"languages": pair, "view": sentences})
        make_run(world.folder / "data", folder / pair, changed, seed)
    for name in ("train", "dev"):
        text = world.folder / f"{name}.de"
        succeed("translate", folder / "de-en", text, "--no-split", "--out", folder / f"{name}.en")
        trip = folder / f"{name}-trip.de"
        succeed("translate", folder / "en-de", folder / f"{name}.en", "--no-split", "--out", trip, *SAMPLED)
        assert [len(d) for d in read_documents(trip)] == [len(d) for d in read_documents(text)]
    corpora = [("--source", "train-trip"), ("--dev-source", "dev-trip")]
    sources = [part for option, name in corpora for part in (option, folder / f"{name}.de")]
    targets = ["--target", world.folder / "train.de", "--dev-target", world.folder / "dev.de"]
    succeed("prepare", *sources, *targets, "--tokenizer", world.folder / "data", "--out", folder / "data")
    succeed("train", "docrepair/repair", "--data", folder / "data", "--out", folder / "run", *TINY)
    return folder


def test_the_run_repairs_documents_sentence_by_sentence(repairer: Path, tmp_path: Path) -> None:
    hypothesis = documents_file(tmp_path / "other.de", 6, 21)
    shown = succeed("repair", repairer / "run", "--hypothesis", hypothesis, "--out", tmp_path / "out.de").out
    before, after = (list(read_documents(path)) for path in (hypothesis, tmp_path / "out.de"))
    assert [len(d) for d in after] == [len(d) for d in before]
    assert all(text for document in after for text in document.sentences)
    words = sum(len(text.split()) for document in before for text in document.sentences)
    assert f" of {words} words of the hypothesis (" in shown
    command = ("repair", repairer / "run", "--hypothesis", hypothesis)
    figures = json.loads(succeed(*command, "--out", tmp_path / "2.de", "--json").out)
    assert (tmp_path / "2.de").read_bytes() == (tmp_path / "out.de").read_bytes()
    assert figures["format"] == "cotext-repair"
    assert figures["changes"]["words"] == words
    assert f"{figures['changes']['words_replaced']:,} of {words} words" in shown
    # It is the translation by this run.
    succeed("translate", repairer / "run", hypothesis, "--no-split", "--out", tmp_path / "3.de")
    assert (tmp_path / "3.de").read_bytes() == (tmp_path / "out.de").read_bytes()


def test_round_trips_are_the_same_again_and_others_with_another_seed(repairer: Path, tmp_path: Path) -> None:
    command = ["translate", repairer / "en-de", repairer / "dev.en", "--no-split"]
    succeed(*command, "--out", tmp_path / "a.de", *SAMPLED, "--set", "max_tokens=60")
    assert (tmp_path / "a.de").read_bytes() == (repairer / "dev-trip.de").read_bytes()
    other = ["--set", "beam=1", "--set", "sampling={temperature: 0.5, seed: 2}"]
    succeed(*command, "--out", tmp_path / "b.de", *other)
    assert (tmp_path / "b.de").read_bytes() != (tmp_path / "a.de").read_bytes()


def test_a_repair_is_resumed_and_needs_a_run_of_one_language(
    repairer: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypothesis, out = documents_file(tmp_path / "h.de", 5, 22), tmp_path / "out.de"
    command = ["repair", repairer / "run", "--hypothesis", hypothesis]
    succeed(*command, "--out", tmp_path / "expected.de")
    with interrupted_after(monkeypatch, 2):
        assert cotext(*command, "--out", out).code == 130
    assert finished_documents(out) == 2
    succeed(*command, "--out", out)
    assert out.read_bytes() == (tmp_path / "expected.de").read_bytes()
    page, both = tmp_path / "page.html", tmp_path / "both.tsv"
    page.write_text("<p>Hund. Katze.</p>")
    both.write_text("a\tdog\thund\n")
    for message, run, path in (
        ("needs a run of one language, such as de-de", world.run, hypothesis),
        ("needs a corpus in one language", repairer / "run", page),
        ("needs a corpus in one language", repairer / "run", both),
    ):
        must_refuse(message, "repair", run, "--hypothesis", path, "--out", tmp_path / f"x{path.suffix}")
