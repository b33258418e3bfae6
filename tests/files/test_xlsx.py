import random
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import openpyxl
import pytest
from faking import (
    assert_damage_is_survived,
    assert_well_formed,
    changed,
    members,
    packed,
    shape,
    shouted,
    shuffled,
    texts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from openpyxl.worksheet.table import Table
from test_pptx import relations

from cotext.files.table import recognise
from cotext.files.xlsx import FORMAT
from cotext.runtime.errors import CotextError

NAME = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(strings: list[str], cells: str) -> bytes:
    return packed(
        {
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{NAME}" xmlns:r="http://schemas.openxmlformats.org/officeDocument/'
            '2006/relationships"><sheets><sheet name="S" r:id="r0"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                ("worksheet", "sheet.xml"), ("sharedStrings", "strings.xml")
            ),
            "xl/sheet.xml": f'<worksheet xmlns="{NAME}"><sheetData><row>{cells}</row></sheetData>'
            "</worksheet>",
            "xl/strings.xml": f'<sst xmlns="{NAME}">{"".join(f"<si>{each}</si>" for each in strings)}</sst>',
        }
    )


def cell(reference: str, number: object) -> str:
    return f'<c r="{reference}" t="s"><v>{number}</v></c>'


def run(text: str, properties: str = "") -> str:
    return f'<r>{properties and f"<rPr>{properties}</rPr>"}<t xml:space="preserve">{text}</t></r>'


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        ("<t>plain</t>", "plain", '<t xml:space="preserve">PLAIN</t>'),
        (run("so ") + run("bold", "<b/>") + run(" it is"), "so [bold] it is", None),
        ("<t>two\nlines</t>", "two<\n>lines", '<t xml:space="preserve">TWO\nLINES</t>'),
        ("<t>two_x000D_\nlines</t>", "two<\r\n>lines", '<t xml:space="preserve">TWO_x000D_\nLINES</t>'),
        ("<t>a_x005F_x0041_</t>", "a_x0041_", '<t xml:space="preserve">A_X0041_</t>'),
        ("<t>read</t><rPh sb='0'><t>aloud</t></rPh>", "read", '<t xml:space="preserve">READ</t>'),
    ],
)
def test_what_a_text_holds(text: str, expected: str, written: str | None) -> None:
    content = workbook([text], cell("A1", 0))
    file = FORMAT.open(content, "a.xlsx")
    assert_well_formed(file)
    assert [shape(block) for block in file.contents.documents[0]] == [expected]
    assert file.written(file.contents.documents) == content
    after = members(file.written(shouted(file.contents.documents)))["xl/strings.xml"].decode()
    again = written or text.replace("so ", "SO ").replace(">bold", ">BOLD").replace(" it is", " IT IS")
    assert after == members(content)["xl/strings.xml"].decode().replace(text, again)


def test_texts_come_in_the_order_of_cells_and_numbers_stay() -> None:
    inline = '<c r="D1" t="inlineStr"><is><t>inline</t></is></c>'
    cells = (
        cell("A1", 2)
        + cell("B1", 0)
        + cell("C1", 2)
        + cell("E1", 1)
        + cell("F1", 99)
        + cell("G1", "x")
        + inline
    )
    file = FORMAT.open(
        workbook(["<t>second</t>", "<t>1.5</t>", "<t>first</t>", "<t>nobody's</t>"], cells), "a.xlsx"
    )
    assert texts(file) == [["first", "second"], ["inline"]]
    assert [block.place for document in file.contents.documents for block in document] == [
        *("sheet S, cell A1", "sheet S, cell B1", "sheet S, cell D1")
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([run("word "), run("b", "<b/>"), run("i", "<i/>"), run(" "), "<phoneticPr/>"]),
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_any_text(runs: list[str], draw: random.Random) -> None:
    content = workbook(["".join(runs)], cell("A1", 0))
    file = FORMAT.open(content, "a.xlsx")
    assert_well_formed(file)
    assert file.written(file.contents.documents) == content
    mixed = [[shuffled(block, draw) for block in document] for document in file.contents.documents]
    for documents in (shouted(file.contents.documents), changed(mixed, lambda text: text + "!")):
        again = FORMAT.open(file.written(documents), "b.xlsx")
        written = [[block.text.strip() for block in document] for document in documents]
        assert [[text.strip() for text in document] for document in texts(again)] == written


def real() -> bytes:
    made = openpyxl.Workbook()
    sheet = made.active
    sheet.title = "Prices"
    sheet.append(["Fruit", "Price", "Sum"])
    sheet.append(["An apple", 1.5, "=B2*2"])
    sheet["A3"] = CellRichText("A ", TextBlock(InlineFont(b=True), "ripe"), " pear")
    sheet["A4"] = "An apple"
    sheet["B4"] = '=IF(A2="An apple",1,2)'
    sheet["A2"].comment = Comment("Wash it", "A. Reader")
    other = made.create_sheet("Table")
    for row in (["Name", "Count"], ["Name", 1]):
        other.append(row)
    other.add_table(Table(displayName="T", ref="A1:B2"))
    made.properties.title = "A list"
    out = BytesIO()
    made.save(out)
    return out.getvalue()


def test_a_workbook_of_another_library_opens_there_again() -> None:
    content = real()
    assert recognise(content[: 256 << 10], "a.bin") is FORMAT
    file = FORMAT.open(content, "a.xlsx")
    assert texts(file) == [
        ["Fruit", "Price", "Sum", "An apple", "A ripe pear", "An apple", "Wash it", "Name"],
        ["A list"],
    ]
    assert file.contents.messages == [
        "sheet Prices: 1 formulas hold text, which stays; those that compare it with cells find others there",
        "heads of tables: 2 left as they are, since formulas name them",
    ]
    assert file.written(file.contents.documents) == content
    written = file.written(shouted(file.contents.documents))
    again = openpyxl.load_workbook(BytesIO(written), rich_text=True)
    assert again.sheetnames == ["Prices", "Table"]
    values = [[cell.value for cell in row] for row in again["Prices"]["A1:C4"]]
    assert [str(part) for part in values[2][0]] == ["A ", "RIPE", " PEAR"]
    values[2][0] = str(values[2][0])
    assert values == [
        ["FRUIT", "PRICE", "SUM"],
        ["AN APPLE", 1.5, "=B2*2"],
        ["A RIPE PEAR", None, None],
        ["AN APPLE", '=IF(A2="An apple",1,2)', None],
    ]
    assert again["Prices"]["A2"].comment.text == "WASH IT"
    assert again["Table"]["A1"].value == again["Table"].tables["T"].tableColumns[0].name == "Name"
    assert again["Table"]["A2"].value == "NAME"


def test_damage_is_survived() -> None:
    content = workbook([run("one ") + run("two", "<b/>"), "<t>three</t>"], cell("A1", 0) + cell("B1", 1))
    assert_damage_is_survived(FORMAT, content, seed=23)


def test_what_is_refused() -> None:
    with pytest.raises(CotextError, match=r"^a\.xlsx: xl/sheet\.xml: not well-formed"):
        FORMAT.open(workbook([], "<c>"), "a.xlsx")


@pytest.mark.outside
@pytest.mark.skipif(not shutil.which("soffice"), reason="needs LibreOffice")
def test_a_spreadsheet_program_reads_what_it_wrote(tmp_path: Path) -> None:
    def converted(path: Path, to: str) -> Path:
        home = f"-env:UserInstallation=file://{tmp_path}/home"
        folder = path.parent / to
        command = ["soffice", home, "--headless", "--convert-to", to, "--outdir", str(folder), str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        return folder / f"{path.stem}.{to}"

    path = tmp_path / "list.xlsx"
    path.write_bytes(real())
    content = converted(path, "xlsx").read_bytes()
    file = FORMAT.open(content, "list.xlsx")  # its texts are shared
    assert texts(file)[0] == ["Fruit", "Price", "Sum", "An apple", "A ripe pear"]
    assert file.written(file.contents.documents) == content
    path.write_bytes(file.written(shouted(file.contents.documents)))
    lines = converted(path, "csv").read_text().splitlines()
    assert lines[:3] == ["FRUIT,PRICE,SUM", "AN APPLE,1.5,3", "A RIPE PEAR,,"]


def test_a_translation_is_not_read_as_numbers_of_characters() -> None:
    file = FORMAT.open(workbook(["<t>word</t>"], cell("A1", 0)), "a.xlsx")
    written = file.written(changed(file.contents.documents, lambda _: "a_x0041_b"))
    assert b"a_x005F_x0041_b" in members(written)["xl/strings.xml"]
    assert FORMAT.open(written, "b.xlsx").contents.documents[0][0].text == "a_x0041_b"
