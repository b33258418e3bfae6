"""Lists of hypotheses: the best ones of all there are, and the best one as without a list."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from cotext.config.recipe import Align, LengthPenaltyForm
from cotext.models.interface import Engine, EngineHypothesis, EngineRules
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.engine import search_engine
from cotext.search.hypotheses import Candidates, Hypothesis, NBestBeam, SearchOptions
from tests.refusals import must_raise
from tests.search.test_beam_search import (
    EOS,
    KINDS,
    LENGTH_PENALTIES,
    SEP,
    UNK,
    A,
    B,
    Listening,
    all_translations,
    penalised,
    search_table,
)
from tests.tables import Table, table_source

ONE = [SearchRequest((), 0, (5,)), SearchRequest((A, SEP), 0, (6,)), SearchRequest((A, SEP, B), 0, (4,))]
KEYS = [3, 5, 7]


def scores(hypothesis: Hypothesis) -> list[float]:
    [others] = hypothesis.others
    return [hypothesis.score, *(other.score for other in others)]


@pytest.mark.parametrize("align", ["constrained", "free"])
@pytest.mark.parametrize(("length_penalty", "form"), LENGTH_PENALTIES)
def test_a_wide_beam_finds_all_in_order(align: Align, length_penalty: float, form: LengthPenaltyForm) -> None:
    requests = ONE if align == "constrained" else ONE[:1]
    options = SearchOptions(700, length_penalty, align, nbest=12, length_penalty_form=form)
    for seed in range(3):
        found = search_table(Table(seed), KEYS[: len(requests)], requests, options)
        for key, request, hypothesis in zip(KEYS, requests, found, strict=False):
            _, every = all_translations(seed, key, request, "plain", align)
            ranked = sorted(
                ((penalised(log_p, len(new) + 1, length_penalty, form), log_p, new) for new, log_p in every),
                key=lambda each: -each[0],
            )[:12]
            [others] = hypothesis.others
            assert [hypothesis.tokens, *(list(o.tokens) for o in others)] == [new for _, _, new in ranked]
            assert scores(hypothesis) == pytest.approx([score for score, _, _ in ranked], abs=1e-12)
            assert [o.log_probability for o in others] == pytest.approx(
                [log_p for _, log_p, _ in ranked[1:]], abs=1e-12
            )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [2, 3, 6])
def test_the_best_hypothesis_is_that_of_a_search_without_a_list(kind: str, beam: int) -> None:
    """Narrow beams, where what a list keeps could take the place of what is going to win."""
    different = 0
    for seed in range(12):
        model = Table(seed, sharpness=1.0 + seed % 3)
        requests = [SearchRequest((), 0, (9,)), SearchRequest((), 1, (12,)), SearchRequest((), 0, (4, 5))]
        plain = search_table(model, KEYS, requests, SearchOptions(beam), kind)
        listed = search_table(model, KEYS, requests, SearchOptions(beam, nbest=beam), kind)
        for before, after in zip(plain, listed, strict=True):
            assert (before.tokens, before.truncated) == (after.tokens, after.truncated)
            assert before.token_log_probabilities == after.token_log_probabilities
            assert before.others == ()
        *single, several = listed
        assert several.others == ()  # its sentences are written one after the other
        for hypothesis in single:
            assert len(scores(hypothesis)) == beam
            assert all(a >= b for a, b in pairwise(scores(hypothesis)))
            tokens = {tuple(hypothesis.tokens), *(other.tokens for other in hypothesis.others[0])}
            assert len(tokens) == beam
            different += len({len(each) for each in tokens}) > 1
    assert different > 5  # lists are not of one length, for which no reserve were needed


def test_rows_that_others_see_are_not_searched_any_further() -> None:
    """What they show is the same with and without a list, token for token."""
    told = []
    for nbest in (1, 3):
        model = Listening(Table(4, sharpness=2.0))
        requests = [SearchRequest((), 0, (9,))] * 3
        source = replace(table_source(KEYS), document=torch.arange(3))
        symbols = SearchSymbols(KINDS["plain"], unk=2, blank=(5,))
        found = search(model, source, requests, symbols, SearchOptions(3, nbest=nbest))
        told.append((model.told, [h.tokens for h in found], model.table.calls))
    assert told[0] == told[1]
    assert any(hypothesis.others[0] for hypothesis in found)


@pytest.mark.parametrize(("beam", "nbest", "words"), [(1, 2, "greedy search"), (4, 5, "decode.beam = 5")])
def test_more_than_the_beam_holds_is_refused(beam: int, nbest: int, words: str) -> None:
    must_raise(words, SearchOptions, beam, nbest=nbest)


def test_no_candidate_is_in_the_beam_twice() -> None:
    """The first place continues; the best candidate for the second one is that continuation itself."""
    beam = NBestBeam([2], float, torch.zeros(1, 2), has_reserve=True)
    values = [[-1.0, -2.0]], [[0, 0]], [[A, B]], [[-1.0, -2.0]]
    several = Candidates(*(torch.tensor(each) for each in values))
    hopeful, entry, divisor = torch.tensor([[True, False]]), torch.tensor([0]), torch.ones(1)
    found, continues = beam.fill(entry, several, hopeful, [several], divisor)
    assert (found.token.tolist(), continues.tolist()) == ([[A, B]], [[True, True]])


class TwoHypotheses(Engine):
    """An engine that writes one token with log-probability -1, or four with -1.5."""

    positions, name, parameters = 100, "two", 0

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: EngineRules,
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        """See `Engine.search`."""
        both = [EngineHypothesis((A,), -1.0, True), EngineHypothesis((A, A, A, A), -1.5, True)]
        return [both for _ in sources]

    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        raise AssertionError("the engine's own log-probabilities hold")


@pytest.mark.parametrize("form", ["power", "gnmt"])
def test_what_an_engine_returns_is_ranked_by_the_form_that_is_asked_for(form: LengthPenaltyForm) -> None:
    # power: -1 / 2 ** 0.6 = -0.66 and -1.5 / 5 ** 0.6 = -0.57; gnmt: -1 / (7 / 6) ** 0.6 = -0.91 and
    # -1.5 / (10 / 6) ** 0.6 = -1.10.
    symbols = SearchSymbols(KINDS["plain"], UNK, blank=())
    options = SearchOptions(2, 0.6, nbest=2, length_penalty_form=form)
    [found] = search_engine(
        TwoHypotheses(), table_source([EOS]), [SearchRequest((), 0, (9,))], symbols, options
    )
    short = -1.0 / (2 if form == "power" else 7 / 6) ** 0.6
    long = -1.5 / (5 if form == "power" else 10 / 6) ** 0.6
    [[other]] = found.others
    assert [len(found.tokens), len(other.tokens)] == ([4, 1] if form == "power" else [1, 4])
    assert [found.score, other.score] == pytest.approx([long, short] if form == "power" else [short, long])
