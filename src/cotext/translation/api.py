"""Translation and scoring from Python: `cotext.load` and `cotext.Translator`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument
from cotext.runtime.errors import CotextError
from cotext.runtime.own_code import trusting
from cotext.translation.open import open_run
from cotext.translation.terms.glossary import Glossary
from cotext.translation.terms.terms import TermGuide
from cotext.translation.translator import DocumentTranslator

Terms = Glossary | Mapping[str, str | Sequence[str]]


class Translator:
    """A trained system, ready to translate and score whole documents."""

    def __init__(self, documents: DocumentTranslator, signature: str) -> None:
        self.documents = documents
        self.signature = signature

    def translate(self, sentences: Sequence[str], glossary: Terms | None = None) -> list[str]:
        """Translate the sentences of one document; as many come back, in order.

        `glossary`: source terms and the translation, or translations, of each, which the sentences with these
        terms then hold; the first translation chosen of several stays that of the document.

        Raises:
            CotextError: one string instead of several, a sentence longer than `decode.max_source_tokens`, a
                glossary for a system that cannot keep it.
        """
        document = Document("1", _several(sentences, "translate"))
        return list(self.translate_document(document, glossary).sentences)

    def translate_document(self, document: Document, glossary: Terms | None = None) -> Document:
        """Translate a document; the result has its id and as many sentences. As `translate`."""
        [translated] = self.translate_documents([document], glossary)
        return translated

    def translate_documents(
        self, documents: Iterable[Document], glossary: Terms | None = None
    ) -> list[Document]:
        """Translate many documents, which share batches; they come back in the order given, with their ids.

        As fast as `cotext translate`; each as `translate_document` translates it.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`, before any is translated, or a
                glossary for a system that cannot keep it.
        """
        given = list(documents)
        filled = [index for index, document in enumerate(given) if document.sentences]
        self.documents.check(given[index] for index in filled)
        found = list(given)
        guide = None
        if glossary is not None:
            terms = glossary if isinstance(glossary, Glossary) else Glossary.of(glossary)
            guide = TermGuide([given[index].sentences for index in filled], terms)
        for number, translation in self.documents.translate((given[i] for i in filled), guide=guide):
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


def load(
    run: str | Path, device: str | None = None, *, trust_code: bool = False, **decode: Any
) -> Translator:
    """Open a run folder or an engine; as `cotext.load`, which takes names of models, too."""
    with trusting(trust_code):
        opened = open_run(Path(run), device, decode)
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
