"""A document of the test set as every system translates it, side by side on a page."""

from collections.abc import Sequence
from html import escape

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.context.page import differing
from cotext.runtime.html import breakable, table

MAX_SENTENCES = 12  # of a document that is shown, its first ones


def example(found: RunComparison) -> str:
    """The document in which most sentences differ, as a table; empty without translations of a test set.

    Words of a translation that differ from that of the first system are marked.
    """
    shown = {run.label: run.first.hypothesis for run in found.runs if run.first.hypothesis is not None}
    if found.test is None or not shown:
        return ""
    translations = [list(read_documents(path, found.test.format, "target")) for path in shown.values()]
    sources = list(read_documents(found.test.source, found.test.format))
    references = list(read_documents(found.test.reference, found.test.format, "target"))
    differences = [_differing_sentences([each[n] for each in translations]) for n in range(len(sources))]
    chosen = differences.index(max(differences))
    source, reference = sources[chosen], references[chosen].sentences
    sides = [each[chosen].sentences for each in translations]
    rows = []
    for n in range(min(len(source), MAX_SENTENCES)):
        first, *others = [side[n] for side in sides]
        cells = [escape(first), *(_marked(other, first) for other in others)]
        rows.append([str(n + 1), escape(source.sentences[n]), *cells, escape(reference[n])])
    caption = f"Document {escape(source.id)}"
    if differences[chosen]:
        caption += (
            f": the systems differ in more of its first {MAX_SENTENCES} sentences than in any other's. "
            f"Marked: words that differ from {escape(next(iter(shown)))}"
        )
    header = ("", "source", *map(breakable, shown), "reference")
    return f"<h2>A document, translated by each</h2>\n{table(f'{caption}.', header, rows, left=len(header))}"


def _differing_sentences(translations: Sequence[Document]) -> int:
    sides = [document.sentences[:MAX_SENTENCES] for document in translations]
    return sum(len(set(sentences)) > 1 for sentences in zip(*sides, strict=True))


def _marked(text: str, first: str) -> str:
    return " ".join(
        f"<mark>{escape(word)}</mark>" if differs else escape(word)
        for word, differs in differing(text, first)
    )
