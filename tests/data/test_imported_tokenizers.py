"""Tokenizers of pretrained models: the ids of transformers, and no text that becomes a symbol."""

import json
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
    ImportedTokenizer,
    MarianTokenizer,
    choose_languages,
    language_symbols,
    load_tokenizer,
)
from tests.loops import loop_over
from tests.pretrained_folders import (
    ENGLISH,
    GERMAN,
    NLLB_LANGUAGES,
    TAGS,
    m2m100_files,
    marian_files,
    pieces,
    sentences,
    spm,
    vocabulary,
    written,
)
from tests.refusals import must_raise

SENTENCES = sentences(ENGLISH, 10, 5)
HARD = [
    *SENTENCES,
    *sentences(GERMAN, 10, 6),
    "",
    " double  spaces",
    "the\told\nhouse\r\nwas",
    "a\x00b\x07c\x85d",
    "cafe\u0301 café nai\u0308ve ﬁne １２ Ｆｕｌｌ",
    "soft\u00adhyphen zero\u200bwidth \ufeffmark",
    "\U0001f389\U0001f389 the \U0001f469\u200d\U0001f4bb house",
    "字字 x the 字old",
    "the\u2028old\u2029house\u00a0was",
    "▁the ▁▁old",
    "the >>deu<< house",
    "</s> the <unk> old <pad> <s> <mask>",
    "deu_Latn the __de__ de_DE",
    "<0x41> ⁇ \ufffd.",
]


def as_rows(tokenizer: ImportedTokenizer, ids: list[int]) -> list[int]:
    """Target ids as the rows of the pretrained model."""
    return [tokenizer.rows[i] for i in ids]


def marian(files: dict[str, bytes], **more: Any) -> MarianTokenizer:
    named = (files["source.spm"], files["target.spm"], files["vocab.json"], files.get("target_vocab.json"))
    return MarianTokenizer.from_files(*named, **more)


@pytest.fixture(scope="module")
def transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


def opened(kind: Any, folder: Path, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind.from_pretrained(folder, local_files_only=True, **more)


@pytest.mark.parametrize("tags", [(), TAGS], ids=["one target", "tags"])
def test_ids_of_marian(transformers: Any, tmp_path: Path, tags: tuple[str, ...]) -> None:
    files = marian_files(tags)
    theirs = opened(transformers.MarianTokenizer, written(tmp_path, files))
    ours = marian(files)
    for text in HARD:
        for side, as_text in (("source", "text"), ("target", "text_target")):
            # Whole, symbols that are written in the text would be taken for them.
            want = theirs(**{as_text: text}, split_special_tokens=True).input_ids
            found = ours.encode(text, side)  # type: ignore[arg-type]
            assert [*as_rows(ours, found), theirs.eos_token_id] == want, text
            if ours.unk not in found:
                assert ours.decode(found) == " ".join(theirs.decode(want, skip_special_tokens=True).split())
    assert ours.encode_batch(HARD, "target") == [ours.encode(text, "target") for text in HARD]


def test_ids_of_marian_with_a_vocabulary_for_each_side(transformers: Any, tmp_path: Path) -> None:
    for swapped in (False, True):
        files = marian_files(TAGS, separate=True)
        if swapped:  # so that once the source, once the target has more pieces
            files["vocab.json"], files["target_vocab.json"] = files["target_vocab.json"], files["vocab.json"]
            files["source.spm"], files["target.spm"] = files["target.spm"], files["source.spm"]
        theirs = opened(transformers.MarianTokenizer, written(tmp_path / str(swapped), files))
        ours = marian(files)
        special = {ours.pad, ours.bos, ours.eos, ours.sep}
        assert special == set(range(ours.pieces, ours.pieces + 4))
        assert ours.source_vocabulary_size == max(len(ours.source_rows), ours.pieces) + 4
        for text in HARD:
            want = theirs(text, split_special_tokens=True).input_ids[:-1]
            found = ours.encode(text, "source")
            assert not special & {*found}
            assert [ours.source_rows[i if i < ours.pieces else i - 4] for i in found] == want
            if text in SENTENCES and ours.unk not in found:
                assert ours.decode(found, "source") == unicodedata.normalize("NFKC", text)
            want = theirs(text_target=text, split_special_tokens=True).input_ids
            found = ours.encode(text, "target")
            assert as_rows(ours, found) == want[:-1]
            # Theirs takes the number of `<pad>` in the source vocabulary for it in the target's, too.
            if ours.unk not in found and theirs.pad_token_id not in want:
                assert ours.decode(found) == " ".join(theirs.decode(want[:-1]).split())


def test_a_tag_in_a_text_is_text_and_that_of_the_language_a_symbol(transformers: Any, tmp_path: Path) -> None:
    files = marian_files(TAGS)
    theirs = opened(transformers.MarianTokenizer, written(tmp_path, files))
    ours = marian(files, target_language="deu")
    assert (len(ours.source_prefix), ours.target_prefix) == (1, ())
    whole = [*ours.source_prefix, *ours.encode("the old house")]
    want = theirs(">>deu<< the old house").input_ids[:-1]
    assert as_rows(ours, whole) == want
    assert ours.decode(whole) == "the old house"
    # The one place where the two differ: there a text can choose the language, here only a setting can.
    assert as_rows(ours, ours.encode(">>deu<< the old house")) != want


def nllb(**more: Any) -> FairseqTokenizer:
    model = spm("both", "bpe")
    first = len(pieces(model)) + 4
    rows = {name: first + i for i, name in enumerate(NLLB_LANGUAGES)}
    return FairseqTokenizer.from_files(model, languages=rows, rows=first + 5, **more)


def test_ids_of_m2m100(transformers: Any, tmp_path: Path) -> None:
    files = m2m100_files()
    theirs = opened(transformers.M2M100Tokenizer, written(tmp_path, files), src_lang="en", tgt_lang="de")
    ours = FairseqTokenizer.from_files(
        files["sentencepiece.bpe.model"],
        vocabulary=files["vocab.json"],
        languages=M2M100_LANGUAGES,
        rows=len(theirs.encoder) + 108,
        source_language="en",
        target_language="de",
    )
    assert ours.vocabulary_size == len(theirs.encoder) + 108 - 2 + 4
    for text in HARD:
        found, eos = ours.encode(text), theirs.eos_token_id
        want = theirs(text, split_special_tokens=True).input_ids
        assert [*as_rows(ours, [*ours.source_prefix, *found]), eos] == want, text
        want = theirs(text_target=text, split_special_tokens=True).input_ids
        assert [*as_rows(ours, [*ours.target_prefix, *found]), eos] == want
        if ours.unk not in found:
            assert ours.decode(found) == " ".join(theirs.decode(want[1:], skip_special_tokens=True).split())


@pytest.mark.parametrize("name", ["NllbTokenizer", "MBart50Tokenizer"])
def test_ids_of_nllb_and_mbart(transformers: Any, tmp_path: Path, name: str) -> None:
    model = spm("both", "bpe" if name == "NllbTokenizer" else "unigram")
    theirs = opened(getattr(transformers, name), written(tmp_path, {"sentencepiece.bpe.model": model}))
    ours = nllb(source_language="eng_Latn", target_language="deu_Latn")
    if name == "MBart50Tokenizer":
        chosen = {"source_language": "en_XX", "target_language": "de"}
        rows = theirs.mask_token_id + 1
        ours = FairseqTokenizer.from_files(model, languages=MBART50_LANGUAGES, rows=rows, **chosen)
        expected = [theirs.convert_tokens_to_ids(symbol) for symbol in ("en_XX", "de_DE")]
        assert as_rows(ours, [*ours.source_prefix, *ours.target_prefix]) == expected
        assert len(ours.rows) == len(theirs) - 2
    symbols = {*theirs.all_special_tokens, *MBART50_LANGUAGES}
    for text in HARD:
        # White space at the end becomes a piece there and none in sentencepiece, which trained the models;
        # symbols in the text cannot be told to be text.
        if text == text.strip() and not any(symbol in text for symbol in symbols):
            want = theirs(text, add_special_tokens=False).input_ids
            assert as_rows(ours, ours.encode(text)) == want, text
            if ours.unk not in ours.encode(text):
                assert ours.decode(ours.encode(text)) == theirs.decode(want, skip_special_tokens=True)


ANY_TEXT = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [*ENGLISH, *GERMAN, *TAGS, *NLLB_LANGUAGES, "</s>", "<pad>", "<unk>", "__de__", "\ud800"]
        )
    ).map(" ".join),
    st.sampled_from([*TAGS, *NLLB_LANGUAGES, "<s>", "</s>", "<mask>"]),
)


@given(ANY_TEXT)
@settings(max_examples=150)
def test_no_text_becomes_a_symbol(text: str) -> None:
    for tokenizer in MADE:
        for side in ("source", "target"):
            ids = tokenizer.encode(text, side)  # type: ignore[arg-type]
            special = range(tokenizer.pieces, tokenizer.vocabulary_size)
            assert not {*tokenizer.unwritten, *special} & {*ids}
        shown = tokenizer.decode(tokenizer.encode(text, "target"))
        assert shown == " ".join(shown.split(" "))
        assert len(shown.splitlines()) <= 1


MADE = (marian(marian_files(TAGS, byte_fallback=True)), nllb())


@pytest.mark.parametrize("tokenizer", MADE, ids=["marian", "fairseq"])
def test_blank_pieces_and_symbols_show_nothing(tokenizer: ImportedTokenizer) -> None:
    blank = tokenizer.blank()
    assert blank == sorted(blank)
    assert {*tokenizer.unwritten} <= {*blank}
    whole = tokenizer.encode("das alte Haus", side="target")
    for i in blank:
        assert not tokenizer.decode([i])
        assert tokenizer.decode([i, *whole]) == "das alte Haus"
    assert tokenizer.unk not in blank
    assert tokenizer.decode([tokenizer.bos, *whole, tokenizer.sep, tokenizer.eos]) == "das alte Haus"
    assert tokenizer.decode([tokenizer.unk]) == "⁇"
    if isinstance(tokenizer, MarianTokenizer):  # the bytes of a character are not blank
        ids = tokenizer.encode("字", side="target")
        assert tokenizer.decode(ids) == "字"
        assert not {*ids[-3:]} & {*blank}


def test_languages_are_chosen_by_name_or_by_what_is_enough_of_it() -> None:
    tokenizer = nllb()
    assert (tokenizer.source_prefix, tokenizer.target_prefix) == ((), ())
    chosen = choose_languages(tokenizer, "eng", "zho_Hant")
    assert (chosen.chosen.source, chosen.chosen.target) == ("eng_Latn", "zho_Hant")
    assert (len(chosen.source_prefix), len(chosen.target_prefix)) == (1, 1)
    assert chosen.fingerprint == tokenizer.fingerprint
    assert choose_languages(chosen, "", "deu").source_prefix == chosen.source_prefix
    for chosen, languages, message in (
        (tokenizer, ("", "zho"), r"--target-language 'zho'.*there are: zho_Hans, zho_Hant$"),
        (tokenizer, ("xx", ""), r"'xx'.*: deu_Latn, eng_Latn, zho_Hans, zho_Hant$"),
        (marian(marian_files(TAGS)), ("en", "nld"), r"'nld'.*: deu, fra, cmn_Hans, cmn_Hant$"),
    ):
        must_raise(message, choose_languages, chosen, *languages)
    must_raise("there are: none", marian, marian_files(), target_language="deu")


@pytest.mark.parametrize("kind", ["tags", "separate", "fairseq"])
def test_storage(tmp_path: Path, kind: str) -> None:
    tokenizer: ImportedTokenizer = nllb(source_language="eng", target_language="deu")
    if kind != "fairseq":
        tags = kind == "tags"
        tokenizer = marian(marian_files(TAGS * tags, separate=not tags), target_language="deu" * tags)
    tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*tokenizer.files, "tokenizer.json"])
    again = load_tokenizer(tmp_path)
    assert isinstance(again, type(tokenizer))
    for side in ("source", "target"):
        assert again.encode_batch(HARD, side) == tokenizer.encode_batch(HARD, side)  # type: ignore[arg-type]
    names = ("fingerprint", "source_prefix", "target_prefix", "rows", "source_rows", "unwritten", "chosen")
    for name in names:
        assert getattr(again, name) == getattr(tokenizer, name)
    description = (tmp_path / "tokenizer.json").read_bytes()
    for name in tokenizer.files:  # damaged, cut off, of another model, missing
        content = (tmp_path / name).read_bytes()
        half = len(content) // 2
        flipped = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
        for damaged in (flipped, b""):
            (tmp_path / name).write_bytes(damaged)
            must_raise("not the model that tokenizer", load_tokenizer, tmp_path)
        (tmp_path / name).unlink()
        must_raise(name, load_tokenizer, tmp_path)
        (tmp_path / name).write_bytes(content)
    told = json.loads(description)
    for key, value, message in (
        ("model", [*tokenizer.files, "../../secret"], "the list of files does not fit"),
        ("model", list(tokenizer.files)[1:], "the list of files does not fit"),
        ("model", "source.spm", "the list of files does not fit"),
        ("languages", {"source": "", "target": "xxx"}, "'xxx': not among the languages"),
        ("languages", {"source": 1, "target": []}, "names no languages"),
        ("languages", None, "names no languages"),
        ("languages", {"source": "", "target": "", "more": ""}, "does not describe the model next to it"),
        ("pieces", 7, "does not describe the model next to it"),
        ("kind", "sentencepiece", "sentencepiece.model"),
        ("kind", ["marian"], "unknown tokenizer"),
        ("fingerprint", "0" * 64, "not the model"),
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**told, key: value}))
        must_raise(message, load_tokenizer, tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(description)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


VOCABULARY = vocabulary(spm("source"))


@loop_over(
    ("change", "message"),
    [
        ({"source.spm": b""}, "source.spm: not a sentencepiece model: it is empty"),
        ({"target.spm": spm("target")[:-40]}, "target.spm: not a sentencepiece model"),
        ({"vocab.json": b"\xff\xfe"}, "vocab.json: not a text in UTF-8"),
        ({"vocab.json": VOCABULARY[:-1]}, "vocab.json: not valid JSON"),
        ({"vocab.json": b"{}"}, "</s> is missing"),
        ({"vocab.json": b"[]"}, "vocab.json: damaged: not a JSON object"),
        ({"vocab.json": b'{"</s>": 0, "<unk>": 2}'}, "piece '<unk>' has the number 2"),
        ({"vocab.json": b'{"\\ud800": 0}'}, "lone surrogate"),
        ({"vocab.json": b'{"</s>": 0, "a": 1}'}, "<unk> is missing"),
        ({"target_vocab.json": b'{"</s>": 0, "a": 1, "<unk>": 2}'}, "numbers for the unknown piece"),
    ],
)
def test_what_is_no_tokenizer_of_marian_is_refused(change: dict[str, bytes], message: str) -> None:
    must_raise(message, marian, {**marian_files(TAGS), **change})


def test_rows_symbols_and_size_must_fit_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    files = marian_files()
    rows = len(json.loads(files["vocab.json"]))
    must_raise("the files belong to different models", marian, files, rows=rows - 1)
    must_raise("the files belong to different models", marian, files, rows=10**9)
    longer = marian(files, rows=rows + 5)
    assert len(longer.rows) == rows + 5 - 2
    assert len(longer.unwritten) == 5
    assert longer.encode_batch(HARD) == marian(files).encode_batch(HARD)
    model = spm("both", "bpe")
    for languages in ({}, [], {"deu_Latn": 5}, {"deu_Latn": -1}, {"deu_Latn": 10**9}, {"<unk>": 300}):
        must_raise("language symbols|conflicts with", FairseqTokenizer.from_files, model, languages=languages)
    message = "its first pieces are not <unk>, <s> and </s>"
    must_raise(message, FairseqTokenizer.from_files, _headless(), languages=["deu_Latn"])
    must_raise("not a sentencepiece model", FairseqTokenizer.from_files, model[:-9], languages=["deu_Latn"])
    monkeypatch.setattr("cotext.data.tokenizer.imported.MAX_OBJECT_BYTES", len(VOCABULARY) - 1)
    must_raise(r"vocab\.json: has more than", marian, {**marian_files(), "vocab.json": VOCABULARY})


def _headless() -> bytes:
    """A model without begin and end symbols."""
    from cotext.data.tokenizer import TokenizerSettings, train_tokenizer

    tokenizer = train_tokenizer(
        sentences(ENGLISH, 50, 1), TokenizerSettings(vocabulary=40, byte_fallback=False)
    )
    [model] = tokenizer._files.values()
    return model


def test_symbols_of_languages_are_found_in_the_files_beside() -> None:
    numbered = b'{"added_tokens": [{"id": 9, "content": "deu_Latn"}, {"id": 1, "content": "<pad>"}]}'
    by_row = b'{"added_tokens_decoder": {"7": {"content": "__de__"}, "8": {"content": "__ast__"}, "%s": 1}}'
    symbols = b'{"additional_special_tokens": ["ar_AR", {"content": "de_DE"}, "<extra>"]}'
    listed = {"special_tokens_map.json": symbols}
    for files, expected in (
        ({"tokenizer.json": numbered}, {"deu_Latn": 9}),
        ({"tokenizer_config.json": by_row % (b"9" * 5000), **listed}, {"__de__": 7, "__ast__": 8}),
        (listed, ["ar_AR", "de_DE"]),
        ({}, []),
    ):
        assert language_symbols(files) == expected
    for hostile in (b"[1]", b"{", b"null"):
        must_raise(r"special_tokens_map\.json", language_symbols, {"special_tokens_map.json": hostile})
    odd = b'{"additional_special_tokens": {"a": 1}, "added_tokens": 3}'
    assert language_symbols({"special_tokens_map.json": odd, "tokenizer.json": odd}) == []
