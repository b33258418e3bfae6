"""Choices in real text between translations of a term, in documents that always use the same one.

Translations are learned from training text by counting sentences. n(e) is the number of sentences with the
source word e, n(f) with the target noun f (a word with a capital letter, not the first of its sentence),
and n(e, f) with both. f is a translation of e if

    n(e, f) >= 20,  n(e, f) / n(e) >= 0.1,  n(e, f) / n(f) >= 0.3

Two translations of e are alternatives if one can replace the other with the same article:

    gender       equal, by the articles before them: four in five of at least five that show a gender
    rarely both  at most a tenth of the sentences with the rarer one have the other
    unrelated    neither begins or ends with the other, and their last five letters differ

In a document whose reference translates e by f and never by an alternative, every sentence with one e and
one f, except the first, has a choice between f and its alternatives. The clue is the nearest earlier
sentence with e and f; only its target side shows the choice.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from benchmarks.study.choice import Choice
from cotext.data.documents import ParallelDocument

PHENOMENON: Final = "term"
LEAST_TOGETHER: Final = 20
LEAST_OF_SOURCE: Final = 0.1
LEAST_OF_TARGET: Final = 0.3
MOST_SIDE_BY_SIDE: Final = 0.1
LEAST_ARTICLES: Final = 5
LEAST_AGREEING: Final = 0.8
LEAST_LETTERS: Final = 4
COMMON_END: Final = 5
# Articles that show the gender of a singular noun; der and die are ambiguous.
ARTICLES: Final = {
    **dict.fromkeys(("den", "einen", "diesen", "jeden", "keinen"), "m"),
    **dict.fromkeys(("das", "ins", "jedes", "dieses"), "n"),
    **dict.fromkeys(("eine", "einer", "zur", "jede", "keine"), "f"),
}
_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")

Alternatives = Mapping[str, Mapping[str, tuple[str, ...]]]  # source word -> translation -> alternatives


def learn(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Learn alternatives from pairs of sentences, for all source words that have some."""
    of_source, of_target = Counter[str](), Counter[str]()
    together, side_by_side = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    articles: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in pairs:
        words = _WORD.findall(target)
        nouns = sorted(set(_nouns(words)))
        of_source.update(found := _source_words(source))
        of_target.update(nouns)
        together.update((e, f) for e in found for f in nouns)
        side_by_side.update((f, g) for i, f in enumerate(nouns) for g in nouns[i + 1 :])
        for before, noun in itertools.pairwise(words):
            if noun[0].isupper() and before.lower() in ARTICLES:
                articles[noun][ARTICLES[before.lower()]] += 1
    renderings: dict[str, list[str]] = defaultdict(list)
    for (e, f), count in together.items():
        enough = count >= LEAST_TOGETHER and count >= LEAST_OF_SOURCE * of_source[e]
        if enough and count >= LEAST_OF_TARGET * of_target[f] and f.lower() != e:
            renderings[e].append(f)
    genders = {f: gender(articles[f]) for each in renderings.values() for f in each}

    def apart(f: str, g: str) -> bool:
        both = side_by_side[min(f, g), max(f, g)]
        return both <= MOST_SIDE_BY_SIDE * min(of_target[f], of_target[g])

    found_of = {}
    for e, each in sorted(renderings.items()):
        others = {
            f: tuple(g for g in sorted(each) if _like(f, g, genders) and apart(f, g)) for f in sorted(each)
        }
        if known := {f: them for f, them in others.items() if them}:
            found_of[e] = known
    return found_of


def gender(articles: Mapping[str, int]) -> str | None:
    """Return m, n or f if the articles before a noun agree; None if they are too few or disagree."""
    total = sum(articles.values())
    if total < LEAST_ARTICLES:
        return None
    name, most = max(articles.items(), key=lambda item: item[1])
    return name if most >= LEAST_AGREEING * total else None


def _like(f: str, g: str, genders: Mapping[str, str | None]) -> bool:
    one, other = f.lower(), g.lower()
    inside = any(a.startswith(b) or a.endswith(b) for a, b in ((one, other), (other, one)))
    related = inside or one[-COMMON_END:] == other[-COMMON_END:]
    return not related and genders[f] is not None and genders[f] == genders[g]


def _source_words(source: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(source) if len(word) >= LEAST_LETTERS}


def _nouns(words: Sequence[str]) -> Iterator[str]:
    """Yield words after the first that begin with their only capital letter."""
    yield from (w for w in words[1:] if w[0].isupper() and w[1:].islower() and len(w) >= LEAST_LETTERS)


def term_choices(document: ParallelDocument, alternatives: Alternatives) -> Iterator[Choice]:
    """Yield the choices of a document, in the order of sentences and of source words."""
    sources = [Counter(w.lower() for w in _WORD.findall(s)) for s in document.source]
    targets = [Counter(_WORD.findall(t)) for t in document.target]
    chosen = {e: kept for e in alternatives if (kept := _kept(e, alternatives[e], sources, targets))}
    last: dict[str, int] = {}
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        for e, f in chosen.items():
            if not source[e] or not target[f]:
                continue
            if e in last and source[e] == 1 == target[f]:
                right = document.target[number]
                wrong = tuple(re.sub(rf"\b{re.escape(f)}\b", g, right) for g in alternatives[e][f])
                tags = {"term": e, "rendering": f}
                yield Choice(PHENOMENON, number, right, wrong, number - last[e], tags)
            last[e] = number


def _kept(
    word: str,
    renderings: Mapping[str, tuple[str, ...]],
    sources: Sequence[Mapping[str, int]],
    targets: Sequence[Mapping[str, int]],
) -> str | None:
    """Return the only translation of a word in a document; None if an alternative of it occurs."""
    used = {f for s, t in zip(sources, targets, strict=True) if s.get(word) for f in renderings if t.get(f)}
    if len(used) != 1:
        return None
    [kept] = used
    return None if any(t.get(g) for t in targets for g in renderings[kept]) else kept
