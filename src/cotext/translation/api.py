"""Translation and scoring from Python: `cotext.load` and `cotext.Translator`."""

from collections.abc import Iterable, Mapping, Sequence

from cotext.data.documents import Document, ParallelDocument
from cotext.runtime import CotextError
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
        """Translate the sentences of one document; the result has the same number, in order.

        `glossary`: source terms with one or more translations each; sentences with a term contain one of its
        translations.

        Raises:
            CotextError: a string instead of a sequence of sentences, a sentence longer than
                `decode.max_source_tokens`, a glossary for a system that does not support it.
        """
        document = Document("1", _several(sentences, "translate"))
        return list(self.translate_document(document, glossary).sentences)

    def translate_document(self, document: Document, glossary: Terms | None = None) -> Document:
        """Translate a document like `translate`; the result has the same id and number of sentences."""
        [translated] = self.translate_documents([document], glossary)
        return translated

    def translate_documents(
        self, documents: Iterable[Document], glossary: Terms | None = None
    ) -> list[Document]:
        """Translate documents in shared batches; they are returned in the given order, with their ids.

        This is as fast as `cotext translate`; each result equals the result of `translate_document`.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`, before any is translated, or a
                glossary for a system that does not support it.
        """
        given = list(documents)
        filled = [index for index, document in enumerate(given) if document.sentences]
        self.documents.check(given[index] for index in filled)
        results = list(given)
        guide = None
        if glossary is not None:
            terms = glossary if isinstance(glossary, Glossary) else Glossary.of(glossary)
            guide = TermGuide([given[index].sentences for index in filled], terms)
        for number, translation in self.documents.translate((given[i] for i in filled), guide=guide):
            results[filled[number]] = translation.document
        return results

    def score(self, source: Sequence[str], target: Sequence[str]) -> list[float]:
        """Return the log-probability (natural logarithm) of every target sentence of a document, in its
        context.

        Raises:
            CotextError: a string instead of a sequence of sentences, or unequal numbers of sentences.
                Also a source over `decode.max_source_tokens`, or a target over the length limit of outputs.
        """
        document = ParallelDocument("1", _several(source, "score"), _several(target, "score"))
        return [s.log_probability for s in self.documents.score([document])[0]] if document.source else []


def _several(sentences: Sequence[str], verb: str) -> tuple[str, ...]:
    """Return the sentences as a tuple; reject a single string, which is also a sequence of strings."""
    if isinstance(sentences, str):
        raise CotextError(
            f"{verb}: needs a list of sentences, such as [{sentences[:30]!r}], not a single string"
        )
    result = tuple(sentences)
    for number, sentence in enumerate(result, start=1):
        if not isinstance(sentence, str):
            raise CotextError(f"{verb}: sentence {number} is not a string, but {type(sentence).__name__}")
    return result
