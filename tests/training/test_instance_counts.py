"""Instances of a corpus, counted: by hand, and as batches have them."""

from pathlib import Path

import pytest

from cotext.data.batch import SpecialSymbols
from cotext.data.store import StoreWriter, TokenStore
from cotext.data.views import DocumentView, Limit, Mixture, SentenceView, View, WindowView
from cotext.training.dry_run import InstanceCounts, count_instances
from tests.data.test_sampling import SYMBOLS

BRACKETS = SpecialSymbols(pad=1000, bos=1001, eos=1002, separators=(1003,), bracket=True)


def count(store: TokenStore, view: View, limit: int, symbols: SpecialSymbols = SYMBOLS) -> InstanceCounts:
    return count_instances(store, Mixture(((view, 1.0),)), symbols, limit)


@pytest.fixture
def by_hand(tmp_path: Path) -> TokenStore:
    """Sentences of 3, 4, 5 and of 6 source tokens, of 2, 2, 9 and 1 target tokens; a pair without a token."""
    with StoreWriter(tmp_path / "train.arrow", "no tokenizer") as writer:
        writer.add("a", [[1] * 3, [], [1] * 4, [1] * 5], [[2] * 2, [], [2] * 2, [2] * 9])
        writer.add("b", [[1] * 6], [[2]])
        writer.add("of nothing", [[]], [[]])
    return TokenStore(tmp_path / "train.arrow")


def test_by_hand(by_hand: TokenStore) -> None:
    # Rows of 4, 5, 6 and 7 tokens with their ends; of the target 3, 3, 10 and 2.
    assert count(by_hand, SentenceView(), 512) == InstanceCounts(4, 0, 1, 22 / 4, 18 / 4)
    # The target of 10 is over the limit.
    assert count(by_hand, SentenceView(), 9) == InstanceCounts(3, 1, 1, 16 / 3, 8 / 3)
    # Windows of two: 4, 4 + 5, 5 + 6, and 7; of the target 3, 3 + 3, 3 + 10, and 2.
    assert count(by_hand, WindowView(1), 512) == InstanceCounts(4, 0, 6 / 4, 31 / 4, 24 / 4)
    # Pieces of at most 12: 4 + 5 | 6, and 7; of the target 3 + 3 | 10, and 2.
    pieces = DocumentView(Limit(12))
    assert count(by_hand, pieces, 12) == InstanceCounts(3, 0, 4 / 3, 22 / 3, 18 / 3)
    # With a begin symbol each: 5 + 6 | 7, and 8.
    assert count(by_hand, pieces, 12, BRACKETS).source_tokens == 26 / 3


def test_of_a_mixture_as_many_as_are_drawn_on_average(by_hand: TokenStore) -> None:
    mixture = Mixture(((DocumentView(Limit(512)), 1.0), (SentenceView(), 2.5)))
    # Documents of 15 and 7 source tokens; sentences of 4, 5 and 6, the single one being a document already.
    found = count_instances(by_hand, mixture, SYMBOLS, 512)
    assert found.instances == 2 + 3 * 2.5
    assert found.source_tokens == pytest.approx((15 + 7 + 2.5 * 15) / 9.5)
    assert found.sentences == pytest.approx((3 + 1 + 7.5) / 9.5)


def test_a_corpus_that_has_none(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "train.arrow", "no tokenizer") as writer:
        writer.add("long", [[1] * 9], [[2] * 9])
    found = count(TokenStore(tmp_path / "train.arrow"), SentenceView(), 9)
    assert found == InstanceCounts(0, 1, 0, 0, 0)
