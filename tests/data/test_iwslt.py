"""Files of the IWSLT talks as they come: train.tags and the XML of development and test sets."""

from pathlib import Path

import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import detect_format, read_documents, read_parallel
from cotext.data.formats.corpus import located_documents
from tests.loops import loop_over
from tests.refusals import must_raise

HEAD = "<url>http://talks.example/{0}</url>\n<keywords>talks, sea</keywords>\n<speaker>A. B.</speaker>\n"
HEAD += "<talkid>{0}</talkid>\n<title>A. B.: The sea</title>\n<description>It is &amp; wide.</description>\n"
TALK_1 = HEAD.format(7) + "The sea is deep.\n\nIt is <i>salt</i> &amp; cold.\n"
BEHIND = '<reviewer href="http://talks.example/r">R. S.</reviewer>\n<translator>T. U.</translator>\n'
TALK_2 = HEAD.format(9) + "<url is what she wrote.\n"
SENTENCES = [("The sea is deep.", "", "It is <i>salt</i> &amp; cold."), ("<url is what she wrote.",)]
EDITIONS = {
    "without doc": TALK_1 + TALK_2,
    "metadata behind": TALK_1 + BEHIND + "\n" + TALK_2 + BEHIND,
    "with doc": "".join(
        f'<doc docid="{n}" genre="lectures">\n{talk}{BEHIND}</doc>\n\n'
        for n, talk in ((7, TALK_1), (9, TALK_2))
    ),
}
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


def of(folder: Path, text: str, name: str = "train.tags.en-de.en") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("edition", EDITIONS)
def test_talks_are_documents_and_metadata_no_sentences(edition: str, tmp_path: Path) -> None:
    path = of(tmp_path, EDITIONS[edition])
    assert detect_format(path) == "iwslt-tags"
    assert list(read_documents(path)) == [Document("7", SENTENCES[0]), Document("9", SENTENCES[1])]
    lines = path.read_text().split("\n")
    for document, location_of in located_documents(path):
        for index, sentence in enumerate(document.sentences):
            number = int(location_of(index).rpartition(":")[2])
            assert lines[number - 1] == sentence


def test_talks_have_numbers_and_two_sides(tmp_path: Path) -> None:
    path = of(tmp_path, "<url>http://a.example</url>\nA.\n<url>http://b.example</url>\nB.\n")
    assert [d.id for d in read_documents(path)] == ["1", "2"]
    source = of(tmp_path, TALK_1 + TALK_2)
    target = of(tmp_path, (TALK_1 + BEHIND + TALK_2).replace("deep", "tief"), "train.tags.en-de.de")
    pairs = list(read_parallel(source, target))
    assert [d.id for d in pairs] == ["7", "9"]
    assert pairs[0].target[0] == "The sea is tief."


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TALK_1, r"train\.en has 2 documents but .*train\.de has only 1; .* document '9' at .*train\.en:16"),
        (TALK_1 + TALK_2 + "More.\n", r"train\.en:16 and .*:16: document '9' .* 1 sentences .* but 2 in"),
        (TALK_1 + TALK_2.replace("9", "8"), r"number 2 is '9' in the source but '8' in the target"),
    ],
)
def test_sides_that_differ_are_refused(tmp_path: Path, target: str, message: str) -> None:
    source = of(tmp_path, TALK_1 + TALK_2, "train.en")
    must_raise(message, read_parallel, source, of(tmp_path, target, "train.de"))


@loop_over(
    ("text", "message"),
    [
        ("<url>http://a.example\nA.\n", r":1: <url> without </url> at the end of its line"),
        (TALK_1 + "<title>A\n", r":10: <title> without </title>"),
        (TALK_1 + BEHIND + "More.\n", r":12: text behind <translator>, which closes a talk"),
        (TALK_1 + "</doc>\n</doc>\n", r":11: text outside of a talk"),
        ("<doc>\n" + TALK_1 + "</doc>\nMore.\n", r":12: text outside of a talk"),
        ("<doc>\n" + TALK_1 + "</doc>\n" + BEHIND, r":12: <reviewer> outside of a talk"),
        (HEAD.format(1), r":1: document '1' is empty"),
    ],
)
def test_malformed_talks_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = of(tmp_path, text)
    must_raise(r"train\.tags\.en-de\.en" + message, read_documents, path)


@pytest.mark.parametrize(
    "text", ["<title>No talk</title>\nA.\n", "<url> is a placeholder.\nA.\n", "<talkid is a name.\nA.\n"]
)
def test_text_that_begins_with_a_tag_is_text(tmp_path: Path, text: str) -> None:
    assert detect_format(of(tmp_path, text)) == "text"


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
