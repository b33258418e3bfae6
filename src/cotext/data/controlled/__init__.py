"""The controlled corpus: a small English-German world in which the use of context can be measured."""

from cotext.data.controlled.contrast import (
    SIZES,
    VERSION,
    contrastive_suites,
    development_documents,
    split_of,
    test_documents,
    training_documents,
)
from cotext.data.controlled.lexicon import WordOrder

__all__ = [
    "SIZES",
    "VERSION",
    "WordOrder",
    "contrastive_suites",
    "development_documents",
    "split_of",
    "test_documents",
    "training_documents",
]
