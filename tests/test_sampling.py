"""The stream of batches: nothing lost, nothing twice, and the same again from any place in it."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.sampling import Cursor, Sampler, instances_of, ordered_batches, pack, read_ahead
from cotext.data.store import StoreWriter, TokenDocument, TokenStore
from cotext.data.views import Limit, Mixture, SentenceView, View, WindowView
from cotext.errors import CotextError

SYMBOLS = SpecialSymbols(pad=1000, bos=1001, eos=1002, separators=(1003,))
VIEWS = [SentenceView(), WindowView(before=2, after=1, limit=Limit(40))]


def write_store(path: Path, documents: int, seed: int = 0, longest: int = 30) -> TokenStore:
    """Documents of 1 to 9 sentences; every sentence opens with a token of its own, on both sides."""
    random = np.random.default_rng(seed)
    name = count()
    with StoreWriter(path, "no tokenizer") as writer:
        for d in range(documents):
            sides: tuple[list[list[int]], list[list[int]]] = ([], [])
            for _ in range(random.integers(1, 10)):
                own = 2000 + next(name)
                for side in sides:
                    side.append([own, *random.integers(0, 1000, random.integers(0, longest)).tolist()])
            writer.add(f"d{d}", *sides)
    return TokenStore(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return write_store(tmp_path_factory.mktemp("sampling") / "train.arrow", 60)


def make_sampler(
    store: TokenStore,
    view: View = VIEWS[1],
    max_tokens: int = 120,
    max_row_tokens: int = 25,
    pool_tokens: int = 900,
    seed: int = 3,
    shard: int = 0,
    shards: int = 1,
) -> Sampler:
    mixture = Mixture(((view, 1.0),))
    return Sampler(store, mixture, SYMBOLS, max_tokens, max_row_tokens, pool_tokens, seed, shard, shards)


def epoch_of(sampler: Sampler, epoch: int) -> list[tuple[Batch, Cursor]]:
    """All batches of an epoch, each with the cursor after it."""
    batches = []
    before = Cursor(epoch)
    for batch, after in sampler.batches(before):
        if before.document and after.epoch != epoch:
            break
        batches.append((batch, after))
        before = after
    return batches


def rows(batch: Batch) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """What identifies an instance: document, source tokens, labels."""
    return [
        (
            int(batch.source.document[i]),
            tuple(batch.source.tokens[i][batch.source.sentence[i] >= 0].tolist()),
            tuple(batch.target_label[i][batch.label_sentence[i] >= 0].tolist()),
        )
        for i in range(len(batch.source.document))
    ]


def expected_rows(store: TokenStore, view: View, max_row_tokens: int) -> tuple[Counter[tuple], int]:
    """The instances of a store by hand, and how many are too long."""
    found: Counter[tuple] = Counter()
    skipped = 0
    for document in store:
        lengths = [len(s) for s in document.source], [len(s) for s in document.target]
        for window in view.split(*lengths):
            sides = []
            for sentences, side in ((document.source, window.source), (document.target, window.target)):
                row: list[int] = []
                for j in side:
                    row += [*sentences[j].tolist(), SYMBOLS.separators[0]]
                sides.append((*row[:-1], SYMBOLS.eos))
            if max(map(len, sides)) > max_row_tokens:
                skipped += 1
            else:
                found[(document.index, *sides)] += 1
    return found, skipped


def same(a: Batch, b: Batch) -> bool:
    names = ("target_input", "label_sentence", "target_label")
    return torch.equal(a.source.tokens, b.source.tokens) and all(
        torch.equal(getattr(a, n), getattr(b, n)) for n in names
    )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_instance_of_an_epoch_once(store: TokenStore, view: View, epoch: int) -> None:
    batches = epoch_of(make_sampler(store, view), epoch)
    expected, skipped = expected_rows(store, view, 25)
    assert skipped > 5
    assert Counter(row for batch, _ in batches for row in rows(batch)) == expected
    assert batches[-1][1].skipped == skipped


def test_skips_add_up_over_epochs(store: TokenStore) -> None:
    sampler = make_sampler(store)
    _, skipped = expected_rows(store, VIEWS[1], 25)
    *_, (_, last) = takewhile(lambda pair: pair[1].epoch < 3, sampler.batches(Cursor()))
    assert (last.epoch, last.skipped) == (2, 3 * skipped)


def test_budget_is_kept_and_used(store: TokenStore) -> None:
    sizes = []
    for batch, _ in epoch_of(make_sampler(store), 0):
        count_rows, longest = (
            len(batch.source.document),
            max(batch.source.tokens.size(1), batch.target_label.size(1)),
        )
        sizes.append(count_rows * longest)
    assert max(sizes) <= 120
    assert np.mean(sizes) > 60


@given(st.lists(st.integers(1, 50), max_size=40).map(sorted), st.integers(1, 200))
def test_pack_keeps_order_and_budget(lengths: list[int], max_tokens: int) -> None:
    groups = pack(lengths, max_tokens)
    assert [i for group in groups for i in group] == list(range(len(lengths)))
    for group in groups:
        cost = len(group) * max(lengths[i] for i in group)
        assert cost <= max_tokens or len(group) == 1
    for group, following in pairwise(groups):  # nothing that would still have fitted opens a new group
        assert (len(group) + 1) * lengths[following[0]] > max_tokens


@settings(max_examples=25, deadline=None)
@given(stop=st.integers(0, 150), view=st.sampled_from(VIEWS), shards=st.sampled_from([1, 3]))
def test_any_cursor_restarts_the_identical_stream(
    store: TokenStore, stop: int, view: View, shards: int
) -> None:
    sampler = make_sampler(store, view, shard=shards - 1, shards=shards)
    stream = list(islice(sampler.batches(Cursor()), stop + 30))
    cursor = stream[stop - 1][1] if stop else Cursor()
    again = list(islice(make_sampler(store, view, shard=shards - 1, shards=shards).batches(cursor), 30))
    for (batch, after), (batch_again, after_again) in zip(stream[stop:], again, strict=True):
        assert same(batch, batch_again)
        assert after == after_again


def test_restarting_in_the_middle_of_a_pool_and_of_an_epoch(store: TokenStore) -> None:
    stream = list(islice(make_sampler(store).batches(Cursor()), 150))
    cursors = [after for _, after in stream]
    assert any(c.batch > 0 for c in cursors)
    assert any(c.batch == 0 and c.document > 0 for c in cursors)
    assert {c.epoch for c in cursors} >= {0, 1}


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_partition_the_documents_whole(store: TokenStore, shards: int) -> None:
    seen: list[set[int]] = []
    found: Counter[tuple] = Counter()
    for shard in range(shards):
        batches = [batch for batch, _ in epoch_of(make_sampler(store, shard=shard, shards=shards), 0)]
        found.update(row for batch in batches for row in rows(batch))
        seen.append({row[0] for batch in batches for row in rows(batch)})
    assert found == expected_rows(store, VIEWS[1], 25)[0]
    for i, documents in enumerate(seen):
        assert all(documents.isdisjoint(other) for other in seen[:i])


def test_epochs_seeds_and_shards_differ(store: TokenStore) -> None:
    def order(sampler: Sampler, epoch: int) -> list[int]:
        return [row[0] for batch, _ in epoch_of(sampler, epoch) for row in rows(batch)]

    assert order(make_sampler(store), 0) == order(make_sampler(store), 0)
    assert order(make_sampler(store), 0) != order(make_sampler(store), 1)
    assert order(make_sampler(store), 0) != order(make_sampler(store, seed=4), 0)


def test_rows_of_one_length_meet_others_in_every_epoch(store: TokenStore) -> None:
    groups = [
        {frozenset(rows(batch)) for batch, _ in epoch_of(make_sampler(store, pool_tokens=10**9), epoch)}
        for epoch in (0, 1)
    ]
    assert len(groups[0] & groups[1]) < len(groups[0]) / 2


def test_rows_of_a_batch_are_of_like_length(store: TokenStore) -> None:
    padding = total = 0
    for batch, _ in epoch_of(make_sampler(store, pool_tokens=10**9), 0):
        longer = torch.maximum((batch.source.sentence >= 0).sum(1), (batch.label_sentence >= 0).sum(1))
        padding += int((longer.max() - longer).sum())
        total += int(longer.max()) * len(longer)
    assert padding / total < 0.1


class ReadingStore(TokenStore):
    """Notes what is read from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[int] = []

    def __getitem__(self, index: int) -> TokenDocument:
        self.read.append(index)
        return super().__getitem__(index)


def test_pools_bound_what_is_read_ahead(store: TokenStore) -> None:
    reading = ReadingStore(store.path)
    pools: list[list[int]] = [[]]
    for _, after in make_sampler(reading, pool_tokens=600).batches(Cursor()):
        if after.epoch:
            break
        if reading.read:
            pools.append(list(reading.read))
            reading.read.clear()

    def tokens(documents: list[int]) -> int:
        return sum(int(side.sum()) for d in documents for side in store.lengths(d))

    assert sorted(d for pool in pools for d in pool) == list(range(60))
    for pool in pools:
        assert tokens(pool[:-1]) < 600
    assert len(pools) > 10


def test_too_few_documents_for_the_processes(tmp_path: Path) -> None:
    few = write_store(tmp_path / "few.arrow", 2)
    assert next(make_sampler(few, max_row_tokens=100, shard=1, shards=3).batches(Cursor()))
    with pytest.raises(CotextError, match=r"few.arrow: 2 documents are too few for 3 processes"):
        next(make_sampler(few, shard=2, shards=3).batches(Cursor()))


def test_nothing_fits(store: TokenStore, tmp_path: Path) -> None:
    with pytest.raises(CotextError, match=r"no sentence fits into 1 tokens; raise view.max_tokens"):
        next(make_sampler(store, max_row_tokens=1).batches(Cursor()))
    with StoreWriter(tmp_path / "two.arrow", "none") as writer:
        writer.add("long", [[7] * 50], [[7] * 50])
        writer.add("short", [[7]], [[7]])
    # With one document a process, an epoch may well bring nothing: the next one brings the other document.
    stream = make_sampler(TokenStore(tmp_path / "two.arrow"), shards=2).batches(Cursor())
    assert all(rows(batch)[0][0] == 1 for batch, _ in islice(stream, 5))


@pytest.mark.parametrize("view", VIEWS)
def test_validation_sees_everything_once(store: TokenStore, view: View) -> None:
    batches = list(ordered_batches(store, view, SYMBOLS, 120, 25))
    assert Counter(row for batch in batches for row in rows(batch)) == expected_rows(store, view, 25)[0]


def test_instances_know_their_document(store: TokenStore) -> None:
    instances = list(instances_of(store[7], VIEWS[0]))
    assert {i.document for i in instances} == {7}
    assert [i.source[0][0] for i in instances] == [s[0] for s in store[7].source]


def test_pairs_without_a_token_are_no_part_of_their_document(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "gaps.arrow", "words") as writer:
        writer.add("gaps", [[7], [], [], [8]], [[7], [], [9], []])
        writer.add("nothing", [[]], [[]])
    gaps = TokenStore(tmp_path / "gaps.arrow")
    [*_, last] = instances_of(gaps[0], WindowView(before=2, limit=Limit(25)))
    # Translation leaves the second pair out: training must see the same neighbours.
    assert [list(s) for s in last.source] == [[7], [], [8]]
    assert [list(s) for s in last.target] == [[7], [9], []]
    assert list(instances_of(gaps[1], WindowView(before=2, limit=Limit(25)))) == []
    drawn = islice(make_sampler(gaps, WindowView(before=2, limit=Limit(25))).batches(Cursor()), 3)
    assert {len(row) for batch, _ in drawn for row in rows(batch)} <= {3, 4}


class TestReadAhead:
    def test_everything_in_order(self) -> None:
        assert [item for item, _ in read_ahead(range(50), 4, time.perf_counter)] == list(range(50))

    def test_exceptions_reach_the_reader_after_what_came_before(self) -> None:
        def failing() -> Iterator[int]:
            yield 1
            raise CotextError("corpus: damaged")

        stream = read_ahead(failing(), 4, time.perf_counter)
        assert next(stream)[0] == 1
        with pytest.raises(CotextError, match="corpus: damaged"):
            next(stream)

    def test_stays_within_its_depth(self) -> None:
        drawn: list[int] = []

        def counting() -> Iterator[int]:
            for i in count():
                drawn.append(i)
                yield i

        stream = read_ahead(counting(), 3, time.perf_counter)
        next(stream)
        time.sleep(0.1)
        assert len(drawn) <= 5  # one given out, three waiting, one in hand
        stream.close()

    def test_thread_ends_with_its_reader(self) -> None:
        before = set(threading.enumerate())
        stream = read_ahead(count(), 2, time.perf_counter)
        next(stream)
        (thread,) = set(threading.enumerate()) - before
        stream.close()
        thread.join(timeout=5)
        assert not thread.is_alive()

    def test_counts_the_waiting(self) -> None:
        def slow() -> Iterator[int]:
            for i in range(3):
                time.sleep(0.05)
                yield i

        assert sum(waited for _, waited in read_ahead(slow(), 2, time.perf_counter)) > 0.12
        stream = read_ahead(range(3), 3, time.perf_counter)
        next(stream)
        time.sleep(0.1)  # the reader is busy; what it finds then, it did not wait for
        assert sum(waited for _, waited in stream) < 0.05
