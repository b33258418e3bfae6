"""`prepare --tokenizer` of a tokenizer of many languages, and what follows from it, on the command line."""

import json
import shutil
from pathlib import Path

import pytest

from cotext.config.recipe import load_config
from cotext.data.tokenizer import FairseqTokenizer, ImportedTokenizer, MarianTokenizer, load_tokenizer
from cotext.evaluation.requests import ComparisonRequest
from cotext.evaluation.studies.compare.measured import MeasurementSettings, measure_run
from cotext.runtime.progress import Meter
from tests.command_line import TINY, World, must_refuse, prepare_arguments, succeed, train_arguments
from tests.pretrained_folders import NLLB_LANGUAGES, TAGS, marian_files, pieces, spm, vocabulary
from tests.tiny_runs import write_run

SMALL = TINY[:5]  # the sizes of the model


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of a tokenizer of many languages, and folders with the tokenizers of others."""
    folder = tmp_path_factory.mktemp("taken")
    model = spm("both", "bpe")
    first = len(pieces(model)) + 4
    rows = {name: first + i for i, name in enumerate(NLLB_LANGUAGES)}
    many = FairseqTokenizer.from_files(model, languages=rows, rows=first + len(rows) + 1)
    # As an import does: another pair than that of the corpus is chosen.
    many = many.with_languages("eng_Latn", "zho_Hans")
    run = write_run(folder / "run", load_config("g-transformer/sent", None, SMALL), many)
    files = marian_files(TAGS)
    tags = MarianTokenizer.from_files(files["source.spm"], files["target.spm"], files["vocab.json"])
    tags.save(folder / "tags" / "tokenizer")
    tags.with_languages("", "fra").save(folder / "french" / "tokenizer")
    files = marian_files()
    one = MarianTokenizer.from_files(files["source.spm"], files["target.spm"], files["vocab.json"])
    one.save(folder / "one" / "tokenizer")
    FairseqTokenizer.from_files(model, languages=rows).save(folder / "none chosen" / "tokenizer")
    return {"run": run, **{name: folder / name for name in ("tags", "french", "one", "none chosen")}}


def prepare(world: World, out: Path, taken: Path, *more: str) -> list[str | Path]:
    return [*prepare_arguments(world.folder, out, taken), *more]


@pytest.fixture(scope="module")
def data(world: World, taken: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "de"
    shown = succeed(*prepare(world, out, taken["run"], "--target-language", "deu")).out
    assert "sequences begin with the symbols of eng_Latn-deu_Latn" in shown
    return out


def tokenizer(folder: Path) -> ImportedTokenizer:
    found = load_tokenizer(folder / "tokenizer")
    assert isinstance(found, ImportedTokenizer)
    return found


def test_the_language_is_kept_beside_the_text(data: Path, taken: dict[str, Path]) -> None:
    there, here = tokenizer(taken["run"]), tokenizer(data)
    assert here.fingerprint == there.fingerprint
    assert here.source_prefix == there.source_prefix
    assert here.target_prefix == (here.languages["deu_Latn"],) != there.target_prefix
    report = json.loads((data / "report.json").read_text())
    assert report["tokenizer"]["languages"] == "eng_Latn-deu_Latn"
    assert report["languages"] == {"source": "en", "target": "de"}
    # Neither the text nor what is counted of it holds a symbol.
    head = succeed("head", data, "--split", "dev", "--json").out
    assert "Latn" not in head
    assert "eng_Latn-deu_Latn" in succeed("info", data).out


def test_languages_that_are_not_there(world: World, taken: dict[str, Path], tmp_path: Path) -> None:
    for name, asked, message in (
        ("french", (), "--target-language, is en-fr, and the corpus is en-de"),
        ("run", ("--target-language", "fra_Latn"), "not among the languages of the tokenizer; there are: d"),
        ("run", ("--source-language", "en"), "--source-language 'en'"),
        ("tags", (), "no target language is chosen; give --source-language and --target-language one of: d"),
        ("none chosen", (), "no source and no target language is chosen"),
    ):
        must_refuse(message, *prepare(world, tmp_path / "out", taken[name], *asked))
        assert not (tmp_path / "out").exists()
    # A pair of languages needs none, and any may be named.
    succeed(*prepare(world, tmp_path / "out", taken["one"], "--target-language", "de"))
    assert tokenizer(tmp_path / "out").source_prefix == ()
    succeed(*prepare(world, tmp_path / "tagged", taken["tags"], "--target-language", "deu"))
    assert len(tokenizer(tmp_path / "tagged").source_prefix) == 1


def test_from_training_to_scoring(world: World, taken: dict[str, Path], data: Path, tmp_path: Path) -> None:
    run, source = tmp_path / "run", world.folder / "test.en"
    arguments = train_arguments(world.folder, run, f"train.init={taken['run']}", "train.init_parts=all")
    arguments[arguments.index("--data") + 1] = data
    message = "are eng_Latn-zho_Hans; the system will learn another language"
    assert message in " ".join(succeed(*arguments).err.split())
    assert tokenizer(run).target_prefix == tokenizer(data).target_prefix
    written: dict[str, list[str]] = {}
    for name in ("", "deu_Latn", "zho_Hant"):
        out = tmp_path / f"out{name}"
        asked = ("--target-language", name) if name else ()
        shown = succeed("translate", run, source, "--out", out, *asked, "--scores", f"{out}.tsv").out
        assert f"languages:eng_Latn-{name or 'deu_Latn'}|" in shown
        compared = ComparisonRequest(runs=[run], out=tmp_path / "x.html", decode={"target_language": name})
        measured = measure_run(run, "", MeasurementSettings(compared, None, {}, Meter))
        assert str(measured.languages) == f"en-{name[:2] or 'de'}"
        written[name] = (tmp_path / f"out{name}.tsv").read_text().splitlines()
    assert written[""] == written["deu_Latn"] != written["zho_Hant"]
    files = ("--source", source, "--target", world.folder / "test.de")
    chinese = ("--set", "target_language=zho_Hant")
    scored = [json.loads(succeed("score", run, *files, *asked, "--json").out) for asked in ((), chinese)]
    assert scored[0]["documents"] != scored[1]["documents"]
    assert "|languages:eng_Latn-zho_Hant|" in scored[1]["signature"]
    german = ("--out", tmp_path / "x", "--target-language", "de")
    must_refuse("has no language symbols", "translate", world.run, source, *german)
    # Going on with data of another language is refused as any other data are.
    other = tmp_path / "zh"
    shutil.copytree(data, other)
    told = json.loads((other / "tokenizer" / "tokenizer.json").read_text())
    told["languages"]["target"] = "zho_Hans"
    (other / "tokenizer" / "tokenizer.json").write_text(json.dumps(told, indent=2))
    arguments[arguments.index("--data") + 1] = other
    must_refuse("choice of languages changed", *arguments, "train.max_updates=8")


@pytest.mark.parametrize(("source_pieces", "target_pieces"), [("both", "target"), ("target", "both")])
def test_two_vocabularies(source_pieces: str, target_pieces: str, world: World, tmp_path: Path) -> None:
    """Source ids beyond those of the target are trained on, translated and scored; one matrix takes none.

    Nor one with room for both, where the target has more pieces.
    """
    files = marian_files(TAGS, separate=True)
    files["source.spm"], files["target.spm"] = spm(source_pieces), spm(target_pieces)
    files["vocab.json"] = vocabulary(files["source.spm"], tags=TAGS)
    files["target_vocab.json"] = vocabulary(files["target.spm"])
    names = (*MarianTokenizer.required, *MarianTokenizer.optional)
    made = MarianTokenizer.from_files(*(files[name] for name in names))
    made.save(tmp_path / "two" / "tokenizer")
    assert (made.source_vocabulary_size > made.vocabulary_size) == (source_pieces == "both")
    data, run, source = tmp_path / "data", tmp_path / "run", world.folder / "test.en"
    succeed(*prepare(world, data, tmp_path / "two", "--target-language", "fra"))
    arguments = train_arguments(world.folder, run)
    arguments[arguments.index("--data") + 1] = data
    must_refuse("separate_embeddings", *arguments)
    assert not run.exists()
    succeed(*arguments, "model.separate_embeddings=true")
    out, scores = tmp_path / "out.de", tmp_path / "scores"
    succeed("translate", run, source, "--out", out, "--scores", scores)
    again = succeed("score", run, "--source", source, "--target", world.folder / "test.de").out
    assert len(again.splitlines()) == len(scores.read_text().splitlines())


def test_a_system_that_reads_no_target_is_refused(data: Path, tmp_path: Path) -> None:
    deep = ("model.encoder_layers=2", "model.decoder_layers=2")
    places = ("--data", data, "--out", tmp_path / "casa")
    must_refuse("is non-autoregressive", "train", "casa/casa", *SMALL, *deep, *places)
    assert not (tmp_path / "casa").exists()
