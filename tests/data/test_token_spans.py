"""Positions of words, subwords and bytes in a text, and the tokens of its words."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from cotext.data.tokenizer import Tokenizer, TokenizerSettings, train_tokenizer
from cotext.data.words import token_spans, token_words
from tests.loops import loop_over
from tests.tiny import PlainWordTokenizer, WordTokenizer

SENTENCES = ["the old house stands near the river", "a boat is on the river, and nobody sees it"] * 20
SIZES = {"sentencepiece": 28, "sentencepiece-bpe": 40, "moses-bpe": 20}


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(
        SENTENCES,
        TokenizerSettings(
            kind=request.param, vocabulary=SIZES[request.param], byte_fallback=False, num_threads=1
        ),
    )


def spans(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    return token_spans(tokenizer, tokenizer.encode(text, "source"), text, "source")


def test_of_words_and_of_tokens_that_show_nothing() -> None:
    tokenizer = PlainWordTokenizer(["a", "bc", "d"])
    assert spans(tokenizer, " bc  a\td ") == [(1, 3), (5, 6), (7, 8)]
    assert spans(tokenizer, "") == []
    tokenizer = WordTokenizer(["a", "b"])
    blank = tokenizer.BLANK
    found = token_spans(tokenizer, [*tokenizer.encode("a"), blank, *tokenizer.encode("b")], "a b", "source")
    assert found == [(0, 1), (2, 2), (2, 3)]


@loop_over("text", ["the river stands near nobody", "boats, on  the river", "a\u00a0house"])
def test_subwords_cover_the_text_in_order(tokenizer: Tokenizer, text: str) -> None:
    found = spans(tokenizer, text)
    assert all(a <= b for a, b in found)
    assert all(b <= c for (_, b), (c, _) in pairwise(each for each in found if each[0] < each[1]))
    assert "".join("".join(text[a:b] for a, b in found).split()) == "".join(text.split())


@loop_over("text", ["the rivér", "the \ufb01ne house", "the house\u2026 is old", "漢字 the"])
def test_of_a_text_that_the_tokenizer_writes_otherwise(tokenizer: Tokenizer, text: str) -> None:
    """Unknown letters and normal forms: spans stay inside, in order, and words that are known are right."""
    found = spans(tokenizer, text)
    assert all(0 <= a <= b <= len(text) for a, b in found)
    assert [a for a, _ in found] == sorted(a for a, _ in found)
    the = text.index("the")
    assert any(a < the + 3 and b > the for a, b in found)


class Pieces:
    """A tokenizer of given pieces: "_" shows nothing, "<1" and "2>" are halves of 京."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces

    def encode(self, sentence: str, side: str = "source") -> list[int]:
        return list(range(len(self.pieces)))

    def decode(self, ids: Sequence[int], side: str = "target") -> str:
        text = "".join(self.pieces[i] for i in ids).replace("_", "").replace("<12>", "京").replace("<1", "")
        return " ".join(text.split())


@loop_over(
    ("pieces", "text", "expected"),
    [
        (["Die", " Ban", "k", "."], "Die Bank.", [("Die", 0, 1), ("Bank", 1, 3), (".", 3, 4)]),
        (["Die", "_", " Bank", "_"], "Die Bank", [("Die", 0, 1), ("Bank", 1, 4)]),
        (["e", "s.", " O", "h"], "es. Oh", [("es.", 0, 2), ("Oh", 2, 4)]),
        (["北", "<1", "2>", "很大"], "北京很大", [("北", 0, 1), ("京", 1, 3), ("很大", 3, 4)]),
        (["a ", "b"], "  a   b ", [("a", 0, 1), ("b", 1, 2)]),
        ([], "", []),
        (["_"], " ", []),
    ],
)
def test_words_and_their_tokens(pieces: list[str], text: str, expected: list[tuple[str, int, int]]) -> None:
    found = token_words(Pieces(pieces), text, "target")  # type: ignore[arg-type]
    assert [(word.text, word.tokens.start, word.tokens.stop) for word in found] == expected
    assert all(text[word.start : word.stop] == word.text for word in found)


def test_a_total_is_that_of_its_tokens() -> None:
    _, bank, _ = token_words(Pieces(["Die", " Ban", "k", "."]), "Die Bank.", "target")  # type: ignore[arg-type]
    assert bank.total([1.0, 2.0, 4.0, 8.0, 16.0]) == 6.0
