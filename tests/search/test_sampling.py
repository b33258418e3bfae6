"""Sampling: what is drawn follows the distribution, and depends on the seed of a row alone."""

from collections import Counter
from math import sqrt
from typing import Any

import pytest
import torch

from cotext.config.recipe import SamplingConfig
from cotext.data.documents import Document, ParallelDocument
from cotext.search.beam_search import distribution, search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import SearchOptions
from cotext.translation.translator import DocumentTranslator
from tests.refusals import must_raise
from tests.search.test_beam_search import BLANK, KINDS, SEP2, UNK, Plain
from tests.tables import Table, table_source
from tests.tiny import translations
from tests.translation.test_shortlist_search import CPU, DOCUMENTS, OWN, SYSTEMS, TOKENIZER, system

SYMBOLS = SearchSymbols(KINDS["plain"], UNK, blank=(BLANK,), unused=(SEP2,))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 9}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.3}, [0, 1, 0, 0]),
        ({"top_p": 0.65}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.75}, [0, 4 / 9, 2 / 9, 3 / 9]),
        # Of the three most probable tokens, the first has 4/9 and the first two 7/9.
        ({"top_k": 3, "top_p": 0.5}, [0, 4 / 7, 0, 3 / 7]),
        # Probabilities to the power of 2, of a sum of 0.3.
        ({"temperature": 0.5}, [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]),
        # The temperature comes first: 16/30 is more than a half.
        ({"temperature": 0.5, "top_p": 0.5}, [0, 1, 0, 0]),
    ],
)
def test_temperature_top_k_and_top_p_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    p = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    for log_p in (p.log(), p.log() + 5):  # a constant makes no difference
        found = distribution(log_p, SamplingConfig(**settings))
        assert found[0].tolist() == pytest.approx(expected)


def test_the_first_of_equally_probable_tokens_remain_and_forbidden_ones_never() -> None:
    log_p = torch.tensor([[0.0, 0.0, -torch.inf, 0.0]])
    assert distribution(log_p, SamplingConfig(top_k=2)).tolist() == [[0.5, 0.5, 0, 0]]
    assert distribution(log_p, SamplingConfig(top_p=0.5)).tolist() == [[0.5, 0.5, 0, 0]]
    assert distribution(log_p, SamplingConfig(top_k=4))[0, 2] == 0


@pytest.mark.parametrize("settings", [{}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.8}])
def test_translations_are_as_frequent_as_they_are_probable(settings: dict[str, Any]) -> None:
    """Against the products of the probabilities of every token, for all translations there are."""
    draws, model, sampling = 2000, Table(3), SamplingConfig(**settings)
    limits = 4
    requests = [SearchRequest((), 0, (limits,), seed=(7, i)) for i in range(draws)]
    options = SearchOptions(1, sampling=sampling)
    found = Counter(
        tuple(h.tokens) for h in search(model, table_source([5] * draws), requests, SYMBOLS, options)
    )
    plain = Plain(model, 5, requests[0], "plain", "constrained")
    expected: dict[tuple[int, ...], float] = {}

    def follow(new: tuple[int, ...], p: float) -> None:
        allowed = dict(plain.choices(new))
        log_p = plain.next_log_probabilities(new)
        row = torch.tensor([[log_p[t] if t in allowed else -torch.inf for t in range(9)]])
        for token, q in enumerate(distribution(row, sampling)[0].tolist()):
            if q and allowed[token]:
                expected[new] = p * q
            elif q:
                follow((*new, token), p * q)

    follow((), 1.0)
    assert sum(expected.values()) == pytest.approx(1)
    assert found.keys() <= expected.keys()
    for tokens, p in expected.items():
        assert abs(found[tokens] / draws - p) < 4.5 * sqrt(p * (1 - p) / draws) + 1e-9, tokens


def sampler(recipe: str, listed: bool = False, **sampling: Any) -> DocumentTranslator:
    model, config = system(recipe)
    decode = {"beam": 1, "sampling": SamplingConfig(**sampling), "shortlist": 2 * listed}
    changed = config.model_copy(update={"decode": config.decode.model_copy(update=decode)})
    return DocumentTranslator(model, changed, TOKENIZER, CPU, shortlist=OWN if listed else None)


@pytest.mark.parametrize("recipe", [*SYSTEMS[:-1], "han/joint"])
def test_a_document_alone_decides_its_translation(recipe: str) -> None:
    """Whatever shares its batches, whatever its id, and whether search computes scores."""
    for listed in (False, True):
        of = sampler(recipe, listed)
        together = [t.document.sentences for t in translations(of, DOCUMENTS)]
        backwards = [t.document.sentences for t in translations(of, DOCUMENTS[::-1])][::-1]
        alone = [translations(of, [Document("x", d.sentences)])[0].document.sentences for d in DOCUMENTS]
        assert together == backwards == alone
        other = [t.document.sentences for t in translations(sampler(recipe, listed, seed=2), DOCUMENTS)]
        assert other != together
    assert sampler(recipe).signature.count("|sampling:temperature=1.0,top_k=0,top_p=1.0,seed=1|") == 1


def test_equal_sentences_of_a_document_are_drawn_anew() -> None:
    of = sampler("focused-concatenation/base")
    [found] = translations(of, [Document("a", ("w4 w9 w5",) * 8)])
    assert len(set(found.document.sentences)) > 1
    [again] = translations(of, [Document("b", ("w4 w9 w5",) * 7)])
    assert again.document.sentences != found.document.sentences[:7]


def test_the_scores_of_what_is_drawn_are_those_of_the_model() -> None:
    of = sampler("focused-concatenation/s4to4-shift-cd", temperature=0.7, top_k=9)
    for document, found in zip(DOCUMENTS, translations(of, DOCUMENTS), strict=True):
        pair = ParallelDocument(document.id, document.sentences, found.document.sentences)
        [scores] = of.score([pair])
        assert [s.log_probability for s in scores] == pytest.approx(found.log_probabilities)


def test_the_most_probable_token_alone_is_greedy_search() -> None:
    model, config = system("focused-concatenation/s4to4")
    changed = config.model_copy(update={"decode": config.decode.model_copy(update={"beam": 1})})
    greedy = translations(DocumentTranslator(model, changed, TOKENIZER, CPU), DOCUMENTS)
    for settings in ({"top_k": 1}, {"top_p": 1e-9}):
        drawn = translations(sampler("focused-concatenation/s4to4", **settings), DOCUMENTS)
        assert [t.document for t in drawn] == [t.document for t in greedy]
        assert [t.log_probabilities for t in drawn] == [t.log_probabilities for t in greedy]


def test_a_beam_and_models_that_write_all_at_once_are_refused() -> None:
    must_raise(r"decode\.beam = 2; choose decode\.beam = 1", SearchOptions, 2, sampling=SamplingConfig())
    must_raise(r"decode\.sampling: .* cannot draw tokens", sampler, "casa/casa")
    assert not sampler("focused-concatenation/base").supports_terms
