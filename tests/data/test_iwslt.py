"""The XML of the development and test sets of IWSLT."""

from pathlib import Path

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import detect_format, read_documents, read_parallel
from tests.loops import loop_over
from tests.refusals import must_raise

XML = """<?xml version="1.0" encoding="UTF-8"?>
<mteval>
<{0} setid="iwslt2017-tst2015" srclang="english">
<doc docid="7" genre="lectures">
<url>http://talks.example/7</url>
<title>{0} &amp; title</title>
<seg id="1"> A &amp; b. </seg>
<seg id="2">C.</seg>
</doc>
<doc docid="9" genre="lectures"><hl><seg id="1">D.</seg></hl></doc>
</{0}>
</mteval>
"""


def of(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@loop_over("root", ["srcset", "refset", "tstset"])
@loop_over("bare", [False, True])
def test_xml_of_one_language(tmp_path: Path, root: str, bare: bool) -> None:
    text = XML.format(root)
    if bare:
        text = text.partition("<mteval>\n")[2].replace("</mteval>\n", "")
    path = of(tmp_path, text, "IWSLT17.TED.tst2015.en-de.en.xml")
    assert detect_format(path) == "wmt-xml"
    assert list(read_documents(path)) == [Document("7", ("A & b.", "C.")), Document("9", ("D.",))]


def test_xml_of_two_languages_in_two_files(tmp_path: Path) -> None:
    source = of(tmp_path, XML.format("srcset"), "test.en.xml")
    target = of(tmp_path, XML.format("refset").replace("D.", "d."), "test.de.xml")
    pairs = list(read_parallel(source, target))
    assert pairs[1] == ParallelDocument("9", ("D.",), ("d.",))
    must_raise(r"test\.en\.xml:4: document '7' has no second side", read_parallel, source, None)
    short = of(tmp_path, XML.format("refset").replace('<seg id="2">C.</seg>\n', ""), "short.de.xml")
    message = r"test\.en\.xml:4 and .*short\.de\.xml:4: .* 2 sentences .* but 1 in"
    must_raise(message, read_parallel, source, short)


def test_xml_of_two_sets_or_with_entities_is_refused(tmp_path: Path) -> None:
    both = "<mteval>\n<srcset></srcset>\n<refset></refset></mteval>"
    undefined = XML.format("srcset").replace("C.", "&b;")
    doctype = '<!DOCTYPE mteval [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<mteval>'
    for text, message in (
        (both, ":3: <refset> after <srcset>; write them to separate files"),
        (undefined.replace("<mteval>", doctype), ":2: contains a DOCTYPE"),
        (undefined, ":8: malformed XML .*undefined entity"),
    ):
        must_raise(rf"a\.xml{message}", read_documents, of(tmp_path, text, "a.xml"))
