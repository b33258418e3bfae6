"""Glossary terms in translations, after the document track of WMT's terminology task of 2025.

    success       The mean over the terms of each document that have a translation in its reference. The
                  value of a term is the count of its translations in the hypothesis, divided by its count in
                  the source, at most 1.
    consistency   For terms that occur in several sentences of a document: the share of these sentences with
                  the most frequent translation of the term.

Success is that of the task's scorer (https://github.com/wmt-conference/wmt25-terminology): text is
lower-cased, and matches inside words count. For consistency, it finds translations with a language model, a
word aligner and lemmatisers, over a whole submission, also of terms that occur once. Here, only listed
translations are found, and a sentence without one is inconsistent.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import Measurement
from cotext.evaluation.statistics.sufficient_statistics import Statistics, share
from cotext.runtime import CotextError, __version__

Terms = Sequence[tuple[str, Sequence[str]]]  # a source term and its translations


def measure_terms(
    terms: Terms,
    hypotheses: Mapping[str, Sequence[Document]],
    source: Sequence[Document],
    reference: Sequence[Document],
) -> dict[str, list[Measurement]]:
    """Measure term success and consistency, in per cent; raise CotextError if no term can be counted."""
    lower = [(term.lower(), [target.lower() for target in targets]) for term, targets in terms]
    measured = {}
    for name, documents in hypotheses.items():
        sides = zip(documents, source, reference, strict=True)
        counts = np.array([_counts(lower, *triple) for triple in sides])
        if not counts[:, 1].sum():
            raise CotextError("no term of the list is in the source and has a translation in the reference")
        measured[name] = [
            Measurement.of(
                f"term-{what}",
                f"term {what}",
                f"protocol:term-{what}|unit:document|case:lower|match:text|version:cotext-{__version__}",
                Statistics(counts, np.arange(len(counts)), "document", share(column, column + 1)),
                documents,
                {what: float(counts[:, column].sum()), "of": float(counts[:, column + 1].sum())},
            )
            for what, column in (("success", 0), ("consistency", 2))
        ]
    return measured


def _counts(terms: Terms, hypothesis: Document, source: Document, reference: Document) -> tuple[float, ...]:
    """Return numerator and denominator of success, then of consistency, for one document."""
    sides = [[s.lower() for s in side.sentences] for side in (hypothesis, source, reference)]
    output, original, right = map("\n".join, sides)
    success = valid = consistent = several = 0.0
    for term, targets in terms:
        if term in original and any(target in right for target in targets):
            valid += 1
            success += min(1.0, sum(map(output.count, targets)) / original.count(term))
        where = [number for number, sentence in enumerate(sides[1]) if term in sentence]
        if len(where) > 1:
            used = Counter(next((t for t in targets if t in sides[0][n]), "") for n in where)
            several += len(where)
            consistent += max((count for target, count in used.items() if target), default=0)
    return success, valid, consistent, several
