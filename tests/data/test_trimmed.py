"""Trimmed tokenizers: the same text, fewer ids, and runs that start from a run with the whole vocabulary."""

import json
import random
from pathlib import Path

import pytest
import torch
from command_line import cotext
from tiny_runs import WORDS, run_config, toy_documents, train_here

from cotext.data.formats import write_parallel
from cotext.data.tokenizer import (
    MosesBPETokenizer,
    SentencePieceTokenizer,
    TokenizerSettings,
    TrimmedTokenizer,
    clean,
    load_tokenizer,
    train_tokenizer,
    trimmed,
)
from cotext.models.checkpoint import load_run
from cotext.runtime.errors import CotextError

TEXTS = [" ".join(random.Random(i).choices([*WORDS, *WORDS.values()], k=6)) for i in range(200)]


@pytest.fixture(scope="module", params=[False, True], ids=["characters", "bytes"])
def whole(request: pytest.FixtureRequest) -> SentencePieceTokenizer:
    settings = TokenizerSettings(byte_fallback=request.param, character_coverage=1.0, num_threads=1)
    tokenizer = train_tokenizer(TEXTS, settings)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return tokenizer


@pytest.fixture
def small(whole: SentencePieceTokenizer) -> TrimmedTokenizer:
    """Of a corpus without cats."""
    texts = [text for text in TEXTS if "cat" not in text and "katze" not in text]
    return trimmed(whole, {i for ids in whole.encode_batch(texts) for i in ids})


def test_text_of_kept_pieces_is_encoded_as_before(
    whole: SentencePieceTokenizer, small: TrimmedTokenizer
) -> None:
    assert small.pieces < whole.pieces
    for text in TEXTS:
        before, after = whole.encode(text), small.encode(text)
        if "cat" not in text and "katze" not in text:
            assert small.whole_ids(after) == before
        assert small.decode(after) == whole.decode(before) == clean(text)


def test_all_other_text_is_spelled(whole: SentencePieceTokenizer, small: TrimmedTokenizer) -> None:
    removed = set(range(whole.pieces)) - set(small.kept)
    assert any(i in removed for i in whole.encode("cat"))
    assert small.decode(small.encode("the cat sees a katze")) == "the cat sees a katze"
    for text in ("ж cat", "cat 猫 🙂"):
        assert small.decode(small.encode(text)) == whole.decode(whole.encode(text))
        assert (small.unk in small.encode(text)) == (whole.unk in whole.encode(text))


def test_special_symbols_and_rows(whole: SentencePieceTokenizer, small: TrimmedTokenizer) -> None:
    assert [small.rows[i] for i in (small.pad, small.bos, small.eos, small.sep)] == [
        whole.pad,
        whole.bos,
        whole.eos,
        whole.sep,
    ]
    assert len(small.rows) == small.vocabulary_size
    assert small.rows[small.unk] == whole.unk
    assert small.decode([small.bos, *small.encode("the dog"), small.eos]) == "the dog"
    assert [small.rows[i] for i in small.blank()] == [i for i in whole.blank() if i in small.kept]


def test_saved_and_damaged(small: TrimmedTokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, TrimmedTokenizer)
    assert (loaded.kept, loaded.fingerprint) == (small.kept, small.fingerprint)
    assert {path.name for path in tmp_path.iterdir()} == {*small.files, "tokenizer.json"}
    kept = tmp_path / "kept.json"
    for content in ("[]", "[3, 2]", "{}", "[0.5]", "[0, 100000]", json.dumps(list(small.kept[1:])), "["):
        kept.write_text(content)
        with pytest.raises(CotextError):
            load_tokenizer(tmp_path)


def test_what_cannot_be_trimmed(small: TrimmedTokenizer) -> None:
    settings = TokenizerSettings(kind=MosesBPETokenizer.kind, vocabulary=20)
    for tokenizer in (train_tokenizer(TEXTS, settings), small):
        with pytest.raises(CotextError, match=f"of the kind {tokenizer.kind} cannot be trimmed"):
            trimmed(tokenizer, [1])


def test_a_run_starts_from_a_run_with_the_whole_vocabulary(tmp_path: Path) -> None:
    """Its rows are those of the pieces that are kept, and single sentences cost as much at the start."""
    documents = toy_documents(30, 1)
    without = [d for d in documents if "cat" not in " ".join(d.source)][:6]
    for name, chosen in (("all", documents), ("some", without), ("dev", without[:2])):
        write_parallel(tmp_path / f"{name}.jsonl", None, chosen, "jsonl")

    def prepared(out: str, source: str, *options: str) -> None:
        files = ["--source", str(tmp_path / f"{source}.jsonl"), "--dev-source", str(tmp_path / "dev.jsonl")]
        result = cotext(
            "prepare", *files, "--out", str(tmp_path / out), "--source-language", "en", *options,
            "--target-language", "de",
        )  # fmt: skip
        assert result.code == 0, result.err

    prepared("whole", "all", "--vocabulary", "50")
    train_here(run_config(max_updates=2, validate_every=2), tmp_path / "whole", tmp_path / "first")
    prepared("small", "some", "--tokenizer", str(tmp_path / "first"), "--trim-vocabulary")
    tokenizer = load_tokenizer(tmp_path / "small" / "tokenizer")
    assert isinstance(tokenizer, TrimmedTokenizer)
    config = run_config(max_updates=1, validate_every=1, init=str(tmp_path / "first"), learning_rate=1e-30)
    train_here(config, tmp_path / "small", tmp_path / "second")
    before, after = load_run(tmp_path / "first").model, load_run(tmp_path / "second").model
    torch.testing.assert_close(after.output_weight, before.output_weight[tokenizer.rows], rtol=0, atol=1e-20)
    account = json.loads((tmp_path / "second" / "init.json").read_text())
    assert "pieces taken, those of the trimmed tokenizer" in account["symbols"]
    # The pieces that are gone take no probability any more.
    assert 0 < account["loss"]["sentences_there"] - account["loss"]["sentences_here"] < 1


def test_a_vocabulary_of_its_own_is_not_trimmed(tmp_path: Path) -> None:
    result = cotext("prepare", "--source", "a", "--dev-source", "b", "--out", "c", "--trim-vocabulary")
    assert result.code == 2
    assert "--trim-vocabulary is for the vocabulary of a run: add --tokenizer RUN" in result.err
