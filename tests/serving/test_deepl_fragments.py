"""Texts of DeepL's requests as blocks: everything but the sentences comes back as it was."""

import random
from collections.abc import Sequence
from dataclasses import replace

from cotext.files.blocks import Piece
from cotext.serving.translation import Fragment, SplitSentences, TagHandling, fragment
from tests.files.faking import changed, shape
from tests.loops import loop_over

XML, HTML = TagHandling("xml"), TagHandling("html")
PLACEHOLDERS = TagHandling("xml", ignored=frozenset({"x"}))


def read(text: str, tags: TagHandling | None = None, split: SplitSentences | None = None) -> Fragment:
    default: SplitSentences = "nonewlines" if tags is not None and tags.kind == "html" else "1"
    return fragment(text, split or default, tags, "text 1")


def seen(text: str, tags: TagHandling | None = None, split: SplitSentences | None = None) -> list[str]:
    """The blocks of a text, as `shape`."""
    return list(map(shape, read(text, tags, split).blocks))


def loud(text: str, tags: TagHandling | None = None, split: SplitSentences | None = None) -> str:
    """A text in which all that would be translated is in capitals."""
    found = read(text, tags, split)
    [blocks] = changed([found.blocks], str.upper)
    return found.written(blocks)


def test_lines_of_plain_text_are_blocks_unless_asked_otherwise() -> None:
    text = " One. Two.\r\n\r\nThree\rfour\n"
    assert seen(text) == [" One. Two.", "", "Three", "four", ""]
    assert loud(text) == text.upper()
    assert seen(text, split="nonewlines") == [text]
    assert [block.split for block in read(text, split="nonewlines").blocks] == [True]
    assert [block.split for block in read(text, split="0").blocks] == [False]


def test_placeholders_come_back_as_they_were_and_stand_for_words() -> None:
    text = 'Hello <x id="7"></x>, you &amp; <x id="8" /> have {1} <x>two words</x>.'
    assert seen(text, PLACEHOLDERS) == ["Hello <{2}>, you & <{3}> have {1} <two words>."]
    assert (
        loud(text, PLACEHOLDERS) == 'HELLO <x id="7"></x>, YOU &amp; <x id="8" /> HAVE {1} <x>two words</x>.'
    )


def test_what_is_ignored_and_long_is_not_read() -> None:
    text = f"See <x>{'a b ' * 100}</x> there."
    assert seen(text, PLACEHOLDERS) == ["See <{1}> there."]
    assert loud(text, PLACEHOLDERS) == text.replace("See", "SEE").replace("there", "THERE")


def test_elements_beside_text_belong_to_its_sentence_and_others_are_paragraphs() -> None:
    text = "<doc><title>A title</title><par>One <b>two <i>three</i></b>.</par><par><b>Four</b></par></doc>"
    assert seen(text, XML) == ["A title", "One [two [three]].", "Four"]
    assert loud(text, XML).lower() == text.lower()
    # The example of DeepL's specification: the elements are paragraphs, unless they are named.
    text = "<par>The firm said it had been </par><par> conducting an investigation.</par>"
    assert seen(text, XML) == ["The firm said it had been", "conducting an investigation."]
    assert seen(text, replace(XML, not_splitting=frozenset({"par"}))) == [
        "[The firm said it had been ][ conducting an investigation.]"
    ]


def test_without_outline_detection_named_elements_alone_are_paragraphs() -> None:
    text = "<doc><title>A title</title> <par>One</par><par>Two</par></doc>"
    none = replace(XML, outline=False)
    assert seen(text, none) == ["[A title] [One][Two]"]
    assert seen(text, replace(none, splitting=frozenset({"par"}))) == ["A title", "One", "Two"]


def test_line_breaks_end_sentences_of_xml_and_not_of_html() -> None:
    text = "<p>One\n  two <b>three\nfour</b></p>"
    assert seen(text, XML) == ["One<\n>two [three<\n>four]"]
    assert seen(text, XML, "nonewlines") == ["One\n  two [three\nfour]"]
    assert seen(text, HTML) == ["One two [three four]"]
    assert seen(text, HTML, "1") == ["One<\n>two [three<\n>four]"]
    assert loud(text, XML) == "<p>ONE\n  TWO <b>THREE\nFOUR</b></p>"


def test_white_space_around_placeholders_is_text_in_xml() -> None:
    assert seen("A <x/> b", XML) == ["A * b"]
    assert seen("<x/> A <y/>", XML) == ["A"]
    assert loud("  <x/> A  <y/>\n", XML) == "  <x/> A  <y/>\n"


def test_html_is_read_as_pages_are_but_attributes_are_not_text() -> None:
    text = '<h1 title="x">My <code>id</code></h1>\n<p translate="no">Not.</p><img alt="no"><p>Yes<br>yes</p>'
    assert seen(text, HTML) == ["My <id>", "Yes/yes"]
    assert seen("<p>One <x>two</x></p>", replace(HTML, ignored=frozenset({"x"}))) == ["One <two>"]
    assert seen("<p>One <b>two</b></p>", replace(HTML, splitting=frozenset({"b"}))) == ["One", "two"]
    assert seen("<p>One</p><p>two</p>", replace(HTML, not_splitting=frozenset({"p"}))) == ["[One][two]"]


def test_no_element_of_xml_is_known_by_the_name_of_one_of_html() -> None:
    text = "<link>One</link> and <style>two</style> and <title>three</title> <pre>four</pre>"
    assert seen(text, XML) == ["[One] and [two] and [three] [four]"]


@loop_over(
    "text", ["<a>one</b>", "a & b", "a < b", "<a>", "&nbsp;", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>']
)
def test_malformed_xml_is_taken_as_it_is(text: str) -> None:
    found = read(text, XML)
    assert found.written(found.blocks) == text


PARTS = (
    "<a>",
    "</a>",
    "<b c='d>'>",
    "</b>",
    "<x/>",
    "<x></x>",
    "<p>",
    "</p>",
    "<br>",
    "<!-- y -->",
    "one",
    "Two.",
)
SPACES = (" ", "\n", "", "  ", "&amp;", "<", ">", "&", '"')


@loop_over("seed", range(60))
def test_any_text_comes_back_and_its_tags_stay_where_they_are(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice(draw.choice((PARTS, SPACES))) for _ in range(draw.randrange(40)))
    outline, split = draw.random() < 0.5, draw.choice(("0", "1", "nonewlines"))
    tags = TagHandling(draw.choice(("xml", "html")), outline=outline, ignored=frozenset({"x"}))
    found = read(text, tags, split)
    assert found.written(found.blocks) == text
    again = read(loud(text, tags, split), tags, split)
    one, other = ([block.pieces for block in each.blocks] for each in (found, again))
    assert list(map(kinds, other)) == list(map(kinds, one))


def kinds(pieces: Sequence[Piece]) -> list[object]:
    return [type(piece) for piece in pieces if not isinstance(piece, str)]
