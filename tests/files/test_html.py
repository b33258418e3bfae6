import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.files.blocks import Block, Close, Copied, Open, Point
from cotext.files.html import FORMAT, Page
from tests.files.faking import changed, same_again, shouted, shuffled, texts
from tests.loops import loop_over
from tests.refusals import must_raise


def opened(page: str | bytes) -> Page:
    return same_again(FORMAT, page.encode() if isinstance(page, str) else page)


def shout(page: str | bytes) -> str:
    file = opened(page)
    return file.written(shouted(file.contents.documents)).decode()


PAGE = """<!DOCTYPE html>
<html lang=en><head><meta charset="utf-8"><title>A  page
 &amp; more</title>
<meta name="description" content="What it's about"><meta name=author content=nobody>
<style>p > b { color: red }</style><script>if (a < b) { document.write("<p>no</p>") }</script></head>
<body class='x>y'><!-- a > comment -->
<h1>Title&nbsp;one</h1>
<p> She <b>sold   <i>it</i></b>, <a href="a?b=1&c=2" title='Go&#10;"on"'>here</a>.<br>
Next <img src=x alt="A picture"> one <span class="icon"></span> ends &lt;here&gt;.
<p><% if a > b %><?php $a->b ?>Un<%= c %> closed <b>bold, <em>both</b> one</em>
<ul><li>One<li translate="no">Two<li>Three <code>f(x)</code> is <i class="x notranslate">Cotext</i>.</ul>
<pre>  as   it is </pre>
<table><tr><td>Cell<td>12</table>
<form><input placeholder=Name value=kept><input type=submit value="Send it"><textarea> two
 lines  </textarea></form>
First line<br><br>second line
</body></html>
"""


def test_a_page_is_read_in_blocks() -> None:
    file = opened(PAGE)
    assert texts(file) == [
        [
            *("A page & more", "What it's about", "Title\xa0one"),
            "She sold it, here.Next  one  ends <here>.",
            *('Go\n"on"', "A picture", "Un<%= c %> closed bold, both one", "One", "Three f(x) is Cotext."),
            *("Cell", "12", "Name", "Send it", "two\nlines", "First line", "second line"),
        ]
    ]
    [blocks] = file.contents.documents
    assert [type(piece) for piece in blocks[3].pieces if not isinstance(piece, str)] == [
        *(Open, Open, Close, Close, Open, Close, Point, Point, Point)
    ]
    assert [piece.breaks for piece in blocks[3].pieces if isinstance(piece, Point)] == [True, False, False]
    assert blocks[8].pieces[1::2] == (Copied(1, "f(x)"), Copied(3, "Cotext"))
    assert [blocks[n].pieces[1] for n in (4, 13)] == [Copied(1, "\n"), Copied(1, "\n")]
    assert [block.place for block in blocks[:3]] == ["line 2", "line 4", "line 7"]
    said = ["<li> is not translated (line 11)", "<pre> is not translated (line 12)"]
    assert file.contents.messages == said


def test_changed_text_leaves_the_rest() -> None:
    expected = PAGE
    for before, after in (
        ("A  page\n &amp;", "A page &amp;"),
        ("Title&nbsp;one", "Title\xa0one"),
        ("sold   <i>", "sold <i>"),
        ("<br>\nNext", "<br>Next"),
        ("here&gt;.", "here>."),
        ("=Name", '="Name"'),
    ):
        expected = expected.replace(before, after)
    written = shout(PAGE)
    assert written.lower() == expected.lower()
    kept = re.findall(
        r"<!--.*-->|<style.*</head>|<li translate.*?Two|<code.*?>|notranslate.*Cotext|<pre.*", PAGE
    )
    said = "<b>SOLD <i>IT</i></b>", """title='GO&#10;"ON"'>HERE""", 'alt="A PICTURE"> ONE', '="SEND IT"'
    for part in (*kept, *said, "<!DOCTYPE html>", "content=nobody", 'href="a?b=1&c=2"', "value=kept"):
        assert part in written


def test_elements_may_move() -> None:
    file = opened('<p>A <b>red <i>car</i></b><br>and <img alt="a dog"> there.</p>')
    [[block, alt]] = file.contents.documents
    b, i, line, image = (p for p in block.pieces if isinstance(p, Open | Point))
    moved = Block((image, "Da ", i, "rot ", b, Close(b.key), Close(i.key), line, "Auto."))
    written = file.written([[moved, Block(('ein <Hund> & "mehr"',), alt.place)]])
    assert written.decode() == (
        '<p><img alt="ein &lt;Hund> &amp; &quot;mehr&quot;">Da <i>rot <b></b></i><br>Auto.</p>'
    )


@loop_over(
    ("page", "expected"),
    [
        ("<p><b>All of it</b></p>", ["All of it"]),
        ("<a href=x><div>One</div><div>two</div></a>", ["One", "two"]),
        ("<p>&copy 2024 AT&T &#x2014; &bogus;</p>", ["© 2024 AT&T — &bogus;"]),
        ("a < b and <3", ["a < b and <3"]),
        ("<p>never <b closed", ["never"]),
        ("<p>open <!-- comment", ["open"]),
        ("<title>never closed <b>x", ["never closed <b>x"]),
        ("<svg><title>x</title><text>y</text></svg>after", ["after"]),
        ("<p>x = <math><mi>y</mi></math>, so</p>", ["x = , so"]),
        ("<p>a <ruby>red<rp>(</rp><rt>rdd</rt><rp>)</rp> car<rt>kr</ruby>.", ["a red car."]),
        ("<div translate=no><p>a</p><div>b</div></div>c", ["c"]),
        ("<p>a <span translate=no>b</p><p>c</p>", ["a b", "c"]),
        ("<my-word>one</my-word> two", ["one two"]),
        ("<p title=>x</p><p title>y</p>", ["x", "y"]),
        ('<p title="never closed>x</p>', ["x"]),
        ("<button>Send</button><label>Name</label> text", ["Send", "Name", "text"]),
        ("<td>\n 1 \n</td>", ["1"]),
        ("</p></b>text</i><p>", ["text"]),
        ("<p></p><p> <br> </p>&nbsp;", []),
    ],
)
def test_malformed_pages(page: str, expected: list[str]) -> None:
    file = opened(page)
    assert texts(file) == [expected]
    capitals = [block.text for block in shouted(file.contents.documents)[0]]
    assert texts(opened(shout(page))) == [capitals]


MARKUP = """
<p> </p> <b> </b> <i> </i> <br> <br/> <td> </td> <code> </code> <pre> </pre> <svg> </svg> <title> </title>
<script> </script> <x-y/> </a> </span> </div> </ <! <b < & > a<b word ä " ' &amp; &nbsp;
"""
WORDS = st.sampled_from(
    [
        *MARKUP.split(),
        *("<img alt='a \"b\"'>", "<a title=t href=x>", "<div class='notranslate'>", "<span translate=no>"),
        *("<!-- c -->", " ", "\r\n"),
    ]
)


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=30).map("".join), st.randoms(use_true_random=False))
def test_any_page(page: str, draw: random.Random) -> None:
    file = opened(page)
    # Other words of the same kind: the rest of the page is as it was.
    upper = changed(file.contents.documents, str.upper)
    assert texts(opened(file.written(upper))) == [[block.text for block in upper[0]]]
    mixed = [[shuffled(block, draw) for block in file.contents.documents[0]]]
    spaced, own = (
        file.written(changed(documents, lambda text: text + " ")).replace(b" ", b"")
        for documents in (mixed, file.contents.documents)
    )
    assert sorted(spaced) == sorted(own)


@loop_over(
    ("content", "expected", "written"),
    [
        ("<meta charset=latin1><p>grün</p>".encode("latin-1"), "grün", b"<p>gr\xfcn &#8364; &#9731;</p>"),
        ("<meta charset=latin1><p>\xfc–</p>".encode("cp1252"), "ü–", b"<p>\xfc\x96 \x80 &#9731;</p>"),
        ("<p>grün</p>".encode("latin-1"), "grün", b"<p>gr\xfcn \x80 &#9731;</p>"),
        (b"\xef\xbb\xbf<meta charset=latin1><p>gr\xc3\xbcn</p>", "grün", "<p>grün € ☃</p>".encode()),
        ("\ufeff<p>grün</p>".encode("utf-16-le"), "grün", "<p>grün € ☃</p>".encode("utf-16-le")),
        *(
            (f"<meta charset={c}><p>{t}</p>".encode(c), t, f"<p>{t} &#8364; &#9731;</p>".encode(c))
            for c, t in (("koi8-r", "дом"), ("shift_jis", "表"))
        ),
        ("<meta charset=utf-7><p>grün</p>".encode(), "grün", "<p>grün € ☃</p>".encode()),
        (b"<meta charset=utf-8><p>gr\xfcn</p>", "grn", None),
    ],
)
def test_encodings(content: bytes, expected: str, written: bytes | None) -> None:
    file = opened(content)
    assert texts(file) == [[expected]]
    if written:
        assert file.written(changed(file.contents.documents, lambda text: text + " € ☃")).endswith(written)
    else:  # a byte that is no character of the encoding is a point, which comes back
        assert file.written(changed(file.contents.documents, str.upper)).endswith(b"<p>GR\xfcN</p>")


def test_the_suffix_of_xhtml_makes_elements_empty() -> None:
    for name, found in (("a.XHTML", [["Hello"]]), ("a.html", [[]])):
        assert texts(FORMAT.open(b'<html><script src="a"/><p>Hello', name)) == found


def test_guessed_encodings_limits_and_depth() -> None:
    [guessed] = opened("<p>grün</p>".encode("latin-1")).contents.messages
    assert guessed == "no encoding is declared, and the page is not UTF-8: read as windows-1252"
    must_raise(r"file: 67,108,865 bytes, but the limit is 67,108,864", opened, bytes((64 << 20) + 1))
    page = f"<p>{'<b>' * 5000}deep{'</b>' * 5000} down"
    assert shout(page) == page.replace("deep", "DEEP").replace("down", "DOWN")


def test_reading_takes_linear_time() -> None:
    """Pages that would take minutes if unclosed marks and elements were searched for again and again."""
    unclosed = ("<b>", "</b>", "<span translate=no>", "<svg>", "<title>", "<p title='a'>")
    for piece in ('<a b="', "<!--", "&", *unclosed):
        opened(piece * (200_000 // len(piece)))
