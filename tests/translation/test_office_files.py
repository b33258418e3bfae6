"""Files of several formats by the command line: everything except text is kept."""

from pathlib import Path

from cotext.files.table import recognise
from tests.command_line import World, succeed
from tests.files import test_docx, test_epub, test_pptx
from tests.files.faking import assert_well_formed, members

BOLD = test_docx.run("big", test_docx.BOLD)
SUBTITLES = b"""1
00:00:01,000 --> 00:00:02,000
the cat sees

2
00:00:02,000 --> 00:00:03,000
<i>a dog</i> and the bird.

3
00:00:05,000 --> 00:00:06,000
- The cat.
- A dog.
"""
LINK = f'<w:hyperlink w:anchor="x">{test_docx.run("the bird")}</w:hyperlink>'
FILES = {
    "page.html": b"<title>the cat</title><p>the cat sees <b>a <i>big</i> dog</b>. <code>x</code><br>the bird",
    "book.epub": test_epub.book(),
    "letter.docx": test_docx.document(
        f"<w:p>{test_docx.run('the cat sees a ')}{BOLD}{test_docx.run(' dog. it eats ')}{LINK}"
        f"{test_docx.run('.')}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>",
        footnotes=f"<w:p>{test_docx.run('a fish')}</w:p>",
    ),
    "talk.pptx": test_pptx.real(),
    "film.srt": SUBTITLES,
}
ELEMENTS = {
    "page.html": ("<b>", "</b>", "<i>", "</i>", "<code>x</code>", "<br>", "<p>", "</title>"),
    "film.srt": ("00:00:02,000 --> 00:00:03,000\n", "<i>", "</i>", "\n- "),
    "letter.docx": ("<w:b/>", "<w:hyperlink ", "</w:hyperlink>", "<w:footnoteReference "),
}
PARTS = {"letter.docx": "word/document.xml"}


def test_what_is_not_text_comes_back(world: World, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    succeed("translate", world.run, *(tmp_path / name for name in FILES), "--out-dir", tmp_path / "out")
    for name, content in FILES.items():
        written = (tmp_path / "out" / name).read_bytes()
        assert written != content, name
        found = recognise(written, name)
        assert found is recognise(content, name) is not None, name
        opened = found.open(written, name)
        assert_well_formed(opened)
        for element in ELEMENTS.get(name, ()):
            part = members(written)[PARTS[name]] if name in PARTS else written
            was = members(content)[PARTS[name]] if name in PARTS else content
            assert part.decode().count(element) == was.decode().count(element), (name, element)
        if name.endswith(("docx", "epub", "pptx")):
            assert list(members(written)) == list(members(content)), name
