"""Sheets for raters: blind, in an order by a seed, each sentence with what stands before it."""

import csv
import json
from pathlib import Path

import pytest
from command_line import cotext

from cotext.analysis.selection import RankedSentence, Selection, WordGain
from cotext.data.documents import Document, ParallelDocument
from cotext.reports.evaluation_sheet import SheetSettings, key_of, sheet_items, write_sheet
from cotext.runtime.errors import CotextError

COUNT = 12
SOURCE = tuple(f"s{j}" for j in range(COUNT))
DOCUMENTS = [ParallelDocument("doc-one", SOURCE, tuple(f"r{j}" for j in range(COUNT)))]
SYSTEMS = {
    "secret-a.de": [Document("doc-one", tuple(f"a{j}" for j in range(COUNT)))],
    "secret-b.de": [Document("doc-one", tuple(f"b{j}" for j in range(COUNT)))],
}


def selection(documents: list[ParallelDocument]) -> Selection:
    gain = (WordGain("x", 1.0, 1, True),)
    ranked = tuple(
        RankedSentence(n, j, 1, 1.0, gain, ()) for n, d in enumerate(documents) for j in range(len(d))
    )
    return Selection(documents, ranked, "model:tiny")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", ["csv", "html"])
def test_a_sheet_tells_neither_systems_nor_documents(tmp_path: Path, kind: str) -> None:
    sheet = tmp_path / f"sheet.{kind}"
    assert write_sheet(sheet, selection(DOCUMENTS), SYSTEMS, SheetSettings(top=8)) == 8
    text = sheet.read_text()
    assert "secret" not in text
    assert "doc-one" not in text
    assert "model:tiny" not in text
    key = json.loads(key_of(sheet).read_text())
    assert key["signature"] == "model:tiny|top:8|before:3|seed:1"
    assert [item["item"] for item in key["items"]] == list(range(1, 9))
    assert sorted(item["rank"] for item in key["items"]) == list(range(1, 9))


def test_the_key_tells_what_a_row_is(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    write_sheet(sheet, selection(DOCUMENTS), SYSTEMS, SheetSettings(top=COUNT, before=2))
    key = {item["item"]: item for item in json.loads(key_of(sheet).read_text())["items"]}
    found = rows(sheet)
    assert len(found) == 2 * COUNT
    for row in found:
        item = key[int(row["item"])]
        j = item["sentence"] - 1
        letter = item["translations"][row["translation"]][len("secret-")]
        assert row["source"] == f"s{j}"
        assert row["text"] == f"{letter}{j}"
        before = range(max(0, j - 2), j)
        assert row["source before"].split() == [f"s{i}" for i in before]
        assert row["translation before"].split() == [f"{letter}{i}" for i in before]
        assert row["rating"] == row["remark"] == ""
    # Neither in the order of ranks, nor one system always first.
    assert [item["rank"] for item in key.values()] != sorted(item["rank"] for item in key.values())
    assert {item["translations"]["A"] for item in key.values()} == set(SYSTEMS)


def test_orders_follow_the_seed() -> None:
    def order(seed: int) -> list[tuple[int, tuple[str, ...]]]:
        items = sheet_items(selection(DOCUMENTS), SYSTEMS, SheetSettings(COUNT, seed=seed))
        return [(item.rank, tuple(name for name, _ in item.translations.values())) for item in items]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_without_systems_the_references_are_rated(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    write_sheet(sheet, selection(DOCUMENTS), {}, SheetSettings(top=3))
    assert sorted(row["text"] for row in rows(sheet)) == ["r0", "r1", "r2"]
    assert {row["translation"] for row in rows(sheet)} == {"A"}


def test_a_table_begins_with_what_excel_knows_utf_8_by(tmp_path: Path) -> None:
    table, page = tmp_path / "sheet.csv", tmp_path / "sheet.html"
    documents = [ParallelDocument("d", ("Größe — 大小",), ("ß",))]
    for path in (table, page):
        write_sheet(path, selection(documents), {}, SheetSettings(top=1))
    assert table.read_bytes().startswith(b"\xef\xbb\xbfitem,translation,")
    assert table.read_bytes().count(b"\xef\xbb\xbf") == 1
    assert [row["source"] for row in rows(table)] == ["Größe — 大小"]
    assert b"\xef\xbb\xbf" not in page.read_bytes() + key_of(table).read_bytes()


def test_texts_are_texts(tmp_path: Path) -> None:
    """No formula for a spreadsheet, no element for a browser."""
    source = ("=HYPERLINK(1)", "<script>x</script>", '"a", b')
    documents = [ParallelDocument("d", source, ("-1", "@x", "<b>"))]
    table, page = tmp_path / "sheet.csv", tmp_path / "sheet.html"
    for path in (table, page):
        write_sheet(path, selection(documents), {}, SheetSettings(top=3))
    by_source = {row["source"]: row for row in rows(table)}
    assert by_source["'=HYPERLINK(1)"]["text"] == "'-1"
    assert by_source['"a", b']["text"] == "<b>"
    assert by_source['"a", b']["source before"] == "'=HYPERLINK(1)\n<script>x</script>"
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;" in page.read_text()


@pytest.mark.parametrize("there", ["sheet.csv", "sheet.key.json"])
def test_what_raters_filled_in_and_its_key_stay(tmp_path: Path, there: str) -> None:
    """The key of sheet.html is of sheet.csv, too: another seed would make it tell lies."""
    (tmp_path / there).write_text("rated")
    done = cotext(
        "select", tmp_path / "run", "--source", tmp_path / "d.en", "--sheet", tmp_path / "sheet.csv"
    )
    assert f"{there}: exists, of a sheet that may be rated" in done.err
    assert (tmp_path / there).read_text() == "rated"


def test_other_documents_are_refused(tmp_path: Path) -> None:
    shorter = {"x.de": [Document("doc-one", ("a",))]}
    with pytest.raises(CotextError, match=r"x.de: document 'doc-one': 1 hypothesis sentences, 12"):
        sheet_items(selection(DOCUMENTS), shorter, SheetSettings(1))
    with pytest.raises(CotextError, match=r"27 systems: a sheet has at most 26"):
        sheet_items(
            selection(DOCUMENTS), {str(n): SYSTEMS["secret-a.de"] for n in range(27)}, SheetSettings(1)
        )
    with pytest.raises(CotextError, match=r"sheet.txt: a sheet is a page or a table"):
        key_of(tmp_path / "sheet.txt")
