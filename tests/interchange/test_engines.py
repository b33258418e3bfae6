"""Engines of CTranslate2: they translate and score as the runs that they were exported from."""

import itertools
import json
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cotext.config.recipe import Config, dump_config, load_config, parse_config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_documents
from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    FairseqTokenizer,
    MarianTokenizer,
    Tokenizer,
    load_tokenizer,
)
from cotext.interchange.export import export_engine, installed, obstacles
from cotext.models import checkpoint
from cotext.models.build import build_model
from cotext.runtime.files import sealed, unsealed
from cotext.search import engine as engine_module
from cotext.search.engine import CTranslate2Engine, search_engine
from cotext.search.hypotheses import Alternative, Hypothesis
from cotext.translation import plan as plan_module
from cotext.translation.open import OpenedRun, open_run
from tests.command_line import Outcome, must_refuse, succeed
from tests.loops import loop_over
from tests.pretrained_folders import ENGLISH, m2m100_files, marian_files, sentences
from tests.refusals import must_raise
from tests.tiny import shake, translations
from tests.tiny_runs import toy_documents

pytestmark = pytest.mark.skipif(not installed(), reason="CTranslate2 is not installed")

SIZES = {"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
VIEWS: dict[str, dict[str, Any]] = {
    "sentence": {"kind": "sentence"},
    "bracket": {"kind": "sentence", "separators": "bracket"},
    "s2to2": {"kind": "window", "before": 1, "max_tokens": 60},
    "s4to4": {"kind": "window", "before": 3, "max_tokens": 60},
    "doc2doc": {"kind": "document", "max_tokens": 60},
    "indexed": {"kind": "document", "max_tokens": 60, "separators": "indexed", "indexed_separators": 4},
    "cumulative": {"kind": "cumulative", "max_tokens": 60},
}
# What models of other toolkits have.
KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "marian": {"activation": "swish", "wavelengths": "half", "output_bias": True},
    "m2m_100": {"first_position": 2},
    "mbart": {
        "activation": "gelu",
        "position_encoding": "learned",
        "learned_positions": 12,
        "first_position": 2,
        "embedding_norm": True,
        "output_bias": True,
    },
    "separate": {"separate_embeddings": True, "activation": "gelu_sigmoid"},
    "no positions": {"positions": "none"},
}
ENDING = 1.2  # how much more probable the symbols that close a sentence are made


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return load_tokenizer(data / "tokenizer")


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return [Document(d.id, d.source) for d in toy_documents(8, 3)]


@dataclass(frozen=True)
class Pair:
    """A run of random weights, and its engine in float32."""

    run: OpenedRun
    engine: OpenedRun

    def with_decode(self, **decode: Any) -> "Pair":
        return Pair(self.run.with_decode(decode), self.engine.with_decode(decode))


Make = Callable[..., Path]
Both = Callable[..., Pair]


@pytest.fixture(scope="module")
def make(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A run in which nothing is neutral, nor what no output holds of any weight."""
    folder = tmp_path_factory.mktemp("runs")

    def made(view: str, pre_norm: bool = False, ending: float = 0.0, kind: str = "own") -> Path:
        run = folder / f"{view}-{pre_norm}-{ending}-{kind}"
        if run.exists():
            return run
        config = config_of(view, {"pre_norm": pre_norm, **KINDS[kind]}, {"beam": 1, "max_extra": 6})
        return write(run, config, tokenizer, ending)

    return made


def config_of(view: str, model: Any = {}, decode: Any = {}, **train: Any) -> Config:  # noqa: B006
    content = {
        "view": VIEWS[view],
        "model": {**SIZES, **model},
        "train": {"threads": 1, **train},
        "decode": {"max_ratio": 1.0, **decode},
    }
    return parse_config(content, "test")


def write(run: Path, config: Config, tokenizer: Tokenizer, ending: float = 0.0) -> Path:
    torch.manual_seed(0)
    model: Any = build_model(config, tokenizer.vocabulary_size, tokenizer.source_vocabulary_size)
    shake(model)
    with torch.no_grad():
        last = model.decoder_norm if config.model.pre_norm else model.decoder[-1].after_feed_forward.norm
        last.bias[0] = 6
        for i in (tokenizer.unk, tokenizer.pad, tokenizer.bos):
            model.embedding.weight[i, 0] = -4
        for i in (tokenizer.eos, tokenizer.sep):
            model.embedding.weight[i, 0] += ending
    tokenizer.save(run / "tokenizer")
    (run / "config.yaml").write_text(dump_config(config))
    weights = model.state_dict()
    checkpoint.save_model(run / "model.safetensors", weights, config, tokenizer.fingerprint, [7])
    return run


@pytest.fixture(scope="module")
def both(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("engines")
    opened: dict[tuple[str, bool, float, str], Pair] = {}

    def pair(view: str, pre_norm: bool = False, ending: float = 0.0, kind: str = "own") -> Pair:
        key = view, pre_norm, ending, kind
        if key not in opened:
            run = make(*key)
            engine = folder / run.name
            export_engine(run, engine)
            opened[key] = Pair(open_run(run, "cpu"), open_run(engine, "cpu"))
        return opened[key]

    return pair


def assert_same(pair: Pair, documents: list[Document]) -> None:
    both = (translations(each.translator, documents) for each in (pair.run, pair.engine))
    for own, other in zip(*both, strict=True):
        assert own.document == other.document
        assert own.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
        assert (own.tokens, own.truncated, own.shed) == (other.tokens, other.truncated, other.shed)


views_and_norms = loop_over(
    ("view", "pre_norm"), list(zip(VIEWS, itertools.cycle((False, True)), strict=False))
)


@views_and_norms
def test_greedily_it_writes_alike(both: Both, documents: list[Document], view: str, pre_norm: bool) -> None:
    for ending in (0.0, ENDING):
        assert_same(both(view, pre_norm, ending), documents)


def test_other_kinds_and_regenerated_windows_write_alike(both: Both, documents: list[Document]) -> None:
    """Rows are longer than there are learned positions."""
    assert_same(both("s2to2").with_decode(target_context="regenerate"), documents)
    for kind, pre_norm in itertools.product(KINDS, (False, True)):
        assert_same(both("s2to2", pre_norm, ENDING, kind), documents)


@pytest.mark.parametrize("kind", ["languages", "two vocabularies"])
def test_tokenizers_of_pretrained_models(tmp_path: Path, kind: str) -> None:
    """Symbols of languages head the rows of both sides; pieces of the source may have ids of their own."""
    if kind == "languages":
        files = m2m100_files()
        tokenizer: Tokenizer = FairseqTokenizer.from_files(
            files["sentencepiece.bpe.model"],
            vocabulary=files["vocab.json"],
            languages=M2M100_LANGUAGES,
            source_language="en",
            target_language="de",
        )
        assert len(tokenizer.source_prefix) == len(tokenizer.target_prefix) == 1
    else:
        files = marian_files((), separate=True)
        # So that the source has more pieces than the target.
        source, target = files["source.spm"], files["target.spm"]
        vocabularies = files["vocab.json"], files["target_vocab.json"]
        if len(json.loads(vocabularies[0])) < len(json.loads(vocabularies[1])):
            source, target, vocabularies = target, source, vocabularies[::-1]
        tokenizer = MarianTokenizer.from_files(source, target, *vocabularies)
        assert tokenizer.source_vocabulary_size > tokenizer.vocabulary_size
    documents = [Document(str(i), tuple(sentences(ENGLISH, 3, i))) for i in range(3)]
    for view in ("s2to2", "doc2doc"):
        decode = {"beam": 1, "max_ratio": 0.5, "max_extra": 6}
        config = config_of(view, {"separate_embeddings": kind != "languages"}, decode)
        run, engine = write(tmp_path / view, config, tokenizer, ENDING), tmp_path / f"{view}-engine"
        export_engine(run, engine)
        pair = Pair(open_run(run, "cpu"), open_run(engine, "cpu"))
        assert_same(pair, documents)
        given = [(ParallelDocument(d.id, d.sentences, d.sentences[::-1]), range(3)) for d in documents]
        own, other = (r.translator.score_tokens(given) for r in (pair.run, pair.engine))
        for a, b in zip(own, other, strict=True):
            assert [len(x) for x in a] == [len(x) for x in b]
            assert sum(map(sum, a)) == pytest.approx(sum(map(sum, b)), abs=1e-3)


@loop_over("form", ["power", "gnmt"])
@loop_over("pre_norm", [False, True])
@loop_over("view", ["sentence", "s2to2", "s4to4"])
def test_with_a_beam_it_writes_what_the_run_writes(
    both: Both, documents: list[Document], view: str, pre_norm: bool, form: str
) -> None:
    decode = {"beam": 3, "max_extra": 30, "length_penalty_form": form}
    pair = both(view, pre_norm, 2 * ENDING).with_decode(**decode)
    own, other = (translations(r.translator, documents) for r in (pair.run, pair.engine))
    pairs = []
    for one, two in zip(own, other, strict=True):
        texts = zip(one.document.sentences, two.document.sentences, strict=True)
        scores = zip(one.log_probabilities, two.log_probabilities, strict=True)
        pairs += [(a == b, p - q) for (a, b), (p, q) in zip(texts, scores, strict=True)]
    # A search of the engine ends sooner, with as many hypotheses finished as the beam has.
    assert sum(same for same, _ in pairs) >= 0.9 * len(pairs)
    assert all(abs(difference) < 1e-4 for same, difference in pairs if same) or view == "s4to4"


@loop_over("beam", [1, 3])
@loop_over("view", VIEWS)
def test_as_many_sentences_come_out_and_their_scores_are_those_of_their_text(
    both: Both, documents: list[Document], view: str, beam: int
) -> None:
    """A random model puts no separators: sentences are forced, and each has a word."""
    for ending in (0.0, ENDING):
        engine = both(view, False, ending).engine.with_decode({"beam": beam, "max_tokens": 400})
        for source, found in zip(documents, translations(engine.translator, documents), strict=True):
            assert len(found.document) == len(source)
            assert all(found.document.sentences)
            if not found.resegmented:
                [scored] = engine.translator.score(
                    [ParallelDocument("d", source.sentences, found.document.sentences)]
                )
                assert found.log_probabilities == pytest.approx([s.log_probability for s in scored], abs=1e-4)


@views_and_norms
def test_scores_are_those_of_the_run(both: Both, view: str, pre_norm: bool) -> None:
    pair, given = both(view, pre_norm), toy_documents(5, 9)
    chosen = [(document, range(len(document.source))) for document in given]
    own, other = (r.translator.score_tokens(chosen) for r in (pair.run, pair.engine))
    for a, b in zip(own, other, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x == pytest.approx(y, abs=1e-4)


class Spied:
    """A translator of CTranslate2 that calls `before` with the name and the rows of every call."""

    def __init__(self, translator: Any, before: Callable[[str, Any], None]) -> None:
        self._translator, self._before = translator, before

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self._before(name, arguments)
            return getattr(self._translator, name)(*arguments, **options)

        return call


def test_a_search_reports_steps(
    both: Both, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search waits for three reports: without them, it would not end."""
    engine: Any = both("sentence").engine
    reports = threading.Semaphore(0)

    def wait_for_reports(name: str, rows: Any) -> None:
        if name == "translate_batch":
            for _ in range(3):
                assert reports.acquire(timeout=60)

    monkeypatch.setattr(engine_module, "STEP_SECONDS", 0.01)
    model = engine.loaded.model
    monkeypatch.setattr(model, "translator", Spied(model.translator, wait_for_reports))

    def on_sentences(count: int) -> None:
        if count == 0:
            reports.release()

    found = dict(engine.translator.translate(documents, on_sentences))
    assert len(found) == len(documents)


def test_scores_are_computed_for_a_few_rows_at_a_time(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2 keeps the probabilities of all tokens of all rows: 2 GB for a batch of long rows."""
    engine: Any = both("sentence").engine
    model, sizes = engine.loaded.model, []

    def note(name: str, rows: Any) -> None:
        sizes.append(len(rows[0]) * max(map(len, (*rows[0], *rows[1]))))

    given = toy_documents(8, 9)
    chosen = [(document, range(len(document.source))) for document in given]
    expected = engine.translator.score_tokens(chosen)
    monkeypatch.setattr(model, "translator", Spied(model.translator, note))
    monkeypatch.setattr(model, "_most_scored", 60)
    for a, b in zip(engine.translator.score_tokens(chosen), expected, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x == pytest.approx(y, abs=1e-5)
    assert len(sizes) > 2
    assert max(sizes) <= 60


def test_quantized_engines_run(make: Make, tmp_path: Path, documents: list[Document]) -> None:
    for quantization in ("int8", "int8_float32", "int8_float16", "float16"):
        export_engine(make("s2to2", False, ENDING), tmp_path / quantization, quantization)
        engine = open_run(tmp_path / quantization, "cpu")
        found = translations(engine.translator, documents)
        assert [len(t.document) for t in found] == [len(d) for d in documents]
        assert f"|quantization:{quantization}" in engine.signature


@loop_over("view", ["sentence", "s2to2", "indexed"])
def test_a_translation_does_not_depend_on_its_batch(
    make: Make, tmp_path: Path, documents: list[Document], view: str
) -> None:
    """In int8, to the last bit; with tight limits, which decide what a beam finds, in float32."""
    tight = view == "indexed"
    export_engine(make(view, False, ENDING), tmp_path / view, "float32" if tight else "int8")
    limits = {"max_extra": 0, "length_penalty": 2.0} if tight else {}
    engine = open_run(tmp_path / view, "cpu").with_decode({"beam": 3, **limits})
    words = 4 * " ".join(sentence for document in documents for sentence in document.sentences).split()
    documents = [*documents, *(Document(f"{n}", (" ".join(words[:n]),)) for n in (20, 40, 90, 180))]
    together = translations(engine.translator, documents)
    for document, found in zip(documents, together, strict=True):
        [alone] = translations(engine.translator, [document])
        rounded = pytest.approx(found.log_probabilities, abs=1e-4 if tight else 0)
        assert (alone.document, alone.log_probabilities) == (found.document, rounded)


def test_the_commands_take_an_engine_for_a_run(make: Make, tmp_path: Path) -> None:
    run, engine = make("s4to4", False, ENDING), tmp_path / "engine"
    done = succeed("export", run, "--to", "ctranslate2", "--out", engine)
    assert str(engine) in done.out
    assert not list(tmp_path.glob(".*"))
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    documents = [Document(d.id, d.source) for d in toy_documents(3, 5)]
    write_documents(source, documents, "text")
    expected = succeed("translate", run, source, "--out", tmp_path / "own.de", "--device", "cpu")
    done = succeed("translate", engine, source, "--out", out, "--device", "cpu")
    assert out.read_text() == (tmp_path / "own.de").read_text()
    assert "|engine:ctranslate2-" in done.out
    assert "|quantization:float32" in done.out
    assert of_model(done) == of_model(expected)
    asked = ("--source", source, "--target", out, "--device", "cpu")
    own, other = (succeed("score", each, *asked) for each in (run, engine))
    for a, b in zip(own.out.splitlines()[1:], other.out.splitlines()[1:], strict=True):
        assert float(a.split("\t")[2]) == pytest.approx(float(b.split("\t")[2]), abs=1e-4)
    assert "|engine:ctranslate2-" in other.err


def of_model(outcome: Outcome) -> str:
    """What the signature says of the model."""
    return outcome.out.partition("model:")[2].partition("|version")[0]


def test_18_recipes_are_expressible() -> None:
    expressible = (
        *("focused-concatenation/base", "focused-concatenation/s2to2", "focused-concatenation/s4to4-cd"),
        *("docflat/sent2sent", "docflat/doc2doc", "g-transformer/sent", "mcn/sent", "mcn/docnmt"),
        *("mr/doc2doc", "mr/doc2sent", "p-transformer/transformer-doc", "p-transformer/transformer-sent"),
    )
    for recipe in expressible:
        assert not list(obstacles(load_config(recipe, "tiny"))), recipe
    for recipe, setting in {
        "focused-concatenation/s4to4-shift-cd": "model.positions = shifted",
        "focused-concatenation/s4to4-lrn-cd": "model.segments = learned",
        "p-transformer/ctx": "model.attention.score = positions",
        "g-transformer/randinit": "model.attention.span = sentence",
        "docflat/docflat-c": "model.batch_context = flat",
        "docflat/doc2doc-numbered": "view.separators = numbered",
        "casa/casa": "model.writes = non_autoregressive",
        "mcn/final": "model.document_layer = segment_gate",
    }.items():
        assert setting in list(obstacles(load_config(recipe, "tiny"))), recipe


def test_what_cannot_be_exported_is_refused(make: Make, tokenizer: Tokenizer, tmp_path: Path) -> None:
    run = make("s2to2")
    write(tmp_path / "reset", config_of("sentence", {"positions": "reset"}), tokenizer)
    out = tmp_path / "engine"
    to = ("--to", "ctranslate2", "--out", out)
    must_refuse("does not support model.positions = reset", "export", tmp_path / "reset", *to)
    must_refuse("--quantization int4: choose one of float32", "export", run, *to, "--quantization", "int4")
    must_refuse("'onnx' is not one of", "export", run, "--to", "onnx", "--out", out)
    must_refuse("no such run folder", "export", tmp_path / "nowhere", *to)
    assert not out.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    must_refuse("exists", "export", run, "--to", "ctranslate2", "--out", tmp_path / "full")


def test_without_the_package(make: Make, both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = both("s2to2").engine.folder
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for module in ("cotext.search.engine", "cotext.interchange.export"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    must_raise(r"pip install '\.\[ctranslate2\]'", export_engine, make("s2to2"), tmp_path / "engine")
    must_raise(r"pip install '\.\[ctranslate2\]'", open_run, engine)


@loop_over(
    ("name", "problem"),
    [
        ("model.bin", "damaged, or does not belong"),
        ("config.json", "damaged, or does not belong"),
        ("tokenizer/sentencepiece.model", "damaged, or does not belong"),
        ("cotext.json", "damaged or cut off"),
    ],
)
def test_a_damaged_engine_is_refused(both: Both, tmp_path: Path, name: str, problem: str) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(both("s2to2").engine.folder, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    must_raise(problem, open_run, folder)
    (folder / name).write_bytes(bytes(content[: len(content) // 2]))
    must_raise(problem, open_run, folder)
    if name != "cotext.json":
        (folder / name).unlink()
        must_raise("is missing; export the run again", open_run, folder)


def test_a_description_may_not_reach_outside(both: Both, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(both("s2to2").engine.folder, folder)
    said = unsealed((folder / "cotext.json").read_text())
    for change, problem in (
        ({"checksums": {"../secret": "0"}}, "outside its folder"),
        ({"checksums": []}, "not the description of an engine"),
        ({"format": 99}, "engine format 99"),
        ({"engine": "onnx"}, "does not support the engine onnx"),
        ({"positions": None}, "not the description"),
    ):
        (folder / "cotext.json").write_text(sealed({**said, **change}) + "\n")
        must_raise(problem, open_run, folder)


def test_limits(both: Both, make: Make, tmp_path: Path) -> None:
    """Nothing is cut silently: longer rows are refused, and limits hold where positions end."""
    pair = both("sentence")
    assert isinstance(pair.engine.loaded.model, CTranslate2Engine)
    must_raise("max_source_tokens = 5000: the engine", pair.engine.with_decode, {"max_source_tokens": 5000})
    must_raise(
        "align = free: engines return exactly the requested", pair.engine.with_decode, {"align": "free"}
    )
    word = toy_documents(1, 1)[0].source[0].split()[0]
    long = Document("long", (" ".join([word] * 400),))
    [own], [other] = (translations(r.translator, [long]) for r in (pair.run, pair.engine))
    assert own.document == other.document
    must_raise("no checkpoints", open_run, pair.engine.folder, update=3)


def test_what_looks_into_a_model_refuses_an_engine(both: Both, tmp_path: Path) -> None:
    folder, source = both("s2to2").engine.folder, tmp_path / "d.en"
    write_documents(source, [Document("1", ("the cat sees the dog", "the dog runs"))], "text")
    out = ("--out", tmp_path / "out")
    must_refuse("engine", "attention", folder, source, *out)


def test_no_path_of_the_machine_is_in_a_folder(make: Make, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config, engine = config_of("s2to2", init="/home/someone/runs/base"), tmp_path / "engine"
    run = write(tmp_path / "run", config, tokenizer)
    noted = {"folder": "/home/someone/data/mix", "checksums": {"train.arrow": "0"}}
    (run / "data.json").write_text(sealed(noted) + "\n")
    export_engine(run, engine)
    for name in ("cotext.json", "data.json"):
        assert "someone" not in (engine / name).read_text()
    told = json.loads(succeed("info", engine, "--json").out)
    assert told["system"]["init"] == "base"


def test_a_first_pass_is_still_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = write(tmp_path / "first", config_of("sentence"), tokenizer, ENDING)
    config = config_of("s2to2", decode={"first_pass": "init"}, init=str(first))
    export_engine(write(tmp_path / "run", config, tokenizer, ENDING), tmp_path / "engine")
    opened = open_run(tmp_path / "engine", "cpu")
    assert opened.first_pass is not None
    assert opened.first_pass.folder == first


def test_how_a_run_computes_is_not_asked_of_its_engine(
    tokenizer: Tokenizer, tmp_path: Path, documents: list[Document]
) -> None:
    config = config_of("sentence", decode={"precision": "bfloat16", "shortlist": 5})
    export_engine(write(tmp_path / "run", config, tokenizer, ENDING), tmp_path / "engine")
    assert len(translations(open_run(tmp_path / "engine", "cpu").translator, documents)) == len(documents)


def test_info_tells_what_an_engine_is(make: Make, tmp_path: Path) -> None:
    run, engine = make("s4to4"), tmp_path / "engine"
    export_engine(run, engine, "int8")
    of_run, told = (json.loads(succeed("info", each, "--json").out) for each in (run, engine))
    assert told["format"] == "cotext-engine"
    for key in ("signature", "system", "tokenizer"):
        assert told[key] == of_run[key]
    assert told["engine"]["parameters"] == of_run["model"]["parameters"]
    assert told["engine"]["quantization"] == "int8"
    assert told["problems"] == []
    shown = succeed("info", engine).out
    for words in ("an engine", "quantization  int8", "view          window-3+1+0", "all whole"):
        assert words in shown
    (engine / "model.bin").write_bytes(b"")
    shown = succeed("info", engine).out
    assert "model.bin: damaged" in shown
    assert "quantization  int8" in shown
    (engine / "cotext.json").write_text("{}")
    assert "cotext.json: damaged" in succeed("info", engine).out


def test_speed_times_an_engine(make: Make, tmp_path: Path) -> None:
    run, engine = make("sentence", False, ENDING), tmp_path / "engine"
    export_engine(run, engine)
    text = tmp_path / "in.en"
    write_documents(text, [Document(d.id, d.source) for d in toy_documents(2, 5)], "text")
    given = ("--document", text, "--rounds", "1", "--setting", "one", "--device", "cpu", "--json")
    told = json.loads(succeed("speed", engine, *given).out)
    names = [way["way"] for way in told["settings"]["one"]]
    assert names == ["engine, greedy", "engine, greedy, one by one"]
    assert all("|engine:ctranslate2-" in way["signature"] for way in told["settings"]["one"])


@loop_over(("ending", "limit"), [(ENDING, 6), (0.0, 1)])
@loop_over("view", ["s2to2", "doc2doc"])
def test_lists_of_an_engine_are_true(
    both: Both,
    documents: list[Document],
    view: str,
    ending: float,
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of windows of one sentence and of whole pieces, where sentences end by themselves or are forced to."""
    searched = 0

    def spying(model: Any, source: Any, requests: Any, symbols: Any, options: Any) -> list[Hypothesis]:
        nonlocal searched
        found = search_engine(model, source, requests, symbols, options)
        for row, (request, hypothesis) in enumerate(zip(requests, found, strict=True)):
            own = source.tokens[row][source.sentence[row] >= 0].tolist()
            first = request.first_sentence + request.closed_before(symbols)
            closer = [symbols.special.separator(first)] if request.row_continues else []
            best = Alternative(tuple(hypothesis.tokens), hypothesis.log_probability, hypothesis.score)
            for each in (best, *(o for others in hypothesis.others for o in others)):
                if request.sentences == 1:
                    [scores] = model.score([own], [[*request.prefix, *each.tokens, *closer]])
                    start, length = len(request.prefix), len(each.tokens) + 1
                    total = sum(scores[start : start + length])
                    assert each.log_probability == pytest.approx(total, abs=1e-4)
                    assert each.score == pytest.approx(total / length**0.6, abs=1e-4)
                    searched += 1
        return found

    monkeypatch.setattr(plan_module, "search_engine", spying)
    decode = {"beam": 4, "max_ratio": 1.0, "max_extra": limit}
    plain = both(view, ending=ending).engine.with_decode(decode)
    engine = plain.with_decode({**decode, "nbest": 4})
    before = dict(plain.translator.translate(documents))
    searched = 0
    lengths = []
    for index, translation in engine.translator.translate(documents):
        assert translation.document == before[index].document
        for text, candidates in zip(translation.document.sentences, translation.lists, strict=True):
            assert candidates[0].text == text
            assert len({candidate.text for candidate in candidates}) == len(candidates)
            scores = [candidate.score for candidate in candidates[1:]]
            assert scores == sorted(scores, reverse=True)
            lengths.append(len(candidates))
    assert searched >= sum(lengths) - len(lengths)
    assert max(lengths) == 4
