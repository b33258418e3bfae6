"""`contrastive` and `cxmi` with language models: every number is the n-gram model's, worked out anew."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import cotext, succeed
from language_models.fake import Fake
from language_models.ngram import NGram, pieces

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel

# "Sie" and "Er" are as probable after any number; whichever was met before is more so.
MODEL = NGram(["[2] Er schläft.", "[2] Sie schläft."])
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


def described(folder: Path, fake: Fake, **more: Any) -> Path:
    path = folder / "model.yaml"
    settings = {"endpoint": fake.url, "model": "m", "source_language": "en", "target_language": "de"}
    path.write_text(json.dumps({**settings, "retries": 0, **more}))
    return path


@pytest.fixture
def scoring() -> Iterator[Fake]:
    with Fake(WORDS, model=MODEL, scoring=["echo", "prompt_logprobs"]) as fake:
        yield fake


def forced(fake: Fake, begins: str) -> list[str]:
    """The prompts that the server was asked about whose answer begins so."""
    found = [r.payload["messages"] for r in fake.requests if "continue_final_message" in r.payload]
    texts = [(m[0]["content"], m[1]["content"]) for m in found if len(m) == 2]
    return [
        f"<|user|>\n{asked}\n<|assistant|>\n{begun}" for asked, begun in texts if begun.startswith(begins)
    ]


def by_hand(prompt: str, target: str) -> float:
    """The log-probability of the target at the end of a text, from the definition of the model."""
    assert prompt.endswith(target)
    before = pieces(prompt.removesuffix(target))
    total = 0.0
    for token in pieces(target):
        pair = (MODEL.pairs[before[-1], token] + 1) / (MODEL.firsts[before[-1]] + 1000)
        total += math.log((pair + before.count(token) / len(before)) / 2)
        before.append(token)
    return total


def test_candidates_have_the_log_probability_of_their_characters(
    scoring: Fake, suite: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    done = succeed("contrastive", described(tmp_path, scoring), suite, "--controls", "--out", out)
    assert "log-probabilities of prompts are offered (chat)" in done.out
    found = json.loads(out.read_text())["pronouns"]
    assert set(found["decisions"].values()) == {"right"}
    assert "by:log-probabilities-chat" in found["signature"]
    assert "scored:differing" in found["signature"]
    begins = "[1] Die Katze frisst Sie ja.\n[2] Sie schläft."
    [prompt] = forced(scoring, begins)
    assert "[1] The cat eats.\n[2] It sleeps." in prompt
    expected = by_hand(prompt, " Sie schläft.")
    assert found["contexts"]["true"]["nats"]["e0"] == pytest.approx(expected, abs=1e-5)
    assert found["contexts"]["tokens"] == {"e0": 3, "e1": 3, "e2": 3}
    # Alone, it is the first sentence of a request for one.
    alone = [p for p in forced(scoring, "[1] Sie schläft.") if "[1] It sleeps." in p]
    assert len(alone) == 1
    assert "The cat" not in alone[0]
    nats = found["contexts"]["none"]["nats"]["e0"]
    assert nats == pytest.approx(by_hand(alone[0], " Sie schläft."), abs=1e-5)
    # Foreign: another document's sentence with its translation, in the place of the first.
    second = [p for p in forced(scoring, "[1]") if "\n[2] It sleeps." in p and p.endswith("[2] Sie schläft.")]
    foreign = [p for p in second if "cat" not in p]
    values = [round(by_hand(p, " Sie schläft."), 5) for p in foreign]
    assert found["contexts"]["foreign"]["nats"]["e0"] in values


def test_all_three_ways_score_alike_but_for_the_prompt_around(suite: Path, tmp_path: Path) -> None:
    values = {}
    for way, scoring in (("echo", ["echo"]), ("chat", ["prompt_logprobs"])):
        folder = tmp_path / way
        folder.mkdir()
        with Fake(WORDS, model=MODEL, scoring=scoring) as fake:
            path = described(folder, fake, mode="context", context=1)
            succeed("contrastive", path, suite, "--controls", "--out", folder / "out.json")
        found = json.loads((folder / "out.json").read_text())["pronouns"]
        assert f"by:log-probabilities-{way}" in found["signature"]
        assert "mode:context|context:1" in found["signature"]
        values[way] = found["contexts"]["true"]["nats"]["e0"]
    # A plain text has other words around the same question.
    assert values["echo"] != values["chat"]
    assert values["echo"] == pytest.approx(values["chat"], abs=1.0)


def test_without_log_probabilities_the_suite_is_judged_by_what_is_written(
    suite: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    with Fake(WORDS) as fake:
        path = described(tmp_path, fake)
        refused = cotext("contrastive", path, suite, "--controls")
        assert refused.code == 2
        assert "--controls compares them" in refused.err
        shown = succeed("contrastive", path, suite, "--out", out).out
        assert "not offered" in shown
        assert "judged by what the model writes, and not candidates" in shown
        assert "written by itself" in shown
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
    mixed = cotext("compare-decisions", out, tmp_path / "b.json")
    assert mixed.code == 2
    assert "judged by generation" in mixed.err


def test_both_readings_where_both_are_asked_for(scoring: Fake, suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    succeed("contrastive", described(tmp_path, scoring), suite, "--generate", "--out", out)
    found = json.loads(out.read_text())["pronouns"]
    assert found["overall"]["correct"] == 3
    assert found["generative"]["overall"]["right"] == 1


def test_a_tokenizer_that_joins_prompt_and_target_is_refused(suite: Path, tmp_path: Path) -> None:
    def joined(text: str) -> list[str]:
        """One token of the bracket and the word behind it."""
        found = pieces(text)
        for index in range(len(found) - 1, 0, -1):
            if found[index - 1] == "]":
                found[index - 1 : index + 1] = ["".join(found[index - 1 : index + 1])]
        return found

    with Fake(WORDS, model=MODEL, scoring=["prompt_logprobs"], tokens=joined) as fake:
        refused = cotext("contrastive", described(tmp_path, fake), suite)
    assert refused.code == 2
    assert "holds the beginning of the target" in refused.err


def test_options_of_runs_are_refused_and_keys_can_be_set(scoring: Fake, suite: Path, tmp_path: Path) -> None:
    path = described(tmp_path, scoring)
    for option in (("--device", "cpu"), ("--checkpoint", "3"), ("--shard", "1/2")):
        refused = cotext("contrastive", path, suite, *option, "--out", tmp_path / "o.json")
        assert refused.code == 2
        assert option[0] in refused.err
    assert not scoring.requests
    refused = cotext("contrastive", path, suite, "--context", "global")
    assert "requests know of no other" in refused.err
    shown = succeed("contrastive", path, suite, "--set", "mode=sentence", "--controls").out
    assert "shows single sentences" in shown
    assert "mode:sentence" in shown


def corpus(folder: Path, documents: Sequence[ParallelDocument]) -> Path:
    path = folder / "corpus.jsonl"
    write_parallel(path, None, documents, "jsonl")
    return path


DOCUMENTS = [
    ParallelDocument("a", ("The cat eats.", "It sleeps.", ""), ("Die Katze frisst.", "Sie schläft.", "")),
    ParallelDocument("b", ("The dog eats.", "It eats."), ("Der Hund frisst.", "Er frisst.")),
    ParallelDocument("c", ("The dog.",), ("Der Hund.",)),
]


def test_cxmi_by_hand(scoring: Fake, tmp_path: Path) -> None:
    out = tmp_path / "cxmi.json"
    path, data = described(tmp_path, scoring), corpus(tmp_path, DOCUMENTS)
    shown = succeed("cxmi", path, "--source", data, "--out", out).out
    found = json.loads(out.read_text())
    assert list(found["conditions"]) == ["true", "shuffled", "random"]
    entry = next(s for s in found["sentences"] if (s["document"], s["sentence"]) == ("b", 2))
    target = " Er frisst."
    [given] = [p for p in forced(scoring, "[1] Der Hund frisst.\n[2] Er frisst.") if "[1] The dog eats." in p]
    [alone] = forced(scoring, "[1] Er frisst.")
    assert entry["cxmi"]["true"] == pytest.approx(by_hand(given, target) - by_hand(alone, target), abs=1e-5)
    assert sum(entry["tokens"]) == pytest.approx(entry["cxmi"]["true"], abs=1e-4)
    assert len(entry["tokens"]) == 3
    # The repeated verb is what the context adds to.
    assert max(entry["tokens"]) == entry["tokens"][1] > 0.5
    blank = next(s for s in found["sentences"] if (s["document"], s["sentence"]) == ("a", 3))
    assert blank["tokens"] == []
    counted = found["conditions"]["true"]
    assert (counted["sentences_with_context"], counted["tokens"]) == (4, 3 + 4 + 4 + 3)
    assert "by:log-probabilities-chat|seed:1|unit:nats|version:" in found["signature"]
    assert f"{len(scoring.requests)} requests" in shown
    asked = len(scoring.requests)
    assert succeed("cxmi", path, "--source", data, "--json").out
    assert len(scoring.requests) == asked


def test_cxmi_wants_context_and_log_probabilities(scoring: Fake, tmp_path: Path) -> None:
    data = corpus(tmp_path, DOCUMENTS)
    path = described(tmp_path, scoring)
    for more, said in (
        (("--set", "mode=sentence"), "no request shows a sentence beside"),
        (("--translate",), "--translate is of runs"),
        (("--shard", "1/2", "--out", tmp_path / "o.json"), "--shard"),
    ):
        refused = cotext("cxmi", path, "--source", data, *more)
        assert refused.code == 2
        assert said in refused.err
    singles = corpus(tmp_path, DOCUMENTS[2:] * 2)
    assert "one sentence" in cotext("cxmi", path, "--source", singles, "--context", "true").err
    with Fake(WORDS) as fake:
        refused = cotext("cxmi", described(tmp_path, fake), "--source", corpus(tmp_path, DOCUMENTS))
    assert refused.code == 2
    assert "CXMI is a difference of them" in refused.err
