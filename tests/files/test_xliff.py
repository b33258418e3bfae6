"""XLIFF 1.2 and 2.1: identity, targets made and filled, inline elements, states, languages, damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cotext.files.block_sentences import cut
from cotext.files.blocks import Block, Close, Copied, Job, Open, Point
from cotext.files.places import Element
from cotext.files.xliff import FORMAT
from tests.files.faking import changed, same_again, texts, upper
from tests.loops import loop_over
from tests.refusals import must_raise

FIRST = """<?xml version='1.0' encoding="utf-8" ?>
<!-- a job -->
<xliff  version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:sdl='http://sdl.com/FileTypes/SdlXliff/1.0'>
 <file original="a.html" source-language="en-US" target-language="de" datatype="html" >
  <header><note>of the tool</note><sdl:ref uid="1"/></header>
  <body>
   <group id="g1">
    <trans-unit id="1" maxwidth="30">
      <source>See the <g id="1" ctype="x-b">red</g> car<x id="2"/> &amp; go.</source>
      <note>keep</note>
    </trans-unit>
    <trans-unit id="2"><source>Untouched</source><target state="final">Unberührt</target></trans-unit>
    <trans-unit id="3"><source>Done</source><target>Fertig</target>
      <alt-trans><source>Done</source><target>Getan</target></alt-trans>
    </trans-unit>
    <trans-unit id="4" translate="no"><source>CODE</source></trans-unit>
    <trans-unit id="5"><source>Fill me</source><target/></trans-unit>
    <trans-unit id="6"><source>Guess</source>
      <target state="needs-review-translation">Rate</target></trans-unit>
   </group>
   <group translate="no"><trans-unit id="7" translate="yes"><source>Yes</source></trans-unit></group>
   <trans-unit id="8"><source>Press <bpt id="1">&lt;b&gt;</bpt>Enter<ept id="1">&lt;/b&gt;</ept>
     <ph id="2">{0}</ph>
     or <it id="3" pos="open">&lt;i&gt;</it>wait for <mrk mtype="protected">Cotext</mrk></source></trans-unit>
   <trans-unit id="9"><source>One. Two.</source>
     <seg-source><mrk mtype="seg" mid="1">One.</mrk> <g id="5"><mrk
       mtype="seg" mid="2">Two.</mrk></g></seg-source>
     <target><mrk mtype="seg" mid="1">Eins.</mrk> <g id="5"><mrk mtype="seg" mid="2"/></g></target>
     <sdl:seg-defs><sdl:seg id="1" conf="Translated" locked="true"/></sdl:seg-defs></trans-unit>
   <trans-unit id="10" xml:space="preserve"><source><![CDATA[A <b>line</b>
another line]]></source></trans-unit>
   <bin-unit id="11" mime-type="image/png"><bin-source><external-file href="a.png"/></bin-source></bin-unit>
  </body>
 </file>
 <file original="b" source-language="en" target-language="de" datatype="plaintext"><body>
   <trans-unit id="1"><source>Second file</source></trans-unit></body></file>
</xliff>
"""
SECOND = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en" trgLang="de-DE"
  xmlns:slr="urn:oasis:names:tc:xliff:sizerestriction:2.0">
 <file id="f1"><notes><note id="n">note</note></notes>
  <group id="g"><unit id="u1">
    <originalData><data id="d1">%d</data><data id="d2">&lt;br/></data></originalData>
    <segment id="s1"><source>You have <ph id="1" dataRef="d1"/> <pc id="2">new</pc> letters<ph id="3"
      dataRef="d2"/></source></segment>
    <ignorable><source> </source></ignorable>
    <segment state="final"><source>Final</source><target>Endlich</target></segment>
    <segment id="s3" state="initial" subState="x:y"><source>Then <sc id="4"/>half<ec startRef="4"/> and <sc
       id="5" isolated="yes"/>alone
       <mrk id="m" translate="no">AG</mrk><cp hex="001F"/></source><target>Then</target></segment>
  </unit></group>
  <unit id="u2" translate="no"><segment><source>No</source></segment></unit>
  <unit id="u3" slr:sizeRestriction="20"><segment><source xml:space="preserve">  Outer </source>
   </segment></unit>
 </file>
</xliff>
"""


def inner(element: etree._Element) -> str:
    text = etree.tostring(element, encoding="unicode", with_tail=False)
    return text[text.index(">") + 1 : text.rindex("<")]


def target(content: bytes, unit: str) -> etree._Element:
    root = etree.fromstring(content)
    [found] = root.xpath(f"(//*[local-name()='trans-unit'][@id='{unit}'])[1]/*[local-name()='target']")
    return found


def test_targets_of_1_2() -> None:
    opened = FORMAT.open(FIRST.encode(), "file")
    assert len(opened.contents.documents) == 2
    written = upper(opened)
    made = target(written, "1")
    assert "".join(made.itertext()) == "SEE THE RED CAR & GO."
    assert [child.get("id") for child in made] == ["1", "2"]
    assert made[0].text == "RED"
    assert made.get("state") == "needs-review-translation"
    assert b"</source>\n      <target state=" in written
    assert target(written, "5").text == "FILL ME"
    assert target(written, "2").text == "Unberührt"
    assert target(written, "3").text == "Fertig"
    assert target(written, "6").text == "Rate"
    assert target(written, "7").text == "YES"
    assert b"<target>Getan</target>" in written
    assert not etree.fromstring(written).xpath("//*[@id='4']/*[local-name()='target']")


def test_nothing_but_targets_changes() -> None:
    for content, left in ((FIRST, ()), (SECOND, ("state", "subState"))):
        shapes = []
        for file in (content.encode(), upper(FORMAT.open(content.encode(), "file"))):
            root = etree.fromstring(file)
            targets = "//*[local-name()='target' and not(ancestor::*[local-name()='alt-trans'])]"
            for element in root.xpath(targets):
                element.getparent().remove(element)
            kept = [
                ({k: v for k, v in e.attrib.items() if k not in left}, e.tag, (e.text or "").strip())
                for e in root.iter()
            ]
            shapes.append([each for each in kept if isinstance(each[1], str)])
        assert shapes[0] == shapes[1]


def test_inline_elements_and_segments_of_1_2() -> None:
    opened = FORMAT.open(FIRST.encode(), "file")
    block = next(block for block in opened.contents.documents[0] if block.text.startswith("Press"))
    kinds = [type(piece) for piece in block.pieces if not isinstance(piece, str)]
    assert kinds == [Open, Close, Copied, Point, Copied]
    assert block.text == "Press Enter {0} or wait for Cotext"
    made = inner(target(upper(opened), "8"))
    assert ">ENTER<" in made
    assert '<ph xmlns="urn:oasis:names:tc:xliff:document:1.2" id="2">{0}</ph>' in made or ">{0}</ph>" in made
    assert ">Cotext</mrk>" in made
    segments = (
        b'<target state="needs-review-translation" state-qualifier="leveraged-mt"><mrk mtype="seg" mid="1">'
        b'Eins.</mrk> <g id="5"><mrk\n       mtype="seg" mid="2">TWO.</mrk></g></target>'
    )
    assert segments in upper(opened)
    assert texts(opened)[0][-2:] == ["A line", "another line"]
    assert target(upper(opened), "10").text == "A <b>LINE</b>\nANOTHER LINE"


def test_line_breaks_are_between_lines() -> None:
    for mark in ('<x id="9" ctype="lb"/>', '<ph id="9">&lt;br/&gt;</ph>', "&lt;/p>&lt;p class='a'>"):
        content = FIRST.replace("Second file", f"Name of a file{mark}name of a user")
        block = FORMAT.open(content.encode(), "file").contents.documents[1][0]
        assert [piece.breaks for piece in block.pieces if isinstance(piece, Point)] in ([True], [True] * 2)
        assert [b.sentences for b in [cut(block, None)]] == [[("Name of a file",), ("name of a user",)]]


def test_what_is_translated_and_what_is_said_not_to_be() -> None:
    said = FORMAT.open(FIRST.encode(), "file").contents.messages
    states = ("used as context: 1", "waiting for review, kept (--entries unfinished translates them): 1")
    locked = 'trans-unit xmlns:mq="MQXliff" mq:locked="locked" id="1"'
    opened = FORMAT.for_job(Job(entries="all")).open(
        FIRST.replace('trans-unit id="1"', locked).encode(), "file"
    )
    assert "units marked translate=no or locked, kept: 4" in opened.contents.messages
    assert "Eins." in inner(target(upper(opened), "9"))
    for word in (*states, "as final, kept: 1", "translate=no", "bin-unit", "length limit"):
        assert any(word in line for line in said), word
    again = upper(FORMAT.for_job(Job(entries="unfinished")).open(FIRST.encode(), "file"))
    assert target(again, "6").text == "GUESS"
    assert target(again, "3").text == "Fertig"
    everything = upper(FORMAT.for_job(Job(entries="all")).open(FIRST.encode(), "file"))
    assert target(everything, "3").text == "DONE"
    assert target(everything, "2").text == "Unberührt"


def test_targets_of_2_1() -> None:
    opened = FORMAT.open(SECOND.encode(), "file")
    blocks = opened.contents.documents[0]
    first, third = ([type(p) for p in blocks[n].pieces if not isinstance(p, str)] for n in (0, 2))
    assert first == [Copied, Open, Close, Point]
    assert third == [Open, Close, Point, Copied, Point]
    assert blocks[0].text == "You have %d new letters"
    assert [block.text for block in blocks if not block.translate] == ["Final"]
    written = upper(opened).decode()
    assert (
        '<segment id="s1" state="translated"><source>You have <ph id="1" dataRef="d1"/> <pc id="2">new</pc> '
        'letters<ph id="3"\n      dataRef="d2"/></source><target>YOU HAVE <ph id="1" dataRef="d1"/> '
        '<pc id="2">NEW</pc> LETTERS<ph id="3"\n      dataRef="d2"/></target></segment>' in written
    )
    assert '<target xml:space="preserve">  OUTER </target>' in written
    assert '<segment id="s3" state="translated">' in written
    assert '<mrk id="m" translate="no">AG</mrk><cp hex="001F"/></target>' in written
    assert '<segment state="final"><source>Final</source><target>Endlich</target>' in written


def test_elements_in_another_order() -> None:
    opened = FORMAT.open(SECOND.encode(), "file")
    blocks = changed(opened.contents.documents, str.upper)
    own = opened.contents.documents[0][0].pieces
    number, begin, end, point = (piece for piece in own if not isinstance(piece, str))
    blocks[0][0] = Block((begin, "Neue", end, " Briefe: ", number, point, " <&>"))
    assert (
        b'<target><pc id="2">Neue</pc> Briefe: <ph id="1" dataRef="d1"/><ph id="3"\n      dataRef="d2"/> '
        b"&lt;&amp;&gt;</target>" in opened.written(blocks)
    )


def test_languages() -> None:
    assert FORMAT.for_job(Job("en", "de-AT")).open(FIRST.encode(), "file").contents.documents
    french = FORMAT.for_job(Job("en", "fr"))
    must_raise("the languages en-US-de, en-de, but the run has en-fr", french.open, FIRST.encode(), "file")
    unknown = FORMAT.for_job(Job("en")).open(FIRST.encode(), "file").contents.messages
    said = (
        "the languages of the run are unknown, and not compared with the languages of the file "
        "(en-US-de, en-de)"
    )
    assert said in unknown
    assert said not in FORMAT.for_job(Job("en", "de")).open(FIRST.encode(), "file").contents.messages
    unnamed = FIRST.replace(' target-language="de"', "").encode()
    written = upper(FORMAT.for_job(Job("en", "de")).open(unnamed, "file"))
    assert written.count(b' target-language="de"') == 2
    must_raise("trgLang", FORMAT.open, SECOND.replace(' trgLang="de-DE"', "").encode(), "file")


def test_other_roots_and_encodings() -> None:
    content = FIRST.replace('version="1.2" ', "").encode()
    assert target(upper(FORMAT.open(content, "file")), "5").text == "FILL ME"
    content = FIRST.replace('"utf-8"', '"iso-8859-1"').encode("latin-1")
    opened = same_again(FORMAT, content)
    written = opened.written(changed(opened.contents.documents, lambda _: "Ж"))
    assert "".join(target(written, "5").itertext()) == "Ж"


@loop_over(
    ("content", "said"),
    [
        ('<!DOCTYPE xliff [<!ENTITY a "b">]><xliff version="1.2"/>', "DOCTYPE"),
        ('<!DOCTYPE xliff SYSTEM "http://x.invalid/a"><xliff version="1.2">&a;</xliff>', "&a;"),
        ('<xliff version="1.2"><file></xliff>', "file:1: malformed"),
        ('<xliff version="3.0"/>', "is not supported; use XLIFF"),
        ("<xliff " + "<a>" * 200, "malformed"),
        ('<xliff version="1.2">' + "<a>" * 200 + "</a>" * 200 + "</xliff>", "nested elements"),
        (
            '<xliff version="1.2"><file><body><trans-unit id="q"/></body></file></xliff>',
            r"line 1 \(q\): a trans-unit",
        ),
    ],
)
def test_what_is_refused(content: str, said: str) -> None:
    must_raise(said, FORMAT.open, content.encode(), "file")


def test_units_of_many_segments_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = "<segment><source>Word</source></segment>"
    unit = f'<unit id="1">{segment * 300}<originalData><data id="d">x</data></originalData></unit>'
    content = f'<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">{unit}</file></xliff>'
    seen: list[Element] = []
    first = Element.first
    monkeypatch.setattr(Element, "first", lambda self, name: seen.append(self) or first(self, name))
    [blocks] = FORMAT.open(content.encode(), "file").contents.documents
    assert len(blocks) == 300
    assert [element.name for element in seen].count("unit") == 1


INLINE = st.recursive(
    st.sampled_from(
        ["word ", "A sentence. ", "&lt;b&gt;x&lt;/b&gt;", "&#233;", '<x id="9"/>', "<!-- c -->", " \n "]
    ),
    lambda inside: (
        st.lists(inside, max_size=4).map(lambda parts: '<g id="1">' + "".join(parts) + "</g>")
        | st.lists(inside, max_size=4).map("".join)
        | inside.map(lambda part: '<bx id="5"/>' + part + '<ex id="5"/>')
    ),
    max_leaves=12,
)


@given(INLINE, st.sampled_from(["", ' xml:space="preserve"']))
def test_any_structure_of_inline_elements(source: str, space: str) -> None:
    content = (
        '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
        f'<trans-unit id="1"{space}><source>{source}</source></trans-unit></body></file></xliff>'
    ).encode()
    opened = same_again(FORMAT, content)
    if opened.contents.documents:
        same = [[Block(block.pieces) for block in blocks] for blocks in opened.contents.documents]
        root = etree.fromstring(opened.written(same))
        first, second = (next(root.iter(name)) for name in ("source", "target"))
        assert [e.tag for e in first.iterdescendants()] == [e.tag for e in second.iterdescendants()]
        assert "".join(first.itertext()).split() == "".join(second.itertext()).split()


HALVES = '<bx id="1"/>' * 20000 + '<ex id="2"/>' * 20000


def test_long_runs_take_time_by_their_length() -> None:
    """Of a megabyte each, where time by the square would be hours."""
    many = 1 << 20
    start = '<xliff version="1.2"><file source-language="en"'
    end = '<body><trans-unit id="1"><source>A b</source></trans-unit></body></file></xliff>'
    for content in (
        f"{start}{' ' * many}>{end}",
        f"{start}>{end.replace('A b', 'A' + ' ' * many + 'b')}",
        f"{start}>{end.replace('<source>', '<n' + 'n' * many + '/><source>')}",
        start + ">" + end.replace("A b", "A" + HALVES),
        f"{start}>{end.replace('A b', 'A' + ' &lt;a' * 100000)}",
    ):
        upper(FORMAT.for_job(Job("en", "de")).open(content.encode(), "file"))
