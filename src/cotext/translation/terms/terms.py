"""Terms of documents: where they occur in the source, and the constraints that follow for translations.

A term is found where its words stand one after the other: the longest first, none over another, and none
within copied text. A word is found as it is written; at the beginning of a sentence with a capital; in
capitals, where all of it is.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cotext.data.words import Word, covered, occurrences, overlaps, words_of
from cotext.search.guide import SentenceConstraints
from cotext.translation.terms.glossary import Glossary, Term

__all__ = ["Glossary", "Occurrence", "Term", "TermGuide"]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A term in a sentence, with the text that stands there."""

    term: Term
    text: str
    start: int


class TermGuide:
    """The constraints of documents from a glossary, words to keep, and copied texts.

    `documents` are the sentences as the model reads them, in the order in which they are translated;
    `copied[document][sentence]` the texts copied in each, as the model reads them. Words of `keep` are not
    translated.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        glossary: Glossary | None = None,
        *,
        keep: Sequence[str] = (),
        copied: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> None:
        self._documents = documents
        self._copied = copied
        self._finder = _Finder(glossary.terms if glossary else (), keep)
        self._occurrences = [
            [self._finder.found(text, self._copied_in(d, s)) for s, text in enumerate(sentences)]
            for d, sentences in enumerate(documents)
        ]

    def occurrences(self, document: int, sentence: int) -> Sequence[Occurrence]:
        """The terms in a sentence of the source."""
        return self._occurrences[document][sentence]

    def alternatives(self, occurrence: Occurrence) -> tuple[str, ...]:
        """The texts of which a translation of an occurrence holds one; empty: any text does."""
        return self._finder.alternatives(occurrence, occurrence.term.targets)

    def forbidden(self, occurrence: Occurrence) -> tuple[str, ...]:
        """The texts that a translation of its sentence does not hold."""
        return self._finder.alternatives(occurrence, occurrence.term.forbidden)

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """As `Guide.constraints`."""
        required: list[tuple[str, ...]] = []
        places: list[tuple[int, int]] = []
        forbidden: dict[str, None] = {}
        source, copied = self._documents[document][sentence], self._copied_in(document, sentence)
        for found in self._occurrences[document][sentence]:
            if alternatives := self.alternatives(found):
                required.append(alternatives)
                places.append((found.start, found.start + len(found.text)))
            forbidden.update(dict.fromkeys(self.forbidden(found)))
        wanted = set(itertools.chain.from_iterable(required))
        return SentenceConstraints(
            tuple(required),
            tuple(text for text in forbidden if text not in wanted),
            tuple(copied),
            (*places, *_places(source, copied)),
        )

    def _copied_in(self, document: int, sentence: int) -> Sequence[str]:
        return self._copied[document][sentence] if self._copied is not None else ()


def _places(text: str, copied: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The spans of copied texts in a source that holds each so often, one of equal ones after the other."""
    after: dict[str, int] = {}
    for own in copied:
        start = text.find(own, after.get(own, 0))
        after[own] = start + len(own)
        yield start, start + len(own)


class _Finder:
    """Terms by the words that they begin with."""

    def __init__(self, terms: Iterable[Term], keep: Sequence[str]) -> None:
        self._kept = frozenset(keep)
        self._by_first: dict[str, list[tuple[list[str], Term]]] = {}
        for term in (*terms, *(Term(text, (text,)) for text in keep)):
            words = [word.text for word in words_of(term.source)]
            if words:
                self._by_first.setdefault(words[0].casefold(), []).append((words, term))
        for listed in self._by_first.values():
            listed.sort(key=lambda entry: -len(entry[0]))

    def found(self, text: str, copied: Collection[str]) -> list[Occurrence]:
        """The terms in a sentence, from left to right."""
        words = words_of(text)
        spans = covered(text, copied)
        found: list[Occurrence] = []
        place = 0
        while place < len(words):
            listed = self._by_first.get(words[place].text.casefold(), ())
            for own, term in listed:
                run = words[place : place + len(own)]
                if len(run) == len(own) and self._matches(term, own, run, text, place == 0):
                    start, stop = run[0].start, run[-1].stop
                    if not overlaps(spans, start, stop):
                        found.append(Occurrence(term, text[start:stop], start))
                        place += len(own) - 1
                        break
            place += 1
        return found

    def alternatives(self, occurrence: Occurrence, targets: Sequence[str]) -> tuple[str, ...]:
        """The forms of translations that fit an occurrence: in capitals too, or with one in front."""
        text = occurrence.text
        if occurrence.term.source in self._kept:
            return (text,)
        capitals = len(text) > 1 and text.isupper() and not occurrence.term.source.isupper()
        found: dict[str, None] = {}
        for form in targets:
            if capitals:
                found[form.upper()] = None
            found[form] = None
            found[form[:1].upper() + form[1:]] = None  # it may open the sentence
        return tuple(found)

    def _matches(self, term: Term, own: Sequence[str], run: Sequence[Word], text: str, opens: bool) -> bool:
        """Whether words of a sentence are those of a term, with the same spaces between them."""
        spaced = [word.start > before.stop for before, word in itertools.pairwise(run)]
        wanted = words_of(term.source)
        if spaced != [word.start > before.stop for before, word in itertools.pairwise(wanted)]:
            return False
        if term.source in self._kept:
            return text[run[0].start : run[-1].stop] == term.source
        return all(
            self._is_word(word, found.text, opens and number == 0)
            for number, (word, found) in enumerate(zip(own, run, strict=True))
        )

    def _is_word(self, word: str, found: str, opens: bool) -> bool:
        if found == word:
            return True
        if opens and found == word[:1].upper() + word[1:]:
            return True
        return len(found) > 1 and found.isupper() and found == word.upper()


# --- Term accuracy: which terms translations hold, counted on their text.


@dataclass(slots=True)
class TermReport:
    """Counts over translated documents.

    `required` occurrences of terms in the source, of which `met` have one of their translations in the same
    sentence; `forbidden` translations found there; `leaked`: translations of a term of the document, in
    sentences without that term, beyond those that the sentence's own terms ask for. Of the `repeated` terms,
    with several translations and in several sentences of a document, those are `consistent` that have the
    same one throughout. `copied` texts, of which `kept` appear exactly as often as asked. `unmet` has the
    indices of document and sentence.
    """

    required: int = 0
    met: int = 0
    forbidden: int = 0
    leaked: int = 0
    repeated: int = 0
    consistent: int = 0
    copied: int = 0
    kept: int = 0
    unmet: list[tuple[int, int]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of required occurrences that are met; 1 where there are none."""
        return self.met / self.required if self.required else 1.0

    def __str__(self) -> str:
        parts = ["terms: none in the source"]
        if self.required:
            parts = [f"terms: {self.met:,} of {self.required:,} kept ({self.accuracy:.1%})"]
        if self.required or self.forbidden or self.leaked:
            parts.append(f"forbidden translations: {self.forbidden:,}")
            parts.append(f"in sentences without the term: {self.leaked:,}")
        if self.repeated:
            parts.append(f"consistent: {self.consistent:,} of {self.repeated:,} repeated terms")
        if self.copied:
            parts.append(f"copied text: {self.kept:,} of {self.copied:,}")
        return "; ".join(parts)


def term_report(guide: TermGuide, translations: Mapping[int, Sequence[str]]) -> TermReport:
    """The term accuracy of translated sentences, by index of their document."""
    report = TermReport()
    for document, sentences in translations.items():
        chosen: dict[str, list[str]] = {}
        alternatives = {
            o.term.source: guide.alternatives(o)
            for sentence in range(len(sentences))
            for o in guide.occurrences(document, sentence)
        }
        for sentence, text in enumerate(sentences):
            wanted = guide.constraints(document, sentence)
            _count(report, wanted, text, (document, sentence))
            own = {form for group in wanted.required for form in group}
            others = {form for forms in alternatives.values() for form in forms} - own
            report.leaked += sum(phrase in others for _, phrase in occurrences(text, [*others, *own]))
            for occurrence in guide.occurrences(document, sentence):
                if len(occurrence.term.targets) > 1:
                    targets = {t.casefold(): t for t in occurrence.term.targets}
                    found = [phrase for _, phrase in occurrences(text, guide.alternatives(occurrence))]
                    chosen.setdefault(occurrence.term.source, []).append(
                        targets.get(found[0].casefold(), found[0]) if found else ""
                    )
        several = [renderings for renderings in chosen.values() if len(renderings) > 1]
        report.repeated += len(several)
        report.consistent += sum(len(set(renderings)) == 1 and "" not in renderings for renderings in several)
    return report


def _count(report: TermReport, wanted: SentenceConstraints, text: str, place: tuple[int, int]) -> None:
    met = 0
    for group, need in Counter(wanted.required).items():
        met += min(need, sum(1 for _ in occurrences(text, group)))
    report.required += len(wanted.required)
    report.met += met
    everything = [form for group in wanted.required for form in group]
    found = (phrase for _, phrase in occurrences(text, [*wanted.forbidden, *everything]))
    report.forbidden += sum(phrase in wanted.forbidden for phrase in found)
    copied = Counter(wanted.copied)
    standing = Counter(phrase for _, phrase in occurrences(text, list(copied)))
    kept = sum(need for copy, need in copied.items() if standing[copy] == need)
    report.copied += sum(copied.values())
    report.kept += kept
    if met < len(wanted.required) or kept < len(wanted.copied):
        report.unmet.append(place)
