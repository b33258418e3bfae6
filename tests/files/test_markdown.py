"""Markdown: text alone changes, everything else stays as it is spelled."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cotext.files.blocks import Close, Copied, Open, Piece, Point
from cotext.files.markdown import FORMAT, MarkdownReader
from cotext.files.places import SplicedFile
from tests.files.faking import changed, same_again
from tests.loops import loop_over

PAGE = """---
title: kept
---
# Head *x* ##

Para one\\* &amp; two [link](http://x.y "Title") and ![alt](p.png 'T')@@
hard `code  x` <b>inline</b> <http://auto.x>
soft [ref][r] ~~del~~ \\
end[^1]. A [long way](<a b> "to go") __home__ $a *b$.

> [!NOTE]
> quote
continued lazy
> - item in it

* item
  more

  second paragraph
1. one
2. two

| a \\| b | **b** |
|:--|---|
| c | d `e` |

Setext *h*
===

```
code
```

    more code

<div>
html
</div>

:::tip Tip
{% if x %}
import T from 't'
$$
x = y
$$

[r]: http://r "Ref title"
[^1]: note text
[^2]: Note
""".replace("@@", "  ")


def opened(text: str) -> SplicedFile:
    return same_again(FORMAT, text.encode())


def test_every_construct_comes_back_with_other_text() -> None:
    file = opened(PAGE)
    upper = file.written(changed(file.contents.documents, str.upper)).decode()
    assert upper.lower() == PAGE.lower()
    for kept in (
        *("title: kept", "](http://x.y ", "(p.png ", "&amp;", "`code  x`", "<b>", "http://auto.x", "[r]"),
        *('[r]: http://r "Ref title"', "(<a b> ", "`e`", "```\ncode\n```", "    more code", "[^1]: "),
        *("<div>\nhtml\n</div>", "$a *b$", "> [!NOTE]\n> Q", ":::tip Tip\n{% if x %}\n"),
        "import T from 't'\n$$\nx = y\n$$",
    ):
        assert kept in upper
    for said in ('"TITLE"', "![ALT]", "'T'", '"TO GO"', "CONTINUED LAZY", ": NOTE TEXT", "]: NOTE\n"):
        assert said in upper
    found = [message.partition(": ")[2] for message in file.contents.messages]
    assert found == [
        "front matter of 3 lines is not translated",
        "lines of extensions or formulas are kept unchanged (5)",
        "paragraphs whose markup cannot be parsed are kept unchanged (1)",
        "blocks of code are kept unchanged (2)",
        "blocks of HTML are kept unchanged (1)",
    ]


def test_the_box_of_a_task_is_not_text() -> None:
    for text in ("- [ ] Check it", "1. [x] Done", "* [X] So *it* is"):
        file = opened(text)
        [[block]] = file.contents.documents
        assert "[" not in block.text
        upper = text.upper().replace("1. [X]", "1. [x]")
        assert file.written(changed([[block]], str.upper)).decode() == upper
    [[block]] = opened("- [x] Do\n\n[x]: http://y").contents.documents
    assert block.text == "x Do"


def test_line_ends() -> None:
    for ending in ("\r\n", "\r"):
        file = opened(PAGE.replace("\n", ending))
        upper = file.written(changed(file.contents.documents, str.upper)).decode()
        assert upper.lower() == PAGE.replace("\n", ending).lower()
        assert "title: kept" in upper


def rewritten(text: str, *pieces: Piece) -> str:
    """A text of one paragraph with these pieces."""
    file = opened(text)
    [[first, *others]] = file.contents.documents
    return file.written([[replace(first, pieces=pieces), *others]]).decode()


@loop_over(
    ("text", "pieces", "expected"),
    [
        # What would be markup is escaped, where it would be.
        ("a\n", ("*b* and 5 * 3",), "\\*b\\* and 5 \\* 3\n"),
        ("a\n", ("5 * 3",), "5 * 3\n"),
        ("a\n", ("# b",), "\\# b\n"),
        ("a\n", ("- b",), "\\- b\n"),
        ("a\n", ("1. b (in 2) c 3. d 4.",), "1\\. b (in 2) c 3. d 4.\n"),
        ("a\n", ("<b>",), "\\<b\\>\n"),
        ("a\n", ("one\ntwo",), "one two\n"),
        ("*a* b\n", ("b ", Open(1), "a", Close(1)), "b *a*\n"),
        # Code and strikethrough at the beginning are what they were.
        ("`f` is a\n", (Copied(1, "f"), " ist b"), "`f` ist b\n"),
        ("~~a~~ b\n", (Open(1), "c", Close(1), " d"), "~~c~~ d\n"),
        # What would begin something else than a paragraph is escaped, and indentation goes.
        ("a\n", ("    b",), "b\n"),
        ("a\n", ("[b]: c",), "[b]\\: c\n"),
        # The mark of a note before a colon stays one.
        ("[^1] b\n\n[^1]: x\n", (Point(1), ": c"), "[^1]\\: c\n\n[^1]: x\n"),
        ("a\n", ("<div",), "\\<div\n"),
        ("a\n", ("***",), "\\***\n"),
        ("a\n", ("b\r\n\r\nc",), "b c\n"),
        ("a\n", ("b\0\ud800c",), "bc\n"),
        # Emphasis of nothing goes, and so does a line break at the end.
        ("*a* **b** c\n", ("d", Open(1), Close(1), Open(2), " ", Close(2)), "d\n"),
        ("a  \nb\n", ("c d", Point(1, True)), "c d\n"),
        # What stars cannot enclose is enclosed in tags.
        ("a **b** c\n", ("a", Open(1), "(b)", Close(1), "c"), "a<strong>(b)</strong>c\n"),
        # Underscores are no emphasis inside a word.
        ("_a_ b\n", ("b", Open(1), "a", Close(1), "c"), "b*a*c\n"),
        # A reference by its text keeps its label.
        ("[a] b\n\n[a]: x\n", (Open(1), "c", Close(1)), "[c][a]\n\n[a]: x\n"),
        ("[a][] b\n\n[a]: x\n", (Open(1), "c", Close(1)), "[c][a]\n\n[a]: x\n"),
        ("| a | b |\n|---|---|\n", ("c | d",), "| c \\| d | b |\n|---|---|\n"),
        # A text of a link that looks like a reference, a definition or the mark of a footnote.
        ("[a][r]\n\n[r]: x\n", (Open(1), "b [r]: c", Close(1)), "[b \\[r\\]: c][r]\n\n[r]: x\n"),
        ("[a](x)\n", (Open(1), "^1", Close(1)), "[\\^1](x)\n"),
        # Line breaks side by side are no end of the paragraph.
        ("a  \nb  \nc\n", ("d", Point(1, True), Point(2, True), "e"), "d  \n\\\ne\n"),
        ("a  \nb\n", ("c", Point(1, True), "\n", "d"), "c  \nd\n"),
        ("a  \nb\n", ("c", Point(1, True), "\u00a0"), "c\n"),
        # Marks at the end of a heading are part of it.
        ("# a\n", ("C #",), "# C \\#\n"),
        ("a\n", ("C #",), "C #\n"),
        # Codes side by side stay two.
        ("`a` and `b`\n", (Copied(1, "a"), Copied(2, "b"), " c"), "`a` `b` c\n"),
    ],
)
def test_translations_are_escaped_if_needed(text: str, pieces: tuple[Piece, ...], expected: str) -> None:
    assert rewritten(text, *pieces) == expected


def test_texts_inside_of_elements_do_not_end_them() -> None:
    text = "[a](x 'Title') ![alt](y)\n"
    file = opened(text)
    [blocks] = file.contents.documents
    assert [block.text for block in blocks] == ["a ", "Title", "alt"]
    given = [blocks[0], *(replace(block, pieces=('it\'s ("b") *c* <d>',)) for block in blocks[1:])]
    tokens = MarkdownIt().parse(file.written([given]).decode())
    image = tokens[1].children[-1]
    assert tokens[1].children[0].attrs["title"] == image.content.replace("\\", "") == 'it\'s ("b") *c* <d>'


def test_a_paragraph_that_no_spelling_makes_keeps_its_elements_and_is_said() -> None:
    file = opened("a <div> *b*\n")
    [[block]] = file.contents.documents
    given = replace(block, pieces=(Point(1), "[c] ", Open(2), "d", Close(2)))
    assert file.written([[given]]) == b"<div>\\[c\\] <em>d</em>\n"
    [message] = file.contents.messages
    assert message == "line 1: the translation may contain unintended markup"
    # An empty translation has nothing to say.
    file = opened("a\n")
    assert file.written([[replace(file.contents.documents[0][0], pieces=())]]) == b"\n"
    assert not file.contents.messages


def test_a_paragraph_of_several_lines_keeps_its_width() -> None:
    lines = "> the cat sees the dog and\n> the dog sees the cat and\n> more\n"
    long = " ".join(["eine katze sieht"] * 6)
    found = rewritten(lines, long).splitlines()
    assert all(line.startswith("> ") and len(line) <= 26 for line in found)
    assert " ".join(line[2:] for line in found) == long
    assert rewritten("one two three\nsix\n", "one\n- two").splitlines() == ["one", "\\- two"]


def test_elements_of_html_lie_within_those_of_markdown() -> None:
    for text, pieces in (
        ("<b>a *c <i>d</i>*</b>", "(a (c (d)))"),
        ("*<b>a* c</b>", "(.a) c."),
        ("*<b>a* *c</b>*", "(.a) (c.)"),
        ("<b>a *c</b>*", ".a (c.)"),
        ("<b>*<i>a*</b></i>", "((.a))."),
    ):
        signs = {Open: "(", Close: ")", Point: "."}
        [[block]] = opened(text).contents.documents
        assert "".join(p if isinstance(p, str) else signs[type(p)] for p in block.pieces) == pieces


def test_a_row_of_a_table_is_taken_out_of_the_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    line = MarkdownReader._line
    monkeypatch.setattr(MarkdownReader, "_line", lambda self, n: taken.append(n) or line(self, n))
    file = opened("|" + " a |" * 200 + "\n|" + "---|" * 200 + "\n|" + " b |" * 200 + "\n")
    assert len(file.contents.documents[0]) == 400
    assert len(taken) == 2


PARTS = r"""
cat|dog |*|**|_|`|[|](x)|](x 'T')|![|]|[^1]|~~|# |- |> |1. |    |<b>|</b>|\|\*|&amp;|&|<!-- |-->|[^1]:
|<http://x>|é
"""
LINES = " @\n@\n\n@\t@| @|---|---|\n@\n===\n@---\n@```\n@[a]: x 'T'\n@  \n@\r\n"
ALL = [*PARTS.strip().split("|"), *LINES.split("@")]


@given(st.lists(st.sampled_from(ALL), max_size=25).map("".join))
@example(r"cat\****_*<b>*")
def test_any_text_is_reproduced(text: str) -> None:
    file = opened(text)
    upper = file.written(changed(file.contents.documents, str.upper)).decode()
    # Escapes may be added, and tags where no marks say the same; letters change their case alone.
    letters, changed_letters = (
        [c for c in re.sub("&amp;|</?(?:em|strong|del)>", "", each.lower()) if c.isalpha()]
        for each in (text, upper)
    )
    assert changed_letters[: len(letters)] == letters or "[a]" in upper.lower()


@pytest.mark.parametrize("character", ["\x85", "\u2028"])
def test_a_mark_before_a_character_that_is_a_space_elsewhere(character: str) -> None:
    """Markdown knows fewer kinds of white space than Python: an underscore must not become text."""
    file = opened("_one_ two")
    [[block]] = file.contents.documents
    written = file.written([[replace(block, pieces=(*block.pieces[:3], f"{character}zwei"))]])
    [[again]] = FORMAT.open(written, "a file").contents.documents
    assert "_" not in again.text
