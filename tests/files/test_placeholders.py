"""Placeholders: what is copied by rule, and the text that the model reads instead."""

from hypothesis import given
from hypothesis import strategies as st

from cotext.data.tokenizer import SentencePieceTokenizer, TokenizerSettings
from cotext.data.words import placeholder_spans
from cotext.files.block_sentences import gives_back, shown, with_placeholders, without_placeholders
from cotext.files.blocks import Close, Copied, Open, Piece
from tests.loops import loop_over
from tests.tiny import PlainWordTokenizer

FOUND = {
    "See https://a.example/c?d=1&e=%20f, or www.b.com.": ["https://a.example/c?d=1&e=%20f", "www.b.com"],
    "(see https://x.org/y_(z)).": ["https://x.org/y_(z)"],
    "Write to ann.b@mail.example.org!": ["ann.b@mail.example.org"],
    "{0} of {name}, {price:.2f} and {{x | y: 'z'}}": ["{0}", "{name}", "{price:.2f}", "{{x | y: 'z'}}"],
    "{% if a %}yes{% endif %}": ["{% if a %}", "{% endif %}"],
    "Dear ${user.name(1)} or $NAME$": ["${user.name(1)}", "$NAME$"],
    "%s has %d new, %1$s %2$d, %(name)s, %5.2f": ["%s", "%d", "%1$s", "%2$d", "%(name)s", "%5.2f"],
    "Step 2 %s, %dx%d: %d%%": ["%s", "%d", "%d", "%d", "%%"],
    "{count, plural, one {# file} other {# files}}": ["{count, plural, one {", "} other {", "}}"],
    '<x id="1"/> is <b>bold</b> &amp; &#160;': ['<x id="1"/>', "<b>", "</b>", "&amp;", "&#160;"],
    r"In /etc/hosts, C:\Users\x and src/a_b/c.py": ["/etc/hosts", r"C:\Users\x", "src/a_b/c.py"],
    "%PATH% and __INIT__": ["%PATH%", "__INIT__"],
    "a-b/c.d //a-b/c.e -/a/b -/-/-/-": ["a-b/c.d", "b/c.e", "/a/b"],
    "a-/b-/c //a-/b/c ~/a/b and ../c/d": ["/b-/c", "/b/c", "~/a/b", "../c/d"],
    "%00005d %-+d": ["%00005d", "%-+d"],
}
TRAPS = [
    "50 % der Leute",
    "50% de los casos",
    "100% sure, 20% discount, 5 % d'abord",
    "he said {sic} and {see below}",
    "It costs $5 or US$ 3.50.",
    "AT&T, R&D; Q & A",
    "a < b and c > d, x <3",
    "and/or he/she 1/2 24/7 km/h",
    "e-mail me @home at 3.30 p.m.",
    "www. is short; http is a protocol: see [1].",
    "C: the language, A: the answer",
]


@loop_over("text", FOUND)
def test_placeholders_are_found(text: str) -> None:
    assert [text[a:b] for a, b in placeholder_spans(text)] == FOUND[text]


@loop_over("text", TRAPS)
def test_what_only_looks_like_one_is_text(text: str) -> None:
    assert placeholder_spans(text) == []


texts = st.text(alphabet="ab {}%sd$<>/&;:@.()0", max_size=30)


@given(st.lists(texts, min_size=1, max_size=3))
def test_pieces_come_back(parts: list[str]) -> None:
    pieces: list[Piece] = [Open(7), *parts, Close(7), Copied(3, "code"), *parts]
    found = with_placeholders(pieces, PlainWordTokenizer([]))
    joined = "".join(parts)
    back = without_placeholders(found, pieces)
    assert [p for p in back if not isinstance(p, str)] == [Open(7), Close(7), Copied(3, "code")]
    assert "".join(p for p in back if isinstance(p, str)) == 2 * joined
    keys = [p.key for p in found if not isinstance(p, str | Close)]
    assert len(keys) == len(set(keys))


def test_words_with_unknown_characters_are_copied_and_the_model_reads_a_known_text() -> None:
    """Not an unknown letter of a longer word without spaces, nor punctuation, nor letters known as bytes."""
    smile, family = "\U0001f600", "\U0001f468\u200d\U0001f469"
    known_as_bytes = {
        f"der {smile}{family} haus": [smile + family],
        "neu \u041c\u043e-\u041c": ["\u041c\u043e-\u041c"],
        "\u5317\u5927 \u5927\u5317 \u201cneu\u201d bed\u2011room": [],
        f"{{0}}\u2192%s {smile}": ["{0}", "\u2192", "%s", smile],
        "\u5317\u4eac.haus m\u00fcde": [],
    }
    unknown = {**known_as_bytes, "\u5317\u4eac.haus m\u00fcde": ["\u5317\u4eac", "m\u00fcde"]}
    for by_bytes, expected in ((True, known_as_bytes), (False, unknown)):
        tokenizer = SentencePieceTokenizer.train(
            ["der haus neu 1 \u5927 bed-room."] * 3, TokenizerSettings(byte_fallback=by_bytes)
        )
        for text, copied in expected.items():
            pieces = with_placeholders([text], tokenizer)
            assert [piece.text for piece in pieces if isinstance(piece, Copied)] == copied
            assert without_placeholders(pieces, [text]) == (text,)
            assert copied[:1] == ["{0}"] or with_placeholders([text], tokenizer, text.casefold()) == (text,)
            assert all(map(str.isascii, shown(pieces, tokenizer).values()))


def test_a_stand_in_is_what_the_tokenizer_can_write_and_the_sentence_does_not_hold() -> None:
    tokenizer = SentencePieceTokenizer.train(
        ["a neu X1 X2 X3 haus { haus }"] * 3, TokenizerSettings(byte_fallback=False)
    )
    copied = [Copied(key, text) for key, text in enumerate(("{0}", "haus", "{1}", "{0}", "{ haus }"))]
    found = shown(["X1 ", copied[0], " neu ", *copied[1:]], tokenizer)
    assert found[1] == "haus"
    assert found[0] == found[3]
    assert len({found[0], found[2], found[4], "{ haus }"}) == 4
    for text in found.values():
        assert gives_back(tokenizer, text)
    assert "X1" not in (found[0], found[2])
    words = PlainWordTokenizer(["cat", "sat"])
    assert shown([Copied(0, "{0}"), "cat"], words)[0] in ("sat", "three", "two", "one")
