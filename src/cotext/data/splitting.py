"""Splitting of text into sentences, and joining of sentences into a line."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cotext.data.sentence_ends import UNSPACED_CHARACTER, EndRules

RULES: Final = 1  # version of the rules of `cotext.data.sentence_ends`
UNSPACED: Final = frozenset({"zh", "ja"})  # written without a space between sentences


class Splitter:
    """A splitter of texts into sentences by the rules of `cotext.data.sentence_ends`.

    `abbreviations`: additional abbreviations; their full stop does not end a sentence. `name` identifies the
    method, for reports and resumption.
    """

    def __init__(self, language: str, abbreviations: frozenset[str] = frozenset()) -> None:
        self._rules = EndRules(language, abbreviations)
        self.name = f"rules-{RULES}:{language or 'any'}"
        if abbreviations:
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
        spans = []
        for start, end in pairwise([0, *self._rules.ends(text), len(text)]):
            piece = text[start:end]
            if stripped := piece.strip():
                low = start + len(piece) - len(piece.lstrip())
                spans.append((low, low + len(stripped)))
        return spans


@dataclass(frozen=True, slots=True)
class Splitting:
    """The splitting options for all languages; see `Splitter`."""

    abbreviations: frozenset[str] = frozenset()

    def splitter(self, language: str) -> Splitter:
        return Splitter(language, self.abbreviations)


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
