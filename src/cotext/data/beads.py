"""Documents whose sentences are aligned n : m, or not at all, as parallel documents.

A bead is a group of source sentences and the group of target sentences that says the same (Gale and Church
1993). Its sentences are joined on either side, into one pair. What has nothing on the other side is a gap: a
sentence beyond it does not stand beside the one before, so that the document is cut there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cotext.data.documents import ParallelDocument
from cotext.data.splitting import join_sentences
from cotext.runtime.errors import CotextError

# Source and target sentences of one document that say the same, counted from 0; one side may be empty.
Bead = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class Alignment:
    """Counts of the sentence alignment of a corpus.

    `joined`: beads of several sentences on a side; `gaps`: places at which a document is cut or a piece of it
    falls away; `unaligned`: sentences left out there, source and target together; `cut`: documents that came
    in pieces; `left_out`: documents of which nothing is left; `unequal`: documents without beads left out, as
    their sides are of unequal numbers of sentences.
    """

    beads: int = 0
    joined: int = 0
    gaps: int = 0
    unaligned: int = 0
    cut: int = 0
    left_out: int = 0
    unequal: int = 0

    def render(self, split: str) -> str:
        """As one line; empty where all is one to one."""
        parts = []
        if self.joined or self.unaligned:
            parts.append(
                f"beads {self.beads:,}, joined of several sentences {self.joined:,}; gaps {self.gaps:,}, "
                f"sentences without a partner left out there {self.unaligned:,}, documents cut in pieces "
                f"{self.cut:,}, left out {self.left_out:,}"
            )
        if self.unequal:
            parts.append(f"documents of unequal numbers of sentences left out: {self.unequal:,}")
        return f"{split}: {'; '.join(parts)}" if parts else ""


def read_beads(value: object, sizes: tuple[int, int]) -> tuple[Bead, ...]:
    """Beads as JSON holds them, as in [[[0], [0]], [[1, 2], [1]], [[], [2]]].

    Raises CotextError for anything else, and for sentences that are not there, come twice or out of order.
    """
    if not isinstance(value, list):
        raise CotextError("the key 'beads' must hold a list, as in [[[0], [0]], [[1, 2], [1]]]")
    beads: list[Bead] = []
    following = [0, 0]
    for number, bead in enumerate(value, 1):
        sides: list[list[int]] = bead if isinstance(bead, list) else []
        if len(sides) != 2 or not all(
            isinstance(side, list) and all(type(index) is int for index in side) for side in sides
        ):
            raise CotextError(
                f"bead {number} is no pair of lists of sentence numbers, as in [[1, 2], [1]], counted from 0"
            )
        for side, indices in enumerate(sides):
            for index in indices:
                if not following[side] <= index < sizes[side]:
                    what = ("source", "target")[side]
                    raise CotextError(
                        f"bead {number}: {what} sentence {index} does not come after those before it, or is "
                        f"not there; sentences are 0 to {sizes[side] - 1}, each once and in order"
                    )
                following[side] = index + 1
        beads.append((tuple(sides[0]), tuple(sides[1])))
    return tuple(beads)


def aligned_documents(
    document_id: str,
    source: Sequence[str],
    target: Sequence[str],
    beads: Sequence[Bead],
    counts: Alignment | None = None,
) -> Iterator[ParallelDocument]:
    """The parallel documents that the beads of one document give, cut at gaps; none where nothing is aligned.

    A sentence in no bead is a gap as well. `counts` is added to.
    """
    counts = counts if counts is not None else Alignment()
    runs: list[list[tuple[str, str]]] = [[]]
    following = (0, 0)
    gap = False
    for bead in [*beads, ((len(source),), (len(target),))]:
        # What lies between two beads is in none.
        between = [
            indices[0] - start if indices else 0 for indices, start in zip(bead, following, strict=True)
        ]
        counts.unaligned += sum(between)
        gap |= any(between)
        following = tuple(  # type: ignore[assignment]
            indices[-1] + 1 if indices else start for indices, start in zip(bead, following, strict=True)
        )
        if not all(bead):
            counts.unaligned += sum(map(len, bead))
            gap = True
            continue
        if gap:
            counts.gaps += 1
            runs.append([])
            gap = False
        if bead[0][0] == len(source):
            break
        counts.beads += 1
        counts.joined += any(len(indices) > 1 for indices in bead)
        pair = [
            join_sentences([side[i] for i in indices], "")
            for side, indices in zip((source, target), bead, strict=True)
        ]
        runs[-1].append((pair[0], pair[1]))
    found = [run for run in runs if run]
    counts.cut += len(found) > 1
    counts.left_out += not found
    yield from pieces_of(document_id, found)


def pieces_of(document_id: str, runs: Sequence[Sequence[tuple[str, str]]]) -> Iterator[ParallelDocument]:
    """The pieces of a document that was cut, as documents: d#1, d#2 and so on; a single one keeps its id."""
    for number, run in enumerate(runs, 1):
        name = document_id if len(runs) == 1 else f"{document_id}#{number}"
        yield ParallelDocument(name, tuple(s for s, _ in run), tuple(t for _, t in run))
