"""Minimum Bayes risk: counts are those of sacrebleu, choices those of the definition; `cotext mbr`."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.data.formats.streams import atomic_sinks
from cotext.data.nbest_lists import Candidate, Candidates, ListedDocument
from cotext.data.nbest_lists import write_documents as write_lists
from cotext.evaluation.metrics import interface
from cotext.evaluation.metrics.bleu import chrf_utilities
from cotext.evaluation.requests import MbrRequest
from cotext.evaluation.statistics.sufficient_statistics import chrf_pairs, shared
from cotext.evaluation.studies.evaluate.mbr_files import Pool, choose_translations, decide, pooled
from cotext.runtime.progress import Meter
from tests.command_line import must_refuse, succeed
from tests.evaluation.test_comet import checkpoint, python  # noqa: F401 - a fixture
from tests.loops import loop_over
from tests.refusals import must_raise

OUT = Path("out.de")
UNSEEN = Meter("", 0, None, shown=False)
A = "die katze sieht den hund"
B = "die katze sähe den hund"
C = "der vogel singt"
OUTPUTS = {"one": (C, A), "two": (A, B.replace("ä", "a\u0308")), "three": (B, B)}


def output(folder: Path, name: str, *documents: tuple[str, ...], format: str = "text") -> Path:
    path = folder / f"{name}.de"
    write_documents(path, [Document(f"d{n}", d) for n, d in enumerate(documents)], format)
    return path


def listed(path: Path, *documents: tuple[tuple[tuple[str, float], ...], ...], first: int = 1) -> Path:
    found = [
        ListedDocument(f"d{n}", tuple(tuple(Candidate(t, p, p) for t, p in each) for each in d))
        for n, d in enumerate(documents, start=first)
    ]
    with atomic_sinks([path]) as [sink]:
        write_lists(sink, found, 3, "model:x|nbest:3")
    return path


def test_what_two_of_three_systems_say_is_chosen(tmp_path: Path) -> None:
    paths = [output(tmp_path, name, texts, texts[:1]) for name, texts in OUTPUTS.items()]
    out = tmp_path / "out.de"
    said = succeed("mbr", *paths, "--out", out, "--json").out
    found = [d.sentences for d in read_documents(out)]
    assert found in ([(A, B), (A,)], [(B, B), (B,)])
    report = json.loads(said)
    assert (report["documents"], report["sentences"], report["changed"]) == (2, 3, 3)
    assert report["utility"] > report["utility_of_first"]
    assert "mbr:sentence|utility:chrf|probabilities:scores|systems:3|translations:2.67" in report["signature"]
    must_refuse("exists; choose another --out, or add --overwrite", "mbr", *paths, "--out", out)


def test_lists_are_weighed_by_their_scores_unless_told_otherwise(tmp_path: Path) -> None:
    lists = listed(tmp_path / "l.jsonl", (((C, -0.1), (A, -3.0), (B, -3.2)), (("", 0.0),)))

    def chosen(*options: str) -> tuple[str, ...]:
        out = tmp_path / "out.jsonl"
        succeed("mbr", lists, "--out", out, "--to", "jsonl", "--overwrite", *options)
        [document] = read_documents(out)
        assert document.id == "d1"
        return document.sentences

    assert chosen() == (C, "")
    assert chosen("--probabilities", "uniform")[0] in (A, B)
    assert chosen("--probabilities", "uniform", "--candidates", "1") == (C, "")
    _, report = choose_translations(MbrRequest(files=[lists], out=OUT, candidates=2), UNSEEN)
    assert "|systems:1|candidates:2|translations:1.50|" in report.signature


def test_lists_and_outputs_together_keep_the_ids(tmp_path: Path) -> None:
    lists = listed(tmp_path / "l.jsonl", (((A, -0.1), (C, -9.0)),), (((B, -0.1),),))
    plain = output(tmp_path, "plain", (B,), (B,))
    documents, report = choose_translations(MbrRequest(files=[plain, lists], out=OUT), UNSEEN)
    assert [d.id for d in documents] == ["d1", "d2"]
    assert report.inputs == ("", "model:x|nbest:3")
    assert report.translations == 2.0
    other = output(tmp_path, "other", (B,), (B,), format="jsonl")  # d0, d1
    for files in ([lists, other], [plain, lists, other]):  # also after a first file without ids
        refuse(r"document number 1 is 'd0' in .*other.* but 'd1' in", *files)
    # Named as text, each translation of a list would be a sentence.
    _, report = choose_translations(MbrRequest(files=[lists], out=OUT, format="text"), UNSEEN)
    assert (report.sentences, report.translations) == (2, 1.5)
    # Numbers may be ids.
    lists.write_text(lists.read_text().replace('"d1"', '"1"').replace('"d2"', '"2"'))
    other.write_text(other.read_text().replace('"d0"', '"2"').replace('"d1"', '"1"'))
    refuse("document number 1 is '1' in .*l.jsonl but '2' in", lists, other)


def refuse(message: str, *files: Path) -> None:
    must_raise(message, choose_translations, MbrRequest(files=files, out=OUT), UNSEEN)


def test_files_that_do_not_fit_are_refused_with_their_place(tmp_path: Path) -> None:
    one = output(tmp_path, "one", (A, B), (A,))
    refuse("1 documents in .*other.de but 2 in .*one.de", one, output(tmp_path, "other", (A, B)))
    more = output(tmp_path, "other", (A, B), (A, B))
    refuse("document '.*': 1 sentences in .*one.de, 2 in", more, one)
    (tmp_path / "again.de").symlink_to(one)
    refuse(r"again\.de: is given twice \(also as .*one\.de\)", one, tmp_path / "again.de")
    unknown = listed(tmp_path / "l.jsonl", (((A, -0.1),),), (((B, -0.1),), ((C, float("nan")), (A, -1.0))))
    refuse(r"document 'd2', sentence 2: the translation .* no log-prob", unknown)
    (tmp_path / "folder").mkdir()
    must_refuse("is a folder", "mbr", one, "--out", tmp_path / "folder")


def test_no_lists_of_another_output_stay_beside(tmp_path: Path) -> None:
    one, two = output(tmp_path, "one", (A,)), output(tmp_path, "two", (B,))
    out = output(tmp_path, "out", (C,))
    lists = listed(tmp_path / "out.de.nbest.jsonl", (((C, -0.1),),))
    # A text cannot hold the empty sentence that is chosen: what was there stays, all of it.
    empty = listed(tmp_path / "empty.jsonl", ((("", 0.0),),))
    must_refuse("empty", "mbr", empty, "--out", out, "--overwrite")
    assert (out.read_text(), lists.exists()) == (f"{C}\n", True)
    succeed("mbr", one, two, "--out", out, "--overwrite")
    assert (out.read_text(), lists.exists()) == (f"{A}\n", False)
    out.unlink()
    listed(lists, (((C, -0.1),),))
    must_refuse(f"{lists}: exists; choose another --out", "mbr", one, two, "--out", out)
    assert not out.exists()


def test_lists_are_not_replaced_by_what_is_chosen_from_them(tmp_path: Path) -> None:
    lists = listed(tmp_path / "out.de.nbest.jsonl", (((C, -0.1), (A, -0.2)),))
    for out in (lists, tmp_path / "out.de"):
        must_refuse(f"{lists}: would overwrite an input file", "mbr", lists, "--out", out, "--overwrite")
    assert len(lists.read_text().splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == [lists.name]


@loop_over(
    ("options", "message"),
    [
        (["--utility", "ter"], "--utility 'ter': choose one of chrf, comet"),
        (["--utility", "comet"], "--utility comet and --comet MODEL belong together"),
        (["--to", "pdf"], "unknown corpus format"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], message: str) -> None:
    path = output(tmp_path, "one", (A,))
    must_refuse(message, "mbr", path, "--out", tmp_path / "out.de", *options)
    assert not (tmp_path / "out.de").exists()


def test_comet_scores_all_pairs(tmp_path: Path, python: Path) -> None:  # noqa: F811
    """The stand-in counts the words of a hypothesis that the reference has: of A in B four of five."""
    paths = [output(tmp_path, name, texts) for name, texts in OUTPUTS.items()]
    source = output(tmp_path, "source", ("the cat", "the dog"))
    comet = {"utility": "comet", "comet": str(checkpoint(tmp_path / "model")), "comet_python": python}
    request = MbrRequest(files=paths, out=OUT, source=source, **comet)
    [document], report = choose_translations(request, UNSEEN)
    assert document.sentences == (A, B)
    # Sentence 1 of A, B, C: A (1 + 0.8 + 0) / 3, as B; sentence 2 of A, B, B: B (0.8 + 2) / 3.
    assert report.utility == pytest.approx(100 * (1.8 / 3 + 2.8 / 3) / 2)
    assert report.utility_of_first == pytest.approx(100 * (1 / 3 + (1 + 1.6) / 3) / 2)
    assert "protocol:comet" in report.signature
    must_raise("--comet needs --source", replace, request, source=None)
    gap = output(tmp_path, "gap", (A, ""), format="jsonl")
    request = replace(request, files=[*paths, gap], comet=str(gap))  # found before the model is loaded
    must_raise("a translation is empty, which --to text cannot hold", choose_translations, request, UNSEEN)


WORDS = ["der", "die", "Katze", "Katzen", "sieht", "sieht,", "Hund", ".", "ä", "1,5"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def lists(*scored: tuple[str, float]) -> Candidates:
    return tuple(Candidate(text, score, score / 2) for text, score in scored)


@pytest.mark.parametrize("lowercase", [False, True])
@settings(max_examples=15, derandomize=True)
@given(candidates=st.lists(texts, min_size=1, max_size=6))
def test_counts_and_scores_of_pairs_are_those_of_sacrebleu(lowercase: bool, candidates: list[str]) -> None:
    metric = CHRF(lowercase=lowercase)
    counts = chrf_pairs(metric, candidates)
    utilities = chrf_utilities(metric, candidates)
    for h, hypothesis in enumerate(candidates):
        for r, reference in enumerate(candidates):
            own = CHRF(lowercase=lowercase)
            [expected] = own._extract_corpus_statistics([hypothesis], [[reference]])
            assert counts[h, r].tolist() == expected
            assert utilities[h, r] == pytest.approx(own._aggregate_and_compute([expected]).score, abs=1e-9)


def test_the_smaller_count_is_shared() -> None:
    found = shared([Counter("aab"), Counter("ab"), Counter("aaac"), Counter()])
    assert found.tolist() == [[3, 2, 2, 0], [2, 2, 1, 0], [2, 1, 4, 0], [0, 0, 0, 0]]


def test_a_choice_worked_by_hand() -> None:
    """What most agree with, though no system ranks it first; the third column is what weights make of it."""
    utility = np.array([[10.0, 2.0, 0.0], [4.0, 10.0, 4.0], [0.0, 2.0, 10.0]])
    even = Pool(("a", "b", "c"), np.full((1, 3), 1 / 3))
    first = Pool(("a", "b", "c"), np.array([[0.9, 0.05, 0.05]]))
    # 0.9 * 10 + 0.05 * 2 = 9.1, and (4 + 10 + 4) / 3 = 6; of the first ones 9.1 and (10 + 2 + 0) / 3 = 4.
    for pool, chosen, best, of_first in ((first, 0, 9.1, 9.1), (even, 1, 6.0, 4.0)):
        decision = decide(pool, utility)
        assert decision.chosen == chosen
        assert (decision.utility, decision.utility_of_first) == pytest.approx((best, of_first))
    utility = np.array([[5.0, 1.0], [1.0, 5.0 + 1e-13]])
    assert decide(Pool(("a", "b"), np.full((1, 2), 0.5)), utility).chosen == 0


def test_probabilities_of_lists() -> None:
    one = lists(("a", np.log(0.6)), ("b", np.log(0.2)), ("ç", np.log(0.2)))
    two = lists(("c\u0327", -9), ("d", -9))
    pool = pooled([one, two], "uniform")
    assert pool.texts == ("a", "b", "ç", "d")
    assert pool.probability.tolist() == [[1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0.5, 0.5]]
    assert pool.probability.mean(axis=0) == pytest.approx([1 / 6, 1 / 6, 5 / 12, 1 / 4])
    assert pooled([one], "scores").probability[0] == pytest.approx([0.6, 0.2, 0.2])
    unknown = (Candidate("a", float("nan"), float("nan")), Candidate("b", -1, -1))
    must_raise("--probabilities uniform", pooled, [unknown], "scores")
    assert pooled([unknown[:1]], "scores").probability.tolist() == [[1.0]]


def test_of_an_error_rate_the_smallest_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = replace(interface.metrics()["chrf"], better="lower")
    monkeypatch.setattr(interface, "metrics", lambda: {"chrf": error})
    paths = [output(tmp_path, name, (text,)) for name, text in (("one", B), ("two", B), ("three", C))]
    [chosen], report = choose_translations(MbrRequest(files=paths, out=OUT), UNSEEN)
    assert (chosen.sentences, 0 < report.utility < report.utility_of_first) == ((C,), True)
