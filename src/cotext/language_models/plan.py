"""What a request translates and shows: consecutive sentences of a document, and sentences before them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotext.language_models.config import DEFAULT_CONTEXT, Endpoint

# Sentences of context for what is asked again in smaller pieces, where the mode shows none before a piece.
REPAIR_CONTEXT: Final = DEFAULT_CONTEXT


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive sentences to translate, and those before them with their translations.

    `instruction`: what the file says of how its document is to be translated.
    """

    sentences: tuple[str, ...]
    before: tuple[str, ...] = ()
    translated_before: tuple[str, ...] = ()
    instruction: str = ""

    def __len__(self) -> int:
        """Count the sentences to translate."""
        return len(self.sentences)


def piece_of(
    source: Sequence[str], translated: Sequence[str], sentences: Sequence[int], context: int
) -> Piece:
    """Consecutive sentences of a document, by their indices, with `context` sentences before them.

    `translated`: the translations of all sentences before them; empty ones are no context. Sentences without
    a visible character are not asked for, so that the indices may leave some out.
    """
    first = sentences[0]
    shown = [index for index in range(max(0, first - context), first) if translated[index]]
    return Piece(
        tuple(source[index] for index in sentences),
        tuple(source[index] for index in shown),
        tuple(translated[index] for index in shown),
    )


def spans_of(count: int, endpoint: Endpoint) -> list[range]:
    """The sentences of each request for a document of `count` sentences, in order."""
    size = endpoint.piece_sentences or max(count, 1)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def repair_context(endpoint: Endpoint) -> int:
    """The sentences before a piece that is smaller than the mode's."""
    if endpoint.mode == "sentence":
        return 0
    return max(endpoint.context_sentences, REPAIR_CONTEXT)
