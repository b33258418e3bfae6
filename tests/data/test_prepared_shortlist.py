"""`cotext prepare --shortlist`: the table beside the corpus, resumed, and in runs."""

import json
import shutil
from pathlib import Path

import pytest

from cotext.data import corpora
from cotext.data import prepare as prepare_module
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest
from cotext.data.shortlist import SHORTLIST, Shortlist, coverage, learned_shortlist
from cotext.data.store import TokenStore
from cotext.data.tokenizer import load_tokenizer
from cotext.runtime.errors import CotextError
from tests.command_line import cotext, prepare_arguments, succeed, train_arguments, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and `data` prepared from it with a shortlist; `told` is what was printed."""
    folder = tmp_path_factory.mktemp("listed")
    write_corpus(folder)
    told = succeed(*prepare_arguments(folder, folder / "data"), "--shortlist").out
    (folder / "told").write_text(told)
    return folder


def learned(data: Path) -> Shortlist:
    return learned_shortlist(TokenStore(data / "train.arrow"), load_tokenizer(data / "tokenizer"))


def same(one: Shortlist, other: Shortlist) -> bool:
    return one.candidates.tobytes() + one.frequent.tobytes() == (
        other.candidates.tobytes() + other.frequent.tobytes()
    )


def test_the_table_and_what_it_loses_come_with_the_data(corpus: Path) -> None:
    data = corpus / "data"
    tokenizer = load_tokenizer(data / "tokenizer")
    table = Shortlist.load(data / SHORTLIST, tokenizer)
    assert same(table, learned(data))
    report = json.loads((data / "report.json").read_text())
    assert SHORTLIST in report["files"]
    assert list(report["shortlist"]) == ["25", "100"]
    told = (corpus / "told").read_text()
    for count in (25, 100):
        lost = coverage(table, TokenStore(data / "dev.arrow"), count, tokenizer)
        assert report["shortlist"][str(count)]["tokens"] == lost.tokens
        assert report["shortlist"][str(count)]["sentences"] == lost.sentences
        assert (
            f"shortlist={count}: {lost.size:.0f} of 48 tokens for a sentence; of the dev references" in told
        )
    assert "made from     shortlist: True" in succeed("info", data).out
    # The same command again has nothing to do; without the table, it is another folder that is asked for.
    assert succeed(*prepare_arguments(corpus, data), "--shortlist").out == told
    succeed(*prepare_arguments(corpus, data))


def test_an_interrupted_table_is_made_when_preparing_goes_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"source": "train.en", "target": "train.de", "dev_source": "dev.en", "dev_target": "dev.de"}
    sides = {side: corpus / name for side, name in names.items()}
    request = PreparationRequest(**sides, out=tmp_path / "data", shortlist=True, workers=1)

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpora, "learned_shortlist", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(request)
    assert not (tmp_path / "data").exists()
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "encode_corpus", interrupted)  # which is done
        report = prepare(request)
    assert set(report.shortlist) == {"25", "100"}
    assert same(
        Shortlist.load(tmp_path / "data" / SHORTLIST, load_tokenizer(tmp_path / "data" / "tokenizer")),
        learned(tmp_path / "data"),
    )


def test_a_run_has_the_table_of_its_data(corpus: Path, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(corpus / "data", data)
    succeed(*train_arguments(tmp_path, run))
    assert (run / SHORTLIST).read_bytes() == (data / SHORTLIST).read_bytes()
    out = tmp_path / "out.de"
    succeed("translate", run, corpus / "test.en", "--set", "shortlist=10", "--out", out)
    assert len(out.read_text().splitlines()) == len((corpus / "test.en").read_text().splitlines())
    # One that it has already stays.
    (run / SHORTLIST).write_bytes(b"its own")
    succeed(*train_arguments(tmp_path, run))
    assert (run / SHORTLIST).read_bytes() == b"its own"
    # A damaged one is told before there is a run.
    (data / SHORTLIST).write_bytes(b"damaged")
    refused = cotext(*train_arguments(tmp_path, tmp_path / "other"))
    assert (refused.code, f"{data / SHORTLIST}: damaged" in refused.err) == (2, True)
    assert not (tmp_path / "other").exists()


def test_what_gains_nothing_by_a_table_is_refused(tmp_path: Path) -> None:
    refused = cotext("prepare-controlled", "20", "--shortlist", "--out", tmp_path / "data")
    assert (refused.code, "No such option" in refused.err) == (2, True)
    assert not (tmp_path / "data").exists()


def test_a_corpus_without_a_pair_makes_no_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "both.jsonl"
    documents = [ParallelDocument(f"{n}", ("a b c d", ""), ("", "x y z")) for n in range(3)]
    write_parallel(corpus, None, documents, "jsonl")
    with pytest.raises(CotextError, match="no sentence pair"):
        prepare(PreparationRequest(source=corpus, dev_source=corpus, out=tmp_path / "data", shortlist=True))
    assert not (tmp_path / "data").exists()
