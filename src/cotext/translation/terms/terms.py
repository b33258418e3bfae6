"""Terms of documents: their occurrences in the source, and constraints on the translations of sentences.

A term occurs where its words follow each other. If several terms match, the longest counts. Occurrences do
not overlap, and are not in copied text. A word matches in its own spelling, with a capital at the beginning
of a sentence, or in capitals.
"""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from unicodedata import normalize

from cotext.data.documents import Languages, same_language
from cotext.data.formats.xml_formats import DOCUMENT, pairs
from cotext.data.words import Word, covered, occurrences, overlaps, words_of
from cotext.runtime import CotextError, read_bytes, shown
from cotext.runtime.xml import local_name, parse

# --- Glossaries and translation memories: source terms or sentences with their translations.


if TYPE_CHECKING:
    from lxml import etree

MAX_BYTES: Final = 64 << 20
_ALTERNATIVES: Final = "|"
# Values of the status of a term in TBX (ISO 30042) that forbid its use.
_NOT_USED: Final = ("deprecated", "superseded", "forbidden", "obsolete")
_XML_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True, slots=True)
class Term:
    """A source term with alternative preferred translations, and forbidden ones."""

    source: str
    targets: tuple[str, ...]
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Glossary:
    """The terms of one language pair."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, terms: Mapping[str, str | Sequence[str]]) -> "Glossary":
        """Create a glossary from source terms with one or more translations each, none of them empty."""
        pairs = ((source, (t,) if isinstance(t, str) else tuple(t)) for source, t in terms.items())
        return cls(tuple(_term(source, targets, (), "glossary") for source, targets in pairs))

    @classmethod
    def read(cls, path: Path, source_language: str = "", target_language: str = "") -> "Glossary":
        """Read a table or TBX; only TBX needs the languages.

        A line of a table has source, target and, optionally, forbidden translations; further columns are
        notes. Alternatives are separated by |, or on several lines. Lines that begin with # are comments; a
        first line "source, target" is a header. Columns are separated by tabs, in .csv files by commas.

        Raises CotextError if the file is unreadable, a line has no translation, or TBX has no terms in one of
        the languages.
        """
        content = read_bytes(path, MAX_BYTES)
        if content[:1024].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
            return cls(_united(_of_tbx(content, str(path), source_language, target_language)))
        return cls(_united(_of_table(_text(content, path), path)))


def read_words(path: Path) -> tuple[str, ...]:
    """Read words and phrases, one per line; lines that begin with # are comments.

    Raises CotextError if the file is unreadable.
    """
    lines = normalize("NFC", _text(read_bytes(path, MAX_BYTES), path)).splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CotextError(f"{path}: not a text in UTF-8 (byte {error.start}); save it as UTF-8") from None


def _of_table(text: str, path: Path) -> Iterator[Term]:
    comma = path.suffix.lower() == ".csv"
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines) if comma else (line.rstrip("\r\n").split("\t") for line in lines)
    header_may_follow = True
    try:
        for number, row in enumerate(rows, start=1):
            if not "".join(row).strip() or row[0].startswith("#"):
                continue
            cells = [cell.strip() for cell in row]
            may_be_header, header_may_follow = header_may_follow, False
            if may_be_header and [cell.lower() for cell in cells[:2]] == ["source", "target"]:
                continue
            forbidden = _several(cells[2]) if len(cells) > 2 else ()
            where = f"{path}, line {number}"
            if len(cells) < 2:
                separator = "comma" if comma else "tab"
                raise CotextError(f"{where}: there is no {separator} between a term and its translation")
            yield _term(cells[0], _several(cells[1]), forbidden, where)
    except csv.Error as error:
        raise CotextError(f"{path}: not a table in CSV: {error}") from None


def _united(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Unite the lines or concepts of each source term: their translations are alternatives."""
    of_source: dict[str, list[Term]] = {}
    for term in terms:
        of_source.setdefault(term.source, []).append(term)
    return tuple(
        Term(
            source,
            tuple(dict.fromkeys(target for term in same for target in term.targets)),
            tuple(dict.fromkeys(target for term in same for target in term.forbidden)),
        )
        for source, same in of_source.items()
    )


def _several(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(_ALTERNATIVES) if part.strip())


def _term(source: str, targets: Sequence[str], forbidden: Sequence[str], where: str) -> Term:
    source, *targets = (normalize("NFC", text.strip()) for text in (source, *targets))
    if not source or not all(targets) or not (targets or forbidden):
        raise CotextError(f"{where}: the term {shown(source)} needs a text and a translation")
    return Term(source, tuple(targets), tuple(normalize("NFC", text) for text in forbidden))


def _of_tbx(content: bytes, where: str, source_language: str, target_language: str) -> Iterator[Term]:
    """Yield the terms of each concept in TBX (ISO 30042:2008 and 2019), by language and status."""
    concepts = terms = 0
    for node in parse(content, where).iter():
        if local_name(node) not in ("termEntry", "conceptEntry"):
            continue
        concepts += 1
        used: dict[str, list[str]] = {source_language: [], target_language: []}
        unused: dict[str, list[str]] = {source_language: [], target_language: []}
        for section in node:
            if local_name(section) not in ("langSet", "langSec"):
                continue
            language = section.get(_XML_LANGUAGE, section.get("lang", ""))
            own = next((code for code in used if same_language(language, code)), None)
            if own is None:
                continue
            for group in section:
                term = next((part for part in group.iter() if local_name(part) == "term"), None)
                text = "" if term is None else _normal("".join(term.itertext()))
                if text:
                    status = " ".join("".join(part.itertext()) for part in group.iter() if _is_status(part))
                    (unused if any(word in status.lower() for word in _NOT_USED) else used)[own].append(text)
        for source in (*used[source_language], *unused[source_language]):
            if used[target_language] or unused[target_language]:
                terms += 1
                yield Term(source, tuple(used[target_language]), tuple(unused[target_language]))
    if not concepts:
        raise CotextError(f"{where}: has no termEntry or conceptEntry; give a glossary in TBX, TSV or CSV")
    if not terms:
        pair = " and ".join(code or "an unknown language" for code in (source_language, target_language))
        raise CotextError(f"{where}: no concept has terms in {pair}; give one that has both, or a table")


def _is_status(node: "etree._Element") -> bool:
    name, kind = local_name(node), (node.get("type") or "").lower()
    return name == "administrativeStatus" or (name == "termNote" and "administrativestatus" in kind)


# --- Translation memory: sentences that were translated before in the same context.
#
# A translation is used only if, in the memory too, the sentence follows the same sentence (ignoring white
# space). In another context, the sentence may need another translation. The first sentence of a document must
# be the first of a document in the memory, too. If there are several translations, the last counts.


@dataclass(slots=True)
class TranslationMemory:
    """Translations by source sentence and the sentence before it; `units` counts them."""

    units: int = 0
    _found: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, languages: Languages) -> "TranslationMemory":
        """Read a TMX file; raise CotextError if it is unreadable or has no unit in both languages."""
        if not languages.source or not languages.target:
            raise CotextError(
                f"{path}: the languages of the run are unknown, so a memory cannot be used; remove --memory"
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
        """Create a memory from sentence pairs in order, each with the name of its document."""
        memory = cls()
        before: str | None = None
        of_document: str | None = None
        for source, target, document in sentences:
            # The first sentence of a document has no sentence before it.
            if document != of_document:
                before, of_document = None, document
            text = _normal(source)
            if text and target.strip():
                memory._found[text, before] = _normal(target)
                memory.units += 1
            before = text
        return memory

    def lookup(self, source: str, previous_source: str | None) -> str | None:
        """Return the translation of a sentence after another (None: it is the first), if there is one."""
        before = None if previous_source is None else _normal(previous_source)
        return self._found.get((_normal(source), before))

    def taken(self, documents: Iterable[Sequence[str]]) -> Mapping[int, Mapping[int, str]]:
        """Return the translations that the memory has, by document and sentence."""
        translations: dict[int, dict[int, str]] = {}
        for index, sentences in enumerate(documents):
            for j, source in enumerate(sentences):
                target = self.lookup(source, sentences[j - 1] if j else None)
                if target is not None:
                    translations.setdefault(index, {})[j] = target
        return translations


def _normal(text: str) -> str:
    """Return the text in Unicode NFC with single spaces between words."""
    return " ".join(normalize("NFC", text).split())


Phrases = tuple[str, ...]  # alternatives of a term


class Defects(NamedTuple):
    """The constraints that a translation does not meet.

    `missing`: alternatives of a phrase, and its span in the source. `surplus`: copied texts, one entry
    for each additional occurrence. `forbidden`: phrases and their offsets.
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
        """Return the constraints with respelled phrases; phrases whose new spelling is empty are left out."""
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
        wanted = self.wanted
        allowed = {phrase for phrases, _ in wanted for phrase in phrases}
        # A phrase may be part of another one: the longest counts. Each counts once, also if terms share it.
        counts = Counter(phrase for _, phrase in occurrences(text, [*allowed]))
        met = set[int]()
        for i in sorted(range(len(wanted)), key=lambda i: len(wanted[i][0])):
            if phrase := next((phrase for phrase in wanted[i][0] if counts[phrase]), ""):
                counts[phrase] -= 1
                met.add(i)
        missing = [each for i, each in enumerate(wanted) if i not in met]
        surplus = [copy for copy in dict.fromkeys(self.copied) for _ in range(counts[copy])]
        found = occurrences(text, [*self.forbidden, *allowed]) if self.forbidden else ()
        forbidden = [place for place in found if place[1] not in allowed]
        return Defects(missing, surplus, forbidden)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a term: the text in the sentence, and its first character."""

    term: Term
    text: str
    start: int


class TermGuide:
    """The constraints of documents from a glossary, words to keep, and copied texts.

    `documents` are sentences as the model reads them, in the order of translation;
    `copied[document][sentence]` are the texts copied in this sentence. Words of `keep` are not translated.
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
        self._copied = copied or [[()] * len(sentences) for sentences in documents]
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
            [self._found(text, self._copied[d][s]) for s, text in enumerate(sentences)]
            for d, sentences in enumerate(documents)
        ]

    def occurrences(self, document: int, sentence: int) -> Sequence[Occurrence]:
        return self._occurrences[document][sentence]

    def alternatives(self, occurrence: Occurrence) -> tuple[str, ...]:
        """Return texts of which a translation must contain one; empty if any translation is allowed."""
        return self._forms(occurrence, occurrence.term.targets)

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """Return the constraints of a sentence, both indices from 0 in input order."""
        required: list[tuple[str, ...]] = []
        places: list[tuple[int, int]] = []
        forbidden: dict[str, None] = {}
        source, copied = self._documents[document][sentence], self._copied[document][sentence]
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
    exactly as often as required. `unmet`: document and sentence indices of missing or surplus phrases.
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
            constraints = guide.constraints(document, sentence)
            defects = constraints.defects(text)
            lacking = [phrases for phrases, _ in defects.missing]
            unmet = sum(phrases in constraints.required for phrases in lacking)
            copies = (phrases for phrases in lacking if phrases not in constraints.required)
            wrong = {*defects.surplus, *itertools.chain.from_iterable(copies)}
            report.required += len(constraints.required)
            report.met += len(constraints.required) - unmet
            report.forbidden += len(defects.forbidden)
            report.copied += len(constraints.copied)
            report.kept += sum(copy not in wrong for copy in constraints.copied)
            if defects.missing or defects.surplus:
                report.unmet.append((document, sentence))
    return report
