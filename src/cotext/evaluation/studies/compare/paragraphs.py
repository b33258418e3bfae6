"""The test set of a comparison where its lines are paragraphs, as those of WMT: split into sentences.

Systems are trained on sentences, and a paragraph that is translated as one is translated badly by all.
"""

from pathlib import Path

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.formats.wmt import read_wmt_lines
from cotext.data.languages import Languages
from cotext.data.splitting import Splitting
from cotext.evaluation.metrics.paragraphs import Texts, split_paragraphs
from cotext.evaluation.studies.compare.measured import EvaluationSet


def is_of_paragraphs(test: EvaluationSet) -> bool:
    """Whether the sentences of a test set are paragraphs by its format."""
    return test.kind.partition(":")[0] == "wmt"


def notes_on_instructions(test: EvaluationSet, has_language_models: bool) -> list[str]:
    """What is to be said of the instructions of a test set of paragraphs.

    They are written for whole documents with their markup, and for language models alone. Here all systems
    see the same sentences and nothing else, in translations as in scores.
    """
    lines = read_wmt_lines(test.source, test.kind.partition(":")[2]) if has_language_models else ()
    if not (count := sum(bool(line.instruction) for line in lines)):
        return []
    return [
        f"Instructions of {count} documents are not handed on to language models, as all systems see the "
        "same sentences here; `cotext translate` does."
    ]


def split_test_set(test: EvaluationSet, languages: Languages, out: Path) -> tuple[EvaluationSet, str]:
    """Write a test set a sentence a line, where both sides of a paragraph have equally many; and say so."""
    pairs = test.documents()
    sides = ([Document(p.id, p.source) for p in pairs], [Document(p.id, p.target) for p in pairs])
    by = Splitting()
    texts, counts = split_paragraphs(
        Texts({}, [sides[1]], sides[0]), by.splitter(languages.target), by.splitter(languages.source)
    )
    written = (
        ParallelDocument(source.id, source.sentences, target.sentences)
        for source, target in zip(texts.source, texts.references[0], strict=True)
    )
    write_parallel(out, None, written, "jsonl")
    return EvaluationSet(out, out, "jsonl"), f"The test set has paragraphs ({out}): {counts.render()}."
