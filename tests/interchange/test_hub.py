"""Runs that can be published: what the folder and its card say, and that they load as the card says."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import cotext as face
from cotext.config.recipe import load_config
from cotext.data.tokenizer import load_tokenizer
from cotext.interchange.model_names import OF_RUN
from cotext.models.run_folder import noted_import
from cotext.runtime.files import sealed
from tests.command_line import World, must_refuse, succeed
from tests.tiny_runs import toy_documents, write_run

SMALL = ("model.dimension=16", "model.feed_forward=32", "model.heads=2", "train.threads=1", "languages=en-de")
SHORT = ("decode.max_ratio=1.0", "decode.max_extra=3", "decode.beam=2")
TOTALS = {"documents": 24, "sentences": 1234, "source_tokens": 5678, "target_tokens": 9012}


Make = Callable[..., Path]


@pytest.fixture
def make(world: World, tmp_path: Path) -> Make:
    tokenizer = load_tokenizer(world.folder / "data" / "tokenizer")

    def made(recipe: str = "g-transformer/randinit", *changes: str) -> Path:
        config = load_config(recipe, "tiny", [*SMALL, *SHORT, *changes])
        return write_run(tmp_path / "private" / "runs" / recipe.replace("/", "-"), config, tokenizer)

    return made


def published(run: Path, out: Path, *options: str | Path) -> tuple[dict[str, Any], str]:
    """The head of the card, and all of it."""
    succeed("export", run, "--to", "hub", "--out", out, *options)
    card = (out / "README.md").read_text()
    head = re.match("---\n(.*?)\n---\n", card, re.DOTALL)
    assert head is not None
    return yaml.safe_load(head[1]), card


def test_the_three_lines_of_the_card_work(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make()
    _, card = published(run, tmp_path / "pub-1")
    lines = card.split("```python\n")[1].split("```")[0]
    assert len(lines.splitlines()) == 3
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    assert capsys.readouterr().out.count("'") == 4  # two sentences
    own, other = face.load(run, "cpu"), face.load(tmp_path / "pub-1", "cpu")
    [document] = toy_documents(1, 2)
    assert own.translate(document.source) == other.translate(document.source)
    assert own.signature == other.signature


@pytest.mark.parametrize("to", ["hub", "int8", "ctranslate2"])
def test_a_folder_with_something_else_is_left_alone(make: Make, tmp_path: Path, to: str) -> None:
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2")
    run, out = make("focused-concatenation/s4to4"), tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")
    must_refuse("exists; choose another --out", "export", run, "--to", to, "--out", out)
    assert [path.name for path in out.iterdir()] == ["notes"]


def test_what_is_known_is_said_and_nothing_else(make: Make, tmp_path: Path) -> None:
    run = make("focused-concatenation/s2to2", f"train.init={tmp_path}/private/runs/first")
    data = {"folder": str(tmp_path / "private" / "news"), "train": TOTALS, "dev": TOTALS}
    data["checksums"] = {"train.arrow": "abc123", "choice of languages": "-deu"}
    (run / "data.json").write_text(sealed(data))
    head, card = published(run, tmp_path / "pub", "--licence", "cc-by-4.0")
    assert head == {
        "language": ["en", "de"],
        "license": "cc-by-4.0",
        "library_name": "cotext",
        "pipeline_tag": "translation",
        "tags": ["translation", "document-level-translation", "cotext"],
    }
    assert "focused-concatenation/s2to2" in card
    assert "| view | window-1+1+0 |" in card
    assert "24 documents, 1,234 sentences, 5,678 source tokens, 9,012 target tokens" in card
    assert "| choice of languages | `-deu` |\n| SHA-256 of train.arrow | `abc123` |" in card
    assert "| started from | first |" in card
    assert "| decoding | beam 2, length penalty 0.6 |" in card
    assert "Test scores and contrastive accuracies: not recorded." in card
    for path in (tmp_path / "pub").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes(), path
    assert {path.name for path in (tmp_path / "pub").iterdir()} == {
        *("README.md", "config.yaml", "data.json", "model.safetensors", "tokenizer")
    }


def test_nothing_is_invented(make: Make, tmp_path: Path) -> None:
    run = make("mcn/final", "languages=''")
    head, card = published(run, tmp_path / "pub")
    assert head.keys().isdisjoint(("language", "license", "metrics"))
    for words in ("(languages not recorded)", "| licence | not recorded |", "| train | not recorded |"):
        assert words in card
    assert "| decoding | beam 2, length penalty gnmt-0.6 |" in card
    assert "beam 2 lp gnmt-0.6 constrained" in succeed("info", run).out


ORIGIN = {"class": "MarianMTModel", "folder": "opus-mt-en-de"}
NOTE = {"format": "cotext-import", "licence": "cc-by-4.0", **ORIGIN}


def test_an_import_is_told_and_stays_one(make: Make, tmp_path: Path) -> None:
    first = make("opus/sentence", "train.init=x")
    (first / "import.json").write_text(sealed(NOTE))
    config = load_config("opus/sentence", "tiny", [*SMALL, *SHORT, f"train.init={first.name}"])
    run = write_run(tmp_path / "tuned", config, load_tokenizer(first / "tokenizer"))
    (run / "init.json").write_text(sealed({"run": str(first)}))
    head, card = published(run, tmp_path / "pub-tuned")
    told = f"| started from | {first.name}, an import of MarianMTModel opus-mt-en-de (licence cc-by-4.0) |"
    assert told in card
    succeed("export", run, "--to", "int8", "--out", tmp_path / "int8")
    assert told in published(tmp_path / "int8", tmp_path / "pub-int8")[1]
    assert "trained with Cotext" in card
    assert "license" not in head  # of what was made from it, its owner says
    head, card = published(first, tmp_path / "pub")
    assert head["license"] == "cc-by-4.0"
    assert "| started from | MarianMTModel opus-mt-en-de, not trained here |" in card
    assert "trained with Cotext" not in card
    assert "It was trained on rows" not in card
    assert noted_import(tmp_path / "pub") == NOTE
    assert "import.json" in OF_RUN
    head, _ = published(first, tmp_path / "pub-2", "--licence", "mit")
    assert head["license"] == "mit"
    (first / "import.json").write_text(sealed({**NOTE, "licence": "as they like"}))
    assert "license" not in published(first, tmp_path / "pub-3")[0]


def test_scores_stand_with_their_signatures(make: Make, tmp_path: Path) -> None:
    run = make()
    score = {"protocol": "s-bleu", "title": "s-BLEU", "value": 31.416, "signature": "nrefs:1|case:mixed"}
    scores = {"s-bleu": score, "term-success": {**score, "title": "term success"}}
    evaluation = {"format": "cotext-evaluation", "systems": {"a|b": {"scores": scores}}}
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    (run / "other.json").write_text("[1, 2")
    accuracy = {"accuracy_percent": 71.25, "total": 1000}
    report = {"signature": "suite:x|tie:wrong", "overall": accuracy, "by_phenomenon": {"deixis": accuracy}}
    (tmp_path / "suite.json").write_text(json.dumps({"consistency": report}))
    head, card = published(run, tmp_path / "pub", "--scores", tmp_path / "suite.json")
    assert head["metrics"] == ["bleu", "term-success", "accuracy"]
    (run / "checkpoints" / "00000001").mkdir(parents=True)
    (run / "checkpoints" / "00000001" / "model.safetensors").hardlink_to(run / "model.safetensors")
    assert "metrics" not in published(run, tmp_path / "pub-1", "--checkpoint", "1")[0]  # of other weights
    assert "| s-BLEU | a\\|b | 31.42 | `nrefs:1\\|case:mixed` |" in card
    assert "| consistency | deixis, 1,000 examples | 71.25 | `suite:x\\|tie:wrong` |" in card


def test_what_the_commands_write_is_read(world: World, make: Make, tmp_path: Path) -> None:
    run, out = make(), tmp_path / "evaluation.json"
    texts = ("--hypothesis", world.folder / "test.de", "--reference", world.folder / "test.de")
    out.write_text(succeed("evaluate", *texts, "--json").out)
    suite = next(world.folder.glob("*suite*"))
    succeed("contrastive", run, suite, "--out", tmp_path / "c.json", "--device", "cpu")
    scores = ("--scores", out, "--scores", tmp_path / "c.json")
    head, card = published(run, tmp_path / "pub", *scores)
    assert "bleu" in head["metrics"]
    assert "accuracy" in head["metrics"]
    assert "100.00" in card


def test_what_cannot_be_published_is_refused(make: Make, tmp_path: Path) -> None:
    run, out = make(), tmp_path / "pub"
    to = ("--to", "hub", "--out", out)
    must_refuse("write it as the hub does", "export", run, *to, "--licence", "Do what\nyou like")
    (tmp_path / "no.json").write_text('{"a": {"overall": 1}}')
    must_refuse("contains no scores", "export", run, *to, "--scores", tmp_path / "no.json")
    must_refuse("--quantization requires --to ctranslate2", "export", run, *to, "--quantization", "int8")
    two = make("docflat/doc2doc-two-pass", "train.init=runs/first")
    must_refuse("decode.first_pass = init: it translates with another run", "export", two, *to)
    assert not out.exists()
