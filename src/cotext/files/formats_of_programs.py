"""Placeholders of messages by the grammar that the flag of a PO entry names, as `c-format`."""

import re
from collections.abc import Sequence
from typing import Final

from cotext.files.blocks import Copied, Piece

# A width does not begin with 0, which is a flag: else a run of zeros could be divided in many ways.
_PRINTF = r"%(?:\d+\$)?[-+ #0'I]*(?:\*(?:\d+\$)?|[1-9]\d*)?(?:\.(?:\*(?:\d+\$)?|\d+)?)?"
_BRACES = r"\{\{|\}\}|\{[^{}\s][^{}]*\}|\{\}"
# Numbered by their order where the language has a way to say so, `%2$s`.
_C = re.compile(
    _PRINTF + r"(?:(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcsCSpnm@]|<PRI[A-Za-z0-9]+>|%)|%<PRI\w+>"
)
_PYTHON = re.compile(r"%(?:\([^()]*\))?[-+ #0]*(?:\*|[1-9]\d*)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa%]")
_NUMBERED_BRACES = re.compile(r"\{\d+(?:,[^{}]*)?(?::[^{}]*)?\}|\{\{|\}\}")

PLACEHOLDERS: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(("c-format", "objc-format", "gcc-internal-format", "gfc-internal-format"), _C),
    **dict.fromkeys(
        ("php-format", "awk-format", "lua-format", "perl-format", "tcl-format", "pascal-format"), _C
    ),
    **dict.fromkeys(("object-pascal-format", "java-printf-format", "javascript-format", "ycp-format"), _C),
    "python-format": _PYTHON,
    "python-brace-format": re.compile(_BRACES),
    "perl-brace-format": re.compile(r"\{\w+\}"),
    "csharp-format": _NUMBERED_BRACES,
    "java-format": _NUMBERED_BRACES,
    "qt-format": re.compile(r"%L?\d{1,2}"),
    "qt-plural-format": re.compile(r"%L?n|%L?\d{1,2}"),
    "kde-format": re.compile(r"%\d{1,2}"),
    "kde-kuit-format": re.compile(r"%\d{1,2}"),
    "boost-format": re.compile(r"%(?:\d+%|\|[^|%]*\||" + _C.pattern[1:] + ")"),
    "sh-format": re.compile(r"\$\w+|\$\{\w+\}"),
    "ruby-format": re.compile(r"%(?:<\w+>|\{\w+\})|" + _C.pattern),
    "smalltalk-format": re.compile(r"%\d|%<[^>]{0,1000}>"),
    "librep-format": _C,
    "scheme-format": re.compile(r"~[-+\d,'@:]*[A-Za-z~%]"),
    "lisp-format": re.compile(r"~[-+\d,'@:]*[A-Za-z~%]"),
    "elisp-format": _C,
    "rust-format": re.compile(_BRACES),
    "go-format": re.compile(_PRINTF + r"(?:\[\d+\])?[A-Za-z%]"),
}
_NUMBERED_BY_DOLLAR: Final = frozenset(
    (
        *("c-format", "objc-format", "gcc-internal-format", "gfc-internal-format"),
        *("php-format", "java-printf-format"),
    )
)


# Grammars in which a placeholder without a name or a number takes the next argument.
_BY_ORDER: Final = _NUMBERED_BY_DOLLAR | frozenset(
    (
        *("awk-format", "lua-format", "perl-format", "tcl-format", "pascal-format", "object-pascal-format"),
        *("javascript-format", "ycp-format", "python-format", "librep-format", "elisp-format", "ruby-format"),
        *("boost-format", "go-format"),
    )
)
_NAMED_OR_NUMBERED: Final = re.compile(r"%(?:\d+\$|\(|\{|<(?!PRI))")


def with_arguments(
    own: Sequence[Sequence[Piece]], given: Sequence[Sequence[Piece]], flags: Sequence[str]
) -> tuple[list[list[Piece]], bool]:
    """The paragraphs of a translation with placeholders for the arguments of the source, and whether sure.

    Placeholders that take arguments by their order ("%s: %d") get numbers ("%2$d, %1$s") where the order has
    changed and their grammar has numbers; where it has none, the translation is not sure.
    """
    kept = [list(pieces) for pieces in given]
    flag = next((flag for flag in flags if flag in PLACEHOLDERS), "")
    if flag not in _BY_ORDER:
        return kept, True
    wanted, found = _by_order(own), _by_order(given)
    if wanted == found:
        return kept, True
    if flag not in _NUMBERED_BY_DOLLAR or any("*" in copied.text for _, copied in wanted):
        return kept, False
    numbers = {place: number for number, place in enumerate(wanted, 1)}
    for paragraph, pieces in enumerate(kept):
        for at, piece in enumerate(pieces):
            number = numbers.get((paragraph, piece)) if isinstance(piece, Copied) else None
            if isinstance(piece, Copied) and number is not None:
                pieces[at] = Copied(piece.key, f"%{number}${piece.text[1:]}")
    return kept, True


def _by_order(paragraphs: Sequence[Sequence[Piece]]) -> list[tuple[int, Copied]]:
    return [
        (paragraph, piece)
        for paragraph, pieces in enumerate(paragraphs)
        for piece in pieces
        if isinstance(piece, Copied)
        and piece.text.startswith("%")
        and piece.text not in ("%%", "%m")
        and not _NAMED_OR_NUMBERED.match(piece.text)
    ]
