import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import cotext as package
from cotext.config.recipe import recipe_names
from cotext.data.documents import Document
from cotext.data.formats import (
    FORMATS,
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
)
from cotext.data.requests import CorpusFormat
from cotext.models.describe import PAPERS
from cotext.runtime.request import options_of
from cotext.translation.translator import DocumentTranslator, Translation
from tests.command_line import World, documents_file, must_refuse, process_environment, succeed, write_corpus
from tests.loops import loop_over
from tests.tiny_runs import toy_documents

LOCALES = ("cs_CZ", "de_AT")
README = Path(__file__).resolve().parents[2] / "README.md"


def in_a_fresh_process(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=process_environment()
    ).stdout


def test_what_needs_no_model_does_not_wait_for_torch(world: World, tmp_path: Path) -> None:
    """One after the other in one process: after none of them is more there."""
    texts = f"{world.folder}/train.de --source {world.folder}/train.en"
    first = ("--help", "--version", "translate --help", "nonsense", "systems", "")
    later = (f"info {world.run}", f"info {world.folder}/data", f"audit {texts} --out {tmp_path}/a.html")
    code = (
        "import os, sys, cotext; cotext.Document, cotext.CotextError\n"
        "from cotext.cli.main import main\n"
        f"for words in {(*first, *later)!r}:\n"
        "    sys.argv = ['cotext', *words.split()]\n"
        "    shell = {} if words else {'_COTEXT_COMPLETE': 'complete_bash', 'COMP_CWORD': '3'}\n"
        "    os.environ.update(shell, COMP_WORDS='cotext train han/source ')\n"
        "    try: main()\n"
        "    except SystemExit as stop: status = stop.code\n"
        "    for name in shell: del os.environ[name]\n"
        "    heavy = {'torch', 'numpy', 'pyarrow', 'sentencepiece', 'accelerate'} & set(sys.modules)\n"
        "    print('after', words, status, sorted(heavy))"
    )
    told = [line for line in in_a_fresh_process(code).splitlines() if line.startswith("after ")]
    assert told[:6] == [f"after {words} {2 * (words == 'nonsense')} []" for words in first]
    assert [words for words in later if f"after {words} 0 ['numpy', 'sentencepiece']" not in told] == []


def test_help_names_every_format() -> None:
    described = options_of(CorpusFormat)["format"]
    assert all(re.search(rf"(^|\W){name}\W", described.help) for name in FORMATS)


def test_a_mistyped_configuration_is_told_before_anything_heavy_is_loaded() -> None:
    code = (
        "import sys; sys.argv = ['cotext', 'train', 'focused-concatenation/base', 'trian.seed=1', "
        "'--data', 'd', '--out', 'o']\n"
        "from cotext.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: print(stop.code, 'torch' in sys.modules)"
    )
    assert in_a_fresh_process(code) == "2 False\n"


@loop_over("kind", [name for name, row in FORMATS.items() if row.encode])
def test_translate_keeps_format_documents_and_sentences(world: World, tmp_path: Path, kind: str) -> None:
    wanted = [Document(d.id, d.source) for d in toy_documents(4, 5)]
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    write_documents(source, wanted, kind)
    succeed("translate", world.run, source, "--out", out)
    assert detect_format(out) == kind
    found = list(read_documents(out, side="target"))
    assert [len(d) for d in found] == [len(d) for d in wanted]
    if FORMATS[kind].carries_ids:
        assert [d.id for d in found] == [d.id for d in wanted]
    if FORMATS[kind].holds_both_languages:
        assert [d.source for d in read_parallel(out, None)] == [d.sentences for d in wanted]
    # The translation has nothing to do with the format.
    translator = package.load(world.run)
    assert [list(d.sentences) for d in found] == [translator.translate(d.sentences) for d in wanted]
    side_files = {"in.docids", "out.docids"} if kind == "docids" else set()
    assert {p.name for p in tmp_path.iterdir()} == {"in.en", "out.de"} | side_files


def test_translate_keeps_compression_and_empty_sentences(world: World, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl.xz", tmp_path / "out.jsonl.xz"
    write_documents(source, [Document("a", ("the cat", "", "a dog")), Document("b", ("",))], "jsonl")
    shown = succeed("translate", world.run, source, "--out", out).out
    assert out.read_bytes().startswith(b"\xfd7zXZ")
    first, second = read_documents(out, side="target")
    assert [bool(s) for s in first.sentences] == [True, False, True]
    assert second == Document("b", ("",))
    assert f"{out}: 4 sentences in 2 documents\n" in shown


@loop_over("invisible", ["\u200b", "\u2060 \u200b", "\u0085", "\u00ad"])
def test_a_sentence_of_invisible_characters_stays(world: World, tmp_path: Path, invisible: str) -> None:
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    source.write_text(f"the cat sees\n{invisible}\na dog runs\n", encoding="utf-8")
    succeed("translate", world.run, source, "--out", out)
    [document] = read_documents(out)
    assert len(document) == 3
    assert document.sentences[1] == invisible


def test_translate_says_what_was_cut_and_what_is_long(world: World, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    long = "cat " * 600
    # Windows of two sentences: the long one leaves no room for another.
    write_documents(source, [Document("x", ("a dog", long.strip(), "a cat", "a dog"))], "jsonl")
    shown = succeed("translate", world.run, source, "--out", out, "--set", "max_ratio=0.01").out
    assert re.search(r"2 sentences with part of their context dropped.* x:2, x:3$", shown, re.M)
    assert re.search(r"truncated at the length limit .*x:2\b", shown, re.M)
    assert re.search(r"1 sentence longer than any in the training data.* x:2$", shown, re.M)


def test_free_translation_tells_what_is_missing_and_leaves_it_empty(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a model that leaves the first document without text."""

    def forgetful(
        self: DocumentTranslator, documents: Iterable[Document], *more: object
    ) -> Iterator[tuple[int, Translation]]:
        first, second = documents
        nothing = Document(first.id, ("", ""))
        yield 0, Translation(nothing, (0, 0), missing=(0, 1), pieces=(True, False, False))
        yield 1, Translation(Document(second.id, ("ein vogel", "")), (-3, 0))

    monkeypatch.setattr(DocumentTranslator, "translate", forgetful)
    documents = [Document("a", ("the cat", "a dog")), Document("b", ("a bird", ""))]
    options = ["--set", "align=free", "--set", "target_context=regenerate"]
    for kind in ("jsonl", "docids", "tsv", "d-lines", "tmx"):
        source, out = tmp_path / f"in-{kind}.en", tmp_path / f"out-{kind}.de"
        write_documents(source, documents, kind)
        shown = succeed("translate", world.run, source, "--out", out, "--format", kind, *options).out
        first, second = read_documents(out, kind, side="target")
        assert first.sentences == ("", "")
        assert [bool(s) for s in second.sentences] == [True, False]
        names = ("a", "b") if FORMATS[kind].carries_ids else ("1", "2")
        assert "  2 of 4 windows with the right number of sentences; in 1 of 2 documents, all" in shown
        assert f"  2 sentences missing; document:sentence {names[0]}:1, {names[0]}:2\n" in shown
        assert "|align:free|" in shown
        scored = succeed("evaluate", "--hypothesis", out, "--reference", out, "--format", kind).out
        assert "3 empty hypothesis sentences" in scored
    # Nothing is read, searched or written where a missing sentence could not be.
    monkeypatch.undo()
    source = documents_file(tmp_path / "in-text.en", 2, 7, "text")
    command = ("translate", world.run, source, "--out", tmp_path / "none")
    must_refuse(("the format text cannot hold empty ones", "jsonl"), *command, "--format", "text", *options)
    source.write_text("<dataset><doc><src><seg>the cat</seg></src></doc></dataset>")
    must_refuse("the format wmt-xml can be read, but not written", *command)
    assert not list(tmp_path.glob("none*"))


def test_a_file_for_another_language_pair_is_noticed(world: World, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    lines = [{"doc_id": code, "src_lang": "en", "src_text": "the cat", "tgt_lang": code} for code in LOCALES]
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for number, code in enumerate(LOCALES):
        command = ("translate", world.run, source, "--out", tmp_path / f"{number}", "--format", f"wmt:{code}")
        warning = f"states the languages en-{code}; {world.run} translates en-de"
        assert (warning in succeed(*command).err) == (code != "de_AT")


def test_contrastive_prints_a_table_and_writes_figures(world: World, tmp_path: Path) -> None:
    out, suite = tmp_path / "figures.json", world.folder / "suite.json"
    copy = tmp_path / "copy.json"
    copy.write_bytes(suite.read_bytes())
    options = ["--tie", "first", "--score", "mean", "--out", out]
    shown = succeed("contrastive", world.run, suite, copy, *options).out
    figures = json.loads(out.read_text())
    # Two suites of one name: neither gets lost.
    assert list(figures) == ["toy/order", f"toy/order ({copy})", "all suites"]
    first, second, _ = figures.values()
    assert first == second
    assert first["overall"]["total"] == 6
    signature = first["signature"]
    assert signature in shown
    assert signature.startswith("suite:toy/order|n:6|tie:first|score:mean|model:transformer|updates:")
    assert signature.count("version:") == 1


def test_systems_lists_every_recipe() -> None:
    lines = succeed("systems").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines if re.match(r"  \S", line)] == recipe_names()
    papers = {name.partition("/")[0] for name in recipe_names()}
    assert set(PAPERS) == papers, "a title for every folder of recipes: PAPERS in models/describe.py"
    assert lines.count("") == len(papers)


def test_the_commands_of_the_readme_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = README.read_text(encoding="utf-8")
    section = text.split("## Prepare, train, translate and evaluate")[1].split("\n## ")[0]
    lines = [line for block in section.split("```")[1::2] for line in block.strip().splitlines()]
    commands = [line.split("  #")[0].split() for line in lines]
    assert len(commands) == 15
    assert {words[0] for words in commands} == {"cotext"}
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    documents = toy_documents(2, 8)
    write_parallel(Path("document.en"), Path("reference.de"), documents, "text")
    write_documents(Path("other.de"), [Document(d.id, d.target) for d in documents], "text")
    shorter = (
        "train.max_updates=1 train.validate_sentences=4 train.threads=1 train.max_tokens=300 "
        "model.dimension=16 model.feed_forward=16 model.heads=2 model.encoder_layers=1 "
        "model.decoder_layers=1 decode.beam=1 decode.max_extra=2"
    )
    for _, *words in commands:
        if words[0] == "translate":
            shutil.copytree("runs/a", "runs/b")
        succeed(*words, *(shorter.split() if words[0] == "train" else ()))
    assert [len(d) for d in read_documents(Path("document.de"))] == [len(d.source) for d in documents]
