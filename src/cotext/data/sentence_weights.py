"""Weights of training sentences: how often the labels of each count (`train.weight_by`).

A file of JSON lines: a header, then the documents of a training corpus in the order of its store, each with a
weight for every sentence, those without a token included.

    {"format": "cotext-weights", "version": 1, "data": "<SHA-256 of train.arrow>", "signature": "..."}
    {"document": "d1", "weights": [0.5, 1.75]}

Only their ratios matter: training divides them by their mean over the labels of the corpus.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.formats.streams import numbered_lines
from cotext.data.prepared import checked_digests, digest_file
from cotext.data.store import TokenStore
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

FORMAT: Final = "cotext-weights"
VERSION: Final = 1
LARGEST: Final = 1e6

Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SentenceWeights:
    """The weights of all sentences of a store, one document after the other; `ends`: of each document."""

    flat: Weights
    ends: NDArray[np.int64]

    def of(self, document: int) -> list[float]:
        """Those of the sentences of a document, by its index."""
        begin = self.ends[document - 1] if document else 0
        weights: list[float] = self.flat[begin : self.ends[document]].tolist()
        return weights


def digest_of_store(folder: Path) -> str:
    """The digest that stands for the training corpus of a prepared folder.

    Raises:
        CotextError: the file is not what the report of the folder says.
    """
    name = digest_file(folder / "train.arrow").relative_to(folder).as_posix()
    return checked_digests(folder, [name])[name]


def read_weights(path: Path, folder: Path, store: TokenStore) -> SentenceWeights:
    """The weights of `store`, the training corpus of a prepared folder; their mean over its labels is 1.

    Raises:
        CotextError: no such file, not of this form, of other data, negative or not finite, or all are 0.
    """
    lines = numbered_lines(path)
    first = next(lines, None)
    header = _object(path, *first) if first is not None else {}
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise CotextError(
            f'{path}: no weights of sentences: its first line is not {{"format": "{FORMAT}", "version": '
            f"{VERSION}, ...}}"
        )
    remedy = "make the weights again, from the data that is trained on"
    if header.get("data") != digest_of_store(folder):
        raise CotextError(f"{path}: weights of other data than {store.path}; {remedy}")
    found: list[Weights] = []
    labels = weighted = 0.0
    for number, line in lines:
        if len(found) == len(store):
            raise CotextError(f"{path}:{number}: more documents than the {len(store):,} of {store.path}")
        target = store.lengths(len(found))[1]
        weights = _weights(path, number, line, len(target), store.id(len(found)))
        found.append(weights)
        labels += float((target + 1).sum())
        weighted += float(((target + 1) * weights.astype(np.float64)).sum())
    if len(found) < len(store):
        raise CotextError(
            f"{path}: weights of {len(found):,} documents, and {store.path} has {len(store):,}; {remedy}"
        )
    if not weighted:
        raise CotextError(
            f"{path}: all weights are 0, and nothing would be learned; give some sentences more"
        )
    flat = np.concatenate(found) / np.float32(weighted / labels)
    return SentenceWeights(flat, np.cumsum([len(weights) for weights in found]))


def _weights(path: Path, number: int, line: str, sentences: int, name: str) -> Weights:
    """The weights on a line, as many as the document of this name has sentences."""
    entry = _object(path, number, line)
    if entry.get("document") != name:
        raise CotextError(
            f"{path}:{number}: weights of document {shown(entry.get('document'))}, where the data has "
            f"{name!r}; give those of all documents, in the order of the data"
        )
    given = entry.get("weights")
    if not isinstance(given, list) or len(given) != sentences:
        there = f"{len(given)} weights" if isinstance(given, list) else "no list of weights"
        raise CotextError(f"{path}:{number}: {there}; the document there has {sentences} sentences")
    for weight in given:
        if type(weight) not in (int, float) or not (math.isfinite(weight) and 0 <= weight <= LARGEST):
            raise CotextError(
                f"{path}:{number}: a weight is {shown(weight)}; a number from 0 to {LARGEST:,.0f} is wanted"
            )
    return np.asarray(given, np.float32)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    content = parse_json(line, f"{path}:{number}")
    if not isinstance(content, dict):
        raise CotextError(f"{path}:{number}: no JSON object")
    return content
