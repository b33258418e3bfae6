"""The report of a translated file, and the translated documents of a corpus, which are counted in it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cotext.data.documents import Document, ParallelDocument
from cotext.translation.faults import checked
from cotext.translation.terms.terms import TermReport
from cotext.translation.translator import OF_SENTENCES, Translation


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
    piece: str = "windows"  # their name in messages
    align: str = "constrained"
    truncated: list[str] = field(default_factory=list)  # at the length limit
    long: list[str] = field(default_factory=list)  # longer than the training data
    shed: list[str] = field(default_factory=list)  # with less context than the view allows
    missing: list[str] = field(default_factory=list)  # without text; only in free search
    resegmented: list[str] = field(default_factory=list)  # with subwords that differ from the tokenizer's
    signature: str = ""
    messages: list[str] = field(default_factory=list)
    is_corpus: bool = True
    terms: TermReport | None = None  # with terms or words to keep
    taken: int = 0  # sentences from a translation memory
    faults: dict[str, list[str]] = field(default_factory=dict)  # places by kind of fault
    lists: str = ""  # file with n-best lists, if any
    scored: bool = True  # False with decode.scores = false

    @property
    def places(self) -> str:
        """The kind of names that its sentences have."""
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
