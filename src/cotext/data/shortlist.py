"""Lexical shortlists: the target tokens that a translation may need, given the source tokens.

A sentence needs only a small part of the vocabulary. A table has the most probable target tokens for each
source token, and the most frequent target tokens for all sentences. Source: Jean et al. 2015, "On Using Very
Large Target Vocabulary for Neural Machine Translation", section 3.3. The probabilities come from IBM Model 1
(Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4), with an empty source
token:

    p(t | s) = sum over pairs with s and t of p(t | s) / sum over s' of the pair of p(t | s'), normalised

Shapes: V source vocabulary, C candidates of a source token, F frequent tokens.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cotext.data.alignment import stretches
from cotext.data.tokenizer import Tokenizer
from cotext.runtime import CotextError
from cotext.runtime.files import replacing

if TYPE_CHECKING:  # reports import this module, and should not wait for the import of pyarrow
    from cotext.data.store import TokenStore

SHORTLIST: Final = "shortlist.safetensors"
CANDIDATES: Final = 100  # target tokens per source token
FREQUENT: Final = 1000
PAIRS: Final = 200_000  # maximum number of training pairs
_ROUNDS: Final = 4  # of expectation and maximisation
_LEAST: Final = 1e-4  # smaller probabilities become 0 between rounds

Ids = NDArray[np.int32]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Candidates of every source token, best first and padded with -1, and the most frequent tokens.

    `fingerprint` is the fingerprint of the tokenizer.
    """

    fingerprint: str
    candidates: Ids  # [V, C]
    frequent: Ids  # [F]

    def of(self, source: Sequence[int], count: int) -> NDArray[np.int64]:
        """Return the target tokens for source tokens, ascending, with at most `count` candidates of each."""
        known = np.asarray(source, dtype=np.int64)
        chosen = np.zeros(int(max(self.candidates.max(initial=0), self.frequent.max(initial=0))) + 2, bool)
        chosen[self.frequent] = True
        # Padding, -1, sets only the last entry.
        chosen[self.candidates[known[known < len(self.candidates)], :count]] = True
        return np.flatnonzero(chosen[:-1])

    def save(self, path: Path) -> None:
        """Write the table; raises CotextError for storage errors."""
        with replacing(path, SafetensorError) as temporary:
            tensors = {"candidates": self.candidates, "frequent": self.frequent}
            save_file(tensors, temporary, {"cotext.shortlist": "1", "cotext.tokenizer": self.fingerprint})

    @classmethod
    def load(cls, path: Path, tokenizer: Tokenizer) -> Self:
        """Read a table; raises CotextError if it is damaged, or for another tokenizer."""
        again = "make it again: cotext shortlist RUN --data DATA"
        try:
            with safe_open(path, framework="numpy") as file:
                noted = file.metadata() or {}
                candidates, frequent = file.get_tensor("candidates"), file.get_tensor("frequent")
        except (SafetensorError, OSError) as error:
            raise CotextError(f"{path}: damaged, or not a shortlist ({error}); {again}") from None
        if noted.get("cotext.tokenizer") != tokenizer.fingerprint:
            raise CotextError(f"{path}: made for another tokenizer; {again}")
        shortlist = cls(tokenizer.fingerprint, candidates, frequent)
        if not shortlist._fits(tokenizer):
            raise CotextError(f"{path}: damaged: contains tokens that are not in the vocabulary; {again}")
        return shortlist

    def _fits(self, tokenizer: Tokenizer) -> bool:
        are_tables = all(
            table.dtype == np.int32
            and table.ndim == dimensions
            and table.size > 0
            and least <= table.min()
            and table.max() < tokenizer.pieces
            for table, dimensions, least in ((self.candidates, 2, -1), (self.frequent, 1, 0))
        )
        return are_tables and len(self.candidates) == tokenizer.source_vocabulary_size


def identity_of(shortlist: Shortlist | None) -> dict[str, str]:
    """Return the SHA-256 of the table, for the identity of jobs; an empty dict without a shortlist."""
    if shortlist is None:
        return {}
    table = shortlist.candidates.tobytes() + shortlist.frequent.tobytes()
    return {"shortlist": hashlib.sha256(table).hexdigest()}


def named(shortlist: Shortlist | None) -> str:
    """Return a prefix of the SHA-256 of the table, for signatures; empty if there is no shortlist."""
    return "".join(identity_of(shortlist).values())[:8]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of references by shortlists, in per cent, and the mean size of shortlists.

    `tokens`: share of reference tokens that are in the shortlist. `sentences`: share of references of which
    all tokens are in the shortlist.
    """

    tokens: float
    sentences: float
    size: float
    vocabulary: int

    def render(self, count: int) -> str:
        """Return a line of text; `count` is the number of candidates per source token."""
        return (
            f"shortlist={count}: {self.size:.0f} of {self.vocabulary:,} tokens for a sentence; it has "
            f"{self.tokens:.1f}% of the tokens in dev references, and all in {self.sentences:.1f}% of these"
        )


def learned_shortlist(store: "TokenStore", tokenizer: Tokenizer) -> Shortlist:
    """Learn a table from at most `PAIRS` sentence pairs, evenly spaced in a training corpus.

    Raises CotextError if the corpus has no sentence pair, or was made with another tokenizer.
    """
    store.require_tokenizer(tokenizer)
    every = max(1, -(-store.totals.sentences // PAIRS))
    sample = [pair for number, pair in enumerate(_pairs(store)) if number % every == 0]
    if not sample:
        raise CotextError(f"{store.path}: has no sentence pair to learn a shortlist from")
    model = _Model1(sample, tokenizer.source_vocabulary_size, tokenizer.pieces)
    for _ in range(_ROUNDS):
        model.improve()
    candidates = np.full((tokenizer.source_vocabulary_size, CANDIDATES), -1, np.int32)
    for source, (target, probability) in model.rows.items():
        best = target[np.argsort(-probability, kind="stable")[:CANDIDATES]]
        candidates[source, : len(best)] = best
    if not tokenizer.separate_vocabularies:
        _put_first(candidates, tokenizer.pieces)
    frequent = np.argsort(-model.counts, kind="stable")[:FREQUENT]
    seen = frequent[model.counts[frequent] > 0]
    return Shortlist(tokenizer.fingerprint, candidates, seen.astype(np.int32))


def coverage(shortlist: Shortlist, store: "TokenStore", count: int, tokenizer: Tokenizer) -> Coverage:
    """Measure how much of the references of a corpus the shortlists of its sentences contain."""
    inside = whole = tokens = size = sentences = 0
    for source, target in _pairs(store):
        chosen = shortlist.of(source.tolist(), count)
        contained = int(np.isin(target, chosen).sum())
        inside, tokens, size = inside + contained, tokens + len(target), size + len(chosen)
        whole, sentences = whole + (contained == len(target)), sentences + 1
    per_sentence = 100 / max(sentences, 1)
    return Coverage(
        100 * inside / max(tokens, 1), whole * per_sentence, size / max(sentences, 1), tokenizer.pieces
    )


def _put_first(candidates: Ids, pieces: int) -> None:
    """Make every token of a joint vocabulary its own first candidate, for names and numbers; in place."""
    tokens = np.arange(pieces, dtype=np.int32)
    rows = candidates[:pieces]
    # A token that is among its candidates moves to the front; otherwise the last candidate is dropped.
    is_same = rows == tokens[:, None]
    at = np.where(is_same.any(axis=1), is_same.argmax(axis=1), rows.shape[1] - 1)
    moved = np.arange(rows.shape[1])[None] <= at[:, None]
    shifted = np.concatenate((tokens[:, None], rows[:, :-1]), axis=1)
    rows[:] = np.where(moved, shifted, rows)


def _pairs(store: "TokenStore") -> Iterator[tuple[Ids, Ids]]:
    """Yield the sentence pairs with tokens on both sides."""
    for document in store:
        for source, target in zip(document.source, document.target, strict=True):
            if len(source) and len(target):
                yield source, target


class _Model1:
    """IBM Model 1; each token counts once per sentence.

    Sums over pairs are computed for one source token after the other, with an index of the pairs that contain
    the token. So the sparse probabilities are the only table of source and target tokens.
    """

    def __init__(self, pairs: Sequence[tuple[Ids, Ids]], sources: int, targets: int) -> None:
        source = [np.unique(s) for s, _ in pairs]
        target = [np.unique(t) for _, t in pairs]
        self.rows: dict[int, tuple[Ids, Numbers]] = {}
        self._targets = targets
        self._lengths = np.array(list(map(len, target)))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._tokens = np.concatenate(target)
        self.counts = np.bincount(self._tokens, minlength=targets)
        self._unsourced = np.ones(targets)
        lengths = np.array(list(map(len, source)))
        # Initially, all probabilities are equal.
        self._sums = np.repeat(lengths + 1.0, self._lengths)
        tokens = np.concatenate(source)
        order = np.argsort(tokens, kind="stable")
        self._pair = np.repeat(np.arange(len(pairs)), lengths)[order]
        self._bounds = np.searchsorted(tokens[order], np.arange(sources + 1))

    def improve(self) -> None:
        """Carry out one step of expectation and maximisation."""
        tokens, sums = self._tokens, self._sums
        after = self._expected(tokens, sums, self._unsourced)
        self._unsourced, self._sums = after, after[tokens]
        row = np.ones(self._targets) if not self.rows else np.zeros(self._targets)
        for source in np.flatnonzero(np.diff(self._bounds)).tolist():
            pairs = self._pair[self._bounds[source] : self._bounds[source + 1]]
            at = stretches(self._starts[pairs], self._lengths[pairs])
            before = self.rows.get(source)
            if before is not None:
                row[before[0]] = before[1]
            after = self._expected(tokens[at], sums[at], row)
            kept = np.flatnonzero(after > _LEAST)
            if before is not None:
                row[before[0]] = 0
            self.rows[source] = kept.astype(np.int32), after[kept]
            # `at` has no duplicates, because a source token counts once per pair.
            self._sums[at] += after[tokens[at]]

    def _expected(self, tokens: Ids, sums: Numbers, row: Numbers) -> Numbers:
        expected = np.bincount(tokens, row[tokens] / sums, minlength=self._targets).astype(np.float64)
        expected /= max(float(expected.sum()), np.finfo(np.float64).tiny)
        return expected
