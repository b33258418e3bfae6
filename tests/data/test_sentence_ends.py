"""Lines of several sentences: seen by punctuation, cut by a splitter, joined again."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotext.data.splitting import Splitter, join_sentences, read_abbreviations, sentence_ends
from tests.loops import loop_over
from tests.refusals import must_raise

SEVERAL = (
    'It rains. She is late. He said: "It rains." She left. Yes!',
    "Es regnet. „Sie kommt zu spät.“ Wirklich? (Ja.) Gut.",
    "Идёт дождь. Она опаздывает!",
    "下雨了。她迟到了！真的吗？他说：“下雨了。”她走了。",
    "雨だ。「彼女は遅い。」そうか？",
    "هل تمطر؟ نعم هي متأخرة",
    "बारिश हो रही है। वह देर से आई।",
    "Անձրև է գալիս։ Նա ուշանում է։",
)
ONE = (
    *("It rains.", "1. Introduction", "下雨了。", "他说：“下雨了。”", "", "...", "? ! ."),
    "Dr. Smith and Mrs. Jones met Prof. Brown.",
    "On Jan. 3rd. they met at 5 p.m. Eastern time.",
    "Am 3. Oktober kam Hr. Müller z. B. nach Berlin, ca. 10 Mio. Euro usw.",
    "The U.S. Army, J. R. R. Tolkien and e.g. Apple Inc. Limited.",
    "He asked “why?” and left ... version 2.1. 3 changes; www.example.com. no",
    "“Ja!” rief er.",
    "В 1990 г. Москва и т. д. Россия",
)
SCRIPTS = "aB1 .!?\"'”“()。！？」「雨ж…-\t\u00a0"


def test_lines_of_one_and_of_several_sentences_in_any_language() -> None:
    assert [line for line in SEVERAL if not sentence_ends(line)] == []
    assert [line for line in ONE if sentence_ends(line)] == []


def test_ends_are_counted_in_time_by_the_length_of_a_line() -> None:
    assert len(sentence_ends(" ".join(["It rains."] * 10))) == 9
    assert len(sentence_ends("下雨了。" * 10)) == 9
    for line in (  # quadratic time would be minutes
        ". " * 50_000,
        "!" * 100_000,
        "." + " " * 100_000,
        "A" * 100_000 + ". B",
        '."' * 50_000,
        "。" * 100_000,
    ):
        sentence_ends(line)


def marked() -> list[tuple[str, list[str]]]:
    """Language and sentences of every marked paragraph."""
    lines = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.partition("\t") for line in lines if not line.startswith("#")]
    return [(language, marked.split("||")) for language, _, marked in rows]


# A name that holds a full stop, and a word of a list that may end a sentence before one of no list.
WRONG = {"モーニング娘。は歌手です。有名です。", "Яблоки, груши и т.д. Мясо было дорого."}


def test_marked_paragraphs_are_cut_where_they_are_marked() -> None:
    cases = marked()
    assert len(cases) > 250
    assert len({language for language, _ in cases}) > 20
    wrong = set()
    for language, expected in cases:
        if Splitter(language).sentences("".join(expected)) != [each.strip() for each in expected]:
            wrong.add("".join(expected))
    assert wrong == WRONG


def test_what_a_user_calls_an_abbreviation_is_one(tmp_path: Path) -> None:
    text = "The Abv. Then the z. Abw. Then it rains."
    assert len(Splitter("en").sentences(text)) == 3
    path = tmp_path / "abbreviations.txt"
    path.write_text("# ours\n\nabv.\n z. Abw \n", encoding="utf-8")
    given = read_abbreviations(path)
    assert Splitter("en", given).sentences(text) == [text]
    assert Splitter("en", given).name == "rules-2:en+2-" + Splitter("en", given).name[-8:]
    assert Splitter("en", frozenset({"abv"})).name != Splitter("en", given).name
    for wrong in ("a" * 21, "..."):
        path.write_text(f"abv\n{wrong}\n")
        must_raise(r"abbreviations\.txt:2: not an abbreviation", read_abbreviations, path)


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
@given(text=st.text(max_size=80) | st.text(alphabet=SCRIPTS, max_size=200))
def test_spans_and_white_space_are_the_text(language: str, text: str) -> None:
    spans = Splitter(language).spans(text)
    assert put_together(text, spans) == text
    contents = [any(map(str.isalnum, text[start:stop])) for start, stop in spans]
    assert len(spans) <= 1 or all(contents)


def test_line_breaks_and_long_texts() -> None:
    splitter = Splitter("")
    found = splitter.sentences("A title\n\nIt rains.\r\n She\nis late.")
    assert found == ["A title\n\nIt rains.", "She\nis late."]
    assert splitter.spans(" \n\t") == splitter.spans("") == []
    words = random.Random(0).choices(["It rains.", "Dr. Smith is late.", "Is she?"], k=3000)
    assert Splitter("en").sentences(" ".join(words)) == words
    line = "the cat " * 500_000
    assert Splitter("en").sentences(line) == [line.strip()]


@loop_over(
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
