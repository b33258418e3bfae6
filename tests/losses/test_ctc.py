"""CTC of many units against the enumeration of all paths; Viterbi likewise; gradients of both kinds."""

from collections.abc import Sequence
from itertools import groupby, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.losses import ctc
from cotext.losses.ctc import Lattices, Units, best_alignment, fits, lattices_nll

BLANK, B, E = 0, 1, 2  # and a, b ... from 3 on
DIMENSION, VOCABULARY = 3, 5


def ctc_nll(hidden: Tensor, weight: Tensor, asked: Units, blank: int, chunk: int = 512) -> Tensor:
    lattices = Lattices.of(asked, blank, hidden.size(1))
    return lattices_nll(hidden, weight, lattices, len(asked.length), chunk)


def aligned_tokens(hidden: Tensor, weight: Tensor, asked: Units, blank: int) -> Tensor:
    return best_alignment(hidden, weight, Lattices.of(asked, blank, hidden.size(1)))


def units(lengths: Sequence[int], targets: Sequence[Sequence[int]], forced: bool = False) -> Units:
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
    hidden: Tensor,
    weight: Tensor,
    lengths: Sequence[int],
    targets: Sequence[Sequence[int]],
    forced: bool = False,
) -> Tensor:
    """The negative log-likelihood of every unit; 0 where there is no path."""
    log_p, start, each = (hidden @ weight.T).log_softmax(dim=1), 0, []
    for length, target in zip(lengths, targets, strict=True):
        _, costs = paths(log_p[start : start + length], target, brackets(length) if forced else None)
        each.append(-costs.logsumexp(dim=0) if len(costs) else hidden.new_zeros(()))
        start += length
    return torch.stack(each)


def agree(
    lengths: Sequence[int],
    targets: Sequence[Sequence[int]],
    forced: bool = False,
    seed: int = 0,
    chunk: int = 1024,
) -> None:
    """Values, and gradients where all units count alike and where each has a weight of its own."""
    hidden, weight = example(sum(lengths), seed=seed)
    got = ctc_nll(hidden, weight, units(lengths, targets, forced), BLANK, chunk)
    want = enumerated(hidden, weight, lengths, targets, forced)
    torch.testing.assert_close(got, want)
    for scale in (torch.full_like(got, 0.7), torch.arange(1.0, 1 + len(got)).double()):
        if want.requires_grad:
            of_got = torch.autograd.grad((got * scale).sum(), (hidden, weight), retain_graph=True)
            of_want = torch.autograd.grad(
                (want * scale).sum() + 0 * hidden.sum() + 0 * weight.sum(),
                (hidden, weight),
                retain_graph=True,
            )
            torch.testing.assert_close(of_got, of_want)


PLAIN = [
    ((4,), ([3],)),
    ((4,), ([3, 4],)),
    ((5,), ([3, 3],)),
    ((3,), ([3, 3],)),
    ((4,), ([],)),
    ((1,), ([4],)),
    ((5, 1, 3, 4), ([4, 3, 4], [], [3], [1, 2])),
]
FORCED = [
    ((4,), ([B, 3, E],)),
    ((5,), ([B, 3, 3, E],)),
    ((4,), ([B, E],)),
    ((2,), ([B, E],)),
    ((3,), ([B, 3, E],)),
    ((5,), ([B, B, E],)),
    ((6,), ([B, 3, E, E],)),
    ((5, 2, 3, 6), ([B, 4, E], [B, E], [B, 3, E], [B, 3, 4, 3, E])),
]


@pytest.mark.parametrize(("lengths", "targets"), PLAIN)
@pytest.mark.parametrize("chunk", [1, 3, 1024])
def test_sum_over_all_paths(lengths: Sequence[int], targets: Sequence[Sequence[int]], chunk: int) -> None:
    agree(lengths, targets, chunk=chunk)


@pytest.mark.parametrize(("lengths", "targets"), FORCED)
@pytest.mark.parametrize("chunk", [2, 1024])
def test_sum_over_all_forced_paths(
    lengths: Sequence[int], targets: Sequence[Sequence[int]], chunk: int
) -> None:
    agree(lengths, targets, forced=True, chunk=chunk)


@pytest.mark.parametrize(
    ("lengths", "texts"),
    [((4, 3, 5), ([3], [4], [4, 3])), ((5, 2, 4), ([3, 3], [], [4])), ((3, 6), ([3], [4, 4]))],
)
def test_sentences_are_the_constrained_lattice_of_the_document(
    lengths: Sequence[int], texts: Sequence[Sequence[int]]
) -> None:
    """All paths of the whole document, with nothing but the positions of the brackets fixed."""
    hidden, weight = example(sum(lengths))
    targets = [[B, *text, E] for text in texts]
    fixed, start = {}, 0
    for length in lengths:
        fixed |= brackets(length, start)
        start += length
    log_p = (hidden @ weight.T).log_softmax(dim=1)
    _, costs = paths(log_p, [token for target in targets for token in target], fixed)
    document = -costs.logsumexp(dim=0)
    sentences = ctc_nll(hidden, weight, units(lengths, targets, forced=True), BLANK).sum()
    torch.testing.assert_close(sentences, document)
    torch.testing.assert_close(
        torch.autograd.grad(sentences, (hidden, weight)), torch.autograd.grad(document, (hidden, weight))
    )


@pytest.mark.parametrize(
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


def test_units_that_do_not_fit_count_for_nothing() -> None:
    for forced in (False, True):
        hidden, weight = example(2 + 4 + 3)
        asked = units([2, 4, 3], [[B, 3, E], [B, 4, E], [B, 3, 3, E]], forced)
        got = ctc_nll(hidden, weight, asked, BLANK)
        alone = ctc_nll(hidden[2:6], weight, units([4], [[B, 4, E]], forced), BLANK)
        torch.testing.assert_close(got, torch.stack([got.new_zeros(()), alone[0], got.new_zeros(())]))
        of_got = torch.autograd.grad(got.sum(), (hidden, weight))
        torch.testing.assert_close(of_got, torch.autograd.grad(alone.sum(), (hidden, weight)))
        assert aligned_tokens(hidden, weight, asked, BLANK)[[0, 1, 6, 7, 8]].eq(-1).all()


@pytest.mark.parametrize(
    ("lengths", "targets", "forced"),
    [*((*case, False) for case in PLAIN), *((*case, True) for case in FORCED)],
)
def test_best_path_of_all(lengths: Sequence[int], targets: Sequence[Sequence[int]], forced: bool) -> None:
    for seed in range(3):
        hidden, weight = example(sum(lengths), seed=seed)
        got = aligned_tokens(hidden, weight, units(lengths, targets, forced), BLANK).tolist()
        log_p, start = (hidden @ weight.T).log_softmax(dim=1).detach(), 0
        for length, target in zip(lengths, targets, strict=True):
            found, costs = paths(log_p[start : start + length], target, brackets(length) if forced else None)
            expected = list(found[int(costs.argmax())]) if found else [-1] * length
            assert got[start : start + length] == expected
            start += length


@settings(max_examples=60)
@given(st.data())
def test_any_packing(data: st.DataObject) -> None:
    """Each unit by itself, and by enumeration, whatever stands beside it."""
    forced = data.draw(st.booleans())
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    tokens = st.lists(st.integers(1, 4), max_size=3)
    targets = [
        [B, *t, E] if forced else t
        for t in data.draw(st.lists(tokens, min_size=len(lengths), max_size=len(lengths)))
    ]
    hidden, weight = example(sum(lengths), seed=data.draw(st.integers(0, 99)))
    packed = units(lengths, targets, forced)
    got = ctc_nll(hidden, weight, packed, BLANK, data.draw(st.integers(1, 9)))
    torch.testing.assert_close(got, enumerated(hidden, weight, lengths, targets, forced))
    aligned, fit = aligned_tokens(hidden, weight, packed, BLANK), fits(packed, BLANK)
    for g, (start, length) in enumerate(zip(packed.start.tolist(), lengths, strict=True)):
        part = aligned[start : start + length]
        single = units([length], [targets[g]], forced)
        torch.testing.assert_close(ctc_nll(hidden[start : start + length], weight, single, BLANK)[0], got[g])
        assert torch.equal(aligned_tokens(hidden[start : start + length], weight, single, BLANK), part)
        if fit[g]:
            assert collapse(part.tolist()) == targets[g]
            assert (
                part.numel() == 0
                or got[g]
                <= -(hidden @ weight.T)
                .log_softmax(1)[start + forced : start + length - forced]
                .gather(1, part[int(forced) : length - forced, None])
                .sum()
                + 1e-9
            )


def many(forced: bool) -> tuple[Tensor, Tensor, Units]:
    """Forty units of very unequal length."""
    generator = torch.Generator().manual_seed(1)
    lengths = [60, 2, *torch.randint(2, 20, (38,), generator=generator).tolist()]
    targets = [
        [B, *torch.randint(3, 30, (max(0, n // 2 - 1),), generator=generator).tolist(), E] for n in lengths
    ]
    return *example(sum(lengths), 30), units(lengths, targets, forced)


@pytest.mark.parametrize("forced", [False, True])
def test_how_units_are_grouped_does_not_matter(forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, asked = many(forced)
    outcomes = []
    for cells in (2**24, 1000, 1):
        monkeypatch.setattr(ctc, "GROUP_CELLS", cells)
        nll = ctc_nll(hidden, weight, asked, BLANK, 50)
        gradients = torch.autograd.grad(nll.sum(), (hidden, weight))
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
    (grad,) = torch.autograd.grad(got.sum(), hidden)
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
    want, got = (ctc_nll(*pair, units([1000], [target]), BLANK) for pair in (exact, single))
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)
    for g, w in zip(torch.autograd.grad(got, single), torch.autograd.grad(want, exact), strict=True):
        torch.testing.assert_close(g.double(), w, rtol=1e-3, atol=1e-3)


def test_without_gradients_the_loss_is_the_same() -> None:
    hidden, weight, asked = many(True)
    expected = ctc_nll(hidden, weight, asked, BLANK).detach()
    with torch.no_grad():
        torch.testing.assert_close(ctc_nll(hidden, weight, asked, BLANK, 30), expected)


def test_half_precision() -> None:
    hidden, weight, asked = many(True)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    expected = ctc_nll(hidden, weight, asked, BLANK)
    with torch.autocast("cpu", torch.bfloat16):
        nll = ctc_nll(hidden, weight, asked, BLANK, 30)
        aligned = aligned_tokens(hidden, weight, asked, BLANK)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, expected, rtol=0.03, atol=0.05)
    got, want = (torch.autograd.grad(n.sum(), (hidden, weight)) for n in (nll, expected))
    assert [g.dtype for g in got] == [torch.float32, torch.float32]
    for g, w in zip(got, want, strict=True):
        assert float((g - w).norm() / w.norm()) < 0.03
    assert float((aligned == aligned_tokens(hidden, weight, asked, BLANK)).float().mean()) > 0.9
    halves = ctc_nll(hidden.bfloat16(), weight, asked, BLANK)
    torch.testing.assert_close(halves, nll, rtol=1e-3, atol=1e-3)


def test_float16_keeps_gradients_beyond_its_range() -> None:
    """Those of improbable tokens are below 6e-8; of losses scaled unit by unit, they are above 65,504."""
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
    for scales in (torch.ones(2), torch.tensor([2.0**16, 2.0**15])):
        (_, of_weight), (_, expected) = (
            torch.autograd.grad((ctc_nll(*pair, asked, BLANK) * scales).sum(), pair)
            for pair in (rounded, exact)
        )
        assert bool((expected[40:] > 0).all())
        torch.testing.assert_close(of_weight.double(), expected, rtol=0.03, atol=0.0)


def test_backward_twice_over_a_retained_graph() -> None:
    hidden, weight, asked = many(False)
    loss = ctc_nll(hidden, weight, asked, BLANK).sum()
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, (hidden, weight)), first)
