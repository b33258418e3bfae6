"""Translation memory: sentences that were translated before in the same context.

A sentence is taken where the memory has it behind the same sentence, white space aside: elsewhere the same
words may have to be said otherwise. Where it is the first of its document, it has to be the first there, too.
Of several translations in one context, the last counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotext.data.formats.xml_formats import DOCUMENT, pairs
from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError

START = None  # the context of the first sentence of a document


@dataclass(slots=True)
class TranslationMemory:
    """Translations by source sentence and the sentence before it; `units` counts them."""

    units: int = 0
    _found: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, languages: Languages) -> "TranslationMemory":
        """The memory of a TMX file.

        Raises:
            CotextError: it cannot be read, or has no unit in both languages.
        """
        if not languages.source or not languages.target:
            raise CotextError(
                f"{path}: which languages of the memory to take is not known, as those of the run are not"
            )
        memory = cls.of(
            (source, target, properties.get(DOCUMENT, ""))
            for source, target, properties in pairs(path, languages.source, languages.target)
        )
        if not memory.units:
            raise CotextError(
                f"{path}: no unit in {languages.source} and {languages.target}; give a memory that has both"
            )
        return memory

    @classmethod
    def of(cls, sentences: Iterable[tuple[str, str, str]]) -> "TranslationMemory":
        """The memory of sentence pairs in order, each with the name of its document."""
        memory = cls()
        before: str | None = START
        of_document: str | None = None
        for source, target, document in sentences:
            if document != of_document:
                before, of_document = START, document
            text = _normal(source)
            if text and target.strip():
                memory._found[text, before] = " ".join(target.split())
                memory.units += 1
            before = text
        return memory

    def lookup(self, source: str, previous_source: str | None) -> str | None:
        """The translation of a sentence behind this one (None: it is the first of its document), if any."""
        before = START if previous_source is None else _normal(previous_source)
        return self._found.get((_normal(source), before))

    def taken(self, documents: Iterable[Sequence[str]]) -> Mapping[int, Mapping[int, str]]:
        """The sentences of documents that the memory has, by document and sentence."""
        found = {index: dict(self._of_document(sentences)) for index, sentences in enumerate(documents)}
        return {index: of_document for index, of_document in found.items() if of_document}

    def _of_document(self, sentences: Sequence[str]) -> Iterator[tuple[int, str]]:
        for j, source in enumerate(sentences):
            target = self.lookup(source, sentences[j - 1] if j else START)
            if target is not None:
                yield j, target


def _normal(text: str) -> str:
    """A text whose white space is single spaces between words."""
    return " ".join(text.split())
