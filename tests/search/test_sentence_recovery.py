"""Labels to sentences, on lists written by hand."""

from hypothesis import given
from hypothesis import strategies as st

from cotext.data.batch import SpecialSymbols
from cotext.search.constraints import recover
from tests.loops import loop_over

SEP, SEP2, SEP3, SEP4, EOS = 90, 91, 92, 93, 99
PLAIN = SpecialSymbols(97, 98, EOS, (SEP,))
INDEXED = SpecialSymbols(97, 98, EOS, (SEP, SEP2, SEP3, SEP4))
BRACKET = SpecialSymbols(97, 98, EOS, (EOS,), bracket=True)
SYMBOLS = {90: "|", 91: "|2", 92: "|3", 93: "|4", 99: "."}


def sentences(
    text: str, symbols: SpecialSymbols, count: int, first: int = 0, from_end: bool = False
) -> tuple[list[str], bool]:
    """Words and closing symbols in, the words of every sentence out; the final `eos` is added."""
    words = [*text.split(), "."]
    ids = {name: i for i, name in SYMBOLS.items()}
    ids["."] = EOS
    found = recover([ids.get(word, 1) for word in words], symbols, count, first, from_end)
    assert len(found.sentence) == len(words)
    out: list[list[str]] = [[] for _ in range(count)]
    for word, k in zip(words, found.sentence, strict=True):
        if word not in ids:
            out[k].append(word)
    return [" ".join(sentence) for sentence in out], found.exact


@loop_over(
    ("text", "count", "from_start", "from_end", "exact"),
    [
        ("a b | c | d", 3, ["a b", "c", "d"], ["a b", "c", "d"], True),
        # Too few: missing at the end, or where only the last will be kept, at the beginning.
        ("a b | c", 3, ["a b", "c", ""], ["", "a b", "c"], False),
        ("a", 2, ["a", ""], ["", "a"], False),
        ("", 2, ["", ""], ["", ""], False),
        # Too many: nothing is lost.
        ("a | b | c d | e", 2, ["a", "b c d e"], ["a b c d", "e"], False),
        # As many as asked for, though one is empty.
        ("a | | c", 3, ["a", "", "c"], ["a", "", "c"], True),
        ("", 1, [""], [""], True),
        # The last sentence is closed twice, or is empty.
        ("a | b |", 2, ["a", "b"], ["a", "b"], True),
        ("a |", 2, ["a", ""], ["a", ""], True),
        ("a | b | c |", 2, ["a", "b c"], ["a b", "c"], False),
    ],
)
def test_plain_separators(
    text: str, count: int, from_start: list[str], from_end: list[str], exact: bool
) -> None:
    assert sentences(text, PLAIN, count) == (from_start, exact)
    assert sentences(text, PLAIN, count, from_end=True) == (from_end, exact)
    # Where the row begins does not matter to separators that all are one.
    assert sentences(text, PLAIN, count, first=3) == (from_start, exact)


@loop_over(
    ("text", "count", "first", "wanted", "exact"),
    [
        ("a | b |2 c", 3, 0, ["a", "b", "c"], True),
        ("a |2 b |3 c", 3, 1, ["a", "b", "c"], True),
        # The second never came; what stands before the third is the third's.
        ("a | b |3 c", 4, 0, ["a", "", "b", "c"], False),
        # Too few, too many.
        ("a | b", 4, 0, ["a", "b", "", ""], False),
        ("a | b |2 c |3 d", 2, 0, ["a", "b c d"], False),
        # Repeated and backward: believed.
        ("a | b | c |2 d", 3, 0, ["a b", "c", "d"], False),
        ("a | c |3 b |2 d", 4, 0, ["a", "b", "c d", ""], False),
        ("a | b |2 a | b |2 c", 3, 0, ["a a", "b b", "c"], False),
        # One that lies before what was asked for counts to the first.
        ("x | a |2 b", 2, 1, ["x a", "b"], False),
        # The last separator closes all later sentences.
        ("a | b |2 c |3 d |4 e |4 f", 6, 0, ["a", "b", "c", "d", "e", "f"], True),
        ("g |4 h |4 i", 3, 6, ["g", "h", "i"], True),
        ("a | d |4 e |4 f", 6, 0, ["a", "", "", "d", "e", "f"], False),
        # Closed twice.
        ("a | b |2", 2, 0, ["a", "b"], True),
        ("a | b |3", 2, 0, ["a", "b"], False),
    ],
)
def test_indexed_separators(text: str, count: int, first: int, wanted: list[str], exact: bool) -> None:
    assert sentences(text, INDEXED, count, first) == (wanted, exact)


def test_the_last_piece_is_the_last_sentence_where_only_that_is_kept() -> None:
    assert sentences("a | b", INDEXED, 4, from_end=True) == (["a", "", "", "b"], False)
    assert sentences("b", INDEXED, 2, from_end=True) == (["", "b"], False)
    assert sentences("a | b |2 c", INDEXED, 3, from_end=True) == (["a", "b", "c"], True)


def test_brackets_are_exact() -> None:
    assert sentences("a b . c . d", BRACKET, 3) == (["a b", "c", "d"], True)


@given(
    st.lists(st.sampled_from([1, 2, SEP, SEP2, SEP3, SEP4]), max_size=12),
    st.integers(1, 5),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from(["plain", "indexed"]),
)
def test_nothing_is_lost(labels: list[int], count: int, first: int, from_end: bool, kind: str) -> None:
    """Every label counts to one of the sentences; what stands between two closing symbols stays together."""
    symbols = PLAIN if kind == "plain" else INDEXED
    if kind == "plain":
        labels = [SEP if label > 2 else label for label in labels]
    labels = [*labels, EOS]
    found = recover(labels, symbols, count, first, from_end)
    assert len(found.sentence) == len(labels)
    assert set(found.sentence) <= set(range(count))
    for label, a, b in zip(labels, found.sentence, found.sentence[1:], strict=False):
        assert a == b or label in symbols.separators
    if kind == "plain":
        assert list(found.sentence) == sorted(found.sentence)
    if found.exact:
        assert set(found.sentence) == set(range(count))
