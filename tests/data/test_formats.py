import gzip
import lzma
import os
import re
import resource
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import (
    FORMATS,
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
    write_translations,
)
from tests.loops import loop_over
from tests.refusals import must_raise

ONE_FILE = ["tmx", "tsv", "jsonl", "wmt"]
WRITTEN = [name for name, row in FORMATS.items() if row.encode]

# Everything that some reader somewhere takes for the end of a line, and every mark of every format.
NASTY = [*"\r\t\x0b\x0c\x1c\x85\u2028\u2029\u3000\xa0\ufeff\x01\ufffe"]
MARKS = ["<d>", "{", "&amp;", "<seg>", "<doc>", "</doc>", "<title>", "]]>", "\\n", '"', "", " "]
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\n\0")
pieces = st.sampled_from(NASTY + MARKS) | st.text(characters, max_size=4)
sentences = st.lists(pieces, max_size=4).map("".join)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5).map(
    lambda text: "d" + text.strip()
)
some = st.builds(Document, ids, st.lists(sentences, min_size=1, max_size=5).map(tuple))


def kept(format: str, documents: list[Document]) -> list[Document]:
    """Documents as a format stores them: some formats drop outer white space, or ids."""
    return [
        Document(
            d.id if FORMATS[format].carries_ids else str(number),
            tuple(s if format == "jsonl" else s.strip(" \t\r") for s in d.sentences),
        )
        for number, d in enumerate(documents, 1)
    ]


def representable(format: str, documents: list[Document]) -> bool:
    every = [s for d in kept(format, documents) for s in d.sentences]
    if format in ("text", "docids") and every[0].startswith("\ufeff"):
        return False
    if format == "text":
        return all(every)
    if format == "d-lines":
        return "<d>" not in every
    if format == "tsv":
        group_windows = pairwise(documents)
        return not any("\t" in s for s in every) and all(a.id != b.id for a, b in group_windows)
    if format == "tmx":
        if any(a.id == b.id for a, b in pairwise(documents)):
            return False
        texts = every + [d.id for d in documents]
        return not any(re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", s) for s in texts)
    return True


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


@pytest.mark.parametrize("format", WRITTEN)
@settings(max_examples=50)
@given(documents=st.lists(some, min_size=1, max_size=5))
def test_a_corpus_is_refused_or_read_as_written(format: str, documents: list[Document], folder: Path) -> None:
    path = folder / f"{format}.en"
    if representable(format, documents):
        write_documents(path, documents, format)
        assert list(read_documents(path, format)) == kept(format, documents)
    else:
        must_raise("", write_documents, path, documents, format)


@pytest.mark.parametrize("format", WRITTEN)
@settings(max_examples=10)
@given(data=st.data())
def test_parallel_documents_come_back_as_pairs(format: str, data: st.DataObject, folder: Path) -> None:
    word = st.from_regex(r"[a-zä&<]{1,5}( [A-Z.,]{1,3})?", fullmatch=True)
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    pairs = [
        ParallelDocument(
            f"doc {number}",
            tuple(data.draw(st.lists(word, min_size=n, max_size=n))),
            tuple(data.draw(st.lists(word, min_size=n, max_size=n))),
        )
        for number, n in enumerate(lengths, 1)
    ]
    source = folder / f"pair-{format}.en"
    target = None if format in ONE_FILE else folder / f"pair-{format}.de"
    write_parallel(source, target, pairs, format)
    expected = pairs
    if not FORMATS[format].carries_ids:
        expected = [ParallelDocument(str(n), p.source, p.target) for n, p in enumerate(pairs, 1)]
    assert list(read_parallel(source, target, format)) == expected

    output = folder / f"output-{format}.txt"
    write_translations(output, pairs, format)
    assert [d.sentences for d in read_documents(output, format, "target")] == [p.target for p in pairs]


# Every format by hand: two documents, the second of one sentence, the same everywhere.
BY_HAND = {
    "text": b"\xef\xbb\xbfA b.\r\n  C\xe2\x80\xa8d.  \r\n\r\nE.\r\n\r\n",
    "d-lines": b"<d>\r\nA b.  \r\nC\xe2\x80\xa8d.\r\n<d>\r\nE.",
    "tsv": b"docid\tsource\ttarget\n1\tA b.\tx\n1\t C\xe2\x80\xa8d.\ty\n2\tE.\tz\n",
    "jsonl": (
        b'{"id": "1", "year": 3, "source": ["A b.", "C\\u2028d."]}\n\n'
        b'{"id": "2", "target": null, "source": ["E."]}\n'
    ),
    "tmx": (
        b"<?xml version='1.0'?>\n<!DOCTYPE tmx SYSTEM 'tmx14.dtd'>\n<tmx version='1.4'><header srclang='EN'/>"
        b"<body><tu><prop type='x-document'>1</prop><note>n</note><tuv xml:lang='de-DE'><seg>x</seg></tuv>"
        b"<tuv xml:lang='en-US'><prop type='file'>no</prop><seg>A\n  <bpt i='1'>&lt;b&gt;</bpt>b."
        b"<ept i='1'/></seg></tuv></tu>\n<tu><prop type='x-document'>1</prop><tuv xml:lang='EN'>"
        b"<seg>C&#x2028;<hi>d.</hi></seg></tuv><tuv lang='de'><seg>y</seg></tuv></tu>\n<tu>"
        b"<prop type='X-Document'>2</prop><tuv xml:lang='en'><seg>E.</seg></tuv><tuv xml:lang='de'>"
        b"<seg>z</seg></tuv></tu></body></tmx>"
    ),
    "wmt-xml": (
        b"<?xml version='1.0' encoding='UTF-8'?>\n<dataset id='x'><collection><doc origlang='en' id='1'>\n"
        b"<src lang='en'><p><seg id='1'>A\n   b.</seg></p><p><seg id='2'>C&#x2028;d.</seg></p></src>\n"
        b"<ref lang='de' translator='A'><p><seg id='1'>x</seg><seg id='2'>y</seg></p></ref>\n"
        b"<ref lang='de' translator='B'><p><seg id='1'>no</seg></p></ref></doc>\n"
        b"<doc id='2'><src><seg id='1'>E.</seg></src><hyp system='s'><seg id='1'>z</seg></hyp></doc>"
        b"</collection></dataset>"
    ),
}
EXPECTED = [Document("1", ("A b.", "C\u2028d.")), Document("2", ("E.",))]


@loop_over("format", BY_HAND)
def test_files_as_found_are_detected_and_read(format: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.en"
    path.write_bytes(BY_HAND[format])
    assert detect_format(path) == format
    assert list(read_documents(path)) == EXPECTED
    if format in ("tsv", "tmx", "wmt-xml"):
        assert list(read_documents(path, side="target")) == [Document("1", ("x", "y")), Document("2", ("z",))]


def test_docids_with_empty_lines_and_sentences_and_compressed_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.docids").write_text("1\t2\n2\t1\n")
    for text in ("A b.\nC\u2028d.\nE.\n", "A b.\nC\u2028d.\n\nE.\n\n"):
        (tmp_path / "a.en").write_text(text, newline="")
        assert detect_format(tmp_path / "a.en") == "docids"
        assert list(read_documents(tmp_path / "a.en")) == EXPECTED
    (tmp_path / "a.en").write_text("<!-- B -->\nC.\nD.\n")
    assert [d.id for d in read_documents(tmp_path / "a.en")] == ["1", "2"]
    (tmp_path / "a.en").write_text("\nB.\n\n\n\nC.\n")
    (tmp_path / "a.docids").write_text("x\t3\ny\t2\n")
    assert [d.sentences for d in read_documents(tmp_path / "a.en")] == [("", "B.", ""), ("", "C.")]
    (tmp_path / "a.en.xz").write_bytes(bytes(4).join((lzma.compress(b"A.\n"), lzma.compress(b"B.\n"), b"")))
    (tmp_path / "a.docids").write_text("x\t1\ny\t1\n")
    assert [d.id for d in read_documents(tmp_path / "a.en.xz")] == ["x", "y"]


def test_borders_named_formats_and_ids_of_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.zh").write_text("A.\n\u3000\nC.\n \t\nD.\n")
    assert [d.sentences for d in read_documents(tmp_path / "a.zh")] == [("A.", "\u3000", "C."), ("D.",)]
    (tmp_path / "a.en").write_text("<d>\nA.\n\nB.\n")
    assert [d.sentences for d in read_documents(tmp_path / "a.en", "text")] == [("<d>", "A."), ("B.",)]
    assert [d.sentences for d in read_documents(tmp_path / "a.en", "d-lines")] == [("A.", "", "B.")]
    (tmp_path / "a.en").write_text("A.\n\nB.\n")
    (tmp_path / "b.jsonl").write_text('{"id": "x", "sentences": ["a"]}\n{"id": "y", "sentences": ["b"]}\n')
    assert [p.id for p in read_parallel(tmp_path / "a.en", tmp_path / "b.jsonl")] == ["x", "y"]


ENDS = b"One.\n\nTwo.\nThree.\n\nFour.\n\nFive.\n"
BAD_PAIRS: tuple[tuple[bytes, str], ...] = (
    (b"One.\n\nTwo.\n", r"a\.en:3 and .*b\.de:3: document '2' has 1 source sentences but 2 target sentences"),
    (b"One.\n", r"b\.de has 2 documents but .*a\.en has only 1; the first .* is document '2' at .*b\.de:3"),
    (ENDS, r"a\.en has 4 documents but .*b\.de has only 2; .* document '3' at .*a\.en:6"),
    (b"<d>\nOne.\n", r"has only 1; .*read as d-lines, the target as text; name the format if that is wrong"),
)


@loop_over(("source", "message"), BAD_PAIRS)
def test_files_out_of_step_are_refused_with_both_places(source: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(source)
    (tmp_path / "b.de").write_bytes(b"Eins.\n\nZwei.\nDrei.\n")
    must_raise(message, read_parallel, tmp_path / "a.en", tmp_path / "b.de")
    for name, document in (("a.en", "x"), ("b.de", "y")):
        (tmp_path / name).write_text(f'{{"id": "{document}", "sentences": ["One."]}}')
    message = r"a\.en:1 and .*b\.de:1: document number 1 is 'x' in the source but 'y' in the target"
    must_raise(message, read_parallel, tmp_path / "a.en", tmp_path / "b.de")


XML_BOMB = (
    b'<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n<dataset>&b;</dataset>'
)


@loop_over(
    ("given", "format", "message"),
    [
        (b"A.\nB\xffc.\n", None, r"a\.en:2: invalid UTF-8, byte 2 of the line is 0xff"),
        ("A.\n".encode("utf-16"), None, r"a\.en:1: invalid UTF-8, .* looks like UTF-16"),
        (lzma.compress(b"A.\n"), None, r"a\.en:1: .* add \.xz to the file name"),
        ({"a.en.xz": b"A sentence.\n" * 9}, None, r"a\.en\.xz: cannot be read: Input format not supported"),
        (
            {"a.en.xz": lzma.compress(b"A.\n") + b"damaged"},
            None,
            r"a\.en\.xz: cannot be read: Input format not",
        ),
        ({"a.en.gz": gzip.compress(b"A.\n" * 9)[:-9]}, None, r"a\.en\.gz: cannot be read: .*ended"),
        (b"A.\nB\0c.\n", None, r"a\.en:2: contains a NUL"),
        (b"", None, r"a\.en: is empty"),
        (b"\n\n", "text", r"a\.en: has no documents"),
        ({}, None, r"a\.en: no such file"),
        ({"a.en/x": b""}, None, r"a\.en: is a directory"),
        (b"A.\n", "jsnol", r"unknown corpus format 'jsnol': did you mean jsonl\? known formats"),
        ("下雨了。\tIt rains.\n她走了。\tShe left.\n".encode(), None, r"a\.en: .* a table of sentences and"),
        (b"It rains.\tEs regnet.\t0.9\nShe left.\tSie ging.\t1e-3\n", None, "a table of sentences and"),
        (b"A.\n\n\nB.\n", "text", r"a\.en:3: an empty line where a sentence should begin"),
        (b"<d>\nA.\n<d>\n<d>\nB.\n", None, r"a\.en:4: document '2' is empty"),
        (b"A.\n<d>\nB.\n", "d-lines", r"a\.en:1: text before the first line <d>"),
        (b"A.\n", "docids", r"a\.en: .* needs the side file .*a\.docids, which does not"),
        (b"<dataset>\n<doc id='x'>\n</dataset>", None, r"a\.en:3: malformed XML .*mismatched"),
        (XML_BOMB, None, r"a\.en:2: contains a DOCTYPE"),
        (b"<dataset/>", None, r"a\.en: has no documents"),
        (b"<dataset>\n<doc id='x'/></dataset>", None, r":2: document 'x' is em"),
        (
            b"<?xml version='1.0' encoding='latin1'?>\n<dataset>\xe4</dataset>",
            None,
            r"a\.en:2: malformed XML at column 10: .*invalid token",
        ),
        (b"x\ta\tb\nx\ta\n", "tsv", r"a\.en:2: has 2 columns, expected 3"),
        (b"x\ta\tb\n \ta\tb\n", "tsv", r"a\.en:2: the first column, the document id, is empty"),
        (b'{"id": "x", "sentences": ["A."]}\n{"id": \n', None, r"a\.en:2: not valid JSON, col"),
        (b'{"id": "x"}\n' + b"[" * 99999, "jsonl", r"a\.en:1: document 'x' needs either"),
        (b'["A."]\n', "jsonl", r"a\.en:1: expected a JSON object with the key 'id', found list"),
        (b'{"id": 7, "sentences": ["A."]}', None, r"a\.en:1: the key 'id' must contain a text"),
        (b'{"id": "x", "source": "A."}', None, r"document 'x': the key 'source' must contain a l"),
        (b'{"id": "x", "sentences": []}', None, r"a\.en:1: document 'x' is empty"),
        (b'{"id": "x", "source": ["a\\nb"]}', None, r":1: document 'x', sentence 1: contains a l"),
        (b'{"id": "x", "source": ["\\u0000"]}', None, r"sentence 1: contains a NUL"),
        (b'{"id": "x", "source": ["\\ud800"]}', None, r"a\.en:1: contains half a ch"),
    ],
)
def test_bad_files_are_refused_with_their_place(
    given: bytes | dict[str, bytes], format: str | None, message: str, tmp_path: Path
) -> None:
    files = given if isinstance(given, dict) else {"a.en": given}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    path = next((tmp_path / name for name in files if name.startswith("a.en.")), tmp_path / "a.en")
    must_raise(message, read_documents, path, format)


@loop_over(
    ("text", "side_file", "message"),
    [
        ("A.\n", "", r"a\.docids: is empty"),
        ("A.\n\nB.\n", "x\t1\ny\t2\n", r"after line 3; document 'y' \(.*:2\) should have 2 sentences, but"),
        ("A.\n\nB.\nC.\n\nD.\n", "x\t1\ny\t1\nz\t1\n", r":4: expected the empty line .*:3\) but found 'C"),
        ("A.\n\nB.\n", "x\t1\n", r"a\.en:3: 'B\.' comes after the last document of .*a\.docids"),
        ("A.\nB.\n", "x\t1\ny\n", r"a\.docids:2: expected a document id, a tab and the number of"),
        ("A.\n", "w\t0\nx\t1\n", r"document 'w' is empty"),
        ("A.\nB.\n", "x\nx\n", r"a\.docids:1: .* but found 'x'; .*: paste IDS"),
    ],
)
def test_side_files_that_do_not_fit(text: str, side_file: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text(text)
    (tmp_path / "a.docids").write_text(side_file)
    must_raise(message, read_documents, tmp_path / "a.en")


@loop_over(
    ("format", "content", "message"),
    [
        ("text", "A.\n", "a: files of the format text have one language; name the target file, too"),
        ("jsonl", '{"id": "x", "source": ["A."]}', "a:1: document 'x' has no target side"),
        ("jsonl", '\n{"id": "x", "source": ["A.", "B."], "target": ["a"]}', "a:2: document 'x' has 2 source"),
        (
            "wmt-xml",
            "<d>\n<doc id='x'><src><seg>A</seg><seg>B</seg></src><ref><seg>a</seg></ref></doc></d>",
            "a:2: document 'x' has 2 source sentences but 1 target sentences",
        ),
        (
            "wmt-xml",
            "<d><doc id='x'><src><seg id='1'>A</seg></src><ref><seg id='2'>a</seg></ref></doc></d>",
            "a:1: document 'x': segment '1' of the source is paired with segment '2' of the target",
        ),
    ],
)
def test_one_file_that_is_no_parallel_corpus(format: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    must_raise(message, read_parallel, tmp_path / "a", None, format)


@loop_over(
    ("format", "documents", "message"),
    [
        ("text", [Document("x", ("A.", " "))], r"out: document 'x', sentence 2 is empty, and an empty line"),
        ("jsonl", [Document("x", ("A\nb.",))], r"out: document 'x', sentence 1: contains a line feed"),
        ("tsv", [Document("x", ("A\tb.",))], r"out: document 'x', sentence 1 contains a tab"),
        ("tsv", [Document("x", ("A.",))] * 2, r"two documents in a row have the id 'x'"),
        ("tsv", [Document("\t", ("A.",))], r"out: document id '\\t' cannot be written"),
        ("wmt-xml", [Document("x", ("A.",))], r"the format wmt-xml can be read, but not written"),
        ("d-lines", [Document("x", ("A.", "<d>"))], r"document 'x', sentence 2 is '<d>', which opens"),
        ("tmx", [Document("x", ("A\x01",))], r"sentence 1 contains U\+0001, which XML cannot contain"),
        ("text", [Document("x", ("A\ud800",))], r"out: document 'x' has half a character"),
        ("docids", [Document("\ud800", ("A.",))], r"out.docids: document .* has half a character"),
        ("jsonl", [Document("x", ())], r"document 'x' is empty and cannot be written"),
        ("jsonl", [], r"out: there are no documents to write"),
        ("jsonl", [Document("", ("A.",))], r"empty id"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_the_old_file_stays(
    format: str, documents: list[Document], message: str, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("old")
    must_raise(message, write_documents, tmp_path / "out", documents, format)
    assert (tmp_path / "out").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("ending", ["", ".xz", ".gz"])
def test_full_storage_is_told_and_leaves_the_old_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.txt{ending}"
    path.write_bytes(b"old")
    random = (Document(str(n), (os.urandom(500).hex(),)) for n in range(2000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        must_raise(r"out\.txt.*: cannot be written: File too large", write_documents, path, random, "text")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_two_sides_differ(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_documents(tmp_path / "link.txt", [Document("x", ("A.",))], "text")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "A.\n"
    pairs = [ParallelDocument("x", ("A.",), ("a",))]
    must_raise("written twice", write_parallel, tmp_path / "out", tmp_path / "out", pairs, "text")
    message = "contains both languages in one file; remove the target"
    must_raise(message, write_parallel, tmp_path / "out", tmp_path / "out.de", pairs, "jsonl")
    message = r"document 'news/7': 2 source sentences but 1 target"
    must_raise(message, ParallelDocument, "news/7", ("One.", "Two."), ("Eins.",))


def test_files_as_they_are_written(tmp_path: Path) -> None:
    pairs = [ParallelDocument("x", ("A & b.", "C."), ("a", "c")), ParallelDocument("y", ("D.",), ("d",))]
    write_parallel(tmp_path / "p.tsv", None, pairs, "tsv")
    assert (tmp_path / "p.tsv").read_text() == "x\tA & b.\ta\nx\tC.\tc\ny\tD.\td\n"
    write_parallel(tmp_path / "p.en", tmp_path / "p.de", pairs, "docids")
    assert (tmp_path / "p.en").read_text() == "A & b.\nC.\n\nD.\n"
    assert (tmp_path / "p.de").read_text() == "a\nc\n\nd\n"
    assert (tmp_path / "p.docids").read_text() == "x\t2\ny\t1\n"
    for ending in ("", ".gz", ".xz"):  # equal documents give equal bytes
        for name in ("a", "b"):
            write_documents(tmp_path / f"{name}.txt{ending}", EXPECTED, "text")
        assert list(read_documents(tmp_path / f"a.txt{ending}")) == EXPECTED
        assert len({(tmp_path / f"{name}.txt{ending}").read_bytes() for name in ("a", "b")}) == 1


def test_a_side_file_is_shared(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("A.\nB.\nC.\n")
    (tmp_path / "a.docids").write_text("x\t2\ny\t1\n")
    before = (tmp_path / "a.docids").stat().st_ino
    pairs = [ParallelDocument(d.id, d.sentences, d.sentences) for d in read_documents(tmp_path / "a.en")]
    write_translations(tmp_path / "a.de", pairs, "docids")
    assert (tmp_path / "a.docids").stat().st_ino == before
    assert list(read_parallel(tmp_path / "a.en", tmp_path / "a.de")) == pairs
    message = r"a\.docids, the side file of .*a\.en, lists different documents;"
    for others in (pairs[:1], pairs[::-1], [*pairs, *pairs]):
        must_raise(message, write_translations, tmp_path / "a.de", others, "docids")
    assert list(read_parallel(tmp_path / "a.en", tmp_path / "a.de")) == pairs
    (tmp_path / "a.en").unlink()
    write_translations(tmp_path / "a.de", pairs[:1], "docids")
    assert (tmp_path / "a.docids").read_text() == "x\t2\n"


@loop_over("format", WRITTEN)
def test_memory_does_not_grow_with_the_file(format: str, tmp_path: Path) -> None:
    path = tmp_path / "a.en"
    sentence = "A sentence of about sixty characters, which comes many times." * 10
    write_documents(path, (Document(f"d{n}", (sentence,) * 10) for n in range(200)), format)
    assert path.stat().st_size > 1_200_000
    tracemalloc.start()
    try:
        assert sum(len(document) for document in read_documents(path)) == 2_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Detection alone looks at 256 KiB, as bytes, text and lines.
    assert peak < 1_200_000


IWSLT = """<?xml version="1.0" encoding="UTF-8"?>
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


@loop_over("root", ["srcset", "refset", "tstset"])
@loop_over("bare", [False, True])
def test_xml_of_one_language(tmp_path: Path, root: str, bare: bool) -> None:
    text = IWSLT.format(root)
    if bare:
        text = text.partition("<mteval>\n")[2].replace("</mteval>\n", "")
    path = tmp_path / "IWSLT17.TED.tst2015.en-de.en.xml"
    path.write_text(text)
    assert detect_format(path) == "wmt-xml"
    assert list(read_documents(path)) == [Document("7", ("A & b.", "C.")), Document("9", ("D.",))]


def test_xml_of_two_sets_or_with_entities_is_refused(tmp_path: Path) -> None:
    both = "<mteval>\n<srcset></srcset>\n<refset></refset></mteval>"
    twice = '<mteval>\n<refset refid="A"></refset>\n<refset refid="B"></refset></mteval>'
    undefined = IWSLT.format("srcset").replace("C.", "&b;")
    doctype = '<!DOCTYPE mteval [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<mteval>'
    for text, message in (
        (both, ":3: <refset> after <srcset>; write them to separate files"),
        (twice, ":3: <refset> after <refset>; write them to separate files"),
        (undefined.replace("<mteval>", doctype), ":2: contains a DOCTYPE"),
        (undefined, ":8: malformed XML .*undefined entity"),
    ):
        (tmp_path / "a.xml").write_text(text)
        must_raise(rf"a\.xml{message}", read_documents, tmp_path / "a.xml")
