"""The inline elements of a sentence as a tree, in the source and where they stand in the target."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cotext.files.blocks import Close, Copied, Open, Piece, Point
from cotext.translation.terms.word_alignment import Span


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
    spans = sorted(copied)
    place = 0

    def upto(stop: int) -> Iterator[Piece]:
        nonlocal place
        while spans and spans[0][1] <= stop:
            span = spans.pop(0)
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
