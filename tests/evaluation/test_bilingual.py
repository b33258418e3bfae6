"""The bilingual page: what it shows, that text stays text, and the influence of context."""

import re
from html.parser import HTMLParser

import pytest
import torch

from cotext.data.documents import ParallelDocument
from cotext.evaluation.studies.context.context_use import context_influences
from cotext.files.bilingual_page import render_page
from cotext.files.translate_blocks import PairedSentence
from cotext.translation.translator import DocumentTranslator
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window

NASTY = "</td><script>alert(1)</script> \"quoted\" 'single' &amp; <b onclick=x()>"
VOID = ("meta", "br", "link")


class Page(HTMLParser):
    """The text of the page, its ids and links; nothing that runs or is fetched."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "iframe", "link", "b")
        for name, value in attrs:
            assert name != "src"
            assert not name.startswith("on")
            self.attributes.append((name, value or ""))
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def sentence(number: int, **other: object) -> PairedSentence:
    fields: dict[str, object] = {"document": 0, "block": 0, "source": f"s{number}", "target": f"t{number}"}
    return PairedSentence(number=number, **{**fields, "confidence": 0.5 + number / 100, **other})  # type: ignore[arg-type]


def page_of(sentences: list[PairedSentence], **other: object) -> tuple[str, Page]:
    page = render_page("a.txt", ("en", "de"), sentences, [("file", "a.txt")], **other)  # type: ignore[arg-type]
    return page, Page(page)


def test_everything_that_a_file_says_is_text() -> None:
    nasty = sentence(0, source=NASTY, target=NASTY, terms=(NASTY,), visible=range(2))
    page = render_page(
        NASTY, ('x" onload="y', "de"), [nasty, sentence(1, visible=range(2))], [("file", NASTY)]
    )
    read = Page(page)
    assert "".join(read.texts).count(NASTY) >= 6  # title, heading, both sides, the term, the file
    assert ("lang", 'x" onload="y') in read.attributes


def test_a_pair_has_a_number_to_be_linked_and_reached_by() -> None:
    _, read = page_of([sentence(j) for j in range(4)])
    assert read.ids == ["s1", "s2", "s3", "s4"]
    assert [link for link in read.links if link.startswith("#")] == ["#s1", "#s2", "#s3", "#s4"]


def test_the_tenth_of_which_the_model_is_least_sure_is_marked() -> None:
    page, read = page_of([sentence(j) for j in range(20)])
    assert re.findall(r"unsure: [\d.]+", page) == ["unsure: 0.50", "unsure: 0.51"]
    assert "with the lowest confidence" in "".join(read.texts)
    assert "lowest confidence" not in page_of([sentence(j) for j in range(9)])[0]


def test_memory_terms_and_paragraphs_are_told() -> None:
    page, read = page_of(
        [sentence(0, taken=True, confidence=None), sentence(1, terms=("Haus",)), sentence(2, block=1)]
    )
    text = " ".join(read.texts)
    assert "taken from the translation memory (1)" in text
    assert "term: Haus" in text
    assert len(re.findall(r'<tr id="s\d" class=first>', page)) == 2
    assert "thick line" in text


def test_context_that_was_visible_can_be_opened() -> None:
    page, _ = page_of([sentence(j, visible=range(max(0, j - 2), j + 1)) for j in range(4)])
    rows = page.split("<tr id=")[1:]
    assert [row.count("<li") for row in rows] == [0, 1, 2, 2]
    assert '<li value="2">s1<br>' in rows[3]
    long = [sentence(j, visible=range(12)) for j in range(12)]
    assert 'sentences <a href="#s2">2</a> to <a href="#s12">12</a>' in page_of(long)[0]


def test_influence_is_shown_largest_first() -> None:
    sentences = [sentence(j, visible=range(j + 1)) for j in range(12)]
    explained = [[(i, (i + 1) / 4 * (-1) ** i) for i in reversed(range(j))] for j in range(12)]
    page, read = page_of(sentences, explained=explained)
    rows = page.split("<tr id=")[1:]
    assert "<details>" not in rows[0]
    assert re.findall(r'<li value="(\d+)"><span class="note">([^<]+)', rows[3]) == [
        ("3", "+0.75"),
        ("2", "-0.50"),
        ("1", "+0.25"),
    ]
    assert rows[11].count("<li") == 8
    assert "and 3 of less influence" in rows[11]
    assert "change the probability" in "".join(read.texts)


TOKENIZER = PlainWordTokenizer(["a", "b", "c", "d", "e", "f"])


@pytest.mark.parametrize("before", [0, 2])
def test_influence_is_the_change_of_the_log_probability_without_a_sentence(before: int) -> None:
    config = tiny_config(view=window(before) if before else {})
    model = random_model(config, TOKENIZER).double().eval()
    system = DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))
    texts = [[("a b", "c"), ("d", "e f"), ("b c", "a")], [("f", "f"), ("e", "d d")]]
    pairs = [
        PairedSentence(n, 0, j, *pair)
        for n, of_document in enumerate(texts)
        for j, pair in enumerate(of_document)
    ]
    found = context_influences(system, pairs)
    assert [sorted(i for i, _ in each) for each in found] == (
        [[], [0], [0, 1], [], [3]] if before else [[], [], [], [], []]
    )
    if not before:
        return
    sides = list(zip(*texts[0], strict=True))
    whole = ParallelDocument("0", *sides)
    less = ParallelDocument("0", *(side[1:] for side in sides))
    [[with_it]], [[without]] = ([system.score([document])[0][-1:]] for document in (whole, less))
    nats = dict(found[2])[0]
    assert nats == pytest.approx(with_it.log_probability - without.log_probability)
    assert nats != 0
    assert abs(found[2][0][1]) >= abs(found[2][1][1])
