"""`cotext select` on the command line: scored, by figures at hand, of files and of training data."""

import json
from pathlib import Path

import pytest
from command_line import World, cotext, listing, succeed
from tiny_runs import toy_documents

from cotext.data.formats import read_documents, write_documents, write_parallel


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    source, target = folder / "d.en", folder / "d.de"
    write_parallel(source, target, [d for d in toy_documents(40, 9) if len(d.source) > 2][:5], "docids")
    return source, target


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ranked_as_scored_or_by_figures_at_hand(
    world: World, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = files
    texts = ["--source", source, "--target", target]
    scored, again, use = tmp_path / "scored.jsonl", tmp_path / "again.jsonl", tmp_path / "use.json"
    before = listing(world.run)
    done = succeed("select", world.run, *texts, "--out", scored, "--top", "3")
    succeed("cxmi", world.run, *texts, "--context", "true", "--out", use)
    succeed("select", world.run, *texts, "--cxmi", use, "--out", again)
    assert again.read_bytes() == scored.read_bytes()
    assert listing(world.run) == before
    header, *ranked = lines(scored)
    figures = json.loads(use.read_text())["sentences"]
    assert header["sentences"] == len(figures)
    assert header["ranked"] == len(ranked) == sum(each["context"] > 0 for each in figures)
    scores = [row["score"] for row in ranked]
    assert scores == sorted(scores, reverse=True)
    by_place = {(each["document"], each["sentence"]): each for each in figures}
    for row in ranked:
        measured = by_place[row["document"], row["sentence"]]
        total = sum(word["nats"] for word in row["words"])
        assert total == pytest.approx(measured["cxmi"]["true"], abs=1e-3)
        assert [word["text"] for word in row["words"]] == [*row["target"].split(), "(end)"]
        assert row["score"] == max(word["nats"] for word in row["words"])
    assert done.out.count("\n") == 1 + 3 + 2
    told = json.loads(succeed("select", world.run, *texts, "--cxmi", use, "--top", "2", "--json").out)
    assert [row["rank"] for row in told["first"]] == [1, 2]


def test_weights_of_the_training_corpus_of_one_process_or_of_shards(world: World, tmp_path: Path) -> None:
    data, weights = world.folder / "data", tmp_path / "w.jsonl"
    done = succeed("select", world.run, "--source", data, "--weights", weights, "--share", "0.8")
    assert "w.jsonl: weights of " in done.out
    header, *documents = lines(weights)
    assert header["signature"].endswith("|by:word|marked:none|share:0.8")
    found = [weight for document in documents for weight in document["weights"]]
    assert sum(found) / len(found) == pytest.approx(1, abs=1e-4)
    assert min(found) == pytest.approx(0.2)
    joined, again = tmp_path / "use.json", tmp_path / "again.jsonl"
    for part in ("1/2", "2/2"):
        succeed("cxmi", world.run, "--source", data, "--context", "true", "--out", joined, "--shard", part)
    succeed("join", joined)
    use = ["--cxmi", joined, "--source", data, "--share", "0.8"]
    succeed("select", world.run, *use, "--weights", again)
    assert again.read_bytes() == weights.read_bytes()


def test_a_sheet_with_the_translations_of_systems(
    world: World, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = files
    other, sheet = tmp_path / "other.de", tmp_path / "sheet.html"
    write_documents(other, read_documents(target, side="target"), "docids")
    systems = ["--hypothesis", target, "--hypothesis", other]
    arguments = ["select", world.run, "--source", source, "--target", target]
    done = succeed(*arguments, *systems, "--sheet", sheet, "--top", "4")
    assert "sheet.html: 4 items" in done.out
    assert sheet.read_text().count("<article") == 4
    key = json.loads((tmp_path / "sheet.key.json").read_text())
    assert {name for item in key["items"] for name in item["translations"].values()} == {"d.de", "other.de"}


def test_translations_and_corpus_need_not_both_have_ids(
    world: World, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Where either has none, documents correspond by their order, as everywhere."""
    plain = [tmp_path / name for name in ("plain.en", "plain.de")]
    for path, given in zip(plain, files, strict=True):
        write_documents(path, read_documents(given), "d-lines")
    for texts, system in ((files, plain[1]), (plain, files[1])):
        sheet = tmp_path / f"{system.stem}.html"
        arguments = ["--source", texts[0], "--target", texts[1], "--hypothesis", system, "--sheet", sheet]
        succeed("select", world.run, *arguments, "--top", "2")
        assert sheet.read_text().count("<article") == 2


def test_what_is_refused(world: World, files: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = files
    texts = ["--source", source, "--target", target]
    data = world.folder / "data"
    out, sheet = tmp_path / "w.jsonl", tmp_path / "sheet.csv"
    first = next(iter(read_documents(target, side="target")))
    write_documents(source.with_name("one.de"), [first, first], "docids")
    for arguments, message in (
        ([*texts, "--weights", out], "are those of the training corpus"),
        ([*texts, "--by", "words"], "choose word, sentence, token"),
        ([*texts, "--hypothesis", target], "--hypothesis is for a sheet"),
        ([*texts, "--sheet", tmp_path / "sheet.pdf"], "ends in .html or .csv"),
        ([*texts, "--out", source], "would overwrite"),
        (["--source", data, "--target", target], "leave out --target"),
        ([*texts, "--sheet", sheet, "--hypothesis", source.with_name("one.de")], "one.de: document number 2"),
        (["--source", data, "--out", out, "--weights", out], "two options name this file"),
        ([*texts, "--cxmi", data / "report.json"], "not figures of `cotext cxmi --out`"),
    ):
        done = cotext("select", world.run, *arguments)
        assert done.code == 2, arguments
        assert message in done.err
        assert not list(tmp_path.iterdir())
