"""Terms of a glossary in translations, as WMT's terminology task of 2025 measures them on documents.

    success       of every term of a document that a translation of which is in the reference: its
                  translations in the hypothesis for every occurrence in the source, at most 1; their mean
    consistency   of the sentences with a term, in documents where several have it: the share that has the
                  translation most frequent for it there

Occurrences are of text without case, within words too, as in the task's scorer for documents. Two things of
its scorers need what is not here. For single sentences it also counts lemmas, which Stanza makes: inflected
forms that the glossary does not list count as missing here. For consistency it has a language model find
each term's translation in the output: here, a sentence without a listed translation is inconsistent.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import Measurement
from cotext.evaluation.statistics.sufficient_statistics import Statistics, share
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

Terms = Sequence[tuple[str, Sequence[str]]]  # a source term and its translations


def measure_terms(
    terms: Terms,
    hypotheses: Mapping[str, Sequence[Document]],
    source: Sequence[Document],
    reference: Sequence[Document],
) -> dict[str, list[Measurement]]:
    """Term success and term consistency of systems, in per cent.

    Raises:
        CotextError: no document has a term that is translated so in the reference.
    """
    folded = [(term.casefold(), [each.casefold() for each in targets]) for term, targets in terms]
    found = {}
    for name, documents in hypotheses.items():
        sides = zip(documents, source, reference, strict=True)
        counts = np.array([_counts(folded, *(_folded(side) for side in each)) for each in sides])
        if not counts[:, 1].sum():
            raise CotextError("no term of the list is in the source and, translated, in the reference")
        found[name] = [
            Measurement.of(
                f"term-{what}",
                f"term {what}",
                f"protocol:term-{what}|unit:document|case:folded|match:text|version:cotext-{__version__}",
                Statistics(counts, np.arange(len(counts)), "document", share(column, column + 1)),
                documents,
                {what: float(counts[:, column].sum()), "of": float(counts[:, column + 1].sum())},
            )
            for what, column in (("success", 0), ("consistency", 2))
        ]
    return found


def _folded(document: Document) -> list[str]:
    return [sentence.casefold() for sentence in document.sentences]


def _counts(
    terms: Terms, hypothesis: Sequence[str], source: Sequence[str], reference: Sequence[str]
) -> tuple[float, ...]:
    """Of a document: successes, terms, consistent sentences, sentences with terms of several."""
    texts = ["\n".join(side) for side in (hypothesis, source, reference)]
    success = valid = consistent = several = 0.0
    for term, targets in terms:
        if term in texts[1] and any(each in texts[2] for each in targets):
            valid += 1
            success += min(1.0, sum(map(texts[0].count, targets)) / texts[1].count(term))
        where = [number for number, sentence in enumerate(source) if term in sentence]
        if len(where) > 1:
            own = Counter(next((each for each in targets if each in hypothesis[n]), "") for n in where)
            several += len(where)
            consistent += max((count for each, count in own.items() if each), default=0)
    return success, valid, consistent, several
