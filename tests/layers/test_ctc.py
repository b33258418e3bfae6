"""CTC of many units against the enumeration of all paths; Viterbi likewise; gradients."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import linear

from cotext.layers import ctc
from cotext.layers.ctc import Lattices, Units, best_alignment, ctc_loss, ctc_scores, fits
from tests.loops import loop_over

BLANK, B, E = 0, 1, 2  # and a, b ... from 3 on
DIMENSION, VOCABULARY = 3, 5
Targets = Sequence[Sequence[int]]  # the tokens of each unit


def ctc_nll(hidden: Tensor, weight: Tensor, asked: Units, blank: int, chunk: int = 512) -> Tensor:
    with torch.no_grad():
        return ctc_scores(hidden, partial(linear, weight=weight), asked, blank, chunk)


def ctc_sum(hidden: Tensor, weight: Tensor, asked: Units, blank: int, chunk: int = 512) -> Tensor:
    return ctc_loss(hidden, weight, Lattices.of(asked, blank, hidden.size(1)), chunk)


def aligned_tokens(hidden: Tensor, weight: Tensor, asked: Units, blank: int) -> Tensor:
    return best_alignment(hidden, weight, Lattices.of(asked, blank, hidden.size(1)))


def units(lengths: Sequence[int], targets: Targets, forced: bool = False) -> Units:
    """One after the other, targets padded with a token that could be meant."""
    longest = max(map(len, targets))
    ends = torch.tensor(lengths).cumsum(0)
    return Units(
        start=ends - torch.tensor(lengths),
        length=torch.tensor(lengths),
        target=torch.tensor([[*t, *[3] * (longest - len(t))] for t in targets], dtype=torch.long),
        target_length=torch.tensor([len(t) for t in targets]),
        forced=forced,
    )


def example(positions: int, vocabulary: int = VOCABULARY, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(positions, DIMENSION, dtype=torch.float64, generator=generator, requires_grad=True),
        torch.randn(vocabulary, DIMENSION, dtype=torch.float64, generator=generator, requires_grad=True),
    )


def collapse(path: Sequence[int]) -> list[int]:
    return [token for token, _ in groupby(path) if token != BLANK]


def paths(
    log_p: Tensor, target: Sequence[int], fixed: dict[int, int] | None = None
) -> tuple[list[tuple[int, ...]], Tensor]:
    """All paths of the target and the log-probability of each; fixed positions are certain."""
    fixed = fixed or {}
    choices = [[fixed[t]] if t in fixed else range(log_p.size(1)) for t in range(log_p.size(0))]
    found = [path for path in product(*choices) if collapse(path) == list(target)]
    free = [t for t in range(log_p.size(0)) if t not in fixed]
    costs = [sum((log_p[t, path[t]] for t in free), log_p.new_zeros(())) for path in found]
    return found, torch.stack(costs) if costs else log_p.new_zeros(0)


def brackets(length: int, first: int = 0) -> dict[int, int]:
    return {first: B, first + length - 1: E}


def enumerated(
    hidden: Tensor, weight: Tensor, lengths: Sequence[int], targets: Targets, forced: bool
) -> Tensor:
    """The negative log-likelihood of every unit; 0 where there is no path."""
    log_p, start, each = (hidden @ weight.T).log_softmax(dim=1), 0, []
    for length, target in zip(lengths, targets, strict=True):
        _, costs = paths(log_p[start : start + length], target, brackets(length) if forced else None)
        each.append(-costs.logsumexp(dim=0) if len(costs) else hidden.new_zeros(()))
        start += length
    return torch.stack(each)


PLAIN = [
    *(((4,), ([3],)), ((4,), ([3, 4],)), ((5,), ([3, 3],)), ((3,), ([3, 3],)), ((4,), ([],)), ((1,), ([4],))),
    ((5, 1, 3, 4), ([4, 3, 4], [], [3], [1, 2])),
    ((2, 4, 3), ([3, 3], [1, 2], [4, 4, 3])),
]
FORCED = [
    *(((4,), ([B, 3, E],)), ((5,), ([B, 3, 3, E],)), ((4,), ([B, E],)), ((2,), ([B, E],))),
    *(((3,), ([B, 3, E],)), ((5,), ([B, B, E],)), ((6,), ([B, 3, E, E],))),
    ((5, 2, 3, 6), ([B, 4, E], [B, E], [B, 3, E], [B, 3, 4, 3, E])),
    ((2, 4, 3), ([B, 3, E], [B, 4, E], [B, 3, 3, E])),
]


def check(lengths: Sequence[int], targets: Targets, forced: bool, chunk: int, seed: int) -> None:
    """Losses, gradients and best paths of units, each by enumeration."""
    hidden, weight = example(sum(lengths), seed=seed)
    asked = units(lengths, targets, forced)
    want = enumerated(hidden, weight, lengths, targets, forced)
    torch.testing.assert_close(ctc_nll(hidden, weight, asked, BLANK, chunk), want.detach())
    with torch.no_grad():
        torch.testing.assert_close(ctc_sum(hidden, weight, asked, BLANK, chunk), want.sum())
    got = ctc_sum(hidden, weight, asked, BLANK, chunk)
    torch.testing.assert_close(got, want.sum())
    total = want.sum() + 0 * hidden.sum() + 0 * weight.sum()
    for scale in (1.0, 0.7):
        of_got, of_want = (
            torch.autograd.grad(loss * scale, (hidden, weight), retain_graph=True) for loss in (got, total)
        )
        torch.testing.assert_close(of_got, of_want)
    aligned = aligned_tokens(hidden, weight, asked, BLANK).tolist()
    log_p, start = (hidden @ weight.T).log_softmax(dim=1).detach(), 0
    for length, target in zip(lengths, targets, strict=True):
        found, costs = paths(log_p[start : start + length], target, brackets(length) if forced else None)
        expected = list(found[int(costs.argmax())]) if found else [-1] * length
        assert aligned[start : start + length] == expected
        start += length


@loop_over("chunk", [1, 2, 3, 1024])
def test_losses_gradients_and_best_paths_by_enumeration(chunk: int) -> None:
    cases = [*((*case, False) for case in PLAIN), *((*case, True) for case in FORCED)]
    for seed, case in enumerate(cases):
        check(*case, chunk, seed)


@loop_over(
    ("length", "target", "forced", "expected"),
    [
        (2, [3, 3], False, False),
        (3, [3, 3], False, True),
        (0, [], False, True),
        (0, [3], False, False),
        (5, [3, BLANK, 4], False, False),
        (1, [B, E], True, False),
        (2, [B, E], True, True),
        (4, [B, 3, 3, E], True, False),
        (5, [B, 3, 3, E], True, True),
        (3, [], True, False),
    ],
)
def test_whether_a_path_exists(length: int, target: list[int], forced: bool, expected: bool) -> None:
    asked = units([length, 3], [target, [B, 4, E]], forced)
    assert fits(asked, BLANK).tolist() == [expected, True]


@settings(max_examples=40)
@given(st.data())
def test_any_packing(data: st.DataObject) -> None:
    forced = data.draw(st.booleans())
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    tokens = st.lists(st.integers(1, 4), max_size=3)
    targets = [
        [B, *t, E] if forced else t
        for t in data.draw(st.lists(tokens, min_size=len(lengths), max_size=len(lengths)))
    ]
    check(lengths, targets, forced, data.draw(st.integers(1, 9)), data.draw(st.integers(0, 99)))


def many(forced: bool) -> tuple[Tensor, Tensor, Units]:
    """Forty units of very unequal length."""
    generator = torch.Generator().manual_seed(1)
    lengths = [60, 2, *torch.randint(2, 20, (38,), generator=generator).tolist()]
    targets = [
        [B, *torch.randint(3, 30, (max(0, n // 2 - 1),), generator=generator).tolist(), E] for n in lengths
    ]
    return *example(sum(lengths), 30), units(lengths, targets, forced)


@loop_over("forced", [False, True])
def test_how_units_are_grouped_does_not_matter(forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, asked = many(forced)
    outcomes = []
    for cells in (2**24, 1000, 1):
        monkeypatch.setattr(ctc, "GROUP_CELLS", cells)
        gradients = torch.autograd.grad(ctc_sum(hidden, weight, asked, BLANK, 50), (hidden, weight))
        nll = ctc_nll(hidden, weight, asked, BLANK, 50)
        outcomes.append((nll, *gradients, aligned_tokens(hidden, weight, asked, BLANK)))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    torch.testing.assert_close(outcomes[2], outcomes[0])


def test_positions_of_no_unit_and_units_in_any_order() -> None:
    hidden, weight = example(12)
    gaps = Units(
        torch.tensor([7, 1]),
        torch.tensor([4, 5]),
        torch.tensor([[3, 0], [4, 3]]),
        torch.tensor([1, 2]),
        False,
    )
    got = ctc_nll(hidden, weight, gaps, BLANK)
    want = [
        ctc_nll(hidden[a:b], weight, units([b - a], [t]), BLANK) for a, b, t in ((7, 11, [3]), (1, 6, [4, 3]))
    ]
    torch.testing.assert_close(got, torch.cat(want))
    (grad,) = torch.autograd.grad(ctc_sum(hidden, weight, gaps, BLANK), hidden)
    assert not grad[[0, 6, 11]].any()
    assert grad[[1, 5, 7, 10]].any(dim=1).all()
    assert aligned_tokens(hidden, weight, gaps, BLANK).eq(-1).nonzero().flatten().tolist() == [0, 6, 11]


def test_long_units_in_single_precision() -> None:
    """A thousand positions with scores far apart: as exact as the logits are."""
    generator = torch.Generator().manual_seed(2)
    target = torch.randint(3, 40, (400,), generator=generator).tolist()
    hidden, weight = example(1000, 40)
    exact = [t.detach().mul(3).requires_grad_() for t in (hidden, weight)]
    single = [t.detach().float().requires_grad_() for t in exact]
    want, got = (ctc_sum(*pair, units([1000], [target]), BLANK) for pair in (exact, single))
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)
    for g, w in zip(torch.autograd.grad(got, single), torch.autograd.grad(want, exact), strict=True):
        torch.testing.assert_close(g.double(), w, rtol=1e-3, atol=1e-3)


def test_half_precision() -> None:
    hidden, weight, asked = many(True)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    expected = ctc_sum(hidden, weight, asked, BLANK)
    with torch.autocast("cpu", torch.bfloat16):
        nll = ctc_sum(hidden, weight, asked, BLANK, 30)
        aligned = aligned_tokens(hidden, weight, asked, BLANK)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, expected, rtol=0.03, atol=0.05)
    got, want = (torch.autograd.grad(n, (hidden, weight)) for n in (nll, expected))
    assert [g.dtype for g in got] == [torch.float32, torch.float32]
    for g, w in zip(got, want, strict=True):
        assert float((g - w).norm() / w.norm()) < 0.03
    assert float((aligned == aligned_tokens(hidden, weight, asked, BLANK)).float().mean()) > 0.9
    halves = ctc_sum(hidden.bfloat16(), weight, asked, BLANK)
    torch.testing.assert_close(halves, nll, rtol=1e-3, atol=1e-3)


def test_float16_keeps_gradients_beyond_its_range() -> None:
    """Those of improbable tokens are below 6e-8; of a scaled loss, they are above 65,504."""
    generator = torch.Generator().manual_seed(7)
    hidden = (torch.randn(600, 8, generator=generator) + 60).half()
    weight = torch.full((50, 8), -0.02)
    weight[:3] = torch.tensor([[0.01], [0.0], [0.005]])
    weight = (weight + 0.001 * torch.randn(50, 8, generator=generator)).half()
    weight[40:] -= 0.008
    asked = units([200, 400], [[1, 2], [2, 1, 2]])
    rounded, exact = (
        (hidden.to(dtype).requires_grad_(), weight.to(kept).requires_grad_())
        for dtype, kept in ((torch.float16, torch.float32), (torch.float64, torch.float64))
    )
    probability = (exact[0] @ exact[1].T).softmax(dim=1).detach()
    assert 1e-9 < float(probability[:, 40:].mean()) < 3e-8
    for scale in (1.0, 2.0**16):
        (_, of_weight), (_, expected) = (
            torch.autograd.grad(ctc_sum(*pair, asked, BLANK) * scale, pair) for pair in (rounded, exact)
        )
        assert bool((expected[40:] > 0).all())
        torch.testing.assert_close(of_weight.double(), expected, rtol=0.03, atol=0.0)
