"""Batches against rows written down by hand, and what must hold for every batch."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from cotext.data.batch import Batch, Instance, SpecialSymbols, hide_current_source, hide_words
from cotext.data.collate import make_batch
from cotext.data.views import Window, WindowView

PAD, BOS, EOS, SEP = 90, 91, 92, 93
SYMBOLS = SpecialSymbols(pad=PAD, bos=BOS, eos=EOS, separators=(SEP,))


def instance(
    document: int, source: list[list[int]], target: list[list[int]], window: Window | None = None
) -> Instance:
    whole = Window(range(len(source)), range(len(target)), range(len(target) - 1, len(target)))
    return Instance(document, window or whole, source, target)


def three_sentences() -> Batch:
    """Three sentences of unequal lengths on unequal sides, above a shorter row of one sentence."""
    long = instance(7, [[1, 2], [3], [4, 5, 6]], [[11], [12, 13], [14]])
    return make_batch([long, instance(8, [[7]], [[15, 16]])], SYMBOLS)


def test_three_sentences_of_unequal_lengths() -> None:
    """A separator belongs to the sentence that it closes."""
    batch = three_sentences()
    assert batch.source.tokens.tolist() == [
        [1, 2, SEP, 3, SEP, 4, 5, 6, EOS],
        [7, EOS, *[PAD] * 7],
    ]
    assert batch.source.sentence.tolist() == [
        [0, 0, 0, 1, 1, 2, 2, 2, 2],
        [0, 0, *[-1] * 7],
    ]
    # The separator between sentences 0 and 1 is a label of 0 and an input of 1.
    assert batch.target_input.tolist() == [
        [BOS, 11, SEP, 12, 13, SEP, 14],
        [BOS, 15, 16, *[PAD] * 4],
    ]
    assert batch.input_sentence.tolist() == [
        [0, 0, 1, 1, 1, 2, 2],
        [0, 0, 0, *[-1] * 4],
    ]
    assert batch.target_label.tolist() == [
        [11, SEP, 12, 13, SEP, 14, EOS],
        [15, 16, EOS, *[PAD] * 4],
    ]
    assert batch.label_sentence.tolist() == [
        [0, 0, 1, 1, 1, 2, 2],
        [0, 0, 0, *[-1] * 4],
    ]
    # The separator that closes the last context sentence is a context label, `eos` a current one.
    assert batch.source.current.tolist() == [[2, 3], [0, 1]]
    assert batch.is_current.tolist() == [
        [False] * 5 + [True, True],
        [True, True, True] + [False] * 4,
    ]
    assert batch.is_label.tolist() == [[True] * 7, [True] * 3 + [False] * 4]


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


def test_a_source_may_have_its_ends_alone() -> None:
    """Of a model that knows no begin there; its targets are as with both."""
    both = SpecialSymbols(PAD, BOS, EOS, separators=(EOS,), bracket=True)
    ends = SpecialSymbols(PAD, BOS, EOS, separators=(EOS,), bracket=True, source_begins=False)
    row = instance(0, [[1, 2], [], [3]], [[11], [12, 13], []])
    batch, as_published = make_batch([row], ends), make_batch([row], both)
    assert batch.source.tokens.tolist() == [[1, 2, EOS, EOS, 3, EOS]]
    assert batch.source.sentence.tolist() == [[0, 0, 0, 1, 2, 2]]
    assert batch.target_input.tolist() == as_published.target_input.tolist()
    assert batch.target_label.tolist() == as_published.target_label.tolist()
    assert (row.source_tokens(ends), row.source_tokens(both)) == (6, 9)


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


def test_selecting_rows_keeps_all_their_fields() -> None:
    source = three_sentences().source.select(torch.tensor([1, 0]))
    assert source.document.tolist() == [8, 7]
    assert source.current.tolist() == [[0, 1], [2, 3]]
    assert source.tokens[0].tolist() == [7, EOS, *[PAD] * 7]
    assert source.sentence[1].tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


sentences = st.lists(st.integers(0, 80), max_size=5)
documents = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6)


@given(st.lists(documents, min_size=1, max_size=3), st.integers(0, 3), st.integers(0, 2))
def test_what_holds_for_every_batch(
    corpus: list[list[tuple[list[int], list[int]]]], before: int, after: int
) -> None:
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
    assert torch.equal(batch.target_input[:, 1:][batch.is_label[:, 1:]], before_last(batch))
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


def before_last(batch: Batch) -> torch.Tensor:
    """All labels but the last of each row: what the decoder reads after `bos`."""
    return batch.target_label[:, :-1][batch.is_label[:, 1:]]


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
