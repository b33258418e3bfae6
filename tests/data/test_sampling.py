"""The stream of batches: nothing lost, nothing twice, and the same again from any place in it."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice, pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.sampling import Arrangement, Cursor, Sampler, instances_of, ordered_batches, read_ahead
from cotext.data.store import TokenStore, store_writer
from cotext.data.views import DocumentView, Limit, Mixture, View, WindowView
from cotext.runtime import CotextError
from tests.loops import loop_over
from tests.refusals import must_raise

SYMBOLS = SpecialSymbols(pad=1000, bos=1001, eos=1002, separators=(1003,))
VIEWS = [WindowView(0), WindowView(before=2, after=1, limit=Limit(40))]
SHUFFLED = Arrangement(max_tokens=120, max_row_tokens=25, pool_tokens=900, seed=3)
IN_ORDER = replace(SHUFFLED, order="documents")
FOREIGN = replace(SHUFFLED, context="foreign")
ADDED = replace(SHUFFLED, adds_foreign=True)
ARRANGEMENTS = [SHUFFLED, IN_ORDER, FOREIGN, replace(IN_ORDER, context="foreign")]


def write_store(path: Path, documents: int, seed: int = 0, longest: int = 30) -> TokenStore:
    """Documents of 1 to 9 sentences; every sentence opens with a token of its own, on both sides."""
    random = np.random.default_rng(seed)
    name = count()
    with store_writer(path, "no tokenizer") as writer:
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
    store: TokenStore, view: View = VIEWS[1], shard: int = 0, shards: int = 1, **changed: Any
) -> Sampler:
    """`changed`: the arrangement, if not SHUFFLED, or numbers of it."""
    arrangement = replace(changed.pop("arrangement", SHUFFLED), **changed)
    return Sampler(store, Mixture(((view, 1.0),)), SYMBOLS, arrangement, shard, shards)


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
    sides = [(x.source.tokens, x.target_input, x.label_sentence, x.target_label) for x in (a, b)]
    return all(map(torch.equal, *sides))


@loop_over("view", VIEWS)
@loop_over("epoch", [0, 1])
@loop_over("shards", [1, 2, 5])
@loop_over("arrangement", [SHUFFLED, IN_ORDER])
def test_shards_hold_every_instance_once_and_documents_whole(
    store: TokenStore, view: View, epoch: int, shards: int, arrangement: Arrangement
) -> None:
    seen: list[set[int]] = []
    found: Counter[tuple] = Counter()
    skipped = 0
    for shard in range(shards):
        sampler = make_sampler(store, view, shard=shard, shards=shards, arrangement=arrangement)
        batches = epoch_of(sampler, epoch)
        found.update(row for batch, _ in batches for row in rows(batch))
        skipped += batches[-1][1].skipped
        seen.append({row[0] for batch, _ in batches for row in rows(batch)})
    expected = expected_rows(store, view, 25)
    assert expected[1] > 5
    assert (found, skipped) == expected
    assert all(documents.isdisjoint(other) for i, documents in enumerate(seen) for other in seen[:i])


def test_skips_and_shed_context_add_up(store: TokenStore) -> None:
    sampler = make_sampler(store, WindowView(before=3, limit=Limit(25)))
    _, skipped = expected_rows(store, WindowView(before=3, limit=Limit(25)), 25)
    shed = 0
    for document in store:
        source, target = ([len(s) for s in side] for side in (document.source, document.target))
        for j in range(len(source)):
            whole = slice(max(0, j - 3), j + 1)
            wide = max(sum(side[whole]) + len(side[whole]) for side in (source, target))
            shed += max(source[j], target[j]) + 1 <= 25 < wide
    *_, (_, last) = takewhile(lambda pair: pair[1].epoch < 3, sampler.batches(Cursor()))
    assert shed > 5
    assert (last.epoch, last.skipped, last.shed) == (2, 3 * skipped, 3 * shed)
    # Rows of foreign context are as short as the longest: what their own window shed counts as well.
    view = WindowView(before=3, limit=Limit(25))
    stream = make_sampler(store, view, arrangement=FOREIGN).batches(Cursor())
    *_, (_, foreign) = takewhile(lambda pair: pair[1].epoch < 1, stream)
    *_, (_, own) = takewhile(lambda pair: pair[1].epoch < 1, make_sampler(store, view).batches(Cursor()))
    assert foreign.shed >= own.shed > 0


@loop_over("arrangement", ARRANGEMENTS)
def test_budget_is_kept_and_used(store: TokenStore, arrangement: Arrangement) -> None:
    sizes = []
    for batch, _ in epoch_of(make_sampler(store, arrangement=arrangement), 0):
        longest = max(batch.source.tokens.size(1), batch.target_label.size(1))
        sizes.append(len(batch.source.document) * longest)
    assert max(sizes) <= 120
    assert np.mean(sizes) > 60


@settings(max_examples=40)
@given(
    stop=st.integers(0, 150),
    view=st.sampled_from(VIEWS),
    shards=st.sampled_from([1, 3]),
    arrangement=st.sampled_from(ARRANGEMENTS),
)
def test_any_cursor_restarts_the_identical_stream(
    store: TokenStore, stop: int, view: View, shards: int, arrangement: Arrangement
) -> None:
    def sampler() -> Sampler:
        return make_sampler(store, view, shard=shards - 1, shards=shards, arrangement=arrangement)

    stream = list(islice(sampler().batches(Cursor()), stop + 30))
    cursor = stream[stop - 1][1] if stop else Cursor()
    again = list(islice(sampler().batches(cursor), 30))
    for (batch, after), (batch_again, after_again) in zip(stream[stop:], again, strict=True):
        assert same(batch, batch_again)
        assert after == after_again


def test_epochs_and_seeds_differ_and_rows_of_a_batch_are_of_like_length(store: TokenStore) -> None:
    def order(sampler: Sampler, epoch: int) -> list[int]:
        return [row[0] for batch, _ in epoch_of(sampler, epoch) for row in rows(batch)]

    assert order(make_sampler(store), 0) != order(make_sampler(store), 1)
    assert order(make_sampler(store), 0) != order(make_sampler(store, seed=4), 0)
    groups = [
        {frozenset(rows(batch)) for batch, _ in epoch_of(make_sampler(store, pool_tokens=10**9), epoch)}
        for epoch in (0, 1)
    ]
    assert len(groups[0] & groups[1]) < len(groups[0]) / 2
    padding = total = 0
    for batch, _ in epoch_of(make_sampler(store, pool_tokens=10**9), 0):
        longer = torch.maximum((batch.source.sentence >= 0).sum(1), (batch.label_sentence >= 0).sum(1))
        padding += int((longer.max() - longer).sum())
        total += int(longer.max()) * len(longer)
    assert padding / total < 0.1


def places(batch: Batch) -> dict[int, list[int]]:
    """Of each document, which of its sentences are current in the rows of a batch, in their order."""
    found: dict[int, list[int]] = {}
    documents = batch.source.document.tolist()
    current = (batch.source.first_sentence + batch.source.current[:, 0]).tolist()
    for document, place in zip(documents, current, strict=True):
        found.setdefault(document, []).append(place)
    # Rows of a document stand together.
    assert documents == [document for document, rows in found.items() for _ in rows]
    return found


def fitting(store: TokenStore, document: int, view: View, max_row_tokens: int) -> dict[int, int]:
    """Of each current sentence whose window fits: the tokens of the row."""
    lengths = {i.window.current.start: i.row_tokens(SYMBOLS) for i in instances_of(store[document], view)}
    return {place: length for place, length in lengths.items() if length <= max_row_tokens}


def write_lengths(path: Path, documents: Sequence[Sequence[int]]) -> TokenStore:
    """Documents of sentences of so many tokens, equal on both sides; of words 10d + j."""
    with store_writer(path, "none") as writer:
        for d, lengths in enumerate(documents):
            side = [[10 * d + j] * length for j, length in enumerate(lengths)]
            writer.add(f"d{d}", side, side)
    return TokenStore(path)


@loop_over("view", VIEWS)
def test_rows_in_order_are_consecutive_windows(store: TokenStore, view: View) -> None:
    """What fits a batch is not divided, and the rest as little as possible."""
    several = 0
    for batch, _ in epoch_of(make_sampler(store, view, arrangement=IN_ORDER), 0):
        for document, found in places(batch).items():
            expected = list(fitting(store, document, view, 25))
            first = expected.index(found[0])
            assert found == expected[first : first + len(found)]
            several += len(found) > 1
    assert several > 20
    by_document: dict[int, list[list[int]]] = {}
    for batch, _ in epoch_of(make_sampler(store, view, max_tokens=50, arrangement=IN_ORDER), 0):
        for document, rows_of_it in places(batch).items():
            by_document.setdefault(document, []).append(rows_of_it)
    assert {len(runs) > 1 for runs in by_document.values()} == {True, False}
    for document, runs in by_document.items():
        lengths = fitting(store, document, view, 25)
        for run, following in pairwise(sorted(runs)):
            one_more = [*run, following[0]]
            assert len(one_more) * max(lengths[place] for place in one_more) > 50


def test_rows_in_order_by_hand(tmp_path: Path) -> None:
    """Rows of 4 tokens, three to a batch; one of 14, over the budget; the short document finds room."""
    five = write_lengths(tmp_path / "five.arrow", [[3] * 5, [3], [2, 13, 2]])
    for epoch in range(4):
        sampler = make_sampler(five, WindowView(0), max_tokens=12, arrangement=IN_ORDER)
        batches = [places(batch) for batch, _ in epoch_of(sampler, epoch)]
        # The first and the last sentence of the third document must not meet: they are no neighbours.
        expected = [{0: [0, 1, 2]}, {0: [3, 4], 1: [0]}, {2: [0]}, {2: [1]}, {2: [2]}]
        assert len(batches) == len(expected)
        assert all(batch in expected for batch in batches)


@pytest.fixture(scope="module")
def names(store: TokenStore) -> dict[int, tuple[int, int]]:
    """Of each sentence's first token: its document and place."""
    return {int(s[0]): (d.index, j) for d in store for j, s in enumerate(d.source)}


class TestForeignContext:
    """Every sentence of `store` opens with a token of its own, the same on both sides."""

    VIEW = WindowView(before=2, after=1, limit=Limit(55))

    def instances(
        self, store: TokenStore, epoch: int = 0, pool_tokens: int = 900
    ) -> dict[tuple[int, int], tuple[list[int], list[int], int]]:
        """Of each document and current sentence: the names of source and of target sentences, its place."""
        found = {}
        sizes = {"max_tokens": 400, "max_row_tokens": 55, "pool_tokens": pool_tokens}
        sampler = make_sampler(store, self.VIEW, **sizes, arrangement=FOREIGN)
        for batch, _ in epoch_of(sampler, epoch):
            for i, document in enumerate(batch.source.document.tolist()):
                own = int(batch.source.current[i, 0])
                sides = [
                    [t for t in tokens[i].tolist() if t >= 2000]
                    for tokens in (batch.source.tokens, batch.target_label)
                ]
                key = document, int(batch.source.first_sentence[i]) + own
                assert key not in found
                found[key] = *sides, own
        return found

    @loop_over("pool_tokens", [900, 1])
    def test_the_context_is_that_of_one_other_document_and_the_rest_stays(
        self, store: TokenStore, names: dict[int, tuple[int, int]], pool_tokens: int
    ) -> None:
        found = self.instances(store, pool_tokens=pool_tokens)
        sizes: Counter[int] = Counter()
        for (document, place), (source, target, own) in found.items():
            assert names[source[own]] == (document, place)
            # The target holds the same sentences, up to the current one.
            assert target == source[: own + 1]
            context = [names[s] for s in (*source[:own], *source[own + 1 :])]
            assert len({d for d, _ in context}) == (1 if context else 0)
            assert all(d != document for d, _ in context)
            # Consecutive, as the context was, and none twice, however short the other document is.
            assert all(i == j + 1 for (_, j), (_, i) in pairwise(context))
            sizes[len(context)] += 1
        assert set(sizes) == {0, 1, 2, 3}
        # No row is lost to long strangers: every sentence that fits alone is there.
        alone = {(d.index, j) for d in store for j in fitting(store, d.index, WindowView(0), 55)}
        assert set(found) == alone
        # The other document differs from epoch to epoch.
        other = self.instances(store, 1, pool_tokens)
        assert found == self.instances(store, pool_tokens=pool_tokens)
        assert sum(found[key] != other[key] for key in found) > len(found) / 2

    def test_there_must_be_another_document(self, tmp_path: Path) -> None:
        with store_writer(tmp_path / "one.arrow", "none") as writer:
            writer.add("one", [[7], [8]], [[7], [8]])
            writer.add("nothing", [[]], [[]])
        one = TokenStore(tmp_path / "one.arrow")
        for setting, arrangement in (("train.context = foreign", FOREIGN), ("loss.foreign_weight", ADDED)):
            message = f"one.arrow: {setting} needs a second document with a sentence"
            must_raise(message, make_sampler(one, arrangement=arrangement).require_instances)
        make_sampler(one).require_instances()


def test_pools_bound_what_is_read_ahead(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    locate = TokenStore.__getitem__
    monkeypatch.setattr(TokenStore, "__getitem__", lambda own, i: read.append(i) or locate(own, i))
    pools: list[list[int]] = [[]]
    for _, after in make_sampler(store, pool_tokens=600).batches(Cursor()):
        if after.epoch:
            break
        if read:
            pools.append(list(read))
            read.clear()

    def tokens(documents: list[int]) -> int:
        return sum(int(side.sum()) for d in documents for side in store.lengths(d))

    assert sorted(d for pool in pools for d in pool) == list(range(60))
    for pool in pools:
        assert tokens(pool[:-1]) < 600
    assert len(pools) > 10


def test_places_that_the_corpus_does_not_have(store: TokenStore) -> None:
    assert next(make_sampler(store).batches(Cursor(0, 60)))
    for cursor in (Cursor(0, 61), Cursor(1, 10**9), Cursor(0, 0, 10**6)):
        message = f"lacks batch {cursor.batch} from document {cursor.document} of epoch"
        must_raise(message, next, make_sampler(store).batches(cursor))


def test_nothing_fits_and_too_few_documents(store: TokenStore, tmp_path: Path) -> None:
    message = "no sentence fits into 1 tokens; raise view.max_tokens"
    must_raise(message, make_sampler(store, max_row_tokens=1).require_instances)
    few = write_store(tmp_path / "few.arrow", 2)
    assert next(make_sampler(few, max_row_tokens=100, shard=1, shards=3).batches(Cursor()))
    message = "few.arrow: 2 documents are too few for 3 processes"
    must_raise(message, make_sampler(few, shard=2, shards=3).require_instances)
    with store_writer(tmp_path / "two.arrow", "none") as writer:
        writer.add("long", [[7] * 50], [[7] * 50])
        writer.add("short", [[7]], [[7]])
    # With one document a process, an epoch may well bring nothing: the next one brings the other document.
    stream = make_sampler(TokenStore(tmp_path / "two.arrow"), shards=2).batches(Cursor())
    assert all(rows(batch)[0][0] == 1 for batch, _ in islice(stream, 5))


@loop_over("view", VIEWS)
@loop_over("group_windows", [1, 2, 4, 100])
def test_validation_keeps_groups_whole(store: TokenStore, view: View, group_windows: int) -> None:
    for windows in (None, group_windows):
        batches = list(ordered_batches(store, view, SYMBOLS, 120, 25, windows))
        assert Counter(row for batch in batches for row in rows(batch)) == expected_rows(store, view, 25)[0]
    groups: list[tuple[int, int]] = []
    over = 0
    for batch in ordered_batches(store, view, SYMBOLS, 80, 25, group_windows):
        found = places(batch)
        for document, rows_of_it in found.items():
            (group,) = {place // group_windows for place in rows_of_it}
            windows = fitting(store, document, view, 25)
            assert rows_of_it == [place for place in windows if place // group_windows == group]
            groups.append((document, group))
        longest = max(batch.source.tokens.size(1), batch.target_label.size(1))
        tokens = len(batch.source.document) * longest
        assert tokens <= 80 or len(found) == 1
        over += tokens > 80
    assert len(set(groups)) == len(groups)
    assert (over > 0) == (group_windows >= 4)


def test_validation_groups_by_hand(tmp_path: Path) -> None:
    """Rows of 3 tokens in pairs, four rows to a batch; a pair of 12 tokens a row exceeds it together."""
    store = write_lengths(tmp_path / "dev.arrow", [[2] * 5, [11, 11], [2] * 3])
    batches = [places(b) for b in ordered_batches(store, WindowView(0), SYMBOLS, 12, 100, 2)]
    assert batches == [{1: [0, 1]}, {0: [0, 1]}, {0: [2, 3], 2: [2]}, {0: [4], 2: [0, 1]}]


def test_pairs_without_a_token_are_no_part_of_their_document(tmp_path: Path) -> None:
    with store_writer(tmp_path / "gaps.arrow", "words") as writer:
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


def test_reading_ahead_stays_within_its_depth_and_raises_in_order() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise CotextError("corpus: damaged")

    stream = read_ahead(failing(), 4, time.perf_counter)
    assert next(stream)[0] == 1
    must_raise("corpus: damaged", next, stream)
    drawn: list[int] = []

    def counting() -> Iterator[int]:
        for i in count():
            drawn.append(i)
            yield i

    before = set(threading.enumerate())
    stream = read_ahead(counting(), 3, time.perf_counter)
    next(stream)
    (thread,) = set(threading.enumerate()) - before
    time.sleep(0.1)
    assert len(drawn) <= 5  # one given out, three waiting, one in hand
    stream.close()
    thread.join(timeout=5)
    assert not thread.is_alive()


def test_the_time_of_waiting_is_counted() -> None:
    def slow() -> Iterator[int]:
        for i in range(3):
            time.sleep(0.05)
            yield i

    assert sum(waited for _, waited in read_ahead(slow(), 2, time.perf_counter)) > 0.12
    stream = read_ahead(range(3), 3, time.perf_counter)
    next(stream)
    time.sleep(0.1)  # the reader is busy; what it finds then, it did not wait for
    assert sum(waited for _, waited in stream) < 0.05


@loop_over("view", [WindowView(before=2, after=1, limit=Limit(40)), DocumentView(Limit(40))])
@loop_over("pool_tokens", [900, 1])  # 1: no other document in the pool
def test_one_sentence_of_each_row_is_also_in_foreign_context(
    store: TokenStore, names: dict[int, tuple[int, int]], view: View, pool_tokens: int
) -> None:
    sampler, plain = (
        make_sampler(store, view, max_row_tokens=40, pool_tokens=pool_tokens, arrangement=arrangement)
        for arrangement in (ADDED, SHUFFLED)
    )
    replaced, moved = 0, 0
    for (batch, _), (own, _) in islice(
        zip(sampler.batches(Cursor()), plain.batches(Cursor()), strict=False), 40
    ):
        assert torch.equal(batch.source.tokens, own.source.tokens), "true rows do not change"
        assert own.foreign is None
        assert batch.foreign is not None
        assert batch.examined is not None
        foreign, widest = batch.foreign, max(batch.source.tokens.size(1), batch.target_input.size(1))
        assert max(foreign.source.tokens.size(1), foreign.target_input.size(1)) <= widest
        for i, (k, _) in enumerate(batch.examined.tolist()):
            assert foreign.examined is not None
            there, stop = foreign.examined[i].tolist()
            assert stop == there + 1
            # What is in the place of current sentences counts as current, too.
            first, end = (batch.source.current[i] + there - k).tolist()
            assert foreign.source.current[i].tolist() == [max(first, 0), end]
            for own_side, own_index, side, index in (
                (batch.source.tokens, batch.source.sentence, foreign.source.tokens, foreign.source.sentence),
                (batch.target_label, batch.label_sentence, foreign.target_label, foreign.label_sentence),
            ):
                # All but the symbol at the end.
                kept = own_side[i][own_index[i] == k][:-1]
                assert torch.equal(side[i][index[i] == there][:-1], kept)
                others = side[i][(index[i] >= 0) & (index[i] != there)].tolist()
                documents = {names[token][0] for token in others if token in names}
                assert int(batch.source.document[i]) not in documents
                replaced += bool(documents)
            moved += k not in (0, 2)
    assert replaced > 20
    assert moved > 5


def test_sentences_without_context_stay_as_they_are(store: TokenStore) -> None:
    batch, _ = next(make_sampler(store, WindowView(0), arrangement=ADDED).batches(Cursor()))
    assert batch.foreign is not None
    assert torch.equal(batch.foreign.source.tokens, batch.source.tokens)
    assert int(batch.foreign.source.sentence.max()) == 0
