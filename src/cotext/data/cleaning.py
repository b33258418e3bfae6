"""Cleaning of training data: sentence pairs left out by rules, and documents cut where they were.

A document is cut where a pair is left out, so that no sentence follows one that it did not follow; its
pieces are documents of their own. Rules look at a pair alone, but for copies of whole passages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotext.data.documents import ParallelDocument
from cotext.data.identification import language_identifier
from cotext.data.languages import Languages
from cotext.data.statistics import SeenPairs
from cotext.runtime.errors import CotextError, nearest_known, shown

# What a rule without a number takes.
DEFAULTS: Final[dict[str, float]] = {"length": 1000, "ratio": 3, "language": 0.95}
RULES: Final = ("empty", "length", "ratio", "copies", "language", "duplicates")
RATIO_CHARACTERS: Final = 10  # added to both sides: short sentences differ in length by chance
COPY_LETTERS: Final = 10  # names and numbers are the same in both languages
LANGUAGE_LETTERS: Final = 40  # in less text a language is a guess
PASSAGE_SENTENCES: Final = 3  # a passage that comes again; fewer come again by chance
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")

Pair = tuple[str, str]


def parse_rules(texts: Sequence[str]) -> dict[str, float]:
    """Rules as they are written on the command line, `ratio` or `ratio=3`, with their numbers; `all` for all.

    Raises:
        CotextError: no such rule, or a number that it cannot have.
    """
    rules: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name == "all" and not equals:
            rules = {**{rule: DEFAULTS.get(rule, 0) for rule in RULES}, **rules}
            continue
        if name not in RULES:
            near = nearest_known(name, RULES)
            raise CotextError(f"--clean {shown(text)}: no such rule{near}; all are {', '.join(RULES)}")
        rules[name] = DEFAULTS.get(name, 0)
        if equals:
            rules[name] = _number(name, value, text)
    return rules


def _number(name: str, value: str, text: str) -> float:
    bounds = {"length": (1.0, 999_999.0), "ratio": (1.0, 1000.0), "language": (0.0, 1.0)}
    if name not in bounds:
        raise CotextError(f"--clean {shown(text)}: the rule {name} takes no number")
    least, most = bounds[name]
    if not _NUMBER.fullmatch(value) or not least <= float(value) <= most:
        raise CotextError(f"--clean {shown(text)}: {name} takes a number from {least:g} to {most:g}")
    return float(value)


@dataclass(slots=True)
class Cleaned:
    """Pairs left out, by the rule that was the first to object, and what became of their documents."""

    rules: dict[str, float]
    documents_before: int = 0
    pairs_before: int = 0
    pairs: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    left_out: int = 0

    def render(self) -> str:
        """As one line."""
        reasons = ", ".join(f"{rule} {self.pairs.get(rule, 0):,}" for rule in self.rules)
        return (
            f"train: of {self.pairs_before:,} pairs, {sum(self.pairs.values()):,} left out ({reasons}); of "
            f"{self.documents_before:,} documents, {self.cut:,} cut in pieces and {self.left_out:,} left out"
        )


class Cleaner:
    """Cleans documents by rules, once through; `cleaned` counts.

    `lengths`: characters of all source and all target sentences, by whose relation `ratio` judges.

    Raises CotextError where languages are to be identified and are not known, or the package is missing.
    """

    def __init__(self, rules: dict[str, float], languages: Languages, lengths: tuple[int, int]) -> None:
        self.cleaned = Cleaned(rules)
        self._languages = languages
        self._expected = max(lengths[1], 1) / max(lengths[0], 1)
        self._seen = SeenPairs()
        tests: dict[str, Callable[[Pair], bool]] = {
            "empty": _half_empty,
            "length": self._too_long,
            "ratio": self._out_of_proportion,
            "copies": _copied,
            "language": self._in_another_language,
        }
        self._tests = {rule: test for rule, test in tests.items() if rule in rules}
        if "language" in rules:
            self._require_languages()

    def documents(self, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        """The documents after cleaning."""
        for document in documents:
            pairs = list(zip(document.source, document.target, strict=True))
            reasons = [self._reason(pair) for pair in pairs]
            if "duplicates" in self.cleaned.rules:
                for i in self._repeated(pairs):
                    reasons[i] = reasons[i] or "duplicates"
            self.cleaned.documents_before += 1
            self.cleaned.pairs_before += len(pairs)
            left_out = [reason for reason in reasons if reason]
            if not left_out:
                yield document
                continue
            for reason in left_out:
                self.cleaned.pairs[reason] = self.cleaned.pairs.get(reason, 0) + 1
            runs: list[list[Pair]] = [[]]
            for pair, reason in zip(pairs, reasons, strict=True):
                if reason:
                    runs.append([])
                else:
                    runs[-1].append(pair)
            found = [run for run in runs if run]
            self.cleaned.cut += len(found) > 1
            self.cleaned.left_out += not found
            yield from pieces_of(document.id, found)

    def _reason(self, pair: Pair) -> str:
        """The first rule that objects to a pair; empty where none does."""
        if not any(pair):
            return ""
        return next((rule for rule, test in self._tests.items() if test(pair)), "")

    def _too_long(self, pair: Pair) -> bool:
        return max(map(len, pair)) > self.cleaned.rules["length"]

    def _out_of_proportion(self, pair: Pair) -> bool:
        source = len(pair[0]) * self._expected + RATIO_CHARACTERS
        target = len(pair[1]) + RATIO_CHARACTERS
        return max(source, target) > self.cleaned.rules["ratio"] * min(source, target)

    def _in_another_language(self, pair: Pair) -> bool:
        sides = zip(pair, (self._languages.source, self._languages.target), strict=True)
        return any(self._is_foreign(text, language) for text, language in sides)

    def _is_foreign(self, text: str, language: str) -> bool:
        # A character of Chinese says as much as several letters.
        weight = sum(3 if character >= "\u2e80" else character.isalpha() for character in text)
        if weight < LANGUAGE_LETTERS:
            return False
        found, probability = language_identifier().classify(text)
        return bool(found != language and probability >= self.cleaned.rules["language"])

    def _require_languages(self) -> None:
        if not str(self._languages):
            raise CotextError(
                "--clean language: the languages of the corpus are not known; name them with "
                "--source-language and --target-language"
            )
        try:
            known = set(language_identifier().labels)
        except ImportError:
            raise CotextError(
                "--clean language needs the package py3langid; install it (pip install 'cotext[clean]'), or "
                "leave the rule out"
            ) from None
        for language in (self._languages.source, self._languages.target):
            if language not in known:
                raise CotextError(
                    f"--clean language: {language} is no language that can be identified; leave the rule out"
                )

    def _repeated(self, pairs: Sequence[Pair]) -> set[int]:
        """Indices of pairs in passages that came before; a shorter document is a passage by itself."""
        length = min(PASSAGE_SENTENCES, len(pairs))
        starts = range(len(pairs) - length + 1)
        passages = [
            tuple("\n".join(side) for side in zip(*pairs[i : i + length], strict=True)) for i in starts
        ]
        known = self._seen.add_each([(p[0], p[1]) for p in passages])
        return {i + k for i, before in zip(starts, known, strict=True) if before for k in range(length)}


def _half_empty(pair: Pair) -> bool:
    source, target = (bool(side.strip()) for side in pair)
    return source != target


def _copied(pair: Pair) -> bool:
    source, target = (" ".join(side.casefold().split()) for side in pair)
    return source == target and sum(map(str.isalpha, source)) >= COPY_LETTERS


def pieces_of(document_id: str, runs: Sequence[Sequence[tuple[str, str]]]) -> Iterator[ParallelDocument]:
    """The pieces of a document that was cut, as documents: d#1, d#2 and so on; a single one keeps its id."""
    for number, run in enumerate(runs, 1):
        name = document_id if len(runs) == 1 else f"{document_id}#{number}"
        yield ParallelDocument(name, tuple(s for s, _ in run), tuple(t for _, t in run))
