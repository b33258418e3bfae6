"""Word alignment and projected elements against the gold links of the controlled corpus.

    python -m benchmarks.files.alignment runs/a runs/b [--documents 60] [--split test]

A line for every decoder layer, counted from the last, read one step later (Shift-Att) and at the step that
writes a token, and one in proportion to length. All read the references, teacher-forced.

AER: alignment error rate (Och and Ney 2003, equation 28), a target word aligned with the source word of the
largest weight, of the attention itself and as projection uses it (`word_alignment.sharpened`). The other
columns are shares of elements that enclose exactly the target words that they should. They are planted
around every run of one to four words that is not the whole sentence and whose links join it with one run of
target words alone: `content words`: words of the lexicon; `phrases`: two to four that end with one; `all`:
whatever they are, function words too.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.files.word_links import WordLinks, linked_documents
from cotext.data.documents import ParallelDocument
from cotext.files.blocks import Close, Open, Piece
from cotext.files.tags import project
from cotext.runtime.tables import render_rows
from cotext.translation.alignment import Attended, align
from cotext.translation.open import open_run
from cotext.translation.terms.word_alignment import (
    SentenceAlignment,
    Span,
    agreement,
    proportional,
    sharpened,
)
from cotext.translation.translator import DocumentTranslator

LONGEST = 4  # of phrases, in words
Judged = tuple[SentenceAlignment, WordLinks, tuple[str, str]]
Gold = list[tuple[ParallelDocument, tuple[WordLinks, ...]]]


def error_rate(found: Iterable[Judged], both_ways: bool) -> float:
    """Alignment error rate: 1 - (|A and sure| + |A and possible|) / (|A| + |sure|)."""
    counts: Counter[str] = Counter()
    for alignment, links, texts in found:
        weights = agreement(alignment, texts, links.source, links.target)
        if both_ways:
            weights = sharpened(weights)
        pairs = {(int(row.argmax()), j) for j, row in enumerate(weights) if bool(row.any())}
        counts["right"] += len(pairs & links.sure) + len(pairs & links.possible)
        counts["all"] += len(pairs) + len(links.sure)
    return 1 - counts["right"] / counts["all"]


def elements(source: str, links: WordLinks) -> Iterator[tuple[range, frozenset[int]]]:
    """Runs of source words around which an element may be planted, and the target words it must enclose."""
    words = [any(c.isalnum() for c in source[a:b]) for a, b in links.source]
    for first in range(len(words)):
        for stop in range(first + 1, min(first + LONGEST, len(words)) + 1):
            run = range(first, stop)
            if not all(words[first:stop]) or len(run) == sum(words):
                continue
            inside = frozenset(j for i, j in links.sure if i in run)
            together = bool(inside) and max(inside) - min(inside) + 1 == len(inside)
            if together and all((i in run) == (j in inside) for i, j in links.possible):
                yield run, inside


def enclosed(pieces: Sequence[Piece], target: Sequence[Span]) -> frozenset[int]:
    """The target words between the only `Open` and its `Close`."""
    place, edges = 0, []
    for piece in pieces:
        if isinstance(piece, str):
            place += len(piece)
        else:
            edges.append(place)
    return frozenset(j for j, (a, b) in enumerate(target) if a < edges[1] and b > edges[0])


def shares(found: Iterable[Judged]) -> list[str]:
    """The shares of elements that are exactly right: around content words, phrases, and all."""
    right: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    for alignment, links, (source, target) in found:
        for run, gold in elements(source, links):
            start, stop = links.source[run[0]][0], links.source[run[-1]][1]
            pieces = source[:start], Open(1), source[start:stop], Close(1), source[stop:]
            hit = enclosed(project(pieces, target, alignment), links.target) == gold
            kinds = ["all"]
            if run[-1] in links.content and (len(run) > 1 or run[0] in links.content):
                kinds.append("phrases" if len(run) > 1 else "words")
            for kind in kinds:
                right[kind] += hit
                planted[kind] += 1
    return [f"{right[kind] / planted[kind]:.3f}" for kind in ("words", "phrases", "all")]


def measured(translator: DocumentTranslator, gold: Gold) -> Iterator[tuple[str, ...]]:
    """A line for each way to align."""
    texts = [pair for document, _ in gold for pair in zip(document.source, document.target, strict=True)]
    links = [each for _, of_document in gold for each in of_document]
    ways: dict[str, list[SentenceAlignment]] = {"proportional": [proportional(*pair) for pair in texts]}
    documents = [document for document, _ in gold]
    kind, layers = translator.plan.kind, range(translator.config.model.decoder_layers)
    shifts = (True, False) if kind.path is None else (False,)
    for layer in layers if kind.forced_pass is not None else ():
        for shifted in shifts:
            aligned = align(translator, documents, attended=Attended((layer,), shifted))
            name = f"layer -{layer + 1}{', one step later' if shifted else ''}"
            ways[name] = [each for of_document in aligned for each in of_document]
    aligned = align(translator, documents)
    ways["as by default"] = [each for of_document in aligned for each in of_document]
    for name, found in ways.items():
        judged = list(zip(found, links, texts, strict=True))
        yield name, *(f"{error_rate(judged, both):.3f}" for both in (False, True)), *shares(judged)


def main() -> None:
    """Print a table for every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--split", choices=("development", "test"), default="test")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    gold = list(linked_documents(options.split, options.documents, options.seed))
    for run in options.runs:
        translator = open_run(run, device="cpu", threads=1).translator
        rows = [
            ("alignment", "AER of attention", "AER", "content words", "phrases", "all"),
            *measured(translator, gold),
        ]
        print(f"{run}\n{render_rows(rows, left=1)}\n", flush=True)


if __name__ == "__main__":
    main()
