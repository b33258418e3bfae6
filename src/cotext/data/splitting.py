"""Splitting of text into sentences, and joining of sentences into a line."""

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
    """A model of Segment any Text (SaT; Frohmann et al. 2024), run with the package wtpsplit-lite.

    `name`: name of a model such as "sat-3l-sm", which the package downloads once, or the folder of a model.

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
        except Exception as error:  # the package and the hub raise various errors
            raise CotextError(
                f"--splitter sat:{name}: the model cannot be loaded ({error}); pass the name of a model of "
                "Segment any Text, such as sat-3l-sm, or the folder of a model"
            ) from None

    def ends(self, text: str) -> list[int]:
        """Return the offsets of sentence boundaries, as `EndRules.ends`.

        The result is empty if the output of the model is not the text.
        """
        # Line breaks become spaces, because a model may interpret them as the end of a paragraph.
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
    """A splitter of texts into sentences. `name` identifies the method, for reports and resumption.

    `abbreviations`: additional abbreviations; their full stop does not end a sentence. `by`: "rules"
    (`cotext.data.sentence_ends`), or "sat:" and the name or folder of a model of Segment any Text, which does
    not support abbreviations.

    Raises:
        CotextError: `by` is unknown, or its package or model is missing.
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
            raise CotextError(
                f"--splitter {shown(by)}: choose {BY_RULES}, or sat:MODEL, for example sat:sat-3l-sm"
            )
        if abbreviations:
            if by != BY_RULES:
                raise CotextError(f"--abbreviations are for the rules; leave them or --splitter {by} out")
            listed = "\n".join(sorted(abbreviations)).encode()
            self.name += f"+{len(abbreviations)}-{hashlib.sha256(listed).hexdigest()[:8]}"

    def sentences(self, text: str) -> list[str]:
        """Return the sentences of a text without surrounding white space; an empty list for blank text."""
        return [text[start:stop] for start, stop in self.spans(text)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the sentences of a text as sorted spans (start, stop) of characters.

        All characters outside of the spans are white space, and no span begins or ends with white space. Line
        breaks are white space.
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
    """The splitting options for all languages; see `Splitter`."""

    abbreviations: frozenset[str] = frozenset()
    by: str = BY_RULES

    def splitter(self, language: str) -> Splitter:
        return Splitter(language, self.abbreviations, self.by)


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join sentences to one line, with a space between them, except in Chinese and Japanese.

    In these and in unknown languages, there is no space next to a Chinese or Japanese character.
    """
    may_join = not language or language in UNSPACED
    line = ""
    for sentence in sentences:
        text = sentence.strip()
        if line and text and not (may_join and any(map(UNSPACED_CHARACTER.match, (line[-1], text[0])))):
            line += " "
        line += text
    return line
