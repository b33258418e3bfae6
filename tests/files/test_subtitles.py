"""Subtitles: sentences over cues, tags, dialogues, and everything else byte for byte."""

from typing import Any

import pysubs2

from cotext.files.blocks import Block, Close, Open, Piece, Point
from cotext.files.subtitles import FORMAT, _milliseconds
from cotext.files.table import recognise
from tests.files.faking import same_again, shouted, texts
from tests.refusals import must_raise

SRT = """1
00:00:01,000 --> 00:00:02,000
It was raining when

2
00:00:02,100 --> 00:00:04,500 X1:40 Y1:50
she left. <i>Nobody</i>
saw her.

3
00:00:05,000 --> 00:00:06,000
- Hello.
- Hi there.

4
00:00:07,000 --> 00:00:08,000
[DOOR SLAMS]
{\\an8}<i>Who is there?</i>
5
00:00:09,000 --> 00:00:10,000
♪ La la la ♪

6
00:00:11,000 --> 00:00:12,000
...

7
00:00:13,000 --> 00:00:14,000


8
00:00:15,000 --> 00:00:16,000
The end
"""
VTT = """WEBVTT - A talk
Kind: captions

STYLE
::cue(.loud) { color: red }

NOTE
This is not shown. 00:00 is no time.

REGION
id:fred

intro
00:01.000 --> 00:02.000 align:start position:10%
<v Anna>It was <c.loud>very</c> late

00:00:02.000 --> 00:00:04.000
<v Anna>when we &amp; they came.</v>

00:00:04.500 --> 00:00:06.000
<v Bob>Was it? <ruby>Y<rt>ye</rt>es<rt>s</ruby><00:00:05.000>!
"""


def opened(text: str) -> Any:
    return same_again(FORMAT, text.encode())


def translated(text: str, table: dict[str, str]) -> str:
    """The file with blocks replaced by text, without elements but the borders, where `|` stands."""
    file = opened(text)
    blocks = []
    for block in file.contents.documents[0]:
        keys = [piece for piece in block.pieces if isinstance(piece, Point)]
        words = table.get(block.text, block.text).split("|")
        pieces: list[Piece] = [words[0]]
        for key, more in zip(keys, [*words[1:], *[""] * len(keys)], strict=False):
            pieces += [key, more]
        blocks.append(Block(tuple(pieces), block.place) if block.text in table else block)
    return file.written([blocks]).decode()


def test_a_fraction_of_a_second_has_any_number_of_digits() -> None:
    for fraction, milliseconds in (("5", 500), ("05", 50), ("050", 50), (None, 0)):
        assert _milliseconds(("1", "2", "3", fraction)) == 3_723_000 + milliseconds


def test_blocks_are_sentences_over_cues_turns_sounds_and_songs() -> None:
    first, *others = texts(opened(SRT))[0]
    assert first == "It was raining when she left. Nobody saw her."
    assert others == ["Hello.", "Hi there.", "[DOOR SLAMS]", "Who is there?", "La la la", "The end"]
    assert [block.place for block in opened(SRT).contents.documents[0]][:2] == ["cues 1 to 2", "cue 3"]
    assert texts(opened(VTT)) == [["It was very late", "when we & they came.", "Was it? Yes!"]]


def test_tags_inside_are_elements_and_those_outside_stay() -> None:
    first, *_ = opened(SRT).contents.documents[0]
    assert [type(piece).__name__ for piece in first.pieces] == [
        "str", "Point", "str", "Open", "str", "Close", "str",
    ]  # fmt: skip
    loud = shouted(opened(SRT).contents.documents)
    written = opened(SRT).written(loud).decode()
    assert "{\\an8}<i>WHO IS THERE?</i>\n5\n" in written
    assert "IT WAS RAINING WHEN\n\n2\n00:00:02,100 --> 00:00:04,500 X1:40 Y1:50\nSHE LEFT.\n" in written
    assert "\nSHE LEFT.\n<i>NOBODY</i> SAW HER.\n" in written
    assert "- HELLO.\n- HI THERE." in written
    assert "♪ LA LA LA ♪" in written
    song = opened("1\n00:00:01,000 --> 00:00:02,000\n- ♪ <i>La la</i> ♪\n- Stop!\n")
    assert "- ♪ <i>LA LA</i> ♪\n- STOP!" in song.written(shouted(song.contents.documents)).decode()
    written = opened(VTT).written(shouted(opened(VTT).contents.documents)).decode()
    assert "<v Anna>IT WAS <c.loud>VERY</c> LATE\n" in written
    assert "<v Anna>WHEN WE &amp; THEY CAME.</v>" in written
    assert "<v Bob>WAS IT? <ruby>Y<rt>ye</rt>ES<rt>s</ruby><00:00:05.000>!" in written
    assert "::cue(.loud) { color: red }" in written


def cue(number: int, start: int, end: int, text: str) -> str:
    return f"{number}\n00:00:{start:02},000 --> 00:00:{end:02},000\n{text}\n\n"


def cues(text: str) -> list[str]:
    return [event.text for event in pysubs2.SSAFile.from_string(text)]


def test_a_sentence_is_divided_by_time_between_words_near_its_border() -> None:
    source = cue(1, 1, 2, "It was raining when she") + cue(2, 2, 4, "left the house in May.")
    whole = "It was raining when she left the house in May."
    assert texts(opened(source)) == [[whole]]
    # A third of the time, and the border stands at a third.
    for target, parts in (
        ("Es hat geregnet,| als sie im Mai das Haus verliess.", None),
        ("Regen fiel|", ["Regen", "fiel"]),  # the border at the very end: every cue keeps a word
        ("Regen|", None),
        ("那天她离开家的时候|正在下雨，雨很大。", None),
    ):
        expected = parts or [part.strip() for part in target.split("|")]
        assert cues(translated(source, {whole: target})) == expected


def test_an_element_over_a_border_is_in_both_cues() -> None:
    source = cue(1, 1, 2, "It was <i>very, <b>very</b></i> late") + cue(2, 2, 3, "when we came.")
    file = opened(source)
    [block] = file.contents.documents[0]
    i, b = (piece.key for piece in block.pieces if isinstance(piece, Open))
    [border] = [piece for piece in block.pieces if isinstance(piece, Point)]
    pieces = ("Wir ", Open(i), "kamen ", Open(b), "sehr ", border, "spät in", Close(b), Close(i), " der Not.")
    written = file.written([[Block(pieces, block.place)]]).decode()
    for part in ("Wir <i>kamen <b>sehr</b></i>", "<i><b>spät in</b></i> der Not."):
        assert part in written.splitlines()


def test_what_ends_a_sentence_or_speaks_apart_is_not_joined() -> None:
    for one, two, joined in (
        ("It rains.", "and then", False),
        ("It rains...", "and then it stops.", True),
        ("It rains...", "Then it stops.", False),
        ("It rains,", "then it stops.", True),
        ("I met", "Peter yesterday.", True),
        ("I met", "- Peter.", False),
        ("I met", "♪ la la ♪", False),
        *(("I met", "PETER: Yes.", False), ("I met", ">> Yes.", False), ("HE", "SAID: YES.", True)),
        ("I met", "(laughs)", False),
        ("他走了", "因为下雨。", True),
    ):
        blocks = texts(opened(cue(1, 1, 2, one) + cue(2, 2, 3, two)))[0]
        assert (len(blocks) == 1) is joined, (one, two, blocks)
    assert len(texts(opened(cue(1, 1, 2, "I met") + cue(2, 9, 10, "him")))[0]) == 2
    assert texts(opened(cue(1, 1, 2, "他走了") + cue(2, 2, 3, "因为下雨。"))) == [["他走了因为下雨。"]]
    # Without full stops there is no end of it.
    assert len(texts(opened("".join(cue(n, n, n + 1, "and so on") for n in range(1, 40))))[0]) == 4


def test_lines_are_balanced_and_no_more_than_there_were() -> None:
    long = "x" * 20
    source = cue(1, 1, 2, f"{long}\n{long}.")
    whole = f"{long} {long}."
    words = "eins zwei drei vier fünf sechs sieben acht neun zehn"
    assert cues(translated(source, {whole: words})) == [
        r"eins zwei drei vier fünf\Nsechs sieben acht neun zehn"
    ]
    assert cues(translated(source, {whole: "eins, zwei drei"})) == ["eins, zwei drei"]
    single = cue(1, 1, 2, "short.")
    assert cues(translated(single, {"short.": words})) == [words]


def test_text_that_looks_like_markup_is_written_as_text() -> None:
    written = translated("WEBVTT\n\n00:01.000 --> 00:02.000\nYes.\n", {"Yes.": "a --> b <c> & d"})
    assert written.endswith("a --&gt; b &lt;c&gt; &amp; d\n")
    assert texts(opened(written)) == [["a --> b <c> & d"]]
    for target, expected in (("00:01 --> 00:02", "00:01 → 00:02"), ("Ja.\n\n2", "Ja.  2")):
        assert translated(cue(1, 1, 2, "Yes."), {"Yes.": target}).splitlines()[2] == expected


def test_what_cannot_be_read_is_refused() -> None:
    for content, message in (
        (b"It rains.", "not in a known subtitle format"),
        (SRT.replace("♪", "ß").encode("cp1252"), "UTF-8"),
        (b"[Script Info]\nTitle: Test\n", "not in a known subtitle format"),
    ):
        must_raise(message, FORMAT.open, content, "x.srt")
    assert recognise(b"1\nIt rains.\n", "x.srt") is not FORMAT
    huge = cue(1, 1, 2, "<i>" * 3000) + cue(2, 2, 3, "Yes.")
    file = opened(huge)
    assert texts(file) == [["Yes."]]
    assert file.contents.messages == ["cue 1: not translated: more than 5,000 characters"]
