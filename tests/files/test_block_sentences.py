"""Blocks cut into sentences and put together again: nothing lost, nothing twice, elements nested."""

import re

from hypothesis import given
from hypothesis import strategies as st

from cotext.files.block_sentences import cut
from cotext.files.blocks import Block, Close, Copied, Open, Piece, Point, merged
from cotext.files.translate_blocks import without_added_stop
from tests.files.faking import assert_nested, elements
from tests.files.test_tags import structures
from tests.loops import loop_over


def spans(text: str) -> list[tuple[int, int]]:
    """Sentences that end with a full stop."""
    return [match.span() for match in re.finditer(r"[^\s.](?:[^.]*\.|[^.]*[^\s.](?=\s*\Z))", text)]


@given(structures(st.text("ab. \n", min_size=1, max_size=9), ("x. y", "\n", "a")).map(Block))
def test_untouched_sentences_give_the_block_back_but_for_white_space(block: Block) -> None:
    found = cut(block, spans)
    back = found.joined(found.sentences, "en")
    assert elements(back.pieces) == elements(block.pieces)
    assert_nested(back.pieces)
    assert "".join(back.text.split()) == "".join(block.text.split())
    without_space, expected = (
        merged("".join(p.split()) if isinstance(p, str) else p for p in each.pieces) for each in (back, block)
    )
    assert without_space == expected
    for sentence in found.sentences:
        assert Block(sentence).text.strip(" ") == Block(sentence).text


@loop_over(
    ("pieces", "sentences"),
    [
        (("One. Two.",), [("One.",), ("Two.",)]),
        # Elements around whole sentences are in none.
        ((Open(1), "One.", Close(1), " Two.", Point(2)), [("One.",), ("Two.",)]),
        ((Open(1), "One. Two.", Close(1)), [("One.",), ("Two.",)]),
        ((Open(1), "A ", Open(2), "b", Close(2), ".", Close(1)), [("A ", Open(2), "b", Close(2), ".")]),
        (("Click ", Open(1), "here", Close(1)), [("Click ", Open(1), "here", Close(1))]),
        # A reference to a note ends no sentence.
        (("A.", Open(1), "[2]", Close(1), " B.", Open(3), "3", Close(3)), [("A.",), ("B.",)]),
        (("H", Open(1), "2", Close(1), " b."), [("H", Open(1), "2", Close(1), " b.")]),
        # One that goes on has its ends in two.
        (("A ", Open(1), "b. C", Close(1), " d."), [("A ", Open(1), "b."), ("C", Close(1), " d.")]),
        (("a  \n b",), [("a b",)]),
        (("One.", Copied(1, "\n"), "two"), [("One.",), ("two",)]),
        (("12. 13",), []),
        ((Copied(1, "code"),), []),
    ],
)
def test_sentences(pieces: tuple[Piece, ...], sentences: list[tuple[Piece, ...]]) -> None:
    assert cut(Block(pieces), spans).sentences == sentences


def test_whole_blocks() -> None:
    for block, how in ((Block(("One. Two.",), split=False), spans), (Block(("One. Two.",)), None)):
        assert cut(block, how).sentences == [("One. Two.",)]


@loop_over(
    ("pieces", "translated", "language", "text"),
    [
        (("A。B。",), ("one.", "two."), "en", "one. two."),
        (("A. B.",), ("一。", "二。"), "zh", "一。二。"),
        (("A. B.",), ("一。", "二。"), "", "一。二。"),
        (("A.\nB.",), ("一。", "二。"), "zh", "一。\n二。"),
        (("A.  B.",), ("one.", "two."), "de", "one.  two."),
        ((" A. ",), ("one.",), "de", " one. "),
    ],
)
def test_white_space_between_sentences(
    pieces: tuple[Piece, ...], translated: tuple[str, ...], language: str, text: str
) -> None:
    found = cut(Block(pieces), lambda t: [m.span() for m in re.finditer(r"\w+[.。]", t)])
    assert found.joined([(each,) for each in translated], language).text == text


def test_an_icon_between_spaces_stays_apart_from_words() -> None:
    icon, anchor = Point(1), Point(2)
    found = cut(Block(("Click the ", icon, Point(3), " button, and ", anchor, "wait ", Point(4), ".")), spans)
    translated = ("Auf die ", icon, Point(3), "Taste klicken und ", anchor, "warten", Point(4), ".")
    assert found.joined([translated], "de").pieces == (
        "Auf die ", icon, Point(3), " Taste klicken und ", anchor, "warten ", Point(4), ".",
    )  # fmt: skip


@loop_over(
    ("source", "target", "expected"),
    [
        ("The winters were cold", "Die Winter waren kalt.", "Die Winter waren kalt"),
        ("Rooms 12", "Zimmer zwölf .", "Zimmer zwölf"),
        ("冷たい", "冬は寒い。", "冬は寒い"),
        ("The winters were cold.", "Die Winter waren kalt.", None),
        ("Cold?", "Kalt.", None),
        ("Total (net)", "Gesamt.", None),
        ("Wait", "Warte...", None),
        ("Cold", "Kalt!", None),
        ("apples, pears etc", "Äpfel, Birnen usw.", None),
        ("the fifth", "am 5.", None),
        ("Louis the fourteenth", "Ludwig XIV.", None),
        ("Plan", "Plan B.", None),
        ("cold", ".", None),
        ("cold", "", None),
        ("", "Kalt.", None),
    ],
)
def test_what_is_added_goes(source: str, target: str, expected: str | None) -> None:
    assert without_added_stop(source, target, "de") == (target if expected is None else expected)
    assert without_added_stop(source, target, "de", (f" {target}".casefold(),)) == target
    assert without_added_stop(source, target, "de", (" t.",)) == (target if expected is None else expected)
