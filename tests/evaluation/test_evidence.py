"""What it takes to say that a system uses context: the case of the dashes, and of one that does use it."""

from dataclasses import replace

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.evaluation.metrics.contrastive import Readings, balanced_weights, choice_of, forms_of
from cotext.evaluation.statistics.significance import mcnemar
from cotext.evaluation.studies.contrastive.evidence import (
    CONDITIONS,
    Evidence,
    conclusion,
    corrected,
    groups_of,
    legend,
    render_evidence,
    weigh,
)
from tests.deciding import UNBALANCED, dashes, decided, guesser, natural_suite, reader, readings_of
from tests.loops import loop_over


def asked(suite: ContrastiveSuite, readings: Readings | None) -> Evidence:
    (group,) = groups_of(suite)
    (found,) = corrected([weigh(group, readings)])
    return found


@pytest.fixture(scope="module")
def of_dashes() -> Evidence:
    return asked(UNBALANCED, decided(UNBALANCED, dashes).readings)


@pytest.fixture(scope="module")
def of_reader() -> Evidence:
    return asked(UNBALANCED, decided(UNBALANCED, reader).readings)


def test_dashes_win_mcnemars_test_and_use_no_context(of_dashes: Evidence) -> None:
    readings = decided(UNBALANCED, dashes).readings
    true, none, foreign = (list(each.right.values()) for each in readings.by_context.values())
    # What made them look as if they did: against one that always says `es`, and plain chance.
    assert mcnemar(none, true, range(len(true))).p_mid < 0.0001
    assert of_dashes.conditions["chance"].holds
    assert of_dashes.conditions["none"].holds
    # What gives them away.
    assert sum(a == b for a, b in zip(true, foreign, strict=True)) >= 190
    assert of_dashes.conditions["balanced"].own == pytest.approx(100 / 3, abs=3)
    assert of_dashes.failing == ["balanced", "foreign", "cxmi"]
    assert of_dashes.used is False
    balanced, foreign = "balanced accuracy not above chance", "with context from other documents"
    fails = f"{balanced}, accuracy not above that {foreign} and the correct candidate no more probable than"
    group = "contrapro-ctx1 pronoun (1 back)"
    assert conclusion([of_dashes]) == f"Context use is not significant: in {group}: {fails} {foreign}."


def test_a_reader_uses_context_and_a_guesser_does_not(of_reader: Evidence) -> None:
    assert of_reader.used is True
    assert all(condition.holds for condition in of_reader.conditions.values())
    assert list(of_reader.conditions) == list(CONDITIONS)
    own, other = of_reader.conditions["cxmi"].own, of_reader.conditions["cxmi"].other
    assert own == pytest.approx(0.9 * 1 / 3, abs=0.05)
    assert other == pytest.approx(0, abs=0.03)
    assert conclusion([of_reader]) == "Context is used in contrapro-ctx1 pronoun (1 back)."
    found = asked(UNBALANCED, decided(UNBALANCED, guesser).readings)
    assert found.failing == list(CONDITIONS)


@loop_over("missing", list(CONDITIONS))
def test_every_condition_is_needed(of_reader: Evidence, missing: str) -> None:
    condition = replace(of_reader.conditions[missing], p_corrected=0.05)
    found = replace(of_reader, conditions={**of_reader.conditions, missing: condition})
    assert found.failing == [missing]
    assert found.used is False
    # And in the right direction.
    condition = replace(condition, p_corrected=0.001, own=1.0, other=2.0)
    assert replace(found, conditions={**found.conditions, missing: condition}).failing == [missing]


def test_with_few_documents_nothing_can_be_told(of_reader: Evidence) -> None:
    """Sixty examples of five documents, all right; 2 / 2 ** 5 of the patterns are as good."""
    suite = natural_suite({"sie": 30, "es": 30}, per_document=12)
    found = asked(suite, decided(suite, reader).readings)
    assert (found.documents, found.too_few, found.used) == (5, True, None)
    assert "too few documents (5) for any significant difference" in conclusion([found])
    assert "5 (too few)" in render_evidence([found])
    # Eight are enough for one group, and not for ten.
    suite = natural_suite({"sie": 48, "es": 48}, per_document=12)
    found = asked(suite, decided(suite, reader).readings)
    assert (found.documents, found.too_few) == (8, False)
    assert replace(found, groups=10).used is None


def test_groups_are_corrected_for_each_other_and_told(of_reader: Evidence, of_dashes: Evidence) -> None:
    found = corrected([replace(of_reader)] * 3)
    for each in found:
        assert each.groups == 3
        for name, condition in each.conditions.items():
            assert condition.p_corrected == min(1.0, 3 * of_reader.conditions[name].p)
    shown = f"{render_evidence([of_reader, of_dashes])}\n{legend([of_reader])}"
    assert max(map(len, shown.splitlines())) <= 100
    assert [line.count("*") for line in shown.splitlines()[1:3]] == [5, 2]
    assert "no clue is within the context window of the system" in conclusion([])


def test_examples_of_a_document_count_as_one() -> None:
    """A clue that is found in 12 of 24 documents, whatever the number of examples of each."""
    suite = natural_suite({"sie": 120, "es": 120}, per_document=10)
    lucky = {e.id: documents_of(suite.examples)[n] % 2 == 0 for n, e in enumerate(suite.examples)}
    readings = readings_of(suite.examples, guesser)
    true = replace(readings.by_context["true"], right=lucky)
    found = asked(suite, Readings({**readings.by_context, "true": true}, readings.tokens))
    # A half right where a third is chance: 12 of 24 tosses by documents, 120 of 240 by examples.
    assert found.conditions["chance"].own == 50.0
    assert 0.1 < found.conditions["chance"].p < 0.3
    single = natural_suite({"sie": 120, "es": 120})
    found = asked(single, Readings({**readings.by_context, "true": true}, readings.tokens))
    assert found.conditions["chance"].p < 0.001


def test_guessing_is_as_often_right_as_the_law_says() -> None:
    """Twelve documents of one example with two candidates, ten right: 2 * (1 + 12 + 66) / 2 ** 12."""
    examples = tuple(
        ContrastiveExample(str(n), "p", 1, (f"a {n}", f"it {n}"), (("x", "er"), ("x", "sie")), n % 2)
        for n in range(12)
    )
    suite = ContrastiveSuite("s", "en", "de", examples)
    readings = readings_of(examples, guesser)
    right = {e.id: n >= 2 for n, e in enumerate(examples)}
    true = replace(readings.by_context["true"], right=right)
    found = asked(suite, Readings({**readings.by_context, "true": true}, readings.tokens))
    assert found.conditions["chance"].p == pytest.approx(2 * 79 / 4096, abs=0.004)
    # One wrong of each form: balanced is the same here.
    assert found.conditions["balanced"].p == found.conditions["chance"].p
    assert found.conditions["balanced"].own == pytest.approx(100 * 10 / 12)


def test_candidates_that_are_held_impossible_tell_nothing() -> None:
    readings = decided(UNBALANCED, reader).readings
    never = {id: -float("inf") for id in readings.by_context["true"].nats}
    impossible = {kind: replace(each, nats=never) for kind, each in readings.by_context.items()}
    found = asked(UNBALANCED, Readings(impossible, readings.tokens))
    assert found.failing == ["cxmi"]
    assert (found.conditions["cxmi"].own, found.conditions["cxmi"].p) == (0.0, 1.0)


def test_forms_and_balanced_weights_by_hand() -> None:
    candidates = ("A", "Er ist neu , sie nicht"), ("A", "Sie ist neu , sie nicht")
    example = ContrastiveExample("x", "p", 1, ("a", "it"), candidates, 1)
    assert forms_of(example) == [("er",), ("sie",)]
    assert choice_of(example) == (frozenset({("er",), ("sie",)}), ("sie",))
    same = replace(example, candidates=(("A", "Er"), ("A", "er")), correct=0)
    assert forms_of(same) == [(), ()]
    # Three forms to choose from, of which two are right, in 3 and 1 examples; and another choice of 4.
    one = frozenset({("er",), ("sie",), ("es",)})
    other = frozenset({("du",), ("ihr",)})
    choices = [*[(one, ("sie",))] * 3, (one, ("er",)), *[(other, ("du",))] * 4]
    weights = balanced_weights(choices)
    # Half of the examples: the mean of two recalls; the other half: one recall.
    assert weights == pytest.approx([1 / 2 / 2 / 3] * 3 + [1 / 2 / 2] + [1 / 2 / 4] * 4)
    assert sum(weights) == pytest.approx(1)


def example(name: str, *source: str, document: str = "") -> ContrastiveExample:
    candidates = ("A",) * len(source), ("B",) * len(source)
    return ContrastiveExample(name, "p", 1, source, candidates, 0, {}, document)


def test_which_examples_are_of_one_document() -> None:
    examples = [
        example("0", "a", "b"),
        example("1", "b", "c"),  # shares a sentence with the one before it
        example("2", "d", "e"),
        example("3", "a", "b"),  # the same source as the first
        example("4", " ", "f"),
        example("5", " ", "g"),  # an empty sentence is not shared
        example("6", "h", document="x"),
        example("7", "h", document="y"),  # the suite knows better
        example("8", "i", document="x"),
        example("9", "i", "j"),
    ]
    assert documents_of(examples) == [0, 0, 1, 0, 2, 3, 4, 5, 4, 6]
