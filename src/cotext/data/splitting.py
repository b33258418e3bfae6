"""Sentence splitting of text, and joining of the translated sentences into a line again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

from cotext.data.sentence_ends import UNSPACED_CHARACTER, EndRules
from cotext.runtime.errors import CotextError, shown

RULES: Final = 1  # version of the rules of `cotext.data.sentence_ends`
BY_RULES: Final = "rules"
UNSPACED: Final = frozenset({"zh", "ja"})  # written without a space between sentences


class SegmentAnyText:
    """A model of Segment any Text (SaT; Frohmann et al. 2024), through the package wtpsplit-lite.

    `name`: that of a model, such as "sat-3l-sm", which the package fetches once, or the folder of one.

    Raises:
        CotextError: the package is not installed, or cannot load the model.
    """

    def __init__(self, name: str) -> None:
        try:
            package = import_module("wtpsplit_lite")
        except ImportError:
            raise CotextError(
                f"--splitter sat:{name} needs the package wtpsplit-lite; install it (pip install "
                "wtpsplit-lite), or leave --splitter out"
            ) from None
        try:
            self._model: Any = package.SaT(name)
        except Exception as error:
            # Whatever a package of models and a hub raise.
            raise CotextError(
                f"--splitter sat:{name}: the model cannot be loaded ({error}); give the name of a model of "
                "Segment any Text, such as sat-3l-sm, or the folder of one"
            ) from None

    def ends(self, text: str) -> list[int]:
        """Offsets at which a sentence ends and another begins, as `EndRules.ends`.

        None if what the model gives is not the text.
        """
        # A line break is white space; a model may take it for the end of a paragraph.
        plain = "".join(" " if character.isspace() else character for character in text)
        ends, at = [], 0
        for piece in self._model.split(plain) if plain.strip() else ():
            for character in filter(str.strip, piece):
                while at < len(text) and text[at].isspace():
                    at += 1
                if text[at : at + 1] != character:
                    return []
                at += 1
            while at < len(text) and text[at].isspace():
                at += 1
            ends.append(at)
        return [end for end in ends if 0 < end < len(text)]


class Splitter:
    """Cuts texts of one language into sentences; `name` says by what, for reports and resumption.

    `abbreviations`: what is written with a full stop that ends no sentence, beside what is known of the
    language. `by`: "rules" (`cotext.data.sentence_ends`), or "sat:" and a model of Segment any Text by name
    or folder, which knows no abbreviations.

    Raises:
        CotextError: another `by`, or its package or model is missing.
    """

    def __init__(
        self, language: str, abbreviations: frozenset[str] = frozenset(), by: str = BY_RULES
    ) -> None:
        kind, _, model = by.partition(":")
        self._by: EndRules | SegmentAnyText
        if by == BY_RULES:
            self._by = EndRules(language, abbreviations)
            self.name = f"rules-{RULES}:{language or 'any'}"
        elif kind == "sat" and model:
            self._by = SegmentAnyText(model)
            self.name = by
        else:
            raise CotextError(f"--splitter {shown(by)}: choose {BY_RULES}, or sat:MODEL, as in sat:sat-3l-sm")
        if abbreviations:
            if by != BY_RULES:
                raise CotextError(f"--abbreviations are for the rules; leave them or --splitter {by} out")
            listed = "\n".join(sorted(abbreviations)).encode()
            self.name += f"+{len(abbreviations)}-{hashlib.sha256(listed).hexdigest()[:8]}"

    def sentences(self, text: str) -> list[str]:
        """The sentences of a text, without the white space between them; none of white space alone."""
        return [text[start:stop] for start, stop in self.spans(text)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The sentences of a text, as spans (start, stop) of its characters, in order and apart.

        What lies between two spans, before the first and behind the last is white space, and no span begins
        or ends with any. A line break is white space as any other. White space alone has no sentence.
        """
        return _without_space(text, [0, *self._by.ends(text), len(text)])


def _without_space(text: str, bounds: Sequence[int]) -> list[tuple[int, int]]:
    spans = []
    for start, end in pairwise(bounds):
        piece = text[start:end]
        if stripped := piece.strip():
            low = start + len(piece) - len(piece.lstrip())
            spans.append((low, low + len(stripped)))
    return spans


@dataclass(frozen=True, slots=True)
class Splitting:
    """How texts are split, whatever their language; see `Splitter`."""

    abbreviations: frozenset[str] = frozenset()
    by: str = BY_RULES

    def splitter(self, language: str) -> Splitter:
        """The splitter of a language."""
        return Splitter(language, self.abbreviations, self.by)


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Sentences as one line: a space between them, none in Chinese and Japanese.

    For an unknown language, the characters on both sides decide.
    """
    line = ""
    for sentence in sentences:
        text = sentence.strip()
        if line and text and not (_is_unspaced(language) and _unspaced_seam(line[-1], text[0])):
            line += " "
        line += text
    return line


def _is_unspaced(language: str) -> bool:
    return not language or language in UNSPACED


def _unspaced_seam(before: str, after: str) -> bool:
    return bool(UNSPACED_CHARACTER.match(before) or UNSPACED_CHARACTER.match(after))
