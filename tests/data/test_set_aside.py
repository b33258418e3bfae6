"""Documents that `prepare` sets aside from the training corpus."""

import json
from dataclasses import replace
from pathlib import Path

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_documents, write_parallel
from cotext.data.requests import PreparationRequest
from cotext.data.selection import part_of, set_aside
from tests.command_line import cotext, succeed
from tests.refusals import must_raise


def document(name: str, text: str) -> ParallelDocument:
    return ParallelDocument(name, (f"{text} one.", f"{text} two."), (f"{text} eins.", f"{text} zwei."))


def test_pieces_names_and_copies_are_one_document() -> None:
    documents = [document(*each.split()) for each in ("a#1 p", "b q", "a#2 r", "c r", "c s", "d t")]
    # a#1 and a#2 by their name, c by the text of a#2, and the second c by its name.
    parts = set_aside(documents, {"dev": 1, "test": 1}, seed=1)
    assert set(map(frozenset, parts.values())) < set(map(frozenset, ((0, 2, 3, 4), (1,), (5,))))
    assert not parts["dev"] & parts["test"]
    documents = [document("a", "p"), document("b", "q"), document("a", "q"), document("z", "r")]
    assert set_aside(documents, {"dev": 1}, seed=3)["dev"] in ({0, 1, 2}, {3})


def test_the_seed_decides_and_parts_are_read_apart() -> None:
    documents = [document(f"{n}", f"text {n}") for n in range(30)]
    parts = set_aside(documents, {"dev": 5, "test": 4}, seed=1)
    assert parts == set_aside(documents, {"dev": 5, "test": 4}, seed=1)
    assert parts != set_aside(documents, {"dev": 5, "test": 4}, seed=2)
    skipped: list[str] = []
    read = {p: part_of(lambda odd: odd.append("x") or iter(documents), parts, p) for p in ("train", *parts)}
    found = [[d.id for d in part(skipped)] for part in read.values()]
    assert ([len(part) for part in found], skipped) == ([21, 5, 4], ["x"])
    assert {name for part in found for name in part} == {f"{n}" for n in range(30)}
    twice = [document("a", "p"), document("a", "q"), document("b", "q"), document("c", "r")]
    alike = r"has 4 documents with only 2 different ids and sources"
    for few, said in (
        (documents[:1], "has 1 document,"),
        (documents[:5], "has 5 documents,"),
        (twice, alike),
    ):
        told = must_raise(said, set_aside, few, {"dev": 3, "test": 2}, seed=1)
        assert "an empty line between documents" in told


def test_prepare_sets_documents_aside(tmp_path: Path) -> None:
    corpus = tmp_path / "memory.tmx"
    documents = [document(f"{n}", f"The house {n} is red and its garden is {n * 7}") for n in range(40)]
    documents += [replace(each, id=f"copy of {each.id}") for each in documents]
    write_parallel(corpus, None, documents, "tmx", ("en", "de"))
    out = tmp_path / "data"
    arguments = ["prepare", "--source", corpus, "--dev-documents=4", "--test-documents=3", "--workers=1"]
    shown = succeed(*arguments, "--out", str(out))
    set_aside_note = "dev: 4 whole documents set aside from the training corpus, by seed 1"
    assert f"{set_aside_note}; 8 with their copies and pieces" in shown.out
    report = json.loads((out / "report.json").read_text())
    assert report["languages"] == {"source": "en", "target": "de"}
    counts = {split: found["documents"] for split, found in report["splits"].items()}
    assert counts == {"train": 66, "dev": 8, "test": 6}
    assert report["overlap"]["dev"]["sources"] == 0
    dev, test = ({d.id for d in read_documents(out / f"{split}.jsonl")} for split in ("dev", "test"))
    assert not dev & test
    # Another seed is another folder.
    assert cotext(*arguments, "--out", str(out), "--seed", "2").code == 2


def test_development_data_are_given_in_one_way() -> None:
    for given in ({}, {"dev_source": "a", "dev_documents": 3}):
        must_raise("--dev-source, or --dev-documents", PreparationRequest, source="a", out="b", **given)
    tests = {"dev_documents": 1, "test_source": "c", "test_documents": 1}
    must_raise("--test-source and --test-documents", PreparationRequest, source="a", out="b", **tests)
