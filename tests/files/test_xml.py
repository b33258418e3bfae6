from cotext.runtime.xml import parse, serialised
from tests.loops import loop_over
from tests.refusals import must_raise

PLAIN = b"""<?xml version='1.0' encoding='UTF-8' standalone="yes" ?>\r
<?go on?>\r
<w:a xmlns:w="urn:w" xmlns:unused="urn:u" w:b="1 &quot;2&quot; &#10;3"><!-- kept --> <w:c/>\r
  <![CDATA[<x>]]> text &amp; \xc3\xa4</w:a>\r
<!-- end -->\r
"""


@loop_over(
    "content",
    [
        PLAIN,
        PLAIN.replace(b"\r\n", b"\n"),
        b"\xef\xbb\xbf" + PLAIN,
        b"<a>text</a>",
        b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"/>\n',
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n<a>ä</a>'.encode("latin-1"),
        '<?xml version="1.0" encoding="UTF-16"?>\n<a>ä</a>\n'.encode("utf-16"),
        b"\xfe\xff" + '<?xml version="1.0" encoding="utf-16"?><a>ä</a>'.encode("utf-16-be"),
        '<?xml version="1.0" encoding="windows-1251"?>\n<a>дом</a>'.encode("cp1251"),
    ],
)
def test_what_is_read_is_written_as_it_was_spelled(content: bytes) -> None:
    assert serialised(parse(content, "a.xml"), content) == content


def test_characters_that_the_encoding_lacks_become_references() -> None:
    content = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<a>x</a>'.encode("latin-1")
    tree = parse(content, "a.xml")
    tree.getroot().text = "ä ☃"
    assert serialised(tree, content).endswith(b"<a>\xe4 &#9731;</a>")


ENTITY = b"<!DOCTYPE a [<!ENTITY %s>]><a>&x;</a>"


@loop_over(
    "content",
    [
        ENTITY % b'x "y"',
        ENTITY % b'x SYSTEM "file:///etc/passwd"',
        ENTITY % b'% x SYSTEM "http://127.0.0.1:9/x"',
        b'<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY x "' + 1000 * b"&a;" + b'">]><a b="&x;"/>',
        (ENTITY % b'x "y"').decode().encode("utf-16"),
        b" " * 100_000 + ENTITY % b'x "y"',
    ],
)
def test_entities_are_refused(content: bytes) -> None:
    must_raise(r"a\.xml: (declares entities|not well-formed)", parse, content, "a.xml")


def test_a_document_type_is_not_read(tmp_path) -> None:
    (tmp_path / "x.dtd").write_text('<!ENTITY x "secret">')
    content = f'<!DOCTYPE a SYSTEM "{tmp_path}/x.dtd"><a>1&x;2</a>'.encode()
    tree = parse(content, "a.xml")
    assert serialised(tree, content) == content
    # Nor is it looked for: neither is there, and reading would say so.
    for where in ("http://127.0.0.1:9/x.dtd", f"{tmp_path}/none.dtd"):
        content = f'<!DOCTYPE a PUBLIC "-//A" "{where}"><a/>'.encode()
        assert serialised(parse(content, "a.xml"), content) == content


@loop_over(
    ("content", "reason"),
    [
        (b"", "not well-formed"),
        (b"<a>\x00</a>", "not well-formed"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "not well-formed"),
        (300 * b"<a>" + 300 * b"</a>", "not well-formed"),
        (b"<!--" + (2 << 20) * b" " + b"--><a/>", "no element"),
        (8_000_001 * b"<", "exceed the limits"),
    ],
)
def test_what_is_not_taken_says_why(content: bytes, reason: str) -> None:
    must_raise(f"a.xml: .*{reason}", parse, content, "a.xml")
