"""Sentence splitting of text, and joining of the translated sentences into a line again.

The languages that pysbd knows (Sadvilkar and Neumann 2020, *PySBD: Pragmatic Sentence Boundary
Disambiguation*) are cut by its rules, which are not perfect: of its cuts, those before a closing mark move
behind it and those after an abbreviation are undone. Others are cut where `cotext.data.sentence_ends` sees
an end.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final

from cotext.data.sentence_ends import sentence_ends, shortens
from cotext.runtime.errors import CotextError

# Those of pysbd 0.3, known without importing it.
_LANGUAGES = "am ar bg da de el en es fa fr hi hy it ja kk mr my nl pl ru sk ur zh"
LANGUAGES: Final = frozenset(_LANGUAGES.split())
# It takes time by the square of the length of a text; what is far longer without an end is no prose.
CHUNK_CHARACTERS: Final = 1000
MOST_CHARACTERS: Final = 10_000
# Written without a space between sentences. Others that have none between words, as Thai, have one there.
UNSPACED: Final = frozenset({"zh", "ja"})
_UNSPACED_CHARACTER = re.compile("[\u2e80-\u303f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
_CLOSING = re.compile(r"[\"'”’»›)\]」』）】〕》〉]+\s*")


def sentences(text: str, language: str, *, newlines: bool = False) -> list[tuple[int, int]]:
    """The sentences of a text, as spans (start, stop) of its characters, in order and apart.

    What lies between two spans, before the first and behind the last is white space, and no span begins or
    ends with any: spans and gaps put together are the text. A line break ends a sentence with `newlines`
    alone, else it is white space as any other. A text of white space alone has no sentence. `language`: its
    code, empty where it is not known.

    Raises:
        CotextError: the language needs a package that is not installed.
    """
    return _splitter(language).spans(text, newlines)


@cache
def _splitter(language: str) -> "Splitter":
    return Splitter(language)


class Splitter:
    """Cuts lines of one language into sentences; `name` says by what.

    Raises CotextError where the language needs pysbd and it is not installed.
    """

    def __init__(self, language: str) -> None:
        self._segmenter: Any = None
        self.name = "punctuation"
        if language not in LANGUAGES:
            return
        try:
            self._segmenter = import_module("pysbd").Segmenter(language=language, clean=False)
        except ImportError:
            raise CotextError(
                f"--split needs the package pysbd to split {language!r}; install it (pip install "
                "'cotext[split]'), or split the lines beforehand"
            ) from None
        self.name = f"pysbd-{version('pysbd')}:{language}"

    def sentences(self, text: str) -> list[str]:
        """The sentences of a text, without the white space between them; none of white space alone."""
        return [text[start:stop] for start, stop in self.spans(text)]

    def spans(self, text: str, newlines: bool = False) -> list[tuple[int, int]]:
        """As `sentences`, the function of this module, gives them."""
        if not newlines:
            return _without_space(text, _bounds(text, self._ends(text)))
        spans, start = [], 0
        for line in text.split("\n"):
            spans += [(start + low, start + high) for low, high in self.spans(line)]
            start += len(line) + 1
        return spans

    def _ends(self, text: str) -> list[int]:
        """Offsets behind the sentences of a text."""
        if self._segmenter is None:
            cuts = sentence_ends(text)
        else:
            cuts = []
            for start, end in _chunks(text):
                within = self._cuts(text[start:end]) if end - start <= MOST_CHARACTERS else []
                cuts += [start, *(start + cut for cut in within)]
        return _sound(text, cuts)

    def _cuts(self, text: str) -> list[int]:
        """Offsets at which pysbd splits a text; none if its sentences are not the text."""
        try:
            pieces = self._segmenter.segment(text)
        except Exception:
            # Hundreds of patterns, and texts that their author has not thought of: the line stays whole.
            return []
        cuts, at = [], 0
        for piece in pieces:
            for character in piece:
                if character.isspace():
                    continue
                while at < len(text) and text[at].isspace():
                    at += 1
                if at == len(text) or text[at] != character:
                    return []
                at += 1
            cuts.append(at)
        return cuts


def _chunks(text: str) -> list[tuple[int, int]]:
    """A text in parts of bounded length, cut where sentences certainly end; one without ends stays whole."""
    chunks, start, last = [], 0, 0
    for end in [*sentence_ends(text), len(text)]:
        if end - start > CHUNK_CHARACTERS and last > start:
            chunks.append((start, last))
            start = last
        last = end
    return [*chunks, (start, len(text))]


def _sound(text: str, cuts: Sequence[int]) -> list[int]:
    """The cuts that stand: behind white space and closing marks, none after an abbreviation."""
    kept: list[int] = []
    for cut in cuts:
        end = cut
        while end and text[end - 1].isspace():
            end -= 1
        # Dots that leave something out are none of an abbreviation.
        if text[end - 2 : end] != ".." and text[end - 1 : end] == "." and shortens(text, end - 1):
            continue
        at = end
        if closing := _CLOSING.match(text, at):
            at = closing.end()
        while at < len(text) and text[at].isspace():
            at += 1
        if at > (kept[-1] if kept else 0):
            kept.append(at)
    return kept


def _bounds(text: str, ends: Sequence[int]) -> list[int]:
    """Where the sentences begin, and the end of the text: what holds no letter or digit goes with what is
    before it."""
    bounds = [0]
    for start, end in pairwise([0, *(end for end in ends if 0 < end < len(text)), len(text)]):
        if bounds[-1] and not (_has_content(text[start:end]) and _has_content(text[bounds[-2] : start])):
            bounds[-1] = end
        else:
            bounds.append(end)
    return bounds


def _without_space(text: str, bounds: Sequence[int]) -> list[tuple[int, int]]:
    spans = []
    for start, end in pairwise(bounds):
        piece = text[start:end]
        if stripped := piece.strip():
            low = start + piece.index(stripped)
            spans.append((low, low + len(stripped)))
    return spans


def _has_content(piece: str) -> bool:
    return any(map(str.isalnum, piece))


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
    return bool(_UNSPACED_CHARACTER.match(before) or _UNSPACED_CHARACTER.match(after))
