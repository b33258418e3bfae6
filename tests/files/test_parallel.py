"""Sentence pairs of bilingual files and of documents, for `prepare` and `adapt`."""

from pathlib import Path

from cotext.data.aligned_corpus import EMPTY
from cotext.data.documents import Document, Languages, ParallelDocument
from cotext.data.formats import read_parallel, write_documents, write_parallel
from cotext.data.formats.xml_formats import languages_of_tmx
from cotext.files.parallel import align_files, cut_corpus, pair_files
from cotext.files.po import translated_documents as translated_in_po
from cotext.files.xliff import translated_documents as translated_in_xliff
from tests.command_line import succeed
from tests.data.test_document_alignment import pairs_of
from tests.refusals import must_raise
from tests.tiny_runs import toy_documents

XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en-US" target-language="de-DE" datatype="x"><body>
<trans-unit id="1"><source>The <g id="1">boat</g>
 is old.</source><target>Das <g id="1">Boot</g> ist alt.</target></trans-unit>
<trans-unit id="2"><source>Not yet.</source></trans-unit>
<trans-unit id="3"><source>New.</source><target state="new">New.</target></trans-unit>
<group><trans-unit id="4"><source>One. Two.</source>
<seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>
<target><mrk mtype="seg" mid="2">Zwei.</mrk> <mrk mtype="seg" mid="1">Eins.</mrk></target>
</trans-unit></group>
</body></file>
<file original="b" source-language="en-US" target-language="de-DE" datatype="x"><body>
<trans-unit id="1"><source>A<x id="1"/>B</source><target>C<x id="1"/>D</target></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="1"><segment><source>It <pc id="1">rains</pc>.</source>
<target>Es <pc id="1">regnet</pc>.</target>
</segment><segment state="initial"><source>No.</source><target>No.</target></segment></unit></file></xliff>"""
PO = """msgid ""
msgstr "Language: de\\n"

msgid "Open"
msgstr "Öffnen"

#, fuzzy
msgid "Close"
msgstr "Nah"

msgid "Later"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"
"""


def test_translated_segments_without_inline_elements_and_fuzzy_entries() -> None:
    languages, files = translated_in_xliff(XLIFF_1.encode(), "a.xlf")
    assert languages == ("en-US", "de-DE")
    first = [("The boat is old.", "Das Boot ist alt."), ("One.", "Eins."), ("Two.", "Zwei.")]
    assert files == [first, [("AB", "CD")]]
    assert translated_in_xliff(XLIFF_2.encode(), "b.xlf") == (("en", "de"), [[("It rains.", "Es regnet.")]])
    mixed = XLIFF_1.replace("de-DE", "fr", 1)
    must_raise("has files in en-fr and in en-de", translated_in_xliff, mixed.encode(), "a.xlf")
    found = translated_in_po(PO.encode(), "a.po")
    assert found == (("", "de"), [[("Open", "Öffnen"), ("%d file", "%d Datei")]])


def test_every_segment_with_inline_elements() -> None:
    _, [first, second] = translated_in_xliff(XLIFF_1.encode(), "a.xlf", every=True)
    boat = 'The <g id="1">boat</g>\n is old.', 'Das <g id="1">Boot</g> ist alt.'
    # Tags of segments, which only the target has, are not tags that a translation added.
    assert first == [boat, ("Not yet.", ""), ("New.", "New."), ("One. Two.", "Zwei. Eins.")]
    assert second == [('A<x id="1"/>B', 'C<x id="1"/>D')]
    nested = XLIFF_2.replace("rains", "<mrk>&lt;i>rains</mrk><!-- & -->")
    _, [[found, _]] = translated_in_xliff(nested.encode(), "b.xlf", every=True)
    assert found[0] == 'It <pc id="1"><mrk><i>rains</mrk><!-- & --></pc>.'


def test_a_folder_of_bilingual_files_is_a_corpus(tmp_path: Path) -> None:
    folder, out = tmp_path / "jobs", tmp_path / "pairs.tmx"
    (folder / "more").mkdir(parents=True)
    (folder / "a.xlf").write_text(XLIFF_1)
    (folder / "more" / "a.xlf").write_text(XLIFF_2)
    (folder / "c.po").write_text(PO)
    memory = [ParallelDocument("old", ("Yes.",), ("Ja.",)), ParallelDocument("new", ("No.",), ("Nein.",))]
    write_parallel(folder / "d.tmx", None, memory, "tmx", ("en", "de"))
    pair_files(folder, None, out, Languages())
    assert languages_of_tmx(out) == ("en", "de")
    assert [(each.id, len(each)) for each in read_parallel(out, None)] == [
        ("a.xlf/1", 3), ("a.xlf/2", 1), ("c.po", 2), ("d.tmx/old", 1), ("d.tmx/new", 1), ("more/a.xlf", 1),
    ]  # fmt: skip
    french, inside = Languages("fr", "de"), folder / "x" / "pairs.tmx"
    must_raise("is en-de, and the languages are to be fr-de", pair_files, folder, None, out, french)
    must_raise("would be written into the folder", pair_files, folder, None, inside, Languages())
    must_raise(r"is \?-de, and .* fr-nl", pair_files, folder / "c.po", None, out, Languages("fr", "nl"))
    (folder / "e.xlf").write_text(XLIFF_2.replace('"de"', '"fr"'))
    must_raise("is en-fr, and files before it are en-de", pair_files, folder, None, out, Languages())
    (folder / "b.txt").write_text("One language.\n")
    must_raise(r"b\.txt: contains one language", pair_files, folder, None, out, Languages())


def test_corpora_and_unknown_files_stay_as_they_are(tmp_path: Path) -> None:
    sides = tmp_path / "a.en", tmp_path / "a.de"
    write_parallel(*sides, toy_documents(1, 2), "text")
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 nothing")
    for source, target in (sides, (tmp_path / "a.zip", None), (tmp_path / "missing", None)):
        assert pair_files(source, target, tmp_path / "pairs.tmx", Languages()) is None
    assert not (tmp_path / "pairs.tmx").exists()


def test_two_documents_are_aligned_and_cut_into_sections(tmp_path: Path) -> None:
    pairs = pairs_of(90, 1)
    sides = tmp_path / "book.en.html", tmp_path / "buch.de.html"
    for side, path in enumerate(sides):
        # The translation lacks a sentence.
        texts = [pair[side] for n, pair in enumerate(pairs) if (side, n) != (1, 40)]
        path.write_text("".join(f"<p>{text}</p>\n" for text in texts))
    out = tmp_path / "x.pairs.tmx"
    shown = succeed(
        *("prepare", "--source", sides[0], "--target", sides[1], "--workers", "1"),
        *("--dev-documents", "1", "--test-documents", "1", "--out", tmp_path / "x"),
    )
    assert "aligned by sentence" in shown.err
    assert "fewer than 3 documents: cut into sections of about 20 sentences" in shown.err
    assert "languages: en-de" in shown.out
    sections = [*read_parallel(out, None)]
    assert [each.id for each in sections] == [f"book, section {n}" for n in range(1, 5)]
    assert [len(each) for each in sections] == [22, 22, 22, 23]
    found = [pair for each in sections for pair in zip(each.source, each.target, strict=True)]
    assert found == [pair for n, pair in enumerate(pairs) if n != 40]


def test_documents_without_a_source_are_reported(tmp_path: Path) -> None:
    """Files of folders may have documents with the same ids."""
    for side, (code, ids) in enumerate((("en", "a"), ("de", "ab"))):
        (tmp_path / code).mkdir()
        documents = [Document(id, tuple(pair[side] for pair in pairs_of(30, 1))) for id in ids]
        for name in ("one", "two"):
            write_documents(tmp_path / code / f"{name}.jsonl", documents, "jsonl")
    for path, prefixes in (("one.jsonl", ("",)), ("", ("one/", "two/"))):
        corpus, _ = align_files([tmp_path / "en" / path], [tmp_path / "de" / path], Languages())
        assert [each.id for each in corpus.documents] == [f"{prefix}a" for prefix in prefixes]
        assert corpus.left_out == {f"{prefix}b": EMPTY for prefix in prefixes}


def test_a_corpus_of_few_documents_is_cut_into_sections(tmp_path: Path) -> None:
    document = ParallelDocument("a", *([f"{side}{n}" for n in range(50)] for side in "st"))
    write_parallel(tmp_path / "a.jsonl", None, [document] * 2, "jsonl")
    out = tmp_path / "out.tmx"
    notes = cut_corpus(tmp_path / "a.jsonl", None, None, out, Languages("en", "de"), 3)
    assert notes is not None
    assert notes[0] == "fewer than 3 documents: cut into sections of about 20 sentences"
    assert languages_of_tmx(out) == ("en", "de")
    sections = [*read_parallel(out, None)]
    assert [(section.id[-1], len(section)) for section in sections] == [(n, 25) for n in "1234"]
    assert [text for section in sections for text in section.source] == [*document.source] * 2
    assert cut_corpus(out, None, "tmx", tmp_path / "again.tmx", Languages(), 2) is None
