"""Batches against rows written down by hand, and what must hold for every batch."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.data.batch import (
    Batch,
    Instance,
    SpecialSymbols,
    copy_hidden,
    hide_current_source,
    hide_words,
    in_both_contexts,
    make_batch,
    pack,
    pack_apart,
)
from cotext.data.views import Window, WindowView

PAD, BOS, EOS, SEP = 90, 91, 92, 93
SYMBOLS = SpecialSymbols(pad=PAD, bos=BOS, eos=EOS, separators=(SEP,))


def instance(
    document: int, source: list[list[int]], target: list[list[int]], window: Window | None = None
) -> Instance:
    whole = Window(range(len(source)), range(len(target)), range(len(target) - 1, len(target)))
    return Instance(document, window or whole, source, target)


def test_three_sentences_of_unequal_lengths() -> None:
    """A separator belongs to the sentence that it closes; the shorter row is padded."""
    long = instance(7, [[1, 2], [3], [4, 5, 6]], [[11], [12, 13], [14]])
    batch = make_batch([long, instance(8, [[7]], [[15, 16]])], SYMBOLS)
    assert batch.source.tokens.tolist() == [[1, 2, SEP, 3, SEP, 4, 5, 6, EOS], [7, EOS, *[PAD] * 7]]
    assert batch.source.sentence.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 0, *[-1] * 7]]
    # The separator between sentences 0 and 1 is a label of 0 and an input of 1.
    assert batch.target_input.tolist() == [[BOS, 11, SEP, 12, 13, SEP, 14], [BOS, 15, 16, *[PAD] * 4]]
    assert batch.target_label.tolist() == [[11, SEP, 12, 13, SEP, 14, EOS], [15, 16, EOS, *[PAD] * 4]]
    assert batch.input_sentence.tolist() == batch.label_sentence.tolist()
    assert batch.label_sentence.tolist() == [[0, 0, 1, 1, 1, 2, 2], [0, 0, 0, *[-1] * 4]]
    # The separator that closes the last context sentence is a context label, `eos` a current one.
    assert batch.source.current.tolist() == [[2, 3], [0, 1]]
    assert batch.is_current.tolist() == [[False] * 5 + [True, True], [True] * 3 + [False] * 4]
    assert batch.is_label.tolist() == [[True] * 7, [True] * 3 + [False] * 4]
    swapped = batch.source.select(torch.tensor([1, 0]))
    assert (swapped.document.tolist(), swapped.current.tolist()) == ([8, 7], [[0, 1], [2, 3]])
    assert swapped.tokens.tolist() == batch.source.tokens.tolist()[::-1]
    assert swapped.sentence.tolist() == batch.source.sentence.tolist()[::-1]


def test_indexed_separators_differ_and_the_last_serves_all_later_places() -> None:
    symbols = SpecialSymbols(PAD, BOS, EOS, separators=(SEP, 94))
    batch = make_batch([instance(0, [[1], [2], [3], [4]], [[11], [12], [13], [14]])], symbols)
    assert batch.source.tokens.tolist() == [[1, SEP, 2, 94, 3, 94, 4, EOS]]
    assert batch.target_label.tolist() == [[11, SEP, 12, 94, 13, 94, 14, EOS]]
    assert batch.target_input.tolist() == [[BOS, 11, SEP, 12, 94, 13, 94, 14]]
    # The number is that of the sentence in the row: a target that begins later begins with a later one.
    later = instance(0, [[1], [2], [3]], [[12], [13]], Window(range(3), range(1, 3), range(2, 3)))
    assert make_batch([later], symbols).target_label.tolist() == [[12, 94, 13, EOS]]


def test_brackets_stand_around_every_sentence() -> None:
    """An empty sentence has both symbols too; every sentence of the target opens with an input of its own."""
    symbols = SpecialSymbols(PAD, BOS, EOS, separators=(EOS,), bracket=True)
    row = instance(0, [[1, 2], [], [3]], [[11], [12, 13], []])
    batch = make_batch([row, instance(1, [[4]], [[14]])], symbols)
    assert batch.source.tokens.tolist() == [
        [BOS, 1, 2, EOS, BOS, EOS, BOS, 3, EOS],
        [BOS, 4, EOS, *[PAD] * 6],
    ]
    assert batch.source.sentence.tolist() == [[0, 0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 0, *[-1] * 6]]
    assert batch.target_label.tolist() == [[11, EOS, 12, 13, EOS, EOS], [14, EOS, *[PAD] * 4]]
    assert batch.target_input.tolist() == [[BOS, 11, BOS, 12, 13, BOS], [BOS, 14, *[PAD] * 4]]
    assert batch.input_sentence.tolist() == batch.label_sentence.tolist()
    assert batch.label_sentence.tolist() == [[0, 0, 1, 1, 1, 2], [0, 0, *[-1] * 4]]
    assert row.source_tokens(symbols) == 9
    assert row.source_tokens(SYMBOLS) == row.target_tokens == row.row_tokens(SYMBOLS) == 6
    assert row.row_tokens(symbols) == 9
    # Source sentences without begin symbols; the target is the same.
    ends = replace(symbols, source_begins=False)
    published = make_batch([row], ends)
    assert published.source.tokens.tolist() == [[1, 2, EOS, EOS, 3, EOS]]
    assert published.source.sentence.tolist() == [[0, 0, 0, 1, 2, 2]]
    assert published.target_input.tolist() == batch.target_input[:1].tolist()
    assert published.target_label.tolist() == batch.target_label[:1].tolist()
    assert row.source_tokens(ends) == 6


def test_sentence_indices_count_from_the_first_source_sentence() -> None:
    """A window that reads sentences 3 to 6 and writes 5 and 6, of which 5 is current."""
    shifted = instance(0, [[1], [2], [3], [4]], [[11], [12]], Window(range(3, 7), range(5, 7), range(5, 6)))
    batch = make_batch([shifted], SYMBOLS)
    assert shifted.target_offset == 2
    assert batch.source.sentence.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]]
    assert batch.input_sentence.tolist() == batch.label_sentence.tolist() == [[2, 2, 3, 3]]
    assert batch.source.current.tolist() == [[2, 3]]
    assert batch.is_current.tolist() == [[True, True, False, False]]


def test_numbered_sentences_open_with_their_place_in_the_document() -> None:
    """Places 3 to 5 of the document; the last number serves all later places."""
    numbered = replace(SYMBOLS, separators=(EOS,), bracket=True, numbers=(900, 901, 902, 903, 904))
    window = Window(range(3, 6), range(4, 6), range(5, 6))
    batch = make_batch([instance(0, [[1], [], [3]], [[12], [13]], window)], numbered)
    assert batch.source.tokens.tolist() == [[903, 1, EOS, 904, EOS, 904, 3, EOS]]
    assert batch.target_input.tolist() == [[904, 12, 904, 13]]
    assert batch.input_sentence.tolist() == [[1, 1, 2, 2]]
    assert batch.target_label.tolist() == [[12, EOS, 13, EOS]]


sentences = st.lists(st.integers(0, 80), max_size=5)
documents = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6)


@given(st.lists(documents, min_size=1, max_size=3), st.integers(0, 3), st.integers(0, 2))
def test_what_always_holds(corpus: list[list[tuple[list[int], list[int]]]], before: int, after: int) -> None:
    view = WindowView(before, after)
    rows = [
        Instance(d, w, [document[j][0] for j in w.source], [document[j][1] for j in w.target])
        for d, document in enumerate(corpus)
        for w in view.split([len(s) for s, _ in document], [len(t) for _, t in document])
    ]
    batch = make_batch(rows, SYMBOLS)
    assert torch.equal(batch.source.tokens == PAD, batch.source.sentence == -1)
    assert torch.equal(batch.target_input == PAD, batch.input_sentence == -1)
    assert torch.equal(batch.target_label == PAD, batch.label_sentence == -1)
    # After `bos`, the decoder reads all labels but the last of each row.
    inside = batch.is_label[:, 1:]
    assert torch.equal(batch.target_input[:, 1:][inside], batch.target_label[:, :-1][inside])
    for i, row in enumerate(rows):
        assert int((batch.source.sentence[i] >= 0).sum()) == row.source_tokens(SYMBOLS)
        assert int(batch.is_label[i].sum()) == row.target_tokens
        current = batch.target_label[i][batch.is_current[i]].tolist()
        document = corpus[row.document]
        assert current == [*document[row.window.current.start][1], EOS]
        for k, j in enumerate(row.window.source):
            of_sentence = batch.source.tokens[i][batch.source.sentence[i] == k].tolist()
            assert of_sentence[:-1] == document[j][0]
            assert of_sentence[-1] == (EOS if j == row.window.source.stop - 1 else SEP)


def test_hidden_words() -> None:
    """About as many words as asked for, on both sides, never a symbol, never a label."""
    row = instance(0, [[1, 2, 3] * 100, [4]], [[11, 12] * 150, [13]])
    batch = make_batch([row, instance(1, [[5]], [[14]])], SYMBOLS)
    torch.manual_seed(0)
    seen = hide_words(batch, 0.3, SYMBOLS, unknown=0)
    for before, after in ((batch.source.tokens, seen.source.tokens), (batch.target_input, seen.target_input)):
        changed = before != after
        assert (after[changed] == 0).all()
        assert (before[changed] < PAD).all()
        assert 0.2 < float(changed.sum() / (before < PAD).sum()) < 0.4
    assert torch.equal(seen.target_label, batch.target_label)
    assert torch.equal(seen.source.sentence, batch.source.sentence)
    assert (batch.source.tokens != 0).all(), "the batch itself is left alone"


def test_coword_dropout_hides_source_words_of_the_current_sentence_alone() -> None:
    row = instance(0, [[4, 5], [6, 7, 8]], [[9], [10, 11]])
    batch = make_batch([row], SYMBOLS)
    hidden = hide_current_source(batch, 0.999999, SYMBOLS, 0)
    assert hidden.source.tokens.tolist() == [[4, 5, SEP, 0, 0, 0, EOS]]
    assert hidden.target_input is batch.target_input
    assert torch.equal(hide_current_source(batch, 0.0, SYMBOLS, 0).source.tokens, batch.source.tokens)
    named = replace(SYMBOLS, source_prefix=(7,))  # a symbol of a language is no word
    hidden = hide_current_source(batch, 0.999999, named, 0)
    assert hidden.source.tokens.tolist() == [[4, 5, SEP, 0, 7, 0, EOS]]


def words_of(batch: Batch, sentence: int) -> tuple[Tensor, Tensor]:
    """Words of a sentence in source and decoder input of the first row."""
    source, target = batch.source.sentence[0] == sentence, batch.input_sentence[0] == sentence
    return batch.source.tokens[0, source][:-1], batch.target_input[0, target][1:]


def test_words_are_hidden_in_true_and_foreign_context_alike() -> None:
    words = list(range(1, 81))
    true, foreign = [[4, 5], words, [6]], [words, words]
    whole = Window(range(3), range(3), range(3))
    batch = in_both_contexts([instance(0, true, true, whole)], [instance(1, foreign, foreign)], SYMBOLS)
    for hide, places in ((hide_current_source, [0]), (hide_words, [0, 1])):
        hidden = hide(batch, 0.5, SYMBOLS, 0)
        copied = copy_hidden(batch, hidden, SYMBOLS).foreign
        assert copied is not None
        assert batch.foreign is not None
        for place in places:
            examined, context = words_of(copied, 1)[place], words_of(copied, 0)[place]
            assert torch.equal(examined, words_of(hidden, 1)[place])
            # What takes the place of hidden context is hidden, too.
            assert all(20 < int((each == 0).sum()) < 60 for each in (examined, context))
            assert words_of(batch.foreign, 1)[place].tolist() == words


GROUPS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=20)


def test_groups_share_batches_as_far_as_the_budget_goes() -> None:
    assert pack([[2, 3], [1, 4], [4], [5]], 20) == [[0, 1, 2], [3]]
    assert pack([[2, 3], [1, 4], [4], [5]], 30) == [[0, 1, 2, 3]]
    # A group that exceeds it is not split.
    assert pack([[2, 3], [9, 9, 9], [10]], 12) == [[0], [1], [2]]
    assert pack([], 12) == []


@settings(max_examples=100)
@given(GROUPS, st.booleans(), st.integers(1, 60))
def test_each_group_once_in_order_in_the_budget(lengths: list[list[int]], single: bool, budget: int) -> None:
    lengths = sorted([group[:1] for group in lengths] if single else lengths, key=max)
    batches = pack(lengths, budget)
    assert [g for batch in batches for g in batch] == list(range(len(lengths)))
    rows = [[length for g in batch for length in lengths[g]] for batch in batches]
    assert all(len(b) == 1 or len(r) * max(r) <= budget for b, r in zip(batches, rows, strict=True))
    for own, following in zip(rows, batches[1:], strict=False):
        more = [*own, *lengths[following[0]]]
        assert len(more) * max(more) > budget  # what would have fitted opens no other batch


@given(
    st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(1, 30), min_size=1, max_size=8)), max_size=60),
    st.integers(1, 120),
)
def test_items_of_one_key_are_apart(drawn: list[tuple[int, list[int]]], max_tokens: int) -> None:
    batches = pack_apart([lengths for _, lengths in drawn], [d for d, _ in drawn], max_tokens)
    assert sorted(r for batch in batches for r in batch) == list(range(len(drawn)))
    for batch in batches:
        assert len({drawn[r][0] for r in batch}) == len(batch)
        rows = [length for r in batch for length in drawn[r][1]]
        assert len(rows) * max(rows) <= max_tokens or len(batch) == 1
