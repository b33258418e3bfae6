"""TMX files: targets filled, memories looked up in and written, damage."""

from pathlib import Path

import pytest
from catalogues import same_again, texts, upper
from faking import assert_damage_is_survived
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from cotext.data.formats.tmx import pairs
from cotext.files.bilingual import Job
from cotext.files.blocks import Close, Copied, Open, Point
from cotext.files.table import recognise
from cotext.files.tmx import FORMAT, Tmx, written
from cotext.runtime.errors import CotextError

MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="x" srclang="en-US" datatype="html"><note>mine</note></header>
  <body>
    <tu tuid="1"><prop type="file">a.html</prop>
      <tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept
        i="1">&lt;/b&gt;</ept> car<ph>{0}</ph>, <it
        pos="begin">&lt;i&gt;</it>now.</seg></tuv>
    </tu>
    <tu tuid="2"><prop type="file">a.html</prop><tuv xml:lang="en-US"><seg>Done.</seg></tuv><tuv
      xml:lang="de-DE"><seg>Fertig.</seg></tuv></tu>
    <tu tuid="3"><prop type="file">b.html</prop><tuv
        xml:lang="EN"><seg>Empty &amp; <hi>new</hi>.</seg></tuv>
      <tuv xml:lang="de-DE"><seg/></tuv></tu>
    <tu tuid="4"><tuv xml:lang="de-DE"><seg>Nur deutsch.</seg></tuv></tu>
  </body>
</tmx>
"""


def test_it_is_recognised_by_content() -> None:
    for encoding in ("utf-8", "utf-16"):
        found = recognise(MEMORY.replace("UTF-8", encoding).encode(encoding), "memory")
        assert found is not None
        assert found.name == "tmx"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_its_own_blocks_give_the_file_back(ending: str) -> None:
    same_again(FORMAT, MEMORY.replace("\n", ending).encode())


def test_targets_are_filled() -> None:
    opened = FORMAT.open(MEMORY.encode(), "file")
    assert texts(opened) == ["A red car{0}, now."]
    assert texts(opened, 1) == ["Empty & new."]
    kinds = [type(piece) for piece in opened.contents.documents[0][0].pieces if not isinstance(piece, str)]
    assert kinds == [Open, Close, Copied, Point]
    content = upper(opened)
    found = {unit.get("tuid"): unit for unit in etree.fromstring(content).iter("tu")}
    target = found["1"].findall("tuv")[1]
    assert target.get("{http://www.w3.org/XML/1998/namespace}lang") == "de-DE"
    assert "".join(target.itertext()) == "A <b>RED</b> CAR{0}, <i>NOW."
    assert "".join(found["2"].findall("tuv")[1].itertext()) == "Fertig."
    assert "".join(found["3"].findall("tuv")[1].itertext()) == "EMPTY & NEW."
    assert len(found["4"]) == 1
    assert opened.contents.messages == [
        "1 units that have a target stay as they are, as context",
        "1 units have no text in en-US, and stay as they are",
    ]


def test_the_job_names_languages_and_entries() -> None:
    content = upper(Tmx(Job("en", "fr")).open(MEMORY.encode(), "file"))
    assert content.count(b'<tuv xml:lang="fr">') == 3
    everything = upper(Tmx(Job("en", "de", "all")).open(MEMORY.encode(), "file"))
    assert b"<seg>DONE.</seg>" in everything
    with pytest.raises(CotextError, match="srclang"):
        FORMAT.open(MEMORY.replace('srclang="en-US"', 'srclang="*all*"').encode(), "file")
    with pytest.raises(CotextError, match="found: none"):
        FORMAT.open(MEMORY.replace("de-DE", "en-GB").encode(), "file")


def test_pairs_of_a_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.tmx"
    path.write_text(MEMORY)
    assert list(pairs(path, "en", "de")) == [
        ("Done.", "Fertig.", {"x-position": "2", "file": "a.html", "x-document": "a.html"}),
        ("Empty & new.", "", {"x-position": "1", "file": "b.html", "x-document": "b.html"}),
    ]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memories")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=5))
def test_a_memory_that_was_written_is_read(folder: Path, sentences: list[tuple[str, str]]) -> None:
    allowed = [
        tuple("".join(c for c in text if c.isprintable() or c in "\n\t") for text in pair)
        for pair in sentences
    ]
    records = [
        (source, target, {"x-document": "a <b>", "x-position": str(number)})
        for number, (source, target) in enumerate(allowed, 1)
    ]
    content = written(records, "en", "de")
    path = folder / "memory.tmx"
    path.write_bytes(content)
    assert list(pairs(path, "en", "de")) == records


def test_damage() -> None:
    assert_damage_is_survived(FORMAT, MEMORY.encode(), seed=1)
