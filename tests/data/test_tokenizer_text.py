"""A tokenizer that is trained on other text than the corpus: `prepare --tokenizer-text`."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotext.data.prepare import prepare
from cotext.data.prepared import Report
from cotext.data.requests import PreparationRequest
from cotext.data.store import TokenStore
from cotext.data.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer
from cotext.runtime.files import checksum
from tests.command_line import must_refuse, prepare_arguments, succeed, write_corpus
from tests.refusals import must_raise

ENGLISH = [f"the committee adopted resolution {number} without amendment ." for number in range(40)]
GERMAN = [f"der Ausschuss nahm Entschließung {number} ohne Änderung an ." for number in range(40)]
SETTINGS = TokenizerSettings(kind="sentencepiece-bpe", vocabulary=120)
Texts = tuple[Path, Path]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    """A line a sentence, with empty ones as they come; and documents with both sides."""
    (tmp_path / "wmt.en").write_text("\n\n\n".join(ENGLISH) + "\n")
    rows = [{"id": str(n), "source": [ENGLISH[n]], "target": [line]} for n, line in enumerate(GERMAN)]
    (tmp_path / "wmt.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path / "wmt.en", tmp_path / "wmt.jsonl"


def run(corpus: Path, out: Path, texts: tuple[Path, ...], **options: Any) -> Report:
    names = {"source": "train.en", "target": "train.de", "dev_source": "dev.en", "dev_target": "dev.de"}
    sides = {side: corpus / name for side, name in names.items()}
    progress = options.pop("on_documents", lambda stage, documents: None)
    more = {"tokenizer": SETTINGS.kind, "vocabulary": SETTINGS.vocabulary, "workers": 1, **options}
    return prepare(PreparationRequest(**sides, out=out, tokenizer_text=texts, **more), progress)


def test_the_tokenizer_is_that_of_the_text(corpus: Path, texts: Texts, tmp_path: Path) -> None:
    report = run(corpus, tmp_path / "out", texts)
    pairs = [side for pair in zip(ENGLISH, GERMAN, strict=True) for side in pair]
    assert report.tokenizer["fingerprint"] == train_tokenizer([*ENGLISH, *pairs], SETTINGS).fingerprint
    assert report.tokenizer["text"] == {str(path): checksum(path) for path in texts}
    assert report.command["tokenizer_text"] == [str(path) for path in texts]
    assert f"the tokenizer was trained on {texts[0]}, {texts[1]} (--tokenizer-text)" in report.notes
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer")
    assert len(tokenizer.encode("resolution")) < len(tokenizer.encode("noituloser"))
    assert report.splits["train"].documents == len(TokenStore(tmp_path / "out" / "train.arrow")) > 0
    assert run(corpus, tmp_path / "other", ()).tokenizer["fingerprint"] != report.tokenizer["fingerprint"]


def test_the_corpus_is_checked_and_other_text_told(corpus: Path, texts: Texts, tmp_path: Path) -> None:
    message = r"train\.\w\w:1: .* more than the limit of 3"
    must_raise(message, run, corpus, tmp_path / "out", texts, max_characters=3)
    assert not (tmp_path / "out").exists()
    run(corpus, tmp_path / "out", texts)
    texts[0].write_text(texts[0].read_text() + "one more .\n")
    must_raise("exists and is not empty", run, corpus, tmp_path / "out", texts)


def test_the_command_and_what_it_is_refused_with(corpus: Path, texts: Texts, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run(corpus, other, ())
    text = f"--tokenizer-text={texts[0]}"
    asked = prepare_arguments(corpus, tmp_path / "out")
    trained = [each for each in asked if each not in ("--vocabulary", "48")]
    must_refuse("is already trained", *trained, "--tokenizer", other, text)
    must_refuse("No such option", "prepare-controlled", "9", "--out", tmp_path / "out", text)
    must_refuse(str(tmp_path / "none"), *asked, f"--tokenizer-text={tmp_path / 'none'}")
    assert not (tmp_path / "out").exists()
    told = succeed(*asked, *(f"--tokenizer-text={path}" for path in texts))
    assert "(--tokenizer-text)" in told.out
