"""Terms of documents: their occurrences in the source, and constraints on the translations of sentences.

A term occurs where its words follow each other. The longest term counts; occurrences do not overlap, and are
not in copied text. A word matches as it is written, with a capital at the beginning of a sentence, or in
capitals.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cotext.data.words import Word, covered, occurrences, overlaps, words_of
from cotext.translation.terms.glossary import Glossary, Term

Phrases = tuple[str, ...]  # alternatives of a term


class Defects(NamedTuple):
    """The constraints that a translation does not meet.

    `missing`: alternatives of a phrase, and its span in the source. `surplus`: copied texts, once for every
    occurrence that is one too many. `forbidden`: phrases and their offsets.
    """

    missing: list[tuple[Phrases, tuple[int, int]]]
    surplus: list[str]
    forbidden: list[tuple[int, str]]

    @property
    def miscounted(self) -> int:
        """The number of missing and surplus phrases."""
        return len(self.missing) + len(self.surplus)

    @property
    def total(self) -> int:
        return self.miscounted + len(self.forbidden)


@dataclass(frozen=True, slots=True)
class SentenceConstraints:
    """What the translation of one sentence must contain; empty: no constraints.

    `required`: for each occurrence of a term in the source, alternatives of which one must appear; a term
    that occurs twice is listed twice. `forbidden` phrases must not appear, except within a required or copied
    one. `copied` texts must appear exactly as often as they are listed. `places`: for each entry of
    `required`, then of `copied`, the span of characters in the source that it translates.

    Phrases are exact strings and whole words.
    """

    required: tuple[Phrases, ...] = ()
    forbidden: Phrases = ()
    copied: Phrases = ()
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def spelled(self, spell: Callable[[str], str]) -> "SentenceConstraints":
        """Return the constraints in another spelling, without the phrases for which it is empty."""
        spelled = [tuple(filter(None, map(spell, phrases))) for phrases, _ in self.wanted]
        kept = [i for i, phrases in enumerate(spelled) if phrases]
        return SentenceConstraints(
            tuple(spelled[i] for i in kept if i < len(self.required)),
            tuple(filter(None, map(spell, self.forbidden))),
            tuple(spelled[i][0] for i in kept if i >= len(self.required)),
            tuple(self.places[i] for i in kept),
        )

    @property
    def wanted(self) -> list[tuple[Phrases, tuple[int, int]]]:
        """The phrases that must appear, and their spans in the source."""
        return list(zip([*self.required, *((copy,) for copy in self.copied)], self.places, strict=True))

    def defects(self, text: str) -> Defects:
        """Compare a translation with the constraints."""
        counts = {phrases: sum(1 for _ in occurrences(text, phrases)) for phrases in set(self.required)}
        # A copied text may be part of another one: the longest counts.
        copies = Counter(copy for _, copy in occurrences(text, self.copied))
        counts |= {(copy,): copies[copy] for copy in self.copied}
        missing = []
        for phrases, span in self.wanted:
            counts[phrases] -= 1
            if counts[phrases] < 0:
                missing.append((phrases, span))
        surplus = [copy for copy in dict.fromkeys(self.copied) for _ in range(counts[copy,])]
        allowed = {phrase for phrases, _ in self.wanted for phrase in phrases}
        found = occurrences(text, [*self.forbidden, *allowed]) if self.forbidden else ()
        forbidden = [place for place in found if place[1] not in allowed]
        return Defects(missing, surplus, forbidden)


class Guide(Protocol):
    """The constraints of all sentences of documents that are translated together."""

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """Return the constraints of a sentence, both indices from 0 in input order."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a term: the text in the sentence, and its first character."""

    term: Term
    text: str
    start: int


class TermGuide:
    """The constraints of documents from a glossary, words to keep, and copied texts.

    `documents` are sentences as the model reads them, in the order of translation;
    `copied[document][sentence]` are the texts copied in each. Words of `keep` are not translated.
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
        self._kept = frozenset(keep)
        self._by_first: dict[str, list[tuple[list[str], Term]]] = {}  # terms by their first words
        for term in (*(glossary.terms if glossary else ()), *(Term(text, (text,)) for text in keep)):
            words = [word.text for word in words_of(term.source)]
            if words:
                self._by_first.setdefault(words[0].casefold(), []).append((words, term))
        for listed in self._by_first.values():
            # Longest terms first, because the first match counts.
            listed.sort(key=lambda entry: -len(entry[0]))
        self._occurrences = [
            [self._found(text, self._copied_in(d, s)) for s, text in enumerate(sentences)]
            for d, sentences in enumerate(documents)
        ]

    def occurrences(self, document: int, sentence: int) -> Sequence[Occurrence]:
        return self._occurrences[document][sentence]

    def alternatives(self, occurrence: Occurrence) -> tuple[str, ...]:
        """Return texts; a translation must contain one of them. Empty: there is no requirement."""
        return self._forms(occurrence, occurrence.term.targets)

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        required: list[tuple[str, ...]] = []
        places: list[tuple[int, int]] = []
        forbidden: dict[str, None] = {}
        source, copied = self._documents[document][sentence], self._copied_in(document, sentence)
        for occurrence in self._occurrences[document][sentence]:
            if alternatives := self.alternatives(occurrence):
                required.append(alternatives)
                places.append((occurrence.start, occurrence.start + len(occurrence.text)))
            forbidden.update(dict.fromkeys(self._forms(occurrence, occurrence.term.forbidden)))
        allowed = set(itertools.chain.from_iterable(required))
        return SentenceConstraints(
            tuple(required),
            tuple(text for text in forbidden if text not in allowed),
            tuple(copied),
            (*places, *_places(source, copied)),
        )

    def _copied_in(self, document: int, sentence: int) -> Sequence[str]:
        return self._copied[document][sentence] if self._copied is not None else ()

    def _found(self, text: str, copied: Collection[str]) -> list[Occurrence]:
        """Return the terms in a sentence, from left to right."""
        words = words_of(text)
        # A term inside copied text is not translated.
        spans = covered(text, copied)
        matches: list[Occurrence] = []
        place = 0
        while place < len(words):
            listed = self._by_first.get(words[place].text.casefold(), ())
            for own, term in listed:
                run = words[place : place + len(own)]
                if len(run) == len(own) and self._matches(term, own, run, text, place == 0):
                    start, stop = run[0].start, run[-1].stop
                    if not overlaps(spans, start, stop):
                        matches.append(Occurrence(term, text[start:stop], start))
                        place += len(own) - 1
                        break
            place += 1
        return matches

    def _forms(self, occurrence: Occurrence, targets: Sequence[str]) -> tuple[str, ...]:
        """Return the forms of translations that fit an occurrence, including capitalised ones."""
        text = occurrence.text
        if occurrence.term.source in self._kept:
            return (text,)
        capitals = len(text) > 1 and text.isupper() and not occurrence.term.source.isupper()
        forms: dict[str, None] = {}
        for form in targets:
            if capitals:
                forms[form.upper()] = None
            forms[form] = None
            forms[form[:1].upper() + form[1:]] = None  # it may begin the sentence
        return tuple(forms)

    def _matches(self, term: Term, own: Sequence[str], run: Sequence[Word], text: str, opens: bool) -> bool:
        """Whether words of a sentence equal the words of a term, with the same spaces between them."""
        spaced = [word.start > before.stop for before, word in itertools.pairwise(run)]
        wanted = words_of(term.source)
        if spaced != [word.start > before.stop for before, word in itertools.pairwise(wanted)]:
            return False
        if term.source in self._kept:
            return text[run[0].start : run[-1].stop] == term.source
        return all(
            _is_word(word, found.text, opens and number == 0)
            for number, (word, found) in enumerate(zip(own, run, strict=True))
        )


def _is_word(word: str, found: str, opens: bool) -> bool:
    if found == word:
        return True
    if opens and found == word[:1].upper() + word[1:]:
        return True
    return len(found) > 1 and found.isupper() and found == word.upper()


def _places(text: str, copied: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of copied texts in a source; equal texts have successive spans.

    A text that also occurs within another copied text has the spans outside it, if there are enough of them.
    """
    starts: dict[str, list[int]] = {}
    for start, copy in occurrences(text, copied):
        starts.setdefault(copy, []).append(start)
    wanted = Counter(copied)
    starts = {copy: found for copy, found in starts.items() if len(found) >= wanted[copy]}
    after: dict[str, int] = {}
    for copy in copied:
        start = starts[copy].pop(0) if starts.get(copy) else text.find(copy, after.get(copy, 0))
        after[copy] = start + len(copy)
        yield start, start + len(copy)


# --- Term accuracy: the terms that translations contain, counted in their text.


@dataclass(slots=True)
class TermReport:
    """Counts over translated documents.

    `required`: occurrences of terms in the source; `met`: those with one of their translations in the same
    sentence. `forbidden`: forbidden translations found. `copied`: copied texts; `kept`: those that appear
    exactly as often as required. `unmet`: indices of document and sentence.
    """

    required: int = 0
    met: int = 0
    forbidden: int = 0
    copied: int = 0
    kept: int = 0
    unmet: list[tuple[int, int]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of required occurrences that are met; 1 if there are none."""
        return self.met / self.required if self.required else 1.0

    def __str__(self) -> str:
        parts = ["terms: none in the source"]
        if self.required:
            parts = [f"terms: {self.met:,} of {self.required:,} kept ({self.accuracy:.1%})"]
        if self.required or self.forbidden:
            parts.append(f"forbidden translations: {self.forbidden:,}")
        if self.copied:
            parts.append(f"copied text: {self.kept:,} of {self.copied:,}")
        return "; ".join(parts)


def term_report(guide: TermGuide, translations: Mapping[int, Sequence[str]]) -> TermReport:
    """Return the term accuracy of translated sentences, by document index."""
    report = TermReport()
    for document, sentences in translations.items():
        for sentence, text in enumerate(sentences):
            _count(report, guide.constraints(document, sentence), text, (document, sentence))
    return report


def _count(report: TermReport, constraints: SentenceConstraints, text: str, place: tuple[int, int]) -> None:
    defects = constraints.defects(text)
    report.required += len(constraints.required)
    report.met += len(constraints.required)
    report.forbidden += len(defects.forbidden)
    wrong = set(defects.surplus)
    for phrases, _ in defects.missing:
        if phrases in constraints.required:
            report.met -= 1
        else:
            wrong.update(phrases)
    report.copied += len(constraints.copied)
    report.kept += sum(copy not in wrong for copy in constraints.copied)
    if defects.missing or defects.surplus:
        report.unmet.append(place)
