"""Documents (an id and sentences in order), and the language pair of a corpus, a run or a suite.

The pair is given, or guessed from file names such as train.en. File names are only hints, so a contradicting
name gives a warning. If the language pairs of a run and a suite are known and differ, this is an error. Two
files with swapped names are an error, too.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from cotext.runtime import CotextError


@dataclass(frozen=True, slots=True)
class Document:
    """A document in one language; empty sentences are allowed and counted."""

    id: str
    sentences: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True, slots=True)
class ParallelDocument:
    """A document and its translation; sentence i of the target translates sentence i of the source.

    Raises CotextError if the two sides differ in their number of sentences.
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise CotextError(
                f"document {self.id!r}: {len(self.source)} source sentences but {len(self.target)} target "
                "sentences; every source sentence needs exactly one target sentence (it may be empty)"
            )

    def __len__(self) -> int:
        return len(self.source)


_LINES: Final = Path(__file__).with_name("languages.txt").read_text(encoding="utf-8").splitlines()
_ROWS: Final = [line.split("\t") for line in _LINES if not line.startswith("#")]
NAMES: Final[dict[str, str]] = {row[0]: row[1] for row in _ROWS}  # English names by ISO 639-1 code
CODES: Final = frozenset(NAMES)
CERTAIN: Final = 0.95  # probability from which an identified language is accepted
# ISO 639-3 codes, which test sets use (`deu_Latn`), of languages with a code of two letters.
TWO_LETTERS: Final = {code: row[0] for row in _ROWS for code in " ".join(row[2:]).split()}


@dataclass(frozen=True, slots=True)
class Languages:
    """Source and target language as codes of two or three letters; empty if unknown."""

    source: str = ""
    target: str = ""

    @classmethod
    def parse(cls, pair: str) -> "Languages":
        """Parse a pair such as "en-de" or "eng-deu"; an empty text is the unknown pair."""
        source, _, target = pair.partition("-")
        return cls(primary_language(source), primary_language(target))

    def __str__(self) -> str:
        """The pair as text, such as "en-de"; empty unless both languages are known."""
        return f"{self.source}-{self.target}" if self.source and self.target else ""

    @property
    def reversed(self) -> "Languages":
        return Languages(self.target, self.source)

    @property
    def shown(self) -> str:
        """The pair for messages, such as "?-de" if the source language is unknown."""
        return f"{self.source or '?'}-{self.target or '?'}"

    def contradicts(self, other: "Languages") -> bool:
        """Return whether a side is known in both and differs; codes of unequal length are not compared."""
        sides = ((self.source, other.source), (self.target, other.target))
        return any(len(a) == len(b) and a != b for a, b in sides)


def language_code(text: str, option: str) -> str:
    """Return the `primary_language` of a code such as `DE`, `de_AT` or `deu`, or raise CotextError."""
    code = primary_language(text)
    if not re.fullmatch("[a-z]{2,3}", code):
        raise CotextError(f"{option} {text}: pass a language code such as en, de or zh")
    return code


def primary_language(code: str) -> str:
    """Return the language of a code, with two letters if possible: `de` for `de-AT` and `deu_Latn`."""
    first = re.split("[-_]", code.strip().lower(), maxsplit=1)[0]
    return TWO_LETTERS.get(first, first)


def fitting_codes(wanted: str, available: Iterable[str]) -> list[str]:
    """Return the available codes that match a requested code.

    Equal codes are preferred to codes that begin with the requested code, and these to other codes of the
    language. So `de` matches `de_DE`, even if `deu_Latn` is available, too.
    """
    codes = [code for code in dict.fromkeys(available) if code]

    def parts(code: str) -> list[str]:
        return re.split("[-_]", code.strip().lower())

    ranks = (
        [code for code in codes if parts(code) == parts(wanted)],
        [code for code in codes if parts(code)[: len(parts(wanted))] == parts(wanted)],
        [code for code in codes if same_language(code, wanted)],
    )
    return next(filter(None, ranks), [])


def same_language(first: str, second: str) -> bool:
    """Return whether two codes denote the same language, such as "en", "EN", "en-US" and "eng_Latn"."""
    return primary_language(first) == primary_language(second) != ""


def language_of_name(path: Path) -> str:
    """Return the language of the last language suffix in a file name, such as train.en or a.de.txt.xz."""
    endings = path.name.lower().split(".")[1:]
    return next((ending for ending in reversed(endings) if ending in CODES), "")


def languages_of_names(source: Path, target: Path | None) -> Languages:
    """Return the language pair in the names of two files; unknown unless the names contain two languages."""
    if target is None:
        return Languages()
    pair = Languages(language_of_name(source), language_of_name(target))
    return pair if str(pair) and pair.source != pair.target else Languages()


def check_sides(
    known: Languages, source: Path, target: Path | None, whose: str, *texts: Iterable[Iterable[str]]
) -> None:
    """Raise CotextError if the names of two files, or their `texts`, have the reversed languages of `known`.

    An example is `--source a.de --target a.en` for en-de. `whose`: subject and verb of the message, such as
    "runs/a translates".
    """
    named, swapped = languages_of_names(source, target), known.reversed
    if str(known) and swapped != known and swapped in (named, *map(languages_of_texts, texts)):
        files = " and ".join(str(path) for path in (source, target) if path is not None)
        what = "names" if swapped == named else "texts"
        raise CotextError(f"{files}: the {what} say {swapped}, but {whose} {known}; swap them")


def check_pair(known: Languages, other: Languages, what: str, whose: str) -> None:
    """Raise CotextError if the language pairs contradict each other; `whose`: see `check_sides`."""
    if known.contradicts(other):
        raise CotextError(
            f"{what} is {other.shown}, and {whose} {known.shown}; use the same language pair for both"
        )


def name_warning(path: Path, language: str, whose: str) -> str:
    """Return a warning if the name of a source file contains another language; otherwise an empty string."""
    named = language_of_name(path)
    if not named or not language or named == language or len(language) != 2:
        return ""
    return f"{path}: the name says {named!r}, but {whose} from {language!r}; is it the right side?"


def name_of(code: str) -> str:
    """Return the English name of a language, such as "German" for "de"; the code itself if unknown."""
    return NAMES.get(code, code)


@cache
def language_identifier() -> Any:
    """Return the language identifier of py3langid; raises ImportError if it is not installed."""
    module = import_module("py3langid.langid")
    return module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)


def identified(text: str) -> tuple[str, float] | None:
    """Return the language of a text and its probability; None if py3langid is not installed."""
    try:
        code, probability = language_identifier().classify(text)
    except ImportError:
        return None
    return str(code), float(probability)


def languages_of_texts(texts: Iterable[Iterable[str]]) -> Languages:
    """Identify the languages of two texts by their first 2,000 characters; empty if uncertain."""
    found = [identified(" ".join(sentences)[:2000]) for sentences in texts]
    return Languages(*(each[0] if each and each[1] >= CERTAIN else "" for each in found))
