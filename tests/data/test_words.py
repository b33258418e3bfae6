"""Words of the papers' scripts: truecasing and Jieba in the moses-bpe tokenizer, and scores on such text."""

import json
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.data.tokenizer import MosesBPETokenizer, TokenizerSettings, load_tokenizer, train_tokenizer
from cotext.data.tokenizer.protocol import WordSplitter
from cotext.evaluation.metrics.interface import CountedMetric, Texts, measure_words
from cotext.evaluation.statistics.sufficient_statistics import share
from tests.command_line import must_refuse, succeed
from tests.refusals import must_raise

SENTENCES = [
    "The cat sees Mary .",
    "He saw the cat in the House of Lords .",
    "They see the house and the cat .",
    "We saw the house in the town .",
    "Maria sieht die Katze .",
] * 3


def moses(**settings: object) -> MosesBPETokenizer:
    made = train_tokenizer(SENTENCES, TokenizerSettings(kind="moses-bpe", vocabulary=40, **settings))  # type: ignore[arg-type]
    return made


def test_first_words_are_written_as_in_the_midst_and_output_begins_with_a_capital() -> None:
    truecased = moses(truecase=True)
    split = truecased.words.split
    assert split("The cat sees Mary.") == ["the", "cat", "sees", "Mary", "."]
    # A name keeps its capital; forms that are known elsewhere stay; a word never seen in the midst, too.
    assert split("Mary sees the House. The cat?") == ["Mary", "sees", "the", "House", ".", "the", "cat", "?"]
    assert split("Zebras run") == ["Zebras", "run"]
    assert split("x <a href='b'> | y") == ["x", "<", "a", "href", "=", "'", "b", "'", ">", "|", "y"]
    for text in ("The cat sees Mary.", "Mary sees the House.", ""):
        assert truecased.decode(truecased.encode(text)) == text
    assert truecased.encode("The cat") == truecased.encode("the cat")
    plain = moses()
    assert plain.words.split("The cat") == ["The", "cat"]
    assert plain.encode("The cat") != plain.encode("the cat")


def test_czech_numbers_stay_words_and_what_has_no_words_is_refused() -> None:
    join = WordSplitter("cs").join
    assert join(["V", "roce", "1990", "a", "1995", "."]) == "V roce 1990 a 1995."
    assert join(["e'", "-", "mail", "„", "x", "“", "."]) == "e' - mail „x“."
    corpora = ("--source", "a", "--dev-source", "b", "--out", "c")
    must_refuse("--truecase needs --tokenizer moses-bpe", "prepare", *corpora, "--truecase")


def test_a_tokenizer_without_truecasing_is_what_it_was(tmp_path: Path) -> None:
    plain, truecased = moses(), moses(truecase=True)
    assert plain.fingerprint != truecased.fingerprint
    plain.save(tmp_path / "plain")
    assert set(json.loads((tmp_path / "plain" / "bpe.json").read_text())) == {"language", "codes", "pieces"}
    truecased.save(tmp_path / "truecased")
    loaded = load_tokenizer(tmp_path / "truecased")
    assert loaded.encode("The cat") == truecased.encode("The cat")
    assert loaded.fingerprint == truecased.fingerprint


def test_chinese_is_split_by_jieba_and_the_rest_by_moses() -> None:
    jieba = pytest.importorskip("jieba")
    chinese = ["我来到北京清华大学。", "他在北京大学工作。", "北京很大。"]
    settings = TokenizerSettings(kind="moses-bpe", vocabulary=40, jieba=True)
    made = train_tokenizer([*SENTENCES, *chinese * 3], settings)
    assert made.words.split("我来到北京清华大学。") == ["我", "来到", "北京", "清华大学", "。"]
    assert made.words.split("The cat sees Mary.") == ["The", "cat", "sees", "Mary", "."]
    assert made.words.chinese == jieba.__version__
    content = made.words.as_dict() | {"chinese": "0.1"}
    must_raise(r"made with jieba 0\.1", type(made.words).of, content)


def test_own_metrics_read_words_and_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    own = CountedMetric(name="own", title="", needs_source=True, count=lambda *_: (1, 1), combine=share(0, 1))
    monkeypatch.setattr("cotext.evaluation.metrics.interface.metrics", lambda: {"own": own})
    texts = [Document("a", ("The cat .",))]
    [found] = measure_words(moses(), Texts({"": texts}, [texts, texts], texts), ["own"], None)[""]
    assert (found.score.value, "|nrefs:2|" in found.score.signature) == (100.0, True)


def test_scores_on_the_words_of_a_prepared_folder(tmp_path: Path) -> None:
    moses(truecase=True).save(tmp_path / "data" / "tokenizer")
    texts = {
        "ours": ("the cat sees Mary.", "They see the house."),
        "right": ("The cat sees Mary.", "They see it."),
    }
    for name, sentences in texts.items():
        write_documents(tmp_path / f"{name}.en", [Document("a", sentences)], "text")
    files = ("--hypothesis", tmp_path / "ours.en", "--reference", tmp_path / "right.en", "--json")
    asked = [w for p in ("s-bleu-tok", "s-bleu") for w in ("--protocol", p)]

    def scores(*more: str | Path) -> dict[str, dict[str, object]]:
        [system] = json.loads(succeed("evaluate", *files, *asked, *more).out)["systems"].values()
        found: dict[str, dict[str, object]] = system["scores"]
        return found

    plain, truecased = scores(), scores("--words", tmp_path / "data")
    for name, form in (("s-bleu-tok", "tokenised"), ("s-bleu", "joined")):
        assert float(str(truecased[name]["value"])) > float(str(plain[name]["value"]))
        assert f"|words:truecased-{form}-" in str(truecased[name]["signature"])
    assert "words:" not in str(plain["s-bleu"]["signature"])
    settings = TokenizerSettings(vocabulary=30, byte_fallback=False, num_threads=1)
    train_tokenizer(SENTENCES, settings).save(tmp_path / "other" / "tokenizer")
    must_refuse("and this one is sentencepiece", "evaluate", *files, "--words", tmp_path / "other")
