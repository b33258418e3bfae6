"""Sentences of a block: a block is cut into sentences, and translated sentences are joined to a block."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise
from unicodedata import category

from cotext.data.splitting import join_sentences
from cotext.data.tokenizer import Tokenizer
from cotext.data.words import Span, is_unspaced, joins, overlaps, placeholder_spans, word_units
from cotext.files.blocks import Block, Close, Copied, Open, Piece, Point, merged, shown_text
from cotext.runtime import substituted

# --- Cutting and joining.
#
# Inline elements around whole sentences, or at the ends of a sentence, are placed between sentences, so that
# translation does not move them. If an element spans several sentences, its `Open` is in the first and its
# `Close` in the last.


Parts = list[tuple[Piece, ...]]


def length(piece: Piece) -> int:
    if isinstance(piece, str):
        return len(piece)
    return len(piece.text) if isinstance(piece, Copied) else 0


def split_pieces(pieces: Sequence[Piece], spans: Sequence[Span]) -> tuple[Parts, Parts]:
    """Split the pieces of a block at sentence spans, which count characters of `Block.text`.

    Return the pieces of each sentence, and the pieces before, between and after the sentences.
    Copied text is never cut: two sentences with their boundary inside it become one.
    """
    spans = _uncut(pieces, spans)
    parts: list[list[Piece]] = [[] for _ in range(2 * len(spans) + 1)]  # between, sentence, between, ...
    edges = [edge for span in spans for edge in span]
    position, part = 0, 0
    for piece in pieces:
        if not isinstance(piece, str):
            while part < len(edges) and edges[part] <= position and length(piece):
                part += 1
            parts[part].append(piece)
            position += length(piece)
            continue
        stop = position + len(piece)
        while position < stop:
            while part < len(edges) and edges[part] <= position:
                part += 1
            end = min(stop, edges[part]) if part < len(edges) else stop
            parts[part].append(piece[position - stop + len(piece) : end - stop + len(piece)])
            position = end
    return _settled(parts)


def _uncut(pieces: Sequence[Piece], spans: Sequence[Span]) -> list[Span]:
    """Return the spans; two spans are joined if the boundary between them is inside copied text."""
    joined: list[Span] = []
    copied: list[Span] = []
    position = 0
    for piece in pieces:
        if isinstance(piece, Copied):
            copied.append((position, position + len(piece.text)))
        position += length(piece)
    for start, stop in spans:
        if joined and any(overlaps(copied, edge, edge) for edge in (joined[-1][1], start)):
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _settled(parts: list[list[Piece]]) -> tuple[Parts, Parts]:
    """Move tags at the boundaries of sentences into or out of the sentence.

    In `parts`, tags at the start of a sentence are before it, and tags at its end are inside it. Move an
    opening tag inside if the element ends within the sentence. Move a closing tag at the end out of the
    sentence, unless the element begins inside the sentence.
    """
    for i in range(1, len(parts), 2):
        before, inside, after = parts[i - 1], parts[i], parts[i + 1]
        # Elements that end after the last text enclose the whole sentence, or began before it.
        closed = {piece.key for piece in inside[: _after_last_text(inside)] if isinstance(piece, Close)}
        trailing = range(_after_last_text(before), len(before))
        opens = (n for n in trailing if isinstance(tag := before[n], Open) and tag.key in closed)
        first = next(opens, len(before))
        inside[:0] = before[first:]
        del before[first:]
        end = _after_last_text(inside)
        opened = {piece.key for piece in inside[:end] if isinstance(piece, Open)}
        trailing = range(end, len(inside))[::-1]
        closes = (n for n in trailing if isinstance(tag := inside[n], Close) and tag.key in opened)
        last = next(closes, end - 1)
        after[:0] = inside[last + 1 :]
        del inside[last + 1 :]
    return [merged(part) for part in parts[1::2]], [merged(part) for part in parts[::2]]


def _after_last_text(pieces: Sequence[Piece]) -> int:
    return next((n + 1 for n in reversed(range(len(pieces))) if length(pieces[n])), 0)


def join_pieces(between: Parts, sentences: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    """Return the pieces of a block from its sentences and the pieces around them."""
    joined = list(between[0])
    for sentence, after in zip(sentences, between[1:], strict=True):
        joined += (*sentence, *after)
    return merged(joined)


# Non-breaking hyphens, which few models know.
HYPHENS = str.maketrans("\u2010\u2011", "--")
_SPACE = re.compile(r"[ \t\n\r\f\v]+")

Spans = Callable[[str], list[tuple[int, int]]]  # returns the spans of the sentences of a text


@dataclass(frozen=True, slots=True)
class CutBlock:
    """A block, the pieces of its sentences with single spaces instead of white space, and other pieces.

    `between` has one entry more than `sentences`.
    """

    block: Block
    sentences: Parts
    between: Parts

    def joined(self, translated: Sequence[Sequence[Piece]], language: str) -> Block:
        """Return the block with its sentences replaced.

        If two sentences are separated by nothing or only by spaces, `language` decides whether there is a
        space between them. Other separators, such as line breaks, are kept.
        """
        between = list(self.between)
        for number in range(1, len(translated)):
            between[number] = _seam(translated[number - 1], between[number], translated[number], language)
        return replace(self.block, pieces=_apart(join_pieces(between, translated), self.block.pieces))


def _apart(pieces: tuple[Piece, ...], source: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with spaces around the points that touch no word in the source.

    An example is an icon between two spaces; the model reads only one of these spaces.
    """
    text = shown_text(source)
    alone = {
        p
        for p, at in _points(source)
        if text[max(at - 1, 0) : at].isspace() and not text[at : at + 1].isalnum()
    }
    if not alone:
        return pieces
    text, first, last = shown_text(pieces), dict[int, Point](), dict[int, Point]()  # by place
    for point, at in _points(pieces):
        if point in alone:
            first.setdefault(at, point)
            last[at] = point
    before = {point for at, point in first.items() if joins(text[max(at - 1, 0) : at])}
    after = {point for at, point in last.items() if joins(text[at : at + 1])}
    return merged(chain.from_iterable((" " * (p in before), p, " " * (p in after)) for p in pieces))


def _points(pieces: Sequence[Piece]) -> list[tuple[Point, int]]:
    """Return the points with their positions in the text."""
    places = accumulate(map(length, pieces), initial=0)
    return [(p, at) for p, at in zip(pieces, places, strict=False) if isinstance(p, Point)]


def cut(block: Block, spans: Spans | None) -> CutBlock:
    """Cut a block into the sentences that `spans` finds; one if `spans` is None or `block.split` is False.

    Sentences without a letter that can be translated are left between the others.
    """
    found, (before, *rest) = split_pieces(block.pieces, _spans(block, spans))
    sentences: Parts = []
    between: list[list[Piece]] = [list(before)]
    for sentence, after in zip(found, rest, strict=True):
        if any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in sentence):
            sentences.append(merged(_with_single_spaces(sentence)))
            between.append(list(after))
        else:
            between[-1] += (*sentence, *after)
    return CutBlock(block, sentences, [merged(pieces) for pieces in between])


def _spans(block: Block, spans: Spans | None) -> list[tuple[int, int]]:
    """Return the spans of sentences, which never contain a line break or copied white space."""
    sentence_spans = []
    start, text = 0, _without_references(block)
    places = pairwise(accumulate(map(length, block.pieces), initial=0))
    breaks = [place for place, piece in zip(places, block.pieces, strict=True) if _breaks_line(piece)]
    for end, stop in [*breaks, (len(text), 0)]:
        part = text[start:end]
        if block.split and spans is not None:
            sentence_spans += [(start + low, start + high) for low, high in spans(part)]
        elif stripped := part.strip():
            low = start + part.index(stripped)
            sentence_spans.append((low, low + len(stripped)))
        start = stop
    return sentence_spans


# The number of a note, or a sign, directly after the end of a sentence.
_REFERENCE = re.compile(r"[\[(]?(?:\d{1,3}|[*\u2020\u2021]+)[\])]?")
_ENDED = re.compile("[.!?\u2026][\"'\u201c\u201d\u2019\xbb)]?$")


def _without_references(block: Block) -> str:
    """Return the text with spaces in place of elements that are references to notes.

    Their text would hide the end of the sentence before them.
    """
    text, at = block.text, 0
    kept = list(text)
    starts: dict[int, int] = {}
    for piece in block.pieces:
        at += length(piece)
        if isinstance(piece, Open):
            starts[piece.key] = at
        elif isinstance(piece, Close):
            start = starts.get(piece.key, at)
            ends = _ENDED.search(text[max(start - 2, 0) : start]) and not text[at : at + 1].strip()
            if ends and _REFERENCE.fullmatch(text, start, at):
                kept[start:at] = " " * (at - start)
    return "".join(kept)


def _breaks_line(piece: Piece) -> bool:
    return (isinstance(piece, Copied) and piece.text.isspace()) or (isinstance(piece, Point) and piece.breaks)


def _with_single_spaces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    spaced = False
    for piece in pieces:
        if isinstance(piece, str):
            text = substituted(_SPACE, " ", piece).translate(HYPHENS)
            text = text[1:] if spaced and text.startswith(" ") else text
            spaced = text.endswith(" ") or (spaced and not text)
            yield text
        else:
            spaced = spaced and not isinstance(piece, Copied)
            yield piece


def _seam(
    before: Sequence[Piece], between: Sequence[Piece], after: Sequence[Piece], language: str
) -> tuple[Piece, ...]:
    """Return the pieces between two sentences, with a space if the language has one."""
    space = "".join(piece for piece in between if isinstance(piece, str))
    if space.strip(" ") or any(isinstance(piece, Copied) or _breaks_line(piece) for piece in between):
        return tuple(between)
    last, first = shown_text(before)[-1:], shown_text(after)[:1]
    needs_space = len(join_sentences((last, first), language)) > len(last + first)
    if bool(space) == needs_space:
        return tuple(between)
    if needs_space:
        return (" ", *between)
    return tuple(piece for piece in between if not isinstance(piece, str))


MOST_RARE = 200  # number of the rarest subwords that are tried as substitutes


# --- Placeholders: parts of a text that are copied by rule, and the text that the model reads instead.


def with_placeholders(pieces: Sequence[Piece], tokenizer: Tokenizer, phrases: str = "") -> tuple[Piece, ...]:
    """Return the pieces with placeholders and unknown words as `Copied`, whose keys are above all others.

    Unknown words in `phrases` (source terms in lower case) stay text. `without_placeholders` is the inverse.
    """
    key = max((piece.key for piece in pieces if not isinstance(piece, str)), default=-1)
    parts: list[Piece] = []
    for piece in pieces:
        if not isinstance(piece, str):
            parts.append(piece)
            continue
        done = 0
        for start, stop in _copied_spans(piece, tokenizer, phrases):
            key += 1
            parts += [piece[done:start], Copied(key, piece[start:stop])]
            done = stop
        parts.append(piece[done:])
    return merged(parts)


def _copied_spans(text: str, tokenizer: Tokenizer, phrases: str) -> Iterator[Span]:
    """Yield the spans of placeholders, and of words between them that the tokenizer does not know."""
    done = 0
    for start, stop in (*placeholder_spans(text), (len(text), len(text))):
        for first, last in _unknown_spans(text[done:start], tokenizer):
            if text[done + first : done + last].casefold() not in phrases:
                yield done + first, done + last
        if start < stop:
            yield start, stop
        done = stop


def _unknown_spans(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Return the spans of words and symbols with unknown characters, such as emoji.

    Spans with nothing or a space between them are joined. Adjacent letters of a script without spaces are a
    word, which is unknown if all its letters are. Punctuation is not copied, because languages have different
    quotation marks.
    """
    if not is_unknown(text, tokenizer):
        return []
    words: list[Span] = []
    for unit in word_units(text):
        adjoins = bool(words) and words[-1][1] == unit.start
        same_word = adjoins and is_unspaced(text[unit.start - 1]) and is_unspaced(text[unit.start])
        words.append((words.pop()[0] if same_word else unit.start, unit.stop))
    spans: list[Span] = []
    for start, stop in words:
        word = text[start:stop].translate(HYPHENS)
        parts = list(word) if is_unspaced(word[0]) else [word]
        unknown = category(word[0])[0] != "P" and all(is_unknown(part, tokenizer) for part in parts)
        gap = start - spans[-1][1] if spans else 2
        if unknown or (not gap and not tokenizer.encode(word)):
            adjoins = not gap or (gap == 1 and text[start - 1] == " ")
            spans.append((spans.pop()[0] if adjoins else start, stop))
    return spans


def without_placeholders(pieces: Iterable[Piece], before: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return translated pieces with the placeholders that `with_placeholders` added to `before` as text."""
    keys_before = {piece.key for piece in before if not isinstance(piece, str)}
    return merged(p.text if isinstance(p, Copied) and p.key not in keys_before else p for p in pieces)


def shown(pieces: Sequence[Piece], tokenizer: Tokenizer) -> dict[int, str]:
    """Return, by key, the text that a model reads and writes for each `Copied` of a sentence.

    This is the copied text if the tokenizer reproduces it exactly. Otherwise, it is a substitute that does
    not occur in the sentence (empty if there is none); equal texts share a substitute. Unknown words (even if
    they can be written as bytes) and bracketed code with spaces always have a substitute.
    """
    text = "".join(p if isinstance(p, str) else p.text if isinstance(p, Copied) else " " for p in pieces)
    substitutes: dict[str, str] = {}
    candidates = _candidates(tokenizer)  # each is tried once
    for piece in pieces:
        if not isinstance(piece, Copied) or piece.text in substitutes:
            continue
        is_code = " " in piece.text and not {*"{}<"}.isdisjoint(piece.text)
        if not is_code and not is_unknown(piece.text, tokenizer) and gives_back(tokenizer, piece.text):
            substitutes[piece.text] = piece.text
            continue
        new = (c for c in candidates if c not in text and not any(c in used for used in substitutes.values()))
        substitutes[piece.text] = next((c for c in new if gives_back(tokenizer, c)), "")
    return {piece.key: substitutes[piece.text] for piece in pieces if isinstance(piece, Copied)}


def is_unknown(text: str, tokenizer: Tokenizer) -> bool:
    """Return whether a text has characters, other than ASCII, that the tokenizer does not know."""
    return not text.isascii() and tokenizer.lacks(text)


def gives_back(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether a tokenizer reproduces a text exactly, on both sides and inside a sentence."""
    special = {tokenizer.unk, *tokenizer.unwritten}
    target = tokenizer.encode(text, side="target")
    return (
        bool(target)
        and special.isdisjoint(target)
        and tokenizer.unk not in tokenizer.encode(text, side="source")
        and tokenizer.decode(target) == text
    )


def _candidates(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield possible substitutes, the best first."""
    numbered = (form.format(n) for form in ("{{{}}}", "[{}]", "#{}", "X{}", "XX{}") for n in range(1, 10))
    letters = (chr(code) * 2 for code in range(ord("X"), ord("A"), -1))
    rare = (tokenizer.decode([i]) for i in islice(range(tokenizer.pieces - 1, 0, -1), MOST_RARE))
    return chain(numbered, letters, (text for text in rare if len(text) > 1))
