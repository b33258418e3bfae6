"""Decoding times of runs side by side: what is timed, against what it is told, and what is left out."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotext.config.recipe import load_config
from cotext.data.documents import Document
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.studies.speed import Way, _time_ways
from tests.command_line import World, documents_file, must_refuse, succeed
from tests.tiny import WordTokenizer
from tests.tiny_runs import write_run

SMALL = [
    *("model.dimension=16", "model.feed_forward=32", "model.heads=2"),
    *("model.encoder_layers=2", "model.decoder_layers=2", "train.threads=1"),
    *("decode.max_ratio=1.0", "decode.max_extra=5"),
]


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """CASA, a document system and a sentence system; fresh weights."""
    folder, tokenizer = tmp_path_factory.mktemp("runs"), load_tokenizer(world.folder / "data" / "tokenizer")
    recipes = {"casa": "casa/casa", "doc": "g-transformer/randinit", "sent": "g-transformer/sent"}
    return {
        name: write_run(folder / name, load_config(recipe, None, SMALL), tokenizer)
        for name, recipe in recipes.items()
    }


def test_the_command_times_every_run_beside_its_rivals(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = documents_file(tmp_path / "d.en", 3, 7), tmp_path / "speed.json"
    asked = ("speed", *(runs[name] for name in ("doc", "sent", "casa")), "--document", source)
    done = succeed(*asked, "--rounds", "1", "--out", out, "--device", "cpu")
    found = json.loads(out.read_text())
    assert (found["documents"], found["rounds"], found["clock"]) == (3, 1, "cpu")
    assert list(found["settings"]) == ["one", "many"]
    own = ["doc, greedy", "doc, beam 5", "sent, greedy", "sent, greedy, one by one", "sent, beam 5"]
    for ways in found["settings"].values():
        assert [way["way"] for way in ways] == [*own, "casa, best path"]
        assert [way["left_to_right"] for way in ways][-1] is False
        assert all(way["median"] > 0 and way["tokens_written"] > 0 for way in ways)
        fastest = min((way for way in ways if way["left_to_right"]), key=lambda way: way["median"])
        assert fastest["times_as_fast_as_the_fastest_left_to_right"] == 1
        assert "beam:5" in next(way["signature"] for way in ways if way["way"] == "doc, beam 5")
    assert "clock:processor time|device:cpu|threads:1" in done.out


def test_a_speed_up_without_a_rival_says_so(runs: dict[str, Path], tmp_path: Path) -> None:
    source = documents_file(tmp_path / "d.en", 2, 7)
    asked = ("speed", runs["casa"], runs["casa"], "--document", source, "--setting", "many")
    done = succeed(*asked, "--rounds", "1", "--json")
    found = json.loads(done.out)
    ways = [way["way"] for way in found["settings"]["many"]]
    assert ways == ["casa (1), best path", "casa (2), best path"]
    assert found["settings"]["many"][0]["times_as_fast_as_the_fastest_left_to_right"] is None
    assert [note.split(":")[0] for note in found["notes"]] == [
        "No run is autoregressive",
        "No run is an autoregressive sentence Transformer, which can decode all sentences as one batch",
    ]


def test_ratios_are_those_of_a_round() -> None:
    """A clock that stands still but while somebody works."""
    now = 0.0
    takes = {"slow": iter([9.0, 4.0, 6.0, 20.0]), "parallel": iter([9.0, 1.0, 2.0, 4.0])}
    tokenizer = WordTokenizer(["x", "y", "z"])

    def way(name: str, left_to_right: bool) -> Way:
        def work(documents: Sequence[Document]) -> list[Document]:
            nonlocal now
            now += next(takes[name])
            return list(documents)

        return Way(name, name, left_to_right, work, tokenizer.encode_batch)

    ways = [way("slow", True), way("parallel", False)]
    documents = [Document("a", ("x y", "z")), Document("b", ("x",))]
    calls: list[int] = []
    slow, parallel = _time_ways("many", ways, documents, 3, lambda: now, calls.append)
    assert slow.seconds == (2.0, 3.0, 10.0)  # a document; what warms up does not count
    assert parallel.faster == (4.0, 3.0, 5.0)
    assert parallel.than_rival == (4.0, 3.0, 5.0)
    assert slow.than_rival == (1.0, 1.0, 1.0)
    assert (slow.tokens, parallel.tokens) == (4, 4)
    assert sum(calls) == 8


def test_bad_input(runs: dict[str, Path], tmp_path: Path) -> None:
    source = documents_file(tmp_path / "d.en", 2, 7)

    (tmp_path / "blank.jsonl").write_text('{"id": "b", "sentences": ["", ""]}\n')
    for words, *options in (
        ("--clock 'sun': choose one of cpu, wall", source, "--clock", "sun"),
        ("with its configured beam", source, "--set", "beam=2"),
        ("would overwrite", source, "--out", source),
        ("no words", tmp_path / "blank.jsonl"),
    ):
        must_refuse(words, "speed", runs["doc"], "--document", *options)
