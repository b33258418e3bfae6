"""The bilingual page: what it shows, and that text stays text."""

import re

from cotext.files.bilingual_page import render_page
from cotext.files.translate_blocks import PairedSentence
from tests.pages import Page

NASTY = "</td><script>alert(1)</script> \"quoted\" 'single' &amp; <b onclick=x()>"


def sentence(number: int, **other: object) -> PairedSentence:
    fields: dict[str, object] = {"document": 0, "block": 0, "source": f"s{number}", "target": f"t{number}"}
    return PairedSentence(number=number, **{**fields, "confidence": 0.5 + number / 100, **other})  # type: ignore[arg-type]


def page_of(sentences: list[PairedSentence]) -> tuple[str, Page]:
    page = render_page("a.txt", ("en", "de"), sentences, [("file", "a.txt")])
    return page, Page(page)


def test_everything_that_a_file_says_is_text() -> None:
    nasty = sentence(0, source=NASTY, target=NASTY, terms=(NASTY,))
    page = render_page(NASTY, ('x" onload="y', "de"), [nasty, sentence(1)], [("file", NASTY)])
    read = Page(page)
    assert "".join(read.texts).count(NASTY) >= 6  # title, heading, both sides, the term, the file
    assert ("lang", 'x" onload="y') in read.attributes


def test_pairs_have_numbers_and_a_tenth_of_them_a_mark() -> None:
    _, read = page_of([sentence(j) for j in range(4)])
    assert read.ids == ["s1", "s2", "s3", "s4"]
    assert [link for link in read.links if link.startswith("#")] == ["#s1", "#s2", "#s3", "#s4"]
    page, read = page_of([sentence(j) for j in range(20)])
    assert re.findall(r"unsure: [\d.]+", page) == ["unsure: 0.50", "unsure: 0.51"]
    assert "with the lowest confidence" in "".join(read.texts)
    assert "lowest confidence" not in page_of([sentence(j) for j in range(9)])[0]


def test_memory_terms_and_paragraphs_are_told() -> None:
    memory, term = sentence(0, taken=True, confidence=None), sentence(1, terms=("Haus",))
    page, read = page_of([memory, term, sentence(2, block=1)])
    text = " ".join(read.texts)
    assert "taken from the translation memory (1)" in text
    assert "term: Haus" in text
    assert len(re.findall(r'<tr id="s\d" class=first>', page)) == 2
    assert "thick line" in text
