"""Lines of several sentences: seen by punctuation, cut by a splitter, joined again."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotext.data import splitting
from cotext.data.formats import read_documents
from cotext.data.sentence_ends import sentence_ends
from cotext.data.splitting import CHUNK_CHARACTERS, LANGUAGES, Splitter, join_sentences, sentences
from cotext.runtime.errors import CotextError

SEVERAL = {
    "en": "It rains. She is late. Is she? Yes!",
    "de": "Es regnet. „Sie kommt zu spät.“ Wirklich? (Ja.) Gut.",
    "quotes": 'He said: "It rains." She left.',
    "ru": "Идёт дождь. Она опаздывает!",
    "zh": "下雨了。她迟到了！真的吗？",
    "zh quotes": "他说：“下雨了。”她走了。",
    "ja": "雨だ。「彼女は遅い。」そうか？",
    "ar": "هل تمطر؟ نعم هي متأخرة",
    "hi": "बारिश हो रही है। वह देर से आई।",
    "hy": "Անձրև է գալիս։ Նա ուշանում է։",
}
ONE = (
    "It rains.",
    "Dr. Smith and Mrs. Jones met Prof. Brown.",
    "On Jan. 3rd. they met at 5 p.m. Eastern time.",
    "Am 3. Oktober kam Hr. Müller z. B. nach Berlin, ca. 10 Mio. Euro usw.",
    "The U.S. Army, J. R. R. Tolkien and e.g. Apple Inc. Limited.",
    "She left... Then nothing",
    "He asked “why?” and left.",
    "Version 2.1. 3 changes.",
    "“Ja!” rief er.",
    "В 1990 г. Москва и т. д. Россия",
    "1. Introduction",
    "下雨了。",
    "他说：“下雨了。”",
    "www.example.com. no",
    "",
    "...",
    "? ! .",
)
SCRIPTS = "aB1 .!?\"'”“()。！？」「雨ж…-\t\u00a0"


@pytest.mark.parametrize("name", SEVERAL)
def test_a_line_of_several_sentences_is_seen(name: str) -> None:
    assert sentence_ends(SEVERAL[name])


@pytest.mark.parametrize("line", ONE)
def test_a_line_of_one_sentence_is_left_alone(line: str) -> None:
    assert sentence_ends(line) == []


def test_ten_sentences_have_nine_ends() -> None:
    assert len(sentence_ends(" ".join(["It rains."] * 10))) == 9
    assert len(sentence_ends("下雨了。" * 10)) == 9


def test_it_takes_time_by_the_length_of_a_line() -> None:
    for line in (
        ". " * 200_000,
        "!" * 400_000,
        "." + " " * 400_000,
        "A" * 400_000 + ". B",
        '."' * 200_000,
        "。" * 400_000,
    ):
        sentence_ends(line)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ted/test.en", 0.028),
        ("europarl/test.en", 0.028),
        ("europarl/test.de", 0.07),
    ],
)
def test_rates_on_real_text(shared_data: Path, name: str, expected: float) -> None:
    lines = [s for d in read_documents(shared_data / "maruf" / name, "d-lines") for s in d.sentences]
    assert sum(bool(sentence_ends(line)) for line in lines) / len(lines) == pytest.approx(expected, abs=0.002)
    # Two sentences in succession, neither of which looks like several, on one line.
    single = [line for line in lines if line.endswith((".", "!", "?")) and not sentence_ends(line)]
    pairs = [f"{a} {b}" for a, b in zip(single[::2], single[1::2], strict=False)]
    assert sum(bool(sentence_ends(pair)) for pair in pairs) / len(pairs) > 0.85


EXPECTED = [
    ("en", 'Dr. Smith left on Jan. 3rd. "It rains." She is late.', 3),
    ("de", "Am 3. Oktober kam Hr. Müller. „Es regnet.“ Die Fa. Meier liefert ca. 5 kg.", 3),
    ("zh", "他说：“下雨了。”她走了。真的吗？", 3),
    ("ja", "「雨だ。」と彼は言った。彼女は行った。", 2),
    ("ru", "В 1990 г. он уехал. Она осталась.", 2),
]


@pytest.mark.parametrize(("language", "line", "count"), EXPECTED)
def test_the_splitter_cuts_where_sentences_end(language: str, line: str, count: int) -> None:
    pytest.importorskip("pysbd")
    found = Splitter(language).sentences(line)
    assert len(found) == count, found
    assert not any(sentence[0] in "”»」)" for sentence in found[1:])


def test_a_language_without_rules_is_cut_by_punctuation() -> None:
    for language in ("", "tr", "sv"):
        splitter = Splitter(language)
        assert splitter.name == "punctuation"
        line = "Yağmur yağıyor. O geç kaldı. (Evet!) Peki."
        assert splitter.sentences(line) == ["Yağmur yağıyor.", "O geç kaldı.", "(Evet!)", "Peki."]


def put_together(text: str, spans: list[tuple[int, int]]) -> str:
    """Spans and the white space between them, which is checked to be that."""
    whole, at = "", 0
    for start, stop in [*spans, (len(text), len(text))]:
        assert at <= start <= stop
        assert not text[at:start].strip()
        whole += text[at:start] + text[start:stop]
        at = stop
    assert all(text[start:stop].strip() == text[start:stop] != "" for start, stop in spans)
    return whole


@pytest.mark.parametrize("language", ["", "en", "de", "zh", "ja", "ar", "th"])
@given(text=st.text(max_size=80) | st.text(alphabet=SCRIPTS, max_size=200), newlines=st.booleans())
def test_spans_and_white_space_are_the_text(language: str, text: str, newlines: bool) -> None:
    pytest.importorskip("pysbd")
    spans = sentences(text, language, newlines=newlines)
    assert put_together(text, spans) == text
    if not newlines:
        contents = [any(map(str.isalnum, text[start:stop])) for start, stop in spans]
        assert len(spans) <= 1 or all(contents)


def test_a_line_break_ends_a_sentence_if_asked() -> None:
    text = "A title\n\nIt rains.\r\n She\nis late."
    assert [text[a:b] for a, b in sentences(text, "", newlines=True)] == [
        "A title",
        "It rains.",
        "She",
        "is late.",
    ]
    assert [text[a:b] for a, b in sentences(text, "")] == ["A title\n\nIt rains.", "She\nis late."]
    assert sentences(" \n\t", "") == sentences("", "") == []


def test_a_long_line_is_cut_in_parts() -> None:
    """The package takes time by the square of the length."""
    pytest.importorskip("pysbd")
    words = random.Random(0).choices(["It rains.", "Dr. Smith is late.", "Is she?"], k=3000)
    assert Splitter("en").sentences(" ".join(words)) == words
    assert len(" ".join(words)) > 20 * CHUNK_CHARACTERS


def test_an_endless_line_is_left_whole() -> None:
    pytest.importorskip("pysbd")
    line = "the cat " * 500_000
    assert Splitter("en").sentences(line) == [line.strip()]
    prose = "It rains. " * 20_000
    assert len(Splitter("en").sentences(prose)) == 20_000


def test_what_the_package_knows_is_what_is_told_of_it() -> None:
    codes = pytest.importorskip("pysbd.languages").LANGUAGE_CODES
    assert set(codes) == LANGUAGES


def test_a_package_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(splitting, "import_module", none)
    with pytest.raises(CotextError, match=r"pip install 'cotext\[split\]'"):
        Splitter("en")
    Splitter("tr")


class Odd:
    """A package that makes something else of a text, or breaks on it."""

    def segment(self, text: str) -> list[str]:
        if "x" in text:
            raise IndexError
        return ["It rained.", "She is late."]


def test_a_package_that_fails_costs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    splitter = Splitter("")
    monkeypatch.setattr(splitter, "_segmenter", Odd())
    for line in ("It rains. She is late.", "x. It rains."):
        assert splitter.sentences(line) == [line]


@pytest.mark.parametrize(
    ("language", "sentences", "line"),
    [
        ("de", ["Es regnet.", " Sie kommt. "], "Es regnet. Sie kommt."),
        ("zh", ["下雨了。", "她走了。"], "下雨了。她走了。"),
        ("ja", ["雨だ。", "OK?", "そうか。"], "雨だ。OK?そうか。"),
        ("zh", ["Windows 11.", "Linux."], "Windows 11. Linux."),
        ("ko", ["비가 온다.", "그녀는 늦었다."], "비가 온다. 그녀는 늦었다."),
        ("th", ["ฝนตก", "เธอมาสาย"], "ฝนตก เธอมาสาย"),
        ("", ["下雨了。", "她走了。"], "下雨了。她走了。"),
        ("", ["Es regnet.", "Sie kommt."], "Es regnet. Sie kommt."),
        ("de", ["", "Es regnet.", ""], "Es regnet."),
        ("de", [], ""),
    ],
)
def test_sentences_are_joined_as_the_language_writes(language: str, sentences: list[str], line: str) -> None:
    assert join_sentences(sentences, language) == line
