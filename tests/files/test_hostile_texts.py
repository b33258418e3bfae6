"""Texts that once took exponential or quadratic time, or failed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from markdown_it.token import Token

from cotext.config.parts import OWN
from cotext.data.faults import Checks, Fault, missing_numbers, tag_faults
from cotext.data.splitting import Splitter
from cotext.data.words import consists_of, placeholder_spans
from cotext.files.block_sentences import cut
from cotext.files.blocks import Block, Close, Copied, Open
from cotext.files.markdown import FORMAT as MARKDOWN
from cotext.files.markdown import html_mates
from cotext.files.markup import Markup
from cotext.files.po import FORMAT as PO
from cotext.files.table import named_format
from cotext.files.tags import project, shown_text
from cotext.files.translate_blocks import without_added_stop
from cotext.language_models.config import read_numbered
from cotext.serving.translation import TagHandling, fragment
from tests.loops import loop_over

SIZE = 50_000
SECONDS = 3.0  # of processor time; each took minutes
MANY = tuple(piece for n in range(SIZE // 4) for piece in (Open(n), "a ", Close(n)))
COPIES = tuple(piece for n in range(SIZE // 3) for piece in (Copied(n, "%s"), " "))
DIFFERENT = tuple(piece for n in range(SIZE // 8) for piece in (Copied(n, f"{{{n}}}"), " "))
LINES = tuple(piece for n in range(SIZE // 10) for piece in ("a", Copied(n, "\n")))

NESTED = [
    *(Token("html_inline", "", 0, content="<b>"), Token("em_open", "em", 1)),
    *(Token("html_inline", "", 0, content="</b>"), Token("em_close", "em", -1)),
]
SAME = "See the next page for more."
NUMBERS = " ".join(map(str, range(SIZE // 6)))
NUMBERED = " ".join(f"<a{number}>" for number in range(SIZE // 9))


def _all_faults(pairs: Sequence[tuple[str, str]]) -> list[list[Fault]]:
    checks = Checks(pairs)
    return [checks.faults(number) for number in range(len(pairs))]


def _written(name: str, content: bytes) -> None:
    """Read a file and write it with a word more in each block."""
    opened = named_format(name).open(content, name)
    [blocks] = opened.contents.documents
    opened.written([[replace(block, pieces=("x ", *block.pieces)) for block in blocks]])


@loop_over(
    "call",
    [
        lambda: MARKDOWN.open(("---\r\n" + "a\r\n" * 1000).encode(), "a.md"),
        lambda: MARKDOWN.open(("[^" * (SIZE // 4)).encode(), "a.md"),
        lambda: MARKDOWN.open(("[a](" + " " * SIZE + "b((c)))").encode(), "a.md"),
        lambda: html_mates(NESTED * (SIZE // 4)),
        lambda: html_mates(NESTED[:1] * SIZE + NESTED[2:3] * SIZE),
        lambda: _all_faults([(SAME, "Siehe die Seite danach.")] * 2000),
        lambda: missing_numbers(NUMBERS, NUMBERS.replace(" ", "7 ")),
        lambda: OWN.fullmatch("a" * SIZE),
        lambda: list(tag_faults(NUMBERED, NUMBERED.replace("a", "b"))),
        lambda: MARKDOWN.open(("# a" + " " * SIZE + "b #").encode(), "a.md"),
        lambda: fragment(" " * SIZE + "a", "1", TagHandling("xml"), "text 1"),
        lambda: placeholder_spans("%(a)" + "0" * SIZE),
        lambda: placeholder_spans("-" * SIZE),
        lambda: placeholder_spans("a-/" * (SIZE // 3)),
        lambda: Splitter("en").ends("؟ " * (SIZE // 2)),
        lambda: without_added_stop("a", "a" * SIZE + "!", "de"),
        lambda: consists_of(NUMBERS, NUMBERS.split()),
        lambda: read_numbered("[1] a" + " " * SIZE + "b", 1),
        lambda: cut(Block(LINES), Splitter("en").spans),
        lambda: PO.open(b'msgid ""\nmsgstr ""\n# ' + b"Content-Type:" * (SIZE // 13) + b"\n", "a.po"),
        lambda: project((Open(0), "A cat ", Close(0), "sleeps."), "a. " * (SIZE // 3), None),
        lambda: project(MANY, f"{shown_text(MANY, {})} x", None),
        lambda: project(COPIES, "%s " * (SIZE // 4), None),
        lambda: project(DIFFERENT, f"{shown_text(DIFFERENT, {})} x", None),
        lambda: _written(
            "a.srt",
            b"".join(
                b"1\n00:00:0%d,0 --> 00:00:0%d,5\n" % (n, n) + b"x " + b"a: b\n" * 900 + b"x\n"
                for n in range(9)
            ),
        ),
    ],
)
def test_time_goes_by_the_length_of_a_text(call: Callable[[], object]) -> None:
    begun = time.process_time()
    call()
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    ("written", "meant"), [("&#" + "0" * 5000 + "65;", "A"), ("&#" + "9" * 5000 + ";", "\ufffd")]
)
def test_a_character_may_have_a_number_of_any_length(written: str, meant: str) -> None:
    [block] = Markup(f"<p>x {written}</p>").blocks
    assert block.text == f"x {meant}"


def test_what_stands_before_a_word_is_seen_behind_several_ends() -> None:
    assert Splitter("en").ends("Was it? no؟ ؟ (No.) It was؟ ؟ there") == [14, 20]
    assert Splitter("en").ends("Da؟ ؟ • item one؟ ؟ ¿The end") == [6, 20]
