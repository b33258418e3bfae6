"""Prefix beam search against the enumeration of all texts."""

from collections import defaultdict
from itertools import groupby, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.losses.ctc import Units, ctc_nll
from cotext.runtime.errors import CotextError
from cotext.search.prefix_beam import TextRules, candidates, prefix_beam

BLANK, B, E, SILENT, NEVER = 0, 1, 2, 3, 4  # words from 5 on
VOCABULARY = 7
PLAIN = TextRules(BLANK, frozenset({SILENT}), frozenset({NEVER, B, E}))
BRACKETED = TextRules(BLANK, frozenset({SILENT}), frozenset({NEVER}), (B, E))


def log_p(positions: int, seed: int, spread: float = 1.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(positions, VOCABULARY, dtype=torch.float64, generator=generator)
    return scores.log_softmax(dim=1)


def everything(log_p_TV: Tensor) -> tuple[Tensor, Tensor]:
    return log_p_TV, torch.arange(VOCABULARY).expand_as(log_p_TV)


def allowed(text: tuple[int, ...], rules: TextRules) -> bool:
    inner = text
    if rules.brackets:
        if len(text) < 2 or (text[0], text[-1]) != rules.brackets:
            return False
        inner = text[1:-1]
        if set(inner) & set(rules.brackets):
            return False
    return not set(inner) & rules.never and bool(set(inner) - rules.non_content)


def enumerated(log_p_TV: Tensor, rules: TextRules) -> dict[tuple[int, ...], float]:
    """The probability of every text that may be said, the most probable first."""
    positions = len(log_p_TV)
    choices: list[list[int]] = [list(range(VOCABULARY)) for _ in range(positions)]
    fixed = set()
    if rules.brackets:
        choices[0], choices[-1] = [rules.brackets[0]], [rules.brackets[1]]
        fixed = {0, positions - 1}
    p, sums = log_p_TV.exp().tolist(), defaultdict(float)
    for path in product(*choices):
        text = tuple(token for token, _ in groupby(path) if token != BLANK)
        if allowed(text, rules):
            probability = 1.0
            for t, token in enumerate(path):
                probability *= 1.0 if t in fixed else p[t][token]
            sums[text] += probability
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


@pytest.mark.parametrize(("rules", "positions"), [(PLAIN, 4), (PLAIN, 1), (BRACKETED, 6), (BRACKETED, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_all_texts(rules: TextRules, positions: int, seed: int) -> None:
    given_p = log_p(positions, seed)
    found, expected = prefix_beam(*everything(given_p), 10_000, rules), enumerated(given_p, rules)
    assert {text.tokens for text in found} == set(expected)
    assert found[0].tokens == next(iter(expected))
    for text in found:
        assert text.log_probability == pytest.approx(torch.tensor(expected[text.tokens]).log().item())


def test_the_best_text_is_not_that_of_the_best_path() -> None:
    # Blank twice has 0.36; the word has 0.4 * 0.4 + 2 * 0.4 * 0.6.
    given_p = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    tokens = torch.tensor([[BLANK, 5], [BLANK, 5]])
    [text] = prefix_beam(given_p, tokens, 1, TextRules(BLANK))
    assert text.tokens == (5,)
    assert prefix_beam(given_p, tokens, 3, TextRules(BLANK))[0].log_probability == pytest.approx(
        torch.tensor(0.64).log().item()
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 12), st.integers(0, 999), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.5, 4.0])
)
def test_narrow_beams_say_something_and_no_more_than_is_true(
    positions: int, seed: int, beam: int, count: int, spread: float
) -> None:
    given_p = log_p(positions, seed, spread)
    # Words are so improbable that no beam would keep them for their own sake.
    given_p = (given_p - 30 * (torch.arange(VOCABULARY) > SILENT)).log_softmax(dim=1)
    found = prefix_beam(*candidates(given_p, count, BRACKETED), beam, BRACKETED)
    assert 1 <= len(found) <= beam
    assert [t.log_probability for t in found] == sorted((t.log_probability for t in found), reverse=True)
    for text in found:
        assert allowed(text.tokens, BRACKETED)
        units = Units(
            torch.tensor([0]), torch.tensor([positions]), torch.tensor([text.tokens]),
            torch.tensor([len(text.tokens)]), forced=True,
        )  # fmt: skip
        nll = ctc_nll(given_p, torch.eye(VOCABULARY, dtype=torch.float64), units, BLANK)
        assert text.log_probability <= -float(nll) + 1e-9


def test_candidates_are_the_best_words_and_what_stands_beside_them() -> None:
    given_p = log_p(5, 3)
    scores, tokens = candidates(given_p, 1, BRACKETED)
    assert tokens[:, :4].tolist() == [[BLANK, B, E, SILENT]] * 5
    assert tokens[:, 4].tolist() == (5 + given_p[:, 5:].argmax(dim=1)).tolist()
    assert torch.equal(scores, given_p.gather(1, tokens))
    assert candidates(given_p, 99, BRACKETED)[1].size(1) == 6


@pytest.mark.parametrize("positions", [0, 1, 2])
def test_too_few_positions_for_a_word(positions: int) -> None:
    with pytest.raises(CotextError, match="no text with a content token"):
        prefix_beam(*everything(log_p(positions, 0)), 3, BRACKETED)
