"""Blocks cut into sentences and put together again: nothing lost, nothing twice, elements nested."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotext.files.block_sentences import CutBlock, cut
from cotext.files.blocks import SPACE, Block, Close, Copied, Open, Piece, Point, merged, shown_span
from tests.loops import loop_over


def spans(text: str) -> list[tuple[int, int]]:
    """Sentences that end with a full stop."""
    return [match.span() for match in re.finditer(r"[^\s.](?:[^.]*\.|[^.]*[^\s.](?=\s*\Z))", text)]


def nested(pieces: tuple[Piece, ...]) -> bool:
    stack: list[int] = []
    for piece in pieces:
        if isinstance(piece, Open):
            stack.append(piece.key)
        elif isinstance(piece, Close) and (not stack or stack.pop() != piece.key):
            return False
    return not stack


def elements(pieces: tuple[Piece, ...]) -> list[str]:
    return sorted(map(repr, (piece for piece in pieces if not isinstance(piece, str))))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Texts of two letters and full stops with elements anywhere in them."""
    keys = iter(range(100))

    def part(depth: int) -> list[Piece]:
        pieces: list[Piece] = []
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.integers(0, 5))
            if kind < 3:
                pieces.append(draw(st.text("ab. \n", min_size=1, max_size=9)))
            elif kind == 3:
                pieces.append(Point(next(keys)))
            elif kind == 4:
                pieces.append(Copied(next(keys), draw(st.sampled_from(("x. y", "\n", "a")))))
            elif depth < 3:
                key = next(keys)
                pieces += [Open(key), *part(depth + 1), Close(key)]
        return pieces

    return Block(merged(part(0)))


def same(found: CutBlock) -> Block:
    return found.joined(found.parts.sentences, "en")


@given(blocks())
def test_untouched_sentences_give_the_block_back_but_for_white_space(block: Block) -> None:
    found = cut(block, spans)
    back = same(found)
    assert elements(back.pieces) == elements(block.pieces)
    assert nested(back.pieces)
    assert back.text.split() == block.text.split() or "".join(back.text.split()) == "".join(
        block.text.split()
    )
    without_space = [
        "".join(p.split()) if isinstance(p, str) else p
        for p in back.pieces
        if not isinstance(p, str) or p.strip()
    ]
    expected = [
        "".join(p.split()) if isinstance(p, str) else p
        for p in block.pieces
        if not isinstance(p, str) or p.strip()
    ]
    assert merged(without_space) == merged(expected)
    for sentence in found.parts.sentences:
        assert Block(sentence).text.strip(" ") == Block(sentence).text


@loop_over(
    ("pieces", "sentences"),
    [
        (("One. Two.",), [("One.",), ("Two.",)]),
        # Elements around whole sentences are in none.
        ((Open(1), "One.", Close(1), " Two.", Point(2)), [("One.",), ("Two.",)]),
        ((Open(1), "One. Two.", Close(1)), [("One.",), ("Two.",)]),
        (
            (Open(1), "A ", Open(2), "b", Close(2), ".", Close(1)),
            [("A ", Open(2), "b", Close(2), ".")],
        ),
        (("Click ", Open(1), "here", Close(1)), [("Click ", Open(1), "here", Close(1))]),
        # One that goes on has its ends in two.
        (
            ("A ", Open(1), "b. C", Close(1), " d."),
            [("A ", Open(1), "b."), ("C", Close(1), " d.")],
        ),
        (("a  \n b",), [("a b",)]),
        (("One.", Copied(1, "\n"), "two"), [("One.",), ("two",)]),
        (("12. 13",), []),
        ((Copied(1, "code"),), []),
    ],
)
def test_sentences(pieces: tuple[Piece, ...], sentences: list[tuple[Piece, ...]]) -> None:
    assert cut(Block(pieces), spans).parts.sentences == sentences


def test_whole_blocks() -> None:
    for block, how in ((Block(("One. Two.",), split=False), spans), (Block(("One. Two.",)), None)):
        assert cut(block, how).parts.sentences == [("One. Two.",)]


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


@given(st.text(st.sampled_from(" \t\n\f\ra\u00a0"), max_size=20))
def test_what_is_seen_of_a_text_is_found_in_parts(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cotext.files.blocks.PART", 4)
        start, stop = shown_span(text)
    assert text[start:stop] == text.strip(SPACE)
    assert text[start:] == text.lstrip(SPACE) or not text.strip(SPACE)
