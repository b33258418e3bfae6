"""The controlled corpus: generated English-German documents for measuring the use of context."""

from cotext.data.controlled.contrast import SIZES as SIZES
from cotext.data.controlled.contrast import VERSION as VERSION
from cotext.data.controlled.contrast import contrastive_suites as contrastive_suites
from cotext.data.controlled.contrast import development_documents as development_documents
from cotext.data.controlled.contrast import split_of as split_of
from cotext.data.controlled.contrast import test_documents as test_documents
from cotext.data.controlled.contrast import training_documents as training_documents
from cotext.data.controlled.lexicon import WordOrder as WordOrder
