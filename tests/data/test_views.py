"""The three laws of views, on random documents; windows written down by hand."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotext.config.recipe import ViewConfig
from cotext.data.views import CumulativeView, DocumentView, Limit, Mixture, View, Window, WindowView, join
from cotext.models.build_views import build_mixture, build_view
from tests.refusals import must_raise

lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12)
bounded = st.builds(
    Limit,
    max_tokens=st.integers(1, 60),
    per_source_sentence=st.sampled_from([1, 2]),
    max_sentences=st.one_of(st.none(), st.integers(1, 5)),
)
limits = st.one_of(st.just(Limit()), bounded)
views = st.one_of(
    st.just(WindowView(0)),
    st.builds(
        WindowView,
        before=st.integers(0, 4),
        after=st.integers(0, 3),
        limit=limits,
        target_before=st.one_of(st.none(), st.integers(0, 4)),
    ),
    st.builds(DocumentView, limit=bounded, parts=st.integers(1, 5)),
    st.builds(CumulativeView, limit=bounded, parts=st.integers(1, 5)),
)


def split(view: View, document: list[tuple[int, int]]) -> list[Window]:
    return view.split([s for s, _ in document], [t for _, t in document])


def row_tokens(sentences: range, side: list[int]) -> int:
    return sum(side[j] + 1 for j in sentences)


@given(views, lengths)
def test_windows_join_and_every_sentence_is_current_once(view: View, document: list[tuple[int, int]]) -> None:
    windows = split(view, document)
    references = [f"sentence {j}" for j in range(len(document))]
    assert join(windows, [[references[j] for j in w.target] for w in windows]) == references
    assert [j for w in windows for j in w.current] == list(range(len(document)))
    for w in windows:
        assert {*w.source, *w.target} <= {*range(len(document))}
        assert w.current
        assert {*w.current} <= {*w.source} & {*w.target}
        if all(min(lengths) > 0 for lengths in document):
            assert max(len(w.source), len(w.target)) <= view.sentences
        assert w.source.start <= w.target.start
        assert w.target.stop == w.current.stop  # a decoder could not use what comes later
    starts = [w.target.start for w in windows]
    assert starts == sorted(starts)


@given(st.integers(0, 4), st.integers(0, 3), st.integers(1, 40), lengths)
def test_a_window_sheds_as_little_context_as_fits(
    before: int, after: int, max_tokens: int, document: list[tuple[int, int]]
) -> None:
    source, target = [s for s, _ in document], [t for _, t in document]
    full = WindowView(before, after).split(source, target)
    for whole, w in zip(
        full, WindowView(before, after, Limit(max_tokens)).split(source, target), strict=True
    ):
        j = w.current.start
        assert set(w.source) <= set(whole.source)
        assert (whole.shed, w.shed) == (0, len(whole.source) - len(w.source))
        assert set(w.target) <= set(whole.target)
        if len(w.source) > 1:
            assert row_tokens(w.source, source) <= max_tokens
        if len(w.target) > 1:
            assert row_tokens(w.target, target) <= max_tokens
        if w.source.start > whole.source.start:  # one more of the past would have been too long on one side
            wider = range(w.source.start - 1, w.source.stop), range(w.target.start - 1, w.target.stop)
            assert row_tokens(wider[0], source) > max_tokens or row_tokens(wider[1], target) > max_tokens
            # ... and the future went first, where the source was what did not fit.
            if row_tokens(range(whole.source.start, j + 1), source) > max_tokens:
                assert w.source.stop == j + 1


@given(views, st.lists(st.integers(0, 12), max_size=12))
def test_a_document_without_translation_is_split_as_if_it_were_short(view: View, source: list[int]) -> None:
    assert view.split(source, []) == view.split(source, [0] * len(source))


def test_windows_by_hand() -> None:
    def w(source: tuple[int, int], target: tuple[int, int], current: int) -> Window:
        return Window(range(*source), range(*target), range(current, current + 1))

    assert WindowView(before=2, after=1).split([3, 1, 0, 5, 2], [2, 2, 1, 4, 4]) == [
        w((0, 2), (0, 1), 0),
        w((0, 3), (0, 2), 1),
        w((0, 4), (0, 3), 2),
        w((1, 5), (1, 4), 3),
        w((2, 5), (2, 5), 4),
    ]
    window = WindowView(2, 1, Limit(12)).split([1, 1, 1, 1], [9, 4, 5, 30])[2]
    assert (window.source, window.target) == (range(1, 4), range(1, 3))
    for max_tokens, source, target in (
        (23, range(4), range(3)),  # 4 + 5 + 6 + 4 tokens and four closing symbols
        (22, range(3), range(3)),  # the future goes first
        (18, range(3), range(3)),
        (17, range(1, 3), range(1, 3)),  # then the farthest past
        (1, range(2, 3), range(2, 3)),  # the current sentence stays, however long
    ):
        window = WindowView(2, 1, Limit(max_tokens)).split([4, 5, 6, 4], [0, 0, 0, 0])[2]
        assert (window.source, window.target) == (source, target)
    windows = WindowView(2, limit=Limit(8), target_before=0).split([1, 3, 2, 4], [])
    assert [(w.source.start, w.source.stop) for w in windows] == [(0, 1), (0, 2), (1, 3), (2, 4)]
    assert all(w.target == w.current for w in windows)


def test_join_refuses_what_is_no_document() -> None:
    windows = WindowView(1).split([1, 1, 1], [])
    must_raise("2 target sentences has 1", join, windows, [["a"], ["b"], ["b", "c"]])
    twice = [*windows, windows[1]]
    must_raise("sentence 2 is current in two", join, twice, [["a"], ["a", "b"], ["b", "c"], ["a", "b"]])
    must_raise("leave sentences of the document out", join, [windows[0], windows[2]], [["a"], ["b", "c"]])


def test_views_of_configurations() -> None:
    assert build_view(ViewConfig()) == WindowView(0)
    assert build_view(ViewConfig(kind="window", before=3, max_tokens=99)) == WindowView(3, 0, Limit(99))
    doc2sent = ViewConfig(kind="window", before=4, target_before=0)
    assert build_view(doc2sent) == WindowView(4, 0, Limit(512), target_before=0)
    brackets = ViewConfig(kind="document", separators="bracket", parts=4, max_tokens=64)
    assert build_view(brackets) == DocumentView(Limit(64, per_source_sentence=2), 4)
    assert build_view(ViewConfig(kind="cumulative")) == CumulativeView(Limit(512), 1)
    twenty = ViewConfig(kind="document", max_sentences=20)
    assert build_view(twenty) == DocumentView(Limit(512, 1, max_sentences=20))
    assert build_view(twenty).sentences == 20
    assert build_view(ViewConfig(kind="document", max_sentences=20, max_tokens=30)).sentences == 15


def test_a_view_refuses_the_keys_of_another() -> None:
    for kind, keys in (
        ("sentence", ("before", "parts", "max_sentences")),
        ("document", ("after",)),
        ("cumulative", ("target_before",)),
        ("window", ("parts", "max_sentences")),
    ):
        for key in keys:
            config = ViewConfig.model_validate({"kind": kind, key: 2})
            must_raise(rf"view\.kind = {kind} does not support view\.{key}", build_view, config)


def ranges(windows: list[Window]) -> list[tuple[int, int]]:
    for w in windows:
        assert w.source == w.target == w.current
    return [(w.source.start, w.source.stop) for w in windows]


def test_documents_are_cut_where_a_side_is_full_or_in_equal_parts() -> None:
    """Six sentences of 5, 4, 3, 10, 2, 2 source tokens with the symbol that closes each; 2, 2, 9, 3, 2, 2."""
    source, target = [4, 3, 2, 9, 1, 1], [1, 1, 8, 2, 1, 1]
    assert ranges(DocumentView(Limit(10)).split(source, [])) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert ranges(DocumentView(Limit(12)).split(source, [])) == [(0, 3), (3, 5), (5, 6)]
    assert ranges(DocumentView(Limit(12)).split(source, target)) == [(0, 2), (2, 3), (3, 5), (5, 6)]
    # Brackets take a token more for every source sentence, so that 4 + 3 + 2 no longer fit.
    assert ranges(DocumentView(Limit(12, 2)).split(source, [])) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    # A sentence that is too long by itself stands alone.
    assert ranges(DocumentView(Limit(5)).split(source, [])) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6)]
    assert DocumentView(Limit(5)).split([], []) == []
    # Eleven sentences in 4 parts: 2 or 3 each; two sentences in 4 parts: single ones.
    view = DocumentView(Limit(22), parts=4)
    assert ranges(view.split([1] * 11, [])) == [(0, 2), (2, 5), (5, 8), (8, 11)]
    assert ranges(view.split([1] * 13, [])) == [(0, 2), (2, 5), (5, 8), (8, 11), (11, 12), (12, 13)]


def test_the_cumulative_view_by_hand() -> None:
    windows = CumulativeView(Limit(8), parts=2).split([1] * 5, [])
    # Pieces of four sentences and of one; the first in two parts.
    assert [(w.source.start, w.source.stop) for w in windows] == [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5)]
    assert [(w.target.start, w.target.stop) for w in windows] == [(j, j + 1) for j in range(5)]
    # Each target stands in a row of its own; training cuts as translation does, where none is known.
    view = CumulativeView(Limit(8))
    assert view.split([1] * 4, [3] * 4) == view.split([1] * 4, [])


def draw(mixture: Mixture, sentences: int, seed: int = 0) -> list[Window]:
    return mixture.draw([1] * sentences, [1] * sentences, np.random.default_rng(seed))


def test_a_mixture_of_weights_one_is_a_union() -> None:
    """Multi-resolution training on eight sentences: 1 + 2 + 4 + 8 sequences (Sun et al. 2022)."""
    halves = (DocumentView(Limit(16), parts) for parts in (1, 2, 4, 8, 16))
    drawn = draw(Mixture(tuple((view, 1.0) for view in (*halves, WindowView(0)))), 8)
    assert ranges(drawn)[:7] == [(0, 8), (0, 4), (4, 8), (0, 2), (2, 4), (4, 6), (6, 8)]
    assert ranges(drawn)[7:] == [(j, j + 1) for j in range(8)]
    # A document of one sentence is the same in every resolution.
    one = Mixture(((DocumentView(Limit(16)), 1.0), (WindowView(0), 1.0)))
    assert ranges(draw(one, 1)) == [(0, 1)]


def test_weights_say_how_often_an_instance_is_drawn() -> None:
    mixture = Mixture(((DocumentView(Limit(600)), 1.0), (WindowView(0), 2.25)))
    counts = Counter(draw(mixture, 200))
    assert counts.pop(Window(range(200), range(200), range(200))) == 1
    assert set(counts.values()) == {2, 3}
    assert 20 < sum(count == 3 for count in counts.values()) < 80  # 50 expected, six standard deviations
    assert draw(mixture, 200) != draw(mixture, 200, seed=1)


def test_all_pieces_of_a_mixture_are_limited_alike() -> None:
    cuts = [{"kind": kind} for kind in ("document", "cumulative", "sentence")]
    cuts.append({"kind": "window", "before": 1})
    for first in cuts:
        config = ViewConfig.model_validate({**first, "max_sentences": 3, "mixed_with": cuts})
        limit = Limit(512, max_sentences=3)
        expected = [DocumentView(limit), CumulativeView(limit), WindowView(0), WindowView(1, 0, Limit(512))]
        assert [view for view, _ in build_mixture(config).parts] == [expected[cuts.index(first)], *expected]
