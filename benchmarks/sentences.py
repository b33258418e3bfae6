"""How well and how fast text is split into sentences: boundaries found, and characters a second.

python -m benchmarks.sentences GOLD [LANGUAGE=FILE ...] [--wrong]

GOLD: paragraphs with their sentences marked, as tests/data/sentences.txt. FILE: a corpus of a sentence a
line; lines in succession that end as sentences do are joined to paragraphs of up to five, and split again. A
line may hold two sentences, so that its precision is a lower bound. pysbd, if installed, is beside it.
"""

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from cotext.data.formats import read_documents
from cotext.data.splitting import UNSPACED, Splitter
from cotext.runtime.tables import render_rows

PARAGRAPH_SENTENCES: Final = 5
MOST_PARAGRAPHS: Final = 1000
ENDS: Final = re.compile(r"[.!?…。！？।؟۔][\"'”’»“‘)\]」』）]*$")
Paragraph = list[str]  # its sentences, with the white space behind them
Split = Callable[[str, str], list[int]]  # text, language -> where sentences begin, but for the first


def gold(path: Path) -> Iterator[tuple[str, Paragraph]]:
    """Language and paragraph of every line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            language, _, marked = line.partition("\t")
            yield language, marked.split("||")


def paragraphs(language: str, path: Path) -> Iterator[Paragraph]:
    """Sentences of the lines of documents."""
    space = "" if language in UNSPACED else " "
    for document in read_documents(path):
        paragraph: Paragraph = []
        for line in (*document.sentences, ""):
            text = " ".join(line.split())
            if ENDS.search(text):
                paragraph.append(text + space)
            if len(paragraph) == PARAGRAPH_SENTENCES or not ENDS.search(text):
                if len(paragraph) > 1:
                    yield paragraph
                paragraph = []


def by_cotext(text: str, language: str) -> list[int]:
    return [start for start, _ in Splitter(language).spans(text)][1:]


def by_pysbd() -> Split:
    import pysbd
    from pysbd.languages import LANGUAGE_CODES

    segmenters = {code: pysbd.Segmenter(language=code, clean=False) for code in LANGUAGE_CODES}

    def split(text: str, language: str) -> list[int]:
        starts, at = [], 0
        for piece in segmenters[language if language in segmenters else "en"].segment(text):
            found = text.find(piece.strip(), at)
            if found >= 0:
                starts.append(found)
                at = found + len(piece.strip())
        return [start for start in starts if start]

    return split


class Count:
    """Boundaries right, found and missed, and the time."""

    def __init__(self) -> None:
        self.right = self.found = self.true = self.characters = 0
        self.seconds = 0.0

    def add(self, paragraph: Paragraph, language: str, split: Split) -> bool:
        text, true = "", []
        for sentence in paragraph:
            true.append(len(text))
            text += sentence
        began = time.perf_counter()
        found = set(split(text.rstrip(), language))
        self.seconds += time.perf_counter() - began
        self.right += len(found & set(true[1:]))
        self.found += len(found)
        self.true += len(true) - 1
        self.characters += len(text)
        return found == set(true[1:])

    def row(self) -> tuple[str, ...]:
        precision, recall = self.right / max(1, self.found), self.right / max(1, self.true)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        speed = self.characters / max(1e-9, self.seconds)
        return (f"{100 * precision:.1f}", f"{100 * recall:.1f}", f"{100 * f1:.1f}", f"{speed / 1000:,.0f}")


def measure(cases: Iterable[tuple[str, str, Paragraph]], split: Split, wrong: bool) -> dict[str, Count]:
    """Counts by name of a set."""
    counts: dict[str, Count] = defaultdict(Count)
    for name, language, paragraph in cases:
        if not counts[name].add(paragraph, language, split) and wrong:
            text = "".join(paragraph)
            bounds = [0, *split(text, language), len(text)]
            print(
                name,
                "".join(paragraph),
                *(text[a:b] for a, b in pairwise(bounds)),
                sep="\n   ",
            )
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("gold", type=Path)
    parser.add_argument("corpora", nargs="*", metavar="LANGUAGE=FILE")
    parser.add_argument("--wrong", action="store_true", help="print what Cotext splits otherwise")
    given = parser.parse_args()
    cases = []
    for language, paragraph in gold(given.gold):
        cases += [(f"gold {language}", language, paragraph), ("gold", language, paragraph)]
    for corpus in given.corpora:
        language, _, path = corpus.partition("=")
        found = islice(paragraphs(language, Path(path)), MOST_PARAGRAPHS)
        cases += [(corpus, language, paragraph) for paragraph in found]
    ways: dict[str, Split] = {"cotext": by_cotext}
    try:
        ways["pysbd"] = by_pysbd()
    except ImportError:
        print("pysbd is not installed")
    rows = [("", "by", "boundaries", "precision", "recall", "F1", "1,000 characters a second")]
    measured = {way: measure(cases, split, given.wrong and way == "cotext") for way, split in ways.items()}
    for name in next(iter(measured.values())):
        for way, counts in measured.items():
            rows.append((name, way, f"{counts[name].true:,}", *counts[name].row()))
    print(render_rows(rows, left=2))


if __name__ == "__main__":
    main()
