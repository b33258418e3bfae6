"""The form of a text kept in its translation: whether it begins in capitals, and the mark at its end."""

from dataclasses import replace
from typing import Final

from cotext.files.blocks import Block

_FINAL: Final = ".!?…。！？"
# Where nouns have capitals, a translation that begins with one may do so rightly.
_CAPITAL_NOUNS: Final = frozenset({"de", "lb"})


def formatted_as(own: Block, translated: Block, language: str) -> Block:
    """A translation with the first case and the final punctuation of its source; `language`: its own.

    What is copied at its beginning or its end stays as it is.
    """
    pieces = list(translated.pieces)
    if not own.text.strip() or not translated.text.strip():
        return translated
    if isinstance(pieces[0], str):
        pieces[0] = _with_first_case(own.text, pieces[0], language)
    if isinstance(pieces[-1], str):
        pieces[-1] = _with_final_mark(own.text, pieces[-1])
    return replace(translated, pieces=tuple(pieces))


def _with_first_case(source: str, target: str, language: str) -> str:
    begins, at = source.lstrip()[0], len(target) - len(target.lstrip())
    first = target[at : at + 1]
    if begins.isupper() and first.islower():
        return target[:at] + first.upper() + target[at + 1 :]
    if begins.islower() and first.isupper() and language not in _CAPITAL_NOUNS:
        return target[:at] + first.lower() + target[at + 1 :]
    return target


def _with_final_mark(source: str, target: str) -> str:
    shown = source.rstrip()
    wanted = shown[len(shown.rstrip(_FINAL)) :]
    stop = len(target.rstrip())
    end = len(target[:stop].rstrip(_FINAL))  # where the marks begin
    if end < stop and not wanted:
        return target[:end] + target[stop:]
    if wanted and end == stop and target[stop - 1 : stop].isalnum():
        return target[:stop] + wanted + target[stop:]
    return target
