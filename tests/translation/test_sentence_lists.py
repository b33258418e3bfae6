"""N-best lists of sentences: the first entry is the translation, and all scores are correct."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cotext.config.recipe import LengthPenaltyForm
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_documents
from cotext.data.nbest_lists import Candidate, read_lists
from cotext.files.translate_files import check_outputs_of
from cotext.search.hypotheses import Alternative
from cotext.translation.translator import DocumentTranslator, Translation
from cotext.translation.window_search import further
from tests.command_line import World, cotext, documents_file, must_refuse, succeed
from tests.models.test_casa import CONTEXT, config_of, model_of
from tests.models.test_casa import TOKENIZER as CASA_TOKENIZER
from tests.refusals import must_raise
from tests.search.test_beam_search import penalised
from tests.translation.test_translate_file import interrupted_after
from tests.translation.test_translator import CORPUS, PLAIN, STRATEGIES, translated, translator
from tests.translation.test_window_groups import SYSTEMS as GROUPED
from tests.translation.test_window_groups import translator as grouped

CPU = torch.device("cpu")


def check(plain: Sequence[Translation], listed: Sequence[Translation], nbest: int) -> int:
    """What holds of all lists; returns how many sentences have another translation."""
    others = 0
    for before, after in zip(plain, listed, strict=True):
        assert after.document == before.document
        assert after.log_probabilities == pytest.approx(before.log_probabilities, abs=1e-9)
        assert before.lists == ()
        assert len(after.lists) == len(after.document)
        for text, score, candidates in zip(
            after.document.sentences, after.log_probabilities, after.lists, strict=True
        ):
            assert candidates[0][:2] == (text, score)
            texts = [candidate.text for candidate in candidates]
            assert len(set(texts)) == len(texts) <= nbest
            assert all(texts[1:])
            assert bool(text) or len(texts) == 1
            assert sorted(candidates[1:], key=lambda c: -c.score) == [*candidates[1:]]
            others += len(texts) > 1
    return others


@pytest.mark.parametrize(
    ("name", "form"), list(zip(STRATEGIES, itertools.cycle(("power", "gnmt")), strict=False))
)
def test_lists_hold_what_may_follow_the_best_ones_before(name: str, form: LengthPenaltyForm) -> None:
    config = STRATEGIES[name]
    nbest = 3
    plain = translated(translator(config, PLAIN, beam=4, length_penalty_form=form), CORPUS)
    system = translator(config, PLAIN, beam=4, nbest=nbest, length_penalty_form=form)
    listed = translated(system, CORPUS)
    assert check(plain, listed, nbest) == sum(bool(s) for d in CORPUS for s in d.sentences)
    if name.startswith("regenerate"):
        return  # the context that it was given is that of its window, not of the document
    penalty = system.config.decode.length_penalty
    for document, translation in zip(CORPUS, listed, strict=True):
        for j, candidates in enumerate(translation.lists):
            for candidate in candidates if document.sentences[j] else ():
                target = list(translation.document.sentences)
                target[j] = candidate.text
                pair = ParallelDocument(document.id, document.sentences, tuple(target))
                score = system.score([pair])[0][j]
                assert candidate.log_probability == pytest.approx(score.log_probability, abs=1e-9)
                expected = penalised(score.log_probability, score.tokens, penalty, form)
                assert candidate.score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["prefix", "document", "document, bracket"])
def test_lists_do_not_depend_on_other_documents(name: str) -> None:
    system = translator(STRATEGIES[name], PLAIN, beam=3, nbest=3)
    together = translated(system, CORPUS)
    for document, among in zip(CORPUS, together, strict=True):
        [alone] = translated(system, [document])
        for ours, theirs in zip(alone.lists, among.lists, strict=True):
            assert [c.text for c in ours] == [c.text for c in theirs]
            assert [c.score for c in ours] == pytest.approx([c.score for c in theirs], abs=1e-9)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("window", "sequential"), ("source context", "simultaneous"), ("regenerate", "simultaneous")],
)
def test_lists_change_nothing_of_rows_that_see_each_other(name: str, schedule: str) -> None:
    plain, listed = (
        translated(grouped(GROUPED[name], schedule=schedule, beam=3, nbest=nbest), CORPUS) for nbest in (1, 3)
    )
    assert check(plain, listed, 3) > 0


def replace_decode(config: Any, **decode: Any) -> Any:
    return config.model_copy(update={"decode": config.decode.model_copy(update=decode)})


def test_further_translations_differ_and_are_visible() -> None:
    class Same:
        def decode(self, tokens: Sequence[int], side: str = "target") -> str:
            return {1: "one", 2: "one", 3: "", 4: "two"}[tokens[0]]

    found = [Alternative((n,), -float(n), -float(n) / 2) for n in (3, 1, 2, 4)]
    assert further("none", found, Same(), 5) == (Candidate("one", -1, -0.5), Candidate("two", -4, -2))  # type: ignore[arg-type]
    assert further("one", found, Same(), 5) == (Candidate("two", -4, -2),)  # type: ignore[arg-type]
    assert further("none", found, Same(), 1) == (Candidate("one", -1, -0.5),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ({"beam": 1}, "decode.nbest = 2: greedy search has only one hypothesis"),
        ({"beam": 3, "align": "free"}, "lists need constrained search"),
    ],
)
def test_lists_need_a_beam_and_constrained_search(decode: dict[str, Any], message: str) -> None:
    must_raise(message, translator, STRATEGIES["sentence"], PLAIN, nbest=2, **decode)


def test_non_autoregressive_systems_have_no_lists() -> None:
    config = replace_decode(config_of(CONTEXT), beam=2, nbest=2)
    must_raise("has no beam", DocumentTranslator, model_of(CONTEXT), config, CASA_TOKENIZER, CPU)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return documents_file(tmp_path / "in.en", 6, 11)


def with_lists(world: World, source: Path, out: Path, *more: str) -> list[str | Path]:
    return ["translate", world.run, source, "--out", out, "--set", "beam=4", "--set", "nbest=4", *more]


def test_lists_are_written_next_to_the_output(world: World, source: Path, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain.de", tmp_path / "out.de"
    succeed("translate", world.run, source, "--out", plain, "--set", "beam=4")
    said = succeed(*with_lists(world, source, out)).out
    assert out.read_bytes() == plain.read_bytes()
    lists = tmp_path / "out.de.nbest.jsonl"
    assert f"n-best lists: {lists}" in said
    signature, documents = read_lists(lists)
    assert signature.endswith("|nbest:4")
    found = list(documents)
    written = list(read_documents(out))
    assert [tuple(c[0].text for c in d.sentences) for d in found] == [d.sentences for d in written]
    assert any(len(candidates) == 4 for d in found for candidates in d.sentences)
    again = cotext(*with_lists(world, source, tmp_path / "other.de"))
    assert (tmp_path / "other.de.nbest.jsonl").read_bytes() == lists.read_bytes()
    assert again.code == 0
    out.unlink()
    refused = cotext(*with_lists(world, source, out))
    assert "out.de.nbest.jsonl: exists; choose another name, or add --overwrite" in refused.err


def test_lists_of_an_earlier_output_are_removed(world: World, source: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.de", tmp_path / "page.md"
    lists = tmp_path / "out.de.nbest.jsonl"
    page.write_text("# the cat\n")
    lists.write_text("of an output before")
    for of in (source, page):
        command = ["translate", world.run, of, "--out", out]
        assert "out.de.nbest.jsonl: exists" in cotext(*command).err
        assert lists.exists()
        succeed(*command, "--overwrite")
        assert not lists.exists()
        out.unlink()
        lists.write_text("of an output before")
    lists.unlink()
    for shard in ("1/2", "2/2"):
        succeed("translate", world.run, source, "--out", out, "--shard", shard)
    lists.write_text("of an output before")
    assert "out.de.nbest.jsonl: exists" in cotext("join", out).err
    succeed("join", out, "--overwrite")
    assert not lists.exists()
    source.rename(lists)
    must_raise("would overwrite an input file", check_outputs_of, [lists], [out], None, overwrite=True)


def test_interrupted_jobs_and_shards_write_the_same_lists(
    world: World, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, joined = (tmp_path / name for name in ("whole.de", "out.de", "joined.de"))
    succeed(*with_lists(world, source, whole))
    expected = Path(f"{whole}.nbest.jsonl").read_bytes()
    with interrupted_after(monkeypatch, 2):
        assert cotext(*with_lists(world, source, out)).code == 130
    assert not Path(f"{out}.nbest.jsonl").exists()
    assert "from an interrupted job" in succeed(*with_lists(world, source, out)).out
    rounded(Path(f"{out}.nbest.jsonl"), expected)
    for shard in ("1/2", "2/2"):
        succeed(*with_lists(world, source, joined, "--shard", shard))
    assert f"{joined}.nbest.jsonl" in succeed("join", joined).out
    rounded(Path(f"{joined}.nbest.jsonl"), expected)


def rounded(path: Path, expected: bytes) -> None:
    """The same lines, up to the rounding of sums in other batches."""
    ours, theirs = (list(map(json.loads, x.splitlines())) for x in (path.read_bytes(), expected))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert {k: v for k, v in a.items() if not isinstance(v, float)} == {
            k: v for k, v in b.items() if not isinstance(v, float)
        }
        assert a.get("log_probability") == pytest.approx(b.get("log_probability"), abs=1e-4)


def test_lists_need_a_corpus_with_one_sentence_per_line(world: World, tmp_path: Path) -> None:
    page, lines = tmp_path / "page.md", tmp_path / "lines.en"
    page.write_text("# the cat\n\nthe dog runs\n")
    lines.write_text("The cat sees. The dog runs.\nthe cat\n")
    command = with_lists(world, page, tmp_path / "out")
    must_refuse("lists can be written only for corpora with one sentence per line", *command)
    command = with_lists(world, lines, tmp_path / "out", "--format", "text")
    must_refuse(f"{lines}:1: looks like several sentences", *command)
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("cat\tkatze\n")
    source = documents_file(tmp_path / "in.en", 1, 1)
    refused = cotext(*with_lists(world, source, tmp_path / "out", "--glossary", glossary))
    assert "only the best translation is corrected, not the alternatives" in refused.err
