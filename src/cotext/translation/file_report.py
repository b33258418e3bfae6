"""The report of a translated file, and the translated documents of a corpus, which are counted in it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cotext.data.documents import Document, ParallelDocument
from cotext.translation.dropped import DroppedContent, dropped
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
    dropped: DroppedContent = field(default_factory=DroppedContent)
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


def paired_documents(
    documents: Iterable[Document], translations: Iterable[Translation], report: FileReport
) -> Iterator[ParallelDocument]:
    """Yield source and translation of documents, in input order, and fill the report."""
    for document, translation in zip(documents, translations, strict=True):
        places = [f"{document.id}:{j + 1}" for j in range(len(document))]
        report.count(translation, places)
        report.sentences += len(document)
        report.scored &= bool(translation.log_probabilities)
        # A sentence without visible characters is copied. One that the model omitted stays empty.
        target = tuple(
            t if t or j in translation.missing else s
            for j, (s, t) in enumerate(zip(document.sentences, translation.document.sentences, strict=True))
        )
        for place, source, written in zip(places, document.sentences, target, strict=True):
            report.dropped.add(place, dropped(source, written))
        yield ParallelDocument(document.id, document.sentences, target)
