"""Distillation: prepared data go in, the same data with a teacher's translations as targets come out."""

import json
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.data.prepared import write_report
from cotext.data.store import TokenStore, store_writer
from cotext.data.tokenizer import load_tokenizer
from cotext.runtime.jobs.engine import folder_of, journal_of
from tests.command_line import (
    RECIPE,
    TINY,
    World,
    listing,
    must_refuse,
    prepare_arguments,
    succeed,
    train_arguments,
    writable_copy,
)

DOCUMENTS = 24
Targets = list[list[list[int]]]


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an untroubled distillation makes of the data of the world."""
    out = tmp_path_factory.mktemp("whole") / "data-kd"
    succeed(*command(world, out))
    return out


def command(world: World, out: Path, *more: str | Path, data: Path | None = None) -> list[str | Path]:
    return ["distill", world.run, "--data", data or world.folder / "data", "--out", out, *more]


def finished_documents(out: Path) -> int:
    """How many documents the journals hold; -1 before there is any."""
    parts = [*folder_of(out).glob("*.jsonl"), *filter(Path.exists, [journal_of(out)])]
    return sum(path.read_bytes().count(b"\n") - 1 for path in parts) if parts else -1


def targets(store: TokenStore) -> Targets:
    return [[t.tolist() for t in document.target] for document in store]


def sources(store: TokenStore) -> list[tuple[str, list[list[int]]]]:
    return [(document.id, [s.tolist() for s in document.source]) for document in store]


def train_store(folder: Path) -> TokenStore:
    return TokenStore(folder / "train.arrow")


def translated(
    world: World, data: Path, folder: Path, *options: str | Path, run: Path | None = None
) -> Targets:
    """What `cotext translate` makes of the training documents of `data`, in its tokens."""
    tokenizer = load_tokenizer(data / "tokenizer")
    documents = [
        Document(d.id, tuple(tokenizer.decode([int(i) for i in s]) for s in d.source))
        for d in train_store(data)
    ]
    source, out = folder / "as-text.jsonl", folder / "translated.jsonl"
    write_documents(source, documents, "jsonl")
    succeed("translate", run or world.run, source, "--out", out, *options)
    return [tokenizer.encode_batch(d.sentences) for d in read_documents(out, side="target")]


def store_of(folder: Path, documents: list[tuple[str, list[str], list[str]]], like: Path) -> Path:
    """Prepared data like those of `like`, with other training documents."""
    writable_copy(like, folder)
    for name in ("train.arrow", "report.json"):  # which knows the file by its digest
        (folder / name).unlink()
    tokenizer = load_tokenizer(folder / "tokenizer")
    with store_writer(folder / "train.arrow", tokenizer.fingerprint) as writer:
        for name, source, target in documents:
            writer.add(name, tokenizer.encode_batch(source), tokenizer.encode_batch(target))
    write_report(folder, {})
    return folder


def test_only_the_targets_change_to_what_translate_writes(world: World, whole: Path, tmp_path: Path) -> None:
    data = world.folder / "data"
    before, after = train_store(data), train_store(whole)
    assert sources(after) == sources(before)
    assert targets(after) == translated(world, data, tmp_path)
    assert targets(after) != targets(before)
    assert [len(d.target) for d in after] == [len(d.source) for d in before]
    theirs, ours = listing(data), listing(whole)
    assert theirs.keys() | {"distillation.json"} == ours.keys()
    assert {name for name in theirs if ours[name] != theirs[name]} == {"train.arrow", "report.json"}


def test_the_result_is_prepared_data(world: World, whole: Path, tmp_path: Path) -> None:
    tiny = [*TINY, "train.validate_bleu=false"]
    shown = succeed("train", RECIPE, *tiny, "--data", whole, "--out", tmp_path / "student").out
    assert "finished at update 6" in shown
    # Which a teacher may be given once more.
    again = tmp_path / "again"
    succeed("distill", tmp_path / "student", "--data", whole, "--out", again)
    assert sources(train_store(again)) == sources(train_store(whole))
    report = json.loads((again / "report.json").read_text())
    assert report["prepared"]["command"]["distill"] == str(world.run)
    assert "train_files" in report["prepared"]["prepared"]["command"]


def test_it_says_where_it_comes_from(world: World, whole: Path) -> None:
    data = world.folder / "data"
    before, report = (json.loads((folder / "report.json").read_text()) for folder in (data, whole))
    job = json.loads((whole / "distillation.json").read_text())
    totals = train_store(whole).totals
    assert report["splits"]["dev"] == before["splits"]["dev"]
    for key in ("documents", "sentences", "source_tokens", "target_tokens"):
        assert report["splits"]["train"][key] == getattr(totals, key)
    assert report["tokenizer"] == before["tokenizer"]
    assert report["inputs"].keys() == {str(data / "train.arrow"), str(world.run / "model.safetensors")}
    assert set(report["inputs"].values()) == {job["data"]["train.arrow"], job["teacher"]["model"]}
    assert report["prepared"]["inputs"] == before["inputs"]
    assert report["distillation"]["documents"] == DOCUMENTS
    assert report["distillation"]["signature"].startswith("model:transformer|updates:")
    assert job["teacher"]["config"]["decode"]["beam"] == 4


def test_what_it_shows(world: World, tmp_path: Path) -> None:
    out = tmp_path / "kd"
    shown = succeed(*command(world, out))
    sentences = train_store(world.folder / "data").totals.sentences
    assert f"translating {sentences}/{sentences}" in shown.err
    first, *_, signature, last = shown.out.splitlines()
    assert first == f"{out}: {sentences} sentences in {DOCUMENTS} documents"
    assert "|beam:4|" in signature
    assert last == f"{out}: ready for `cotext train RECIPE --data {out} --out RUN`"


def test_a_teacher_with_another_tokenizer(world: World, tmp_path: Path) -> None:
    """It reads text and writes text: every target is what it would be in its own folder's words."""
    teachers, run, out = tmp_path / "teachers", tmp_path / "run", tmp_path / "kd"
    succeed(*prepare_arguments(world.folder, teachers), "--vocabulary", "40")
    arguments = [*TINY, "train.validate_bleu=false", "train.max_updates=3"]
    succeed("train", RECIPE, *arguments, "--data", teachers, "--out", run)
    data = world.folder / "data"
    mine, its = load_tokenizer(data / "tokenizer"), load_tokenizer(run / "tokenizer")
    assert mine.fingerprint != its.fingerprint
    succeed("distill", run, "--data", data, "--out", out)
    found = train_store(out)
    found.require_tokenizer(mine)
    assert targets(found) == translated(world, data, tmp_path, run=run)


def test_empty_sentences_stay_in_their_places(world: World, tmp_path: Path) -> None:
    first = ("a", ["the cat", "", "a dog"], ["die katze", "", "eine hund"])
    documents = [first, ("b", ["", ""], ["", "die"]), ("c", ["a bird sings"], [""])]
    data = store_of(tmp_path / "data", documents, world.folder / "data")
    out = tmp_path / "kd"
    succeed(*command(world, out, data=data))
    store = train_store(out)
    assert [[bool(len(t)) for t in d.target] for d in store] == [[True, False, True], [False, False], [True]]
    assert targets(store) == translated(world, data, tmp_path)
    # Sentences that free search leaves out keep their target.
    shown = succeed(*command(world, tmp_path / "free", "--set", "align=free", data=data)).out
    assert "1 sentence missing in the translation, which keep their target; document:sentence a:3" in shown
    old, new = (targets(train_store(folder))[0][2] for folder in (data, tmp_path / "free"))
    assert old == new


def test_a_document_that_the_teacher_does_not_take_keeps_its_target(world: World, tmp_path: Path) -> None:
    long = "the cat sees a dog and a bird eats " * 3
    documents = [
        ("a", ["the cat"], ["die katze"]),
        ("b", ["a dog", long, ""], ["eine hund", "die", ""]),
        ("c", ["a bird sings"], ["vogel"]),
    ]
    data = store_of(tmp_path / "data", documents, world.folder / "data")
    out, tokenizer = tmp_path / "kd", load_tokenizer(data / "tokenizer")
    shown = succeed(*command(world, out, "--set", "max_source_tokens=20", data=data)).out
    assert "1 document with a sentence too long for the teacher" in shown
    assert shown.splitlines()[1].endswith("; b")
    first, kept, last = targets(train_store(out))
    assert kept == tokenizer.encode_batch(documents[1][2])
    shorter = store_of(tmp_path / "shorter", [documents[0], documents[2]], world.folder / "data")
    assert [first, last] == translated(world, shorter, tmp_path)
    report = json.loads((out / "report.json").read_text())
    assert report["distillation"]["kept"] == {"count": 1, "examples": ["b"]}
    # With room for it the teacher takes it, and says that it was trained on shorter ones.
    shown = succeed(*command(world, tmp_path / "all", "--set", "max_ratio=0.01", data=data)).out
    assert "does not take" not in shown
    assert "truncated at the length limit" in shown


def test_shards_joined_are_the_whole(world: World, whole: Path, tmp_path: Path) -> None:
    """In any order; one of them has nothing to do where there are more than documents."""
    out = tmp_path / "data-kd"
    for number in (3, 1, 2):
        shown = succeed(*command(world, out, "--shard", f"{number}/3"))
        assert f"shard {number}/3: " in shown.out
        assert not out.exists()
    assert finished_documents(out) == DOCUMENTS
    shown = succeed("join", out).out
    assert shown == succeed(*command(world, whole)).out.replace(str(whole), str(out))
    assert listing(out) == listing(whole)
    assert [p.name for p in tmp_path.iterdir()] == ["data-kd"]


def test_shards_with_relative_paths_are_joined_in_any_folder(
    world: World, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another corpus by the same name, in the folder of the join, is not taken for theirs."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "data").symlink_to(world.folder / "data")
    (here / "run").symlink_to(world.run)
    (elsewhere / "data").mkdir()
    monkeypatch.chdir(here)
    for shard in ("1/2", "2/2"):
        succeed("distill", "run", "--data", "data", "--out", "kd", "--shard", shard)
    monkeypatch.chdir(elsewhere)
    succeed("join", here / "kd")
    made = {name: content for name, content in listing(here / "kd").items() if name != "report.json"}
    assert made == {name: content for name, content in listing(whole).items() if name != "report.json"}
    inputs = json.loads((here / "kd" / "report.json").read_text())["inputs"]
    assert str(here / "data" / "train.arrow") in inputs


def test_the_size_of_batches_may_change_on_the_way(world: World, whole: Path, tmp_path: Path) -> None:
    """As where memory has run out."""
    out = tmp_path / "data-kd"
    succeed(*command(world, out, "--set", "max_tokens=300", "--shard", "1/2"))
    succeed(*command(world, out, "--set", "max_tokens=100", "--shard", "2/2"))
    succeed("join", out)
    assert (out / "train.arrow").read_bytes() == (whole / "train.arrow").read_bytes()


def test_the_same_command_after_the_end(world: World, whole: Path) -> None:
    """It finds all done: killed right before it could say so, it would have to."""
    before = listing(whole)
    shown = succeed(*command(world, whole)).out
    assert f"{whole}: {train_store(whole).totals.sentences} sentences in {DOCUMENTS} documents" in shown
    assert listing(whole) == before
    assert [p.name for p in whole.parent.iterdir()] == [whole.name]


def test_another_job_is_not_taken_over(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "data-kd"
    documents = [("a", ["the cat"], ["die katze"])]
    other_data = store_of(tmp_path / "data", documents, world.folder / "data")
    other_run = tmp_path / "run"
    succeed(*train_arguments(world.folder, other_run, "train.max_updates=3", "train.validate_bleu=false"))
    succeed(*command(world, out, "--shard", "1/2"))
    before = listing(folder_of(out))
    for differing, arguments in (
        ("teacher.config.decode.beam: 4 before, 1 now", command(world, out, "--set", "beam=1")),
        ("data.train.arrow: ", command(world, out, data=other_data)),
        ("teacher.model: ", ["distill", other_run, *command(world, out)[2:]]),
        ("teacher.model: ", command(world, out, "--checkpoint", "3")),
    ):
        refused = must_refuse(f"\n  job.{differing}", *arguments, "--shard", "2/2")
        assert "belongs to another job; pass its options to resume it" in refused.err
        assert listing(folder_of(out)) == before
        assert not out.exists()


def test_what_is_refused_leaves_nothing_behind(world: World, whole: Path, tmp_path: Path) -> None:
    data, empty = world.folder / "data", tmp_path / "empty"
    empty.mkdir()
    damaged = writable_copy(world.run, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"no model")
    note = tmp_path / "note.txt"
    note.write_text("mine\n")
    cut = store_of(tmp_path / "cut", [("a", ["the cat"], ["die"])], data)
    (cut / "train.arrow").write_bytes((cut / "train.arrow").read_bytes()[:-40])
    before, kd = listing(tmp_path), tmp_path / "kd"
    for arguments, message in (
        ([tmp_path / "none", "--data", data, "--out", kd], "none: no such run folder"),
        ([empty, "--data", data, "--out", kd], "no such model file"),
        ([damaged, "--data", data, "--out", kd], "damaged or truncated"),
        ([world.run, "--data", empty, "--out", kd], "empty: no prepared data there"),
        ([world.run, "--data", cut, "--out", kd], "train.arrow: not a token store, or cut off"),
        (
            [world.run, "--data", data, "--out", whole, "--set", "beam=1"],
            "exists; choose another --out:\n  teacher.config.decode.beam: 4 before, 1 now",
        ),
        ([world.run, "--data", data, "--out", note], "exists; choose another --out"),
        ([world.run, "--data", data, "--out", data / "kd"], "is inside the data to be distilled"),
        ([world.run, "--data", data, "--out", kd, "--set", "baem=1"], "unknown decoding setting 'baem'"),
        ([world.run, "--data", data, "--out", kd, "--device", "abacus"], "device 'abacus' cannot be used"),
        ([world.run, "--data", data, "--out", kd, "--checkpoint", "1"], "no checkpoint of update 1"),
        ([world.run, "--data", data, "--out", kd, "--set", "first_pass=x"], "first_pass = x"),
    ):
        refused = must_refuse(message, "distill", *arguments)
        assert "Traceback" not in refused.err
        assert listing(tmp_path) == before, message
