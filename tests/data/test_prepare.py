import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotext.data import prepare as prepare_module
from cotext.data.contrastive_suites import read_suite
from cotext.data.controlled import VERSION
from cotext.data.documents import Languages
from cotext.data.formats import read_documents, read_parallel, write_parallel
from cotext.data.prepare import document_notes, prepare, prepare_controlled
from cotext.data.prepared import Histogram, Report, StatisticsCollector
from cotext.data.requests import ControlledRequest, PreparationRequest
from cotext.data.store import Flat, TokenStore
from cotext.data.tokenizer import load_tokenizer
from cotext.training.inputs import open_data
from tests.command_line import listing as contents
from tests.command_line import must_refuse, prepare_arguments, succeed, write_corpus
from tests.killing import Moment, run_killed
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny_runs import make_controlled_corpora_small, toy_documents

TRAIN, DEV, TEST = toy_documents(120, 1), toy_documents(5, 2), toy_documents(6, 3)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, corpus in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        paths[f"{name}_source"], paths[f"{name}_target"] = tmp_path / f"{name}.en.gz", tmp_path / f"{name}.de"
        write_parallel(paths[f"{name}_source"], paths[f"{name}_target"], corpus, "text")
    return paths


SIDES = ("source", "target")


def run(files: dict[str, Path], out: Path, **options: Any) -> Report:
    progress = options.pop("on_documents", lambda stage, documents: None)
    sides = {f"{split}_{side}": files[f"{split}_{side}"] for split in ("dev", "test") for side in SIDES}
    train = {side: files[f"train_{side}"] for side in SIDES}
    request = PreparationRequest(out=out, **{**train, **sides, "workers": 1, **options})
    return prepare(request, progress)


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_prepared_folder_gives_the_corpus_back(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    report = run(files, out)
    assert listing(out) == {
        *("train.arrow", "dev.arrow", "test.arrow", "dev.jsonl", "test.jsonl", "report.json"),
        *("tokenizer/tokenizer.json", "tokenizer/sentencepiece.model"),
    }
    tokenizer = load_tokenizer(out / "tokenizer")
    for name, corpus in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        store = TokenStore(out / f"{name}.arrow")
        store.require_tokenizer(tokenizer)
        assert len(store) == len(corpus) == report.splits[name].documents
        for stored, document in zip(store, corpus, strict=True):
            assert tuple(tokenizer.decode(s.tolist()) for s in stored.source) == document.source
            assert tuple(tokenizer.decode(s.tolist()) for s in stored.target) == document.target
        totals, figures = store.totals, report.splits[name]
        assert (totals.sentences, totals.source_tokens) == (figures.sentences, figures.source_tokens)
        assert totals.target_tokens == figures.target_tokens
    raw = list(read_parallel(out / "dev.jsonl", None))
    assert [(d.source, d.target) for d in raw] == [(d.source, d.target) for d in DEV]
    assert [d.id for d in raw] == [d.id for d in TokenStore(out / "dev.arrow")]


def test_report_says_what_was_done(files: dict[str, Path], tmp_path: Path) -> None:
    report = run(files, tmp_path / "out", vocabulary=40)
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    source = files["train_source"]
    assert written["inputs"][str(source)] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert (len(written["inputs"]), written["notes"], bool(written["cotext"])) == (6, [], True)
    assert written["command"]["train_files"] == [str(source), str(files["train_target"])]
    expected = {"kind": "sentencepiece", "vocabulary": 40, "pieces": 40}
    expected["fingerprint"] = load_tokenizer(tmp_path / "out" / "tokenizer").fingerprint
    assert expected.items() <= written["tokenizer"].items()
    train = written["splits"]["train"]
    sentences = sum(map(len, TRAIN))
    assert (train["documents"], train["sentences"]) == (120, sentences)
    both = train["source_tokens"] + train["target_tokens"]
    assert train["mean_sentence_tokens"] == pytest.approx(both / (2 * sentences))
    assert f"{sentences:,}" in report.render()
    assert "sentencepiece, 40 pieces" in report.render()


def test_same_bytes_whatever_the_number_of_workers(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where documents are split, cleaned, and found again in a held-out set."""
    write_parallel(files["test_source"], files["test_target"], [*TEST, *TRAIN[20:24]], "text")
    options = {"split": True, "clean": ["duplicates", "length=60"]}
    report = run(files, tmp_path / "one", **options)
    assert report.overlap["test"].pairs > 5
    monkeypatch.setattr("cotext.data.prepare.CHUNK_SENTENCES", 20)
    monkeypatch.setattr("cotext.data.prepare.CHUNKS_ALONE", 2)
    assert run(files, tmp_path / "several", workers=3, **options) == report
    assert contents(tmp_path / "one") == contents(tmp_path / "several")


def test_a_tokenizer_of_a_sample(files: dict[str, Path], tmp_path: Path) -> None:
    """Of a sample, and the report says so; of all, where there is no more, or all are asked for."""
    corpus = [f"--{name.removeprefix('train_').replace('_', '-')}={path}" for name, path in files.items()]
    notes, pieces = {}, {}
    for sample in ("40", "all", "1000000"):
        out = tmp_path / sample
        succeed("prepare", *corpus, "--tokenizer-sample", sample, "--out", out)
        report = json.loads((out / "report.json").read_text())
        notes[sample] = [note for note in report["notes"] if "--tokenizer-sample" in note]
        pieces[sample] = report["tokenizer"]["fingerprint"]
    [note] = notes.pop("40")
    trained = f"the tokenizer was trained on 40 of {2 * sum(map(len, TRAIN))} sentences, drawn from the whole"
    assert note == f"{trained} corpus (--tokenizer-sample)"
    assert notes == {"all": [], "1000000": []}
    assert pieces["40"] != pieces["all"] == pieces["1000000"]
    for wrong in ("0", "-5", "1e5", "²", ""):
        asked = ("prepare", *corpus, f"--tokenizer-sample={wrong}", "--out", tmp_path / "data")
        must_refuse("must be a number of sentences, or all", *asked)


def test_languages_that_a_file_with_both_names(tmp_path: Path) -> None:
    for name, corpus in (("train", TRAIN), ("dev", DEV)):
        write_parallel(tmp_path / name, None, corpus, "tmx", ("fr-FR", "ita_Latn"))

    def pair(out: str, **languages: Any) -> str:
        sides = {"source": tmp_path / "train", "dev_source": tmp_path / "dev"}
        return str(prepare(PreparationRequest(**sides, out=tmp_path / out, **languages)).pair)

    assert pair("out") == "fr-it"
    assert pair("given", target_language="de") == "fr-de"
    write_parallel(tmp_path / "train", None, TRAIN, "tmx")  # of languages that nothing tells
    assert pair("unknown") == ""


@pytest.mark.parametrize("split", ["train", "dev"])
def test_too_long_sentence_is_named_with_its_line(files: dict[str, Path], tmp_path: Path, split: str) -> None:
    path = files[f"{split}_target"]
    lines = path.read_text().splitlines()
    line = next(i for i, text in enumerate(lines) if text and i > 5)
    lines[line] = "lang " * 20
    path.write_text("\n".join(lines) + "\n")
    message = rf"{split}.de:{line + 1}: document .* 99 characters, more than .* 60"
    must_raise(message, run, files, tmp_path / "out", max_characters=60)
    assert not (tmp_path / "out").exists()


def test_errors_leave_nothing(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(files, tmp_path / "out")
    before = listing(tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare_module, "write_parallel", full_disk)
    for name in ("out", "other"):
        must_raise("No space left on device", run, files, tmp_path / name, overwrite=True)
        assert listing(tmp_path) == before
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["out"]


def test_the_same_command_after_the_end_has_nothing_to_do(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = run(files, out)
    stages: dict[str, int] = {}
    run(files, tmp_path / "again", tokenizer=str(out), on_documents=stages.__setitem__)
    assert list(stages) == ["reading", "encoding train", "encoding dev", "encoding test"]  # no training
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert run(files, out) == report
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    (out / "dev.arrow").write_bytes(b"damaged")
    must_raise(r"dev.arrow: damaged, .*; prepare the corpus again, with --overwrite", run, files, out)


def test_only_prepared_folders_are_overwritten(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    run(files, out)
    must_raise(r"not empty; .* with --overwrite", run, files, out, max_characters=1000)
    (out / "stale").touch()
    run(files, out, overwrite=True)
    assert "stale" not in listing(out)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").touch()
    must_raise("is not a folder of prepared data", run, files, precious, overwrite=True)
    assert listing(precious) == {"thesis.txt"}
    inside = out / "dev.en"
    inside.write_bytes(files["dev_target"].read_bytes())
    message = "is inside the folder to be replaced"
    must_raise(message, run, {**files, "dev_source": inside}, out, overwrite=True)
    must_raise("is a file", run, files, files["dev_source"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus as text, and `expected`, what is prepared of it."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    succeed(*prepare_arguments(folder, folder / "expected"))
    return folder


@loop_over(
    "moment",
    [
        Moment(path="train.arrow", operations=("replace",)),
        Moment(path="report.json", operations=("replace",)),
        Moment(path="/out", operations=("replace",)),  # of two renames, the first
        Moment(number=2, path="/out", operations=("replace",)),  # the second
        Moment(path=".partial", operations=("rmdir",)),
        Moment(path="/.out.lock", operations=("unlink",)),
    ],
)
def test_killed_while_a_folder_is_replaced(corpus: Path, tmp_path: Path, moment: Moment) -> None:
    """Whatever is left, the same command ends as it would have, and clears away."""
    out = tmp_path / "out"
    shutil.copytree(corpus / "expected", out)
    (out / "stale").touch()
    arguments = [*prepare_arguments(corpus, out), "--overwrite"]
    assert run_killed(arguments, moment)
    assert (tmp_path / ".out.lock").exists()
    succeed(*arguments)
    assert contents(out) == contents(corpus / "expected")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_between_the_renames_another_command_finds_the_old_folder(corpus: Path, tmp_path: Path) -> None:
    """And the new one is not lost."""
    out = tmp_path / "out"
    shutil.copytree(corpus / "expected", out)
    arguments = prepare_arguments(corpus, out)
    assert run_killed([*arguments, "--overwrite"], Moment(number=2, path="/out", operations=("replace",)))
    assert not out.exists()
    must_refuse("exists and is not empty", *arguments, "--max-characters", "999")
    assert contents(out) == contents(corpus / "expected")
    succeed(*arguments, "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_side_files_are_recorded(tmp_path: Path) -> None:
    for name, corpus in (("train", TRAIN), ("dev", DEV)):
        write_parallel(tmp_path / f"{name}.en", tmp_path / f"{name}.de", corpus, "docids")
    names = [tmp_path / name for name in ("train.en", "train.de", "dev.en", "dev.de")]
    sides = dict(zip(("source", "target", "dev_source", "dev_target"), names, strict=True))
    report = prepare(PreparationRequest(**sides, out=tmp_path / "out"))
    expected = {*(name.name for name in names), "train.docids", "dev.docids"}
    assert {Path(path).name for path in report.inputs} == expected


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """The folder and the report of a corpus of 60 documents."""
    out = tmp_path_factory.mktemp("controlled") / "out"
    with pytest.MonkeyPatch.context() as patch:
        make_controlled_corpora_small(patch)
        return out, prepare_controlled(ControlledRequest(size="60", out=out, seed=3, contrastive_examples=12))


def test_controlled_corpus(controlled: tuple[Path, Report], tmp_path: Path) -> None:
    out, report = controlled
    assert report.splits["train"].documents == 60
    assert report.pair == open_data(out).languages == Languages("en", "de")
    asked = {"size": "60", "documents": 60, "seed": 3, "contrastive_examples": 12}
    assert report.command == {"controlled": VERSION, **asked, "word_order": "verb-second", "mentions": None}
    suites = {path.stem: read_suite(path) for path in (out / "contrastive").iterdir()}
    assert suites.keys() == {"pronoun", "register", "ellipsis", "cohesion", "cataphora"}
    assert all(len(suite.examples) >= 12 for suite in suites.values())
    for split in ("dev", "test"):
        raw = list(read_parallel(out / f"{split}.jsonl", None))
        assert [d.sentences for d in read_documents(out / f"{split}.en")] == [d.source for d in raw]
        assert [d.sentences for d in read_documents(out / f"{split}.de")] == [d.target for d in raw]
        assert len(TokenStore(out / f"{split}.arrow")) == len(raw)
    assert load_tokenizer(out / "tokenizer").pieces == 1500
    message = "unknown size 'huge'; choose one of small, medium, large"
    must_raise(message, prepare_controlled, ControlledRequest(size="huge", out=tmp_path / "other"))


def test_controlled_corpus_in_another_word_order(
    controlled: tuple[Path, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is written has the order, and the report names it; nothing else differs."""
    make_controlled_corpora_small(monkeypatch)
    usual, other = controlled[0], tmp_path / "other"
    same_numbers = {"size": "60", "seed": 3, "contrastive_examples": 12}
    report = prepare_controlled(
        ControlledRequest(**same_numbers, out=other, word_order="verb-final", mentions=4)
    )
    assert (report.command["word_order"], report.command["mentions"]) == ("verb-final", 4)
    names = ("dev.en", "dev.de", "test.de", "dev.jsonl", "contrastive/pronoun.json")
    same = [(usual / name).read_bytes() == (other / name).read_bytes() for name in names]
    assert same == [True, False, False, False, False]
    # Corpora of one seed share a vocabulary of whole words.
    prepare_controlled(ControlledRequest(size="20", out=tmp_path / "20", seed=3, contrastive_examples=1))
    tokenizers = [load_tokenizer(folder / "tokenizer") for folder in (tmp_path / "20", usual)]
    assert tokenizers[0].fingerprint == tokenizers[1].fingerprint
    assert len(tokenizers[0].encode("The table was small.")) == 5


def test_collector_and_bounded_histogram_on_a_hand_worked_corpus() -> None:
    histogram = Histogram(limit=100)
    histogram.add(np.array([5, 10**9], np.int64))
    assert histogram.distribution().maximum == 10**9
    assert histogram.distribution().percentiles == {50: 5, 90: 100, 99: 100}
    assert Histogram().distribution().percentiles == {50: 0, 90: 0, 99: 0}
    collector = StatisticsCollector(unk=0)
    source, target = [[1, 2], [], [0] * 4 + [7] * 8, [1, 2]], [[3, 0, 4], [], [5] * 4, [3, 0, 4]]
    collector.add([3, 1], Flat.of(source), Flat.of(target))
    collector.add([2], Flat.of([[6] * 3, [1, 2]]), Flat.of([[7] * 10, []]))
    found = collector.statistics()
    assert (found.documents, found.sentences) == (3, 6)
    assert (found.source_tokens, found.target_tokens) == (21, 20)
    assert found.mean_sentence_tokens == pytest.approx(41 / 12)
    assert found.empty_sentences == (1, 2)
    assert found.unknown_token_rate == pytest.approx((4 / 21, 2 / 20))
    assert found.sentence_tokens.source.maximum == 12
    assert found.document_tokens.source.percentiles == {50: 5, 90: 14, 99: 14}
    assert found.document_tokens.target.maximum == 10
    assert found.document_sentences.percentiles == {50: 2, 90: 3, 99: 3}
    # 12 to 4 is exactly three times, hence no outlier; 3 to 10 is more.
    assert found.ratio_outliers == 1


def test_a_corpus_that_is_one_long_document_is_noted() -> None:
    found = {
        "train": {"documents": 1, "sentences": 3_000},
        "dev": {"documents": 1, "sentences": 20},
        "test": {"documents": 2, "sentences": 3_000},
    }
    [note] = document_notes(found)
    assert "train is one document of 3,000 sentences" in note
    assert "x-document" in note
