"""Glossaries from every kind of file, their matching, the constraints that follow, and term accuracy."""

from pathlib import Path

import pytest

from cotext.data.words import is_boundary, occurrences, words_of
from cotext.translation.terms.terms import (
    Glossary,
    SentenceConstraints,
    Term,
    TermGuide,
    read_words,
    term_report,
)
from tests.cli.test_foreign import written
from tests.refusals import must_raise

TSV = """\ufeffsource\ttarget\tforbidden\tnotes
# comment
table\tTabelle|Übersicht\tTisch\tin documents
mobile phone\tMobiltelefon\tHandy | Telefon
bank\t\tBank
"""
CSV = 'table,"Tabelle|U\u0308bersicht",Tisch\n"bed, double",Doppelbett\n'
TBX = """<?xml version="1.0"?>
<tbx style="dct" type="TBX-Basic" xmlns="urn:iso:std:iso:30042:ed-2"><text><body>
<conceptEntry id="1">
 <langSec xml:lang="en-GB"><termSec><term>mobile phone</term></termSec></langSec>
 <langSec xml:lang="de"><termSec><term>Mobiltelefon</term>
  <termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></termSec>
  <termSec><term>Handy</term>
  <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></termSec>
 </langSec>
 <langSec xml:lang="fr"><termSec><term>portable</term></termSec></langSec>
</conceptEntry></body></text></tbx>
"""
OLD_TBX = """<martif type="TBX"><text><body><termEntry id="1">
<langSet xml:lang="en"><tig><term>table</term></tig></langSet>
<langSet xml:lang="de"><ntig><termGrp><term>Tabelle</term></termGrp></ntig></langSet>
</termEntry></body></text></martif>
"""


def test_glossaries_are_read_from_tables_and_tbx(tmp_path: Path) -> None:
    assert Glossary.read(written(tmp_path, "a.tsv", TSV)).terms == (
        Term("table", ("Tabelle", "Übersicht"), ("Tisch",)),
        Term("mobile phone", ("Mobiltelefon",), ("Handy", "Telefon")),
        Term("bank", (), ("Bank",)),
    )
    assert Glossary.read(written(tmp_path, "a.csv", CSV)).terms == (
        Term("table", ("Tabelle", "Übersicht"), ("Tisch",)),
        Term("bed, double", ("Doppelbett",)),
    )
    # Two lines of one term are alternatives, not a line that counts and one that is ignored.
    [bank] = Glossary.read(written(tmp_path, "b.tsv", "bank\tBank\tKasse\nbank\tUfer|Bank\n")).terms
    assert bank == Term("bank", ("Bank", "Ufer"), ("Kasse",))
    assert Glossary.of({"table": "Tabelle", "bed": ("Bett", "Liege")}).terms[1].targets == ("Bett", "Liege")
    pytest.importorskip("lxml")
    [phone] = Glossary.read(written(tmp_path, "a.tbx", TBX), "en", "de").terms
    assert phone == Term("mobile phone", ("Mobiltelefon",), ("Handy",))
    [table] = Glossary.read(written(tmp_path, "b.tbx", OLD_TBX), "en", "de-AT").terms
    assert table == Term("table", ("Tabelle",))


def test_a_damaged_glossary_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    must_raise("line 1: there is no tab", Glossary.read, written(tmp_path, "a.tsv", "table Tabelle\n"))
    empty = written(tmp_path, "a.tsv", "a\tb\ntable\t\n")
    must_raise("line 2: the term 'table' needs", Glossary.read, empty)
    pytest.importorskip("lxml")
    must_raise("no termEntry", Glossary.read, written(tmp_path, "a.tbx", "<html/>"), "en", "de")
    tbx = written(tmp_path, "a.tbx", TBX)
    must_raise("no concept has terms in en and pl", Glossary.read, tbx, "en", "pl")
    (tmp_path / "b.tsv").write_bytes(b"a\tb\xff")
    must_raise(r"not a text in UTF-8 \(byte 3\)", Glossary.read, tmp_path / "b.tsv")
    words = written(tmp_path, "words.txt", "# names\nNew York\n\nCotext\n")
    assert read_words(words) == ("New York", "Cotext")


def found(text: str, terms: dict[str, str], **options: object) -> list[tuple[str, ...]]:
    guide = TermGuide([[text]], Glossary.of(terms), **options)  # type: ignore[arg-type]
    return list(guide.constraints(0, 0).required)


def test_terms_are_found_as_whole_words_the_longest_first() -> None:
    terms = {"New York": "Neu York", "New York Times": "NYT", "table": "Tabelle"}
    assert found("The New York Times of New York.", terms) == [("NYT",), ("Neu York",)]
    assert found("The tables and a timetable.", terms) == []
    assert found("Our table, table.", terms) == [("Tabelle",)] * 2
    assert found("Table of contents: see Table 3.", terms) == [("Tabelle",)]  # at the beginning alone
    assert found("SEE TABLE", terms) == [("TABELLE", "Tabelle")]
    assert found("See https://a.b/table here.", terms, copied=[[["https://a.b/table"]]]) == []
    assert found("die Übersicht", {"Übersicht": "table"}) == [("table", "Table")]


def test_kept_and_forbidden_words() -> None:
    guide = TermGuide([["We use Cotext and cotext."]], keep=("Cotext",))
    assert guide.constraints(0, 0).required == (("Cotext",),)
    glossary = Glossary((Term("table", ("Tabelle",), ("Tisch", "Tabelle")), Term("bank", (), ("Bank",))))
    guide = TermGuide([["a table", "a chair", "a bank"]], glossary)
    assert guide.constraints(0, 0) == SentenceConstraints((("Tabelle",),), ("Tisch",))
    assert guide.constraints(0, 1) == SentenceConstraints()
    assert guide.constraints(0, 2) == SentenceConstraints((), ("Bank",))


def test_a_copied_text_within_another_has_its_own_place() -> None:
    copied = ["config", "config.yaml", "config"]
    guide = TermGuide([["Edit config.yaml, config and config"]], copied=[[copied]])
    assert guide.constraints(0, 0).places == ((18, 24), (5, 16), (29, 35))


def test_words_and_their_boundaries() -> None:
    words = " ".join(w.text for w in words_of("Anna's (new) 北京 B-2"))
    assert words == "Anna ' s ( new ) 北 京 B - 2"
    assert is_boundary("", "a")
    assert not is_boundary("é", "a")
    assert list(occurrences("rat Rate rat, (rat)", ["rat", "rat,"])) == [(0, "rat"), (9, "rat,"), (15, "rat")]
    assert list(occurrences("我在北京", ["北京"])) == [(2, "北京")]
    assert list(occurrences("5%dpx %s.", ["%d", "%s"])) == [(1, "%d"), (6, "%s")]


def test_term_accuracy_worked_by_hand() -> None:
    glossary = Glossary((Term("table", ("Tabelle", "Übersicht"), ("Tisch",)), Term("bed", ("Bett",))))
    documents = [["a table and a table", "a bed", "the table {0}"]]
    guide = TermGuide(documents, glossary, copied=[[[], [], ["{0}"]]])
    report = term_report(guide, {0: ["Tabelle und Tisch", "die Tabelle im Bett", "Übersicht {0}"]})
    assert (report.required, report.met, report.forbidden) == (4, 3, 1)
    assert (report.copied, report.kept) == (1, 1)
    assert report.unmet == [(0, 0)]
    told = "terms: 3 of 4 kept (75.0%); forbidden translations: 1; copied text: 1 of 1"
    assert str(report) == told
