"""How often sentences of parallel paragraphs are paired rightly: lines joined, split, and aligned by length.

python -m benchmarks.paragraph_alignment SOURCE TARGET SOURCE_LANGUAGE TARGET_LANGUAGE

Five lines in succession of a parallel corpus are a paragraph. A pair of units is right if both sides are of
the same lines.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.languages import Languages
from cotext.data.selection import Selection
from cotext.data.splitting import Splitter, join_sentences

PARAGRAPH_LINES: Final = 5
MOST_PARAGRAPHS: Final = 1000
Lines = list[tuple[str, str]]


def paragraphs(source: Path, target: Path) -> Iterator[Lines]:
    for document in read_parallel(source, target):
        pairs = [
            (" ".join(s.split()), " ".join(t.split()))
            for s, t in zip(document.source, document.target, strict=True)
        ]
        for start in range(0, len(pairs) - PARAGRAPH_LINES + 1, PARAGRAPH_LINES):
            yield pairs[start : start + PARAGRAPH_LINES]


def lines_of(units: tuple[str, ...], lines: list[str]) -> list[set[int]]:
    """The lines that each unit, of all in order, has characters of."""
    owner = [number for number, line in enumerate(lines) for character in line if not character.isspace()]
    found, at = [], 0
    for unit in units:
        size = sum(not character.isspace() for character in unit)
        found.append(set(owner[at : at + size]))
        at += size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("source", "target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("source_language")
    parser.add_argument("target_language")
    given = parser.parse_args()
    languages = Languages(given.source_language, given.target_language)
    splitters = Splitter(languages.source), Splitter(languages.target)
    counts: Counter[str] = Counter()
    for pairs in islice(paragraphs(given.source, given.target), MOST_PARAGRAPHS):
        sides = [list(side) for side in zip(*pairs, strict=True)]
        joined = [
            join_sentences(side, code)
            for side, code in zip(sides, (languages.source, languages.target), strict=True)
        ]
        document = ParallelDocument("d", (joined[0],), (joined[1],))
        selection = Selection(lambda _, one=document: iter([one]), languages, splitters=splitters)
        [split] = selection.read()
        if len(split) == 1:
            kind = "whole"
        elif selection.prose.aligned:
            kind = "aligned"
        else:
            kind = "equal"
        counts[kind] += 1
        units = zip(lines_of(split.source, sides[0]), lines_of(split.target, sides[1]), strict=True)
        if kind != "whole":
            counts[f"{kind} units"] += len(split)
            counts[f"{kind} right"] += sum(of_source == of_target for of_source, of_target in units)
    whole = counts["whole"]
    print(f"{counts['equal'] + counts['aligned'] + whole:,} paragraphs, {whole:,} left whole")
    for kind, what in (("equal", "of equally many sentences"), ("aligned", "aligned by length")):
        units, right = counts[f"{kind} units"], counts[f"{kind} right"]
        share = 100 * right / max(1, units)
        print(f"{counts[kind]:,} {what}: {units:,} units, {share:.1f} % right")


if __name__ == "__main__":
    main()
