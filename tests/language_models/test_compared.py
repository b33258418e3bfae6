"""Language models, and files of translations, beside runs in `compare`."""

import json
import shutil
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.formats import write_parallel
from tests.command_line import World, cotext, succeed
from tests.language_models.fake import Fake
from tests.language_models.test_suites_judged import described
from tests.tiny_runs import toy_documents


@pytest.fixture
def test_set(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "d.en", tmp_path / "d.de"
    documents = [d for d in toy_documents(40, 9) if len(d.source) in (1, 4)][:4]
    write_parallel(source, target, documents, "docids")
    return source, target


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    """A run of its own, as comparisons keep what they measure in it."""
    return shutil.copytree(world.run, tmp_path / "run")


def test_compare_a_run_with_a_language_model_and_a_file(
    run: Path, test_set: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = test_set
    given = tmp_path / "others.de"
    given.write_bytes(target.read_bytes())
    given.with_suffix(".docids").write_bytes(target.with_suffix(".docids").read_bytes())
    page = tmp_path / "page.html"
    files = (
        "--source",
        source,
        "--reference",
        target,
        "--out",
        page,
        "--set",
        "beam=1",
        "--protocol",
        "s-bleu",
        "--samples",
        "100",
    )
    with Fake() as fake:
        path = described(tmp_path, fake)
        shown = json.loads(succeed("compare", run, path, given, *files, "--json").out)
        asked = len(fake.requests)
        succeed("compare", run, path, given, *files)
        assert len(fake.requests) == asked
    first, model, file = shown["systems"]
    assert (model["recipe"], file["recipe"]) == ("a language model", "translations in a file")
    assert model["has_context"]
    words = [line for lines in shown["verdict"].values() for line in lines]
    assert "For others.de, only translations were given, so context use cannot be tested." in words
    assert not any("others.de reads single sentences" in line for line in words)
    figures = {(f["system"], f["name"]): f for f in shown["figures"] if f["kind"] in ("score", "run")}
    assert figures["others.de", "s-BLEU"]["value"] == pytest.approx(100.0)
    assert (first["system"], "parameters") in figures
    assert ("model.yaml", "parameters") not in figures
    text = page.read_text()
    assert "For others.de, only translations were given" in text


def test_what_cannot_be_compared_is_refused_before_any_work(
    run: Path, test_set: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = test_set
    page, suite = tmp_path / "page.html", tmp_path / "suite.json"
    examples = tuple(
        ContrastiveExample(f"e{n}", "x", 1, ("a", "b"), (("a", "er"), ("a", "sie")), 0, {}, f"d{n}")
        for n in range(2)
    )
    write_suite(suite, ContrastiveSuite("s", "en", "de", examples))
    files = ("--source", source, "--reference", target, "--out", page)
    with Fake() as fake:
        path = described(tmp_path, fake)
        refused = cotext("compare", run, path, *files, "--suite", suite)
        assert refused.code == 2
        assert "compared only on a test set" in refused.err
        assert not fake.requests
    refused = cotext("compare", run, target, *files, "--suite", suite)
    assert "compared only on a test set" in refused.err
    refused = cotext("compare", run, target, "--suite", suite, "--out", page)
    assert refused.code == 2
    refused = cotext("compare", run, tmp_path / "nothing", *files)
    assert "no such run folder" in refused.err
    assert not page.exists()


def test_instructions_of_wmt_are_for_translate_and_not_for_compare(run: Path, tmp_path: Path) -> None:
    """Other systems are not told them, and they are of documents with their markup, not of sentences."""
    lines = [
        {
            "doc_id": f"d{n}",
            "src_lang": "en",
            "tgt_lang": "de_DE",
            "src_text": "<p>The cat sees. A dog runs.</p>",
            "prompt_instruction": "Keep all tags.",
            "refs": {"A": {"ref": "<p>Katze sieht. Hund rennt.</p>"}},
        }
        for n in range(2)
    ]
    wmt, page = tmp_path / "wmt.jsonl", tmp_path / "page.html"
    wmt.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    files = ("--source", wmt, "--reference", wmt, "--out", page, "--samples", "100")
    with Fake() as fake:
        path = described(tmp_path, fake)
        succeed("compare", run, path, *files, "--no-use")
        assert fake.requests
        assert not any("Keep all tags." in request.text for request in fake.requests)
        succeed("translate", path, wmt, "--out", tmp_path / "out.jsonl")
        assert all("Keep all tags." in request.text for request in fake.requests[-2:])
