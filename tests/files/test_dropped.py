"""Content that a translation drops: numbers in other notations, table separators, texts of links."""

from pathlib import Path

import pytest

from cotext.files.blocks import Close, Copied, Open, Piece, empty_links
from cotext.files.table import file_formats
from cotext.translation.dropped import Dropped, dropped, dropped_numbers
from tests.command_line import World, succeed
from tests.files.test_docx import document as word
from tests.files.test_docx import run
from tests.loops import loop_over


@loop_over(
    ("source", "target"),
    [
        ("It cost 1,000.5 euros.", "Es kostete 1.000,5 Euro."),
        ("It cost 1,000.5 euros.", "Il a coûté 1 000,5 euros."),
        ("It cost 12,345,678 euros.", "Es kostete 12\u202f345\u202f678 Euro."),
        ("It cost 1,234 francs.", "Es kostete 1’234 Franken."),
        ("1,500,000 people", "1,5 Millionen Menschen"),
        ("1,500,000 people", "150万人"),
        ("2.5 million people", "250万人"),
        ("50,000 people", "5万人"),
        ("10,00,000 rupees", "1,000,000 Rupien"),
        ("a price of 1.50", "ein Preis von 1,5"),
        ("on 11/24/2026", "am 24.11.2026"),
        ("on 24.11.2026", "le 24 novembre 2026"),
        ("2026-11-03", "3. November 2026"),
        ("at 09:05", "um 9.05 Uhr"),
        ("three of 7 dogs, 20 cats, 100 fish", "drei von sieben Hunden, zwanzig Katzen, hundert Fische"),
        ("in the 1990s", "in den 90er Jahren"),
        ("from 1990–95", "von 1990–1995"),
        ("in the 21st century", "au XXIe siècle"),
        ("in 1998", "一九九八年"),
        ("35 people", "三十五人"),
        ("في ٢٠٢٤", "in 2024"),
        ("in 2024", "２０２４年に"),
        ("in 2024 150 people", "2024 150 Personen"),
        ("007", "7"),
        ("no number", "keine Zahl"),
    ],
)
def test_numbers_in_other_notations_are_there(source: str, target: str) -> None:
    assert dropped_numbers(source, target) == []


@loop_over(
    ("source", "target", "numbers"),
    [
        ("It cost 1,000.5 euros.", "Es kostete 1.000,6 Euro.", ["1,000.5"]),
        ("In 1998 it cost 45 %.", "1998 kostete es viel.", ["45"]),
        ("In 1998 it cost 45 %.", "Damals kostete es viel.", ["1998", "45"]),
        ("a price of 3.5", "ein Preis", ["3.5"]),
        ("5", "der", ["5"]),
        ("100", "der", ["100"]),
        ("2026-11-03", "gestern", ["2026", "11", "03"]),
        ("chapter 35", "Kapitel 3", ["35"]),
        ("chapter 45", "Kapitel 450", ["45"]),
        ("٣٥ كلبا", "Hunde", ["٣٥"]),
    ],
)
def test_numbers_that_are_not_there(source: str, target: str, numbers: list[str]) -> None:
    assert dropped_numbers(source, target) == numbers


def test_separators_and_links_without_text() -> None:
    assert not dropped("the dog", "der Hund")
    found = dropped("| dog | 35 |", "Hund |", links=2)
    assert found == Dropped(("35",), 2, 2)
    assert found.notes() == ["missing: 35", "missing: table separator", "link without text"]
    assert not dropped("dog", "| Hund |")
    link: list[Piece] = ["see ", Open(1, link=True), "the dog", Close(1), Open(2), "now", Close(2)]
    assert empty_links(link, ["der Hund ", Open(1), Close(1), Open(2), Close(2)]) == 1
    assert empty_links(link, ["der ", Open(1), " ", Open(2), "Hund", Close(2), Close(1)]) == 0
    assert empty_links(link, [Open(1), Copied(3, "x"), Close(1), Open(2), Close(2)]) == 0
    assert empty_links([Open(1, link=True), " ", Close(1)], [Open(1), Close(1)]) == 0


LINK = f'<w:hyperlink w:anchor="x">{run("link")}</w:hyperlink>'


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("markdown", b"see *this* [link](x) now"),
        ("html", b"<html><body><p>see <b>this</b> <a href='x'>link</a> now</p></body></html>"),
        ("docx", word(f"<w:p>{run('see ')}{run('this', '<w:b/>')}{run(' ')}{LINK}{run(' now')}</w:p>")),
    ],
)
def test_links_are_known(format: str, content: bytes) -> None:
    [[block]] = file_formats()[format].open(content, "a file").contents.documents
    this, link = (piece for piece in block.pieces if isinstance(piece, Open))
    assert (this.link, link.link) == (False, True)


def test_told_after_a_file_and_on_its_page(world: World, tmp_path: Path) -> None:
    source, page = tmp_path / "page.md", tmp_path / "page.html"
    source.write_text("The dog sees 1998 cats | a bird.\n\nSee [the](a) [red](b) [fish](c) [dog](d).\n")
    done = succeed("translate", world.run, source, "--out", tmp_path / "out.md", "--bilingual", page)
    out = (tmp_path / "out.md").read_text()
    assert "1998" not in out.splitlines()[0]
    separators = "table separators missing in 1 sentence (line 1)"
    assert f"numbers missing in 1 sentence (line 1); {separators}" in done.out
    empty = out.count("[](")
    assert ("no text (line 3)" in done.out) == (empty > 0)
    content = page.read_text(encoding="utf-8")
    assert "Compare with the source: numbers missing in 1 sentence (no. 1)" in content
    assert '<span class="note unsure">missing: 1998</span>' in content
    corpus = tmp_path / "corpus.en"
    corpus.write_text("the dog sees 1998 cats\na dog\n")
    done = succeed("translate", world.run, corpus, "--out", tmp_path / "corpus.de")
    assert "numbers missing in 1 sentence (1:1)" in done.out
