"""Placeholders: parts of a text that are copied by rule, and the text that stands for them before a model.

    addresses     https://a.b/c?d=1   www.a.b/c   ann@a.b
    braces        {0}   {name}   {name:.2f}   {{x}}   ${x}   {% tag %}
    ICU           {count, plural, one {   } other {   }}
    conversions   %s   %d   %1$s   %5.2f   %(name)s   %@   %%
    names         $NAME$   %NAME%   __NAME__
    mark-up       <x id="1"/>   <b>   </b>   &amp;   &#160;
    paths         /etc/hosts   C:\\Windows\\x   src/a_b/c.py

A number before "%" makes it a percentage ("50 % der", "100% sure"), braces around words of a sentence are
braces ("{see below}"), and a dollar before a number is a price.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

from cotext.data.tokenizer import Tokenizer
from cotext.files.blocks import Copied, Piece, merged

# With brackets where they are closed within; what ends a sentence does not end an address.
_URL: Final = (
    r"""(?:(?:https?|ftp)://|mailto:|www\.(?=\w+\.))(?:[^\s<>"'`„“”«»{}|\\^()]|\([^\s()]*\))*"""
    r"""(?:[^\s<>"'`„“”«»{}|\\^().,;:!?\]…]|\([^\s()]*\))"""
)
_MAIL: Final = r"(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]+)+"
_BRACES: Final = (
    r"\{\{\s*[\w.$|-]+\s*\}\}|\{%[^{}%\n]{1,100}%\}|\$\{[\w.:-]+\}|\{\d+(?:[:!,][^{}\s]{0,20})?\}"
    r"|\{\w+,\s*(?:plural|select|selectordinal)\s*,\s*=?\w+\s*\{|\}\s*\}"
    r"|\}\s+(?:=\d+|zero|one|two|few|many|other|male|female)\s*\{"
    r"|\{(?!(?:sic)\})[A-Za-z_][\w.-]*(?:\[\w+\])?(?:[:!][^{}\s]{0,20})?\}"
)
# After a number or its space, % is a percentage, but for conversions that name their argument.
_CONVERSION: Final = (
    r"%\(\w+\)[#0 +-]*+\d*(?:\.\d+)?[sdifgeExXour]|%\d+\$[#0+-]*+\d*(?:\.\d+)?(?:l|ll|h|z)?[sdifgeExXouc@]"
    r"|(?<![\d%])(?<!\d[ \u00a0\u202f])%(?:[#0+-]*+\d*(?:\.\d+)?(?:ll|l|h|z)?[sdifgeExXouc](?![A-Za-z])|@|%)"
)
_NAMES: Final = r"\$[A-Z][A-Z0-9_]+\$|(?<![\w%])%[A-Z][A-Z0-9_]+%(?!\w)|\b__[A-Z][A-Z0-9_]+__\b"
_MARKUP: Final = (
    r"""</?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*/?>"""
    r"|&(?:[A-Za-z]\w{1,30}|\#\d{1,7}|\#x[0-9A-Fa-f]{1,6});"
)
_DRIVE: Final = r"(?<![\w/.:])[A-Za-z]:\\[\w.\\-]*\w"
# What begins as a path and is none is taken whole, as no part of it is one; "path" says which is. Else the
# search would begin anew at every hyphen of it.
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


def with_placeholders(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces with what is copied by rule as `Copied`, under keys above all others.

    `without_placeholders` makes text of them again.
    """
    return merged(_split(pieces))


def without_placeholders(pieces: Iterable[Piece], before: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces of a translation with those `Copied` as text that `with_placeholders` made of `before`."""
    own = {piece.key for piece in before if not isinstance(piece, str)}
    return merged(p.text if isinstance(p, Copied) and p.key not in own else p for p in pieces)


def placeholder_spans(text: str) -> list[tuple[int, int]]:
    """Where placeholders begin and end in a text: the leftmost first, of these that of the first rule."""
    spans: list[tuple[int, int]] = []
    following = [_next(rule, text, 0) for rule in _RULES]
    while (first := min(following, key=itemgetter(0)))[0] < len(text):
        spans.append(first)
        # What begins before the end of this one is none; the others are still the next.
        following = [
            span if span[0] >= first[1] else _next(rule, text, first[1])
            for rule, span in zip(_RULES, following, strict=True)
        ]
    return spans


def _next(rule: re.Pattern[str], text: str, start: int) -> tuple[int, int]:
    """The next place of a rule; behind the text where there is none."""
    found = (each for each in rule.finditer(text, start) if "path" not in rule.groupindex or each["path"])
    return next((each.span() for each in found), (len(text), len(text)))


def shown(pieces: Sequence[Piece], tokenizer: Tokenizer) -> dict[int, str]:
    """The text that stands for each `Copied` of a sentence in what a model reads and writes, by key.

    That is its own text where the tokenizer gives it back exactly; else a stand-in that does not occur in the
    sentence. Equal texts are shown alike.
    """
    text = "".join(p if isinstance(p, str) else p.text if isinstance(p, Copied) else " " for p in pieces)
    found: dict[str, str] = {}
    candidates = _candidates(tokenizer)  # each is tried once: what is taken stays so
    for piece in pieces:
        if isinstance(piece, Copied) and piece.text not in found:
            own = gives_back(tokenizer, piece.text)
            found[piece.text] = (
                piece.text if own else _stand_in(tokenizer, candidates, (text, *found.values()))
            )
    return {piece.key: found[piece.text] for piece in pieces if isinstance(piece, Copied)}


def gives_back(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a tokenizer gives a text back exactly, on both sides and within a sentence."""
    own = {tokenizer.unk, *tokenizer.unwritten}
    target = tokenizer.encode(text, side="target")
    return (
        bool(target)
        and own.isdisjoint(target)
        and tokenizer.unk not in tokenizer.encode(text, side="source")
        and tokenizer.decode(target) == text
    )


def _stand_in(tokenizer: Tokenizer, candidates: Iterator[str], taken: Collection[str]) -> str:
    """The next candidate that the tokenizer gives back and that is in none of those taken; else empty."""
    return next(
        (
            candidate
            for candidate in candidates
            if not any(candidate in text for text in taken) and gives_back(tokenizer, candidate)
        ),
        "",
    )


def _candidates(tokenizer: Tokenizer) -> Iterator[str]:
    """Texts that may stand for others, the best first."""
    made = (form.format(n) for form in ("{{{}}}", "#{}", "X{}", "XX{}") for n in range(1, 10))
    letters = (chr(code) * 2 for code in range(ord("X"), ord("A"), -1))
    rare = (tokenizer.decode([i]) for i in range(tokenizer.pieces - 1, 0, -1))
    return chain(made, letters, (text for text in rare if len(text) > 1))


def _split(pieces: Sequence[Piece]) -> Iterator[Piece]:
    key = max((piece.key for piece in pieces if not isinstance(piece, str)), default=-1)
    for piece in pieces:
        if not isinstance(piece, str):
            yield piece
            continue
        done = 0
        for start, stop in placeholder_spans(piece):
            key += 1
            yield piece[done:start]
            yield Copied(key, piece[start:stop])
            done = stop
        yield piece[done:]
