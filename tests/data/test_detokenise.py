"""Tokenised corpora and suites as people write them."""

import json
from pathlib import Path

import pytest
from command_line import cotext, succeed

from cotext.data.detokenise import Detokeniser, Detokenisers
from cotext.data.documents import ParallelDocument
from cotext.data.languages import Languages
from cotext.data.suite_files import read_suite

GROUP = {
    "src": "I 've never seen it . _eos You weren 't there , were you ?",
    "dst": [f"Я этого не видела . _eos {you} там не было , да ?" for you in ("Вас", "Тебя")],
    "true_ind": 1,
    "ctx_dist": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "tokenised", "text"),
    [
        ("en", "I 've never seen it , he said .", "I've never seen it, he said."),
        (
            "en",
            "It weren 't &quot; new &quot; &amp; old @-@ fashioned .",
            'It weren\'t "new" & old-fashioned.',
        ),
        ("fr", "l' eau n' est pas là .", "l'eau n'est pas là."),
        ("ru", "К моему удивлению , она жива !", "К моему удивлению, она жива!"),
        ("", "Ja , gut .", "Ja, gut."),
        ("de-CH", "Ja , gut .", "Ja, gut."),
        ("en", "", ""),
    ],
)
def test_words_are_joined_by_the_rules_of_a_language(language: str, tokenised: str, text: str) -> None:
    joined = Detokeniser.of(language)
    assert joined.sentence(tokenised) == text
    assert joined.sentence(text) == text


def test_either_side_has_its_own_language() -> None:
    document = ParallelDocument("d", ("I 've seen it .",), ("l' eau",))
    [found] = Detokenisers.of(Languages("en", "fr")).documents([document])
    assert found == ParallelDocument("d", ("I've seen it.",), ("l'eau",))


def test_a_suite_has_another_name_and_the_same_choices(tmp_path: Path) -> None:
    given, out = tmp_path / "deixis_test.json", tmp_path / "out.json"
    given.write_text(json.dumps([GROUP]))
    succeed("convert", given, "--to", "contrastive", "--detokenise", "--out", out)
    suite, before = read_suite(out), read_suite(given)
    assert suite.name == f"{before.name}-detokenised"
    [example], [tokenised] = suite.examples, before.examples
    assert example.source == ("I've never seen it.", "You weren't there, were you?")
    assert example.candidates[1] == ("Я этого не видела.", "Тебя там не было, да?")
    assert (example.correct, example.distance, example.phenomenon, example.id) == (
        tokenised.correct, tokenised.distance, tokenised.phenomenon, tokenised.id,
    )  # fmt: skip


def test_corpora_of_two_files_and_of_one(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("I 've seen it .\n\nIt weren 't old .\nGood , good .\n")
    (tmp_path / "a.fr").write_text("l' eau .\n\nBon .\nOui , oui .\n")
    sides = ("convert", tmp_path / "a.en", tmp_path / "a.fr", "--to", "text", "--detokenise")
    succeed(*sides, "--out", tmp_path / "b.en", "--out-target", tmp_path / "b.fr")
    assert (tmp_path / "b.en").read_text() == "I've seen it.\n\nIt weren't old.\nGood, good.\n"
    assert (tmp_path / "b.fr").read_text() == "l'eau.\n\nBon.\nOui, oui.\n"
    succeed("convert", tmp_path / "a.en", "--to", "jsonl", "--detokenise", "--out", tmp_path / "b.jsonl")
    assert [json.loads(line)["sentences"] for line in (tmp_path / "b.jsonl").read_text().splitlines()] == [
        ["I've seen it."], ["It weren't old.", "Good, good."],
    ]  # fmt: skip


def test_a_submission_is_not_detokenised(tmp_path: Path) -> None:
    refused = cotext(
        "convert", tmp_path / "a", "--to", "wmt", "--like", tmp_path / "b", "--detokenise", "--out", "c"
    )
    assert refused.code == 2
    assert "--detokenise is for corpora and contrastive suites" in refused.err
