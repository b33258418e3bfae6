"""The sentences of a block: its pieces cut where sentences end, and put together again once translated."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Final

from cotext.data.splitting import join_sentences
from cotext.data.tokenizer import Tokenizer
from cotext.data.words import overlaps
from cotext.files.blocks import Block, Close, Copied, Open, Piece, Point, merged
from cotext.runtime.reading import substituted

Span = tuple[int, int]  # of characters: first, and one behind the last

# --- The pieces of a block by sentence, and a block of the pieces of its sentences.
#
# Inline elements that enclose whole sentences, or lie at the ends of one, stand between sentences, where
# translation does not touch them. An element that begins within one sentence and ends within a later one
# has its `Open` among the pieces of the one and its `Close` among those of the other.


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """The pieces of each sentence of a block, and what stands before, between and behind the sentences.

    `between` has one entry more than `sentences`.
    """

    sentences: list[tuple[Piece, ...]]
    between: list[tuple[Piece, ...]]


def length(piece: Piece) -> int:
    """How many characters of the text of its block a piece has."""
    if isinstance(piece, str):
        return len(piece)
    return len(piece.text) if isinstance(piece, Copied) else 0


def split_pieces(pieces: Sequence[Piece], spans: Sequence[Span]) -> SentencePieces:
    """Split the pieces of a block into sentences, whose spans count the characters of `Block.text`.

    Copied text is never cut: sentences of which one ends within it are one sentence.
    """
    spans = _uncut(pieces, spans)
    parts: list[list[Piece]] = [[] for _ in range(2 * len(spans) + 1)]  # between, sentence, between, ...
    edges = [edge for span in spans for edge in span]
    place, part = 0, 0
    for piece in pieces:
        if not isinstance(piece, str):
            while part < len(edges) and edges[part] <= place and length(piece):
                part += 1
            parts[part].append(piece)
            place += length(piece)
            continue
        stop = place + len(piece)
        while place < stop:
            while part < len(edges) and edges[part] <= place:
                part += 1
            end = min(stop, edges[part]) if part < len(edges) else stop
            parts[part].append(piece[place - stop + len(piece) : end - stop + len(piece)])
            place = end
    return _settled(parts)


def _uncut(pieces: Sequence[Piece], spans: Sequence[Span]) -> list[Span]:
    """The spans, joined where copied text lies across the end of one."""
    found: list[Span] = []
    copied: list[Span] = []
    place = 0
    for piece in pieces:
        if isinstance(piece, Copied):
            copied.append((place, place + len(piece.text)))
        place += length(piece)
    for start, stop in spans:
        if found and any(overlaps(copied, edge, edge) for edge in (found[-1][1], start)):
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _settled(parts: list[list[Piece]]) -> SentencePieces:
    """Move elements at the ends of sentences to where they belong.

    Characters have decided alone so far: elements at the start of a sentence stand before it, those at its
    end within it. An element that ends within a sentence at whose start it begins belongs into it; one at the
    end of which the sentence ends as well does not, unless it begins within the sentence.
    """
    for i in range(1, len(parts), 2):
        before, inside, after = parts[i - 1], parts[i], parts[i + 1]
        closed = {piece.key for piece in inside if isinstance(piece, Close)}
        first = _behind_last_text(inside)
        # What ends at the end of the sentence encloses its start as well, or began before it.
        closed -= {piece.key for piece in inside[first:] if isinstance(piece, Close)}
        taken = next((n for n in _trailing(before) if _opens(before[n], closed)), len(before))
        inside[:0] = before[taken:]
        del before[taken:]
        first = _behind_last_text(inside)
        opened = {piece.key for piece in inside if isinstance(piece, Open)}
        opened -= {piece.key for piece in inside[first:] if isinstance(piece, Open)}
        last = next((n for n in reversed(range(first, len(inside))) if _closes(inside[n], opened)), first - 1)
        after[:0] = inside[last + 1 :]
        del inside[last + 1 :]
    return SentencePieces([merged(part) for part in parts[1::2]], [merged(part) for part in parts[::2]])


def _behind_last_text(pieces: Sequence[Piece]) -> int:
    return next((n + 1 for n in reversed(range(len(pieces))) if length(pieces[n])), 0)


def _trailing(pieces: Sequence[Piece]) -> range:
    """The places of the elements behind the last text."""
    return range(_behind_last_text(pieces), len(pieces))


def _opens(piece: Piece, keys: set[int]) -> bool:
    return isinstance(piece, Open) and piece.key in keys


def _closes(piece: Piece, keys: set[int]) -> bool:
    return isinstance(piece, Close) and piece.key in keys


def join_pieces(parts: SentencePieces, sentences: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    """The pieces of a block, with these in the places of its sentences."""
    joined = list(parts.between[0])
    for sentence, after in zip(sentences, parts.between[1:], strict=True):
        joined += (*sentence, *after)
    return merged(joined)


_SPACE = re.compile(r"[ \t\n\r\f\v]+")

Spans = Callable[[str], list[tuple[int, int]]]  # the sentences of a text, as `cotext.data.splitting` has them


@dataclass(frozen=True, slots=True)
class CutBlock:
    """A block, and the pieces of its sentences, in which white space is single spaces."""

    block: Block
    parts: SentencePieces

    def joined(self, translated: Sequence[Sequence[Piece]], language: str) -> Block:
        """The block with these pieces in the places of its sentences.

        Where a sentence follows the one before it without white space, or with spaces alone, `language`
        decides whether a space stands between the two; line breaks and the like stay.
        """
        between = list(self.parts.between)
        for number in range(1, len(translated)):
            between[number] = _seam(translated[number - 1], between[number], translated[number], language)
        parts = SentencePieces(self.parts.sentences, between)
        return replace(self.block, pieces=join_pieces(parts, translated))


def cut(block: Block, spans: Spans | None) -> CutBlock:
    """Cut a block into the sentences that `spans` sees; without `spans`, or if it is not to be split, whole.

    What holds no letter that could be translated is no sentence.
    """
    parts = split_pieces(block.pieces, _spans(block, spans))
    sentences: list[tuple[Piece, ...]] = []
    between: list[list[Piece]] = [list(parts.between[0])]
    for sentence, after in zip(parts.sentences, parts.between[1:], strict=True):
        if _has_letter(sentence):
            sentences.append(merged(_with_single_spaces(sentence)))
            between.append(list(after))
        else:
            between[-1] += (*sentence, *after)
    return CutBlock(block, SentencePieces(sentences, [merged(pieces) for pieces in between]))


def _has_letter(pieces: Iterable[Piece]) -> bool:
    return any(isinstance(piece, str) and any(c.isalpha() for c in piece) for piece in pieces)


def _spans(block: Block, spans: Spans | None) -> list[tuple[int, int]]:
    """The spans of sentences; a line break, or copied white space, lies between two."""
    found = []
    start, text = 0, block.text
    for at, stop in [*_breaks(block.pieces), (len(text), 0)]:
        part = text[start:at]
        if block.split and spans is not None:
            found += [(start + low, start + high) for low, high in spans(part)]
        elif stripped := part.strip():
            low = start + part.index(stripped)
            found.append((low, low + len(stripped)))
        start = stop
    return found


def _breaks(pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
    at = 0
    for piece in pieces:
        if _breaks_line(piece):
            yield at, at + length(piece)
        at += length(piece)


def _breaks_line(piece: Piece) -> bool:
    return (isinstance(piece, Copied) and piece.text.isspace()) or (isinstance(piece, Point) and piece.breaks)


def _with_single_spaces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    spaced = False
    for piece in pieces:
        if isinstance(piece, str):
            text = substituted(_SPACE, " ", piece)
            text = text[1:] if spaced and text.startswith(" ") else text
            spaced = text.endswith(" ") or (spaced and not text)
            yield text
        else:
            spaced = spaced and not isinstance(piece, Copied)
            yield piece


def _seam(
    before: Sequence[Piece], between: Sequence[Piece], after: Sequence[Piece], language: str
) -> tuple[Piece, ...]:
    """What stands between two sentences, with a space where the language has one."""
    space = "".join(piece for piece in between if isinstance(piece, str))
    if space.strip(" ") or any(isinstance(piece, Copied) or _breaks_line(piece) for piece in between):
        return tuple(between)
    last, first = _text(before)[-1:], _text(after)[:1]
    wanted = len(join_sentences((last, first), language)) > len(last + first)
    if bool(space) == wanted:
        return tuple(between)
    if wanted:
        return (" ", *between)
    return tuple(piece for piece in between if not isinstance(piece, str))


def _text(pieces: Iterable[Piece]) -> str:
    return Block(tuple(pieces)).text


# --- Placeholders: parts of a text that are copied by rule, and the text that stands for them before a
# model.
#
#     addresses     https://a.b/c?d=1   www.a.b/c   ann@a.b
#     braces        {0}   {name}   {name:.2f}   {{x}}   ${x}   {% tag %}
#     ICU           {count, plural, one {   } other {   }}
#     conversions   %s   %d   %1$s   %5.2f   %(name)s   %@   %%
#     names         $NAME$   %NAME%   __NAME__
#     mark-up       <x id="1"/>   <b>   </b>   &amp;   &#160;
#     paths         /etc/hosts   C:\Windows\x   src/a_b/c.py
#
# A number before "%" makes it a percentage ("50 % der", "100% sure"), braces around words of a sentence are
# braces ("{see below}"), and a dollar before a number is a price.

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
