r"""Placeholders: parts of a text that are copied to the translation, found by rules.

    addresses     https://a.b/c?d=1   www.a.b/c   ann@a.b
    braces        {0}   {name}   {name:.2f}   {{x}}   ${x}   {% tag %}
    ICU           {count, plural, one {   } other {   }}
    conversions   %s   %d   %1$s   %5.2f   %(name)s   %@   %%
    names         $NAME$   %NAME%   __NAME__
    mark-up       <x id="1"/>   <b>   </b>   &amp;   &#160;
    paths         /etc/hosts   C:\Windows\x   src/a_b/c.py

Not placeholders: a percentage ("50 % der", "100% sure"), words of a sentence in braces ("{see below}"), and
a price ("$5").
"""

import re
from operator import itemgetter
from typing import Final

# An address may contain pairs of brackets, and does not end in punctuation that ends a sentence.
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
# After a number, % is a percentage, except in conversions that name their argument.
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
