"""Suites of ctxPro with a run: the contexts that are translated, and the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotext.data.ctxpro import GenerativeExample, GenerativeSuite
from cotext.data.languages import Languages
from cotext.evaluation.metrics.ctxpro import FormsFound
from cotext.evaluation.studies.contrastive.generative_suites import FormsInContexts, in_context
from cotext.runtime.errors import CotextError
from tests.command_line import World, cotext, succeed
from tests.loops import loop_over


def suite(*sources: tuple[str, str]) -> GenerativeSuite:
    """Of (document, letters): a sentence a letter."""
    examples = [GenerativeExample(tuple(letters), "x", "R", None, document) for document, letters in sources]
    return GenerativeSuite("ctxpro/set", Languages("en", "de"), tuple(examples), True)


def test_contexts() -> None:
    given = suite(("a", "abcT"), ("a", "defU"), ("b", "ghV"), ("c", "W"))
    assert in_context(given, "true") == [tuple("abcT"), tuple("defU"), tuple("ghV"), ("W",)]
    assert in_context(given, "none") == [("T",), ("U",), ("V",), ("W",)]
    foreign = in_context(given, "foreign")
    # The only other context is shorter than that of the first two; of theirs, what is nearest to the end.
    assert foreign[:2] == [("g", "h", "T"), ("g", "h", "U")]
    assert foreign[2] in [("b", "c", "V"), ("e", "f", "V")]
    assert foreign[3] == ("W",)
    assert in_context(given, "foreign") == foreign
    with pytest.raises(CotextError, match="all examples are from one document"):
        in_context(suite(("a", "abT"), ("a", "cU")), "foreign")


def test_the_true_context_is_tested_against_each_control() -> None:
    examples = suite(*[(str(n), "ab") for n in range(8)]).examples

    def forms(right: tuple[bool, ...]) -> FormsFound:
        return FormsFound("s", examples, tuple(range(8)), right, 0)

    found = FormsInContexts(
        {"true": forms((True,) * 8), "none": forms((False,) * 8), "foreign": forms((True,) * 8)}
    )
    (none, p_none), (foreign, _) = found.tests.values()
    # All eight are won: by McNemar's exact test twice 2^-8.
    assert (none.difference, none.p_exact) == (100, pytest.approx(2**-7))
    assert (foreign.difference, foreign.p_exact) == (0, 1)
    report = found.as_dict()
    assert report["overall"]["correct"] == 8
    assert report["controls"]["none"]["overall"]["correct"] == 0
    assert report["against_none"]["p_corrected"] == p_none == pytest.approx(2 * none.p_mid)
    only = FormsInContexts({"none": forms((True,) * 8)})
    assert only.tests == {}
    assert "controls" not in only.as_dict()


def write(folder: Path) -> Path:
    examples: list[dict[str, Any]] = [
        {"src segment": "the red cat sees a dog", "expected": word, "rule": "R", "document id": str(number)}
        for number, word in enumerate(("und", "die", "eine"))
    ]
    (folder / "set.json").write_text(json.dumps(examples))
    contexts = ("a fish sings<eos> ", "the bird runs<eos> a dog<eos> ", "")
    (folder / "set").write_text("".join(f"{context}the red cat sees a dog\n" for context in contexts))
    return folder / "set.json"


def test_the_command(world: World, tmp_path: Path) -> None:
    path = write(tmp_path)
    command = ["contrastive", world.run, path, "--generate", "--device", "cpu"]
    shown = succeed(*command, "--controls", "--out", tmp_path / "out.json").out
    assert "ctxpro/set\n" in shown
    assert shown.splitlines()[1].split() == [
        "examples",
        "true",
        "context",
        "none",
        "context",
        "foreign",
        "context",
    ]
    figures = json.loads((tmp_path / "out.json").read_text())["ctxpro/set"]
    assert set(figures["decisions"]) == {"0", "1", "2"}
    assert set(figures["controls"]) == {"none", "foreign"}
    assert "|last:whole-segment|model:" in figures["signature"]
    assert "|context:true|" in figures["signature"]
    # What is asked alone is what the control has found.
    alone = json.loads(succeed(*command, "--context", "none", "--json").out)["ctxpro/set"]
    assert alone == figures["controls"]["none"]
    split = json.loads(succeed(*command, "--context", "none", "--splitter", "rules", "--json").out)
    assert "|last:rules-1:any|" in split["ctxpro/set"]["signature"]


@loop_over(
    ("options", "words"),
    [
        ("", "have no candidates to score: use --generate"),
        ("--generate --shard 1/2 --out o", "and --shard"),
        ("--generate --tie first", "omit --tie"),
        ("--generate --context shuffled", "for ctxPro, choose one of true, none, foreign"),
        ("--generate --context none --controls", "is one of the controls"),
        ("--generate --contexts {folder}/absent", "absent: no such file"),
    ],
)
def test_what_is_refused(world: World, tmp_path: Path, options: str, words: str) -> None:
    given = options.replace("{folder}", str(tmp_path)).split()
    outcome = cotext("contrastive", world.run, write(tmp_path), *given)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


def test_one_kind_of_suite_at_a_time(world: World, tmp_path: Path) -> None:
    path, other = write(tmp_path), world.folder / "suite.json"
    outcome = cotext("contrastive", world.run, path, other, "--generate")
    assert "suite.json: is not a ctxPro suite" in outcome.err
    for option, value in (("--contexts", tmp_path), ("--splitter", "rules")):
        refused = cotext("contrastive", world.run, other, option, value).err
        assert f"{option} requires ctxPro suites" in refused
    both = cotext("contrastive", world.run, path, path, "--generate", "--contexts", tmp_path / "set")
    assert "one file is given for 2 suites" in both.err
