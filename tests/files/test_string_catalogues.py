"""JSON and YAML catalogues: identity, strings alone change, plurals of ICU, styles of scalars, damage."""

import json

import pytest
import yaml
from catalogues import same_again, texts, translated, upper
from faking import assert_damage_is_survived
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.files.blocks import Block, Close, Copied, Open, Point
from cotext.files.json import FORMAT as JSON
from cotext.files.table import recognise
from cotext.files.yaml import FORMAT as YAML
from cotext.runtime.errors import CotextError

I18NEXT = r"""{
  "title" : "Hello <b>world</b>",
	"nested": {"items": ["One {{name}}",
    {"deep": "Two \u00e9 \/ \"q\""}], "count": 3, "on": true, "none": null},
  "empty": "", "code": "42", "link": "https://example.org/a",
  "key_one": "{{count}} file", "key_other": "{{count}} files",
  "lines": "First line.\nSecond line.\n"
}
"""
ARB = """{
  "@@locale": "en",
  "files": "{count, plural, =0{No files} one{# file in {folder}} other{# files in {folder}}}",
  "@files": {"description": "How many files", "placeholders": {"count": {"type": "int"}}},
  "left": "You have {n, plural, one{# letter} other{# letters}} left.",
  "who": "{who, select, male{He came} female{She came} other{{n, plural, one{One came} other{They came}}}}",
  "two": "{a, plural, other{x}} and {b, plural, other{y}}"
}
"""
RAILS = """# Texts of the shop
en:
  hello: Hello world   # a remark
  "quoted": "A \\"red\\" car"
  single: 'It''s %{count} o''clock'
  text: |
    First line of it.
    Second line of it.

  folded: >-
    A long paragraph
    over two lines

    and another
  yes_no: yes
  number: 12
  day: 2020-01-01
  order: [ :year, :month, Day of it ]
  items:
    - One thing
    - &anchor Two things
    - *anchor
  over: words that go
    over lines
  html: "<b>Bold</b><br/>"
  data: !!binary aGVsbG8=
  ? [a, b]
  : Complex key
"""


def test_they_are_recognised_by_content() -> None:
    assert getattr(recognise(I18NEXT.encode(), "x"), "name", "") == "json"
    assert getattr(recognise(b'{"a": "b"}', "x"), "name", "") == "json"
    assert getattr(recognise(b'["a", {"b": "c"}]', "x"), "name", "") == "json"
    assert getattr(recognise(I18NEXT.encode()[:-9], "x"), "name", "") == "json"
    assert getattr(recognise(RAILS.encode(), "x.yml"), "name", "") == "yaml"


@pytest.mark.parametrize(
    "content",
    [
        '{"id": "a", "sentences": ["b"]}\n',
        '{"id": "a", "source": ["b"], "target": ["c"]}\n{"id": "b", "source": ["b"]}\n',
        '{"x": "a"}\n{"x": "b"}\n',
        "[Music] Hello.\n",
        "Dear Sir: I write to you.\nYours\n",
        "A sentence.\nAnother: with a colon.\n",
        "{not an object}",
    ],
)
def test_corpora_and_prose_are_no_catalogues(content: str) -> None:
    assert not JSON.recognises(content.encode())
    assert not YAML.recognises(content.encode())


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_their_own_blocks_give_the_file_back(ending: str) -> None:
    for format, content in ((JSON, I18NEXT), (JSON, ARB), (YAML, RAILS)):
        same_again(format, content.replace("\n", ending).encode())
        same_again(format, b"\xef\xbb\xbf" + content.encode())


def test_strings_of_json_change_and_nothing_else() -> None:
    opened = JSON.open(I18NEXT.encode(), "file")
    written = upper(opened).decode()
    found = json.loads(written)
    assert found["title"] == "HELLO <b>WORLD</b>"
    assert found["nested"] == {
        "items": ["ONE {{name}}", {"deep": 'TWO É / "Q"'}],
        "count": 3,
        "on": True,
        "none": None,
    }
    assert found["lines"] == "FIRST LINE.\nSECOND LINE.\n"
    assert found["key_other"] == "{{count}} FILES"
    assert (found["empty"], found["code"], found["link"]) == ("", "42", "https://example.org/a")
    assert r"TWO \u00c9 \/" in written
    assert '"title" : "' in written
    assert '\t"nested": {"items": ["ONE {{name}}",\n    {' in written
    assert [block.place for block in opened.contents.documents[0]][2] == "line 4, nested.items[1].deep"


def test_messages_of_icu() -> None:
    opened = JSON.open(ARB.encode(), "file")
    assert texts(opened) == [
        "No files",
        "# file in {folder}",
        "# files in {folder}",
        "You have # letter left.",
        "You have # letters left.",
        "He came",
        "She came",
        "One came",
        "They came",
    ]
    found = json.loads(upper(opened))
    assert (
        found["files"] == "{count, plural, =0{NO FILES} one{# FILE IN {folder}} other{# FILES IN {folder}}}"
    )
    assert found["left"] == "{n, plural, one{YOU HAVE # LETTER LEFT.} other{YOU HAVE # LETTERS LEFT.}}"
    assert found["who"] == (
        "{who, select, male{HE CAME} female{SHE CAME} other{{n, plural, one{ONE CAME} other{THEY CAME}}}}"
    )
    before = json.loads(ARB)
    for key in ("@@locale", "@files", "two"):
        assert found[key] == before[key]
    assert len(opened.contents.messages) == 2
    assert any("several plurals" in message for message in opened.contents.messages)


def test_braces_of_a_translation_are_text() -> None:
    opened = JSON.open(b'{"a": "{n, plural, other{one two}}"}', "file")
    assert json.loads(opened.written([[Block(("a {b} c",))]]))["a"] == "{n, plural, other{a '{'b'}' c}}"


def test_strings_of_yaml_change_and_nothing_else() -> None:
    opened = YAML.open(RAILS.encode(), "file")
    written = upper(opened).decode()
    lines = written.splitlines()
    assert lines[:3] == ["# Texts of the shop", "en:", "  hello: HELLO WORLD   # a remark"]
    assert "  single: 'IT''S %{count} O''CLOCK'" in lines
    assert "  order: [ :year, :month, DAY OF IT ]" in lines
    assert "    - &anchor TWO THINGS" in lines
    assert "  data: !!binary aGVsbG8=" in lines
    assert "  over: WORDS THAT GO OVER LINES" in lines
    # Symbols in brackets are of YAML 1.2, which this parser does not read.
    plain = yaml.safe_load(written.split("  ? [a")[0].replace(":year, :month", "a"))["en"]
    assert plain["text"] == "FIRST LINE OF IT.\nSECOND LINE OF IT.\n"
    assert plain["folded"] == "A LONG PARAGRAPH OVER TWO LINES\nAND ANOTHER"
    assert plain["yes_no"] is True
    assert plain["items"] == ["ONE THING", "TWO THINGS", "TWO THINGS"]
    assert "  : COMPLEX KEY" in lines
    assert "  text: |\n    FIRST LINE OF IT.\n    SECOND LINE OF IT.\n\n  folded: >-\n" in written
    assert any("seems to name the language" in message for message in opened.contents.messages)
    assert any("!!binary" in message or "binary stays" in message for message in opened.contents.messages)


@pytest.mark.parametrize(
    "translation",
    [
        "yes",
        "a: b",
        "# no",
        "- x",
        "[x",
        "'x",
        "a #b",
        "x:",
        "*x",
        "12",
        "ja",
        " x ",
        "é\x07",
        "two\nlines",
        "null",
        "",
    ],
)
def test_any_translation_comes_back_as_it_is(translation: str) -> None:
    for scalar in ("word", "'word'", '"word"', "|\n    word", ">\n    word", "|2-\n    word", "[word, word]"):
        opened = YAML.open(f"a:\n  b: {scalar}\n  c: 1\n".encode(), "file")
        found = yaml.safe_load(opened.written(translated(opened.contents, lambda _: translation)))
        value = found["a"]["b"]
        assert (value[0] if isinstance(value, list) else value.rstrip("\n").removeprefix("  ")) == (
            translation.removeprefix("  ") if "|2" in scalar else translation
        )
        assert found["a"]["c"] == 1


def test_markup_and_placeholders() -> None:
    content = b'{"a": "Read <1>this</1> $t(key) at @:link.home, %{n} of %s<br/>"}'
    [block] = JSON.open(content, "file").contents.documents[0]
    kinds = [type(piece) for piece in block.pieces if not isinstance(piece, str)]
    assert kinds == [Open, Close, Copied, Copied, Copied, Copied, Point]


@pytest.mark.parametrize(
    ("format", "content", "said"),
    [
        (JSON, '{"a": }', "file: not valid JSON"),
        (JSON, "[" * 5000 + "]" * 5000, "nested"),
        (JSON, '{"a": "\\ud800"}', "surrogate"),
        (YAML, "a: [", "file:1: not valid YAML|file:2: not valid YAML"),
        (YAML, "a: " + "[" * 90 + "]" * 90, "nested deeper"),
        (YAML, "a: \x07", "not valid YAML"),
        (YAML, "a: *b\n", ""),
    ],
)
def test_what_is_refused(format: object, content: str, said: str) -> None:
    if said:
        with pytest.raises(CotextError, match=said):
            format.open(content.encode(), "file")  # type: ignore[attr-defined]
    else:
        same_again(format, content.encode())  # type: ignore[arg-type]


def test_anchors_are_not_expanded() -> None:
    bomb = "a: &a [word, word]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
    )
    assert texts(same_again(YAML, bomb.encode())) == ["word", "word"]


@pytest.mark.parametrize("content", [I18NEXT, ARB])
def test_damage_of_json(content: str) -> None:
    assert_damage_is_survived(JSON, content.encode(), seed=1)


def test_damage_of_yaml() -> None:
    assert_damage_is_survived(YAML, RAILS.encode(), seed=1)


TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n{}<>'#,%\"\\"), max_size=20
)
TREES = st.recursive(
    TEXT | st.integers(0, 9) | st.booleans() | st.none(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXT, inside, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), TREES, max_size=4), st.booleans())
def test_any_tree_comes_back(tree: dict[str, object], indented: bool) -> None:
    same_again(JSON, json.dumps(tree, ensure_ascii=indented, indent=2 if indented else None).encode())
    same_again(YAML, yaml.safe_dump(tree, allow_unicode=indented, sort_keys=False).encode())


def test_long_runs_take_time_by_their_length() -> None:
    many = 1 << 18
    runs = ("@" * many, "a" + " " * many, "{" * many + "a", "{a" * many, "%" * many + "a", "<a" * many)
    for text in (*runs, "'{" * many):
        upper(JSON.open(json.dumps({"a": text}).encode(), "file"))
    upper(JSON.open(json.dumps({"a": "{n, plural, " * 500 + "other{a}" + "}" * 500}).encode(), "file"))
