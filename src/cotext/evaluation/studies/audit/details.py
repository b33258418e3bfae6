"""Changed numbers, names and terms, and inconsistencies within a document.

Translations of terms are learned from the text itself: a source word of several sentences has the target word
that nearly all of their translations contain, and few other sentences. Address, pronouns and tense are found
by the words below, only in these languages.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

from cotext.data.placeholders import blanked
from cotext.data.words import occurrences, words_of
from cotext.translation.faults import Fault, missing_numbers
from cotext.translation.terms.terms import Glossary, TermGuide

_LEAST: Final = 3  # other sentences with a form of address
_NAMED: Final = 2  # other sentences with a name
_TERM: Final = 4  # other sentences of the document with a term
_USUAL: Final = 0.75  # minimum share of the sentences that have the usual form
_LONG: Final = 5  # minimum length of a term, and letters by which forms of a word are compared
_ENDING: Final = 2  # letters at the end of a word in which its forms may differ
Pair = tuple[str, str, str]  # document, source, target
Found = Iterator[tuple[int, Fault]]  # faults with the number of the pair
Cues = Mapping[str, str]  # patterns by what they indicate
Stems = Sequence[Collection[str]]  # of source and target, in the order of the text


def _cues(**words: str) -> Cues:
    return {name: rf"(?i)\b(?:{pattern})\b" for name, pattern in words.items()}


# In German, "Sie" at the start of a sentence may be another pronoun.
_ADDRESS: Final[Mapping[str, Cues]] = {
    "de": _cues(informal=r"du|dir|dich|dein\w{0,2}|euch", formal=r"(?<=[\w,] )(?-i:Sie|Ihnen|Ihr\w{0,2})"),
    "fr": _cues(informal="tu|toi|ton|tes", formal="vous|votre|vos"),
    "es": _cues(informal="tú|ti|contigo", formal="usted(?:es)?"),
    "ru": _cues(informal=r"ты|тебя|тебе|тобой|тво\w{1,3}", formal=r"вы|вас|вам|вами|ваш\w{0,3}"),
    "zh": {"informal": "你", "formal": "您"},
}
# In Chinese, a plural has another character after the pronoun.
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
    """Yield names that a translation lacks, although others keep them."""
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
    """Yield glossary terms that are missing, also in inflected forms, and forbidden translations."""
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
                # A change to the past, or from the present, is often right.
                is_likely = table is _PRONOUNS or now == was == "past"
                if now and now == before and was and has and was != has and is_likely:
                    note = f"{now} becomes {has}, but {was} in the sentence before"
                    yield n, Fault("drift", confidence, note)


def _indicated(text: str, cues: Cues) -> str:
    """Return what the words of a text indicate; empty if it is nothing or contradictory."""
    names = [name for name, cue in cues.items() if re.search(cue, text)]
    return names[0] if len(names) == 1 else ""


def _stems(text: str) -> Iterator[str]:
    """Yield stems of words, punctuation, and pairs of characters in scripts without spaces."""
    for word, after in pairwise(words_of(f"{text.casefold()} .")):
        yield word.text[:_LONG]
        if after.start == word.stop and word.text.isalpha() and after.text.isalpha():
            yield word.text + after.text


def _terms(stems: Mapping[int, Stems], pairs: Sequence[Pair], counts: Mapping[str, int]) -> Found:
    """Yield sentences with a word that all other sentences of the document translate alike."""
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
            # Words that are equal on both sides are names.
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
