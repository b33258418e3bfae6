"""Numbered sentences: what is taken for an answer, and what is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.language_models.config import (
    TEMPLATE,
    Endpoint,
    Piece,
    Prompt,
    UnusableError,
    numbered,
    read_numbered,
    read_plain,
    without_thoughts,
)
from cotext.language_models.translator import DAMAGED, ECHO, EMPTY, LONG, REFUSAL, is_echo, moved, suspicion
from tests.loops import loop_over

GOOD = "[1] Eins.\n[2] Zwei."


@loop_over(
    ("answer", "left_out"),
    [
        (GOOD, []),
        ("\n[1]   Eins. \n\n  [2]\tZwei.  \n\n", []),
        ("[1]: Eins.\r\n[2]: Zwei.\r\n", []),
        (f"```text\n{GOOD}\n```\n", ["a fence"]),
        (f"Here is the translation:\n\n{GOOD}", ["an introduction"]),
        (f"{GOOD}\n\nNote: [2] may be “Deux”.", ["a remark"]),
        (f"Sure!\n```\n{GOOD}\n```\nDone.", ["an introduction", "a fence", "a remark"]),
    ],
)
def test_what_is_an_answer(answer: str, left_out: list[str]) -> None:
    assert read_numbered(answer, 2) == (["Eins.", "Zwei."], left_out)


@loop_over(
    ("answer", "problem"),
    [
        ("", "has no numbered lines"),
        ("I'm sorry, but I can't help with that.", "has no numbered lines"),
        ("1. Eins.\n2. Zwei.", "has no numbered lines"),
        ("[1] Eins. Zwei.", "has 1 numbered lines, where 2 were asked for"),
        ("[1] Eins. [2] Zwei.", "has 1 numbered lines"),
        (f"{GOOD}\n[3] Drei.", "has 3 numbered lines"),
        ("[2] Zwei.\n[1] Eins.", "not 1, 2, 3"),
        ("[1] Eins.\n[1] Zwei.", "not 1, 2, 3"),
        ("[1] Eins\nund eins.\n[2] Zwei.", "text between the numbered lines"),
        ("[1] Eins.\n```\n[2] Zwei.", "text between the numbered lines"),
        ("[1] Eins.\n[2] Zwei\nund zwei.", "text right behind"),
    ],
)
def test_what_is_none(answer: str, problem: str) -> None:
    with pytest.raises(UnusableError, match=problem):
        read_numbered(answer, 2)


def test_numbers_in_a_sentence_are_of_the_sentence() -> None:
    sentences = ["[2] is the second.", "See [1].\n[3] is no third.", "\u2028[1]\x85[1] twice"]
    written = numbered(sentences)
    assert written.split("\n") == [
        "[1] [2] is the second.",
        "[2] See [1]. [3] is no third.",
        "[3] [1] [1] twice",
    ]
    assert read_numbered(written, 3)[0] == [
        "[2] is the second.",
        "See [1]. [3] is no third.",
        "[1] [1] twice",
    ]


MARKS = st.text(st.sampled_from("[]12 \n\r\t\0\x85\u2028a:.`*"), max_size=20)


@settings(max_examples=60)
@given(st.lists(MARKS, min_size=1, max_size=4))
def test_any_sentences_stay_as_many(sentences: list[str]) -> None:
    assert len(read_numbered(numbered(sentences), len(sentences))[0]) == len(sentences)


@settings(max_examples=60)
@given(st.lists(st.one_of(MARKS, st.just("\n[1] a"), st.just("\n[2] b"))).map("".join), st.integers(1, 3))
def test_any_answer_is_read_or_refused(answer: str, count: int) -> None:
    try:
        sentences, _ = read_numbered(answer, count)
    except UnusableError:
        return
    assert len(sentences) == count
    assert not any("\n" in sentence or "\0" in sentence for sentence in sentences)


@loop_over(
    ("answer", "sentence", "left_out"),
    [
        (" Eins. \n", "Eins.", []),
        ("```\nEins.\n```", "Eins.", ["a fence"]),
        ("Here is the translation:\n\nEins.", "Eins.", ["an introduction"]),
        ("", "", []),
        ("Sorry, das geht nicht.", "Sorry, das geht nicht.", []),
    ],
)
def test_an_answer_without_numbers(answer: str, sentence: str, left_out: list[str]) -> None:
    assert read_plain(answer) == ([sentence], left_out)
    with pytest.raises(UnusableError, match="has 2 lines"):
        read_plain("Eins.\nUnd eins.")


def test_thoughts_before_an_answer_also_without_their_first_tag() -> None:
    for opening, source in (("<think>", "A </think>."), ("<think>", "One."), ("", "One.")):
        answer = f"{opening}[1] One?\n[1] Uno?</think>[1] Eins."
        assert without_thoughts(answer, [source]) == "[1] Eins."
    with pytest.raises(UnusableError, match="thoughts without an end"):
        without_thoughts("<think>[1] One?", ["One."])
    assert without_thoughts("[1] Ein </think>.", ["A </think>."]) == "[1] Ein </think>."


@loop_over(
    ("source", "translation", "found"),
    [
        ("The cat sleeps.", "Die Katze schläft.", ""),
        ("The cat sleeps.", "", EMPTY),
        ("The cat sleeps.", "...", EMPTY),
        ("...", "...", ""),
        ("Yes.", "Ja" * 104, ""),  # 8 times its 4 characters, and 200
        ("Yes.", "Ja" * 117, LONG),
        ("The cat sleeps.", "Die Katze schl\ufffdft.", DAMAGED),
        ("It is \ufffd.", "Es ist \ufffd.", ""),
        ("The cat sleeps.", "the  cat sleeps.", ECHO),
        ("Rocky Mountain National Park", "Rocky Mountain National Park", ECHO),  # which is kept in the end
        ("John Smith, Jr.", "John Smith, Jr.", ""),
        ("猫はここで静かに眠っている。", "猫はここで静かに眠っている。", ECHO),
        ("東京", "東京", ""),
        ("The cat sleeps.", "I'm sorry, but I can't help with that.", REFUSAL),
        ("Sorry, not today.", "Sorry, i dag går det ikke.", ""),  # "in" in Danish and Norwegian
    ],
)
def test_a_translation_that_cannot_be_right(source: str, translation: str, found: str) -> None:
    assert suspicion(source, translation, "de") == found
    for language in ("en-GB", "English"):  # a person may have said so
        assert suspicion(source, translation, language) == found.replace(REFUSAL, "")


def test_short_sentences_together_are_an_echo() -> None:
    assert is_echo(["It is.", "So it is."], ["It is.", "So it is."])
    assert not is_echo(["It is.", "So it is."], ["It is.", "So ist es."])


def test_lengths_tell_of_sentences_merged_and_divided() -> None:
    sources = ["a" * length for length in (20, 100, 30, 90, 40, 80)]
    assert moved(sources, sources) is None
    merged = ["a" * length for length in (120, 30, 90, 20, 20, 80)]  # 1 and 2 as one, 5 as two
    assert moved(sources, merged) == range(5)
    assert moved(sources * 101, merged * 101) is None  # more than are looked at


ENDPOINT = Endpoint(endpoint="http://a/v1", model="m", source_language="en", target_language="de")
PIECE = Piece(("He {count}s.", "{sentences}"), (("A {context}.", "Ein {context}."),))


def test_what_a_text_holds_is_no_place_of_a_template() -> None:
    prompt = Prompt(ENDPOINT, "{count}|{context}|{sentences}")
    [message] = prompt.messages(PIECE)
    count, context, sentences = message["content"].split("|")
    assert count == "2"
    assert context.endswith("English: A {context}.\nGerman: Ein {context}.\n")
    assert sentences == "[1] He {count}s.\n[2] {sentences}"


def test_the_own_prompt_says_all_of_it() -> None:
    prompt = Prompt(ENDPOINT, TEMPLATE)
    [message] = prompt.messages(PIECE)
    for words in ("from English into German", "[1] to [2]", "\n[1] He {count}s.\n[2] {sentences}"):
        assert words in message["content"]
    [again] = prompt.messages(PIECE, "has no numbered lines")
    assert again["content"].endswith(message["content"])
    assert "as it has no numbered lines." in again["content"]
