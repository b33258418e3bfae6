"""The controlled corpus: a small English-German world in which the use of context can be measured."""

from cotext.data.controlled.contrast import contrastive_suites
from cotext.data.controlled.splits import (
    SIZES,
    VERSION,
    development_documents,
    split_of,
    test_documents,
    training_documents,
)

__all__ = [
    "SIZES",
    "VERSION",
    "contrastive_suites",
    "development_documents",
    "split_of",
    "test_documents",
    "training_documents",
]
