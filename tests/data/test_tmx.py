"""Translation memories as corpora: documents, languages, what is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.data.formats.xml_formats import encode_memory, pairs
from tests.cli.test_foreign import written
from tests.loops import loop_over
from tests.refusals import must_raise

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


def memory(units: str, header: str = "srclang='en'") -> str:
    return f"<?xml version='1.0'?>\n<tmx version='1.4'><header {header}/><body>\n{units}\n</body></tmx>\n"


def unit(source: str, target: str, document: str = "", languages: tuple[str, str] = ("en", "de")) -> str:
    named = f"<prop type='x-document'>{document}</prop>" if document else ""
    texts = zip(languages, (source, target), strict=True)
    return f"<tu>{named}{''.join(f'<tuv xml:lang={c!r}><seg>{t}</seg></tuv>' for c, t in texts)}</tu>\n"


def test_documents_languages_and_encodings(tmp_path: Path) -> None:
    variants = unit("A.", "a.").replace("<tuv", "<tuv xml:lang='en-US'><seg>No.</seg></tuv><tuv", 1)
    path = written(tmp_path, "m.tmx", memory(variants + unit("B.", "b.", languages=("EN", "de-AT"))))
    assert list(read_parallel(path, None)) == [ParallelDocument("1", ("A.", "B."), ("a.", "b."))]
    path = written(tmp_path, "m.tmx", memory(unit("a.", "A.", "d", ("de", "en-GB"))))
    assert list(read_parallel(path, None)) == [ParallelDocument("d", ("A.",), ("a.",))]
    mixed = unit("a.", "A.", "d", ("de", "en")) + unit("B.", "b.", "d")
    path = written(tmp_path, "m.tmx", memory(mixed, "srclang='*all*'"))
    assert list(read_parallel(path, None)) == [ParallelDocument("d", ("a.", "b."), ("A.", "B."))]
    path = written(tmp_path, "m.tmx", memory(unit("A.", "a.") + unit("B.", "b.", languages=("eng", "deu"))))
    assert list(read_parallel(path, None)) == [ParallelDocument("1", ("A.", "B."), ("a.", "b."))]
    repaired = ParallelDocument("d", ("Er kam.",), ("Sie kam.",))
    write_parallel(path, None, [repaired], "tmx", ("de", "de"))  # such as a text and its repair
    assert list(read_parallel(path, None)) == [repaired]
    path.write_bytes(memory(unit("Ä.", "ö.")).encode("utf-16"))
    assert list(read_parallel(path, None)) == [ParallelDocument("1", ("Ä.",), ("ö.",))]


@loop_over(
    ("content", "said"),
    [
        (memory(unit("A.", "a.") + unit("A.", "a.", languages=("en", "fr"))), "4: more than two languages"),
        (memory(unit("A.", "a.", languages=("fr", "de"))), "without a text in its source language en"),
        (memory(f"{unit('A.', 'a.')}<tu><tuv xml:lang='en'><seg>B</seg></tuv></tu>"), "unit in one language"),
        (memory(unit("A.", "a.", languages=("en-US", "en-GB"))), r":3: several texts .* \(en-US, en-GB\)"),
        (memory("<tu><tuv><seg>A</seg></tuv></tu>"), "without xml:lang"),
        (memory("<tu>"), "tmx:4: malformed XML"),
        ("<!DOCTYPE tmx [<!ENTITY a 'b'>]>\n" + memory("")[22:], "DOCTYPE with declarations"),
        ("<!DOCTYPE tmx SYSTEM 'a.dtd'>\n" + memory(unit("&a;", "b"))[22:], "&a;"),
        (memory("<tu>" + "<prop>" * 200), "nested elements"),
        ("<tm/>", "not <tmx>"),
    ],
)
def test_what_is_refused(content: str, said: str, tmp_path: Path) -> None:
    must_raise(said, read_parallel, written(tmp_path, "m.tmx", content), None, "tmx")


def test_pairs_of_a_memory(tmp_path: Path) -> None:
    path = written(tmp_path, "m.tmx", MEMORY)
    assert list(pairs(path, "en", "de")) == [
        ("A red car, now.", "", {"x-position": "1", "file": "a.html", "x-document": "a.html"}),
        ("Done.", "Fertig.", {"x-position": "2", "file": "a.html", "x-document": "a.html"}),
        ("Empty & new.", "", {"x-position": "1", "file": "b.html", "x-document": "b.html"}),
        ("", "Nur deutsch.", {"x-position": "1", "x-document": ""}),
    ]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=5))
def test_a_memory_that_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[tuple[str, str]]
) -> None:
    allowed = [
        tuple("".join(c for c in text if c.isprintable() or c in "\n\t") for text in pair)
        for pair in sentences
    ]
    records = [
        (source, target, {"x-document": "a <b>", "x-position": str(number)})
        for number, (source, target) in enumerate(allowed, 1)
    ]
    path = written(tmp_path_factory.getbasetemp(), "m.tmx", encode_memory(records, "en", "de"))
    assert list(pairs(path, "en", "de")) == records
