"""Checks that need no alignment, as they are told after a translation."""

from pathlib import Path

from cotext.files.bilingual_page import render_page
from cotext.files.mechanical import MechanicalChecks, corpus_in_words, in_words, tag_faults
from cotext.files.translate_blocks import PairedSentence
from tests.loops import loop_over

PAIRS = [
    ("The church is open today.", "Die Kirche ist heute offen."),
    ("The garden is open today.", "Der Garten ist heute offen."),
    ("The bridge is closed today.", "Die Brücke ist heute zu."),
]


@loop_over(
    ("source", "target", "notes"),
    [
        ("Open {0} and %s", "%s und {0} öffnen", []),
        ("Open {0}", "Öffnen", ["missing: {0}"]),
        ("Open", "{0} öffnen", ["not in the source: {0}"]),
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


def test_equal_lines_are_untranslated_only_if_there_is_evidence() -> None:
    pairs = [*PAIRS, ("The garden is closed today.", "The garden is closed today."), ("Hi {0}", "Hallo")]
    places = [f"line {number}" for number in range(1, 6)]
    assert in_words(PAIRS, places[:3]) == ""
    assert in_words(pairs, places) == "untranslated: 1 sentence (line 4); tag: 1 sentence (line 5)"
    same = [("Type image jpeg", "Type image jpeg"), ("Type image png", "Type image png")]
    assert in_words([*PAIRS, *same], ["line"] * 5) == ""
    # If most of the text is equal, there is no other evidence.
    left = [*((source, source) for source, _ in PAIRS), ("The shop is open.", "Der Laden ist offen.")]
    places = [f"line {number}" for number in range(1, 5)]
    assert in_words(left, places) == "untranslated: 3 sentences (line 1, line 2, line 3)"


def test_what_is_kept_everywhere_is_no_fault() -> None:
    pair = (
        "The committee met on Thursday and agreed on a plan for the old harbour.",
        "Am Donnerstag kam der Ausschuss zusammen und einigte sich auf einen Plan für den alten Hafen.",
    )
    assert MechanicalChecks([pair], "de").faults(0) == []
    # "mv", "cp" and names of files are kept everywhere.
    pairs = [(f"mv a{n}.txt cp target", f"mv a{n}.txt cp target") for n in range(4)]
    checks = MechanicalChecks([*PAIRS, *pairs], "de")
    assert not any(checks.faults(number) for number in range(len(PAIRS)))
    pairs = [(f"see the picture images/{n}.png there", f"siehe das Bild bilder/{n}.png dort") for n in "ab"]
    assert [MechanicalChecks([*PAIRS, *pairs], "de").faults(n) for n in (3, 4)] == [[], []]


def test_lists_of_names_have_nothing_to_translate() -> None:
    names = "Aban, Abbas, Bart, Borg, Chamil, Delphine, Electra and Galatea"
    assert MechanicalChecks([*PAIRS, (names, names)], "de").faults(3) == []
    text = "On Monday Abbas and his brother never came to our lovely village."
    [fault] = MechanicalChecks([*PAIRS, (text, text)], "de").faults(3)
    assert fault.kind == "untranslated"


def test_of_two_equal_translations_the_one_that_fits_less_is_the_copy() -> None:
    same = ("Where have all the people gone?", PAIRS[0][1])
    kinds = [[f.kind for f in MechanicalChecks([*PAIRS, same], "de").faults(n)] for n in range(4)]
    assert kinds == [[], [], [], ["copied"]]
    checks = MechanicalChecks([same, *PAIRS], "de", [-5.0, 9.0, 9.0, 9.0])
    assert [[f.kind for f in checks.faults(n)] for n in range(4)] == [["copied"], [], [], []]


def test_faults_are_told_of_a_corpus_and_on_the_bilingual_page(tmp_path: Path) -> None:
    source, out = tmp_path / "s.en", tmp_path / "o.de"
    source.write_text("Open {0}.\n\nGood.\nClose {1}.\n", encoding="utf-8")
    out.write_text("Öffne {0}.\n\nGut.\nSchließe.\n", encoding="utf-8")
    assert corpus_in_words(source, out, "text", "de") == "tag: 1 sentence (2:2)"
    sentence = PairedSentence(0, 0, 0, "Close {1}.", "Schließe.", faults=("tag: missing: {1}",))
    page = render_page("t", ("en", "de"), [sentence], ())
    assert '<span class="note unsure">tag: missing: {1}</span>' in page


def test_a_small_number_that_became_another_is_a_fault() -> None:
    def notes(source: str, target: str) -> list[str]:
        checks = MechanicalChecks([*PAIRS, (source, target)], "de")
        return [fault.note for fault in checks.faults(len(PAIRS)) if fault.kind == "number"]

    assert notes("Take 2 of the 5 pills.", "Nimm 3 der 5 Tabletten.") == ["2 has become 3"]
    assert notes("Take 2 of the 5 pills.", "Nimm zwei der 5 Tabletten.") == []
    assert notes("Chapter 2, page 5.", "Seite 5, Kapitel 2.") == []
    assert notes("At 5:30 in room 07.", "Um 5.30 Uhr in Raum 7.") == []
