"""A sentence model with a language model on disk: translating, scoring, re-ranking, and what does not fit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cotext.config.recipe import load_config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, write_documents
from cotext.data.nbest_lists import Candidate, ListedDocument, read_lists
from cotext.data.nbest_lists import write_documents as write_lists
from cotext.data.tokenizer import load_tokenizer
from cotext.models.interface import OWN, Reach
from cotext.models.reach import source_reach, target_reach
from cotext.runtime import CotextError
from cotext.translation.engine_cache import open_to_translate
from cotext.translation.open import open_run, scoring_signature
from cotext.translation.translate_file import best_candidates
from tests.command_line import TINY, World, cotext, documents_file, must_refuse, succeed
from tests.refusals import must_raise
from tests.tiny_runs import toy_documents
from tests.translation.test_first_pass import make_run
from tests.translation.test_translate_file import finished_documents, interrupted_after


@pytest.fixture(scope="module")
def systems(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lm` is trained on the target side, with the tokenizer of `sentence`, whose weights are random."""
    folder = tmp_path_factory.mktemp("language model")
    corpus, dev = world.folder / "train.de", world.folder / "dev.de"
    both = ("--source", corpus, "--target", corpus, "--dev-source", dev, "--dev-target", dev)
    succeed("prepare", *both, "--tokenizer", world.folder / "data", "--out", folder / "mono")
    succeed("train", "d-lm/lm", "--data", folder / "mono", "--out", folder / "lm", *settings("d-lm/lm"))
    report = json.loads((folder / "mono" / "report.json").read_text())
    assert report["languages"] == {"source": "de", "target": "de"}
    config = load_config("focused-concatenation/base", None, TINY)
    config = config.model_copy(update={"languages": "en-de"})
    make_run(world.folder / "data", folder / "sentence", config, 5)
    return folder


def settings(recipe: str) -> list[str]:
    """A language model has no encoder to make smaller."""
    return [s for s in TINY if recipe != "d-lm/lm" or not s.startswith("model.encoder")]


def with_lm(systems: Path, **decode: Any) -> Any:
    return open_run(systems / "sentence", "cpu", {"language_model": str(systems / "lm"), **decode})


def option(systems: Path) -> str:
    return f"language_model={json.dumps(str(systems / 'lm'))}"


def test_translations_have_the_scores_that_scoring_finds(systems: Path) -> None:
    """And those depend on the translations of three sentences before, and on the source of this one alone."""
    opened = with_lm(systems)
    translator, documents = opened.translator, [Document(d.id, d.source) for d in toy_documents(6, 3)]
    found = dict(translator.translate(documents))
    for number, document in enumerate(documents):
        pair = ParallelDocument("x", document.sentences, found[number].document.sentences)
        [scores] = translator.score([pair])
        if not found[number].resegmented:
            expected = pytest.approx(found[number].log_probabilities, abs=1e-4)
            assert [s.log_probability for s in scores] == expected
        [alone] = dict(translator.translate([Document("other", document.sentences)])).values()
        assert alone.document.sentences == found[number].document.sentences
    source = ("the cat sees", "dog", "bird", "cat", "dog cat")
    target = ("katze", "hund katze", "vogel", "katze", "hund")

    def changed(j: int, side: int, text: str) -> list[bool]:
        """The sentences whose score changes with sentence `j` of one side."""
        other = [list(source), list(target)]
        other[side][j] = text
        pairs = [ParallelDocument("y", source, target), ParallelDocument("z", *map(tuple, other))]
        before, after = translator.score(pairs)
        return [abs(a.log_probability - b.log_probability) > 1e-4 for a, b in zip(before, after, strict=True)]

    for j in range(5):
        assert changed(j, 1, "fisch fisch") == [j <= k <= j + 3 for k in range(5)]
        assert changed(j, 0, "fish fish") == [k == j for k in range(5)]


def test_signatures_name_the_language_model(systems: Path) -> None:
    opened, alone = with_lm(systems), open_run(systems / "sentence", "cpu")
    assert "|view:window-3+1+0-512|" in opened.signature
    assert "|language_model:lm-" in opened.signature
    assert "|language_model:lm-" in scoring_signature(opened)
    assert "language_model" not in alone.signature
    assert with_lm(systems, before=1).translator.config.view.before == 1
    assert opened.with_decode({}).signature == alone.signature
    assert (source_reach(opened.config), target_reach(opened.config)) == (OWN, Reach(3))


def test_compare_decides_suites_with_the_language_model(systems: Path, world: World, tmp_path: Path) -> None:
    suite, out = world.folder / "suite.json", tmp_path / "x.html"
    for decode in ([], ["--set", option(systems)]):
        succeed("compare", systems / "sentence", "--suite", suite, "--out", out, *decode)
    decided = [path.read_text() for path in (systems / "sentence" / "compared").glob("*.json")]
    assert sorted("language_model:lm-" in content for content in decided) == [False, True]


def test_engines_are_not_used_with_language_models_or_sampling(systems: Path) -> None:
    """Engines know neither language models nor sampling: they would translate without."""
    for decode in ({"language_model": str(systems / "lm")}, {"beam": 1, "sampling": {"top_k": 2}}):
        key = list(decode)[-1]
        with pytest.raises(
            CotextError, match=rf"not possible with .*decode\.{key}|not possible with this inst"
        ):
            open_to_translate(systems / "sentence", "cpu", {**decode, "engine": "ctranslate2"})
        opened = open_to_translate(systems / "sentence", "cpu", decode)
        assert opened.config.decode.engine == "torch"


def test_a_translation_is_resumed_and_only_with_the_same_language_model(
    systems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = documents_file(tmp_path / "in.en", 8, 11), tmp_path / "out.de"
    command = ["translate", systems / "sentence", source, "--set", option(systems), "--set", "max_tokens=100"]
    succeed(*command, "--out", tmp_path / "expected.de", "--scores", tmp_path / "scores.tsv")
    with interrupted_after(monkeypatch, 3):
        assert cotext(*command, "--out", out).code == 130
    assert finished_documents(out) == 3
    other = tmp_path / "lm"
    shutil.copytree(systems / "lm", other)
    tokenizer_folder = tmp_path / "data"
    shutil.copytree(systems / "lm" / "tokenizer", tokenizer_folder / "tokenizer")
    make_run(tokenizer_folder, other, open_run(systems / "lm", "cpu").loaded.config, 8)
    changed = [
        part if part != option(systems) else f"language_model={json.dumps(str(other))}" for part in command
    ]
    must_refuse("language_model", *changed, "--out", out)
    assert "8 documents (3 documents from an interrupted job)" in succeed(*command, "--out", out).out
    assert out.read_bytes() == (tmp_path / "expected.de").read_bytes()
    assert [len(d) for d in read_documents(out)] == [len(d) for d in read_documents(source)]


def test_lists_are_ranked_anew_each_sentence_after_those_chosen(
    systems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against scores of whole documents, one candidate at a time; also after an interruption."""
    source = documents_file(tmp_path / "in.en", 10, 11)
    succeed("translate", systems / "sentence", source, "--out", tmp_path / "a.de", "--set", "nbest=4")
    lists = tmp_path / "a.de.nbest.jsonl"
    command = ["rerank", systems / "sentence", lists, "--source", source, "--set", option(systems)]
    told = succeed(*command, "--out", tmp_path / "b.de").out
    assert "|language_model:lm-" in told
    with interrupted_after(monkeypatch, 2):
        assert cotext(*command, "--out", tmp_path / "c.de").code == 130
    succeed(*command, "--out", tmp_path / "c.de")
    assert (tmp_path / "c.de").read_bytes() == (tmp_path / "b.de").read_bytes()
    opened, changed = with_lm(systems), 0
    _, listed = read_lists(lists)
    outputs = read_documents(tmp_path / "b.de")
    for document, of, found in zip(read_documents(source), listed, outputs, strict=True):
        texts = [candidates[0].text for candidates in of.sentences]
        for j, candidates in enumerate(of.sentences):
            ranks = []
            for candidate in candidates:
                version = (*texts[:j], candidate.text, *texts[j + 1 :])
                pair = ParallelDocument("x", document.sentences, version)
                score = opened.translator.score([pair])[0][j]
                ranks.append(score.log_probability / score.tokens**0.6)
            texts[j] = candidates[ranks.index(max(ranks))].text
            changed += texts[j] != candidates[0].text
        assert found.sentences == tuple(texts)
    assert f"; {changed or 'some'} are not the first candidate of their n-best list" in told
    figures = json.loads(succeed(*command, "--out", tmp_path / "b.de", "--overwrite", "--json").out)
    assert (figures["format"], figures["changed"]) == ("cotext-rerank", changed)
    must_refuse("add --overwrite", *command, "--out", tmp_path / "b.de")
    other = documents_file(tmp_path / "other.en", 4, 12)
    must_refuse("give the source of the lists", *command[:4], other, *command[5:], "--out", tmp_path / "d.de")
    assert cotext(*command, "--set", "beam=2", "--out", tmp_path / "d.de").code == 2
    swapped = [lists.rename(tmp_path / "a.en.jsonl"), "--source", source.rename(tmp_path / "in.de")]
    must_refuse("swap them", *command[:2], *swapped, *command[5:], "--out", tmp_path / "d.de")


def test_lists_in_another_order_or_of_another_source_are_refused(systems: Path, tmp_path: Path) -> None:
    source, lists = tmp_path / "in.jsonl", tmp_path / "lists.jsonl"
    write_documents(source, [Document(id, ("dog",)) for id in "ab"], "jsonl")
    command = "rerank", systems / "sentence", lists, "--source", source, "--set", option(systems)
    for ids, text in (("ba", "hund"), ("ac", "hund"), ("ab", "")):
        with lists.open("w") as sink:
            write_lists(sink, [ListedDocument(id, ((Candidate(text, -1, -1),),)) for id in ids], 1, "")
        must_refuse("give the source of" if text else "is empty", *command, "--out", tmp_path / "d.de")
    # The choices are not lost when a format cannot represent them.
    succeed(*command, "--out", tmp_path / "d.de", "--to", "jsonl")


def test_of_equal_scores_the_first_wins(systems: Path) -> None:
    translator = with_lm(systems).translator
    lists = [tuple(Candidate(text, 0.0, 0.0) for text in texts) for texts in (("hund",) * 3, ("", ""))]
    assert best_candidates(translator, Document("a", ("dog", "")), lists, lambda count: None) == [0, 0]


def test_runs_and_settings_that_do_not_fit(systems: Path, world: World, tmp_path: Path) -> None:
    lm = {"language_model": str(systems / "lm")}
    for decode, message in (
        ({"language_model": str(systems / "sentence")}, "is not a language model"),
        ({**lm, "align": "free"}, r"needs decode\.align = constrained"),
        ({**lm, "target_context": "regenerate"}, r"needs decode\.target_context = prefix"),
        ({"language_model": str(tmp_path / "gone")}, r"decode\.language_model = .*gone"),
    ):
        must_raise(message, open_run, systems / "sentence", "cpu", decode)
    must_raise("translates single sentences", open_run, world.run, "cpu", lm)
    tokenizer = load_tokenizer(systems / "lm" / "tokenizer")
    assert tokenizer.fingerprint == load_tokenizer(systems / "sentence" / "tokenizer").fingerprint
    source = documents_file(tmp_path / "in.en", 2, 11)
    must_refuse(
        "this run is a language model", "translate", systems / "lm", source, "--out", tmp_path / "x.de"
    )
    # It scores, though: log p(y | c), by which language models are compared.
    succeed("score", systems / "lm", "--source", source, "--target", source)
