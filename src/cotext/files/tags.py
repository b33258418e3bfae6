"""Projection of inline elements from a source sentence to its translation, by word alignment.

    element        The span of target words with most alignment weight on the words of the element, minus
                   their weight on other words. If no word qualifies, the word with most weight. Siblings do
                   not overlap, and a child is inside its parent. An element around all words of its parent
                   encloses all of the parent's words in the target, too. An element around part of a word
                   (such as the 2 of CO2) encloses the same part if the translation has this word or its final
                   digits; otherwise, it encloses the complete word.
    point          Beside the target word that is aligned with the only source word that the point touches.
                   If it touches two words or none, the weights of all words before and after it decide.
    copied text    Stays at one of its occurrences in the translation. If it is missing there, it is inserted
                   like a point.

Punctuation at the edges of an element stays inside the element. White space stays outside.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final

import torch
from torch import Tensor

from cotext.data.words import Span, is_unspaced, overlaps, word_units
from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged, replaced, shown_text, substitutes
from cotext.translation.terms.word_alignment import SentenceAlignment, agreement, proportional, sharpened

# --- The inline elements of a sentence as a tree, with their positions in source and target.


@dataclass(slots=True)
class Node:
    """An element, a point, or a copied text to insert; `piece` None: the root, which is the sentence.

    `start` and `stop` are characters of the source. `opened`: the element begins in this sentence; `closed`:
    it ends here. `units` and `place`: units (words) and characters of the target that it encloses. `spaces`:
    white space written before and after it.
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
        """Yield this node and all nodes below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


def tree_of(pieces: Sequence[Piece], shown: Mapping[int, str], inserted: Collection[int]) -> Node:
    """Return the tree of a sentence; `inserted`: keys of copied texts that the translation lacks."""
    root, position = Node(None), 0
    above = [root]
    for piece in pieces:
        if isinstance(piece, Open):
            node = Node(piece, position, closed=False)
            above[-1].children.append(node)
            above.append(node)
        elif isinstance(piece, Close) and len(above) > 1:
            node = above.pop()
            node.stop, node.closed = position, True
        elif isinstance(piece, Close):
            # The element began in an earlier sentence, and encloses everything so far.
            root.children = [Node(Open(piece.key), 0, position, opened=False, children=root.children)]
        elif isinstance(piece, str):
            position += len(piece)
        else:
            start = position
            position += len(shown.get(piece.key, piece.text)) if isinstance(piece, Copied) else 0
            if isinstance(piece, Point) or piece.key in inserted:
                above[-1].children.append(Node(piece, start, position))
    for node in above:
        node.stop = position
    return root


def written(root: Node, text: str, copied: Mapping[Span, Copied]) -> Iterator[Piece]:
    """Yield the pieces of a target text with a tree of placed nodes.

    `copied`: copied texts by their spans in the target. Those that are nodes are inserted, with white space.
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
            ordered = sorted(enumerate(node.children), key=lambda child: (child[1].place, child[0]))
            waiting += [child for _, child in reversed(ordered)]


# --- Copied texts: their occurrences in a sentence and its translation, and which of them correspond.


@dataclass(frozen=True, slots=True)
class CopiedText:
    """A copied text, the text `shown` to the model instead, and its span in the source."""

    piece: Copied
    shown: str
    source: Span


def copied_texts(pieces: Sequence[Piece], shown: Mapping[int, str]) -> list[CopiedText]:
    """Return the copied texts of a sentence, in order."""
    texts, position = [], 0
    for piece in pieces:
        if isinstance(piece, str):
            position += len(piece)
        elif isinstance(piece, Copied):
            text = shown.get(piece.key, piece.text)
            texts.append(CopiedText(piece, text, (position, position + len(text))))
            position += len(text)
    return texts


def copied_spans(
    texts: Sequence[CopiedText], source: str, target: str, alignment: SentenceAlignment
) -> dict[int, Span]:
    """Return the spans of copied texts in a translation, by key; missing ones are omitted.

    Longer texts are searched first, and occurrences without adjacent letters or digits are preferred. If a
    text occurs more or less often than in the source, the alignment selects the pairs. If there
    are too many pairs to weigh, texts and occurrences are paired in order.
    """
    spans: dict[int, Span] = {}
    taken: list[Span] = []  # sorted
    by_text: dict[str, list[CopiedText]] = {}
    for copied in texts:
        by_text.setdefault(copied.shown, []).append(copied)
    weighed = 0
    for text in sorted(filter(None, by_text), key=len, reverse=True):
        alike, everywhere = by_text[text], list(_free(text, target, taken))
        places = [span for span in everywhere if _apart(target, span)]
        if len(places) < len(alike):
            places = everywhere
        if len(places) != len(alike):
            weighed += len(places) * len(alike) + len(source) + len(target)
            if weighed <= MOST_WEIGHED:
                alike, places = _paired(alike, places, alignment, (source, target))
        for copied, place in zip(alike, places, strict=False):
            spans[copied.piece.key] = place
            insort(taken, place)
    return spans


def _free(text: str, target: str, taken: Sequence[Span]) -> Iterator[Span]:
    """Yield the occurrences of a text in a target that do not overlap each other or `taken`."""
    start = target.find(text)
    while start >= 0:
        stop = start + len(text)
        if overlaps(taken, start, stop):
            stop = start + 1
        else:
            yield start, stop
        start = target.find(text, stop)


def _apart(target: str, span: Span) -> bool:
    """Return whether the span is not part of a longer word."""
    return not any(0 < at < len(target) and target[at - 1].isalnum() and target[at].isalnum() for at in span)


def _paired(
    alike: Sequence[CopiedText],
    places: Sequence[Span],
    alignment: SentenceAlignment,
    texts: tuple[str, str],
) -> tuple[list[CopiedText], list[Span]]:
    """Pair equal copied texts with places; pairs with the highest alignment weight come first."""
    weights = agreement(alignment, texts, [copied.source for copied in alike], places)
    order = weights.T.flatten().argsort(descending=True, stable=True)
    pairs: dict[int, int] = {}
    paired: set[int] = set()
    for number in order.tolist():
        i, j = divmod(number, len(places))
        if i not in pairs and j not in paired:
            pairs[i] = j
            paired.add(j)
    return [alike[i] for i in pairs], [places[j] for j in pairs.values()]


# A unit is enclosed if more than this share of its weight belongs to the element. Words that are not the best
# translation of any source word, such as "Sie" in "Wählen Sie" for "Choose", need a larger share.
LEAST_SHARE = 0.5
LEAST_SHARE_OF_ADDED = 0.85
COPIED_WEIGHT = 1000.0  # weight of a copied text with itself, so that spans always include it
# Limit of pairs of units, and of pairs of a node and a unit. Only sentences of hundreds of words exceed it.
MOST_WEIGHED: Final = 1 << 19


def project(
    pieces: Sequence[Piece],
    target: str,
    alignment: SentenceAlignment | None,
    shown: Mapping[int, str] | None = None,
) -> tuple[Piece, ...]:
    """Return the pieces of a translated sentence: its text with every element of the source once.

    Args:
        pieces: Pieces of the source sentence; an `Open` may be without its `Close`, and vice versa.
        target: The translation, with copied texts as in `shown`.
        alignment: Alignment of the texts that the model read (`shown_text(pieces, shown)`) and wrote; None:
            place elements in proportion to length.
        shown: Substitutes of copied texts by key; default: the copied text.

    In sentences of hundreds of words, elements are placed in proportion, in linear time.
    """
    if all(isinstance(piece, str) for piece in pieces):
        return merged([target])
    shown = shown or {}
    source = shown_text(pieces, shown)
    if source == target:
        return merged(pieces)
    alignment = alignment or proportional(source, target)
    texts = copied_texts(pieces, shown)
    spans = copied_spans(texts, source, target, alignment)
    root = tree_of(pieces, shown, {text.piece.key for text in texts} - spans.keys())
    nodes = list(root.all())
    whole = sorted(text.source for text in texts), sorted(spans.values())
    parts = _parts_of_words((source, target), whole, [node for node in nodes if node.is_element])
    edges = {edge for node in nodes for edge in (node.start, node.stop)}
    sides = _Side(source, edges, [*whole[0], *parts]), _Side(target, (), [*whole[1], *parts.values()])
    of_source, of_target = (len(side.units) for side in sides)
    if of_source * of_target + len(nodes) * (of_source + of_target) > MOST_WEIGHED:
        _place_in_proportion(root, *sides)
    else:
        pairs = [(text.source, spans[text.piece.key]) for text in texts if text.piece.key in spans]
        pairs += parts.items()
        _Projection(*sides, *_unit_weights(alignment, *sides, pairs), root).place()
    found = written(root, target, {spans[e.piece.key]: e.piece for e in texts if e.piece.key in spans})
    # If the model wrote a substitute too often, the copied text replaces these copies, too.
    of_copied = substitutes(pieces, shown)
    return merged(replaced(piece, of_copied) if isinstance(piece, str) else piece for piece in found)


_WORD: Final = re.compile(r"[^\W_]+")


def _words(text: str, copied: Sequence[Span]) -> Iterator[tuple[int, str]]:
    """Yield the start and text of each word that is not copied, and then of the digits at its end."""
    for match in _WORD.finditer(text):
        if not overlaps(copied, *match.span()) and not is_unspaced(match[0][0]):
            yield match.start(), match[0]
            if (digits := len(match[0].rstrip("0123456789"))) not in (0, len(match[0])):
                yield match.start() + digits, match[0][digits:]


def _parts_of_words(
    texts: tuple[str, str], copied: tuple[Sequence[Span], Sequence[Span]], elements: Sequence[Node]
) -> dict[Span, Span]:
    """Map parts of source words, at whose edges elements begin or end, to the same parts of the target.

    Elements that begin or end in a word that the target lacks are extended to the whole word.
    """
    edges = sorted({edge for node in elements for edge in (node.start, node.stop)})
    edges = [edge for edge in edges if all(map(str.isalnum, texts[0][max(edge - 1, 0) : edge + 1]))]
    places: dict[str, deque[int]] = {}
    for start, word in _words(texts[1], copied[1]) if edges else ():
        places.setdefault(word, deque()).append(start)
    parts: dict[Span, Span] = {}
    extended: dict[int, Span] = {}
    taken: list[Span] = []  # sorted
    for start, word in _words(texts[0], copied[0]) if edges else ():
        stop, place = start + len(word), places[word].popleft() if places.get(word) else -1
        bounds = [start, *edges[bisect_right(edges, start) : bisect_left(edges, stop)], stop]
        is_number = start in extended  # the final digits of a word that the target lacks
        if len(bounds) == 2 and not is_number:
            continue
        if place < 0 or overlaps(taken, place, place + len(word)):
            extended.update(dict.fromkeys(bounds[1:-1], (start, stop)))
            continue
        insort(taken, (place, place + len(word)))
        shift = place - start
        parts.update({(a, b): (a + shift, b + shift) for a, b in pairwise(bounds)})
        for edge in bounds:
            extended.pop(edge, None)
    for node in elements:
        node.start = extended.get(node.start, (node.start, 0))[0]
        node.stop = extended.get(node.stop, (0, node.stop))[1]
    return parts


class _Side:
    """The units of the source or the target; each span of `whole` is one unit."""

    def __init__(self, text: str, cuts: Iterable[int], whole: Iterable[Span]) -> None:
        self.text = text
        self.units = word_units(text, cuts, list(whole))
        self.is_word = [not unit.punctuation for unit in self.units]
        self.number = {(unit.start, unit.stop): i for i, unit in enumerate(self.units)}

    def within(self, start: int, stop: int) -> range:
        """Return the units between two positions."""
        first = bisect_left(self.units, start, key=lambda unit: unit.start)
        return range(first, max(bisect_right(self.units, stop, key=lambda unit: unit.stop), first))


def _unit_weights(
    alignment: SentenceAlignment, source: _Side, target: _Side, copied: Iterable[tuple[Span, Span]]
) -> tuple[Tensor, Tensor]:
    """Return alignment weights [target, source], sharpened and as given.

    Copied texts are aligned only with themselves.
    """
    of_S, of_T = ([(unit.start, unit.stop) for unit in side.units] for side in (source, target))
    given = agreement(alignment, (source.text, target.text), of_S, of_T)
    both = sharpened(given), given
    for source_span, target_span in copied:
        v, u = source.number[source_span], target.number[target_span]
        for weights in both:
            weights[:, v] = 0.0
            weights[u] = 0.0
            weights[u, v] = COPIED_WEIGHT
    return both


def _place_in_proportion(root: Node, source: _Side, target: _Side) -> None:
    """Place every node in proportion to the numbers of source units before and inside it."""
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
    """Return white space around an inserted text, as in the source, unless the target has it."""
    lacks = node.start > 0 and source[node.start - 1].isspace() and place > 0
    before = " " if lacks and not target[place - 1].isspace() else ""
    lacks = node.stop < len(source) and source[node.stop].isspace() and place < len(target)
    after = " " if lacks and not target[place].isspace() else ""
    return before, after


class _Projection:
    """Places the nodes of a tree.

    For U target and V source units, `weights` [U, V] are sharpened, and `given` [U, V] are those of the
    alignment.
    """

    def __init__(self, source: _Side, target: _Side, weights: Tensor, given: Tensor, root: Node) -> None:
        self.source, self.target, self.root = source, target, root
        self.weights, self.given = weights, given
        self.of_words = _sums(weights * torch.tensor(source.is_word, dtype=weights.dtype))
        self.of_all = _sums(weights)
        self.least_shares = torch.full_like(self.of_words[:, -1], LEAST_SHARE_OF_ADDED)
        if len(weights):
            self.least_shares[weights.argmax(dim=0)] = LEAST_SHARE

    def place(self) -> None:
        """Place every node, from the root down."""
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

    # --- Elements that enclose words.

    def _place_elements(self, parent: Node, elements: Sequence[Node]) -> None:
        """Place elements: first those that extend beyond the sentence, then by decreasing weight."""
        worth = {id(node): self._worth(node, parent) for node in elements}
        scored = [(node, _best(worth[id(node)], [parent.units], node)[0]) for node in elements]
        free = [parent.units]
        for node, _ in sorted(scored, key=lambda pair: (pair[0].opened and pair[0].closed, -pair[1])):
            if self._inside(node) == self._inside(parent) and parent.units in free:
                node.units, node.place, free = parent.units, parent.place, []
                continue
            _, units = _best(worth[id(node)], free, node)
            if node.opened and node.closed:
                units = self._with_a_word(node, units, free)
            if units:
                node.units = self._with_punctuation(node, units, free)
                first, last = self.target.units[node.units[0]], self.target.units[node.units[-1]]
                # At an end without a tag, the parent's limit is used.
                start = first.start if node.opened else parent.place[0]
                node.place = start, last.stop if node.closed else parent.place[1]
                free = [part for interval in free for part in _without(interval, node.units)]

    def _worth(self, node: Node, parent: Node) -> list[float]:
        """Return the score of each target unit for `node`; 0 for punctuation if `node` contains words."""
        inside, around = self._inside(node), self._inside(parent)
        words = {v for v in around if self.source.is_word[v]}
        if words.isdisjoint(inside):
            within = self.of_all[:, inside.stop] - self.of_all[:, inside.start]
            return list((within - LEAST_SHARE * self.of_all[:, -1]).tolist())
        within = self.of_words[:, inside.stop] - self.of_words[:, inside.start]
        worth = within - self.least_shares * self.of_words[:, -1]
        if words <= set(inside):
            worth = torch.ones_like(worth)
        return list((worth * torch.tensor(self.target.is_word, dtype=worth.dtype)).tolist())

    def _with_a_word(self, node: Node, units: range, free: Sequence[range]) -> range:
        """Return `units`, or the word with most weight if the node contains words and `units` does not.

        This happens if no word of the target belongs mostly to the node, as in a compound: "Dateimenü" for
        "<b>File</b> menu". The weights before sharpening are used, because they do not depend on other words.
        """
        inserted = {v for below in node.all() if not below.is_element for v in self._inside(below)}
        inside = [v for v in self._inside(node) if self.source.is_word[v] and v not in inserted]
        words = [u for part in free for u in part if self.target.is_word[u]]
        if not (inside and words) or any(self.target.is_word[u] for u in units):
            return units
        weight_U = self.given[:, inside].sum(dim=1)
        best = max(words, key=lambda u: float(weight_U[u]))
        return range(best, best + 1)

    def _with_punctuation(self, node: Node, units: range, free: Sequence[range]) -> range:
        """Extend a span by punctuation at its ends that is also in the source and is free."""
        inside, is_word = self._inside(node), self.source.is_word
        before = next((n for n, v in enumerate(inside) if is_word[v]), 0)
        after = next((n for n, v in enumerate(reversed(inside)) if is_word[v]), 0)
        interval = next(part for part in free if units.start in part)
        first, stop = units.start, units.stop
        while before and first > interval.start and not self.target.is_word[first - 1]:
            first, before = first - 1, before - 1
        while after and stop < interval.stop and not self.target.is_word[stop]:
            stop, after = stop + 1, after - 1
        return range(first, stop)

    # --- Points between words.

    def _point(self, node: Node, parent: Node, beside: Sequence[Node]) -> int:
        """Return the place of a node without words: inside its parent, outside the elements `beside` it."""
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
        """Return the place, perhaps inside another element, and whether it belongs to the word before."""
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
        """Return the target unit with the highest weight for a source unit."""
        column = self.weights[parent.units.start : parent.units.stop, v]
        return parent.units.start + int(column.argmax())

    def _between(self, left: range, right: range, parent: Node) -> int:
        """Return the position with most weight of `left` before it and of `right` after it."""
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
    """Return cumulative sums over source units: [U, V + 1]."""
    return torch.cat([weights.new_zeros(len(weights), 1), weights.cumsum(dim=1)], dim=1)


def _best(worth: Sequence[float], free: Iterable[range], node: Node) -> tuple[float, range]:
    """Return the free span of units with the highest score; an empty span if no unit is free.

    An element that began in an earlier sentence starts at the first unit, and one that ends in a later
    sentence stops at the last unit.
    """
    best = (-inf, range(0))
    for interval in free:
        if (node.opened or not interval.start) and (node.closed or interval.stop == len(worth)):
            best = max(best, _best_within(worth, interval, node), key=lambda scored: scored[0])
    return best


def _best_within(worth: Sequence[float], interval: range, node: Node) -> tuple[float, range]:
    best, total, first = (-inf, range(0)), 0.0, interval.start
    rest = sum(worth[i] for i in interval) if not node.closed else 0.0
    for i in interval:
        if not node.closed:  # all units from here on
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
    """Return the interval without `taken`, which is inside it or does not overlap it."""
    if taken.start not in interval:
        return [interval]
    parts = range(interval.start, taken.start), range(taken.stop, interval.stop)
    return [part for part in parts if part]
