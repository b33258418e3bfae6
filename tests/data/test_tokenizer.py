import json
import random
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.tokenizer import (
    MosesBPETokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerSettings,
    clean,
    load_tokenizer,
    reservoir_sample,
    train_tokenizer,
)
from cotext.data.tokenizer.protocol import usual_vocabulary
from tests.loops import loop_over
from tests.refusals import must_raise

ENGLISH, GERMAN = (
    words.split()
    for words in (
        "the old house was cold and we saw a river near it don't stop",
        "das alte Haus war kalt und wir sahen einen Fluß Straße über schön",
    )
)


def text(words: list[str], sentences: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(words, k=generator.randint(1, 12))) + "." for _ in range(sentences)]


SENTENCES = text(ENGLISH, 300, 1) + text(GERMAN, 300, 2)


@pytest.fixture(scope="module")
def with_bytes() -> Tokenizer:
    return train_tokenizer(SENTENCES, TokenizerSettings(byte_fallback=True))


@pytest.fixture(scope="module")
def without_bytes() -> Tokenizer:
    return train_tokenizer([*SENTENCES, "ñ" * 2500], TokenizerSettings(vocabulary=50))  # 5 KB


@pytest.fixture(scope="module")
def moses() -> Tokenizer:
    return train_tokenizer(SENTENCES, TokenizerSettings(kind="moses-bpe", vocabulary=30))


@loop_over(
    ("raw", "cleaned"),
    [
        ("  a \t b\n", "a b"),
        ("a\u2028b\u2029c\x85d\x00e", "a b c d e"),
        ("no\u00a0break\u3000wide", "no break wide"),
        ("soft\u00adhyphen\u200b\ufeff", "softhyphen"),
        ("e\u0301", "é"),
        ("Ｆｕｌｌ，width…", "Ｆｕｌｌ，width…"),
        ("broken \ufffd byte", "broken byte"),
        ("half \ud800 a character", "half a character"),
        ("sentencepiece▁mark", "sentencepiece mark"),
        ("क्\u200dष \U0001f469\u200d\U0001f4bb", "क्\u200dष \U0001f469\u200d\U0001f4bb"),
        ("", ""),
    ],
)
def test_clean_keeps_the_text_and_folds_the_rest(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


any_text = st.one_of(
    st.text(),
    st.text(alphabet="ab ▁\u0301\u0323\u200b\u2028\u0085\u00ad<>0x41ß字\U0001f389\ufffd"),
    st.lists(st.sampled_from([*ENGLISH, *GERMAN, "<unk>", "<0x41>", "</s>", "⁇"])).map(" ".join),
)


@given(any_text)
@settings(max_examples=300)
def test_every_text_comes_back_clean(with_bytes: Tokenizer, sentence: str) -> None:
    ids = with_bytes.encode(sentence)
    decoded = with_bytes.decode(ids)
    assert decoded == clean(sentence)
    assert with_bytes.decode(with_bytes.encode(decoded)) == decoded
    assert all(0 <= i < with_bytes.pieces for i in ids)
    assert with_bytes.unk not in ids


@given(st.lists(st.integers(0, 10_000)))
@settings(max_examples=300)
def test_any_ids_decode_to_one_clean_line(with_bytes: Tokenizer, numbers: list[int]) -> None:
    decoded = with_bytes.decode([number % with_bytes.vocabulary_size for number in numbers])
    assert decoded == clean(decoded)
    assert len(decoded.splitlines()) <= 1
    assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in decoded)


def test_byte_pieces_and_unknown_characters(without_bytes: Tokenizer) -> None:
    ids = without_bytes.encode("das 字 ñ war")
    assert ids.count(without_bytes.unk) == 1
    assert without_bytes.decode(ids) == "das ⁇ ñ war"
    large = train_tokenizer(SENTENCES, TokenizerSettings())
    assert large.decode(large.encode("字")) == "字"
    assert large.pieces < 32_000


@pytest.mark.parametrize("name", ["with_bytes", "without_bytes", "moses"])
def test_special_symbols_and_batches(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    special = [tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.sep]
    assert special == [tokenizer.pieces + i for i in range(4)]
    assert tokenizer.vocabulary_size == tokenizer.pieces + 4
    assert 0 <= tokenizer.unk < tokenizer.pieces
    assert tokenizer.decode(special) == ""
    ids = tokenizer.encode("das alte Haus")
    interleaved = [i for piece in ids for i in (piece, tokenizer.sep)]
    assert tokenizer.decode([tokenizer.bos, *interleaved, tokenizer.eos]) == "das alte Haus"
    sentences = [*SENTENCES[::50], "", "  we  saw Fluß "]
    assert tokenizer.encode_batch(sentences) == [tokenizer.encode(sentence) for sentence in sentences]
    assert tokenizer.encode("") == []


def test_blank_pieces_show_nothing_in_any_place(with_bytes: Tokenizer, without_bytes: Tokenizer) -> None:
    assert without_bytes.blank() == [without_bytes._processor.piece_to_id("▁")]  # type: ignore[attr-defined]
    blank = with_bytes.blank()
    assert blank == sorted(blank)
    house = with_bytes.encode("Haus")
    for piece in blank:
        assert with_bytes.decode([piece]) == ""
        assert with_bytes.decode([piece, *house, piece]) == "Haus"
    # The bytes of a character are not blank, although each alone shows nothing.
    assert not set(with_bytes.encode("字")[-3:]) & set(blank)


def test_vocabularies_too_large_and_too_small_name_the_limit() -> None:
    for vocabulary, message in (
        (3000, r"can't fill a vocabulary of 3000 pieces; the largest possible is (\d+):"),
        (20, r"20 pieces cannot contain the characters.*at least (\d+),"),
    ):
        told = must_raise(message, train_tokenizer, SENTENCES, TokenizerSettings(vocabulary=vocabulary))
        limit = int(re.search(message, told)[1])
        assert train_tokenizer(SENTENCES, TokenizerSettings(vocabulary=limit)).pieces == limit


@loop_over(
    ("sentences", "options", "message"),
    [
        ([" ", "\u2028"], TokenizerSettings(), "every sentence is empty"),
        (SENTENCES, TokenizerSettings(vocabulary=0), "at least one"),
        (SENTENCES, TokenizerSettings(kind="moses-bpe", vocabulary=9000), r"the text supports \d+ merges"),
        (["a", "b"], TokenizerSettings(kind="moses-bpe"), "no pair of characters"),
    ],
)
def test_training_refuses(sentences: list[str], options: TokenizerSettings, message: str) -> None:
    must_raise(message, train_tokenizer, sentences, options)


@pytest.mark.parametrize("kind", ["sentencepiece", "moses-bpe"])
def test_deterministic_and_silent(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = TokenizerSettings(kind=kind, vocabulary=45, sample_sentences=400, num_threads=2)
    for folder in ("first", "second"):
        train_tokenizer(iter(SENTENCES), options).save(tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(files) == 2
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert capfd.readouterr() == ("", "")


def test_sample_is_bounded_seeded_and_fair() -> None:
    sentences = [str(i) for i in range(20)]
    assert reservoir_sample(["a", "", "b"], 5, seed=1) == (["a", "b"], 2)
    assert reservoir_sample(sentences, 5, seed=1) == reservoir_sample(sentences, 5, seed=1)
    drawn = [sentence for seed in range(2000) for sentence in reservoir_sample(sentences, 5, seed)[0]]
    # 500 expected for each; the standard deviation is about 19.
    assert all(400 < drawn.count(sentence) < 600 for sentence in sentences)


def test_moses_splits_punctuation_and_joins_it_again(moses: Tokenizer) -> None:
    pieces = [moses._pieces[i] for i in moses.encode("don't stop.")]
    assert pieces[-1] == "."
    assert "".join(pieces).replace("@@", "") == "don'tstop."
    assert any(piece.endswith("@@") for piece in pieces)
    for sentence in ("don't stop.", "das alte Haus war kalt.", "we saw the river, and it was cold."):
        known = sentence.replace(",", "")
        assert moses.decode(moses.encode(known)) == known
    assert moses.decode([*moses.encode("das"), moses.unk]) == "das ⁇"
    assert moses.blank() == []


@pytest.mark.parametrize("name", ["with_bytes", "without_bytes", "moses"])
def test_whole_folders_alone_are_read(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = load_tokenizer(tmp_path / "new" / "folder")
    assert type(loaded) is type(tokenizer)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode_batch(SENTENCES) == tokenizer.encode_batch(SENTENCES)
    assert not list(tmp_path.rglob("*.partial"))
    tokenizer.save(tmp_path)
    description = tmp_path / "tokenizer.json"
    content = json.loads(description.read_text())
    model = tmp_path / content["model"]
    whole = model.read_bytes()

    model.write_bytes(whole[: len(whole) // 2])
    must_raise(r"not the model that tokenizer\.json next to it describes", load_tokenizer, tmp_path)
    model.unlink()
    must_raise(f"{content['model']}: cannot be read", load_tokenizer, tmp_path)
    model.write_bytes(whole)
    for changed, message in (
        ({**content, "version": 99}, "tokenizer format 99"),
        ({**content, "kind": "words"}, "unknown tokenizer 'words'"),
        ({**content, "kind": ["moses-bpe"]}, "unknown tokenizer"),
        ({**content, "pieces": 3}, "damaged"),
        ({**content, "special": None}, "damaged"),
        ({**content, "more": 1}, "damaged"),
        ({"a": 1}, "not the description of a tokenizer"),
        ([1], "not a JSON object"),
    ):
        description.write_text(json.dumps(changed))
        must_raise(message, load_tokenizer, tmp_path)
    description.write_text(json.dumps(content)[:40])
    must_raise("not valid JSON", load_tokenizer, tmp_path)
    description.unlink()
    must_raise(r"tokenizer\.json: cannot be read", load_tokenizer, tmp_path)


@loop_over("model", [b"", b"xxxx", b"{}", b"[1]", b"\xff"])
def test_foreign_models_are_refused(model: bytes) -> None:
    for kind in (SentencePieceTokenizer, MosesBPETokenizer):
        must_raise(r"not a (sentencepiece|moses-bpe) model", kind, model)


def test_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "subword_nmt.learn_bpe", raising=False)
    monkeypatch.setitem(sys.modules, "subword_nmt", None)
    message = r"needs subword_nmt: pip install '\.\[replication\]'"
    must_raise(message, train_tokenizer, SENTENCES, TokenizerSettings(kind="moses-bpe"))


def test_the_usual_vocabulary_grows_with_the_corpus() -> None:
    assert usual_vocabulary(60_000, 100) == 5_500
    assert usual_vocabulary(2_000_000, 100) == usual_vocabulary(10**9, 100) == 32_000
    assert usual_vocabulary(10, 100) == 1_000
    # It holds the characters of a language with thousands of them.
    assert usual_vocabulary(10, 5_000) == 10_000
