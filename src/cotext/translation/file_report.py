"""The report of a translated file, and the documents of a corpus, from which it is counted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cotext.data.documents import Document, ParallelDocument
from cotext.translation.dropped import DroppedContent, dropped
from cotext.translation.terms.terms import TermReport
from cotext.translation.translator import OF_SENTENCES, Translation


@dataclass(slots=True)
class FileReport:
    """Counts of a translated file, and its sentences that a person should look at.

    Those are named as `document:sentence`, and in files that are no corpus by their places. `messages` say
    what of the file was not translated, and how it was read.
    """

    format: str = ""
    documents: int = 0
    sentences: int = 0
    resumed_documents: int = 0
    recovered_documents: int = 0
    recovered_pieces: int = 0
    pieces: int = 0
    piece: str = "windows"  # what they are called
    align: str = "constrained"
    truncated: list[str] = field(default_factory=list)  # at the length limit
    long: list[str] = field(default_factory=list)  # longer than the training data
    shed: list[str] = field(default_factory=list)  # with less context than the view has
    missing: list[str] = field(default_factory=list)  # without text, in free search alone
    resegmented: list[str] = field(default_factory=list)  # in other subwords than their text
    signature: str = ""
    messages: list[str] = field(default_factory=list)
    is_corpus: bool = True
    terms: TermReport | None = None  # where a glossary was given, or the like
    taken: int = 0  # sentences from a translation memory
    dropped: DroppedContent = field(default_factory=DroppedContent)
    lists: str = ""  # file with the lists of translations, where such are made
    scored: bool = True  # False with decode.scores = false

    @property
    def places(self) -> str:
        """What the names of its sentences are."""
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
    """Source and translation, in input order; fills the report."""
    for document, translation in zip(documents, translations, strict=True):
        places = [f"{document.id}:{j + 1}" for j in range(len(document))]
        report.count(translation, places)
        report.sentences += len(document)
        report.scored &= bool(translation.log_probabilities)
        # A sentence without a visible character has no translation and is copied, which fits the format. One
        # that the model left out stays empty, so that it can be seen.
        target = tuple(
            t if t or j in translation.missing else s
            for j, (s, t) in enumerate(zip(document.sentences, translation.document.sentences, strict=True))
        )
        for place, own, written in zip(places, document.sentences, target, strict=True):
            report.dropped.add(place, dropped(own, written))
        yield ParallelDocument(document.id, document.sentences, target)
