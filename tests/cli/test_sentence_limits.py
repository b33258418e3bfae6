"""Sentences over the limit are refused before any work is done, on either side, to translate or to score."""

import json
from pathlib import Path

import pytest

from cotext import Translator, load
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.evaluation.studies.contrastive.contrastive import run_suite
from cotext.translation import scorer
from cotext.translation.translator import DocumentTranslator
from tests.command_line import Outcome, World, cotext, must_refuse, piped, succeed
from tests.refusals import must_raise

SHORT, LONG = "the cat sees a dog", "cat " * 2000


@pytest.fixture(scope="module")
def translator(world: World) -> Translator:
    return load(world.run)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is scored is a failure."""
    for name in ("_score", "score_tokens"):
        monkeypatch.setattr(DocumentTranslator, name, lambda *_: pytest.fail("work is done"))


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    expected = (*words, " tokens are allowed", "decode.max_source_tokens")
    assert [word for word in expected if word not in outcome.err] == []


@pytest.mark.parametrize(
    ("sides", "place"),
    [((LONG, SHORT), "document 2, sentence 2"), ((SHORT, LONG), "document 2, target sentence 2")],
)
def test_a_long_sentence_in_a_file(world: World, tmp_path: Path, sides: tuple[str, str], place: str) -> None:
    source, target = sides
    documents = [ParallelDocument("1", (SHORT,), (SHORT,))]
    documents.append(ParallelDocument("2", (SHORT, source), (SHORT, target)))
    names = tmp_path / "a.en", tmp_path / "a.de"
    write_parallel(*names, documents, "text")
    arguments = (world.run, "--source", names[0], "--target", names[1])
    refused(cotext("score", *arguments), f"{names[0]}: {place}")
    refused(cotext("cxmi", *arguments), place)
    document = (*names[:1], "--target", names[1], "--document", "2")
    refused(cotext("attention", world.run, *document, "--out", "x"), place)
    assert "\n2\t2\t" in succeed("score", *arguments, "--set", "max_source_tokens=9000").out
    # Read once, a pipe shows it when its place has come.
    with piped(names[0].read_bytes()) as first, piped(names[1].read_bytes()) as second:
        outcome = cotext("score", world.run, "--source", first, "--target", second, "--format", "text")
    assert (outcome.code, outcome.out.count("\n")) == (2, 2)
    assert place in outcome.err


def test_pipes_are_scored_as_files_are(world: World) -> None:
    sides = world.folder / "test.en", world.folder / "test.de"
    expected = succeed("score", world.run, "--source", sides[0], "--target", sides[1])
    with piped(sides[0].read_bytes()) as first, piped(sides[1].read_bytes()) as second:
        found = succeed("score", world.run, "--source", first, "--target", second, "--format", "text")
    assert found == expected


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("source", "candidates", "place"),
    [
        (LONG, (SHORT, "a cat"), "document e, sentence 2"),
        (SHORT, (LONG, "a cat"), "document e, target sentence 2"),
        (SHORT, ("a cat", LONG), "document e, target sentence 2"),
    ],
)
def test_a_suite_with_a_long_sentence(
    world: World, tmp_path: Path, source: str, candidates: tuple[str, str], place: str
) -> None:
    fine = ContrastiveExample("d", "pronoun", 1, (SHORT, SHORT), (("a", "b"), ("a", "c")), 0)
    targets = tuple((SHORT, text) for text in candidates)
    examples = (fine, ContrastiveExample("e", "pronoun", 1, (SHORT, source), targets, 0))
    write_suite(tmp_path / "s.json", ContrastiveSuite("mine", "en", "de", examples))
    refused(cotext("contrastive", world.run, tmp_path / "s.json"), place)


def test_the_limit_of_a_suite_can_be_raised(world: World, tmp_path: Path) -> None:
    example = ContrastiveExample("e", "pronoun", 0, (LONG,), (("a cat",), ("a dog",)), 0)
    write_suite(tmp_path / "s.json", ContrastiveSuite("mine", "en", "de", (example,)))
    asked = ("contrastive", world.run, tmp_path / "s.json", "--out", tmp_path / "o")
    succeed(*asked, "--set", "max_source_tokens=9000")
    assert list(json.loads((tmp_path / "o").read_text())) == ["mine"]


def test_scoring_takes_no_settings_of_search(world: World) -> None:
    for setting, value, command, *files in (
        ("beam", "1", "score", "--source", "x"),
        ("schedule", "simultaneous", "contrastive", world.folder / "suite.json"),
    ):
        message = f"--set {setting}: scoring supports only max_source_tokens"
        must_refuse(message, command, world.run, *files, "--set", f"{setting}={value}")


def test_from_python(translator: Translator) -> None:
    must_raise(r"target sentence 1: \d+ tokens, at most 1027", translator.score, [SHORT], [LONG])
    assert translator.score([SHORT], ["cat " * 500])
    must_raise(r"sentence 2: \d+ tokens, at most 1024", translator.score, [SHORT, LONG], [SHORT, SHORT])
    example = ContrastiveExample("e", "x", 0, (SHORT,), ((LONG,), (SHORT,)), 0)
    suite = ContrastiveSuite("mine", "en", "de", (example,))
    must_raise("document e, target sentence 1", run_suite, translator.documents, suite)


def test_far_too_long_text_is_not_tokenised(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subwords of a text take far more memory than the text."""
    monkeypatch.setattr(scorer, "CHARACTERS_PER_TOKEN", 2)
    documents = translator.documents
    assert documents.check([Document("d", (f"a{' ' * 5000}cat",))]) == 1  # white space is folded
    monkeypatch.setattr(type(documents.tokenizer), "encode_batch", lambda *_, **__: pytest.fail("tokenised"))
    message = "document d, sentence 2: 3000 characters, at most 1024 tokens"
    must_raise(message, documents.check, [Document("d", ("a cat", "x" * 3000))])
