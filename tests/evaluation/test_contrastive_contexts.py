"""Suites without context and in foreign context: what is scored, how often, and what comes of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cotext.data.context_edits import alone
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.controlled import contrastive_suites
from cotext.data.documents import ParallelDocument
from cotext.evaluation.metrics.contrastive import CONTEXTS
from cotext.evaluation.requests import SuiteRules
from cotext.evaluation.studies.context.context_use import excerpts
from cotext.evaluation.studies.contrastive import contrastive as module
from cotext.evaluation.studies.contrastive.contrastive import (
    context_window_of,
    foreign_sentences,
    run_suite,
    score_in_contexts,
)
from cotext.translation.scorer import CandidateSet, SentenceScore
from cotext.translation.translator import DocumentTranslator
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny import tiny_config, window
from tests.translation.test_candidate_scoring import CHOICES, VIEWS, translator

EXAMPLES = tuple(
    ContrastiveExample(str(n), "pronoun", 1, tuple(c.source), tuple(map(tuple, c.candidates)), 0, {}, f"d{n}")
    for n, c in enumerate(CHOICES)
)
SUITE = ContrastiveSuite("s", "en", "de", EXAMPLES)
CONTROLS = SuiteRules(controls=True)


@loop_over("view", ["window", "window, bracket", "source context", "document", "cumulative"])
def test_without_context_is_every_sentence_alone(view: str) -> None:
    t = translator(VIEWS[view])
    found = score_in_contexts(t, EXAMPLES, foreign_sentences(SUITE))
    assert list(found) == list(CONTEXTS)
    for example, scores in zip(EXAMPLES, found["none"], strict=True):
        for candidate, log_probability, tokens in zip(
            example.candidates, scores.log_probabilities, scores.tokens, strict=True
        ):
            single = [
                (ParallelDocument("", (example.source[j],), (candidate[j],)), (0,))
                for j in example.differing_sentences
            ]
            expected = t.score_sentences(single)
            assert log_probability == pytest.approx(sum(s.log_probability for s in expected), abs=1e-5)
            assert tokens == sum(s.tokens for s in expected)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[CandidateSet]:
    asked: list[CandidateSet] = []

    def scores(t: object, choices: Sequence[CandidateSet]) -> list[list[SentenceScore]]:
        asked.extend(choices)
        return [[SentenceScore(-1.0, 1)] * len(c.candidates) for c in choices]

    monkeypatch.setattr(module, "score_candidates", scores)
    return asked


def test_what_is_asked_twice_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of the controlled corpus differs in its clue, which neither control sees."""
    asked = noted(monkeypatch)
    suite = contrastive_suites(1, 60)[0]
    score_in_contexts(translator(VIEWS["document"]), suite.examples, foreign_sentences(suite))
    # Where the clue is in the sentence itself, the sentences differ.
    within = sum(example.distance == 0 for example in suite.examples)
    groups = (len(suite.examples) - within) // 3
    assert len(asked) == len(suite.examples) + 2 * groups + 2 * within


def test_what_is_drawn_depends_on_what_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = noted(monkeypatch)
    t, foreign = translator(VIEWS["window"]), foreign_sentences(SUITE)
    score_in_contexts(t, EXAMPLES, foreign)
    together = set(asked)
    asked.clear()
    for example in reversed(EXAMPLES):
        score_in_contexts(t, [example], foreign)
    assert set(asked) == together


def test_excerpts_are_chosen_and_foreign_context_needs_another_document() -> None:
    t = translator(VIEWS["window"])
    document = ParallelDocument("d", ("the cat", "it", "the mat", "it mat"), ("die", "es", "die", "sie"))
    every = excerpts(t, document)
    assert excerpts(t, document, (3, 1)) == [every[3], every[1]]
    assert alone(every[3]).document.source == ("it mat",)
    single = ContrastiveSuite("s", "en", "de", EXAMPLES[:1])
    message = "all examples are from one document, .* omit --controls, and --context foreign"
    must_raise(message, run_suite, t, single, CONTROLS)
    for context in ("true", "none", "shuffled"):
        assert run_suite(t, single, SuiteRules(context=context)).overall.total == 1


def test_how_far_views_and_models_see() -> None:
    seen = {name: context_window_of(translator(config)) for name, config in VIEWS.items()}
    assert not seen["sentence"].has_context
    assert (seen["window"].before, seen["window"].after, seen["window"].target_before) == (2, 0, 2)
    assert seen["source context"].target_before == 0
    assert seen["document"].contains("pronoun", ">3")
    assert not seen["cumulative"].contains("cohesion", "1")
    assert not seen["window"].contains("pronoun", "3")
    segments = {"attention": {"span": "sentence"}, "document_layer": "segment_gate"}
    whole = context_window_of(translator(tiny_config(model=segments, view={"kind": "document"})))
    assert (whole.contains("pronoun", ">3"), whole.contains("cataphora", "ahead")) == (True, True)
    assert not whole.contains("cohesion", "1")


ALL, GERMAN = ("the cat", "sat", "on", "a mat"), ("die katze", "saß", "auf", "matte")
PRONOUNS = [
    ContrastiveExample(
        str(n), "pronoun", 3, (*ALL, "it"), ((*GERMAN, right), (*GERMAN, "es")), 0, {}, f"d{n}"
    )
    for n, right in enumerate(("sie", "er"))
]
LONG = ContrastiveSuite("long", "en", "de", tuple(PRONOUNS))


def docflat(before: int) -> DocumentTranslator:
    """Windows of so many sentences and one that see each other."""
    view = window(before) | {"separators": "numbered", "numbers": 8}
    return translator(tiny_config(view=view, model={"batch_context": "flat"}, decode={"group_windows": 8}))


def asked_in(
    context: str, t: DocumentTranslator, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]]:
    """Source, right candidate and place of what is scored of the first example, beside its own context."""
    seen = noted(monkeypatch)
    pairs = [(f"x{n}", f"X{n}") for n in range(4)]
    own = ParallelDocument("", LONG.examples[0].source, LONG.examples[0].candidates[0])
    pool = module.Pool([own, ParallelDocument("", *zip(*pairs, strict=True))])
    foreign = (pool, {"0": 0})
    score_in_contexts(t, LONG.examples[:1], foreign, [context])
    return [(each.source, each.candidates[0], each.compared) for each in seen[1:]]


def test_shuffled_and_irrelevant_contexts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The own row shows `a mat`, other rows show the rest."""
    t = docflat(1)
    [(source, right, (place,))] = asked_in("shuffled", t, monkeypatch)
    assert (source[place], right[place]) == ("it", "sie")
    assert set(source[:4]) == {*ALL}
    assert source[:4] != ALL
    assert dict(zip(source, right, strict=True))["the cat"] == "die katze"
    [(source, right, (place,))] = asked_in("foreign", t, monkeypatch)
    assert (source[place], right[place]) == ("it", "sie")
    assert all(text.startswith("x") for text in source[:4])
    assert all(text.startswith("X") for text in right[:4])
    [(source, right, (place,))] = asked_in("global", t, monkeypatch)
    assert source[3:] == ("a mat", "it")
    assert right[3:] == ("matte", "sie")
    assert all(text.startswith("x") for text in source[:3])
    [(source, right, _)] = asked_in("none", t, monkeypatch)
    assert (source, right) == (("it",), ("sie",))


def test_accuracy_in_another_context_says_so() -> None:
    t = translator(VIEWS["window"])
    report = run_suite(t, SUITE, SuiteRules(context="none"), {"model": "m"})
    assert "context:none" in report.signature
    controlled, plain = run_suite(t, SUITE, CONTROLS), run_suite(t, SUITE)
    assert (controlled.decisions, plain.readings) == (plain.decisions, None)
    for context, in_context in (("none", report), ("true", plain)):
        right = controlled.readings.by_context[context].right
        assert [each.right for each in in_context.decisions] == list(right.values())
    assert "context:" not in plain.signature
    must_raise("which this system does not use", run_suite, t, SUITE, SuiteRules(context="global"))


def test_a_suite_without_sentences_beyond_the_window_has_no_other_global_context() -> None:
    """As ContraPro with three sentences of context, for windows of four: scores would be those of `true`."""
    message = "'long' has no such sentences; give it more context"
    must_raise(message, run_suite, docflat(4), LONG, SuiteRules(context="global"))
    # One sentence beyond the window is enough, and one example.
    first = LONG.examples[0]
    short = tuple(candidate[2:] for candidate in first.candidates)
    few = replace(first, source=first.source[2:], candidates=short, id="few")
    mixed = replace(LONG, examples=(few, *LONG.examples))
    assert "context:global" in run_suite(docflat(3), mixed, SuiteRules(context="global")).signature
