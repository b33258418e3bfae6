"""Changed names, and inconsistencies within a document: terms, address, pronouns and tense.

Translations of terms are learned from the text itself: a source word of several sentences has the target word
that nearly all of their translations contain, and few other sentences. Address, pronouns and tense are found
by the words below, only in these languages.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from cotext.data.placeholders import blanked
from cotext.data.words import is_letter, words_of
from cotext.translation.faults import Fault
from cotext.translation.numbers import missing_numbers

_LEAST: Final = 3  # other sentences with a form of address
_NAMED: Final = 2  # other sentences with a name
_TERM: Final = 4  # other sentences of the document with a term
_USUAL: Final = 0.75  # minimum share of the sentences that have the usual form
_OWN: Final = 0.75  # minimum share of the sentences with a translation that have the term
_LONG: Final = 5  # minimum length of a term, in letters
_STEM: Final = 5  # letters by which forms of a word are compared
ENDING: Final = 2  # letters at the end of a word in which its forms may differ
_SIMILAR: Final = 0.75  # minimum similarity of a name and a misspelling of it (`difflib`)
Pair = tuple[str, str, str]  # document, source, target
Cues = Mapping[str, str]  # patterns by what they indicate
# In German, "Sie" at the start of a sentence may be another pronoun.
_ADDRESS: Final[Mapping[str, Cues]] = {
    language: {"informal": rf"(?i)\b(?:{informal})\b", "formal": formal}
    for language, informal, formal in (
        ("de", r"du|dir|dich|dein(?:e[rsnm]?)?|euch", r"(?<=[\w,] )(?:Sie|Ihnen|Ihr(?:e[rsnm]?)?)\b"),
        ("fr", "tu|toi|ton|tes", r"(?i)\b(?:vous|votre|vos)\b"),
        ("es", "tú|ti|contigo", r"(?i)\busted(?:es)?\b"),
        ("ru", r"ты|тебя|тебе|тобой|тво\w{1,3}", r"(?i)\b(?:вы|вас|вам|вами|ваш\w{0,3})\b"),
    )
} | {"zh": {"informal": "你", "formal": "您"}}
_PRONOUNS: Final[Mapping[str, Cues]] = {
    language: {pronoun: rf"(?i)^\W*{pronoun}{end}" for pronoun in pronouns.split()}
    for language, pronouns, end in (
        ("en", "he she it", r"\b"),
        ("de", "er sie es", r"\b"),
        ("fr", "il elle ce", r"\b"),
        ("ru", "он она оно", r"\b"),
        ("zh", "他 她 它", "(?!们)"),
    )
}
_TENSES: Final[Mapping[str, Cues]] = {
    language: {"past": rf"(?i)\b(?:{past})\b", "present": rf"(?i)\b(?:{present})\b"}
    for language, past, present in (
        ("en", r"was|were|had|did|went|said|came|\w{2,}ed", "is|are|has|have|does|do|will"),
        (
            "de",
            r"war(?:en)?|hatten?|wurden?|ging(?:en)?|sagten?|ge\w{2,}(?:t|en)|\w{3,}ten?",
            "ist|sind|hat|haben|wird|werden|kann",
        ),
        ("ru", r"был[аои]?|\w{2,}л(?:а|о|и|ся|ась|ись)?", r"есть|является|\w{2,}(?:ет|ит|ют|ят)(?:ся)?"),
    )
}


def new_numbers(pairs: Sequence[Pair]) -> Iterator[tuple[int, Fault]]:
    """Yield numbers that only the translation has, with the number of the pair."""
    for pair, (_, source, target) in enumerate(pairs):
        for number in missing_numbers(blanked(target), blanked(source)):
            if not number.endswith("000"):  # A source may have thousands in words.
                yield pair, Fault("number", 0.7, f"not in the source: {number}")


def changed_names(pairs: Sequence[Pair]) -> Iterator[tuple[int, Fault]]:
    """Yield names that a translation lacks, although others keep them; with the number of the pair."""
    where: dict[str, list[int]] = defaultdict(list)
    for number, (_, source, _) in enumerate(pairs):
        for word in {word.text for word in words_of(source)}:
            where[word].append(number)
    known = Counter(word.text for _, _, target in pairs for word in words_of(target))
    for number, (_, source, target) in enumerate(pairs):
        for name in _names(source):
            if name in target:
                continue
            others = [n for n in where[name] if n != number]
            kept = sum(name in pairs[n][2] for n in others)
            words = [w.text for w in words_of(target) if known[w.text] == 1 and w.text[0] == name[0]]
            near = next(iter(get_close_matches(name, words, 1, _SIMILAR)), "")
            is_usual = bool(others) and kept >= _USUAL * len(others)
            if near and (is_usual or (sorted(near) == sorted(name) and kept >= len(others) / 2)):
                yield number, Fault("name", (kept + 1) / (len(others) + 1.2), f"missing: {name} (has {near})")
            elif is_usual and len(others) >= _NAMED:
                yield number, Fault("name", kept / (len(others) + 1), f"missing: {name}")


def _names(text: str) -> list[str]:
    """Return the words within a sentence that have a capital letter only at the start."""
    words = words_of(blanked(text))
    inner = [w for before, w in pairwise(words) if before.text[-1].isalnum() or before.text == ","]
    return [w.text for w in inner if len(w.text) > 3 and w.text[0].isupper() and w.text[1:].islower()]


def drifts(pairs: Sequence[Pair], source_language: str, target_language: str) -> Iterator[tuple[int, Fault]]:
    """Yield sentences whose translation differs from the rest of the document, by the number of the pair."""
    documents: dict[str, list[int]] = defaultdict(list)
    for number, (document, _, _) in enumerate(pairs):
        documents[document].append(number)
    # Dictionaries keep the order of the text, which decides between equally frequent translations.
    stems = [
        (dict.fromkeys(stems_of(source)), dict.fromkeys(stems_of(target))) for _, source, target in pairs
    ]
    counts = Counter(stem for _, target in stems for stem in target)
    for numbers in documents.values():
        yield from _terms(numbers, pairs, stems, counts)
        yield from _address(numbers, pairs, _ADDRESS.get(target_language, {}))
        for cues, confidence in ((_PRONOUNS, 0.6), (_TENSES, 0.5)):
            if {source_language, target_language} <= cues.keys():
                sides = cues[source_language], cues[target_language]
                for number, now, was, has in _changes(numbers, pairs, *sides):
                    # A change to the past, or from the present, is often right.
                    if cues is _PRONOUNS or now == was == "past":
                        note = f"{now} becomes {has}, but {was} in the sentence before"
                        yield number, Fault("drift", confidence, note)


def stems_of(text: str) -> Iterator[str]:
    """Yield stems of words, punctuation, and pairs of characters in scripts without spaces."""
    words = words_of(unicodedata.normalize("NFKC", text).casefold())
    for word, after in pairwise([*words, *words_of(".")]):
        yield word.text[:_STEM]
        joint = word.text.isalpha() and not is_letter(word.text[0]) and after.start == word.stop
        if joint and after.text.isalpha():
            yield word.text + after.text


def _terms(
    numbers: Sequence[int],
    pairs: Sequence[Pair],
    stems: Sequence[tuple[Mapping[str, None], Mapping[str, None]]],
    counts: Mapping[str, int],
) -> Iterator[tuple[int, Fault]]:
    """Yield sentences with a word that all other sentences of the document translate alike."""
    where: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        for stem in stems[number][0]:
            if len(stem) >= _LONG and stem.isalpha():
                where[stem].append(number)
    for stem, places in where.items():
        if len(places) <= _TERM:
            continue
        renderings = Counter(each for n in places for each in stems[n][1])
        usual = max(
            renderings,
            key=lambda each: (
                renderings[each] / max(1, counts[each] - renderings[each] + 1),
                renderings[each],
            ),
        )
        if renderings[usual] != len(places) - 1 or renderings[usual] < _OWN * counts[usual] or len(usual) < 2:
            continue
        [odd] = [n for n in places if usual not in stems[n][1]]
        if usual not in pairs[odd][2].casefold() and len(stems[odd][1]) > _TERM:
            other = pairs[next(n for n in places if n != odd)]
            word, has = _word(stem, pairs[odd][1]), _word(usual, other[2])
            # Words that are equal on both sides are names.
            if word != has and _is_form(word, _word(stem, other[1])):
                note = f'lacks "{has}", which {len(places) - 1} other sentences with "{word}" have'
                yield odd, Fault("drift", 1 - 1 / renderings[usual], note)


def _word(stem: str, text: str) -> str:
    """Return the first word of a text with a stem."""
    return next((word.text for word in words_of(text) if word.text.casefold().startswith(stem)), stem)


def _is_form(word: str, other: str) -> bool:
    """Return whether two words differ in an ending only: "company" and "companies", but not "compatible"."""
    length = max(_STEM, len(word) - ENDING)
    return word.casefold()[:length] == other.casefold()[:length]


def _address(numbers: Sequence[int], pairs: Sequence[Pair], cues: Cues) -> Iterator[tuple[int, Fault]]:
    forms = {n: form for n in numbers if (form := _indicated(pairs[n][2], cues))}
    counts = Counter(forms.values())
    for n, form in forms.items():
        others = len(forms) - counts[form]
        if others >= _LEAST and others >= _USUAL * len(forms):
            yield (
                n,
                Fault("drift", others / (len(forms) + 1), f"{form} address, unlike the rest of the document"),
            )


def _changes(
    numbers: Sequence[int], pairs: Sequence[Pair], source: Cues, target: Cues
) -> Iterator[tuple[int, str, str, str]]:
    """Yield sentences whose target differs from the sentence before, but not the source.

    A number comes with what the source indicates, and what the target before it and its own target do.
    """
    sides = [(n, _indicated(pairs[n][1], source), _indicated(pairs[n][2], target)) for n in numbers]
    for (_, before, was), (n, now, has) in pairwise(sides):
        if now and now == before and was and has and was != has:
            yield n, now, was, has


def _indicated(text: str, cues: Cues) -> str:
    """Return what the words of a text indicate; empty if it is nothing or contradictory."""
    names = [name for name, cue in cues.items() if re.search(cue, text)]
    return names[0] if len(names) == 1 else ""
