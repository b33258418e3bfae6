"""Monolingual documents translated into training data: forward and back, going on after interruption."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from command_line import World, cotext, listing, succeed
from killing import killed_when
from tiny_runs import toy_documents

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.data.languages import Languages
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.tokenizer import load_tokenizer
from cotext.runtime.errors import CotextError
from cotext.training.distillation_texts import MonolingualTexts, choose_side
from cotext.training.prepared_data import open_data

DOCUMENTS = 20


@pytest.fixture
def mono(tmp_path: Path) -> Path:
    path = tmp_path / "mono.txt"
    write_documents(path, [Document(d.id, d.source) for d in toy_documents(DOCUMENTS, 9)], "text")
    return path


def command(world: World, mono: Path, out: Path, *more: str | Path) -> list[str | Path]:
    data = world.folder / "data"
    return ["distill", world.run, "--data", data, "--monolingual", mono, "--out", out, *more]


def plain(documents: Iterable[TokenDocument]) -> list[object]:
    return [(d.id, [s.tolist() for s in d.source], [t.tolist() for t in d.target]) for d in documents]


def encoded(data: Path, documents: Iterable[Document]) -> list[list[list[int]]]:
    tokenizer = load_tokenizer(data / "tokenizer")
    return [tokenizer.encode_batch(d.sentences) for d in documents]


@pytest.mark.parametrize("side", ["source", "target"])
def test_documents_are_added_with_what_translate_writes_of_them(
    world: World, mono: Path, tmp_path: Path, side: str
) -> None:
    data, out = world.folder / "data", tmp_path / "added"
    # The data of a student of the other direction, whose teacher reads its target side.
    if side == "target":
        data = tmp_path / "de-en"
        files = {
            "--source": "train.de",
            "--target": "train.en",
            "--dev-source": "dev.de",
            "--dev-target": "dev.en",
        }
        arguments = [part for option, name in files.items() for part in (option, world.folder / name)]
        succeed("prepare", *arguments, "--vocabulary", "48", "--out", data)
    shown = succeed("distill", world.run, "--data", data, "--monolingual", mono, "--out", out)
    assert f"in {24 + DOCUMENTS} documents" in shown.out
    succeed("translate", world.run, mono, "--out", tmp_path / "by-translate.txt")
    before, after = TokenStore(data / "train.arrow"), TokenStore(out / "train.arrow")
    assert plain(after)[:24] == plain(before)
    sides = encoded(data, read_documents(mono)), encoded(data, read_documents(tmp_path / "by-translate.txt"))
    source, target = sides if side == "source" else sides[::-1]
    added = [(f"mono/{i + 1}", s, t) for i, (s, t) in enumerate(zip(source, target, strict=True))]
    assert plain(after)[24:] == added
    report = json.loads((out / "report.json").read_text())
    assert report["command"]["side"] == side
    assert str(mono) in report["inputs"]
    assert report["distillation"]["documents"] == report["splits"]["train"]["documents"] == 24 + DOCUMENTS
    for name in ("dev.arrow", "dev.jsonl", "tokenizer/tokenizer.json"):
        assert (out / name).read_bytes() == (data / name).read_bytes()


def test_killed_it_goes_on_to_the_same_folder(world: World, mono: Path, tmp_path: Path) -> None:
    succeed(*command(world, mono, tmp_path / "whole"))
    killed = tmp_path / "killed"
    part = tmp_path / "killed.shards" / "1-of-1.jsonl"
    killed_when(
        lambda: part.exists() and part.read_bytes().count(b"\n") > 2,
        *command(world, mono, killed, "--set", "max_tokens=60"),
    )
    assert "of them before" in succeed(*command(world, mono, killed)).out
    assert listing(killed) == listing(tmp_path / "whole")
    assert not part.parent.exists()


def test_shards_joined_are_the_whole(world: World, mono: Path, tmp_path: Path) -> None:
    succeed(*command(world, mono, tmp_path / "whole"))
    for shard in ("2/2", "1/2"):
        succeed(*command(world, mono, tmp_path / "parts", "--shard", shard))
    succeed("join", tmp_path / "parts")
    assert listing(tmp_path / "parts") == listing(tmp_path / "whole")


def test_other_documents_are_another_job(world: World, mono: Path, tmp_path: Path) -> None:
    succeed(*command(world, mono, tmp_path / "out", "--shard", "1/2"))
    other = tmp_path / "other.txt"
    other.write_text("the cat\n")
    refused = cotext(*command(world, other, tmp_path / "out", "--shard", "2/2"))
    assert (refused.code, "monolingual" in refused.err) == (2, True)


def test_a_document_that_the_teacher_does_not_take_is_left_out(
    world: World, mono: Path, tmp_path: Path
) -> None:
    with mono.open("a") as file:
        file.write(f"\nthe dog\n{'the cat ' * 100}\n\nthe bird\n")
    shown = succeed(*command(world, mono, tmp_path / "out", "--set", "max_source_tokens=50")).out
    assert "1 document with a sentence too long for the teacher " in shown
    assert f"mono/{DOCUMENTS + 1}" in shown
    ids = [d.id for d in TokenStore(tmp_path / "out" / "train.arrow")]
    assert ids[-2:] == [f"mono/{DOCUMENTS}", f"mono/{DOCUMENTS + 2}"]


def test_prose_and_a_name_of_another_language_are_warned_of(world: World, tmp_path: Path) -> None:
    path = tmp_path / "mono.de"
    path.write_text("the cat\nThe dog sees. The bird sings.\n")
    told = " ".join(succeed(*command(world, path, tmp_path / "out", "--side", "source")).err.split())
    assert "by its name in 'de'" in told
    assert (
        f"1 of 2 lines seems to hold several sentences (by punctuation alone), the first is {path}:2;" in told
    )


def test_the_result_can_be_trained_on_and_distilled(world: World, mono: Path, tmp_path: Path) -> None:
    succeed(*command(world, mono, tmp_path / "once"))
    data = open_data(tmp_path / "once")
    assert len(data.train) == 24 + DOCUMENTS
    assert data.usual_source_tokens > 0


EN_DE, DE_EN = Languages("en", "de"), Languages("de", "en")


def test_the_side_follows_from_the_languages() -> None:
    assert choose_side("", EN_DE, EN_DE, "data") == "source"
    assert choose_side("", DE_EN, EN_DE, "data") == "target"
    for side in ("source", "target"):
        assert choose_side(side, Languages(), EN_DE, "data") == side


@pytest.mark.parametrize(
    ("side", "teacher", "data", "message"),
    [
        ("", Languages(), EN_DE, "--side source or"),
        ("", EN_DE, Languages(), "--side source or"),
        ("", Languages("fr", "de"), EN_DE, "en-de"),
        ("source", DE_EN, EN_DE, "en-de"),
        ("target", EN_DE, EN_DE, "en-de"),
        ("left", EN_DE, EN_DE, "choose source or target"),
    ],
)
def test_sides_that_cannot_be(side: str, teacher: Languages, data: Languages, message: str) -> None:
    with pytest.raises(CotextError, match=message):
        choose_side(side, teacher, data, "data")


def test_what_is_refused_leaves_nothing(world: World, mono: Path, tmp_path: Path) -> None:
    gone = tmp_path / "NO.txt"
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"the cat\ncaf\xe9\n")
    for path, word in ((gone, "no such file"), (bad, "bad.txt:2")):
        refused = cotext(*command(world, path, tmp_path / "out"))
        assert (refused.code, word in refused.err) == (2, True)
    alone = cotext(
        "distill", world.run, "--data", world.folder / "data", "--out", tmp_path / "o", "--side", "source"
    )
    assert (alone.code, "--monolingual" in alone.err) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"mono.txt", "bad.txt"}


def test_memory_holds_a_number_a_document(world: World, mono: Path) -> None:
    texts = MonolingualTexts(open_data(world.folder / "data"), mono, None, "source")
    assert texts._sentences.dtype == np.int32
    assert [texts.sentences(i) for i in range(len(texts))] == [len(d) for d in read_documents(mono)]
    assert [place for place, _ in texts.documents([1, 4, 19])] == [1, 4, 19]
