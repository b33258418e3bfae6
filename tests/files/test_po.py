"""PO catalogues: identity, what is written where, plural forms, placeholders, damage."""

import shutil
import subprocess
from pathlib import Path

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotext.files.blocks import Block, Copied, Job, OpenedFile, Point
from cotext.files.po import FORMAT
from tests.files.faking import changed, same_again, texts, upper
from tests.loops import loop_over
from tests.refusals import must_raise

HEADER = r"""# A catalogue.
msgid ""
msgstr ""
"Project-Id-Version: tool 1.0\n"
"Language: \n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""
CATALOGUE = (
    HEADER
    + r"""#. The greeting
#: src/main.c:12
msgctxt "start"
msgid "Good morning"
msgstr ""

#: src/main.c:14
#, c-format
msgid "%s has %d new messages"
msgstr ""

msgid "Already there"
msgstr "Schon da"

#, fuzzy, c-format
#| msgid "Old %s"
msgid "New %s"
msgstr "Alt %s"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] ""

msgid "_Open"
msgstr ""

msgid ""
"This is a long help text that was wrapped by hand\n"
"so that it fits a terminal of eighty characters.\n"
"\n"
"  -h, --help   show this text\n"
msgstr ""

#~ msgid "Gone"
#~ msgstr "Weg"
"""
)


def entries(content: bytes) -> dict[str, polib.POEntry]:
    return {entry.msgid: entry for entry in polib.pofile(content.decode())}


def test_only_msgstr_changes() -> None:
    opened = FORMAT.open(CATALOGUE.encode(), "file")
    written = upper(opened)
    found = entries(written)
    assert found["Good morning"].msgstr == "GOOD MORNING"
    assert found["%s has %d new messages"].msgstr == "%s HAS %d NEW MESSAGES"
    assert found["Already there"].msgstr == "Schon da"
    assert found["New %s"].msgstr == "Alt %s"
    assert found["New %s"].fuzzy
    assert found["%d file"].msgstr_plural == {0: "%d Datei", 1: "%d FILES"}
    assert found["_Open"].msgstr == "_OPEN"
    assert polib.pofile(written.decode()).obsolete_entries()[0].msgstr == "Weg"
    before = [line for line in CATALOGUE.splitlines() if not line.startswith(("msgstr", '"'))]
    assert [line for line in written.decode().splitlines() if not line.startswith(("msgstr", '"'))] == before


def test_translated_and_fuzzy_entries() -> None:
    opened = FORMAT.open(CATALOGUE.encode(), "file")
    kept = [block.text for block in opened.contents.documents[0] if not block.translate]
    assert kept == ["Already there", "New %s"]
    assert any("translated entries kept, and used as context: 1" in each for each in opened.contents.messages)
    assert any("fuzzy entries kept: 1" in each for each in opened.contents.messages)
    found = entries(upper(FORMAT.for_job(Job(entries="unfinished")).open(CATALOGUE.encode(), "file")))
    assert found["New %s"].msgstr == "NEW %s"
    assert found["New %s"].flags == ["c-format"]
    assert found["Already there"].msgstr == "Schon da"
    found = entries(upper(FORMAT.for_job(Job(entries="all")).open(CATALOGUE.encode(), "file")))
    assert found["Already there"].msgstr == "ALREADY THERE"
    german, french = FORMAT.for_job(Job("en", "de")), CATALOGUE.replace("Language: ", "Language: fr_FR", 1)
    must_raise("has the language 'fr_FR', but the run", german.open, french.encode(), "file")
    opened = FORMAT.open(CATALOGUE.encode(), "file")
    same = [[Block(b.pieces) if b.translate else b for b in blocks] for blocks in opened.contents.documents]
    found = entries(opened.written(same))
    assert found["Good morning"].msgstr == "Good morning"
    assert found["_Open"].msgstr == "_Open"


def test_wrapped_text_is_a_paragraph_and_lists_are_lines() -> None:
    opened = FORMAT.open(CATALOGUE.encode(), "file")
    assert texts(opened)[0][-2:] == [
        "This is a long help text that was wrapped by hand so that it fits a terminal of eighty characters.",
        "show this text",
    ]
    more = "text of no use to anybody at all"
    longer = changed(opened.contents.documents, lambda text: text.replace("text", more))
    written = next(e for e in entries(opened.written(longer)).values() if "terminal" in e.msgid).msgstr
    assert max(map(len, written.split("\n"))) <= 60
    assert written.endswith("\n\n  -h, --help   show this text of no use to anybody at all\n")


def test_placeholders_in_another_order_get_numbers() -> None:
    opened = FORMAT.open(CATALOGUE.encode(), "file")
    blocks = changed(opened.contents.documents, str.upper)
    own = next(b for b in opened.contents.documents[0] if "messages" in b.text)
    first, second = (piece for piece in own.pieces if isinstance(piece, Copied))
    place = opened.contents.documents[0].index(own)
    blocks[0][place] = Block((second, " neue Nachrichten für ", first))
    found = entries(opened.written(blocks))["%s has %d new messages"]
    assert found.msgstr == "%2$d neue Nachrichten für %1$s"
    assert not found.fuzzy


def test_a_grammar_without_numbers_is_marked_fuzzy() -> None:
    opened = FORMAT.open((HEADER + '#, python-format\nmsgid "%s of %s"\nmsgstr ""\n').encode(), "file")
    first, _, second = opened.contents.documents[0][0].pieces
    written = opened.written([[Block((second, " von ", first))]])
    found = entries(written)["%s of %s"]
    assert found.fuzzy
    assert found.msgstr == "%s von %s"
    assert "python-format" in found.flags


def test_a_part_of_a_placeholder_is_marked_fuzzy() -> None:
    head = HEADER + '#, python-brace-format\nmsgid "Copy {source}"\nmsgstr ""\n'
    opened = FORMAT.open(head.encode(), "file")
    _, source = opened.contents.documents[0][0].pieces
    assert not entries(opened.written([[Block((source, " kopieren"))]]))["Copy {source}"].fuzzy
    assert entries(opened.written([[Block((source, "} kopieren"))]]))["Copy {source}"].fuzzy


@loop_over(
    ("flag", "message", "copied"),
    [
        ("c-format", "%s, %5.2f %% of %<PRIu64>, %2$*1$d", ["%s", "%5.2f", "%%", "%<PRIu64>", "%2$*1$d"]),
        ("python-format", "%(name)s owes %d", ["%(name)s", "%d"]),
        ("python-brace-format", "{name!r:>10} and {{no}} {}", ["{name!r:>10}", "{{", "}}", "{}"]),
        ("qt-format", "%1 of %L2", ["%1", "%L2"]),
        ("sh-format", "in $HOME and ${USER}", ["$HOME", "${USER}"]),
        ("csharp-format", "{0:C} of {1}", ["{0:C}", "{1}"]),
        ("no-c-format", "100% done", []),
        ("", "100% done\t&amp; or\tnot", ["\t", "&amp;", "\t"]),
    ],
)
def test_placeholders_by_the_flag(flag: str, message: str, copied: list[str]) -> None:
    opened = FORMAT.open(f'#, {flag}\nmsgid "{message} x"\nmsgstr ""\n'.encode(), "file")
    [block] = opened.contents.documents[0]
    assert [piece.text for piece in block.pieces if isinstance(piece, Copied)] == copied


def test_accelerators_stand_before_a_letter() -> None:
    def marks(message: str) -> tuple[OpenedFile, list[Point]]:
        opened = FORMAT.open(f'msgid "{message}"\nmsgstr ""\n'.encode(), "file")
        [block] = opened.contents.documents[0]
        return opened, [piece for piece in block.pieces if isinstance(piece, Point)]

    assert [len(marks(message)[1]) for message in ("_File", "&Edit")] == [1, 1]
    assert not any(marks(message)[1] for message in ("snake_case", "a _b _c", "R&D", "a &amp; b"))
    opened, [mark] = marks("Save _As")
    for pieces, said in (
        (("Speichern", mark, " unter"), "Speichern _unter"),
        (("Speichern", mark), "_Speichern"),
    ):
        assert entries(opened.written([[Block(pieces)]]))["Save _As"].msgstr == said


@pytest.mark.parametrize("forms", [1, 2, 3])
def test_plural_forms_of_the_target(forms: int) -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1);", f"nplurals={forms}; plural=0;")
    content = header + 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    if forms == 1:
        content = content.replace('msgstr[1] ""\n', "")
    opened = FORMAT.open(content.encode(), "file")
    [entry] = polib.pofile(upper(opened).decode())
    assert len(entry.msgstr_plural) == forms
    assert entry.msgstr_plural[forms - 1] == "%D FILES" or entry.msgstr_plural[forms - 1] == "%d FILES"
    assert entry.fuzzy == (forms > 2)
    assert bool(opened.contents.messages) == (forms > 2)


def test_a_template_gets_its_charset_and_is_said_to_be_one() -> None:
    plurals = ("nplurals=2; plural=(n != 1);", "nplurals=INTEGER; plural=EXPRESSION;")
    template = HEADER.replace("UTF-8", "CHARSET").replace(*plurals)
    opened = FORMAT.open((template + 'msgid "Use charset=CHARSET"\nmsgstr ""\n').encode(), "file")
    catalogue = polib.pofile(upper(opened).decode())
    assert catalogue.metadata["Content-Type"].endswith("UTF-8")
    assert catalogue[0].msgid == "Use charset=CHARSET"
    assert any("msginit" in message for message in opened.contents.messages)


def test_other_charsets_and_markup() -> None:
    content = HEADER.replace("UTF-8", "ISO-8859-1") + 'msgid "Grüße"\nmsgstr ""\n'
    opened = same_again(FORMAT, content.encode("latin-1"))
    assert "GRÜSSE".encode("latin-1") in upper(opened)
    foreign = changed(opened.contents.documents, lambda _: "Привет")
    must_raise("convert the file to UTF-8", opened.written, foreign)
    opened = FORMAT.open(b'msgid "Press <b>Enter</b> or<br>wait &nbsp;."\nmsgstr ""\n', "file")
    assert b'"PRESS <b>ENTER</b> OR<br>WAIT &nbsp;."' in upper(opened)


@loop_over(
    ("content", "said"),
    [
        ('"text"\n', "file:1: text without a keyword"),
        ('msgid "a\nmsgstr ""\n', "file:1: not a line of a catalogue"),
        ('msgid "a"\nmsgid "b"\n', "an entry without|out of place"),
        ('msgid "a"\nmsgstr "b"\nmsgstr "c"\n', "file:3: msgstr out of place"),
        ('msgid "a"\nmsgstr[0] "b"\n', "file:2: with msgid_plural, write msgstr"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[1] "b"\n', "plural forms are missing"),
        ('msgid "\\377"\nmsgstr ""\n', "not ASCII"),
        ('msgid ""\nmsgstr "Content-Type: text/plain; charset=none-such\\n"\n', "unknown encoding"),
    ],
)
def test_what_is_no_catalogue_is_refused_with_its_line(content: str, said: str) -> None:
    must_raise(said, FORMAT.open, content.encode(), "file")


LEFT_OUT = "\0\x85\u2028\u2029\x1c\x1d\x1e"
TEXT = st.text(st.characters(codec="utf-8", exclude_characters=LEFT_OUT), min_size=1)


@given(st.lists(TEXT, min_size=1, max_size=5, unique=True), st.booleans())
def test_any_message_comes_back(messages: list[str], several_lines: bool) -> None:
    start = '""\n' if several_lines else ""
    content = "".join(f'msgid {start}"{polib.escape(text)}"\nmsgstr ""\n\n' for text in messages)
    opened = same_again(FORMAT, content.encode())
    same = [[Block(b.pieces) for b in blocks] for blocks in opened.contents.documents]
    again = FORMAT.open(opened.written(same), "file")
    left = [block.text for block in again.contents.documents[0] if block.translate]
    assert left == []


@pytest.mark.outside
def test_real_catalogues_stay_valid(tmp_path: Path) -> None:
    if shutil.which("msgfmt") is None or shutil.which("msgunfmt") is None:
        pytest.skip("needs gettext")
    found = sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo"))[::40]
    assert found or pytest.skip("no catalogues here")
    for compiled in found[:30]:
        plain = subprocess.run(["msgunfmt", compiled], capture_output=True, check=True).stdout
        opened = same_again(FORMAT.for_job(Job(entries="all")), plain)
        target = tmp_path / "out.po"
        target.write_bytes(upper(opened))
        before = tmp_path / "in.po"
        before.write_bytes(plain)
        if subprocess.run(["msgfmt", "-c", "-o", "/dev/null", before], capture_output=True).returncode == 0:
            subprocess.run(["msgfmt", "-c", "-o", "/dev/null", target], check=True)
