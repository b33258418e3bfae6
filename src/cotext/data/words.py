"""Word boundaries in scripts with and without spaces, phrases, positions of tokens, and placeholders."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from cotext.data.tokenizer import Side, Tokenizer

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: written without spaces, or with attached endings.
_UNSPACED: Final = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x9FFF), (0xAC00, 0xD7FF))


@lru_cache(maxsize=100_000)
def is_letter(character: str) -> bool:
    """Return whether a character is part of a word in a script that separates words by spaces."""
    code = ord(character)
    if code < 128:
        return character.isalnum() or character == "_"
    if any(first <= code <= last for first, last in _UNSPACED):
        return False
    return unicodedata.category(character)[0] in "LNM"


def is_boundary(before: str, after: str) -> bool:
    """Return whether there can be a word boundary between two characters; "" is the end of the text."""
    return not (before and after and is_letter(before) and is_letter(after))


class Word(NamedTuple):
    """A word, a character of a script without spaces, or a punctuation mark, with its span."""

    text: str
    start: int
    stop: int


def words_of(text: str) -> list[Word]:
    """Split a text into words; hyphens, apostrophes and full stops are separate words."""
    words: list[Word] = []
    for match in _NO_SPACE.finditer(text):
        start = match.start()
        for i in range(match.start() + 1, match.end() + 1):
            if i == match.end() or is_boundary(text[i - 1], text[i]):
                words.append(Word(text[start:i], start, i))
                start = i
    return words


def occurrences(text: str, phrases: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield offset and phrase of non-overlapping occurrences as full words, leftmost and longest first."""
    known = set(phrases)
    lengths: dict[str, list[int]] = {}  # first character -> lengths of phrases, longest first
    for first, length in sorted({(phrase[:1], len(phrase)) for phrase in known}, reverse=True):
        lengths.setdefault(first, []).append(length)
    start = 0
    while start < len(text):
        for length in lengths.get(text[start], ()):
            phrase = text[start : start + length]
            if phrase in known and _is_whole(text, start, phrase):
                yield start, phrase
                start += len(phrase) - 1
                break
        start += 1


def covered(text: str, phrases: Iterable[str]) -> list[tuple[int, int]]:
    """Return the spans of all occurrences of phrases."""
    return [(start, start + len(phrase)) for start, phrase in occurrences(text, list(phrases))]


def overlaps(spans: Sequence[tuple[int, int]], start: int, stop: int) -> bool:
    """Return whether the span (start, stop) overlaps one of `spans`, which are sorted and disjoint."""
    before = bisect_left(spans, (stop,))
    return before > 0 and spans[before - 1][1] > start


def consists_of(text: str, phrases: Sequence[str]) -> bool:
    """Return whether phrases cover all letters and digits of a text; False if there are no phrases."""
    if not phrases:
        return False
    spans = covered(text, phrases)
    outside = zip([0, *(stop for _, stop in spans)], [*(start for start, _ in spans), len(text)], strict=True)
    return not any(map(str.isalnum, "".join(text[start:stop] for start, stop in outside)))


def _is_whole(text: str, start: int, phrase: str) -> bool:
    stop = start + len(phrase)
    before, after = text[start - 1 : start] if start else "", text[stop : stop + 1]
    # A conversion such as %d is often followed by a unit.
    return is_boundary(before, phrase[0]) and (phrase[0] == "%" or is_boundary(phrase[-1], after))


_NO_SPACE: Final = re.compile(r"\S+")
_UNSPACED_CLASS: Final = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSPACED)
_WORD: Final = re.compile(rf"[{_UNSPACED_CLASS}]|[^\W{_UNSPACED_CLASS}]+|[^\w\s]")


def word_texts(text: str) -> list[str]:
    """Return the texts of `words_of`, faster; but combining marks of Indian scripts are separate words."""
    return _WORD.findall(text)


def token_spans(tokenizer: Tokenizer, tokens: Sequence[int], text: str, side: Side) -> list[tuple[int, int]]:
    """Return the span of characters (start, stop) of each token of a text; empty for invisible tokens.

    The function works with every tokenizer: it decodes prefixes of the tokens, and counts the characters
    other than white space. The decoded text may differ from `text`, because tokenizers normalise.
    """
    decoded = "".join(tokenizer.decode(tokens, side).split())
    offsets = [i for i, character in enumerate(text) if not character.isspace()]
    partners = _partners(decoded, "".join(text[i] for i in offsets))
    ends = [0]
    for n in range(1, len(tokens) + 1):
        shown = len("".join(tokenizer.decode(tokens[:n], side).split()))
        ends.append(max(ends[-1], min(shown, len(decoded))))
    spans = []
    for first, last in pairwise(ends):
        a, b = partners[first], partners[last]
        start = offsets[a] if a < len(offsets) else len(text)
        spans.append((start, offsets[b - 1] + 1 if b > a else start))
    return spans


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A word or punctuation mark: `start` and `stop` are character positions, `tokens` token indices."""

    text: str
    start: int
    stop: int
    tokens: range

    def total(self, of_tokens: Sequence[float]) -> float:
        return sum(of_tokens[i] for i in self.tokens)


def token_words(tokenizer: Tokenizer, text: str, side: Side) -> list[TokenWord]:
    """Return the words and punctuation marks of a text in order; together they have all tokens.

    In scripts without spaces, a character is a word. Words that share a token are merged. A token without
    visible text, such as the first byte of a character, belongs to the following word.
    """
    ids, words = tokenizer.encode(text, side), words_of(text)
    starts = [word.start for word in words]
    merged: list[TokenWord] = []
    first = 0
    for number, (start, stop) in enumerate(token_spans(tokenizer, ids, text, side)):
        if start == stop:
            continue
        last = words[bisect_right(starts, stop - 1) - 1]
        if merged and start < merged[-1].stop:
            begin, tokens = merged[-1].start, range(merged[-1].tokens.start, number + 1)
            merged[-1] = TokenWord(text[begin : last.stop], begin, last.stop, tokens)
        else:
            begin = words[bisect_right(starts, start) - 1].start
            merged.append(TokenWord(text[begin : last.stop], begin, last.stop, range(first, number + 1)))
        first = number + 1
    if merged:
        merged[-1] = replace(merged[-1], tokens=range(merged[-1].tokens.start, len(ids)))
    return merged


def _partners(one: str, other: str) -> list[int]:
    """Return the corresponding offset in a similar text for every offset in a text, including its end."""
    if len(one) == len(other):
        return list(range(len(one) + 1))
    partners = [0] * (len(one) + 1)
    for _, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for i in range(a, b):
            partners[i] = c + (i - a) * (d - c) // (b - a)
    partners[-1] = len(other)
    return partners


# --- Placeholders: parts of a text that are copied to the translation, found by rules.
#
#     addresses     https://a.b/c?d=1   www.a.b/c   ann@a.b
#     braces        {0}   {name}   {name:.2f}   {{x}}   ${x}   {% tag %}
#     ICU           {count, plural, one {   } other {   }}
#     conversions   %s   %d   %1$s   %5.2f   %(name)s   %@   %%
#     names         $NAME$   %NAME%   __NAME__
#     mark-up       <x id="1"/>   <b>   </b>   &amp;   &#160;
#     paths         /etc/hosts   C:\Windows\x   src/a_b/c.py
#
# Not placeholders: a percentage ("50 % der", "100% sure"), words of a sentence in braces ("{see below}"), and
# a price ("$5").

# An address may contain pairs of brackets, and does not end in punctuation that ends a sentence.
_URL: Final = (
    r"""(?:(?:https?|ftp)://|mailto:|www\.(?=\w+\.))(?:[^\s<>"'`„“”«»{}|\\^()]|\([^\s()]*\))*"""
    r"""(?:[^\s<>"'`„“”«»{}|\\^().,;:!?\]…]|\([^\s()]*\))"""
)
_MAIL: Final = r"(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]+)+"
_BRACES: Final = (
    r"\{\{[^{}\n]{1,100}\}\}|\{%[^{}%\n]{1,100}%\}|\$\{[^{}\n]{1,100}\}|\{\d+(?:[:!,][^{}\s]{0,20})?\}"
    r"|\{\w+,\s*(?:plural|select|selectordinal)\s*,\s*=?\w+\s*\{|\}\s*\}"
    r"|\}\s+(?:=\d+|zero|one|two|few|many|other|male|female)\s*\{"
    r"|\{(?!(?:sic)\})[A-Za-z_][\w.-]*(?:\[\w+\])?(?:[:!][^{}\s]{0,20})?\}"
)
# Directly after a number, % is a percentage, except in conversions that name their argument.
_CONVERSION: Final = (
    r"%\(\w+\)[#0 +-]*+\d*(?:\.\d+)?[sdifgeExXour]|%\d+\$[#0+-]*+\d*(?:\.\d+)?(?:l|ll|h|z)?[sdifgeExXouc@]"
    r"|(?<![\d%])%(?:[#0+-]*+\d*(?:\.\d+)?(?:ll|l|h|z)?[sdifgeExXouc](?!(?!x%)[A-Za-z])|@|%)"
)
_NAMES: Final = r"\$[A-Z][A-Z0-9_]+\$|(?<![\w%])%[A-Z][A-Z0-9_]+%(?!\w)|\b__[A-Z][A-Z0-9_]+__\b"
_MARKUP: Final = (
    r"""</?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*/?>"""
    r"|&(?:[A-Za-z]\w{1,30}|\#\d{1,7}|\#x[0-9A-Fa-f]{1,6});"
)
_DRIVE: Final = r"(?<![\w/.:])[A-Za-z]:\\[\w.\\-]*\w"
# These match text that begins like a path; the group "path" matches only if it is a path. Other text is
# matched, too: otherwise the search would start again at every hyphen in it, in quadratic time.
_FROM_ROOT: Final = re.compile(
    r"(?<![\w/.:])(?:~|\.{1,2})?/(?:(?P<path>(?:[\w.-]+/)+[\w.-]*\w/?)|(?:[\w.-]+/)*[\w.-]*)"
)
_RELATIVE: Final = re.compile(
    r"(?<![\w/.])(?:(?P<path>(?:[\w.-]+/)+[\w-]+\.[A-Za-z]\w{0,4}(?!\w))|[\w.-]+(?:/[\w.-]+)*)"
)
_RULES: Final = (
    re.compile("|".join((_URL, _MAIL, _BRACES, _CONVERSION, _NAMES, _MARKUP, _DRIVE))),
    _FROM_ROOT,
    _RELATIVE,
)


def placeholder_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of placeholders: leftmost first; at the same position, the first rule wins."""
    spans: list[tuple[int, int]] = []
    following = [_next(rule, text, 0) for rule in _RULES]
    while (first := min(following, key=itemgetter(0)))[0] < len(text):
        spans.append(first)
        # Matches that begin before the end of this one are dropped; the others are kept.
        following = [
            span if span[0] >= first[1] else _next(rule, text, first[1])
            for rule, span in zip(_RULES, following, strict=True)
        ]
    return spans


def _next(rule: re.Pattern[str], text: str, start: int) -> tuple[int, int]:
    """Return the next span of a rule; (end, end) if there is none."""
    matches = (m for m in rule.finditer(text, start) if "path" not in rule.groupindex or m["path"])
    return next((match.span() for match in matches), (len(text), len(text)))


def blanked(text: str) -> str:
    """Replace every placeholder with spaces of the same length."""
    parts: list[str] = []
    done = 0
    for start, stop in placeholder_spans(text):
        parts += [text[done:start], " " * (stop - start)]
        done = stop
    return "".join([*parts, text[done:]])


# --- Units of word alignment: words, punctuation marks, and single letters of scripts without spaces.

Span = tuple[int, int]  # characters: first, last + 1

# Characters that join the parts of a word between letters.
_JOINING = frozenset("-'\u2019\u2010\u2011\u00ad\u00b7")
# Punctuation that is spoken, and counts as a word.
_READ = frozenset("%\u2030&@#\u00a7*")
# Languages without spaces between words, and without a tokenizer in sacrebleu.
UNSPACED_LANGUAGES: Final = ("th", "lo", "km", "my", "yue")
# First and last letters of scripts that are written without spaces between words.
_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A word, a letter of a script without spaces, a punctuation mark, or a text that stays unsplit."""

    start: int
    stop: int
    punctuation: bool = False


def word_units(text: str, cuts: Iterable[int] = (), whole: Sequence[Span] = ()) -> list[Unit]:
    """Return the units of a text, in order, separated by white space or nothing.

    `cuts`: places at which a unit always ends. `whole`: spans that are one unit each.
    """
    edges = {*cuts, *(edge for span in whole for edge in span)}
    units, place = [], 0
    for start, stop in [*sorted(whole), (len(text), len(text))]:
        units += _units_between(text, place, start, edges)
        if stop > start:
            units.append(Unit(start, stop))
        place = stop
    return units


def _units_between(text: str, start: int, stop: int, edges: set[int]) -> list[Unit]:
    units: list[Unit] = []
    for i in range(start, stop):
        if text[i].isspace():
            continue
        if units and units[-1].stop == i and i not in edges and _continues(text, i, units[-1]):
            units[-1] = Unit(units[-1].start, i + 1)
        else:
            is_punctuation = unicodedata.category(text[i])[0] == "P" and text[i] not in _READ
            units.append(Unit(i, i + 1, is_punctuation))
    return units


def _continues(text: str, i: int, before: Unit) -> bool:
    """Whether a character belongs to the unit that ends before it."""
    if before.punctuation:
        return False
    if unicodedata.category(text[i])[0] == "M":
        return True
    if text[i] in _JOINING:
        return joins(text[i - 1]) and i + 1 < len(text) and joins(text[i + 1])
    last = text[i - 1]
    if not joins(text[i]) or joins(last) or last in _JOINING:
        return joins(text[i])
    return unicodedata.category(last)[0] == "M" and not is_unspaced(last)


def joins(character: str) -> bool:
    """Return whether a character is a letter or digit of a script with spaces between words."""
    return character.isalnum() and not is_unspaced(character)


def is_unspaced(character: str) -> bool:
    """Return whether a letter belongs to a script without spaces between words, such as Chinese."""
    # Most letters come before all of these scripts.
    return character > "\u0dff" and any(first <= ord(character) <= last for first, last in _WITHOUT_SPACES)
