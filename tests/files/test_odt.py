import random
import re
import shutil
import subprocess
from pathlib import Path

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

from cotext.files.odt import FORMAT
from cotext.files.table import recognise
from cotext.runtime.errors import CotextError

DATA = Path(__file__).with_name("data")
NAMES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in (("office", "office"), ("text", "text"), ("style", "style"), ("draw", "drawing"))
)
STYLE = '<style:style style:name="{}" style:family="text"><style:text-properties {}="1"/></style:style>'
STYLES = "".join(STYLE.format(*each) for each in (("B", "weight"), ("N", "rsid")))
STYLES = f"<office:automatic-styles>{STYLES}</office:automatic-styles>"


def document(body: str, styles: str = "", manifest: str = "") -> bytes:
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document-content {NAMES}>'
            f"{STYLES}<office:body><office:text>{body}</office:text></office:body></office:document-content>",
            "styles.xml": f"<office:document-styles {NAMES}>{styles}</office:document-styles>",
            "META-INF/manifest.xml": f"<manifest>{manifest}</manifest>",
        }
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("One\n  two<text:s/>three<text:s text:c='2'/>four", "One two three  four"),
        ("a<text:tab/>b<text:line-break/>c", "a/b/c"),
        ('so <text:span text:style-name="B">bold</text:span> it is', "so [bold] it is"),
        ('so <text:span text:style-name="N">pl<text:tab/>ain</text:span> it is', "so pl/ain it is"),
        ('<text:span text:style-name="B">all <text:a>of</text:a> it</text:span>', "all [of] it"),
        ("see page <text:page-number>7</text:page-number> there", "see page <7> there"),
        ('<text:bookmark-start text:name="a"/>in<text:bookmark-end text:name="a"/> it', "[in] it"),
        ("mid<text:soft-page-break/>word", "midword"),
        ("<draw:frame/>text<draw:frame/> <!-- no -->more", "text* *more"),
        ("12 % <text:note/>", "12 % "),
    ],
)
def test_what_a_paragraph_holds(body: str, expected: str) -> None:
    content = document(f"<text:p>{body}</text:p>")
    file = FORMAT.open(content, "a.odt")
    assert_well_formed(file)
    assert [shape(block) for block in file.contents.documents[0]] == [expected]
    assert file.written(file.contents.documents) == content
    again = FORMAT.open(file.written(shouted(file.contents.documents)), "b.odt")
    assert [shape(block) for block in again.contents.documents[0]] == [
        shape(block) for block in shouted(file.contents.documents)[0]
    ]


PARTS = st.lists(
    st.sampled_from(
        [
            *(
                "word ",
                "  ",
                "<text:s/>",
                "<text:tab/>",
                "&amp;",
                "\n",
                "<text:soft-page-break/>",
                "<text:note/>",
            ),
            *('<text:span text:style-name="B">bold<text:tab/>tail</text:span>', "<text:a>link</text:a>tail"),
            *(
                '<text:span text:style-name="N">plain<text:note/>tail</text:span>',
                "<text:date>1 May</text:date>",
            ),
            *(
                '<text:bookmark-start text:name="a"/>',
                '<text:bookmark-end text:name="a"/>',
                "<draw:frame/>tail",
            ),
            '<text:span text:style-name="B">a<text:span text:style-name="C">b</text:span>c</text:span>',
        ]
    ),
    max_size=10,
)


def others(content: bytes) -> list[str]:
    """Elements beside those that a changed paragraph drops or spells its spaces with."""
    names = re.findall(rb"<([\w:-]+)(?![^>]*style-name=.N.)", members(content)["content.xml"])
    dropped = ("text:s", "text:soft-page-break", "text:tab")
    return [name for each in names if (name := each.decode()) not in dropped]


@settings(max_examples=200, deadline=None)
@given(PARTS, st.randoms(use_true_random=False))
def test_any_paragraph(parts: list[str], draw: random.Random) -> None:
    content = document(f"<text:p>{''.join(parts)}</text:p>")
    file = FORMAT.open(content, "a.odt")
    assert_well_formed(file)
    assert file.written(file.contents.documents) == content
    written = file.written(shouted(file.contents.documents))
    if file.contents.documents:
        assert others(written) == others(content)
    again = FORMAT.open(written, "b.odt")
    assert [text.split() for text in texts(again)[0:1] and texts(again)[0]] == [
        block.text.split() for document in shouted(file.contents.documents) for block in document
    ]
    mixed = [[shuffled(block, draw) for block in document] for document in file.contents.documents]
    mixed = changed(mixed, lambda text: text + "!")
    if mixed:
        assert sorted(others(file.written(mixed))) == sorted(others(content))


def test_several_spaces_come_back() -> None:
    file = FORMAT.open(document("<text:p>one</text:p>"), "a.odt")
    written = file.written(changed(file.contents.documents, lambda text: " a  b\tc\nd   e "))
    assert (
        b'<text:p><text:s/>a<text:s text:c="2"/>b<text:tab/>c<text:line-break/>d'
        in members(written)["content.xml"]
    )
    assert [shape(block) for block in FORMAT.open(written, "b.odt").contents.documents[0]] == [
        "a  b/c/d   e "
    ]


def test_other_parts_and_what_is_left() -> None:
    header = "<office:master-styles><style:header><text:p>Head</text:p></style:header></office:master-styles>"
    gone = "<text:changed-region><text:p>gone</text:p></text:changed-region>"
    body = f"<text:tracked-changes>{gone}</text:tracked-changes>"
    content = document(
        f"{body}<text:h>Title</text:h><text:p>Text<text:note><text:p>Note</text:p></text:note></text:p>",
        header,
    )
    file = FORMAT.open(content, "a.odt")
    assert texts(file) == [["Title", "Text", "Note"], ["Head"]]
    assert file.contents.messages == [
        "tracked changes: 1, read as if accepted; deleted text is kept as it is"
    ]
    one = [file.contents.documents[0], shouted(file.contents.documents)[1]]
    before, after = members(content), members(file.written(one))
    assert [name for name in before if before[name] != after[name]] == ["styles.xml"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (document("", manifest="<encryption-data/>"), "protected by a password"),
        (packed({"mimetype": "application/vnd.oasis.opendocument.text-master"}), "not an OpenDocument text"),
        (packed({"mimetype": "application/vnd.oasis.opendocument.text"}), r"no part 'content\.xml'"),
        (document("<text:p>"), r"content\.xml: not well-formed"),
    ],
)
def test_what_is_refused(content: bytes, reason: str) -> None:
    assert recognise(content, "a.odt") is FORMAT
    with pytest.raises(CotextError, match=rf"^a\.odt: .*{reason}"):
        FORMAT.open(content, "a.odt")


def test_damage_is_survived() -> None:
    span = '<text:span text:style-name="B">two</text:span>'
    body = f"<text:p>One {span} <text:s/><text:note><text:p>3</text:p></text:note></text:p>"
    assert_damage_is_survived(FORMAT, document(body), seed=13)


@pytest.mark.outside
@pytest.mark.skipif(not shutil.which("soffice"), reason="needs LibreOffice")
def test_a_word_processor_reads_what_it_wrote(tmp_path: Path) -> None:
    def converted(path: Path, to: str) -> Path:
        home = f"-env:UserInstallation=file://{tmp_path}/home"
        command = ["soffice", home, "--headless", "--convert-to", to, "--outdir", str(tmp_path), str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        return tmp_path / f"{path.stem}.{to.partition(':')[0]}"

    path = converted(DATA / "letter.fodt", "odt")
    file = FORMAT.open(path.read_bytes(), path.name)
    assert file.written(file.contents.documents) == path.read_bytes()
    after = tmp_path / "after.odt"
    after.write_bytes(file.written(shouted(file.contents.documents)))
    before, shouting = (
        re.sub(r"\s+", " ", converted(each, "txt:Text (encoded):UTF8").read_text("utf-8"))
        for each in (path, after)
    )
    assert shouting.lower() == before.lower()
    assert "IT WAS VERY EXPENSIVE. SHE SOLD IT TO HER NEIGHBOUR." in shouting
