"""Candidate scoring shares common prefixes, and gives the scores of each candidate by itself."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.config.recipe import Config
from cotext.data.documents import ParallelDocument
from cotext.models.build import build_model
from cotext.models.transformer import Transformer
from cotext.translation.scorer import CandidateSet, SentenceScore, score_candidates
from cotext.translation.translator import DocumentTranslator
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.test_equivalence import PARALLEL, PARTS
from tests.test_equivalence import SYSTEMS as MODELS
from tests.tiny import PlainWordTokenizer, pieces, random_translator, tiny_config, window
from tests.translation.test_scorer import SYSTEMS

CPU = torch.device("cpu")
TOKENIZER = PlainWordTokenizer(["the", "cat", "it", "mat", "die", "katze", "sie", "er", "es", "matte"])
VIEWS = {**SYSTEMS, "document, in parts": tiny_config(view=pieces(parts=2))}


def choice(source: Sequence[str], *candidates: Sequence[str]) -> CandidateSet:
    columns = enumerate(zip(*candidates, strict=True))
    return CandidateSet(source, candidates, [j for j, column in columns if len(set(column)) > 1])


CHOICES = [
    # They differ in the middle, at the beginning, by a whole end, and not in all windows.
    choice(
        ("the cat", "it the mat", "cat"),
        ("die katze", "die sie matte", "katze"),
        ("die katze", "die er matte es", "katze"),
        ("die katze", "die es", "katze"),
    ),
    choice(("it",), ("sie",), ("er",)),
    choice(("it cat", "the"), ("sie", "die"), ("", "die"), ("sie katze er er", "die")),
    # In two sentences; two candidates are the same; the first sentence is nothing in some.
    choice(
        ("the", "cat it", "mat mat it", "it"),
        ("die", "katze sie", "matte matte", "sie"),
        ("die", "katze er", "matte matte", "er"),
        ("die", "katze sie", "matte matte", "sie"),
        ("die", "katze sie", "matte matte", "er es"),
    ),
    choice(("", "it the"), ("", "sie die"), ("die", "sie die"), ("", "er die")),
    choice(("the mat",), ("die matte",), ("die matte",)),
]


def translator(config: Config, max_tokens: int = 8000) -> DocumentTranslator:
    return random_translator(config, TOKENIZER, max_tokens=max_tokens)


def one_by_one(t: DocumentTranslator, choices: Sequence[CandidateSet]) -> list[list[SentenceScore]]:
    return [
        [
            t.score_sentences([(ParallelDocument("d", tuple(c.source), tuple(candidate)), c.compared)])[0]
            for candidate in c.candidates
        ]
        for c in choices
    ]


def check(found: Sequence[Sequence[SentenceScore]], expected: Sequence[Sequence[SentenceScore]]) -> None:
    assert [len(each) for each in found] == [len(each) for each in expected]
    for members, others in zip(found, expected, strict=True):
        for a, b in zip(members, others, strict=True):
            assert a.tokens == b.tokens
            assert a.log_probability == pytest.approx(b.log_probability, abs=1e-5)


@pytest.mark.parametrize("name", VIEWS)
def test_every_view(name: str) -> None:
    expected = one_by_one(translator(VIEWS[name]), CHOICES)
    for max_tokens in (1, 60, 8000):
        check(score_candidates(translator(VIEWS[name], max_tokens), CHOICES), expected)


# Each system with one of them, in turn.
CUTS = [window(2), pieces() | {"separators": "bracket"}, window(2) | {"separators": "bracket"}, pieces()]


@pytest.mark.parametrize(("name", "cut"), list(zip(sorted(PARTS), itertools.cycle(CUTS), strict=False)))
def test_every_system(name: str, cut: dict[str, Any]) -> None:
    """Where rows see each other too, as they are then scored together."""
    t = translator(tiny_config(view=cut, model=MODELS[name], decode={"group_windows": 2}))
    check(score_candidates(t, CHOICES), one_by_one(t, CHOICES))


@pytest.mark.parametrize("name", PARALLEL)
def test_non_autoregressive_systems(name: str) -> None:
    """They have no prefixes; a sentence may be impossible."""
    config = tiny_config(
        model={"writes": "non_autoregressive", "encoder_layers": 2, **PARALLEL[name]},
        view={"kind": "document", "separators": "bracket"},
        loss={"name": "glancing"},
    )
    model = build_model(config, TOKENIZER.vocabulary_size).double().eval()
    t = DocumentTranslator(model, config, TOKENIZER, CPU)
    check(score_candidates(t, CHOICES[:2]), one_by_one(t, CHOICES[:2]))


words = st.lists(st.sampled_from(TOKENIZER.words[4:]), max_size=4).map(" ".join)


@settings(max_examples=25)
@given(data=st.data(), name=st.sampled_from(sorted(VIEWS)))
def test_any_candidates(data: st.DataObject, name: str) -> None:
    count = data.draw(st.integers(1, 3))
    document = st.lists(words, min_size=count, max_size=count).map(tuple)
    made = st.tuples(document, st.lists(document, min_size=2, max_size=4))
    choices = [choice(s, *c) for s, c in data.draw(st.lists(made, min_size=1, max_size=3))]
    t = translator(VIEWS[name])
    check(score_candidates(t, choices), one_by_one(t, choices))


def test_each_source_is_read_once_and_each_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked out by hand: three candidates with the first sentence, `die` and the symbols in common."""
    encoded = calls_of(monkeypatch, Transformer, "encode", lambda model, source: source.tokens.shape)
    decoded = calls_of(monkeypatch, Transformer, "decode", lambda model, tokens, *rest: tokens.shape)
    score_candidates(translator(VIEWS["window"]), CHOICES[:1])
    # source: the cat sep it the mat eos; prefix: bos die katze sep die; continuations: er matte es.
    assert (encoded, decoded) == ([(1, 7)], [(1, 5), (3, 3)])


def test_nothing_to_compare() -> None:
    t = translator(VIEWS["window"])
    assert score_candidates(t, []) == []
    assert score_candidates(t, [CandidateSet(("it",), (("sie",), ("er",)), ())]) == [
        [SentenceScore(0.0, 0)] * 2
    ]


def test_a_damaged_model_is_refused() -> None:
    t = translator(VIEWS["window"])
    with torch.no_grad():
        t.model.output_weight.fill_(float("nan"))
    must_raise("not finite", score_candidates, t, CHOICES)
