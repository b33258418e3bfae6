"""Texts of which one is tokenised and another is not."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.evaluation.metrics.tokenised import MIN_MARKS, unlike_spacing
from tests.command_line import succeed

PLAIN = "Ja, das ist 3.5 und gut."  # two marks: that of the number is none
TOKENISED = "Ja , das ist 3.5 und gut ."
FRENCH = "Oui, vraiment ! Et toi ? Bien."  # spaces before other marks are French


def documents(*sentences: str) -> Sequence[Document]:
    return [Document("d", sentences)]


def test_systems_unlike_the_references_are_named() -> None:
    right = [documents(*[TOKENISED] * 20)]
    systems = {"ours": documents(*[PLAIN] * 20), "theirs": documents(*[TOKENISED] * 15, *[PLAIN] * 5)}
    found = unlike_spacing(systems, right)
    assert found is not None
    assert (found.references, found.systems) == (1.0, {"ours": 0.0})  # theirs: 0.75
    assert "before 100% of the commas and full stops of the reference, and of ours 0%." in found.render()
    assert unlike_spacing({"theirs": systems["theirs"]}, right) is None


@pytest.mark.parametrize("text", [PLAIN, TOKENISED, FRENCH])
def test_texts_that_are_alike_are_not_told_of(text: str) -> None:
    same = documents(*[text] * 20)
    assert unlike_spacing({"": same}, [same]) is None


@pytest.mark.parametrize(("text", "share"), [(PLAIN, 1.0), (TOKENISED, 0.0)])
def test_one_of_two_references_is_enough(text: str, share: float) -> None:
    right = [documents(*[PLAIN] * 20), documents(*[TOKENISED] * 20)]
    found = unlike_spacing({"ours": documents(*[text] * 20)}, right)
    assert found is not None
    assert (found.references, found.systems) == (share, {"ours": 1 - share})


def test_an_ellipsis_is_no_full_stop() -> None:
    tokenised = documents(*["Ja ... gut , ja ..."] * 20)
    found = unlike_spacing({"": documents(*["Ja... gut, ja..."] * 20)}, [tokenised])
    assert found is not None
    assert (found.references, found.systems) == (1.0, {"": 0.0})


def test_plain_french_is_not_tokenised() -> None:
    assert unlike_spacing({"": documents(*[FRENCH] * 20)}, [documents(*[PLAIN] * 20)]) is None


@pytest.mark.parametrize("right", [MIN_MARKS // 2 - 1, MIN_MARKS // 2])
def test_a_few_marks_tell_nothing(right: int) -> None:
    found = unlike_spacing({"": documents(*[PLAIN] * 20)}, [documents(*[TOKENISED] * right)])
    assert (found is None) == (2 * right < MIN_MARKS)


def test_evaluate_tells_of_it(tmp_path: Path) -> None:
    for name, text in (("right.de", TOKENISED), ("ours.de", PLAIN)):
        (tmp_path / name).write_text(f"{text}\n" * 20)
    scoring = ("evaluate", "--reference", tmp_path / "right.de", "--hypothesis")
    assert "One side seems to be tokenised and the other not" in succeed(*scoring, tmp_path / "ours.de").out
    assert "tokenised and" not in succeed(*scoring, tmp_path / "right.de").out
    told = json.loads(succeed(*scoring, tmp_path / "ours.de", "--json").out)
    assert told["spacing"] == {"references": 1.0, "systems": {"ours.de": 0.0}}
