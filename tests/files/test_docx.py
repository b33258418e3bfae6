import io
import random
import re
import shutil
import subprocess
from pathlib import Path

import docx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from cotext.files.blocks import Block
from cotext.files.docx import FORMAT
from cotext.files.parts import PartsFile
from cotext.files.table import recognise
from tests.files.faking import (
    changed,
    members,
    packed,
    reread,
    same_again,
    shape,
    shouted,
    shuffled,
    texts,
)  # fmt: skip
from tests.loops import loop_over
from tests.refusals import must_raise

DATA = Path(__file__).with_name("data")
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMES = (
    f'xmlns:w="{W}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"


def relations(*kinds: tuple[str, str]) -> str:
    """Relations by kind and target."""
    inner = "".join(
        f'<Relationship Id="r{n}" Type="{KIND}{kind}" Target="{to}"/>' for n, (kind, to) in enumerate(kinds)
    )
    names = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
    return f"<Relationships {names}>{inner}</Relationships>"


def document(body: str, **parts: str) -> bytes:
    """A document of a body, and other parts by the kind of their relation."""
    return packed(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("officeDocument", "word/document.xml")),
            "word/document.xml": f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
            f"<w:document {NAMES}><w:body>{body}<w:sectPr/></w:body></w:document>",
            "word/_rels/document.xml.rels": relations(*((kind, f"{kind}.xml") for kind in parts)),
            **{f"word/{kind}.xml": f"<w:{kind} {NAMES}>{part}</w:{kind}>" for kind, part in parts.items()},
            "word/media/image1.png": bytes(range(256)),
        }
    )


def opened(body: str) -> PartsFile:
    return FORMAT.open(document(f"<w:p>{body}</w:p>"), "a.docx")


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


FIELD = (
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> {} </w:instrText></w:r>'
    '<w:r><w:fldChar w:fldCharType="separate"/></w:r>{}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
)
BOLD = "<w:b/>"
MARK = ('<w:bookmarkStart w:id="1"/>', '<w:bookmarkEnd w:id="1"/>')
REMARK = ('<w:commentRangeStart w:id="1"/>', '<w:commentRangeEnd w:id="1"/>')
CONTROL = "<w:sdt><w:sdtPr>{}</w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
RUBY = "<w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby>"
DELETED = "<w:r><w:delText>x</w:delText></w:r>"


@loop_over(
    ("body", "expected"),
    [
        # Runs that look the same are one; what most text looks like is no element.
        (run("He", BOLD) + run("llo, ", BOLD) + run("you", BOLD + '<w:lang w:val="de"/>'), "Hello, you"),
        (run("a") + run(" ", BOLD) + run("long text"), "a long text"),
        (run("Wi", '<w:rFonts w:hint="eastAsia"/>') + run("th a hint"), "With a hint"),
        (run("under") + run("   ", "<w:u/>") + run("lined"), "under[   ]lined"),
        ("<w:r><w:t> not\nkept </w:t></w:r>", "not kept"),
        # Marks of misspellings and old pages do not part a text.
        (run("mis") + '<w:proofErr w:type="spellStart"/>' + run("spelled"), "misspelled"),
        ("<w:r><w:t>a</w:t><w:lastRenderedPageBreak/><w:softHyphen/><w:t>b</w:t></w:r>", "ab"),
        ("<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t></w:r>", "a\u2011b"),
        ("<w:r><w:t>a</w:t><w:tab/><w:br/><w:t>b</w:t><w:tab/><w:t>c</w:t></w:r>", "a/b/c"),
        # Elements around, at the ends, crossing, and empty.
        ('<w:hyperlink w:anchor="x">' + run("all of it", "<w:u/>") + "</w:hyperlink>", "all of it"),
        (run("see ") + '<w:hyperlink w:anchor="x">' + run("here", "<w:u/>") + "</w:hyperlink>", "see [here]"),
        (run("a") + MARK[0] + MARK[1] + run("b"), "a*b"),
        (
            f"{run('a')}{MARK[0]}{run('b')}{REMARK[0]}{run('c')}{MARK[1]}{run('d')}{REMARK[1]}{run('e')}",
            "a[b*c]d*e",
        ),
        # Fields and controls.
        (run("Page ") + FIELD.format("PAGE", run("7")) + run(" of it"), "Page <7> of it"),
        (run("See ") + FIELD.format("HYPERLINK x", run("here")) + run("."), "See [here]."),
        (FIELD.format("HYPERLINK x", run("p. ") + FIELD.format("PAGE", run("7"))) + run("."), "[p. <7>]."),
        (run("x ") + FIELD.format("IF 1", FIELD.format("PAGE", run("7"))) + run(" y"), "x <7> y"),
        (run("x ") + '<w:fldSimple w:instr="REF a">' + run("A") + "</w:fldSimple>" + run(" y"), "x <A> y"),
        # No text moves into or out of a field that ends in another paragraph.
        (run("Contents ") + FIELD.format("TOC", "").rsplit("<w:r>", 1)[0] + run("One"), "Contents /One"),
        (run("on ") + CONTROL.format("<w:date/>", run("1 May")), "on <1 May>"),
        (run("to") + "</w:p>" + CONTROL.format("<w:comboBox/>", f"<w:p>{run('X')}</w:p>") + "<w:p>", "to"),
        (CONTROL.format("", run("in")) + run(" a control"), "[in] a control"),
        # Changes, equations, pictures.
        (run("a ") + f"<w:ins>{run('new')}</w:ins><w:del>{DELETED}</w:del>", "a [new]"),
        (run("so ") + "<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>" + run(" holds"), "so <x=1> holds"),
        (run("so ", BOLD) + f"<w:r>{RUBY.format(run('kanji'), run('word'))}</w:r>", "so [word]"),
        ("<w:r><w:drawing><wp:docPr descr='one&#10;two'/></w:drawing></w:r>", "one<\n>two"),
        ("<w:r><w:drawing/></w:r>" + run("text ") + '<w:r><w:sym w:char="F0"/></w:r>' + run("x"), "text *x"),
        (run("12 ") + "<w:r><w:pict/></w:r>", "12 "),
        (run(" ") + "<w:r><w:tab/></w:r>", None),
    ],
)
def test_what_a_paragraph_holds(body: str, expected: str | None) -> None:
    content = document(f"<w:p>{body}</w:p>")
    file = same_again(FORMAT, content)
    shapes = [shape(block) for document in file.contents.documents for block in document]
    if expected is None:
        assert not shapes
        return
    assert shapes == [expected]
    # With other text, whatever is no text is still there, in its order.
    again = reread(FORMAT, file)
    upper = [shape(block) for block in shouted(file.contents.documents)[0]]
    assert [shape(block) for block in again.contents.documents[0]] == upper
    assert others(again.written(again.contents.documents)) == others(content)


DROPPED = "r rPr t b i u rFonts lang proofErr lastRenderedPageBreak softHyphen"


def others(content: bytes) -> list[str]:
    """Elements that are neither runs nor what a changed paragraph drops, in their order."""
    root = etree.fromstring(members(content)["word/document.xml"])
    names = [etree.QName(node).localname for node in root.iter()]
    return [name for name in names if name not in DROPPED.split()]


def test_its_reading_order_and_other_parts() -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:txbxContent>"
    both = f"<mc:AlternateContent><mc:Choice>{box.format('Box')}</mc:Choice><mc:Fallback>{box.format('Box')}"
    body = (
        f"<w:p>{run('Before ')}<w:r>{both}</mc:Fallback></mc:AlternateContent></w:r>{run('and after')}</w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{run('Cell')}</w:p></w:tc></w:tr></w:tbl>"
        '<w:p><w:r><w:drawing><wp:docPr id="1" name="P" descr="A dog"/></w:drawing></w:r></w:p>'
        f"<w:p>{run('End')}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
    )
    note, head, remark = (f"<w:x><w:p>{run(text)}</w:p></w:x>" for text in ("Note", "Head", "Remark"))
    content = document(body, comments=remark, header=head, footnotes=note)
    file = FORMAT.open(content, "a.docx")
    assert texts(file) == [["Before and after", "Box", "Cell", "A dog", "End", "Note"], ["Head"], ["Remark"]]
    written = members(file.written(shouted(file.contents.documents)))
    assert written["word/document.xml"].count(b">BOX<") == 2
    assert b'descr="A DOG"' in written["word/document.xml"]
    assert b">BEFORE <" in written["word/document.xml"]
    assert b">REMARK<" in written["word/comments.xml"]
    # Parts without a change are byte for byte the same.
    one = [[*file.contents.documents[0]], *file.contents.documents[1:]]
    one[0][0] = Block((*file.contents.documents[0][0].pieces, "!"))
    before, after = members(content), members(file.written(one))
    assert [name for name in before if before[name] != after[name]] == ["word/document.xml"]
    declared = b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:doc'
    assert after["word/document.xml"].startswith(declared)


RUNS = st.lists(
    st.sampled_from(
        [
            *(run(text) for text in ("word ", " ")),
            *(run("bold", BOLD), run("it", "<w:i/>"), run(" ", BOLD), "<w:r><w:tab/></w:r>"),
            *(*MARK, *REMARK, FIELD.format("PAGE", run("7"))),
            *("<w:r><w:br/><w:t>x</w:t></w:r>", f"<w:ins>{run('new')}</w:ins>"),
            f'<w:hyperlink w:anchor="a">{run("link", BOLD)}{run("ed")}</w:hyperlink>',
            *('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', '<w:r><w:fldChar w:fldCharType="end"/></w:r>'),
            CONTROL.format("", f"{run('in')}<w:ins>{run('it')}</w:ins>"),
        ]
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(RUNS, st.randoms(use_true_random=False))
def test_any_paragraph(runs: list[str], draw: random.Random) -> None:
    body = "".join(runs)
    content = document(f"<w:p>{body}</w:p>")
    file = same_again(FORMAT, content)
    written = file.written(shouted(file.contents.documents))
    assert others(written) == others(content)
    loud = [[block.text for block in document] for document in shouted(file.contents.documents)]
    assert texts(FORMAT.open(written, "b.docx")) == loud
    mixed = [[shuffled(block, draw) for block in document] for document in file.contents.documents]
    mixed = changed(mixed, lambda text: text + "!")
    assert sorted(others(file.written(mixed))) == sorted(others(content))


def real() -> bytes:
    made = docx.Document()
    made.core_properties.title = "My title"
    made.add_heading("A heading", 1)
    paragraph = made.add_paragraph("It was ")
    paragraph.add_run("very").bold = True
    paragraph.add_run(" expensive.\tShe sold\nit.")
    table = made.add_table(2, 2)
    table.cell(0, 0).text = "Cell"
    table.cell(1, 1).add_table(1, 1).cell(0, 0).text = "Nested"
    made.sections[0].header.paragraphs[0].text = "The header"
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_a_document_of_another_library_opens_there_again() -> None:
    content = real()
    assert recognise(content[: 256 << 10], "a.bin") is FORMAT
    file = same_again(FORMAT, content)
    again = docx.Document(io.BytesIO(file.written(shouted(file.contents.documents))))
    assert [p.text for p in again.paragraphs] == ["A HEADING", "IT WAS VERY EXPENSIVE.\tSHE SOLD\nIT."]
    assert [run.text for run in again.paragraphs[1].runs if run.bold] == ["VERY"]
    assert again.tables[0].cell(1, 1).tables[0].cell(0, 0).text == "NESTED"
    assert again.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert again.core_properties.title == "MY TITLE"


ENTITIES = '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'


@loop_over(
    ("content", "reason"),
    [
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), r"protected by a password, or in an old format"),
        (b"PK\3\4", "damaged archive"),
        (packed({"word/document.xml": "<a/>"}), "the main document part is missing or not declared"),
        (document("<w:p>"), r"word/document\.xml: not well-formed"),
        (document("")[:-30], "damaged archive"),
        (packed({**members(document("")), "word/document.xml": ENTITIES}), "declares entities"),
    ],
)
def test_what_is_refused(content: bytes, reason: str) -> None:
    must_raise(rf"^a\.docx: .*{reason}", FORMAT.open, content, "a.docx")


def test_the_strict_kind_is_read_too() -> None:
    parts = members(
        document(f"<w:p>{run('so ')}{run('bold', BOLD)}</w:p>", header=f"<w:p>{run('Head')}</w:p>")
    )
    strict = "http://purl.oclc.org/ooxml/"
    names = ((W, f"{strict}wordprocessingml/main"), (KIND, f"{strict}officeDocument/relationships/"))
    for usual, other in names:
        parts = {name: part.replace(usual.encode(), other.encode()) for name, part in parts.items()}
    file = FORMAT.open(packed(parts), "a.docx")
    assert texts(file) == [["so bold"], ["Head"]]
    assert texts(reread(FORMAT, file)) == [["SO BOLD"], ["HEAD"]]


def test_elements_may_be_nested_as_deep_as_xml_may() -> None:
    deep = f"{'<w:ins>' * 240}{run('deep')}{'</w:ins>' * 240}"
    file = opened(deep + run(" down"))
    assert others(file.written(shouted(file.contents.documents))) == others(document(f"<w:p>{deep}</w:p>"))
    must_raise("not well-formed XML: Excessive depth", opened, 300 * "<w:ins>" + 300 * "</w:ins>")


def test_what_is_not_translated_is_said() -> None:
    parts = members(document(f"<w:p>{run('a')}<w:del/></w:p>"))
    extra = [f"word/{name}" for name in ("vbaProject.bin", "charts/chart1.xml", "diagrams/data1.xml")]
    extra.append("_xmlsignatures/sig1.xml")
    file = FORMAT.open(packed({**parts, **dict.fromkeys(extra, b"x")}), "a.docm")
    assert [message.split(",")[0] for message in file.contents.messages] == [
        "tracked changes: 1",
        "charts (1): their text is not translated",
        "SmartArt diagrams (1): their text is not translated",
        "macros are kept unchanged and not run",
        "the digital signature is not valid for the translated file",
    ]


@pytest.mark.outside
@pytest.mark.skipif(not shutil.which("soffice"), reason="needs LibreOffice")
def test_a_word_processor_reads_what_it_wrote(tmp_path: Path) -> None:
    def converted(path: Path, to: str) -> Path:
        home = f"-env:UserInstallation=file://{tmp_path}/home"
        command = ["soffice", home, "--headless", "--convert-to", to, "--outdir", str(tmp_path), str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        return tmp_path / f"{path.stem}.{to.partition(':')[0]}"

    path = converted(DATA / "letter.fodt", "docx")
    file = same_again(FORMAT, path.read_bytes())
    assert texts(file)[0][:4] == [
        "The house",
        "It was very expensive. She sold it to her neighbour. It has   threeroomsand a new roof.",
        "See The house on page 1.",
        "A box with words",
    ]
    assert "A footnote in bold." in texts(file)[0]
    assert texts(file)[1:3] == [["A header on every page", "Page 1 of the letter"], ["A remark on a line"]]
    after = tmp_path / "after.docx"
    after.write_bytes(file.written(shouted(file.contents.documents)))
    before, shouting = (
        re.sub(r"\s+", " ", converted(each, "txt:Text (encoded):UTF8").read_text("utf-8"))
        for each in (path, after)
    )
    assert shouting.lower() == before.lower()
    assert "IT WAS VERY EXPENSIVE. SHE SOLD IT TO HER NEIGHBOUR." in shouting
