"""Word alignment and projected elements against the gold links of the controlled corpus.

    python -m benchmarks.files.alignment runs/a runs/b [--documents 60] [--split test]

A line for every decoder layer, counted from the last, read one step later (Shift-Att) and at the step that
writes a token, and one in proportion to length. All read the references, teacher-forced.

AER: alignment error rate (Och and Ney 2003, equation 28), a target word aligned with the source word of the
largest weight. `words` and `phrases`: the share of elements around one word, or two to four, that enclose
exactly the target words that stand for them. Elements are planted around every run of words whose links
leave neither it nor one run of target words, and which is not the whole sentence.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cotext.data.controlled import WordLinks, linked_documents
from cotext.data.documents import ParallelDocument
from cotext.decoding.alignment import Attended, align
from cotext.decoding.open import open_run
from cotext.decoding.translator import DocumentTranslator
from cotext.files.blocks import Close, Open, Piece
from cotext.files.tags import project
from cotext.files.word_alignment import SentenceAlignment, Span, agreement, proportional
from cotext.runtime.tables import render_rows

LONGEST = 4  # of phrases, in words
Gold = list[tuple[ParallelDocument, tuple[WordLinks, ...]]]


def error_rate(found: Iterable[tuple[SentenceAlignment, WordLinks, tuple[str, str]]]) -> float:
    """Alignment error rate: 1 - (|A and sure| + |A and possible|) / (|A| + |sure|)."""
    counts: Counter[str] = Counter()
    for alignment, links, texts in found:
        weights = agreement(alignment, texts, links.source, links.target)
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
            if inside and max(inside) - min(inside) + 1 == len(inside):
                if all((i in run) == (j in inside) for i, j in links.possible):
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


def shares(found: Iterable[tuple[SentenceAlignment | None, WordLinks, tuple[str, str]]]) -> list[str]:
    """The shares of elements around words and phrases that are exactly right."""
    right: Counter[bool] = Counter()
    planted: Counter[bool] = Counter()
    for alignment, links, (source, target) in found:
        for run, gold in elements(source, links):
            start, stop = links.source[run[0]][0], links.source[run[-1]][1]
            pieces = source[:start], Open(1), source[start:stop], Close(1), source[stop:]
            hit = enclosed(project(pieces, target, alignment), links.target) == gold
            right[len(run) > 1] += hit
            planted[len(run) > 1] += 1
    return [f"{right[kind] / planted[kind]:.3f}" for kind in (False, True)]


def measured(translator: DocumentTranslator, gold: Gold) -> Iterator[tuple[str, ...]]:
    """A line for each way to align."""
    texts = [pair for document, _ in gold for pair in zip(document.source, document.target, strict=True)]
    links = [each for _, of_document in gold for each in of_document]
    ways: dict[str, list[SentenceAlignment]] = {"proportional": [proportional(*pair) for pair in texts]}
    documents = [document for document, _ in gold]
    shifts = (True, False) if translator.plan.kind.path is None else (False,)
    for layer in range(translator.config.model.decoder_layers):
        for shifted in shifts:
            aligned = align(translator, documents, attended=Attended(layer, shifted))
            name = f"layer -{layer + 1}{', one step later' if shifted else ''}"
            ways[name] = [each for of_document in aligned for each in of_document]
    for name, found in ways.items():
        judged = list(zip(found, links, texts, strict=True))
        yield name, f"{error_rate(judged):.3f}", *shares(judged)


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
        rows = [("alignment", "AER", "words", "phrases"), *measured(translator, gold)]
        print(f"{run}\n{render_rows(rows, left=1)}\n", flush=True)


if __name__ == "__main__":
    main()
