"""Tokens of HTML and XHTML with their offsets, for pages as they are found.

Nothing is mended: an element that is never closed, or closed twice, is a token like any other, so that the
slices between offsets joined are the page.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

# An attribute's value in quotation marks may hold ">". Where a mark is never closed, the tag ends at the next
# ">", and every part is possessive, so that no page takes more than one look at each character.
_TOKEN: Final = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)(?P<inner>(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+)(?:>|\Z)
    |<(?:[!?]|/(?![A-Za-z]))[^>]*+(?:>|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_SECTION: Final = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"""([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?""")

# Elements whose content is text alone, whatever it looks like.
RAW: Final = frozenset({"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"})
# In XHTML too, since pages are found whose scripts are written as in HTML; their content is never looked at.
_SCRIPTS: Final = frozenset({"script", "style"})
VOID: Final = frozenset(
    {
        *(
            "area",
            "base",
            "basefont",
            "bgsound",
            "br",
            "col",
            "embed",
            "frame",
            "hr",
            "img",
            "input",
            "keygen",
        ),
        *("link", "meta", "param", "source", "track", "wbr"),
    }
)
# Elements that another of their name, or the end of the one around them, may close.
OPTIONAL_END: Final = frozenset(
    {"p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "option", "optgroup", "rt", "rp"}
)
BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "base", "blockquote", "body", "button", "caption", "center", "col"),
        *(
            "colgroup",
            "datalist",
            "dd",
            "details",
            "dialog",
            "dir",
            "div",
            "dl",
            "dt",
            "fieldset",
            "figcaption",
        ),
        *(
            "figure",
            "footer",
            "form",
            "frame",
            "frameset",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "head",
            "header",
        ),
        *("hgroup", "hr", "html", "label", "legend", "li", "link", "main", "menu", "meta", "nav", "noframes"),
        *(
            "noscript",
            "ol",
            "optgroup",
            "option",
            "p",
            "pre",
            "search",
            "section",
            "select",
            "summary",
            "table",
        ),
        *("tbody", "td", "textarea", "tfoot", "th", "thead", "title", "tr", "ul", "xmp"),
    }
)


class Token(NamedTuple):
    """A stretch of a page.

    `kind`: "text", "start" and "end" of an element, "empty" for one that has no end, "raw" for the content of
    one that is text alone, "other" for comments, document types and instructions, and of the name "cdata" for
    sections of it. `name`: the element's, in small letters unless the page is XML.
    """

    kind: str
    name: str
    start: int
    stop: int


def tokens(page: str, xml: bool, html: bool = True) -> list[Token]:
    """The tokens of a page: as many stretches as cover it without a gap.

    With `xml`, as XHTML: names as they are spelled, `<a/>` is empty, and a title is as other elements.
    Without `html`, no element is known by its name to be empty, or text alone.
    """
    return list(_tokens(page, xml, html))


def _tokens(page: str, xml: bool, html: bool) -> Iterator[Token]:
    raw = (_SCRIPTS if xml else RAW) if html else frozenset()
    void = VOID if html else frozenset()
    at = 0
    while match := _TOKEN.search(page, at):
        start, stop = match.span()
        other = ""
        if xml and page.startswith("<![CDATA[", start):
            section = _SECTION.match(page, start)
            stop = section.end() if section else stop
            other = "cdata"
        if start > at:
            yield Token("text", "", at, start)
        at = stop
        name = match["name"]
        if name is None:
            yield Token("other", other, start, stop)
            continue
        name = name if xml else name.lower()
        if match["end"]:
            yield Token("end", name, start, stop)
        elif name in void or (xml and match["inner"].endswith("/")):
            yield Token("empty", name, start, stop)
        else:
            yield Token("start", name, start, stop)
            if name in raw:
                closing = _closing(name).search(page, at)
                at = closing.start() if closing else len(page)
                yield Token("raw", name, stop, at)
    if at < len(page):
        yield Token("text", "", at, len(page))


@cache
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)


def attributes(page: str, token: Token) -> Iterator[tuple[str, str, int, int]]:
    """Name in small letters and value of each attribute of a tag, and where the value is, its marks included.

    Attributes without a value are left out.
    """
    inner = token.start + 1 + len(token.name)
    for match in _ATTRIBUTE.finditer(page, inner, token.stop):
        value = match[2]
        if value is None:
            continue
        start, stop = match.span(2)
        quoted = value[0] in "\"'"
        if not quoted and page[stop - 1] == "/" and page[stop : stop + 1] == ">":
            stop -= 1
        yield match[1].lower(), page[start + quoted : stop - quoted], start, stop


def end_of(all_tokens: Sequence[Token], index: int) -> int:
    """The index behind the last token of the element that begins at `index`.

    An element that is never closed ends with the one around it, or, where its end may be left out, at the
    next of its name.
    """
    name = all_tokens[index].name
    if all_tokens[index].kind != "start":
        return index + 1
    inside: list[str] = []
    open_names: Counter[str] = Counter()
    for at in range(index + 1, len(all_tokens)):
        token = all_tokens[at]
        if token.kind == "start":
            if not inside and token.name == name and name in OPTIONAL_END:
                return at
            inside.append(token.name)
            open_names[token.name] += 1
        elif token.kind == "end":
            if open_names[token.name]:
                while (closed := inside.pop()) != token.name:
                    open_names[closed] -= 1
                open_names[token.name] -= 1
            elif token.name == name:
                return at + 1
            elif token.name in BLOCKS:
                return at
    return len(all_tokens)
