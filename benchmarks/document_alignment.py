"""Accuracy of `cotext align` where sentences were merged, dropped and moved, and documents have no pair.

    python -m benchmarks.document_alignment SOURCE TARGET [--documents 1000] [--joined]

In every hundred sentences of a parallel document, 5 pairs of neighbours are merged on the source side and 5
on the target side, 2.5 sentences are dropped on either side, and 1 target sentence is moved within the
document. A pair of the output is right if both sides come from the same sentences; a moved sentence counts
as missed unless it is found. In the last row, every eighth document has the translation of another one, and
every thirtieth has its languages swapped: no pair of these is right. `--joined` joins all documents to one.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from cotext.data.aligned_corpus import align_corpus
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.languages import languages_of_names
from cotext.runtime.tables import render_rows

RATES: Final = {"merged": 0.1, "dropped": 0.05, "moved": 0.01}  # per sentence, both sides together
Texts = list[str]
Changed = tuple[Texts, Texts, list[tuple[str, str]]]  # source, target, true pairs


def changed(document: ParallelDocument, kinds: set[str], generator: random.Random) -> Changed:
    """Return a document with changes of some kinds; the draws are the same for all `kinds`."""
    source: Texts = []
    target: Texts = []
    pairs: list[tuple[str, str]] = []
    moved: Texts = []
    texts = [(s, t) for s, t in zip(document.source, document.target, strict=True) if s.strip() and t.strip()]
    while texts:
        drawn, kind = generator.random(), ""
        for name, rate in RATES.items():
            if not kind and drawn < rate:
                kind = name
            drawn -= rate
        kind = kind if kind in kinds else ""
        side = generator.randrange(2)
        first, *texts = texts
        own, theirs = [first[0]], [first[1]]
        if kind == "merged" and texts:
            second, *texts = texts
            own.append(second[0])
            theirs.append(second[1])
            sides = [own, theirs]
            sides[side][:] = [" ".join(sides[side])]
        if kind == "moved":
            moved += theirs
        source += [] if kind == "dropped" and side == 0 else own
        target += [] if kind == "moved" or (kind == "dropped" and side == 1) else theirs
        if kind != "dropped":
            pairs.append((" ".join(own), " ".join(theirs)))
    for sentence in moved:
        target.insert(generator.randrange(len(target) + 1), sentence)
    return source, target, pairs


def without_pair(made: list[Changed]) -> list[Changed]:
    """Return documents of which every eighth has another translation, and every thirtieth swapped sides."""
    found: list[Changed] = []
    for n, (source, target, pairs) in enumerate(made):
        if n % 8 == 0:
            found.append((source, made[(n + 8) % len(made)][1], []))
        else:
            found.append((target, source, []) if n % 30 == 1 else (source, target, pairs))
    return found


def row(name: str, made: list[Changed], files: tuple[Path, Path]) -> tuple[str, ...]:
    """Align changed documents; return a row of the table."""
    sides = [(Document(f"{n}", tuple(s)), Document(f"{n}", tuple(t))) for n, (s, t, _) in enumerate(made)]
    start = time.process_time()
    corpus = align_corpus(sides, languages_of_names(*files))
    seconds = time.process_time() - start
    found = counted(pair for each in corpus.documents for pair in zip(each.source, each.target, strict=True))
    true = counted(pair for _, _, pairs in made for pair in pairs)
    right = (found & true).total()
    scores = right / found.total(), right / true.total(), 2 * right / (found.total() + true.total())
    sizes = len(corpus.left_out), sum(gap.cut for gap in corpus.gaps)
    sentences = f"{sum(len(source) for source, _ in sides):,}"
    return name, sentences, *(f"{score:.3f}" for score in scores), *map(str, sizes), f"{seconds:.1f}"


def counted(pairs: Iterable[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Count pairs, white space normalised."""
    return Counter((" ".join(source.split()), " ".join(target.split())) for source, target in pairs)


def main() -> None:
    """Print a row for each kind of change alone, for all, and for documents without a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--joined", action="store_true")
    given = parser.parse_args()
    documents = list(islice(read_parallel(given.source, given.target), given.documents))
    if given.joined:
        sides = zip(*((d.source, d.target) for d in documents), strict=True)
        documents = [ParallelDocument("all", *(tuple(s for d in side for s in d) for side in sides))]
    files = given.source, given.target
    rows = [("changes", "sentences", "precision", "recall", "F1", "left out", "cuts", "seconds")]
    for chosen in [*({kind} for kind in RATES), set(RATES)]:
        generator = random.Random(1)
        made = [changed(document, chosen, generator) for document in documents]
        rows.append(row(", ".join(sorted(chosen)), made, files))
    if not given.joined:
        rows.append(row("and documents without a pair", without_pair(made), files))
    print(render_rows(rows, left=1))


if __name__ == "__main__":
    main()
