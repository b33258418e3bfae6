"""Random choice of development and test documents from a training corpus."""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from cotext.data.documents import ParallelDocument
from cotext.runtime import CotextError

# Advice for a corpus without document boundaries.
BOUNDARIES: Final = (
    'put an empty line between documents, in TMX a <prop type="x-document"> into every <tu>, in tsv an id '
    "before every pair"
)
_PIECE: Final = re.compile(r"#[0-9]{1,9}$")
# Reads a corpus; the ids of skipped documents are added to the argument.
Read = Callable[[list[str]], Iterator[ParallelDocument]]


def set_aside(
    documents: Iterable[ParallelDocument], wanted: Mapping[str, int], seed: int
) -> dict[str, frozenset[int]]:
    """Draw documents for each part and return their numbers, from 0. All other documents are for training.

    Pieces of a document that was cut (d#1, d#2), and documents with the same id or source, are always in the
    same part.

    Raises CotextError if there are too few documents to leave one for training.
    """
    groups = _groups(documents)
    if len(groups) <= sum(wanted.values()):
        asked = " and ".join(f"{count} for {part} (--{part}-documents)" for part, count in wanted.items())
        available = f"{len(groups):,} document{'s' if len(groups) > 1 else ''}"
        raise CotextError(
            f"the corpus has {available}, too few to set aside {asked} and leave one for training; set fewer "
            f"aside, or pass a larger corpus. If the corpus has no document boundaries: {BOUNDARIES}"
        )
    random.Random(seed).shuffle(groups)
    rest = iter(groups)
    return {part: frozenset(chain.from_iterable(islice(rest, count))) for part, count in wanted.items()}


def _groups(documents: Iterable[ParallelDocument]) -> list[list[int]]:
    """Return groups of numbers of documents that belong together, ordered by their first documents."""
    owner: dict[str | bytes, int] = {}  # name or digest -> group
    groups: dict[int, list[int]] = {}
    for number, document in enumerate(documents):
        digest = hashlib.sha256("\n".join(document.source).encode(errors="surrogatepass")).digest()
        keys = _PIECE.sub("", document.id), digest
        known = sorted({owner[key] for key in keys if key in owner})
        group = known[0] if known else number
        for other in known[1:]:
            groups[group] += groups.pop(other)
            owner.update({key: group for key, of in owner.items() if of == other})
        groups.setdefault(group, []).append(number)
        owner.update(dict.fromkeys(keys, group))
    return list(groups.values())


def part_of(read: Read, parts: Mapping[str, frozenset[int]], part: str) -> Read:
    """Return a reader of the documents of one part; "train" is the part of all other documents."""
    others = frozenset().union(*parts.values())

    def documents(skipped: list[str]) -> Iterator[ParallelDocument]:
        for number, document in enumerate(read(skipped)):
            if number in parts[part] if part in parts else number not in others:
                yield document

    return documents
