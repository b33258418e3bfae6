from io import BytesIO

import pptx
from pptx.util import Inches

from cotext.files.pptx import FORMAT
from cotext.files.table import recognise
from tests.files.faking import packed, reread, same_again, shape, shouted, texts
from tests.files.test_docx import relations
from tests.loops import loop_over
from tests.refusals import must_raise

NAMES = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


def presentation(*paragraphs: str) -> bytes:
    """A slide for each paragraph, shown from the last to the first."""
    slides = {
        f"ppt/slides/s{n}.xml": f"<p:sld {NAMES}><p:cSld><a:p>{paragraph}</a:p></p:cSld></p:sld>"
        for n, paragraph in enumerate(paragraphs)
    }
    shown = "".join(f'<p:sldId id="25{n}" r:id="r{n}"/>' for n in reversed(range(len(slides))))
    related = relations(*(("slide", f"slides/s{n}.xml") for n in range(len(slides))))
    main = f"<p:presentation {NAMES}><p:sldIdLst>{shown}</p:sldIdLst></p:presentation>"
    first = {
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": main,
    }
    return packed({**first, "ppt/_rels/presentation.xml.rels": related, **slides})


def run(text: str, properties: str = "") -> str:
    return f"<a:r><a:rPr lang='en' {properties}/><a:t>{text}</a:t></a:r>"


LINK = "<a:r><a:rPr><a:hlinkClick r:id='r1'/></a:rPr><a:t>A link</a:t></a:r>"
NUMBER = '<a:fld type="slidenum"><a:rPr/><a:t>7</a:t></a:fld>'


@loop_over(
    ("body", "expected"),
    [
        ("<a:pPr/>" + run("He") + run("llo", "dirty='0'") + "<a:endParaRPr/>", "Hello"),
        (run("so ") + run("bold", "b='1'") + run(" it is"), "so [bold] it is"),
        (run("a") + "<a:br/>" + run("b"), "a/b"),
        (run("one\ttwo") + run(" three", "b='1'"), "one<\t>two[ three]"),
        (run("Slide ") + NUMBER + run(" of it"), "Slide <7> of it"),
        (LINK + run(" in a text"), "[A link] in a text"),
        ("<a:r>\n <a:t>indented</a:t>\n</a:r>", "indented"),
    ],
)
def test_what_a_paragraph_holds(body: str, expected: str) -> None:
    file = same_again(FORMAT, presentation(body))
    assert [shape(block) for block in file.contents.documents[0]] == [expected]
    again, loud = reread(FORMAT, file).contents.documents[0], shouted(file.contents.documents)[0]
    assert list(map(shape, again)) == list(map(shape, loud))


def real() -> bytes:
    made = pptx.Presentation()
    made.core_properties.title = "A talk"
    for number in (1, 2):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = f"Slide number {number}"
        frame = slide.placeholders[1].text_frame
        frame.text = "A point "
        frame.paragraphs[0].add_run().text = "in bold"
        frame.paragraphs[0].runs[1].font.bold = True
        slide.notes_slide.notes_text_frame.text = f"Say it {number} times"
    table = made.slides[0].shapes.add_table(1, 2, 0, Inches(5), Inches(4), Inches(1)).table
    table.cell(0, 1).text = "A cell"
    out = BytesIO()
    made.save(out)
    return out.getvalue()


def test_a_presentation_of_another_library_opens_there_again() -> None:
    content = real()
    assert recognise(content[: 256 << 10], "a.bin") is FORMAT
    file = same_again(FORMAT, content)
    assert texts(file) == [
        [
            *("Slide number 1", "A point in bold", "A cell", "Say it 1 times"),
            *("Slide number 2", "A point in bold", "Say it 2 times"),
        ],
        ["A talk", "generated using python-pptx"],
    ]
    again = pptx.Presentation(BytesIO(file.written(shouted(file.contents.documents))))
    paragraph = again.slides[1].placeholders[1].text_frame.paragraphs[0]
    assert [(run.text, run.font.bold) for run in paragraph.runs] == [("A POINT ", None), ("IN BOLD", True)]
    assert again.slides[1].notes_slide.notes_text_frame.text == "SAY IT 2 TIMES"


def test_slides_come_in_the_order_of_the_show_or_are_refused() -> None:
    assert texts(FORMAT.open(presentation(run("last"), run("first")), "a.pptx")) == [["first", "last"]]
    must_raise(r"^a\.pptx: ppt/slides/s0\.xml: not well-formed", FORMAT.open, presentation("<a:r>"), "a.pptx")
