"""Placeholders: parts of a text that are copied by rule, and the text that stands for them before a model."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cotext.data.tokenizer import Tokenizer
from cotext.files.blocks import Copied, Piece, merged

_RULES: Final = re.compile(r"https?://[^\s<>\"]+[^\s<>\".,;:!?)\]]|\{\w+\}|%(?:\(\w+\)|\d+\$)?[sd]\b")


def with_placeholders(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces with what is copied by rule as `Copied`, under keys above all others.

    `without_placeholders` makes text of them again.
    """
    return merged(_split(pieces))


def without_placeholders(pieces: Iterable[Piece], before: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces of a translation with those `Copied` as text that `with_placeholders` made of `before`."""
    own = {piece.key for piece in before if not isinstance(piece, str)}
    return merged(p.text if isinstance(p, Copied) and p.key not in own else p for p in pieces)


def shown(pieces: Sequence[Piece], tokenizer: Tokenizer) -> dict[int, str]:
    """The text that stands for each `Copied` of a sentence in what a model reads and writes, by key."""
    return {piece.key: piece.text for piece in pieces if isinstance(piece, Copied)}


def _split(pieces: Sequence[Piece]) -> Iterator[Piece]:
    key = max((piece.key for piece in pieces if not isinstance(piece, str)), default=-1)
    for piece in pieces:
        if not isinstance(piece, str):
            yield piece
            continue
        done = 0
        for found in _RULES.finditer(piece):
            key += 1
            yield piece[done : found.start()]
            yield Copied(key, found[0])
            done = found.end()
        yield piece[done:]
