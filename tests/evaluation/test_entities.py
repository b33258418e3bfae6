"""Lists of entities: mentions, accuracy, F and consistency by hand; files that are no lists."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.metrics.entities import Entity, MentionCounter, measure_entities, read_entities
from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
from cotext.runtime.errors import CotextError
from tests.command_line import cotext, succeed
from tests.loops import loop_over

LIST = (
    "document_id\tentity_id\tentity_type\tsurface_form_en\tsurface_form_zh\n"
    "b1\t1\tPER\t['qiao lian', 'lian']\t['乔恋']\n"
    "b1\t2\tORG\t['wechat']\t['微信']\n"
    "b2\t1\tPER\t['song']\t['宋']\n"
    "b3\t1\tPER\t['nobody']\t['无']\n"
)
REFERENCE = [
    Document("b1", ("Qiao Lian left.", "Lian opened WeChat.", "Qiao Lian wept.")),
    Document("b2", ("Song came.",)),
]
OURS = [
    # A name is missing in the first and twice in the third; another spelling in the second.
    Document("b1", ("She left.", "Lian opened Weixin.", "Qiao Lian and Lian wept.")),
    Document("b2", ("Song, Song's songs.",)),
]


@loop_over(
    ("forms", "language", "sentence", "found"),
    [
        (("lian", "qiao lian"), "en", "Qiao  Lian and LIAN", {"qiao lian": 1, "lian": 1}),
        (("qiao lian", "lian"), "en", "Liang, Julian, Lian's", {"lian": 1}),
        (("ms. a",), "en", "Ms. A. Ms. Ab", {"ms. a": 1}),
        (("a+b (c)",), "en", "a+b (c), aab c", {"a+b (c)": 1}),
        (("straße",), "de", "STRASSE", {"strasse": 1}),
        (("乔恋",), "zh", "乔恋说乔恋", {"乔恋": 2}),
        (("乔恋",), "en", "乔恋说乔恋", {}),
    ],
)
def test_mentions(forms: tuple[str, ...], language: str, sentence: str, found: dict[str, int]) -> None:
    assert MentionCounter(forms, language).count(sentence) == Counter(found)


def test_scores_by_hand(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    entities = read_entities(tmp_path / "list")
    assert entities[0] == Entity("b1", "PER", ("qiao lian", "lian"))
    measured, types = measure_entities(entities, {"ours": OURS, "reference": REFERENCE}, REFERENCE)
    accuracy, f1, consistency = measured["ours"]
    # Of five mentions of the reference, by sentence and entity: 0 of 1, 1 of 1 and 0 of 1, 1 of 1, 1 of 1.
    assert accuracy.score.value == pytest.approx(100 * 3 / 5)
    # The hypothesis has 1 and 2 of Lian, none of WeChat, 2 of Song.
    assert f1.score.components == {"right": 3, "mentions": 5, "reference_mentions": 5, "precision": 60}
    assert f1.score.value == pytest.approx(60)
    # Lian: lian 2, qiao lian 1; Song: 2 of 2.
    assert consistency.score.value == pytest.approx(100 * 4 / 5)
    assert np.array_equal(consistency.statistics.counts, [[2, 3], [2, 2]])
    assert [m.score.value for m in measured["reference"]] == pytest.approx([100, 100, 100 * 2 / 3])
    assert types.reference_consistency == pytest.approx(100 * 2 / 3)
    assert types.accuracy_by_type["ours"] == {"ORG": 0.0, "PER": 75.0}
    assert (types.reference_mentions, types.documents_left_out) == ({"ORG": 1, "PER": 4}, 1)


def test_nothing_mentioned_is_no_share_of_anything() -> None:
    empty = [Document("b1", ("", "", "")), Document("b2", ("",))]
    measured, _ = measure_entities([Entity("b1", "", ("lian",))], {"": empty}, REFERENCE)
    assert [m.score.value for m in measured[""]] == [0, 0, 0]
    with pytest.raises(CotextError, match="the reference mentions no entity"):
        measure_entities([Entity("b1", "", ("nobody",))], {"": REFERENCE}, REFERENCE)
    with pytest.raises(
        CotextError, match="entities of documents 'x', and the reference has documents 'b1', 'b2'"
    ):
        measure_entities([Entity("x", "", ("lian",))], {"": REFERENCE}, REFERENCE)


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("['a', \"b's\"]", ("a", "b's")),
        ('"[\'a\', ""b\'s""]"', ("a", "b's")),
        ('["a", "a", " b  c "]', ("a", "b c")),
    ],
)
def test_forms_as_python_tables_and_json_write_them(
    tmp_path: Path, text: str, forms: tuple[str, ...]
) -> None:
    (tmp_path / "list").write_text(f"document_id\tforms\nx\t{text}\n\n")
    assert read_entities(tmp_path / "list") == [Entity("x", "", forms)]


@loop_over(
    ("text", "words"),
    [
        ("", "list:1: a list of entities names its columns"),
        ("document_id\tsurface_form_de\nx\t['a']\n", "'surface_form_en'"),
        ("document_id\tforms\n", "lists no entity"),
        ("document_id\tforms\nx\n", "list:2: 1 columns, but the first line has 2"),
        ("document_id\tforms\nx\ta\n", "list:2: forms: expected a list of forms"),
        ("document_id\tforms\nx\t[]\n", "expected a list of forms"),
        ("document_id\tforms\nx\t['a', 3]\n", "expected a list of forms"),
        ("document_id\tforms\nx\t['a', ' ']\n", "a form is empty"),
        ("document_id\tforms\nx\t__import__('os')\n", "expected a list of forms"),
        (f"document_id\tforms\nx\t{'[' * 9000}\n", "expected a list of forms"),
        (f"document_id\tforms\nx\t['{'a' * 20000}']\n", "expected a list of forms"),
    ],
)
def test_files_that_are_no_lists(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "list").write_text(text)
    with pytest.raises(CotextError, match=words):
        read_entities(tmp_path / "list")


def test_evaluate(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    write_documents(tmp_path / "reference", REFERENCE, "jsonl")
    write_documents(tmp_path / "ours", OURS, "jsonl")
    options = ["--reference", tmp_path / "reference", "--hypothesis", tmp_path / "ours", "--protocol", "chrf"]
    shown = succeed("evaluate", *options, "--entities", tmp_path / "list").out
    assert [line.split()[:2] for line in shown.splitlines()[1:4]] == [
        ["ent-acc", "60.00"],
        ["ent-F1", "60.00"],
        ["ent-cons", "80.00"],
    ]
    assert "consistency of the reference itself: 66.67" in shown
    assert "1 documents of the list are not in the reference" in shown
    report = json.loads(succeed("evaluate", *options, "--entities", tmp_path / "list", "--json").out)
    assert report["entities"]["accuracy_by_type"] == {"ours": {"ORG": 0.0, "PER": 75.0}}
    outcome = cotext("evaluate", *options, "--entities", tmp_path / "list", "--target-language", "zh")
    assert outcome.code == 2
    assert "list: the reference mentions no entity" in outcome.err


@pytest.mark.parametrize("language", ["cmn_Hans_CN", "zh-TW", "jpn"])
def test_languages_without_spaces_by_any_of_their_codes(language: str) -> None:
    assert MentionCounter(("乔恋",), language).count("说乔恋")["乔恋"] == 1


def test_realigned_mentions_are_those_of_the_new_sentences_and_signed(tmp_path: Path) -> None:
    """Consistency alone is the same wherever lines end, and nothing else may say so."""
    (tmp_path / "list").write_text(LIST)
    whole = [Document(d.id, (" ".join(d.sentences),)) for d in OURS]
    for name, documents in (("ours", OURS), ("whole", whole), ("reference", REFERENCE)):
        write_documents(tmp_path / name, documents, "jsonl")
    request = EvaluationRequest(
        hypothesis=[tmp_path / "ours", tmp_path / "whole"],
        reference=[tmp_path / "reference"],
        protocol=["d-bleu"],
        entities=tmp_path / "list",
        realign=True,
    )
    found = evaluate_files(request)
    ours, signed = (found.scores[name] for name in ("ours", "whole"))
    assert ["|realign:" in score.signature for score in signed] == [False, True, True, False]
    assert not any("|realign:" in score.signature for score in ours)
    assert ours[3] == signed[3]
    assert "wherever sentences end" not in found.render()


def test_nothing_mentioned_twice_is_said(tmp_path: Path) -> None:
    once = [Document("b1", ("Lian left.", "", "")), Document("b2", ("He came.",))]
    entities = [Entity("b1", "PER", ("lian",))]
    _, types = measure_entities(entities, {"ours": once, "other": REFERENCE}, REFERENCE)
    assert types.without_repeated_mentions == ("ours",)
    assert "is not meaningful: ours" in types.render()
