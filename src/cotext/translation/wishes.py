"""Constraints of a user on translations: glossary terms, words to keep, and a translation memory."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotext.data.languages import Languages
from cotext.translation.requests import Wished
from cotext.translation.terms.glossary import Glossary, TranslationMemory, read_words
from cotext.translation.terms.terms import TermGuide, TermReport, term_report
from cotext.translation.translator import DocumentTranslator


@dataclass(frozen=True, slots=True)
class Wishes:
    """A glossary, words to leave untranslated, and a translation memory.

    A translation memory can be used only for files such as DOCX or HTML, not for corpora.
    """

    glossary: Glossary | None = None
    keep: tuple[str, ...] = ()
    memory: TranslationMemory | None = None

    @property
    def of_terms(self) -> bool:
        return bool(self.glossary or self.keep)

    @property
    def settings(self) -> str:
        """A hash that identifies these constraints; empty if there are none."""
        has_any = self.of_terms or self.memory is not None
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16] if has_any else ""

    def check(self, translator: DocumentTranslator) -> None:
        """Raise CotextError if there are terms and the system does not support terms."""
        if self.of_terms:
            translator.require_guides()

    def guide(
        self,
        translator: DocumentTranslator,
        documents: Sequence[Sequence[str]],
        copied: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> TermGuide | None:
        """Return the constraints for documents (lists of sentences); None if there are none.

        Also return None if the system does not support them.
        """
        # Copied texts, such as placeholders, are constraints even without a glossary.
        has_any = self.of_terms or any(texts for document in copied or () for texts in document)
        if not has_any or not translator.takes_guides:
            return None
        return TermGuide(documents, self.glossary, keep=self.keep, copied=copied)

    def report(self, guide: TermGuide | None, translations: Mapping[int, Sequence[str]]) -> TermReport | None:
        """Return the term accuracy of translations; None without terms."""
        return term_report(guide, translations) if self.of_terms and guide is not None else None


def read_wishes(languages: Languages, request: Wished) -> Wishes:
    """Read the files of a request; raise CotextError for a file that cannot be read."""
    glossary, keep, memory = request.glossary, request.keep, request.memory
    return Wishes(
        Glossary.read(glossary, languages.source, languages.target) if glossary is not None else None,
        read_words(keep) if keep is not None else (),
        TranslationMemory.read(memory, languages) if memory is not None else None,
    )
