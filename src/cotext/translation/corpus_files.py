"""Reports, tables of scores and n-best lists of corpus files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument
from cotext.data.faults import checked
from cotext.data.formats.line_formats import find_side_file
from cotext.data.formats.streams import atomic_sinks, check_readable
from cotext.data.nbest_lists import ListedDocument, finite, lists_beside, write_documents
from cotext.runtime import CotextError, shown
from cotext.runtime.files import checksum
from cotext.translation.scorer import SentenceScore
from cotext.translation.terms.terms import TermReport
from cotext.translation.translator import OF_SENTENCES, Translation

COLUMNS = ("document", "sentence", "log_probability", "tokens")
ScoredDocument = tuple[str, list[SentenceScore]]  # its id, and a score for every sentence


def require_column(document: str) -> None:
    """Raise CotextError for a document id with a tab or a line break, which would end a column or line."""
    if any(c in document for c in "\t\n\r"):
        raise CotextError(
            f"document id {shown(document)} contains a tab or a line break, which would shift the columns of "
            "the table; rename the document, or use `cotext score --json`"
        )


def score_lines(documents: Iterable[ScoredDocument]) -> Iterator[str]:
    """Yield the lines of a table with tabs between columns: a heading, then one line per sentence."""
    yield "\t".join(COLUMNS)
    for document, scores in documents:
        require_column(document)
        for number, score in enumerate(scores, start=1):
            yield f"{document}\t{number}\t{score.log_probability:.6f}\t{score.tokens}"


def score_figures(documents: Iterable[ScoredDocument], signature: str) -> dict[str, Any]:
    """Return scores as JSON content; a probability of 0, possible in non-autoregressive models, is None."""
    listed = [
        {
            "id": document,
            "log_probabilities": [finite(score.log_probability) for score in scores],
            "tokens": [score.tokens for score in scores],
        }
        for document, scores in documents
    ]
    return {"format": "cotext-scores", "version": 1, "signature": signature, "documents": listed}


def write_scores(path: Path, translations: Iterable[Translation]) -> None:
    """Write the log-probabilities of the output tokens of every sentence."""
    documents = (
        (t.document.id, list(map(SentenceScore, t.log_probabilities, t.tokens))) for t in translations
    )
    with atomic_sinks([path]) as [sink]:
        for line in score_lines(documents):
            sink.write(f"{line}\n")


def write_lists(
    out: Path,
    pairs: Iterable[ParallelDocument],
    translations: Iterable[Translation],
    nbest: int,
    signature: str,
) -> None:
    """Write the n-best lists of a translated corpus; `pairs`: its source and the written output.

    Sentences without text are not translated. Their list has one entry, the output line.
    """
    sides = ((p.id, zip(p.target, t.lists, strict=True)) for p, t in zip(pairs, translations, strict=True))
    documents = (
        ListedDocument(id, tuple((first._replace(text=text), *others) for text, (first, *others) in lists))
        for id, lists in sides
    )
    with atomic_sinks([lists_beside(out)]) as [sink]:
        write_documents(sink, documents, nbest, f"{signature}|nbest:{nbest}")


def checksums_of(paths: Iterable[Path], format: str | None) -> list[str]:
    """Return the SHA-256 of corpus files and their side files; raise CotextError if one is not regular."""
    checksums = []
    for path in paths:
        check_readable(path)
        if not path.is_file():
            raise CotextError(
                f"{path}: is not a regular file, but must be read more than once; copy it to a regular file"
            )
        side_file = find_side_file(path) if format in (None, "docids") else None
        checksums += [checksum(file) for file in (path, side_file) if file is not None]
    return checksums


# --- The report of a translated file, and the translated documents of a corpus, which are counted in it.


@dataclass(slots=True)
class FileReport:
    """Counts of a translated file, and its sentences that a person should check.

    Sentences are named `document:sentence`, or by their place in files that are not a corpus. `messages`
    state what was not translated and how the file was read.
    """

    format: str = ""
    documents: int = 0
    sentences: int = 0
    resumed_documents: int = 0
    recovered_documents: int = 0
    recovered_pieces: int = 0
    pieces: int = 0
    piece: str = "windows"  # name of the pieces in messages
    align: str = "constrained"
    truncated: list[str] = field(default_factory=list)  # at the length limit
    long: list[str] = field(default_factory=list)  # longer than any sentence used in training
    shed: list[str] = field(default_factory=list)  # with less context than the view allows
    missing: list[str] = field(default_factory=list)  # without text; only in free search
    resegmented: list[str] = field(default_factory=list)  # with subwords that differ from the tokenizer's
    signature: str = ""
    messages: list[str] = field(default_factory=list)
    is_corpus: bool = True
    terms: TermReport | None = None  # only with a glossary or words to keep
    taken: int = 0  # sentences from a translation memory
    faults: dict[str, list[str]] = field(default_factory=dict)  # places by kind of fault
    lists: str = ""  # file with n-best lists, if any
    scored: bool = True  # False with decode.scores = false

    @property
    def places(self) -> str:
        """The words before names of sentences in messages."""
        return "document:sentence" if self.is_corpus else "at"

    def count(self, translation: Translation, places: Sequence[str]) -> None:
        """Count the translation of a document; `places` are the names of its sentences."""
        self.documents += 1
        self.recovered_documents += translation.recovered
        self.recovered_pieces += sum(translation.pieces)
        self.pieces += len(translation.pieces)
        for name in OF_SENTENCES:
            getattr(self, name).extend(places[j] for j in getattr(translation, name))


def paired(document: Document, translation: Translation) -> ParallelDocument:
    """Return source and translation of a document, as they are written."""
    # A sentence without visible characters is copied. One that the model omitted stays empty.
    sides = zip(document.sentences, translation.document.sentences, strict=True)
    target = (t if t or j in translation.missing else s for j, (s, t) in enumerate(sides))
    return ParallelDocument(document.id, document.sentences, tuple(target))


def reported(
    documents: Iterable[Document],
    translations: Iterable[Translation],
    report: FileReport,
    languages: tuple[str, str],
) -> Iterator[ParallelDocument]:
    """Yield source and translation of documents, in input order, and fill the report."""

    def counted() -> Iterator[ParallelDocument]:
        for document, translation in zip(documents, translations, strict=True):
            report.count(translation, [f"{document.id}:{j + 1}" for j in range(len(document))])
            report.sentences += len(document)
            report.scored &= bool(translation.log_probabilities)
            yield paired(document, translation)

    return checked(counted(), languages, report.faults)
