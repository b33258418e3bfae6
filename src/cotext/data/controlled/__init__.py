"""The controlled corpus: generated English-German documents for measuring the use of context."""

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
