"""The three laws of views, on random documents; windows written down by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.config import ViewConfig
from cotext.data.views import SentenceView, View, Window, WindowView, join
from cotext.errors import CotextError
from cotext.systems import build_view

lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12)
views = st.one_of(
    st.just(SentenceView()),
    st.builds(
        WindowView,
        before=st.integers(0, 4),
        after=st.integers(0, 3),
        max_tokens=st.one_of(st.none(), st.integers(1, 40)),
    ),
)


def split(view: View, document: list[tuple[int, int]]) -> list[Window]:
    return view.split([s for s, _ in document], [t for _, t in document])


def row_tokens(sentences: range, side: list[int]) -> int:
    return sum(side[j] + 1 for j in sentences)


@settings(deadline=None)
@given(views, lengths)
def test_joining_the_references_of_a_split_gives_the_document_back(
    view: View, document: list[tuple[int, int]]
) -> None:
    windows = split(view, document)
    references = [f"sentence {j}" for j in range(len(document))]
    assert join(windows, [[references[j] for j in w.target] for w in windows]) == references


@settings(deadline=None)
@given(views, lengths)
def test_no_window_leaves_its_document(view: View, document: list[tuple[int, int]]) -> None:
    inside = set(range(len(document)))
    for w in split(view, document):
        assert {*w.source, *w.target} <= inside
        assert w.current
        assert set(w.current) <= {*w.source} & {*w.target}
        assert len(w.source) <= view.sentences
        assert len(w.target) <= view.sentences


@settings(deadline=None)
@given(views, lengths)
def test_every_sentence_is_current_exactly_once_and_in_order(
    view: View, document: list[tuple[int, int]]
) -> None:
    assert [j for w in split(view, document) for j in w.current] == list(range(len(document)))


@settings(deadline=None)
@given(views, lengths)
def test_the_target_of_a_window_ends_with_its_current_sentence(
    view: View, document: list[tuple[int, int]]
) -> None:
    """What comes later could not be used by a decoder, and the past is the same on both sides."""
    windows = split(view, document)
    for w in windows:
        assert w.target.stop == w.current.stop
        assert w.target.start == w.source.start
    starts = [w.target.start for w in windows]
    assert starts == sorted(starts)


@settings(deadline=None)
@given(st.integers(0, 4), st.integers(0, 3), st.integers(1, 40), lengths)
def test_a_window_sheds_as_little_context_as_fits(
    before: int, after: int, max_tokens: int, document: list[tuple[int, int]]
) -> None:
    source, target = [s for s, _ in document], [t for _, t in document]
    full = WindowView(before, after).split(source, target)
    for whole, w in zip(full, WindowView(before, after, max_tokens).split(source, target), strict=True):
        j = w.current.start
        assert set(w.source) <= set(whole.source)
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


@settings(deadline=None)
@given(views, st.lists(st.integers(0, 12), max_size=12))
def test_a_document_without_translation_is_split_like_one_whose_translation_is_short(
    view: View, source: list[int]
) -> None:
    assert view.split(source, []) == view.split(source, [0] * len(source))


def test_windows_of_two_before_and_one_after() -> None:
    def w(source: tuple[int, int], target: tuple[int, int], current: int) -> Window:
        return Window(range(*source), range(*target), range(current, current + 1))

    assert WindowView(before=2, after=1).split([3, 1, 0, 5, 2], [2, 2, 1, 4, 4]) == [
        w((0, 2), (0, 1), 0),
        w((0, 3), (0, 2), 1),
        w((0, 4), (0, 3), 2),
        w((1, 5), (1, 4), 3),
        w((2, 5), (2, 5), 4),
    ]


@pytest.mark.parametrize(
    ("max_tokens", "source", "target"),
    [
        (23, (0, 4), (0, 3)),  # 4 + 5 + 6 + 4 tokens and four closing symbols
        (22, (0, 3), (0, 3)),  # the future goes first
        (18, (0, 3), (0, 3)),
        (17, (1, 3), (1, 3)),  # then the farthest past
        (13, (1, 3), (1, 3)),
        (12, (2, 3), (2, 3)),
        (1, (2, 3), (2, 3)),  # the current sentence stays, however long
    ],
)
def test_shedding_by_the_source_side(
    max_tokens: int, source: tuple[int, int], target: tuple[int, int]
) -> None:
    window = WindowView(2, 1, max_tokens).split([4, 5, 6, 4], [0, 0, 0, 0])[2]
    assert (window.source, window.target) == (range(*source), range(*target))


def test_a_long_target_sheds_the_past_and_keeps_the_future_that_it_does_not_hold() -> None:
    window = WindowView(2, 1, max_tokens=12).split([1, 1, 1, 1], [9, 4, 5, 30])[2]
    assert (window.source, window.target) == (range(1, 4), range(1, 3))


def test_the_sentence_view_is_a_window_of_one() -> None:
    assert SentenceView().split([3, 0, 2], []) == WindowView(0).split([3, 0, 2], [])
    assert SentenceView().sentences == WindowView(0).sentences == 1
    assert WindowView(2, 1).sentences == 4


def test_join_takes_the_current_sentence_alone_out_of_each_window() -> None:
    windows = WindowView(1).split([1, 1, 1], [])
    assert join(windows, [["a"], ["not a", "b"], ["not b", "c"]]) == ["a", "b", "c"]


def test_join_refuses_what_is_no_document() -> None:
    windows = WindowView(1).split([1, 1, 1], [])
    with pytest.raises(CotextError, match="2 target sentences came back with 1"):
        join(windows, [["a"], ["b"], ["b", "c"]])
    with pytest.raises(CotextError, match="sentence 2 is current in two"):
        join([*windows, windows[1]], [["a"], ["a", "b"], ["b", "c"], ["a", "b"]])
    with pytest.raises(CotextError, match="leave sentences of the document out"):
        join([windows[0], windows[2]], [["a"], ["b", "c"]])


def test_views_of_configurations() -> None:
    assert build_view(ViewConfig()) == SentenceView()
    assert build_view(ViewConfig(kind="window", before=3, max_tokens=99)) == WindowView(3, 0, 99)
    with pytest.raises(CotextError, match=r"use view\.kind = window"):
        build_view(ViewConfig(kind="sentence", before=1))
