"""Tags of MuDA: counts by hand, MuDA's own definition beside, files that are none."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import cotext, succeed

from cotext.metrics.muda import evaluate_tags, read_tags
from cotext.runtime.errors import CotextError

MUDA_VARIABLE = "COTEXT_MUDA"
Tagged = list[list[list[dict[str, Any]]]]


def tagged(*documents: list[str]) -> Tagged:
    """Documents of lines as in "ich Sie/formality+pronouns ."."""

    def token(text: str) -> dict[str, Any]:
        word, _, tags = text.partition("/")
        return {"token": word, "tags": tags.split("+") if tags else []}

    return [[[token(text) for text in line.split()] for line in document] for document in documents]


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False))
    return path


REFERENCE = tagged(
    ["Kommen Sie/formality ?", "Sie/formality und sie/pronouns kamen"],
    ["er sah/verb_form ihn/pronouns"],
)
HYPOTHESIS = tagged(
    # The first is tagged as something else; »Sie« is the word as well, and the third has no fellow.
    ["Kommen Sie/pronouns ?", "»Sie«/formality und sie sie/pronouns"],
    ["er sieht/verb_form ihn/pronouns"],
)


def scores(folder: Path, hypothesis: Tagged, reference: Tagged = REFERENCE) -> dict[str, dict[str, float]]:
    found = evaluate_tags(write(folder / "reference", reference), [write(folder / "ours", hypothesis)])
    return {score.title: {"F": score.value, **score.components} for score in found.evaluation.scores["ours"]}


def test_counts_by_hand(tmp_path: Path) -> None:
    found = scores(tmp_path, HYPOTHESIS)
    assert found["formality"] == {
        "F": pytest.approx(100 * 2 / 3),
        "precision": 100.0,
        "recall": 50.0,
        "matches": 1.0,
        "hypothesis_tags": 1.0,
        "reference_tags": 2.0,
    }
    # Of three tagged pronouns one has the tag in its place; the reference has two.
    assert found["pronouns"]["F"] == pytest.approx(100 * 2 / 5)
    assert (found["pronouns"]["precision"], found["pronouns"]["recall"]) == pytest.approx((100 / 3, 50))
    # Another word is no match, whatever its tag.
    assert found["verb_form"]["F"] == found["verb_form"]["matches"] == 0


def test_the_reference_against_itself_and_no_tags_at_all(tmp_path: Path) -> None:
    assert {score["F"] for score in scores(tmp_path, REFERENCE).values()} == {100.0}
    bare = [[[{**token, "tags": []} for token in s] for s in d] for d in REFERENCE]
    assert {(s["F"], s["precision"]) for s in scores(tmp_path, bare).values()} == {(0.0, 0.0)}
    with pytest.raises(CotextError, match="no word has a tag"):
        scores(tmp_path, bare, bare)


def test_evaluate(tmp_path: Path) -> None:
    reference, ours = write(tmp_path / "reference", REFERENCE), write(tmp_path / "ours", HYPOTHESIS)
    same = write(tmp_path / "same", REFERENCE)
    options = ["--muda", reference, "--hypothesis", ours, "--hypothesis", same]
    shown = succeed("evaluate", *options, "--paired", "--samples", "1000").out.splitlines()
    assert shown[1].split() == ["ours", "formality", "100.00", "50.00", "66.67", "1", "2", "1"]
    assert any(line.split()[:4] == ["formality", "same", "-", "ours"] for line in shown)
    report = json.loads(succeed("evaluate", *options, "--json").out)
    assert list(report["systems"]["same"]["scores"]) == ["muda-formality", "muda-pronouns", "muda-verb_form"]
    outcome = cotext("evaluate", *options, "--source", ours)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--muda goes with --hypothesis" in outcome.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "not a tag file of MuDA"),
        ({"a": 1}, "not a tag file of MuDA"),
        (["x"], "document 0: must be a list of sentences, found a string"),
        ([[{"token": "a", "tags": []}]], "document 0, sentence 0: must be a list of tokens"),
        ([[["a"]]], "document 0, sentence 0, token 0: must be an object"),
        ([[[], [{"token": "a"}]]], "sentence 1, token 0: 'tags' must be a list"),
        ([[[{"token": "a", "tags": [1]}]]], "'tags' must be a list of strings"),
        ([[[{"token": "a", "tags": ["x", "x"]}]]], "a tag stands twice"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(CotextError, match=words):
        read_tags(write(tmp_path / "tags", content))


def test_files_of_other_texts(tmp_path: Path) -> None:
    reference = write(tmp_path / "reference", REFERENCE)
    with pytest.raises(CotextError, match=r"short: 1 documents, but .*reference has 2"):
        evaluate_tags(reference, [write(tmp_path / "short", REFERENCE[:1])])
    with pytest.raises(CotextError, match=r"document 0 has 1 sentences, but 2 in"):
        evaluate_tags(reference, [write(tmp_path / "cut", [REFERENCE[0][:1], REFERENCE[1]])])


def at_random(seed: int) -> Tagged:
    generator = random.Random(seed)
    lengths = random.Random(0)

    def token() -> dict[str, Any]:
        word = generator.choice(["sie", "Sie", "„sie“", "er,", "ER", "...", "!", "es"])
        tags = generator.sample(["formality", "pronouns", "verb_form"], generator.choice([0, 0, 1, 2]))
        return {"token": word, "tags": tags}

    return [
        [[token() for _ in range(generator.randint(0, 9))] for _ in range(lengths.randint(1, 6))]
        for _ in range(20)
    ]


@pytest.mark.outside
def test_mudas_own_metrics_are_the_same(tmp_path: Path) -> None:
    """`compute_metrics` of a checkout of MuDA, without the models that its taggers import."""
    if MUDA_VARIABLE not in os.environ:
        pytest.skip(f"{MUDA_VARIABLE} names no checkout of MuDA")
    reference, ours = write(tmp_path / "reference", at_random(1)), write(tmp_path / "ours", at_random(2))
    program = (
        "import json, sys, unittest.mock\n"
        "names = ['spacy', 'spacy_stanza', 'allennlp', 'allennlp.predictors']\n"
        "names.append('allennlp.predictors.predictor')\n"
        "sys.modules.update({name: unittest.mock.MagicMock() for name in names})\n"
        "from muda.metrics import compute_metrics\n"
        "from muda.tagger import Tagging\n"
        "read = lambda path: [[[Tagging(**t) for t in s] for s in d] for d in json.load(open(path))]\n"
        "print(json.dumps(compute_metrics(*map(read, sys.argv[1:]))))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, reference, ours],
        cwd=os.environ[MUDA_VARIABLE],
        env={**os.environ, "PYTHONPATH": os.environ[MUDA_VARIABLE]},
        capture_output=True,
        text=True,
        check=True,
    )
    precision, recall, f1 = json.loads(told.stdout)
    found = evaluate_tags(reference, [ours]).evaluation.scores["ours"]
    assert {score.title: score.value for score in found} == pytest.approx({t: 100 * v for t, v in f1.items()})
    for score in found:
        assert score.components["precision"] == pytest.approx(100 * precision[score.title])
        assert score.components["recall"] == pytest.approx(100 * recall[score.title])
        assert score.components["matches"] > 3
