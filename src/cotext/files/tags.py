"""Projection: the inline elements of a sentence, put around the words of its translation that they belong to.

    element        the span of target words with the most weight on its own words, less weight on others.
                   Siblings never overlap, a child lies within its parent. What encloses all words of its
                   parent goes on to do so
    point          behind the word that stands for the one before it, or before that of the one behind it
    copied text    where it is found, each once; if the translation lacks it, inserted like a point

Punctuation at the edges of an element is enclosed in the translation where it is in the source. White space
stays outside of elements.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Final

import torch
from torch import Tensor

from cotext.data.words import overlaps
from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged
from cotext.translation.terms.word_alignment import (
    SentenceAlignment,
    Span,
    agreement,
    proportional,
    sharpened,
    word_units,
)

# --- The inline elements of a sentence as a tree, in the source and where they stand in the target.


@dataclass(slots=True)
class Node:
    """An element of a sentence, a point in it, or a copied text that is to be inserted; None: the sentence.

    Of the source, `start` and `stop` count characters. `opened`: it begins in this sentence, `closed`: it
    ends in it. `units` and `place` are of the target: what it encloses; `spaces` are written around it.
    """

    piece: Open | Point | Copied | None
    start: int = 0
    stop: int = 0
    opened: bool = True
    closed: bool = True
    children: list["Node"] = field(default_factory=list)
    units: range = range(0)
    place: Span = (0, 0)
    spaces: tuple[str, str] = ("", "")

    @property
    def is_element(self) -> bool:
        """Whether it encloses text."""
        return isinstance(self.piece, Open)

    def all(self) -> Iterator["Node"]:
        """The nodes of the tree below it and itself, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


def tree_of(pieces: Sequence[Piece], shown: Mapping[int, str], inserted: Collection[int]) -> Node:
    """The tree of the pieces of a sentence, with the copied texts that are to be inserted, by key."""
    root, place = Node(None), 0
    above = [root]
    for piece in pieces:
        if isinstance(piece, Open):
            node = Node(piece, place, closed=False)
            above[-1].children.append(node)
            above.append(node)
        elif isinstance(piece, Close) and len(above) > 1:
            node = above.pop()
            node.stop, node.closed = place, True
        elif isinstance(piece, Close):
            # It began in an earlier sentence, and so encloses all so far.
            root.children = [Node(Open(piece.key), 0, place, opened=False, children=root.children)]
        elif isinstance(piece, str):
            place += len(piece)
        else:
            start = place
            place += len(shown.get(piece.key, piece.text)) if isinstance(piece, Copied) else 0
            if isinstance(piece, Point) or piece.key in inserted:
                above[-1].children.append(Node(piece, start, place))
    for node in above:
        node.stop = place
    return root


def written(root: Node, text: str, copied: Mapping[Span, Copied]) -> Iterator[Piece]:
    """The pieces of a target text with a tree, whose nodes have their places.

    `copied` are the copied texts that stand in it; those of the tree are inserted with their white space.
    """
    spans = deque(sorted(copied))
    place = 0

    def upto(stop: int) -> Iterator[Piece]:
        nonlocal place
        while spans and spans[0][1] <= stop:
            span = spans.popleft()
            yield text[place : span[0]]
            yield copied[span]
            place = span[1]
        yield text[place:stop]
        place = stop

    waiting: list[Node | Close | int] = [len(text), root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, int):
            yield from upto(node)
        elif isinstance(node, Close):
            yield node
        else:
            yield from upto(node.place[0])
            if node.piece is not None and node.opened:
                yield from (node.spaces[0], node.piece, node.spaces[1])
            if isinstance(node.piece, Open) and node.closed:
                waiting.append(Close(node.piece.key))
            waiting.append(node.place[1])
            ordered = sorted(enumerate(node.children), key=lambda each: (each[1].place, each[0]))
            waiting += [child for _, child in reversed(ordered)]


# --- Copied texts in a sentence and in its translation: where they stand, and which of them is which.


@dataclass(frozen=True, slots=True)
class CopiedText:
    """A copied text, what stands for it in the texts of the model, and where that is in the source."""

    piece: Copied
    shown: str
    source: Span


def shown_text(pieces: Sequence[Piece], shown: Mapping[int, str]) -> str:
    """The text of pieces as the model reads it: with what stands for copied text by key, or else itself."""
    return "".join(
        piece if isinstance(piece, str) else shown.get(piece.key, piece.text)
        for piece in pieces
        if isinstance(piece, str | Copied)
    )


def copied_texts(pieces: Sequence[Piece], shown: Mapping[int, str]) -> list[CopiedText]:
    """The copied texts of a sentence, in order."""
    found, place = [], 0
    for piece in pieces:
        if isinstance(piece, str):
            place += len(piece)
        elif isinstance(piece, Copied):
            text = shown.get(piece.key, piece.text)
            found.append(CopiedText(piece, text, (place, place + len(text))))
            place += len(text)
    return found


def copied_spans(
    texts: Sequence[CopiedText], source: str, target: str, alignment: SentenceAlignment
) -> dict[int, Span]:
    """Where copied texts stand in a translation, by key; those that it lacks are left out.

    Longer ones are looked for first, apart from letters and digits beside them if that is possible. Where one
    occurs more or less often than in the source, the pairs that the alignment prefers are chosen; in order
    where there are too many to be weighed.
    """
    found: dict[int, Span] = {}
    taken: list[Span] = []  # in order
    by_text: dict[str, list[CopiedText]] = {}
    for each in texts:
        by_text.setdefault(each.shown, []).append(each)
    weighed = 0
    for text, starts in _starts(filter(None, by_text), target):
        alike, everywhere = by_text[text], list(_free(text, starts, taken))
        places = [span for span in everywhere if _apart(target, span)]
        if len(places) < len(alike):
            places = everywhere
        if len(places) != len(alike):
            weighed += len(places) * len(alike) + len(source) + len(target)
            if weighed <= MOST_WEIGHED:
                alike, places = _paired(alike, places, alignment, (source, target))
        for each, place in zip(alike, places, strict=False):
            found[each.piece.key] = place
            insort(taken, place)
    return found


def _starts(texts: Iterable[str], target: str) -> Iterator[tuple[str, list[int]]]:
    """Where texts begin in a target, the longest first.

    Those of one length are looked for together, so that many of them take no longer than one.
    """
    for length, alike in groupby(sorted(texts, key=len, reverse=True), key=len):
        found: dict[str, list[int]] = {text: [] for text in alike}
        for start in range(len(target) - length + 1):
            if (places := found.get(target[start : start + length])) is not None:
                places.append(start)
        yield from found.items()


def _free(text: str, starts: Iterable[int], taken: Sequence[Span]) -> Iterator[Span]:
    """The occurrences of a text that begin there, without those that overlap others."""
    behind = 0
    for start in starts:
        stop = start + len(text)
        if start >= behind and not overlaps(taken, start, stop):
            yield start, stop
            behind = stop


def _apart(target: str, span: Span) -> bool:
    """Whether no letter or digit stands beside one at an end of the span."""
    return not any(
        0 < edge < len(target) and target[edge - 1].isalnum() and target[edge].isalnum() for edge in span
    )


def _paired(
    alike: Sequence[CopiedText],
    places: Sequence[Span],
    alignment: SentenceAlignment,
    texts: tuple[str, str],
) -> tuple[list[CopiedText], list[Span]]:
    """As many pairs as there are, those that agree best first."""
    weights = agreement(alignment, texts, [each.source for each in alike], places)
    order = weights.T.flatten().argsort(descending=True, stable=True)  # of equals, the first in the source
    pairs: dict[int, int] = {}
    paired: set[int] = set()
    for number in order.tolist():
        i, j = divmod(number, len(places))
        if i not in pairs and j not in paired:
            pairs[i] = j
            paired.add(j)
    return [alike[i] for i in pairs], [places[j] for j in pairs.values()]


__all__ = ["SentenceAlignment", "project", "proportional", "shown_text"]

# A unit is worth enclosing if more than this share of its weight belongs to the element: then it adds more
# weight inside of the element than it brings in from outside.
LEAST_SHARE = 0.5
COPIED_WEIGHT = 1000.0  # of a copied text with itself: no span leaves it out
# Pairs of units, and of elements and units, that are weighed; a sentence of more is one of hundreds of words.
MOST_WEIGHED: Final = 1 << 19


def project(
    pieces: Sequence[Piece],
    target: str,
    alignment: SentenceAlignment | None,
    shown: Mapping[int, str] | None = None,
) -> tuple[Piece, ...]:
    """The pieces of a translated sentence: its text with every element of the source sentence once.

    Args:
        pieces: Of the source sentence; an `Open` or a `Close` may be alone, as `split_pieces` leaves it.
        target: The translation, with `shown` in the places of copied text.
        alignment: Of the texts that the model read (`shown_text(pieces, shown)`) and wrote; None: in
            proportion to length.
        shown: What stands for copied text, by key; itself where not given.

    Elements of a sentence of hundreds of words are placed in proportion, in linear time.
    """
    if all(isinstance(piece, str) for piece in pieces):
        return merged([target])
    shown = shown or {}
    source = shown_text(pieces, shown)
    if source == target:
        return merged(pieces)
    alignment = alignment or proportional(source, target)
    texts = copied_texts(pieces, shown)
    found = copied_spans(texts, source, target, alignment)
    root = tree_of(pieces, shown, {each.piece.key for each in texts} - found.keys())
    nodes = list(root.all())
    edges = {edge for node in nodes for edge in (node.start, node.stop)}
    sides = _Side(source, edges, [each.source for each in texts]), _Side(target, (), found.values())
    of_source, of_target = (len(side.units) for side in sides)
    if of_source * of_target + len(nodes) * (of_source + of_target) > MOST_WEIGHED:
        _place_in_proportion(root, *sides)
    else:
        pairs = [(each.source, found[each.piece.key]) for each in texts if each.piece.key in found]
        _Projection(*sides, _unit_weights(alignment, *sides, pairs), root).place()
    return merged(written(root, target, {found[e.piece.key]: e.piece for e in texts if e.piece.key in found}))


class _Side:
    """The units of the source or the target; `whole` are spans that are a unit each."""

    def __init__(self, text: str, cuts: Iterable[int], whole: Iterable[Span]) -> None:
        self.text = text
        self.units = word_units(text, cuts, list(whole))
        self.is_word = [not unit.punctuation for unit in self.units]
        self.number = {(unit.start, unit.stop): i for i, unit in enumerate(self.units)}

    def within(self, start: int, stop: int) -> range:
        """The units between two places at which units end."""
        first = bisect_left(self.units, start, key=lambda unit: unit.start)
        return range(first, max(bisect_right(self.units, stop, key=lambda unit: unit.stop), first))


def _unit_weights(
    alignment: SentenceAlignment, source: _Side, target: _Side, copied: Iterable[tuple[Span, Span]]
) -> Tensor:
    """The alignment of units: [target, source]; copied texts are aligned with themselves alone."""
    of_S, of_T = ([(unit.start, unit.stop) for unit in side.units] for side in (source, target))
    weights = sharpened(agreement(alignment, (source.text, target.text), of_S, of_T))
    for source_span, target_span in copied:
        v, u = source.number[source_span], target.number[target_span]
        weights[:, v] = 0.0
        weights[u] = 0.0
        weights[u, v] = COPIED_WEIGHT
    return weights


def _place_in_proportion(root: Node, source: _Side, target: _Side) -> None:
    """Give every node its place by how many units of the source are before it and in it."""
    root.place, of_source = (0, len(target.text)), max(len(source.units), 1)
    for parent in root.all():
        least, most = parent.place
        for node in parent.children:
            inside = source.within(node.start, node.stop)
            start, stop = (n * len(target.units) // of_source for n in (inside.start, inside.stop))
            first = last = target.units[start - 1].stop if start else 0
            if node.is_element and start < stop:
                first, last = target.units[start].start, target.units[stop - 1].stop
            first, last = (min(max(place, least), most) for place in (first, last))
            node.place = first if node.opened else least, last if node.closed else most
            if isinstance(node.piece, Copied):
                node.spaces = _spaces(node, source.text, target.text, first)


def _spaces(node: Node, source: str, target: str, place: int) -> tuple[str, str]:
    """White space around an inserted text, as in the source where the target has none."""
    lacks = node.start > 0 and source[node.start - 1].isspace() and place > 0
    before = " " if lacks and not target[place - 1].isspace() else ""
    lacks = node.stop < len(source) and source[node.stop].isspace() and place < len(target)
    after = " " if lacks and not target[place].isspace() else ""
    return before, after


class _Projection:
    """Finds the places of the nodes of a tree; `weights` [U, V] of target and source units."""

    def __init__(self, source: _Side, target: _Side, weights: Tensor, root: Node) -> None:
        self.source, self.target, self.weights, self.root = source, target, weights, root
        self.of_words = _sums(weights * torch.tensor(source.is_word, dtype=weights.dtype))
        self.of_all = _sums(weights)

    def place(self) -> None:
        """Give every node its place, from the sentence down."""
        self.root.units, self.root.place = range(len(self.target.units)), (0, len(self.target.text))
        for parent in self.root.all():
            elements = [child for child in parent.children if child.is_element and self._inside(child)]
            self._place_elements(parent, elements)
            enclosing = [child for child in elements if child.units]
            for child in parent.children:
                if not child.units:
                    place = self._point(child, parent, enclosing)
                    child.place = (place, place)

    def _inside(self, node: Node) -> range:
        return self.source.within(node.start, node.stop)

    # --- elements that enclose words

    def _place_elements(self, parent: Node, elements: Sequence[Node]) -> None:
        """Give elements their spans: what is bound to an end of the sentence first, then what is surest."""
        worth = {id(node): self._worth(node, parent) for node in elements}
        judged = [(node, _best(worth[id(node)], [parent.units], node)[0]) for node in elements]
        free = [parent.units]
        for node, _ in sorted(judged, key=lambda each: (each[0].opened and each[0].closed, -each[1])):
            if self._inside(node) == self._inside(parent) and parent.units in free:
                node.units, node.place, free = parent.units, parent.place, []
                continue
            _, found = _best(worth[id(node)], free, node)
            if found:
                node.units = self._with_punctuation(node, found, free)
                node.place = self._extent(node, parent)
                free = [part for interval in free for part in _without(interval, node.units)]

    def _worth(self, node: Node, parent: Node) -> list[float]:
        """What each target unit adds to the span of an element; punctuation, nothing to one with words."""
        inside, around = self._inside(node), self._inside(parent)
        words = {v for v in around if self.source.is_word[v]}
        if words.isdisjoint(inside):
            within = self.of_all[:, inside.stop] - self.of_all[:, inside.start]
            return list((within - LEAST_SHARE * self.of_all[:, -1]).tolist())
        within = self.of_words[:, inside.stop] - self.of_words[:, inside.start]
        worth = within - LEAST_SHARE * self.of_words[:, -1]
        if words <= set(inside):
            worth = torch.ones_like(worth)
        return list((worth * torch.tensor(self.target.is_word, dtype=worth.dtype)).tolist())

    def _with_punctuation(self, node: Node, found: range, free: Sequence[range]) -> range:
        """The span with punctuation at its ends, as far as the source has it there and it is free."""
        inside, is_word = self._inside(node), self.source.is_word
        before = next((n for n, v in enumerate(inside) if is_word[v]), 0)
        after = next((n for n, v in enumerate(reversed(inside)) if is_word[v]), 0)
        interval = next(each for each in free if found.start in each)
        first, stop = found.start, found.stop
        while before and first > interval.start and not self.target.is_word[first - 1]:
            first, before = first - 1, before - 1
        while after and stop < interval.stop and not self.target.is_word[stop]:
            stop, after = stop + 1, after - 1
        return range(first, stop)

    def _extent(self, node: Node, parent: Node) -> Span:
        """The characters of the units of an element, and what lies beyond them where it is not whole."""
        first, last = self.target.units[node.units[0]], self.target.units[node.units[-1]]
        start = first.start if node.opened else parent.place[0]
        return start, last.stop if node.closed else parent.place[1]

    # --- what stands between words

    def _point(self, node: Node, parent: Node, beside: Sequence[Node]) -> int:
        """The place of what encloses no words, within its parent and outside of those beside it."""
        place, behind = self._wanted(node, parent)
        for other in beside:
            start = other.place[0] if other.opened else -1
            stop = other.place[1] if other.closed else len(self.target.text) + 1
            if start < place < stop:
                place = stop if not other.opened or (behind and other.closed) else start
        if isinstance(node.piece, Copied):
            node.spaces = _spaces(node, self.source.text, self.target.text, place)
        return place

    def _wanted(self, node: Node, parent: Node) -> tuple[int, bool]:
        """The place in the target that agrees with the source; whether it belongs to what is before it."""
        around = self._inside(parent)
        left = range(around.start, self.source.within(0, node.start).stop)
        right = range(max(self.source.within(node.stop, len(self.source.text)).start, left.stop), around.stop)
        if not parent.units or not left or not node.opened:
            return parent.place[0], False
        if not right or not node.closed:
            return parent.place[1], True
        behind = self.source.units[left[-1]].stop == node.start
        before = self.source.units[right[0]].start == node.stop and self.source.is_word[right[0]]
        words = [v for v in left if self.source.is_word[v]]
        if behind and not before and words:
            u = self._partner(words[-1], parent) + 1
            marks = left[-1] > words[-1]
            while marks and u < parent.units.stop and not self.target.is_word[u]:
                u += 1
            return self.target.units[u - 1].stop, True
        if before and not behind:
            return self.target.units[self._partner(right[0], parent)].start, False
        return self._between(left, right, parent), True

    def _partner(self, v: int, parent: Node) -> int:
        """The target unit that stands for a source unit."""
        column = self.weights[parent.units.start : parent.units.stop, v]
        return parent.units.start + int(column.argmax())

    def _between(self, left: range, right: range, parent: Node) -> int:
        """The place that has most of what stands for `left` before it, and of `right` behind it."""
        rows = slice(parent.units.start, parent.units.stop)
        gained = [
            (self.of_all[rows, part.stop] - self.of_all[rows, part.start]).cumsum(dim=0)
            for part in (left, right)
        ]
        best = int((gained[0] - gained[1]).argmax())
        if float(gained[0][best] - gained[1][best]) <= 0:
            return parent.place[0]
        return self.target.units[parent.units.start + best].stop


def _sums(weights: Tensor) -> Tensor:
    """Sums over the source units before each: [U, V + 1]."""
    return torch.cat([weights.new_zeros(len(weights), 1), weights.cumsum(dim=1)], dim=1)


def _best(worth: Sequence[float], free: Iterable[range], node: Node) -> tuple[float, range]:
    """The span of units that is worth most, none where no unit is free.

    An element that began earlier starts with the first unit, one that ends later stops with the last.
    """
    best = (-inf, range(0))
    for interval in free:
        if (node.opened or not interval.start) and (node.closed or interval.stop == len(worth)):
            best = max(best, _best_within(worth, interval, node), key=lambda each: each[0])
    return best


def _best_within(worth: Sequence[float], interval: range, node: Node) -> tuple[float, range]:
    best, total, first = (-inf, range(0)), 0.0, interval.start
    rest = sum(worth[i] for i in interval) if not node.closed else 0.0
    for i in interval:
        if not node.closed:  # all from here on
            if rest > best[0]:
                best = (rest, range(i, interval.stop))
            rest -= worth[i]
            continue
        if total <= 0 and node.opened:
            total, first = 0.0, i
        total += worth[i]
        if total > best[0]:
            best = (total, range(first, i + 1))
    return best


def _without(interval: range, taken: range) -> list[range]:
    """What is left of an interval, which holds the span taken or does not meet it."""
    if taken.start not in interval:
        return [interval]
    parts = range(interval.start, taken.start), range(taken.stop, interval.stop)
    return [part for part in parts if part]
