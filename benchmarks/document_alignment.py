"""How well `align` finds sentences that were merged, dropped and moved, and documents that are none.

    python -m benchmarks.document_alignment SOURCE TARGET [--documents 1000] [--joined]

Of each parallel document, in every hundred sentences (seed 1): 5 pairs of neighbours are merged on the source
side and 5 on the target side, 2.5 sentences are dropped on either side, and 1 target sentence is moved to
another place in the document. Rows with one change alone have it as often. A pair of the output is right if
both sides are of the same sentences; a moved sentence counts as missed unless it is found. In the last row,
every eighth document has the translation of another, and every thirtieth has its languages swapped: no pair
of these is right. `--joined`: all documents as one.
"""

import argparse
import random
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

from cotext.data.aligned_corpus import align_corpus
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.languages import languages_of_names
from cotext.runtime.tables import render_rows

RATES: Final = {"merged": 0.1, "dropped": 0.05, "moved": 0.01}
Texts = list[str]
Changed = tuple[Texts, Texts, list[tuple[str, str]]]  # both sides, and the true pairs


def changed(document: ParallelDocument, kinds: set[str], generator: random.Random) -> Changed:
    source: Texts = []
    target: Texts = []
    pairs: list[tuple[str, str]] = []
    texts = [(s, t) for s, t in zip(document.source, document.target, strict=True) if s.strip() and t.strip()]
    moved: Texts = []
    while texts:
        drawn, kind = generator.random(), ""
        for name, rate in RATES.items():
            if not kind and drawn < rate:
                kind = name
            drawn -= rate
        first, *texts = texts
        own, theirs = [first[0]], [first[1]]
        if kind not in kinds:
            kind = ""
        side = generator.randrange(2)
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


def row(name: str, made: list[Changed], languages: tuple[str, str]) -> tuple[str, ...]:
    sides = [(Document(f"{n}", tuple(s)), Document(f"{n}", tuple(t))) for n, (s, t, _) in enumerate(made)]
    begun = time.process_time()
    corpus = align_corpus(sides, languages_of_names(*map(Path, languages)))
    seconds = time.process_time() - begun
    found = Counter(pair for each in corpus.documents for pair in zip(each.source, each.target, strict=True))
    true = Counter((" ".join(s.split()), " ".join(t.split())) for _, _, pairs in made for s, t in pairs)
    found = Counter({(" ".join(s.split()), " ".join(t.split())): n for (s, t), n in found.items()})
    right = (found & true).total()
    shares = right / max(1, found.total()), right / max(1, true.total())
    f1 = 2 * right / max(1, found.total() + true.total())
    sizes = sum(len(s) for s, _ in sides), len(corpus.left_out), sum(gap.cut for gap in corpus.gaps)
    return (
        name,
        f"{sizes[0]:,}",
        *(f"{each:.3f}" for each in (*shares, f1)),
        *map(str, sizes[1:]),
        f"{seconds:.1f}",
    )


def main() -> None:
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
    names = given.source.name, given.target.name
    rows = [("changes", "sentences", "precision", "recall", "F1", "left out", "cuts", "seconds")]
    kinds = set(RATES)
    for chosen in [*({kind} for kind in RATES), kinds]:
        generator = random.Random(1)
        made = [changed(document, chosen, generator) for document in documents]
        rows.append(row(", ".join(sorted(chosen)), made, names))
    if not given.joined:
        wrong = [
            (s, made[(n + 8) % len(made)][1], [])
            if n % 8 == 0
            else (t, s, [])
            if n % 30 == 1
            else (s, t, pairs)
            for n, (s, t, pairs) in enumerate(made)
        ]
        rows.append(row("and false documents", wrong, names))
    print(render_rows(rows, left=1))


if __name__ == "__main__":
    main()
