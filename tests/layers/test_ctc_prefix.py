"""Beginnings of texts against the enumeration of all paths, and the chain rule that they give."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product

import pytest
import torch
from torch.nn.functional import linear

from cotext.layers.ctc import beginnings, fits
from tests.layers.test_ctc import (
    BLANK,
    FORCED,
    PLAIN,
    VOCABULARY,
    brackets,
    collapse,
    ctc_nll,
    example,
    units,
)


def enumerated(
    log_p: torch.Tensor, target: Sequence[int], fixed: dict[int, int]
) -> tuple[list[float], float]:
    """Probabilities of the beginnings of a target, and of the target itself."""
    begins, whole = [0.0] * len(target), 0.0
    choices = [[fixed[t]] if t in fixed else range(VOCABULARY) for t in range(len(log_p))]
    for path in product(*choices):
        p = float(
            torch.stack([log_p[t, path[t]] for t in range(len(log_p)) if t not in fixed] or [torch.zeros(())])
            .sum()
            .exp()
        )
        text = collapse(path)
        whole += p * (text == list(target))
        for i in range(len(target)):
            begins[i] += p * (text[: i + 1] == list(target[: i + 1]))
    return begins, whole


@pytest.mark.parametrize("forced", [False, True])
def test_beginnings_by_enumeration(forced: bool) -> None:
    for lengths, targets in FORCED if forced else PLAIN:
        if max(lengths) > 5:
            continue
        hidden, weight = (x.detach() for x in example(sum(lengths)))
        asked = units(lengths, targets, forced)
        found_begins, found_whole = beginnings(hidden, partial(linear, weight=weight), asked, BLANK)
        log_p, start = (hidden @ weight.T).log_softmax(dim=1), 0
        for g, (length, target) in enumerate(zip(lengths, targets, strict=True)):
            begins, whole = enumerated(
                log_p[start : start + length], target, brackets(length) if forced else {}
            )
            start += length
            if not fits(asked, BLANK)[g]:
                assert found_whole[g] == -torch.inf
                continue
            assert found_whole[g].exp() == pytest.approx(whole)
            assert found_begins[g, : len(target)].exp().tolist() == pytest.approx(begins)


def test_the_whole_is_the_likelihood_and_every_step_loses() -> None:
    lengths = [9, 14, 6]
    targets = [[1, 3, 4, 3, 2], [1, 4, 4, 3, 2], [1, 3, 2]]
    hidden, weight = (x.detach() for x in example(sum(lengths), seed=3))
    asked = units(lengths, targets, forced=True)
    all_begins, all_whole = beginnings(hidden, partial(linear, weight=weight), asked, BLANK)
    torch.testing.assert_close(-all_whole, ctc_nll(hidden, weight, asked, BLANK))
    for begins, whole, target in zip(all_begins, all_whole, targets, strict=True):
        chain = [*begins[: len(target)].tolist(), float(whole)]
        assert chain[0] == pytest.approx(0)  # the bracket that is forced
        assert all(later <= before + 1e-12 for before, later in pairwise(chain))
