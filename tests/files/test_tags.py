"""Projection of inline elements: every element once, nested properly, the text as it was translated."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.words import word_units
from cotext.files import tags
from cotext.files.block_sentences import join_pieces, split_pieces
from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged
from cotext.files.tags import project, shown_text
from cotext.translation.terms.word_alignment import SentenceAlignment
from tests.files.faking import assert_nested, elements

WEIGHED = st.sampled_from([tags.MOST_WEIGHED, 0])  # 0: all is placed in proportion, as in long sentences

WORDS = ["der", "Hund", " ", " ", "bellt", "H2", "2", ", ", ". ", "(", ")", "\u4e2d", "x-y", "5", "%s", "{0}"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
COPIES = ("%s", "{0}", "http://a.b/c", "5")


@st.composite
def structures(
    draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS, copies: Sequence[str] = COPIES
) -> tuple[Piece, ...]:
    """Pieces of a block: nested elements, points and copied texts with a key each."""
    keys = iter(range(1000))

    def inner(depth: int) -> list[Piece]:
        found: list[Piece] = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["text", "text", "element", "point", "copied"]))
            key = next(keys)
            if kind == "text":
                found.append(draw(texts))
            elif kind == "element" and depth < 3:
                found += [Open(key), *inner(depth + 1), Close(key)]
            elif kind == "copied":
                found.append(Copied(key, draw(st.sampled_from(copies))))
            else:
                found.append(Point(key))
        return found

    return merged(inner(0))


def alignment_of(source: str, target: str, seed: int) -> SentenceAlignment | None:
    """Weights at random, or none."""
    if seed % 3 == 0:
        return None
    spans = [tuple((u.start, u.stop) for u in word_units(text)) for text in (source, target)]
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(len(spans[1]), len(spans[0]), generator=generator) ** 4
    return SentenceAlignment(spans[0], spans[1], weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9))


def project_within(weighed: int, *given: Any) -> tuple[Piece, ...]:
    """`project` where that many pairs may be weighed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tags, "MOST_WEIGHED", weighed)
        return project(*given)


@settings(max_examples=300, derandomize=True)
@given(structures(), TEXTS, st.booleans(), st.integers(0, 99), WEIGHED)
def test_every_element_once_and_the_text_as_translated(
    pieces: tuple[Piece, ...], target: str, with_copied: bool, seed: int, weighed: int
) -> None:
    shown = {p.key: f"<{p.key}>" for p in pieces if isinstance(p, Copied) and p.key % 2}
    copied = [p for p in pieces if isinstance(p, Copied)]
    if with_copied:
        target = " ".join([target, *(shown.get(p.key, p.text) for p in reversed(copied))])
    source = shown_text(pieces, shown)
    found = project_within(weighed, pieces, target, alignment_of(source, target, seed), shown)
    assert elements(found) == elements(pieces)
    assert_nested(found)
    if with_copied:
        assert shown_text(found, shown) == target
    else:
        kept = [p for p in found if not (isinstance(p, Copied) and shown.get(p.key, p.text) not in target)]
        assert "".join(shown_text(kept, shown).split()) == "".join(target.split())


@settings(max_examples=300, derandomize=True)
@given(
    structures(),
    st.lists(st.integers(0, 40), max_size=6),
    st.lists(TEXTS, min_size=3),
    st.integers(0, 99),
    WEIGHED,
)
def test_a_block_of_sentences_comes_back_whole(
    pieces: tuple[Piece, ...], cuts: list[int], targets: list[str], seed: int, weighed: int
) -> None:
    """Elements that reach over sentences stay well-formed, whatever each sentence becomes."""
    text = shown_text(pieces, {})
    edges = sorted({min(cut, len(text)) for cut in cuts})
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    sentences, between = split_pieces(pieces, spans)
    assert join_pieces(between, sentences) == pieces
    assert len(sentences) <= len(spans)
    whole = [text[a:b] for a, b in spans]
    if len(sentences) == len(spans) and not any(isinstance(p, Copied) for p in pieces):
        assert [shown_text(sentence, {}) for sentence in sentences] == whole
    translated = []
    for n, sentence in enumerate(sentences):
        target = targets[n % len(targets)]
        source = shown_text(sentence, {})
        translated.append(project_within(weighed, sentence, target, alignment_of(source, target, seed)))
    found = join_pieces(between, translated)
    assert elements(found) == elements(pieces)
    assert_nested(found)


def aligned(source: str, target: str, links: dict[str, str]) -> SentenceAlignment:
    """Words joined by name; the rest stands for nothing."""
    spans = [[(u.start, u.stop) for u in word_units(text)] for text in (source, target)]
    words = [[text[a:b] for a, b in of] for text, of in zip((source, target), spans, strict=True)]
    weights = torch.tensor([[float(s in links.get(t, "").split()) for s in words[0]] for t in words[1]])
    return SentenceAlignment(tuple(spans[0]), tuple(spans[1]), weights)


READ = "I have read the new book."
LESEN = "Ich habe das neue Buch gelesen."
LINKS = {
    "Ich": "I", "habe": "have", "gelesen": "read", "das": "the", "neue": "new", "Buch": "book", ".": ".",
}  # fmt: skip


def shown(pieces: tuple[Piece, ...]) -> str:
    """Pieces as a person sees them."""
    marks = {Open: "<{}>", Close: "</{}>", Point: "[{}]"}
    return "".join(
        p if isinstance(p, str) else p.text if isinstance(p, Copied) else marks[type(p)].format(p.key)
        for p in pieces
    )


def projected(*pieces: Piece, target: str = LESEN, links: dict[str, str] = LINKS) -> str:
    return shown(project(pieces, target, aligned(shown_text(pieces, {}), target, links)))


def test_an_element_goes_with_its_words() -> None:
    found = projected("I have ", Open(1), "read", Close(1), " the ", Open(2), "new", Close(2), " book.")
    assert found == "Ich habe das <2>neue</2> Buch <1>gelesen</1>."
    found = projected("I have ", Open(1), "read the ", Open(2), "new book", Close(2), Close(1), ".")
    assert found == "Ich habe <1>das <2>neue Buch</2> gelesen</1>."
    found = projected("I ", Open(1), "have read", Close(1), " the new book.")
    # `habe` and `gelesen` stand apart; three foreign words between them would cost more than one is worth.
    assert found == "Ich <1>habe</1> das neue Buch gelesen."
    found = projected("I have ", Open(1), "read ", Close(1), "the", Open(2), " new ", Close(2), "book.")
    assert found == "Ich habe das <2>neue</2> Buch <1>gelesen</1>."


def test_an_element_with_a_part_of_a_compound_takes_the_compound_and_not_punctuation() -> None:
    links = {"\u00d6ffnen": "Open", "das": "the", "Dateimen\u00fc": "File menu"}
    found = projected(
        "Open the ",
        Open(1),
        "File",
        Close(1),
        " menu.",
        target="\u00d6ffnen das Dateimen\u00fc.",
        links=links,
    )
    assert found == "\u00d6ffnen das <1>Dateimen\u00fc</1>."


def test_an_element_in_a_word_takes_the_same_part_of_it_or_the_word() -> None:
    co2 = ("The CO", Open(1), "2", Close(1), " and H", Open(2), "2", Close(2), "O.")
    links = {"Das": "The", "und": "and"}
    found = projected(*co2, target="Das H2O und CO2.", links=links)
    assert found == "Das H<2>2</2>O und CO<1>2</1>."
    raised = ("A program", Open(1), "1", Close(1), " and the file", Open(2), "12", Close(2), ".")
    links = {"Ein": "A", "und": "and", "die": "the"}
    found = projected(*raised, target="Ein Programm1 und die Datei12.", links=links)
    assert found == "Ein Programm<1>1</1> und die Datei<2>12</2>."
    links = {"Klicken": "Press", "Datei": "File"}
    found = projected("Press ", Open(1), "F", Close(1), "ile.", target="Klicken auf Datei.", links=links)
    assert found == "Klicken auf <1>Datei</1>."


def test_an_added_word_at_the_edge_of_an_element_stays_outside() -> None:
    links = {"Wählen": "Choose", "Sie": "Choose File", "Datei": "File", "nur": "File", "Speichern": "Save"}
    pieces = ("Choose ", Open(1), "File - Save", Close(1), " now.")
    for target in (
        "Wählen Sie <1>Datei - Speichern</1> jetzt.",
        "Wählen Sie <1>Datei nur Speichern</1> jetzt.",
    ):
        assert projected(*pieces, target=re.sub("</?1>", "", target), links=links) == target


def test_elements_around_the_whole_stay_there_and_take_no_punctuation_that_they_had_not() -> None:
    assert projected(Open(1), READ, Close(1)) == f"<1>{LESEN}</1>"
    found = projected(Open(1), "I have read the new book", Close(1), ".")
    assert found == "<1>Ich habe das neue Buch gelesen</1>."
    links = {"Lies": "Read", "es": "it", "Jetzt": "Now"}
    found = projected("Read ", Open(1), "it!", Close(1), " Now.", target="Lies es! Jetzt.", links=links)
    assert found == "Lies <1>es!</1> Jetzt."
    found = projected("I have read the new ", Open(1), "book.", Close(1))
    assert found == "Ich habe das neue <1>Buch</1> gelesen."


def test_points_go_with_the_word_that_they_touch() -> None:
    assert projected("I have read", Point(1), " the new book.") == "Ich habe das neue Buch gelesen[1]."
    assert projected("I have read the new book.", Point(1)) == f"{LESEN}[1]"
    assert projected("I have read the new book", Point(1), ".") == "Ich habe das neue Buch[1] gelesen."
    assert projected("I have ", Point(1), "read the new book.") == "Ich habe das neue Buch [1]gelesen."
    assert projected("I", Point(1), " have read the new", Point(2), Point(3), " book.") == (
        "Ich[1] habe das neue[2][3] Buch gelesen."
    )
    found = projected("I have ", Open(1), "read", Close(1), Point(2), " the new book.")
    assert found == "Ich habe das neue Buch <1>gelesen</1>[2]."


def test_places_in_long_and_in_equal_sentences() -> None:
    """Four words become eight: what encloses the second and third encloses the third to the sixth."""
    pieces = ("a ", Open(1), "b ", Open(2), "c", Close(2), Close(1), Point(3), " ", Copied(4, "%s"))
    assert shown(project_within(0, pieces, "s t u v w x y z", None)) == "s t <1>u v <2>w x</2></1>[3] %s y z"
    pieces = (Open(1), "Ctrl ", Close(1), Point(2), "+ C", Open(3), Close(3))
    assert project(pieces, "Ctrl + C", None) == pieces


def test_copied_text_is_found_or_inserted() -> None:
    pieces = ("See ", Copied(1, "a.de"), " and ", Open(2), Copied(3, "{0}"), Close(2), " now.")
    links = {"Siehe": "See", "und": "and", "jetzt": "now"}
    target = "Siehe jetzt {0} und a.de."
    found = project(pieces, target, aligned(shown_text(pieces, {}), target, links))
    assert shown(found) == "Siehe jetzt <2>{0}</2> und a.de."
    assert elements(found) == elements(pieces)
    target = "Siehe jetzt und."
    found = project(pieces, target, aligned(shown_text(pieces, {}), target, links))
    assert shown(found).count("a.de") == shown(found).count("{0}") == 1
    assert "Siehe a.de" in shown(found)


def test_copied_text_that_stands_twice_is_the_one_that_is_aligned() -> None:
    pieces = ("5 of ", Copied(1, "5"), " dogs")
    target = "5 Hunde von 5"
    found = project(pieces, target, aligned("5 of 5 dogs", target, {"5": "5", "Hunde": "dogs", "von": "of"}))
    assert shown_text(found, {}) == target
    assert len([p for p in found if isinstance(p, Copied)]) == 1
    pieces = ("The ", Copied(1, "\u25ba"), " key")
    assert shown(project(pieces, "Die {1}, {1}Taste", None, {1: "{1}"})) == "Die \u25ba, \u25baTaste"
    # A digit within a number is another one.
    assert project(("About ", Copied(1, "5")), "15 oder 5", None) == ("15 oder ", Copied(1, "5"))


def test_sentences_are_cut_outside_of_elements_and_copied_text() -> None:
    pieces = (
        Open(9), Open(1), "Foo", Close(1), " bar ", Open(2), "baz. Quux", Close(2), " fin.", Close(9), " ",
        Point(7),
    )  # fmt: skip
    sentences, between = split_pieces(pieces, [(0, 12), (13, 22)])
    assert between == [(Open(9),), (" ",), (Close(9), " ", Point(7))]
    assert sentences[0] == (Open(1), "Foo", Close(1), " bar ", Open(2), "baz.")
    assert sentences[1] == ("Quux", Close(2), " fin.")
    sentences, _ = split_pieces(
        ("See ", Copied(1, "Yahoo! Inc"), " there. Now."), [(0, 10), (11, 21), (22, 26)]
    )
    assert sentences == [("See ", Copied(1, "Yahoo! Inc"), " there."), ("Now.",)]
