"""Another corpus prepared with the tokenizer of a run, so that training goes on from that run."""

import json
from pathlib import Path

import pytest

from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.store import TokenStore
from cotext.data.tokenizer import load_tokenizer
from tests.command_line import World, cotext, must_refuse, prepare_arguments, succeed
from tests.tiny_runs import toy_documents


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with a letter that the tokenizer of the world does not know."""
    folder = tmp_path_factory.mktemp("other")
    for name, count, seed in (("train", 12, 70), ("dev", 3, 71)):
        documents = [
            ParallelDocument(d.id, (*d.source, "the šálek"), (*d.target, "die tasse"))
            for d in toy_documents(count, seed)
        ]
        write_parallel(folder / f"{name}.en", folder / f"{name}.de", documents, "text")
    return folder


@pytest.mark.parametrize("of", ["run", "data"])
def test_a_corpus_prepared_with_a_given_tokenizer(world: World, other: Path, tmp_path: Path, of: str) -> None:
    data = tmp_path / "data"
    shown = succeed(*prepare_arguments(other, data, world.folder / of)).out
    known = load_tokenizer(world.run / "tokenizer")
    assert load_tokenizer(data / "tokenizer").fingerprint == known.fingerprint
    assert TokenStore(data / "train.arrow").totals.documents == 12
    report = json.loads((data / "report.json").read_text())
    assert report["tokenizer"] == {
        "kind": "sentencepiece",
        "taken": known.fingerprint,
        "pieces": known.pieces,
        "fingerprint": known.fingerprint,
    }
    assert report["command"]["tokenizer"] == str(world.folder / of)
    assert report["splits"]["train"]["unknown_token_rate"][0] > 0
    assert "the tokenizer was trained on other data" in shown


def test_tokenizers_that_are_none(world: World, other: Path, tmp_path: Path) -> None:
    for tokenizer, more, words in (
        (tmp_path, (), ["not a run or data folder", "sentencepiece-bpe"]),
        ("sentencepice", (), ["not a run or data folder"]),
        (world.run, ("--vocabulary", "40"), ["leave out --vocabulary"]),
    ):
        refused = cotext(*prepare_arguments(other, tmp_path / "data", tokenizer), *more)
        assert refused.code == 2
        assert all(word in refused.err for word in words), refused.err
        assert not (tmp_path / "data").exists()
    (tmp_path / "broken" / "tokenizer").mkdir(parents=True)
    must_refuse("tokenizer.json", *prepare_arguments(other, tmp_path / "data", tmp_path / "broken"))
