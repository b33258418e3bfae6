"""Streams of documents that can't overlap: the text of a source decides to which split it may belong."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from cotext.data.controlled.discourse import Draw, Plan, plan_document
from cotext.data.controlled.links import WordLinks, word_links
from cotext.data.controlled.word_order import WordOrder
from cotext.data.documents import ParallelDocument
from cotext.runtime.errors import CotextError

# Changes whenever the text generated for a seed changes.
VERSION: Final = 3
# Training documents.
SIZES: Final = {"small": 10_000, "medium": 100_000, "large": 1_000_000}
DEVELOPMENT_DOCUMENTS: Final = 200
TEST_DOCUMENTS: Final = 400

Split = Literal["training", "development", "test", "contrastive"]
# Sixteen buckets of documents: training gets 12, the contrastive suites 2 (they need several documents of
# one kind at once), development and test 1 each.
_SPLIT_OF_BUCKET: Final[tuple[Split, ...]] = (
    *("contrastive", "contrastive"),
    *("development", "test"),
    *("training",) * 12,
)


def split_of(source: Sequence[str]) -> Split:
    """The only split in which this source document may occur, whatever the seeds."""
    return _SPLIT_OF_BUCKET[zlib.crc32("\n".join(source).encode()) & 15]


def _documents(
    split: Split, documents: int, seed: int, order: WordOrder, mentions: int | None = None
) -> Iterator[ParallelDocument]:
    if documents < 0:
        raise CotextError(f"controlled corpus: {documents} documents asked for; give a number from 0 up")
    for name, plan in _plans(split, documents, seed, mentions):
        yield ParallelDocument(name, plan.source(), plan.target(order))


def _plans(
    split: Split, documents: int, seed: int, mentions: int | None = None
) -> Iterator[tuple[str, Plan]]:
    for index in range(documents):
        draw = Draw(split, seed, index)
        plan = plan_document(draw, mentions)
        source = plan.source()
        while split_of(source) != split:
            plan = plan_document(draw, mentions)
            source = plan.source()
        yield f"{split}-{seed}-{index}", plan


def training_documents(
    documents: int, seed: int, order: WordOrder = "verb-second", mentions: int | None = None
) -> Iterator[ParallelDocument]:
    """Stream the training documents; document i depends on (seed, i) alone, so a longer stream begins alike.

    With ``mentions`` every document has a hero, who is mentioned so often, as far as there is room: more
    choices of cohesion than the other splits have, which are the same whatever it is.

    Raises CotextError where ``mentions`` is less than 2, and where ``documents`` is negative, at the first
    document.
    """
    if mentions is not None and mentions < 2:
        raise CotextError(f"controlled corpus: {mentions} mentions of a hero; give a number from 2 up")
    return _documents("training", documents, seed, order, mentions)


def development_documents(seed: int, order: WordOrder = "verb-second") -> Iterator[ParallelDocument]:
    """Stream 200 documents, none of which can occur in training, test or the contrastive suites."""
    return _documents("development", DEVELOPMENT_DOCUMENTS, seed, order)


def test_documents(
    seed: int,
    order: WordOrder = "verb-second",  # noqa: PT028 (no test, whatever its name)
) -> Iterator[ParallelDocument]:
    """Stream 400 documents, none of which can occur in training, development or the contrastive suites."""
    return _documents("test", TEST_DOCUMENTS, seed, order)


def linked_documents(
    split: Literal["development", "test"], documents: int, seed: int
) -> Iterator[tuple[ParallelDocument, tuple[WordLinks, ...]]]:
    """The first documents of a split with the gold alignment of each of their sentences."""
    for name, plan in _plans(split, documents, seed):
        document = ParallelDocument(name, plan.source(), plan.target("verb-second"))
        yield document, tuple(word_links(sentence) for sentence in plan.sentences)
