from pathlib import Path

from lxml import etree

from cotext.files.epub import FORMAT
from cotext.files.table import recognise
from tests.files.faking import members, packed, same_again, shouted, texts
from tests.refusals import must_raise

PAGE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{0}</title><script src="x"/></head>
<body><h1 id="a"><a id="b"/>{0}</h1><p class="x">Once&#160;upon <em>a&nbsp;time</em>,<br/>
there <![CDATA[<was>]]> one.</p><hr/></body></html>
"""
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>The book</dc:title><dc:creator>A. Writer</dc:creator></metadata>
<manifest><item id="two" href="text/two%202.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="css" href="x.css" media-type="text/css"/></manifest>
<spine toc="ncx"><itemref idref="one"/><itemref idref="two"/></spine></package>"""
NAV = '<html><body><nav><ol><li><a href="text/one.xhtml">First</a></li></ol></nav></body></html>'
NCX = """<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://x/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docAuthor><text>A. W.</text></docAuthor><navMap>
<navPoint><navLabel><text>First</text></navLabel><content src="text/one.xhtml"/></navPoint></navMap></ncx>"""


def page(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><head>'
        f"<title>T</title></head><body>{body}</body></html>"
    )


def book(**parts: str) -> bytes:
    usual = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE,
        "OEBPS/text/two 2.xhtml": PAGE.format("Second"),
        "OEBPS/text/one.xhtml": PAGE.format("First"),
        "OEBPS/nav.xhtml": NAV,
        "OEBPS/toc.ncx": NCX,
        "OEBPS/x.css": "p { }",
    }
    return packed({**usual, **parts}, stored="mimetype")


def elements(part: bytes) -> list[str]:
    """Names of the elements of a part, which is well-formed."""
    parser = etree.XMLParser(resolve_entities=False)
    return [node.tag for node in etree.fromstring(part, parser).iter() if isinstance(node.tag, str)]


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    tale = "</dc:title><dc:description>&lt;p&gt;A &lt;b&gt;tale&lt;/b&gt;&lt;/p&gt;</dc:description>"
    content = book(**{"OEBPS/book.opf": PACKAGE.replace("</dc:title>", tale)})
    assert recognise(content[: 1 << 10], "x") is FORMAT
    file = same_again(FORMAT, content)
    page = "Once\xa0upon a\xa0time,there one."
    assert [[text.replace("  ", " ") for text in document] for document in texts(file)] == [
        ["First", "First", page, "Second", "Second", page],
        ["First", "First"],
        ["The book", "A tale"],
    ]


def test_changed_pages_stay_well_formed_and_the_rest_as_it_is() -> None:
    content = book()
    file = FORMAT.open(content, "a.epub")
    written = file.written(shouted(file.contents.documents))
    before, after = members(content), members(written)
    assert list(before) == list(after)
    assert {name for name in before if before[name] == after[name]} == {
        *("mimetype", "META-INF/container.xml", "OEBPS/x.css")
    }
    assert written[30:58] == b"mimetypeapplication/epub+zip"  # first, and not packed
    for name in ("OEBPS/text/one.xhtml", "OEBPS/text/two 2.xhtml", "OEBPS/toc.ncx", "OEBPS/book.opf"):
        was, now = (elements(each[name]) for each in (before, after))
        assert was == now
    page = after["OEBPS/text/one.xhtml"].decode()
    wanted = PAGE.format("FIRST").replace("Once&#160;upon", "ONCE\xa0UPON").replace(" one.", " ONE.")
    assert page == wanted.replace("a&nbsp;time</em>,<br/>\nthere ", "A\xa0TIME</em>,<br/>THERE ")
    assert texts(FORMAT.open(written, "b.epub"))[2] == ["THE BOOK"]


def test_what_is_refused_encrypted_fonts_and_books_of_a_real_program() -> None:
    encrypted = '<e><CipherReference xmlns="x" URI="OEBPS/{}"/></e>'
    for name, part, reason in (
        ("META-INF/container.xml", "<container/>", "its container does not declare the book"),
        ("OEBPS/book.opf", "<package>", r"OEBPS/book\.opf: not well-formed"),
        ("META-INF/encryption.xml", encrypted.format("text/one.xhtml"), "its pages are encrypted"),
    ):
        must_raise(rf"^a\.epub: .*{reason}", FORMAT.open, book(**{name: part}), "a.epub")
    font = {"META-INF/encryption.xml": encrypted.format("font.otf")}
    assert FORMAT.open(book(**font), "a.epub").contents.documents
    moved = book(**{"OEBPS/book.opf": PACKAGE.replace("one.xhtml", "One.xhtml")})
    [message] = FORMAT.open(moved, "a.epub").contents.messages
    assert message == "OEBPS/text/One.xhtml: is listed in the book, but missing"
    # Made by LibreOffice from `letter.fodt`.
    content = (Path(__file__).with_name("data") / "letter.epub").read_bytes()
    file = same_again(FORMAT, content)
    assert any(text.startswith("It was very expensive. She sold it") for text in texts(file)[0])
