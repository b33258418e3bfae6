"""Names that changed, and what only a document shows: terms, address, pronouns and tense that drift.

Renderings are learned from the text itself: a source word of several sentences has the target word that
nearly all of their translations have, and few others. Address, pronouns and tense are read from short
lists of words, of the languages that are listed here alone.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from cotext.data.words import is_letter, words_of
from cotext.files.mechanical import Fault, without_placeholders

_LEAST: Final = 3  # sentences in which a name, or a form of address, has to be
_TERM: Final = 4  # other sentences of its document in which a term has to be
_USUAL: Final = 0.75  # share of the sentences that have the usual form
_OWN: Final = 0.75  # share of the sentences with a rendering that have its word
_LONG: Final = 5  # letters of a word that may be a term
_STEM: Final = 5  # letters by which forms of a word are one
Pair = tuple[str, str, str]  # document, source, target
# Informal and formal address; a formal word that begins a sentence may be another.
_ADDRESS: Final = {
    "de": (r"\b(?:du|dir|dich|dein(?:e[rsnm]?)?|euch)\b", r"(?<=[\w,] )(?:Sie|Ihnen|Ihr(?:e[rsnm]?)?)\b"),
    "fr": (r"\b(?:tu|toi|ton|tes)\b", r"\b(?:vous|votre|vos)\b"),
    "es": (r"\b(?:tú|ti|contigo)\b", r"\b(?:usted(?:es)?)\b"),
    "ru": (r"\b(?:ты|тебя|тебе|тобой|тво\w{1,3})\b", r"\b(?:вы|вас|вам|вами|ваш\w{0,3})\b"),
    "zh": ("你", "您"),
}
# Pronouns that a sentence begins with, of one person each.
_PRONOUNS: Final = {
    "en": ("he", "she", "it"),
    "de": ("er", "sie", "es"),
    "fr": ("il", "elle", "ce"),
    "ru": ("он", "она", "оно"),
    "zh": ("他", "她", "它"),
}
# Words of the past and of the present.
_TENSES: Final = {
    "en": (r"\b(?:was|were|had|did|went|said|came|\w{2,}ed)\b", r"\b(?:is|are|has|have|does|do|will)\b"),
    "de": (
        r"\b(?:war(?:en)?|hatten?|wurden?|ging(?:en)?|sagten?|ge\w{2,}(?:t|en)|\w{3,}ten?)\b",
        r"\b(?:ist|sind|hat|haben|wird|werden|kann)\b",
    ),
    "ru": (
        r"\b(?:был[аои]?|\w{2,}л(?:а|о|и|ся|ась|ись)?)\b",
        r"\b(?:есть|является|\w{2,}(?:ет|ит|ют|ят)(?:ся)?)\b",
    ),
}


def changed_names(pairs: Sequence[Pair]) -> Iterator[tuple[int, Fault]]:
    """Names that the translations of other sentences keep, and that of this one does not, by its number."""
    names = [_names(source) for _, source, _ in pairs]
    where: dict[str, list[int]] = defaultdict(list)
    for number, (_, source, _) in enumerate(pairs):
        for word in {word.text for word in words_of(source)}:
            where[word].append(number)
    known = Counter(word.text for _, _, target in pairs for word in words_of(target))
    for number, own in enumerate(names):
        target = pairs[number][2]
        for name in own:
            others = [n for n in where[name] if n != number]
            kept = sum(name in pairs[n][2] for n in others)
            if name in target or not others or kept < _USUAL * len(others):
                continue
            similar = (w.text for w in words_of(target) if known[w.text] == 1 and _is_near(name, w.text))
            if near := next(similar, ""):
                yield number, Fault("name", kept / (len(others) + 0.2), f"missing: {name} (has {near})")
            elif len(others) >= _LEAST:
                yield number, Fault("name", kept / (len(others) + 1), f"missing: {name}")


def _names(text: str) -> list[str]:
    """Words with a capital within a sentence, which the letter after it does not have."""
    words = words_of(without_placeholders(text))
    inner = [w for before, w in pairwise(words) if before.text[-1].isalnum() or before.text == ","]
    return [w.text for w in inner if len(w.text) > 3 and w.text[0].isupper() and w.text[1:].islower()]


def _is_near(one: str, other: str) -> bool:
    """Return whether two words differ in two letters or less."""
    if not other[:1].isupper() or abs(len(one) - len(other)) > 1 or one[:1] != other[:1]:
        return False
    return sum((Counter(one) - Counter(other)).values()) <= 1


def drifts(pairs: Sequence[Pair], source_language: str, target_language: str) -> Iterator[tuple[int, Fault]]:
    """Places in which a translation is unlike the rest of its document, by number."""
    documents: dict[str, list[int]] = defaultdict(list)
    for number, (document, _, _) in enumerate(pairs):
        documents[document].append(number)
    # In the order of the text, which decides between renderings that are as usual as each other.
    stems = [
        (dict.fromkeys(stems_of(source)), dict.fromkeys(stems_of(target))) for _, source, target in pairs
    ]
    met = Counter(stem for _, target in stems for stem in target)
    for numbers in documents.values():
        yield from _terms(numbers, pairs, stems, met)
        if target_language in _ADDRESS:
            yield from _address(numbers, pairs, source_language, *_ADDRESS[target_language])
        if {source_language, target_language} <= _PRONOUNS.keys():
            yield from _pronouns(numbers, pairs, _PRONOUNS[source_language], _PRONOUNS[target_language])
        if {source_language, target_language} <= _TENSES.keys():
            yield from _tense(numbers, pairs, _TENSES[source_language], _TENSES[target_language])


def stems_of(text: str) -> Iterator[str]:
    """The stems of words, the signs, and pairs of characters of scripts without spaces."""
    words = words_of(unicodedata.normalize("NFKC", text).casefold())
    for word, after in pairwise([*words, *words_of(".")]):
        yield word.text[:_STEM]
        joint = word.text.isalpha() and not is_letter(word.text[0]) and after.start == word.stop
        if joint and after.text.isalpha():
            yield word.text + after.text


def _terms(
    numbers: Sequence[int],
    pairs: Sequence[Pair],
    stems: Sequence[tuple[dict[str, None], dict[str, None]]],
    met: Counter[str],
) -> Iterator[tuple[int, Fault]]:
    """Words that all translations but one render alike."""
    where: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        for stem in stems[number][0]:
            if len(stem) >= _LONG and stem.isalpha():
                where[stem].append(number)
    for stem, places in where.items():
        if len(places) <= _TERM:
            continue
        renderings = Counter(each for n in places for each in stems[n][1])
        usual, count = max(
            renderings.items(), key=lambda item: (item[1] / max(1, met[item[0]] - item[1] + 1), item[1])
        )
        if count != len(places) - 1 or count < _OWN * met[usual] or len(usual) < 2:
            continue
        [odd] = [n for n in places if usual not in stems[n][1]]
        if usual not in pairs[odd][2].casefold() and len(stems[odd][1]) > _TERM:
            note = f"everywhere else, {stem}... is translated by {usual}..."
            yield odd, Fault("drift", 1 - 1 / count, note)


def _address(
    numbers: Sequence[int], pairs: Sequence[Pair], source_language: str, informal: str, formal: str
) -> Iterator[tuple[int, Fault]]:
    forms: dict[bool, list[int]] = {True: [], False: []}
    for n in numbers:
        if source_language != "en" or re.search(r"\byou", pairs[n][1], re.IGNORECASE):
            has = [
                bool(re.search(informal, pairs[n][2], re.IGNORECASE)),
                bool(re.search(formal, pairs[n][2])),
            ]
            if sum(has) == 1:
                forms[has[1]].append(n)
    for is_formal, places in forms.items():
        others = len(forms[not is_formal])
        if others >= _LEAST and others >= _USUAL * (others + len(places)):
            what = "formal" if is_formal else "informal"
            yield from (
                (n, Fault("drift", others / (others + len(places) + 1), f"the address is {what} here"))
                for n in places
            )


def _pronouns(
    numbers: Sequence[int], pairs: Sequence[Pair], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[int, Fault]]:
    before = ("", "")
    for n in numbers:
        own = _first(pairs[n][1], ours), _first(pairs[n][2], theirs)
        if all(own) and all(before) and own[0] == before[0] and own[1] != before[1]:
            yield n, Fault("drift", 0.6, f"{own[0]} becomes {own[1]}, and {before[1]} in the sentence before")
        before = own


def _first(text: str, pronouns: Sequence[str]) -> str:
    words = words_of(text.casefold())
    return words[0].text if words and words[0].text in pronouns else ""


def _tense(
    numbers: Sequence[int], pairs: Sequence[Pair], ours: tuple[str, str], theirs: tuple[str, str]
) -> Iterator[tuple[int, Fault]]:
    before = ("", "")
    for n in numbers:
        own = _tense_of(pairs[n][1], *ours), _tense_of(pairs[n][2], *theirs)
        if before == ("past", "past") and own == ("past", "present"):
            yield n, Fault("drift", 0.5, "changes from the past to the present, which the source does not")
        before = own


def _tense_of(text: str, past: str, present: str) -> str:
    has = re.search(past, text, re.IGNORECASE), re.search(present, text, re.IGNORECASE)
    return "past" if has[0] and not has[1] else "present" if has[1] and not has[0] else ""
