"""The two forms of the length penalty, worked by hand, and that the formula is written once."""

from collections.abc import Sequence

import pytest

from cotext.config.decoding import LengthPenaltyForm
from cotext.models.interface import Engine, EngineHypothesis, EngineRules
from cotext.search.beam_search import SearchOptions
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.engine import search_engine
from tests.search.test_beam_search import EOS, KINDS, UNK, A
from tests.tables import table_source


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
