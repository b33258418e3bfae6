"""Words of a text and their tokens."""

from collections.abc import Sequence

from cotext.data.words import token_words
from tests.loops import loop_over


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
