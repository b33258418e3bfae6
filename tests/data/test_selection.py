"""Corpora as they are found: unequal sides, lines of several sentences, cleaning, test sets in training."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from cotext.data.documents import Languages, ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.data.prepared import HeldOut, Overlap, found_in
from cotext.data.selection import (
    PASSAGE_SENTENCES,
    RULES,
    Cleaner,
    Selection,
    align_lengths,
    parse_rules,
    render,
)
from cotext.data.splitting import Splitter
from tests.command_line import must_refuse, succeed
from tests.loops import loop_over
from tests.refusals import must_raise

EN_DE = Languages("en", "de")
UNEVEN = {
    "id": "web/1",
    "source": ["It rains.", "She is late.", "As ever.", "Share this page", "Good night."],
    "target": ["Es regnet.", "Sie kommt zu spät, wie immer.", "Impressum", "Gute Nacht, alle."],
}


def pairs(*rows: tuple[str, str]) -> ParallelDocument:
    return ParallelDocument("d", tuple(s for s, _ in rows), tuple(t for _, t in rows))


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_documents_must_be_even_or_are_left_out_on_request(tmp_path: Path) -> None:
    even = {"id": "b", "source": ["x"], "target": ["y"]}
    path, skipped = jsonl(tmp_path / "a.jsonl", UNEVEN, even), list[str]()
    must_raise(r"a\.jsonl:1: .*5 source sentences but 4 target", read_parallel, path, None)
    assert [d.id for d in read_parallel(path, None, skipped=skipped)] == ["b"]
    (tmp_path / "b.en").write_text("<d>\na\nb\n<d>\nc\n")
    (tmp_path / "b.de").write_text("<d>\nA\n<d>\nC\n")
    found = list(read_parallel(tmp_path / "b.en", tmp_path / "b.de", skipped=skipped))
    assert [d.source for d in found] == [("c",)]
    assert skipped == ["web/1", "1"]


def cleaned(rules: list[str], *documents: ParallelDocument, lengths: tuple[int, int] = (1, 1)) -> Any:
    cleaner = Cleaner(parse_rules(rules), EN_DE, lengths)
    found = list(cleaner.documents(documents))
    return [(d.id, d.source) for d in found], cleaner.cleaned


GOOD = ("It rains.", "Es regnet.")
OTHER = ("She is late.", "Sie kommt zu spät.")


@loop_over(
    ("rule", "pair"),
    [
        ("empty", ("It rains.", "")),
        ("empty", (" ", "Es regnet.")),
        ("length=50", ("It rains. " * 6, "Es regnet.")),
        ("ratio", ("It rains, and she is late, as ever and always.", "Ja.")),
        ("copies", ("The GNU General Public License", "the gnu  General Public License")),
    ],
)
def test_a_rule_leaves_a_pair_out_and_cuts_its_document_there(rule: str, pair: tuple[str, str]) -> None:
    found, counts = cleaned([rule], pairs(GOOD, pair, OTHER), pairs(GOOD, OTHER), pairs(pair))
    assert found == [("d#1", (GOOD[0],)), ("d#2", (OTHER[0],)), ("d", (GOOD[0], OTHER[0]))]
    assert (counts.pairs, counts.cut, counts.left_out) == ({rule.partition("=")[0]: 2}, 1, 1)
    assert (counts.documents_before, counts.pairs_before) == (3, 6)


def test_ordinary_pairs_pairs_at_the_edge_and_usual_ratios() -> None:
    ordinary = (("", ""), ("No.", "Nein, nicht."), ("42", "42"), ("Berlin", "Berlin"), ("x" * 999, "y" * 999))
    for pair in (GOOD, OTHER, *ordinary):
        assert cleaned(["empty", "length", "ratio", "copies"], pairs(pair))[1].pairs == {}
    assert cleaned(["empty"], pairs(("", "x"), GOOD, OTHER))[0] == [("d", (GOOD[0], OTHER[0]))]
    # Chinese takes a third of the characters of English.
    pair = ("It rains, and she is late, as ever and always.", "下雨了，她又迟到了，一如既往。")
    assert cleaned(["ratio=2"], pairs(pair), lengths=(3, 1))[1].pairs == {}
    assert cleaned(["ratio=2"], pairs(pair), lengths=(1, 1))[1].pairs == {"ratio": 1}


def test_passages_that_come_again_are_left_out_but_not_single_sentences() -> None:
    rows = [(f"This is {i}.", f"Das ist {i}.") for i in range(9)]
    passage = rows[:PASSAGE_SENTENCES]
    again = pairs(rows[7], *passage, rows[8])
    whole, others = pairs(*rows[:5]), pairs(rows[0], rows[6])
    found, counts = cleaned(["duplicates"], whole, again, others, whole)
    assert [source for _, source in found[1:]] == [("This is 7.",), ("This is 8.",), others.source]
    assert (counts.pairs, counts.cut, counts.left_out) == ({"duplicates": PASSAGE_SENTENCES + 5}, 1, 1)
    short = cleaned(["duplicates"], pairs(GOOD), pairs(OTHER), pairs(GOOD))
    assert len(short[0]) == 2


def test_sentences_of_another_language_are_told() -> None:
    pytest.importorskip("py3langid")
    english = "This is a sentence that was never translated by anybody at all."
    german = "Dies ist ein Satz, der ganz gewiss auf Deutsch geschrieben worden ist."
    given = pairs((english, german), (english, english), (german, english), GOOD)
    found, counts = cleaned(["language"], given)
    assert counts.pairs == {"language": 2}
    assert [source for _, source in found] == [(english,), (GOOD[0],)]


def test_all_rules_and_what_the_language_rule_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, message in (
        ("ration", "'ratio'"),
        *((f"ratio={number}", "a number from 1 to 1000") for number in ("x", "0.5", "1e9")),
        ("copies=3", "takes no number"),
        ("all=3", "no such rule"),
        ("", "no such rule"),
    ):
        must_raise(message, parse_rules, [text])
    assert tuple(parse_rules(["all"])) == RULES
    assert parse_rules(["ratio=2", "all"])["ratio"] == parse_rules(["all", "ratio=2"])["ratio"] == 2
    must_raise("--source-language", Cleaner, {"language": 0.9}, Languages(), (1, 1))
    monkeypatch.setitem(sys.modules, "py3langid", None)
    must_raise(r"pip install '\.\[clean\]'", Cleaner, {"language": 0.9}, EN_DE, (1, 1))
    Cleaner(parse_rules(["ratio"]), Languages(), (1, 1))


def test_test_sentences_in_the_training_data_are_found() -> None:
    held_out = pairs(("It  RAINS.", "Es regnet."), ("She is late.", "Zu spät."), ("No.", "Nein."), ("", ""))
    sets = HeldOut({"test": [held_out]})
    found = found_in([pairs(GOOD, OTHER)], sets.wanted)
    assert sets.overlaps(found) == {"test": Overlap(3, 2, 1)}
    assert sets.overlaps(found)["test"].render("test") == (
        "test: of 3 sentences, 2 (66.7%) are in the training data, 1 (33.3%) with the same translation"
    )


WORDS = ["rain", "table", "river", "house", "light", "stone", "paper", "water", "green", "night"]


def corpus(folder: Path) -> None:
    """Training data with everything that is wrong, and held-out sets."""
    generator = random.Random(0)

    def rows(count: int) -> list[tuple[str, str]]:
        lines = (" ".join(generator.choices(WORDS, k=6)) for _ in range(count))
        return [(f"The {line}.", f"Das {line[::-1]}.") for line in lines]

    documents = [pairs(*rows(5)) for _ in range(40)]
    bad = pairs(*rows(2), ("It rains today.", ""), *rows(2))
    prose = pairs(("The rain falls. The river rises.", "Der Regen fällt. Der Fluss steigt."), *rows(1))
    uneven = pairs(("The stone is green. The water is not.", "Der Stein ist grün, das Wasser nicht."))
    write_parallel(folder / "train.tsv", None, _numbered([*documents, bad, prose, uneven]), "tsv")
    dev = pairs(*rows(3), (documents[0].source[0], documents[0].target[0]))
    write_parallel(folder / "dev.tsv", None, _numbered([dev]), "tsv")
    test = pairs((" ".join(["The rain"] * 40), "x"), (documents[1].source[0], "y"))
    write_parallel(folder / "test.tsv", None, _numbered([test]), "tsv")


def _numbered(documents: list[ParallelDocument]) -> list[ParallelDocument]:
    return [ParallelDocument(f"d{i}", d.source, d.target) for i, d in enumerate(documents)]


def prepare(folder: Path, *options: str | Path) -> list[str | Path]:
    corpora = {"--source": "train", "--dev-source": "dev", "--test-source": "test"}
    files = [part for option, name in corpora.items() for part in (option, folder / f"{name}.tsv")]
    languages = ["--source-language", "en", "--target-language", "de"]
    return ["prepare", *files, *languages, "--out", folder / "data", *options]


def test_prepare_reports_what_it_found(tmp_path: Path) -> None:
    corpus(tmp_path)
    shown = succeed(*prepare(tmp_path)).out
    assert "dev: of 4 sentences, 1 (25.0%) are in the training data, 1 (25.0%) with the same" in shown
    assert "test: of 2 sentences, 1 (50.0%) are in the training data, 0 (0.0%) with the same" in shown
    train = next(line for line in shown.splitlines() if line.startswith("train: 2 of 208 pairs seem to hold"))
    assert f"the first at {tmp_path}/train.tsv:206; --split" in train
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    assert report["overlap"]["dev"] == {"sentences": 4, "sources": 1, "pairs": 1}
    # Only training data are split and cleaned.
    shown = succeed(*prepare(tmp_path, "--split", "--clean", "empty", "--clean", "ratio", "--overwrite")).out
    assert "1 were split into 2, 1 left whole" in shown
    assert (
        "train: of 209 pairs, 1 left out (empty 1, ratio 0); of 43 documents, 1 cut into pieces, 0" in shown
    )
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    sizes = {split: (found["sentences"], found["documents"]) for split, found in report["splits"].items()}
    assert (sizes["train"], sizes["test"]) == ((208, 44), (2, 1))
    assert report["command"]["clean"] == {"empty": 0, "ratio": 3}
    assert report["selected"]["train"]["cleaned"]["pairs"] == {"empty": 1}


def test_beads_by_hand() -> None:
    assert align_lengths([50, 20, 90], [50, 20, 90]) == [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]
    assert align_lengths([100, 50], [48, 55, 52]) == [((0,), (0, 1)), ((1,), (2,))]
    assert align_lengths([20, 60, 55], [21, 118]) == [((0,), (0,)), ((1, 2), (1,))]
    # Of texts of other lengths, too.
    assert align_lengths([100, 50], [16, 18, 17]) == [((0,), (0, 1)), ((1,), (2,))]
    for source, target in (([10, 10, 10], [30]), ([10], []), ([], []), ([0, 5], [300] * 5)):
        assert align_lengths(source, target) == []
    assert align_lengths([0, 300], [0, 0, 7, 300]) == [((0,), (0, 1)), ((1,), (2, 3))]


def test_sides_of_unequal_numbers_are_aligned_by_length_inside_their_line(tmp_path: Path) -> None:
    splitters = (Splitter("en"), Splitter("de"))
    long, short = "It has been raining in the whole of the country for days.", "She is late."
    viel, wenig = "Es hat schon seit vielen Tagen im ganzen Lande geregnet.", "Sie ist spät."
    two = "Es regnet schon seit Tagen. Und zwar viel."
    thrice = f"{short} {short} {short}"
    source = (f"{long} {short} {short}", f"{short} {long}", f"{long} {short}", short, thrice)
    target = (f"{viel} Sie kommt. Zu spät. {wenig}", f"{wenig} {viel}", f"{two} {wenig}", wenig, wenig)
    document = ParallelDocument("d", source, target)
    selection = Selection(lambda counts: iter([document]), Languages("en", "de"), splitters=splitters)
    [found] = selection.read()
    assert list(zip(found.source, found.target, strict=True)) == [
        *[(long, viel), (short, "Sie kommt. Zu spät."), (short, wenig)],
        *[(short, wenig), (long, viel)],
        *[(long, two), (short, wenig)],
        *[(short, wenig), (thrice, wenig)],
    ]
    assert (selection.prose.split, selection.prose.sentences, selection.prose.uneven) == (3, 7, 1)
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    for path in files:
        path.touch()
    [note] = render("train", files, selection)
    assert "3 were split into 7, 1 left whole" in note
    # Without --split, nothing changes.
    plain = Selection(lambda counts: iter([document]), Languages("en", "de"))
    assert list(plain.read()) == [document]
    assert plain.prose.several == 4


def test_prepare_splits_paragraphs_of_all_corpora(tmp_path: Path) -> None:
    corpus(tmp_path)
    line = "d\tIt rains. She is late.\tEs regnet. Sie kommt zu spät.\n"
    for name in ("train", "dev", "test"):
        path = tmp_path / f"{name}.tsv"
        path.write_text(path.read_text() + line)
    (tmp_path / "own.txt").write_text("rains\n")
    sizes = {}
    for name, options in {
        "plain": [],
        "split": ["--split"],
        "paragraphs": ["--paragraphs"],
        "own": ["--paragraphs", "--abbreviations", tmp_path / "own.txt"],
    }.items():
        succeed(*prepare(tmp_path, *options), "--overwrite")
        report = json.loads((tmp_path / "data" / "report.json").read_text())
        sizes[name] = [report["splits"][split]["sentences"] for split in ("train", "dev", "test")]
    plain = sizes["plain"]
    assert sizes["split"] == [plain[0] + 2, *plain[1:]]
    assert sizes["paragraphs"] == [n + m for n, m in zip(plain, (2, 1, 1), strict=True)]
    assert sizes["own"][1:] == plain[1:]
    must_refuse("add --split or --paragraphs", *prepare(tmp_path, "--abbreviations", tmp_path / "own.txt"))


def test_prepare_leaves_documents_of_unequal_sides_out_on_request(tmp_path: Path) -> None:
    corpus(tmp_path)
    must_refuse("", *prepare(tmp_path, "--clean", "length=1"))  # nothing is left
    assert not (tmp_path / "data").exists()
    records = [{"id": f"web/{i}", "source": ["It rains."], "target": ["Es regnet."]} for i in range(60)]
    jsonl(tmp_path / "train.jsonl", *records, {"id": "odd", "source": ["a", "b"], "target": ["c"]})
    files = ["--source", tmp_path / "train.jsonl", "--dev-source", tmp_path / "dev.tsv"]
    command = ["prepare", *files, "--out", tmp_path / "data"]
    refused = must_refuse("train.jsonl:61: document 'odd'", *command)
    assert "(`prepare --skip-unequal` skips such documents)" in refused.err
    shown = succeed(*command, "--skip-unequal").out
    assert "train: 1 document with unequal numbers of sentences left out" in shown
