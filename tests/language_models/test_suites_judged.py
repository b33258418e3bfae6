"""`contrastive` with language models: what they write is judged."""

import json
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from tests.command_line import cotext, must_refuse, succeed
from tests.language_models.described import described
from tests.language_models.fake import Fake

WORDS = {
    "The cat eats.": "Die Katze frisst.",
    "The dog eats.": "Der Hund frisst.",
    "It sleeps.": "Sie schläft.",
}


def example(number: int, animal: str, written: str, right: str) -> ContrastiveExample:
    wrong = "Er" if right == "Sie" else "Sie"
    candidates = tuple((f"{written} {right} ja.", f"{each} schläft.") for each in (right, wrong))
    source = (f"The {animal} eats.", "It sleeps.")
    return ContrastiveExample(f"e{number}", "pronoun", 1, source, candidates, 0, {}, f"d{number}")


SUITE = ContrastiveSuite(
    "pronouns",
    "en",
    "de",
    (
        example(0, "cat", "Die Katze frisst", "Sie"),
        example(1, "dog", "Der Hund frisst", "Er"),
        example(2, "dog", "Der Hund trinkt", "Er"),
    ),
)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.json"
    write_suite(path, SUITE)
    return path


def test_a_suite_is_judged_by_what_is_written(suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with Fake(WORDS) as fake:
        path = described(tmp_path, fake.url, retries=0)
        shown = succeed("contrastive", path, suite, "--out", out).out
        assert "evaluated by the translations of the model, without scores of candidates" in shown
        assert "own translation" in shown
        asked = len(fake.requests)
        figures = json.loads(succeed("contrastive", path, suite, "--json").out)
        assert len(fake.requests) == asked  # all answers were there
    assert figures == json.loads(out.read_text())
    found = figures["pronouns"]
    assert list(found) == ["generative"]
    # "Sie" for cat and dog alike.
    overall = found["generative"]["overall"]
    assert (overall["right"], overall["wrong"], overall["total"]) == (1, 2, 3)
    assert "reading:generative" in found["generative"]["signature"]
    assert "untranslated:0" in found["generative"]["signature"]
    # These are no decisions between candidates, and are not compared with any.
    (tmp_path / "b.json").write_text(out.read_text())
    must_refuse("evaluated by generation", "compare-decisions", out, tmp_path / "b.json")


def test_options_of_runs_are_refused_and_keys_can_be_set(suite: Path, tmp_path: Path) -> None:
    with Fake(WORDS) as fake:
        path = described(tmp_path, fake.url, retries=0)
        for option in (
            *(("--device", "cpu"), ("--checkpoint", "3"), ("--shard", "1/2")),
            *(("--controls",), ("--context", "none"), ("--tie", "first"), ("--score", "mean")),
        ):
            refused = cotext("contrastive", path, suite, *option, "--out", tmp_path / "o.json")
            assert refused.code == 2
            assert f"do not support {option[0]};" in refused.err
        assert not fake.requests
        assert "mode:sentence" in succeed("contrastive", path, suite, "--set", "mode=sentence").out
    must_refuse("no such run folder", "cxmi", path, "--source", suite)
