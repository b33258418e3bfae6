"""Audit of translations: sentences that are lost, added, out of order, not translated, or changed."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from itertools import chain, groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final
from unicodedata import normalize

from cotext.data.documents import Document, identified, language_code, language_of_name
from cotext.data.faults import Checks, Fault, missing_numbers
from cotext.data.splitting import join_sentences
from cotext.data.words import blanked, occurrences, words_of
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.interface import profile
from cotext.evaluation.requests import AuditRequest
from cotext.evaluation.studies.audit.align import Bead, align, sigmoid
from cotext.evaluation.studies.tables import Table
from cotext.files.parallel import read_sentences
from cotext.runtime import CotextError, __version__
from cotext.runtime.rendering import facts, whole_page
from cotext.translation.terms.terms import Glossary, TermGuide

# --- Changed numbers, names and terms, and inconsistencies within a document.
#
# Translations of terms are learned from the text itself. A source word in several sentences is translated by
# the target word that occurs in nearly all of their translations, and in few other sentences. Address,
# pronouns and tense are found by the patterns below, in the languages that have patterns.

# Minimum number of other sentences that have another form of address, keep a name, or have a term.
_LEAST: Final = 3
_NAMED: Final = 2
_TERM: Final = 4
_USUAL: Final = 0.75  # minimum share of the sentences that have the usual form
_LONG: Final = 5  # minimum length of a term; words with as many equal first letters are forms of one word
_ENDING: Final = 2  # letters at the end of a word in which its forms may differ
Pair = tuple[str, str, str]  # document, source, target
Found = Iterator[tuple[int, Fault]]  # faults with the number of the pair
Cues = Mapping[str, str]  # patterns by what they indicate
Stems = Sequence[Collection[str]]  # of source and target, in the order of the text


def _cues(**words: str) -> Cues:
    return {name: rf"(?i)\b(?:{pattern})\b" for name, pattern in words.items()}


# In German, "Sie" at the start of a sentence may mean "she" or "they", and is not counted.
_ADDRESS: Final[Mapping[str, Cues]] = {
    "de": _cues(informal=r"du|dir|dich|dein\w{0,2}|euch", formal=r"(?<=[\w,] )(?-i:Sie|Ihnen|Ihr\w{0,2})"),
    "fr": _cues(informal="tu|toi|ton|tes", formal="vous|votre|vos"),
    "es": _cues(informal="tú|ti|contigo", formal="usted(?:es)?"),
    "ru": _cues(informal=r"ты|тебя|тебе|тобой|тво\w{1,3}", formal=r"вы|вас|вам|вами|ваш\w{0,3}"),
    "zh": {"informal": "你", "formal": "您"},
}
# In Chinese, a plural has 们 after the pronoun, and is not counted.
_PRONOUNS: Final[Mapping[str, Cues]] = {
    language: {pronoun: rf"(?i)^\W*{pronoun}(?![a-zà-ÿа-я们])" for pronoun in pronouns}
    for language, *pronouns in map(
        str.split, ("en he she it", "de er sie es", "fr il elle ce", "ru он она оно", "zh 他 她 它")
    )
}
_TENSES: Final[Mapping[str, Cues]] = {
    "en": _cues(past=r"was|were|had|did|went|said|came|\w{2,}ed", present="is|are|has|have|does|do|will"),
    "de": _cues(
        past=r"(war|ging)(en)?|wurden?|ge\w{2,}(t|en)|\w{3,}ten?",
        present="ist|sind|hat|haben|wird|werden|kann",
    ),
    "ru": _cues(past=r"\w{2,}л(?:а|о|и|ся|ась|ись)?", present=r"есть|\w{2,}(?:ет|ит|ют|ят)(?:ся)?"),
}


def new_numbers(pairs: Sequence[Pair]) -> Found:
    """Yield numbers that only the translation has."""
    for pair, (_, source, target) in enumerate(pairs):
        for number in missing_numbers(blanked(target), blanked(source)):
            if not number.endswith("000"):  # A source may have thousands in words.
                yield pair, Fault("number", 0.7, f"not in the source: {number}")


def changed_names(pairs: Sequence[Pair]) -> Found:
    """Yield names that a translation lacks although others keep them, or has with swapped letters."""
    total, kept = Counter[str](), Counter[str]()  # sentences with a source word, and those that keep it
    for _, source, target in pairs:
        words = {word.text for word in words_of(source)}
        total.update(words)
        kept.update(word for word in words if word in target)
    for number, (_, source, target) in enumerate(pairs):
        for name in re.findall(r"(?<=[\w,] )[^\W\d_]{4,}\b", blanked(source)):
            others = total[name] - 1
            if not name.istitle() or name in target or 2 * kept[name] < others:
                continue
            swapped = next((w.text for w in words_of(target) if sorted(w.text) == sorted(name)), "")
            if swapped or (others >= _NAMED and kept[name] >= _USUAL * others):
                note = f"missing: {name}{f' (has {swapped})' if swapped else ''}"
                yield number, Fault("name", (kept[name] + bool(swapped)) / (others + 1.2), note)


def wrong_terms(pairs: Sequence[Pair], glossary: Glossary | None) -> Found:
    """Yield glossary terms of which the translation has no inflected form, and forbidden translations."""
    guide = TermGuide([[source for _, source, _ in pairs]], glossary)
    for number, (_, _, text) in enumerate(pairs):
        wanted = guide.constraints(0, number)
        for group in dict.fromkeys(wanted.required):
            if not any(_has_form(text, form) for form in group):
                yield number, Fault("term", 0.9, f"missing: {group[0]}")
        for _, form in occurrences(text, wanted.forbidden):
            yield number, Fault("term", 0.95, f"forbidden: {form}")


def drifts(pairs: Sequence[Pair], languages: tuple[str, str]) -> Found:
    """Yield sentences whose translation differs from the rest of the document."""
    # Dictionaries keep the order of the text, which decides between equally frequent translations.
    stems = [tuple(dict.fromkeys(_stems(text)) for text in pair[1:]) for pair in pairs]
    counts = Counter(stem for _, target in stems for stem in target)
    for _, group in groupby(range(len(pairs)), key=lambda n: pairs[n][0]):
        numbers = list(group)
        yield from _terms({n: stems[n] for n in numbers}, pairs, counts)
        forms = {n: has for n in numbers if (has := _indicated(pairs[n][2], _ADDRESS.get(languages[1], {})))}
        frequent = Counter(forms.values())
        for n, form in forms.items():
            others = len(forms) - frequent[form]
            if others >= max(_LEAST, _USUAL * len(forms)):
                note = f"{form} address, unlike the rest of the document"
                yield n, Fault("drift", others / (len(forms) + 1), note)
        for table, confidence in ((_PRONOUNS, 0.6), (_TENSES, 0.5)):
            ours, theirs = (table.get(language, {}) for language in languages)
            shown = [(_indicated(pairs[n][1], ours), _indicated(pairs[n][2], theirs)) for n in numbers]
            for n, ((before, was), (now, has)) in zip(numbers[1:], pairwise(shown), strict=True):
                # Of tenses, only a change from past to present is reported; other changes are often right.
                is_likely = table is _PRONOUNS or now == was == "past"
                if now and now == before and was and has and was != has and is_likely:
                    note = f"{now} becomes {has}, but {was} in the sentence before"
                    yield n, Fault("drift", confidence, note)


def _indicated(text: str, cues: Cues) -> str:
    """Return the only property that words of a text indicate; empty if there is none, or several."""
    names = [name for name, cue in cues.items() if re.search(cue, text)]
    return names[0] if len(names) == 1 else ""


def _stems(text: str) -> Iterator[str]:
    """Yield stems of words, punctuation, and pairs of characters in scripts without spaces."""
    for word, after in pairwise(words_of(f"{text.casefold()} .")):
        yield word.text[:_LONG]
        if after.start == word.stop and word.text.isalpha() and after.text.isalpha():
            yield word.text + after.text


def _terms(stems: Mapping[int, Stems], pairs: Sequence[Pair], counts: Mapping[str, int]) -> Found:
    """Yield sentences that translate a word differently from all other sentences of their document."""
    where: dict[str, list[int]] = defaultdict(list)
    for number, (source, _) in stems.items():
        for stem in source:
            if len(stem) >= _LONG and stem.isalpha():
                where[stem].append(number)
    for stem, places in where.items():
        found = Counter(each for n in places for each in stems[n][1] if len(each) > 1)
        own = Counter({each: n for each, n in found.items() if n >= _USUAL * counts[each]})
        for usual, count in own.most_common(1):
            if count != len(places) - 1 or count < _TERM:
                continue
            [odd] = [n for n in places if usual not in stems[n][1]]
            other = pairs[next(n for n in places if n != odd)]
            word, has = _word(stem, pairs[odd][1]), _word(usual, other[2])
            # Words that are equal on both sides are names, which `changed_names` finds.
            is_new = word != has and usual not in pairs[odd][2].casefold() and len(stems[odd][1]) > _TERM
            if is_new and _has_form(_word(stem, other[1]), word):
                note = f'lacks "{has}", which {count} other sentences with "{word}" have'
                yield odd, Fault("drift", 1 - 1 / count, note)


def _word(stem: str, text: str) -> str:
    """Return the first word of a text with a stem."""
    return next((word.text for word in words_of(text) if word.text.casefold().startswith(stem)), stem)


def _has_form(text: str, term: str) -> bool:
    """Return whether a text has all words of a term up to their endings: "companies" for "company"."""
    return all(w[: max(_LONG - 1, len(w) - _ENDING)] in text.casefold() for w in term.casefold().split())


# --- Findings and their page.

# Kinds of findings with their titles: first faults, then details that may be right (DETAILS).
TITLES: Final = {
    "lost": "lost",
    "added": "added",
    "order": "out of order",
    "untranslated": "untranslated",
    "copied": "copied from another sentence",
    "language": "in another language",
    "tag": "with changed tags or placeholders",
    "number": "numbers",
    "separator": "table separators",
    "name": "names",
    "quote": "quotation marks",
    "term": "glossary terms",
    "drift": "inconsistencies",
}
DETAILS: Final = ("number", "separator", "name", "quote", "term", "drift")
_PRINTED: Final = 20  # findings of an output that are printed
_SHOWN: Final = 500  # findings of an output that a page shows
_ABOUT: Final = """<p>A finding is a reason to check a sentence, not a verdict. The number in brackets is the
confidence, from 0 to 1. Good human translations have 1 to 3 details to check in 100 sentences, and many of
these are right. Where sentences are merged or divided, findings are less reliable. An audit cannot
notice a fluent sentence with another meaning. Sentences are numbered over the whole text.</p>"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in an output that may be wrong.

    `sentence`: number of the source sentence, from 1 over the whole text; for an added sentence, that of the
    previous one (0: none). `output_sentence`: number in the output, or None. `confidence`: 0 to 1.
    """

    kind: str
    document: str
    sentence: int
    output_sentence: int | None
    confidence: float
    source: str
    output: str
    note: str


@dataclass(frozen=True, slots=True)
class SystemAudit:
    """The findings of an output in the order of the text.

    `merged`: number of places where several source sentences are translated together. `divided`: the reverse.
    `is_weak`: few words correspond. `positions`: numbers of sentences and findings by position in a document.
    """

    name: str
    sentences: int
    output_sentences: int
    merged: int
    divided: int
    is_weak: bool
    findings: Sequence[Finding]
    positions: Sequence[Mapping[str, str | int]]

    @property
    def counts(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        counts = self.counts
        text = f"{self.sentences:,} source sentences became {self.output_sentences:,}"
        if self.merged or self.divided:
            text += f" (merged in {self.merged:,} places, divided in {self.divided:,})"
        if self.is_weak:
            text += "; few words correspond: the text is short, a free translation, or none of this source"
        if not counts:
            return f"{text}, and no fault was found."
        faults = ", ".join(f"{counts[k]:,} {TITLES[k]}" for k in TITLES if counts[k] and k not in DETAILS)
        details = ", ".join(f"{TITLES[k]} ({counts[k]:,})" for k in TITLES if counts[k] and k in DETAILS)
        text += f"; faults: {faults}" if faults else "; no sentence is lost, added, moved or untranslated"
        return text + (f"; details to check: {details}." if details else ".")


@dataclass(frozen=True, slots=True)
class Audit:
    """Outputs of one source; `notes` state how the texts were read."""

    source: str
    languages: tuple[str, str]
    systems: Sequence[SystemAudit]
    notes: Sequence[str]

    def render(self) -> str:
        """The summary and the first findings of each output, faults before details."""
        lines = [*self.notes]
        for system in self.systems:
            lines.append(f"{system.name}: {system.summary}")
            for each in sorted(system.findings, key=lambda each: each.kind in DETAILS)[:_PRINTED]:
                where = f"document {each.document}, sentence {each.sentence} of the text"
                lines.append(f"  {each.kind}, {where} ({each.confidence:.2f}): {each.note}")
            if (more := len(system.findings) - _PRINTED) > 0:
                lines.append(f"  ... and {more:,} more (--out for a page, --json for all)")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        figures = asdict(self)
        systems: dict[str, dict[str, Any]] = {each.pop("name"): each for each in figures.pop("systems")}
        findings = [{"system": name, **each} for name, own in systems.items() for each in own.pop("findings")]
        for system in self.systems:
            systems[system.name] |= {"summary": system.summary, "counts": dict(system.counts)}
        about = {"format": "cotext-audit", "version": 1, "cotext": __version__}
        return {**about, **figures, "systems": systems, "findings": findings}

    def page(self) -> str:
        systems = self.systems
        body = [f"<h1>Audit of {'translations' if systems[1:] else 'a translation'}</h1>"]
        body += [f"<p><b>{escape(system.name)}</b>: {escape(system.summary)}</p>" for system in systems]
        body += [*(f'<p class="soft">{escape(note)}.</p>' for note in self.notes), _ABOUT]
        counts = [(title, *(f"{s.counts[kind]:,}" for s in systems)) for kind, title in TITLES.items()]
        body += ["<h2>Findings by kind</h2>", Table(("", *(s.name for s in systems)), counts).html()]
        for system in systems:
            rows = [
                (
                    f"{'' if each.source else 'after '}{each.sentence:,}, in document {each.document}",
                    f"{TITLES[each.kind]}: {each.note} ({each.confidence:.2f})",
                    each.source or "(nothing)",
                    each.output or "(nothing)",
                )
                for each in sorted(system.findings, key=lambda each: each.kind in DETAILS)[:_SHOWN]
            ]
            heads = ("sentence", "what is wrong", "source", "output")
            title = f"{system.name}: findings" + f" (the first {_SHOWN})" * (len(system.findings) > _SHOWN)
            body += [f"<h2>{escape(title)}</h2>", Table(heads, rows, left=4).html()]
        columns = ("sentence of its document", "sentences", *(f"findings in {s.name}" for s in systems))
        places = zip(*(system.positions for system in systems), strict=True)
        numbers = [[*first.values(), *(each["findings"] for each in others)] for first, *others in places]
        positions = Table(columns, [list(map(str, row)) for row in numbers])
        body += ["<h2>Findings by position in the document</h2>", positions.html()]
        languages = " to ".join(code or "unknown" for code in self.languages)
        about = [("source", self.source), ("languages", languages), ("Cotext", __version__)]
        body += ["<h2>About this page</h2>", facts((name, escape(value)) for name, value in about)]
        return whole_page("Cotext: audit", body)


_UNLIKE: Final = -9.0  # score in nats of a pair, below which another text replaces the translation
_RELATED: Final = 1.0  # median score of pairs, below which few words correspond
_LEAST_SURE: Final = 0.5  # minimum confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # kinds of text that replace a translation
_SAMPLE: Final = 100  # sentences from which the language of a text is identified


def audit(request: AuditRequest) -> Audit:
    """Audit all outputs; raise CotextError if a file is unreadable, or documents or lines do not match."""
    given = request.target_language or ""
    origin, read = request.source or request.output[0], partial(read_sentences, format=request.format)
    source = read(origin, "source", "")
    codes = _language(request.source_language, origin, source), ""

    def read_target(path: Path) -> Sequence[Document]:
        text = read(path, "target", given)
        own, ids = ([document.id for document in each] for each in (text, source))
        if own != ids and sorted(own) == sorted(ids):
            raise CotextError(f"{path}: has the documents of {origin} in another order; reorder them")
        return text

    reference = read_target(request.reference) if request.reference else []
    if request.reference and list(map(len, reference)) != list(map(len, source)):
        raise CotextError(f"{request.reference}: is not aligned with {origin}, line by line")
    systems, notes = [], []
    for name, path in name_systems(request.output).items():
        output = read_target(path)
        codes = codes[0], _language(request.target_language, path, output)
        if len(output) != len(source):
            counts = f"{len(output):,} documents, but the source has {len(source):,}"
            notes.append(f"{name} has {counts}; compared as one text")
        glossary = None if request.terms is None else Glossary.read(request.terms, *codes)
        systems.append(_system(name, (source, output, reference), codes, glossary))
    return Audit(str(origin), codes, systems, notes)


def _language(given: str | None, path: Path, text: Sequence[Document]) -> str:
    """Return a language: as given, from the file name, or identified in the text; empty if unknown."""
    if given:
        return language_code(given, "--source-language or --target-language")
    sample = " ".join([line for document in text for line in document.sentences][:_SAMPLE])
    return language_of_name(path) or (identified(sample) or ("",))[0]


def _system(
    name: str, texts: Sequence[Sequence[Document]], languages: tuple[str, str], glossary: Glossary | None
) -> SystemAudit:
    """Audit an output. `texts`: source, output and, if given, reference; languages are empty if unknown."""
    sides = [[tuple(normalize("NFC", line) for line in d.sentences) for d in text] for text in texts]
    source, output, _ = lines = [[line for document in side for line in document] for side in sides]
    if len(sides[0]) != len(sides[1]):
        sides = [[tuple(text)] for text in lines]
    beads = align(*sides[: 2 + bool(texts[2])])
    places = [(d.id, n) for d in texts[0] for n in range(1, len(d) + 1)]  # of source sentences
    pairs = [
        (
            places[bead.source[0]][0] if bead.source else "",
            join_sentences([source[i] for i in bead.source], languages[0]),
            join_sentences([output[j] for j in bead.output], languages[1]),
        )
        for bead in beads
    ]
    found, last = [], -1
    for bead, pair, faults in zip(beads, pairs, _faults(beads, pairs, languages, glossary), strict=True):
        first, last = (bead.source[0], bead.source[-1]) if bead.source else (last, last)
        for kind in dict.fromkeys(fault.kind for fault in faults):
            same = sorted((f for f in faults if f.kind == kind), key=lambda fault: -fault.confidence)
            paired = bead.confidence if kind == "tag" or kind in DETAILS else 1.0
            sure, note = round(paired * same[0].confidence, 3), "; ".join(fault.note for fault in same)
            if sure >= _LEAST_SURE:
                place = places[max(first, 0)][0], first + 1, bead.output[0] + 1 if bead.output else None
                found.append(Finding(kind, *place, sure, *pair[1:], note))
    found.sort(key=lambda each: (each.sentence, each.output_sentence or 0))
    here = [places[max(each.sentence, 1) - 1][1] for each in found]
    positions: list[dict[str, str | int]] = []
    for part in profile("position", [], texts[0], []):
        count = sum(part.first <= place <= (part.last or place) for place in here)
        positions.append({"name": part.name, "sentences": part.sentences, "findings": count})
    several = sum(len(bead.source) > 1 for bead in beads), sum(len(bead.output) > 1 for bead in beads)
    is_weak = median([bead.score for bead in beads if bead.source and bead.output] or [0.0]) < _RELATED
    return SystemAudit(name, len(source), len(output), *several, is_weak, found, positions)


def _faults(
    beads: Sequence[Bead], texts: Sequence[Pair], languages: tuple[str, str], glossary: Glossary | None
) -> list[list[Fault]]:
    """Return the faults of each bead; without details if its output is not a translation."""
    both = [n for n, bead in enumerate(beads) if bead.source and bead.output]
    pairs = [texts[n] for n in both]
    checks = Checks([pair[1:] for pair in pairs], ("", languages[1]), [beads[n].score for n in both])
    faults: list[list[Fault]] = [[] for _ in beads]
    details = new_numbers(pairs), changed_names(pairs), drifts(pairs, languages), wrong_terms(pairs, glossary)
    of_pairs = ((number, fault) for number in range(len(both)) for fault in checks.faults(number))
    for number, fault in chain(of_pairs, *details):
        faults[both[number]].append(fault)
    for bead, each, (*_, target) in zip(beads, faults, texts, strict=True):
        whole = [fault for fault in each if fault.kind in _WHOLE]
        if not bead.source:
            whole = [Fault("added", bead.confidence, "translates no source sentence")]
        elif not target.strip():
            whole = [Fault("lost", 0.99 if bead.output else bead.confidence, "has no translation")]
        elif not whole and bead.score <= _UNLIKE:
            whole = [Fault("lost", sigmoid(_UNLIKE - bead.score), "another text is in its place")]
        each[:] = whole or each
        if bead.moved:
            note = f"its translation is output sentence {bead.output[0] + 1:,}"
            each.append(Fault("order", bead.confidence, note))
    return faults
