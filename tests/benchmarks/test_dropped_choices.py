"""Pronouns that Chinese leaves out: choices, and suites on which a sentence model is at chance."""

from dataclasses import replace
from pathlib import Path

from benchmarks.study.dropped_choices import (
    PHENOMENA,
    balanced,
    found_in,
    give,
    set_aside,
    suites_of,
    verbs_of,
)
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from cotext.data.documents import ParallelDocument
from tests.loops import loop_over

VERBS = frozenset({"know", "'m", "am", "want", "go", "think", "was"})


@loop_over(
    ("phenomenon", "source", "target", "other"),
    [
        ("person", "知道", "I know.", "You know."),
        ("person", "不强大", "But you're not that strong.", "But I'm not that strong."),
        ("person", "有吗", "Wasn't I late?", "Weren't you late?"),
        ("person", "是他", "Yes. I saw him.", "Yes. You saw him."),
        ("gender", "走了", "he's gone.", "she's gone."),
        ("gender", "告诉我", "Did She tell me?", "Did He tell me?"),
        ("plural", "走了", "They're here, and it works.", "We're here, and it works."),
        ("number", "走了", "so I was gone.", "so we were gone."),
    ],
)
def test_choices(phenomenon: str, source: str, target: str, other: str) -> None:
    found = found_in(PHENOMENA[phenomenon], source, target, VERBS)
    assert found.other == other


@loop_over(
    ("phenomenon", "source", "target"),
    [
        ("person", "我知道", "I know."),  # the source has the pronoun
        ("person", "知道", "I know you."),  # two of these persons
        ("person", "知道", "Take my hand, I know."),
        ("person", "知道", "He saw you."),  # an object
        ("person", "知道", "I never am late."),  # a verb that is not beside the pronoun
        ("person", "知道", "I know who they were."),
        ("person", "知道", "I.D., please."),
        ("gender", "他走了", "He is gone."),
        ("gender", "走了", "He took her hand."),
        ("plural", "我走了", "We go."),
        ("plural", "走了", "We saw them."),
        ("number", "我们走", "We go."),
    ],
)
def test_no_choices(phenomenon: str, source: str, target: str) -> None:
    assert found_in(PHENOMENA[phenomenon], source, target, VERBS) is None


def test_words_behind_subjects_stand_behind_both_forms() -> None:
    text = (
        ["I want it, and you want it."] * 20 + ["you some"] * 100 + ["I some"] * 20 + ["I am, you are."] * 20
    )
    assert verbs_of([*text, *["you to go"] * 500, *["I to"] * 20]) == {"want", "some", "am"}
    assert "to" not in verbs_of(["you to go"] * 500 + ["I to"] * 20)


def test_examples_have_the_lines_before_and_the_nearest_pronoun(tmp_path: Path) -> None:
    source = ("开始", "她来了", "他来了", "很好", "走了")
    target = ("It begins.", "She comes.", "He comes.", "Good.", "He is gone.")
    [example] = suites_of([ParallelDocument("a", source, target)], VERBS, before=3)["gender"].examples
    assert example.id == "a:gender:5"
    assert example.source == source[1:]
    assert example.candidates == (target[1:], (*target[1:4], "She is gone."))
    assert example.distance == 2
    assert example.tags == {"form": "he", "nearest": "he"}
    write_suite(tmp_path / "a.json", ContrastiveSuite("a", "zh", "en", (example,)))
    give(tmp_path, tmp_path / "given")
    [given] = read_suite(tmp_path / "given" / "a.json").examples
    assert given == replace(example, source=(*source[1:-1], "他走了"))
    document = ParallelDocument("a", ("她来了", "走了"), ("She comes.", "He is gone."))
    [example] = suites_of([document], VERBS)["gender"].examples
    assert (example.distance, example.tags["nearest"]) == (None, "she")


def test_forms_are_equally_frequent_in_every_bin_of_the_scores() -> None:
    examples, margins = [], []
    for number in range(9000):
        # The model prefers "I", which is right in three of four cases; some it is sure of.
        form = "you" if number % 4 == 0 else "I"
        for_first = 1.5 if number % 10 else 9.0
        made = (str(number), "person", None, ("走",), (("a",), ("b",)), 0, {"form": form}, str(number % 90))
        examples.append(ContrastiveExample(*made))
        margins.append(for_first if form == "I" else -for_first)
    kept = balanced(examples, margins)
    forms = [example.tags["form"] for example in kept]
    assert 0.45 < forms.count("I") / len(forms) < 0.55
    assert not any(set_aside(example.document) for example in kept)
    assert not any(abs(margins[int(example.id)]) > 4 for example in kept)
    assert len(kept) > 2000
    assert balanced(examples, margins) == kept
