"""Outputs that no system wrote, for what scores are worth: two floors, one of order, and a ceiling."""

import random
from collections.abc import Sequence
from itertools import chain
from typing import Final

from cotext.data.documents import Document

SOURCE: Final = "copy of the source"
FOREIGN: Final = "reference of other documents"
SHUFFLED: Final = "reference, sentences shuffled"
REFERENCE: Final = "reference"


def controls(
    source: Sequence[Document], reference: Sequence[Document], seed: int
) -> dict[str, list[Document]]:
    """The controls that can be made of a source (if there is any) and a reference, by name.

    The reference of other documents has as many sentences in every document as it should, and is good text of
    the same kind, which has nothing to do with the source. The shuffled one has the sentences of each
    document in another order: scores that are as good as the reference's do not see it.
    """
    made = {SOURCE: list(source)} if source else {}
    if len(reference) > 1:
        made[FOREIGN] = [_of_others(reference, index) for index in range(len(reference))]
    generator = random.Random(seed)
    made[SHUFFLED] = [_shuffled(document, generator) for document in reference]
    made[REFERENCE] = list(reference)
    return made


def _of_others(documents: Sequence[Document], index: int) -> Document:
    """The sentences of the documents that follow, as many as a document has, again from the first on."""
    wanted = len(documents[index])
    others = chain(documents[index + 1 :], documents[:index])
    sentences: list[str] = []
    for document in others:
        sentences += document.sentences
        if len(sentences) >= wanted:
            break
    repeated = sentences * (1 + wanted // max(1, len(sentences)))
    return Document(documents[index].id, tuple(repeated[:wanted]))


def _shuffled(document: Document, generator: random.Random) -> Document:
    sentences = list(document.sentences)
    generator.shuffle(sentences)
    return Document(document.id, tuple(sentences))
