"""Translation and scoring from Python: `cotext.load` and `cotext.Translator`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument
from cotext.decoding.open import open_run
from cotext.decoding.published import local_folder
from cotext.decoding.translator import DocumentTranslator
from cotext.runtime.errors import CotextError


class Translator:
    """A trained system, ready to translate and score whole documents."""

    def __init__(self, documents: DocumentTranslator, signature: str) -> None:
        self.documents = documents
        self.signature = signature

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Translate the sentences of one document; as many come back, in order.

        Raises:
            CotextError: one string instead of several, or a sentence longer than `decode.max_source_tokens`.
        """
        return list(self.translate_document(Document("1", _several(sentences, "translate"))).sentences)

    def translate_document(self, document: Document) -> Document:
        """Translate a document; the result has its id and as many sentences."""
        if not document.sentences:
            return document
        self.documents.check([document])
        [(_, translation)] = self.documents.translate([document])
        return translation.document

    def translate_documents(self, documents: Iterable[Document]) -> list[Document]:
        """Translate many documents, which share batches; they come back in the order given, with their ids.

        As fast as `cotext translate`; each as `translate_document` translates it.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`, before any is translated.
        """
        given = list(documents)
        filled = [index for index, document in enumerate(given) if document.sentences]
        self.documents.check(given[index] for index in filled)
        found = list(given)
        for number, translation in self.documents.translate(given[index] for index in filled):
            found[filled[number]] = translation.document
        return found

    def score(self, source: Sequence[str], target: Sequence[str]) -> list[float]:
        """Log-probability (natural logarithm) of every target sentence of one document, in its context.

        Raises:
            CotextError: one string instead of several, unequal numbers of sentences, a source sentence longer
                than `decode.max_source_tokens`, or a target sentence over the length limit of any output.
        """
        document = ParallelDocument("1", _several(source, "score"), _several(target, "score"))
        return [s.log_probability for s in self.documents.score([document])[0]] if document.source else []


def load(run: str | Path, device: str | None = None, **decode: Any) -> Translator:
    """Open a run folder or an engine; `decode` overrides settings such as beam=1.

    Where there is no folder `owner/name` here, that is a repository of the Hugging Face hub.

    Raises:
        CotextError: no such run, a damaged or foreign model file, an unknown setting.
    """
    opened = open_run(local_folder(run), device, decode)
    return Translator(opened.translator, opened.signature)


def _several(sentences: Sequence[str], verb: str) -> tuple[str, ...]:
    """The sentences as a tuple; a single string, which is a sequence of strings too, is refused."""
    if isinstance(sentences, str):
        raise CotextError(
            f"{verb}: takes the sentences of a document, as in [{sentences[:30]!r}], not a single string"
        )
    kept = tuple(sentences)
    for number, sentence in enumerate(kept, start=1):
        if not isinstance(sentence, str):
            raise CotextError(f"{verb}: sentence {number} is not a string, but {type(sentence).__name__}")
    return kept
