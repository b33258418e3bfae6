"""Faults that are found without an alignment, and the messages about them after a translation."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cotext.data.documents import ParallelDocument
from cotext.data.faults import Checks, Fault, add_faults, checked, faults_in_words, tag_faults
from cotext.files.blocks import Close, Copied, Open, Piece, empty_links
from cotext.files.table import file_formats
from tests.command_line import World, succeed
from tests.files.test_docx import document as word
from tests.files.test_docx import run
from tests.loops import loop_over

PAIRS = [
    ("The church is open today.", "Die Kirche ist heute offen."),
    ("The garden is open today.", "Der Garten ist heute offen."),
    ("The bridge is closed today.", "Die Brücke ist heute zu."),
]


def _message(pairs: Sequence[tuple[str, str]]) -> str:
    """The message about a corpus of one document."""
    places: dict[str, list[str]] = {}
    document = ParallelDocument("d", *zip(*pairs, strict=True))
    assert list(checked([document], ("en", "de"), places)) == [document]
    return faults_in_words(places)


@loop_over(
    ("source", "target", "notes"),
    [
        ("Open {0} and %s", "%s und {0} öffnen", []),
        ("Open {0}", "Öffnen", ["missing: {0}"]),
        ("Open", "{0} öffnen", ["not in the source: {0}"]),
        (
            "Open {a} %(b)s",
            "{a}} öffnen %(b %(b)s",
            [f"more often than in the source: {p}" for p in ("}", "%(")],
        ),
        ("<b>Open</b>", "<b>Öffnen", ["missing: </b>"]),
        # A name in brackets, a path or an address may be translated.
        ("a <file>", "eine <Datei>", []),
        ("a <file>", "некий <файл>", []),
        ("see /some/file", "siehe /eine/Datei", []),
        ("see https://a.org/x", "siehe", ["missing: https://a.org/x"]),
        ("see https://a.org/x", "siehe https://a.org", ["missing: https://a.org/x"]),
        ("&name;", "&name-genitive;", []),
    ],
)
def test_tags(source: str, target: str, notes: list[str]) -> None:
    assert [fault.note for fault in tag_faults(source, target)] == notes


def test_equal_lines_are_untranslated_only_if_their_words_are_translated_elsewhere() -> None:
    assert _message(PAIRS) == ""
    pairs = [*PAIRS, ("The garden is closed today.", "The garden is closed today."), ("Hi {0}", "Hallo")]
    assert _message(pairs) == "untranslated: 1 sentence (d:4); tag: 1 sentence (d:5)"
    same = [("Type image jpeg", "Type image jpeg"), ("Type image png", "Type image png")]
    assert _message([*PAIRS, *same]) == ""
    # If most of the text is equal, there is no other evidence.
    left = [*((source, source) for source, _ in PAIRS), ("The shop is open.", "Der Laden ist offen.")]
    assert _message(left) == "untranslated: 3 sentences (d:1, d:2, d:3)"


def kinds(*pairs: tuple[str, str], languages: tuple[str, str] = ("", "de")) -> list[list[str]]:
    """The kinds of faults of pairs among others."""
    checks = Checks([*PAIRS, *pairs], languages)
    return [[fault.kind for fault in checks.faults(len(PAIRS) + n)] for n in range(len(pairs))]


def test_one_long_sentence_is_too_little_to_tell_languages_apart() -> None:
    pair = (
        "The committee met on Thursday and agreed on a plan for the old harbour.",
        "Am Donnerstag kam der Ausschuss zusammen und einigte sich auf einen Plan für den alten Hafen.",
    )
    assert Checks([pair], ("", "de")).faults(0) == []


def test_what_may_stay_as_it_is_is_no_fault() -> None:
    # "mv", "cp" and names of files are kept everywhere.
    code = [(f"mv a{n}.txt cp target", f"mv a{n}.txt cp target") for n in range(4)]
    checks = Checks([*PAIRS, *code], ("", "de"))
    assert not any(checks.faults(number) for number in range(len(PAIRS)))
    # Lists of names have nothing to translate.
    names = "Aban, Abbas, Bart, Borg, Chamil, Delphine, Electra and Galatea"
    text = "On Monday Abbas and his brother never came to our lovely village."
    assert kinds((names, names), (text, text)) == [[], ["untranslated"]]
    # Texts that differ only in what is copied are not equal.
    pictures = [
        (f"see the picture images/{n}.png there", f"siehe das Bild bilder/{n}.png dort") for n in "ab"
    ]
    assert kinds(*pictures) == [[], []]
    # Sentences of one language.
    pair = PAIRS[0][0], "The church is open today."
    assert kinds(pair, languages=("en", "en")) == [[]]


def test_of_two_equal_translations_the_one_that_fits_less_is_the_copy() -> None:
    same = ("Where have all the people gone?", PAIRS[0][1])
    kinds = [[f.kind for f in Checks([*PAIRS, same], ("", "de")).faults(n)] for n in range(4)]
    assert kinds == [[], [], [], ["copied"]]
    checks = Checks([same, *PAIRS], ("", "de"), [-5.0, 9.0, 9.0, 9.0])
    assert [[f.kind for f in checks.faults(n)] for n in range(4)] == [["copied"], [], [], []]


def test_content_that_a_translation_lacks() -> None:
    checks = Checks([*PAIRS, ("| dog | 35 |", "Hund |"), ("dog", "| Hund |")], ("en", "de"))
    assert checks.faults(4) == []
    found = checks.faults(3, links=2)
    assert [(fault.kind, fault.note) for fault in found] == [
        ("number", "missing: 35"),
        ("link", "has no text"),
        ("link", "has no text"),
        ("separator", "missing: separator of table cells"),
    ]
    # A number in text that is copied in any case is not missing.
    assert [fault.kind for fault in checks.faults(3, "| dog |")] == ["separator"]


def test_places_are_counted_by_sentence_and_those_of_links_by_link() -> None:
    places: dict[str, list[str]] = {}
    for line in (3, 3, 4, 5, 6, 7, 8):
        add_faults(places, f"line {line}", [Fault("number", 1, ""), Fault("number", 1, "")])
    add_faults(places, "line 3", [Fault("link", 1, "")])
    assert faults_in_words(places) == (
        "numbers missing in 7 sentences (line 3, line 4, line 5, line 6, line 7 ...); "
        "1 link has no text (line 3)"
    )
    add_faults(places, "line 9", [Fault("link", 1, "")] * 2)
    assert faults_in_words(places).endswith("; 3 links have no text (line 3, line 9)")


def test_a_small_number_that_became_another_is_a_fault() -> None:
    pills = ("Take 2 of the 5 pills.", "Nimm 3 der 5 Tabletten.")
    assert [fault.note for fault in Checks([*PAIRS, pills], ("", "de")).faults(3)] == ["2 has become 3"]
    for source, target in (
        ("Take 2 of the 5 pills.", "Nimm zwei der 5 Tabletten."),
        ("Chapter 2, page 5.", "Seite 5, Kapitel 2."),
        ("At 5:30 in room 07.", "Um 5.30 Uhr in Raum 7."),
    ):
        assert kinds((source, target)) == [[]]


def test_links_without_text() -> None:
    link: list[Piece] = ["see ", Open(1, link=True), "the dog", Close(1), Open(2), "now", Close(2)]
    assert empty_links(link, ["der Hund ", Open(1), Close(1), Open(2), Close(2)]) == 1
    assert empty_links(link, ["der ", Open(1), " ", Open(2), "Hund", Close(2), Close(1)]) == 0
    assert empty_links(link, [Open(1), Copied(3, "x"), Close(1), Open(2), Close(2)]) == 0
    assert empty_links([Open(1, link=True), " ", Close(1)], [Open(1), Close(1)]) == 0


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("markdown", b"see *this* [link](x) now"),
        ("html", b"<html><body><p>see <b>this</b> <a href='x'>link</a> now</p></body></html>"),
        (
            "docx",
            word(
                f"<w:p>{run('see ')}{run('this', '<w:b/>')}{run(' ')}"
                f'<w:hyperlink w:anchor="x">{run("link")}</w:hyperlink>{run(" now")}</w:p>'
            ),
        ),
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
    assert (
        "numbers missing in 1 sentence (line 1); table separators missing in 1 sentence (line 1)" in done.out
    )
    empty = out.count("[](")
    assert ("no text (line 3)" in done.out) == (empty > 0)
    content = page.read_text(encoding="utf-8")
    assert "Compare with the source: numbers missing in 1 sentence (no. 1)" in content
    assert '<span class="note unsure">number: missing: 1998</span>' in content
    corpus = tmp_path / "corpus.en"
    corpus.write_text("the dog sees 1998 cats\na dog\n")
    done = succeed("translate", world.run, corpus, "--out", tmp_path / "corpus.de")
    assert "numbers missing in 1 sentence (1:1)" in done.out


def test_unknown_words_are_copied_and_a_person_never_reads_their_substitutes(
    world: World, tmp_path: Path
) -> None:
    source, memory, page = tmp_path / "a.md", tmp_path / "m.tmx", tmp_path / "page.html"
    source.write_text("The dog sees \U0001f600 and \u041c\u0430.\n", encoding="utf-8")
    done = succeed("translate", world.run, source, "--out", tmp_path / "b.md", "--bilingual", memory)
    assert "their characters: \U0001f600, \u041c\u0430" in done.err
    texts = [(tmp_path / "b.md").read_text("utf-8"), memory.read_text("utf-8")]
    assert [text.count("\U0001f600") for text in texts] == [1, 2]
    given = texts[0].strip()
    memory.write_text(texts[1].replace(given, f"Da {given}"), encoding="utf-8")
    succeed(
        *("translate", world.run, source, "--out", tmp_path / "c.md"),
        *("--memory", memory, "--bilingual", page),
    )
    assert (tmp_path / "c.md").read_text("utf-8") == f"Da {given}\n"
    assert f"Da {given}" in page.read_text("utf-8")
