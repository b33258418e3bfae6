"""Document systems that start from imports of every class: no jump on single sentences, and refusals."""

import random
from pathlib import Path

import pytest

from cotext.config.recipe import load_config
from cotext.data.documents import Languages, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest
from cotext.interchange.importing import import_model
from cotext.models.checkpoint import load_run
from cotext.runtime.files import unsealed
from cotext.training.run import train
from tests.loops import loop_over
from tests.pretrained_folders import ENGLISH, GERMAN, sentences
from tests.pretrained_models import FOLDERS, LANGUAGES
from tests.refusals import must_raise
from tests.tiny_runs import silent

pytest.importorskip("transformers")
QUICK = [
    *("train.max_updates=1", "train.validate_every=1", "train.validate_bleu=false", "train.max_tokens=300"),
    *("train.accumulate=1", "train.threads=1", "train.word_dropout=0"),
]
KINDS = ("swish", "two vocabularies", "nllb", "mbart-50")


def corpus(path: Path, count: int, seed: int) -> Path:
    generator = random.Random(seed)
    documents = []
    for number in range(count):
        length = generator.randint(1, 4)
        sides = (tuple(sentences(words, length, generator.randrange(10**6))) for words in (ENGLISH, GERMAN))
        documents.append(ParallelDocument(f"d{number}", *sides))
    write_parallel(path, None, documents, "jsonl")
    return path


@pytest.fixture(scope="module", params=KINDS)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An import and data in its tokenizer."""
    top = tmp_path_factory.mktemp("start")
    languages = LANGUAGES.get(request.param, ("", ""))
    import_model(FOLDERS[request.param](top / "there"), top / "run", Languages(*languages))
    train_file, dev_file = corpus(top / "train.jsonl", 8, 1), corpus(top / "dev.jsonl", 3, 2)
    prepare(
        PreparationRequest(
            source=train_file, dev_source=dev_file, out=top / "data", tokenizer=str(top / "run"), workers=1
        )
    )
    return top / "run", top / "data"


@loop_over("recipe", ["opus/s4to4-shift-cd", "opus/p-transformer", "opus/mcn", "modern/rotary"])
def test_no_jump(recipe: str, started: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = started
    config = load_config(recipe, None, [*QUICK, f"train.init={run}"])
    if config.model.positions == "none" and load_run(run).config.model.position_encoding == "learned":
        must_raise("without positions .none. has no use", train, config, data, tmp_path / "run", silent())
        return
    train(config, data, tmp_path / "run", silent())
    loss = unsealed((tmp_path / "run" / "init.json").read_text())["loss"]
    assert loss["sentences_here"] == pytest.approx(loss["sentences_there"], rel=1e-5)
    there, here = load_run(run).config.model, load_run(tmp_path / "run").config.model
    for key in ("dimension", "activation", "pre_norm", "wavelengths", "first_position", "embedding_norm"):
        assert getattr(here, key) == getattr(there, key)


def test_casa_takes_the_encoder(started: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = started
    config = load_config("opus/casa", None, [*QUICK, f"train.init={run}"])
    if load_run(run).tokenizer.target_prefix:
        must_raise("and reads no target", train, config, data, tmp_path / "run", silent())
        return
    train(config, data, tmp_path / "run", silent())
    account = unsealed((tmp_path / "run" / "init.json").read_text())
    assert any(name.startswith("encoder.") for name in account["taken"])
    assert not any(name.startswith("decoder.") for name in account["taken"])


def test_numbers_of_sentences_and_separate_vocabularies(started: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = started
    config = load_config("opus/docflat-c", None, [*QUICK, f"train.init={run}"])
    if load_run(run).tokenizer.source_vocabulary_size == load_run(run).tokenizer.vocabulary_size:
        train(config, data, tmp_path / "run", silent())
    else:
        must_raise("choose plain or bracket", train, config, data, tmp_path / "run", silent())
