from io import BytesIO

import docx
import pytest
from faking import members, packed
from test_docx import real

from cotext.files.archive import without_macros
from cotext.files.docx import FORMAT
from cotext.runtime.errors import CotextError

KIND = "http://schemas.microsoft.com/office/2006/relationships/vbaProject"
RELATION = f'<Relationship Id="m1" Type="{KIND}" Target="vbaProject.bin"/>'.encode()
OVERRIDE = b'<Override PartName="/word/vbaProject.bin" ContentType="application/vnd.ms-office.vbaProject"/>'
MANIFEST = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"


def with_macros() -> bytes:
    parts = members(real())
    listing = "word/_rels/document.xml.rels"
    parts[listing] = parts[listing].replace(b"</Rel", RELATION + b"</Rel")
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"</Types>", OVERRIDE + b"</Types>")
    parts["word/vbaProject.bin"] = b"code"
    parts["word/_rels/vbaProject.bin.rels"] = b"<Relationships/>"
    parts["word/vbaData.xml"] = b"<x/>"
    return packed(parts)


def test_macros_and_what_names_them_go() -> None:
    assert FORMAT.open(with_macros(), "a.docm").contents.messages == [
        "macros are kept as they are, and not run (--drop-macros: left out)"
    ]
    content = without_macros(with_macros(), "a.docm")
    file = FORMAT.open(content, "a.docm")
    assert file.contents.messages == []
    before, after = members(with_macros()), members(content)
    assert set(before) - set(after) == {
        *("word/vbaProject.bin", "word/_rels/vbaProject.bin.rels", "word/vbaData.xml")
    }
    assert not any(b"vba" in part for part in after.values())
    assert {name for name in after if before[name] != after[name]} == {
        *("word/_rels/document.xml.rels", "[Content_Types].xml")
    }
    assert docx.Document(BytesIO(content)).paragraphs[0].text == "A heading"


def test_macros_of_opendocument_go() -> None:
    entries = "".join(
        f'<m:file-entry m:full-path="{name}"/>' for name in ("content.xml", "Basic/Standard/a.xml")
    )
    parts = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": "<x/>",
        "Basic/Standard/a.xml": "<code/>",
        "META-INF/manifest.xml": f'<m:manifest xmlns:m="{MANIFEST}">{entries}</m:manifest>',
    }
    after = members(without_macros(packed(parts), "a.odt"))
    assert list(after) == ["mimetype", "content.xml", "META-INF/manifest.xml"]
    assert b"Basic" not in after["META-INF/manifest.xml"]
    assert b"content.xml" in after["META-INF/manifest.xml"]


def test_a_file_without_macros_comes_back_itself() -> None:
    content = real()
    assert without_macros(content, "a.docx") is content
    with pytest.raises(CotextError, match=r"^a\.docm: a damaged archive"):
        without_macros(content[:-30], "a.docm")
