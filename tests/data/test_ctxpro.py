"""Suites of ctxPro as files: examples, contexts, names."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotext.data.ctxpro import GenerativeExample, is_ctxpro_file, read_ctxpro
from cotext.data.languages import Languages
from cotext.data.suite_files import read_suite
from cotext.runtime.errors import CotextError
from tests.loops import loop_over

EXAMPLES: list[dict[str, Any]] = [
    {
        "src segment": "It was bright.",
        "ref segment": "Sie war hell.",
        "expected": "sie",
        "rule": "NOM.FEM.SING",
        "ante distance": 1,
        "document id": "film/1",
        "segment id": 7,
    },
    {"src segment": "You are late.", "expected": "du", "rule": "NOM.INFORM.SING", "document id": "film/2"},
]
CONTEXTS = "A lamp stood there.<eos> It was bright.\nYou are late.\n"


def write(folder: Path, name: str = "gender.opensubtitles.en-de.test", contexts: str = CONTEXTS) -> Path:
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(EXAMPLES, ensure_ascii=False))
    (folder / name).write_text(contexts)
    return path


def test_examples_stand_behind_their_contexts(tmp_path: Path) -> None:
    suite = read_ctxpro(write(tmp_path))
    assert suite.name == "ctxpro/en-de/gender/test"
    assert suite.languages == Languages("en", "de")
    assert suite.has_context
    assert suite.examples == (
        GenerativeExample(("A lamp stood there.", "It was bright."), "sie", "NOM.FEM.SING", 1, "film/1"),
        GenerativeExample(("You are late.",), "du", "NOM.INFORM.SING", None, "film/2"),
    )
    alone = read_ctxpro(tmp_path / "gender.opensubtitles.en-de.test.json", with_context=False)
    assert [example.source for example in alone.examples] == [("It was bright.",), ("You are late.",)]


def test_contexts_are_found_where_they_are_published(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    path = write(tmp_path / "evalsets", "own-set")
    inside = tmp_path / "evalsets" / "own-set"
    inside.rename(tmp_path / "inputs" / "own-set")
    assert read_ctxpro(path).examples[0].source[0] == "A lamp stood there."
    assert read_ctxpro(path).name == "ctxpro/own-set"
    assert read_ctxpro(path).languages == Languages()
    moved = tmp_path / "elsewhere"
    (tmp_path / "inputs" / "own-set").rename(moved)
    with pytest.raises(CotextError, match=r"no contexts, expected in .*own-set; name their file"):
        read_ctxpro(path)
    assert read_ctxpro(path, moved).examples[0].source[0] == "A lamp stood there."
    (tmp_path / "empty").mkdir()
    with pytest.raises(CotextError, match=r"no contexts, expected in .*empty/own-set;"):
        read_ctxpro(path, tmp_path / "empty")


@pytest.mark.parametrize(
    ("contexts", "words"),
    [
        ("A lamp stood there.<eos> It was bright.\n", "1 lines, but .* has 2 examples"),
        ("You are late.\nIt was bright.\n", "1: ends in 'You are late.', but this example"),
        ("A lamp stood there.<eos> It was bright.<eos> \nYou are late.\n", "1: ends in ''"),
    ],
)
def test_contexts_of_another_suite(tmp_path: Path, contexts: str, words: str) -> None:
    with pytest.raises(CotextError, match=words):
        read_ctxpro(write(tmp_path, contexts=contexts))


@loop_over(
    ("change", "words"),
    [
        ({"expected": ""}, "example 1: 'expected': String should have at least 1"),
        ({"expected": None}, "example 1: 'expected'"),
        ({"rule": 3}, "example 1: 'rule'"),
        ({"src segment": "a\nb"}, "example 1: 'src segment': contains a line break"),
        ({"ante distance": "far"}, "example 1: 'ante distance': Input should be a valid integer"),
        ({"document id": 4}, "example 1: 'document id': Input should be a valid string"),
    ],
)
def test_examples_that_are_none(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([EXAMPLES[0], {**EXAMPLES[1], **change}]))
    with pytest.raises(CotextError, match=words):
        read_ctxpro(path, with_context=False)


@loop_over("text", ["[]", "{}", "[1]", '[{"src": "a"}]', "no JSON"])
def test_what_is_no_suite(tmp_path: Path, text: str) -> None:
    path = tmp_path / "set.json"
    path.write_text(text)
    assert not is_ctxpro_file(path)
    with pytest.raises(CotextError, match=r"not a suite of ctxPro|not valid JSON"):
        read_ctxpro(path, with_context=False)


def test_it_is_recognised_and_no_contrastive_suite(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert is_ctxpro_file(path)
    with pytest.raises(CotextError, match=r"--generate`, files of translations by `evaluate-ctxpro"):
        read_suite(path)
