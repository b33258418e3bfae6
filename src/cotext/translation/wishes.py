"""What a person asks of translations beside their text: terms, words to keep, a memory."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError
from cotext.translation.requests import Wished
from cotext.translation.terms.glossary import Glossary, TranslationMemory, read_words
from cotext.translation.terms.terms import TermGuide, TermReport, term_report
from cotext.translation.translator import DocumentTranslator


@dataclass(frozen=True, slots=True)
class Wishes:
    """A glossary, words that are not translated, and a memory.

    A memory is for files of blocks.
    """

    glossary: Glossary | None = None
    keep: tuple[str, ...] = ()
    memory: TranslationMemory | None = None

    @property
    def of_terms(self) -> bool:
        """Whether there are terms or words to keep."""
        return bool(self.glossary or self.keep)

    @property
    def settings(self) -> str:
        """What tells these from others; empty where nothing is asked."""
        asked = self.of_terms or self.memory is not None
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16] if asked else ""

    def check(self, translator: DocumentTranslator) -> None:
        """Raise CotextError where the search of a system keeps no terms."""
        if self.of_terms and not translator.takes_guides:
            raise CotextError(
                "a glossary and words to keep need a system that writes from left to right "
                "and decode.align = constrained; leave them out, or take another run"
            )

    def guide(
        self,
        translator: DocumentTranslator,
        documents: Sequence[Sequence[str]],
        copied: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> TermGuide | None:
        """The constraints of documents, given as sentences; None where none are asked, or can be kept."""
        asked = self.of_terms or any(texts for document in copied or () for texts in document)
        if not asked or not translator.takes_guides:
            return None
        return TermGuide(
            documents,
            self.glossary,
            keep=self.keep,
            copied=copied,
        )

    def report(self, guide: TermGuide | None, translations: Mapping[int, Sequence[str]]) -> TermReport | None:
        """The term accuracy of translations; None where no term was asked for."""
        return term_report(guide, translations) if self.of_terms and guide is not None else None


def read_wishes(languages: Languages, request: Wished) -> Wishes:
    """Read what is asked from files.

    Raises:
        CotextError: a file that cannot be read so.
    """
    glossary, keep, memory = request.glossary, request.keep, request.memory
    return Wishes(
        Glossary.read(glossary, languages.source, languages.target) if glossary is not None else None,
        read_words(keep) if keep is not None else (),
        TranslationMemory.read(memory, languages) if memory is not None else None,
    )
