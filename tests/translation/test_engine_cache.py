"""Runs that are converted for CTranslate2 on first use, and everything for which they are not."""

import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import cotext as face
from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.data.tokenizer import Tokenizer
from cotext.interchange import export
from cotext.interchange.export import installed
from cotext.models.checkpoint import load_run, load_weights, save_model
from cotext.models.run_folder import ENGINE_FORMAT
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import working_in
from cotext.translation import engine_cache
from cotext.translation.engine_cache import KEPT, LOCK, open_to_translate
from cotext.translation.open import OpenedRun, open_run, scoring_signature, signature_entries
from tests.command_line import cotext, must_refuse, succeed
from tests.interchange.test_engines import ENDING, VIEWS, config_of, documents, tokenizer, write
from tests.killing import Moment, run_killed
from tests.loops import loop_over
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tiny import translations
from tests.tiny_runs import toy_documents

__all__ = ["documents", "tokenizer"]
pytestmark = pytest.mark.skipif(not installed(), reason="CTranslate2 is not installed")

Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Models of tests are smaller than those that are converted; nothing is written to the user's folders.

    And the processor may be any.
    """
    monkeypatch.setattr(engine_cache, "LEAST_PARAMETERS", 0)
    monkeypatch.setattr(engine_cache, "has_exact_int8", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def make(tokenizer: Tokenizer, tmp_path: Path) -> Make:
    def made(view: str = "sentence", name: str = "run", **sections: dict[str, Any]) -> Path:
        decode = {"beam": 1, "max_extra": 6, **sections.get("decode", {})}
        config = config_of(view, sections.get("model", {}), decode)
        return write(tmp_path / name, config, tokenizer, ENDING)

    return made


def engines(place: Path) -> list[Path]:
    """The complete engines in a folder."""
    return sorted(path for path in place.glob("*") if not path.name.startswith("."))


def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are written from now on."""
    return calls_of(monkeypatch, engine_cache, "write_engine", lambda loaded, kind, folder, data: folder)


def texts(run: OpenedRun, given: list[Document]) -> list[tuple[str, ...]]:
    return [translation.document.sentences for translation in translations(run.translator, given)]


@loop_over("view", ["sentence", "s2to2", "doc2doc"])
def test_a_run_is_converted_once_and_writes_what_it_writes_with_torch(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    run, made = make(view, view), conversions(monkeypatch)
    own = open_run(run, "cpu")
    # Windows and documents are not always faster with an engine.
    is_sentence = VIEWS[view]["kind"] == "sentence"
    assert (open_to_translate(run, "cpu").translator.engine is not None) == is_sentence
    for _ in range(2):
        opened = open_to_translate(run, "cpu", {"engine": "ctranslate2"})
        assert opened.translator.engine is not None
        assert texts(opened, documents) == texts(own, documents)
        entries = signature_entries(opened.signature)
        assert entries["engine"].startswith("ctranslate2-")
        assert entries["quantization"] == "float32"
        # Only search uses the engine.
        assert scoring_signature(opened) == scoring_signature(own)
    assert len(made) == len(engines(run / "engines")) == 1
    assert opened.config.decode.engine == "ctranslate2"


def test_the_engine_has_the_precision_of_the_settings(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, int8 = make(), {"precision": "int8"}
    opened = open_to_translate(run, "cpu", int8)
    assert signature_entries(opened.signature)["quantization"] == "int8"
    assert [len(text) for text in texts(opened, documents)] == [len(d) for d in documents]
    monkeypatch.setattr(engine_cache, "has_exact_int8", lambda: False)
    assert open_to_translate(run, "cpu", int8).translator.engine is None
    with pytest.raises(CotextError, match="int8 on this processor, whose int8 products are not exact"):
        open_to_translate(run, "cpu", {**int8, "engine": "ctranslate2"})


@loop_over(
    ("decode", "words"),
    [
        ({"nbest": 2, "beam": 2}, "decode.nbest = 2"),
        ({"align": "free"}, "decode.align = free"),
        ({"scores": False}, "decode.scores = False"),
        ({"precision": "bfloat16"}, "decode.precision = bfloat16"),
    ],
)
def test_what_an_engine_does_not_support_is_left_to_torch(
    make: Make, decode: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(name="-".join(decode))
    assert open_to_translate(run, "cpu", decode).translator.engine is None
    assert not (run / "engines").exists()
    assert capsys.readouterr() == ("", "")
    with pytest.raises(CotextError, match=f"ctranslate2 is not possible with {words}; set engine=auto"):
        open_to_translate(run, "cpu", {**decode, "engine": "ctranslate2"})


def test_systems_sizes_and_installations_without_engines(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reset = make(name="reset", model={"positions": "reset"})
    assert open_to_translate(reset, "cpu").translator.engine is None
    must_raise(r"model\.positions = reset", open_to_translate, reset, "cpu", {"engine": "ctranslate2"})
    run = make()
    assert open_to_translate(run, "cpu", without="--scores").translator.engine is None
    with monkeypatch.context() as patched:
        patched.setattr(engine_cache, "LEAST_PARAMETERS", 10**9)
        assert open_to_translate(run, "cpu").translator.engine is None
        assert open_to_translate(run, "cpu", {"engine": "ctranslate2"}).translator.engine is not None
    monkeypatch.setattr(engine_cache, "installed", lambda: False)
    assert open_to_translate(run, "cpu").translator.engine is None
    must_raise(r"no CTranslate2 \(pip install", open_to_translate, run, "cpu", {"engine": "ctranslate2"})


def other_weights(run: Path, factor: float) -> None:
    """Replace the weights of a run, as training does."""
    path, loaded = run / "model.safetensors", load_run(run)
    weights = {name: tensor * factor for name, tensor in load_weights(path).items()}
    save_model(path, weights, loaded.config, loaded.tokenizer.fingerprint, loaded.updates)


def test_other_weights_and_versions_are_converted_again(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = make(), conversions(monkeypatch)
    before = texts(open_to_translate(run, "cpu"), documents)
    other_weights(run, 0.5)
    after = texts(open_to_translate(run, "cpu"), documents)
    assert after == texts(open_run(run, "cpu"), documents) != before
    assert len(engines(run / "engines")) == len(made) == 2
    with monkeypatch.context() as patched:
        patched.setattr(engine_cache, "version", lambda name: "0.0.1")
        open_to_translate(run, "cpu")
    assert len(made) == 3
    for number in range(KEPT + 1):
        other_weights(run, 0.9 + number / 10)
        open_to_translate(run, "cpu")
    assert len(engines(run / "engines")) == KEPT + 1


@loop_over("name", ["model.bin", "cotext.json"])
def test_a_damaged_engine_is_made_again(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run, made = make(name=name), conversions(monkeypatch)
    expected = texts(open_to_translate(run, "cpu"), documents)
    [folder] = engines(run / "engines")
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    assert texts(open_to_translate(run, "cpu"), documents) == expected
    assert len(made) == 2
    assert engines(run / "engines") == [folder]


def test_where_a_run_cannot_be_written(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of the user takes its place, then torch. A file where a folder should be stops root, too.

    Models of packages stay as they are.
    """
    package, run = make(name="package"), make()
    (package / "SHA256SUMS").touch()
    (run / "engines").touch()
    for each in (package, run):
        assert open_to_translate(each, "cpu").translator.engine is not None
        assert len(engines(tmp_path / "cache" / "cotext" / "engines")) == 1
    assert not (package / "engines").exists()
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    capsys.readouterr()
    assert open_to_translate(run, "cpu").translator.engine is None
    [line] = capsys.readouterr().err.splitlines()
    assert "uses PyTorch instead of CTranslate2" in line
    must_raise(r"engines: .*; .*engines: ", open_to_translate, run, "cpu", {"engine": "ctranslate2"})


def test_an_engine_is_used_where_no_lock_can_be_made(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of another user, who has translated with it; an engine that is damaged there is made here."""
    run, locked = make(), engine_cache._locked
    open_to_translate(run, "cpu")

    def refuse(place: Path) -> AbstractContextManager[None]:
        if place == run / "engines":
            raise PermissionError(13, "Permission denied")
        return locked(place)

    made = conversions(monkeypatch)
    monkeypatch.setattr(engine_cache, "_locked", refuse)
    assert open_to_translate(run, "cpu").translator.engine is not None
    assert not made
    (engines(run / "engines")[0] / "model.bin").write_bytes(b"damaged")
    assert open_to_translate(run, "cpu").translator.engine is not None
    assert len(made) == 1


@loop_over("error", [OSError(28, "No space left on device"), ImportError("libgomp.so: cannot open")])
def test_a_failure_leaves_nothing(make: Make, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    run = make(name=type(error).__name__)

    def fail(loaded: Any, quantization: str, folder: Path, data: Any) -> None:
        folder.mkdir()
        (folder / "model.bin").touch()
        raise error

    monkeypatch.setattr(engine_cache, "write_engine", fail)
    assert open_to_translate(run, "cpu").translator.engine is None
    for place in engine_cache._places(run):
        assert [path.name for path in place.iterdir()] == [LOCK]


def test_two_make_one_engine(make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    run, made, barrier = make(), conversions(monkeypatch), threading.Barrier(3)
    found: list[OpenedRun] = []

    def use() -> None:
        barrier.wait()
        found.append(open_to_translate(run, "cpu"))

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert all(opened.translator.engine is not None for opened in found)


def test_a_run_in_training_is_left_to_torch(make: Make) -> None:
    run = make()
    with working_in(run):
        assert open_to_translate(run, "cpu").translator.engine is None
    assert not (run / "engines").exists()
    assert open_to_translate(run, "cpu").translator.engine is not None


@loop_over(
    ("moment", "precision"), [("open_run", "float32"), ("checksum", "int8"), ("load_engine", "float32")]
)
def test_weights_that_change_while_a_run_is_opened(
    make: Make, monkeypatch: pytest.MonkeyPatch, moment: str, precision: str
) -> None:
    """Never does an engine get the name of other weights."""
    run = make(name=f"{moment}-{precision}")
    original = getattr(engine_cache, moment)

    def changing(*arguments: Any, **options: Any) -> Any:
        other_weights(run, 0.5)
        return original(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(engine_cache, moment, changing)
        opened = open_to_translate(run, "cpu", {"precision": precision})
        assert opened.translator.engine is None or moment == "load_engine"
    made = conversions(monkeypatch)
    after = open_to_translate(run, "cpu", {"precision": precision})
    assert after.translator.engine is not None
    assert len(made) == 1


def test_figures_are_those_of_torch(make: Make, tmp_path: Path) -> None:
    run = make("s2to2")
    assert open_run(run, "cpu").translator.engine is None
    must_raise("computes its results with PyTorch", open_run, run, "cpu", {"engine": "ctranslate2"})
    source = tmp_path / "in.en"
    write_documents(source, [Document(d.id, d.source) for d in toy_documents(2, 5)], "text")
    out = ("--out", tmp_path / "out.de", "--device", "cpu")
    done = succeed("translate", run, source, *out, "--scores", tmp_path / "scores.tsv")
    assert "|engine:" not in done.out
    refused = cotext("score", run, "--source", source, "--target", source, "--set", "engine=torch")
    assert "--set engine: scoring supports only" in refused.err


def test_an_exported_engine_is_no_run(make: Make, tmp_path: Path) -> None:
    export.export_engine(make(decode={"engine": "torch"}), tmp_path / "engine")
    opened = open_to_translate(tmp_path / "engine", "cpu")
    assert opened.loaded.engine
    must_raise("this is an engine", open_to_translate, tmp_path / "engine", "cpu", {"engine": "torch"})


def test_terms_are_kept_and_a_row_without_room_is_searched_by_torch(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make("s2to2")
    translator = face.load(run, "cpu", engine="ctranslate2")
    assert "|engine:" in translator.signature
    for document in documents[:3]:
        word = document.sentences[0].split()[0]
        assert "rote" in translator.translate(document.sentences, {word: "rote"})[0]
    own, opened = open_run(run, "cpu"), open_to_translate(run, "cpu", {"engine": "ctranslate2"})
    expected = texts(own, documents)
    engine = opened.translator.engine
    assert engine is not None
    searched = calls_of(monkeypatch, type(engine), "search", lambda own, sources, *rest: len(sources))
    # Above all sources, and below the longest targets with their prefixes.
    monkeypatch.setattr(engine, "positions", 24)
    counts: list[int] = []
    found = dict(opened.translator.translate(documents, counts.append))
    assert [found[n].document.sentences for n in range(len(documents))] == expected
    assert sum(counts) == sum(map(len, documents))
    assert any(searched)


def test_a_killed_job_resumes_with_its_engine(make: Make, tmp_path: Path) -> None:
    """Killed while converting, or after some documents: the same bytes; with torch it is another job."""
    run, source = make("s2to2", decode={"engine": "ctranslate2", "max_tokens": 40}), tmp_path / "in.en"
    write_documents(source, [Document(d.id, d.source) for d in toy_documents(6, 5)], "text")
    expected = tmp_path / "expected.de"
    shutil.copytree(run, tmp_path / "other")
    done = succeed("translate", tmp_path / "other", source, "--out", expected, "--device", "cpu")
    out = tmp_path / "out.de"
    command: list[str | Path] = ["translate", run, source, "--out", out, "--device", "cpu"]
    assert run_killed(command, Moment(path=f"cotext-{__version__}-{ENGINE_FORMAT}"))
    assert not engines(run / "engines")
    assert run_killed(command, Moment(path="out.de"))
    assert not out.exists()
    must_refuse("job.engine", *command, "--set", "engine=torch")
    again = succeed(*command)
    assert out.read_bytes() == expected.read_bytes()
    assert signature_entries(again.out)["engine"] == signature_entries(done.out)["engine"]
    assert not [path for path in (run / "engines").glob(".*") if path.name != LOCK]


def test_the_weights_of_a_run_are_not_changed(make: Make) -> None:
    run = make()
    opened = open_to_translate(run, "cpu")
    with safe_open(run / "model.safetensors", framework="pt") as file:
        for name, tensor in opened.loaded.with_states("test").state_dict().items():
            assert torch.equal(tensor, file.get_tensor(name)), name
