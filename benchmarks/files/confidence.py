"""Does low confidence mean low quality? Sentences by confidence, against references.

    python -m benchmarks.files.confidence RUN [--source dev.en --reference dev.de] [--documents 100]

Without files, test documents of the controlled corpus. Quality is chrF of a sentence (sacrebleu), and the
share that equals the reference. `rho` is Spearman's rank correlation of confidence with chrF; beside it, that
of the sum of log-probabilities, and of the length of the output in tokens.
"""

import argparse
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from cotext.data.controlled import test_documents
from cotext.data.documents import Document
from cotext.runtime.tables import render_rows
from cotext.translation.confidence import confidences, least_sure
from cotext.translation.open import open_run

SENTENCES = 10  # of a document, where files have no empty lines
PARTS = 5


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(np.array(one)), _ranks(np.array(other)))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]


def paragraphs(lines: Iterable[str]) -> list[list[str]]:
    """Documents of a file: runs of lines between empty ones, cut where they are long."""
    found: list[list[str]] = [[]]
    for line in lines:
        if not line.strip() or len(found[-1]) == SENTENCES:
            found.append([])
        if line.strip():
            found[-1].append(line.strip())
    return [each for each in found if each]


def main() -> None:
    """Print the correlations, and quality by fifths of confidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--documents", type=int, default=100)
    options = parser.parse_args()
    if options.source:
        sides = [
            paragraphs(path.read_text(encoding="utf-8").splitlines())[: options.documents]
            for path in (options.source, options.reference)
        ]
        sources, references = sides
        assert [len(d) for d in sources] == [len(d) for d in references], "the files differ in empty lines"
    else:
        pairs = list(islice(test_documents(1), options.documents))
        sources, references = [list(d.source) for d in pairs], [list(d.target) for d in pairs]
    translator = open_run(options.run, device="cpu", threads=1).translator
    documents = [Document(str(n), tuple(sentences)) for n, sentences in enumerate(sources)]
    found = dict(translator.translate(documents))
    metric = CHRF()
    rows = []
    for n, wanted in enumerate(references):
        translation = found[n]
        sure, whole = confidences(translation), translation.log_probabilities
        for j, reference in enumerate(wanted):
            text, value = translation.document.sentences[j], sure[j]
            if value is not None:
                score = metric.sentence_score(text, [reference]).score
                rows.append((value, score, text == reference, whole[j], translation.tokens[j]))
    report(rows)


def report(rows: Sequence[tuple[float, float, bool, float, int]]) -> None:
    """Print what sentences of (confidence, chrF, exact, log-probability, tokens) tell."""
    sure, quality, exact, whole, tokens = (list(column) for column in zip(*rows, strict=True))
    print(f"{len(rows)} sentences; chrF {np.mean(quality):.1f}, exact {100 * np.mean(exact):.1f} %")
    for name, values in (("confidence", sure), ("sum of log-probabilities", whole), ("tokens", tokens)):
        print(f"rho of {name}: {correlation(values, quality):.3f}")
    order = sorted(range(len(rows)), key=sure.__getitem__)
    marked = {j for j, low in enumerate(least_sure(sure)) if low}
    groups = [order[len(order) * k // PARTS : len(order) * (k + 1) // PARTS] for k in range(PARTS)]
    names = [f"fifth {k + 1}" for k in range(PARTS)]
    groups += [sorted(marked), [j for j in order if j not in marked]]
    lines = [("sentences", "confidence", "chrF", "exact, %")]
    for name, group in zip([*names, "marked", "not marked"], groups, strict=True):
        span = f"{min(sure[j] for j in group):.3f}-{max(sure[j] for j in group):.3f}"
        means = np.mean([quality[j] for j in group]), 100 * np.mean([exact[j] for j in group])
        lines.append((name, span, *(f"{mean:.1f}" for mean in means)))
    print(render_rows(lines, left=1))


if __name__ == "__main__":
    main()
