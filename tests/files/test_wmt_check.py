"""The check of submissions to WMT: nothing wrong in a good one, and each fault by its kind."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import cotext
from hostile.mutations import mutate

from cotext.data.formats.wmt import read_wmt_lines
from cotext.files.wmt_check import Check, check_submission
from cotext.files.wmt_texts import organisers_counts
from cotext.runtime.errors import CotextError

WORDS = "The old boat lay in the harbour, and nobody knew whose it was. "
GERMAN = "Das alte Boot lag im Hafen, und niemand wusste, wem es gehörte. "
PAGE = f"<p>{WORDS}</p>\n<p>{WORDS}<br>Two.</p>"
FENCED = '```json\n{"a": "You have {{count}} boats.", "n": 1, "list": ["x", "y"]}\n```'
SPEECH = f"{WORDS}\n{WORDS}\n\n{WORDS}"
INSTRUCTION = "Translate from English to German, and keep to the register of the source."
TASK = [
    {"doc_id": "page", "source_doc": PAGE, "tgt_lang": "de_DE", "instruction": INSTRUCTION},
    {"doc_id": "strings", "source_doc": FENCED, "tgt_lang": "de_DE", "instruction": ""},
    {"doc_id": "speech", "source_doc": SPEECH, "tgt_lang": "de_DE", "instruction": ""},
    {"doc_id": "other", "source_doc": SPEECH, "tgt_lang": "cs_CZ", "instruction": ""},
]
GOOD = {
    "page": PAGE.replace(WORDS, GERMAN).replace("Two", "Zwei"),
    "strings": FENCED.replace("You have {{count}} boats", "{{count}} Boote"),
    "speech": SPEECH.replace(WORDS, GERMAN),
}


def line(doc_id: str, hypothesis: Any, **more: Any) -> dict[str, Any]:
    return {
        "dataset_id": "wmt26",
        "doc_id": doc_id,
        "tgt_lang": "de_DE",
        "hypothesis": hypothesis,
        "translation_granularity": "document-level",
        **more,
    }


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    return path


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., Check]:
    """Check a good submission with some hypotheses, or lines, replaced."""
    source = write(tmp_path / "task.jsonl", TASK)

    def run(lines: list[dict[str, Any]] | None = None, **hypotheses: str) -> Check:
        given = [line(name, text) for name, text in {**GOOD, **hypotheses}.items()]
        return check_submission(write(tmp_path / "sub.jsonl", given if lines is None else lines), source)

    return run


def kinds(check: Check) -> set[str]:
    return {f"{finding.severity} {finding.kind}" for finding in check.findings}


def test_nothing_is_wrong_with_a_good_submission(checked: Callable[..., Check]) -> None:
    check = checked()
    assert not check.findings
    assert (check.counted, check.aligned) == (2, 2)
    assert dict(check.documents) == {"de_DE": 3}
    assert dict(check.asked) == {"de_DE": 3, "cs_CZ": 1}


@pytest.mark.parametrize(
    ("document", "hypothesis", "found"),
    [
        ("page", "  \n", {"error empty"}),
        ("page", "FAILED", {"error empty"}),
        ("page", re.sub("(</?)p>", r"\1div>", GOOD["page"]), {"error paragraphs", "warning tags"}),
        ("page", GOOD["page"].replace("</p>\n<p>", " "), {"error paragraphs"}),
        ("page", GOOD["page"].replace("</p>", "", 1), {"error html"}),
        ("page", f"<p>{GERMAN}<p>{GERMAN}<br>Zwei.</p></p>", {"error html"}),
        ("page", GOOD["page"].replace("<br>", ""), {"warning tags"}),
        ("page", GOOD["page"].replace(f"<p>{GERMAN}</p>", "<p></p>"), {"error empty paragraph"}),
        ("page", f"```html\n{GOOD['page']}\n```", {"error leftover"}),
        ("page", f"{INSTRUCTION}\n{GOOD['page']}", {"error leftover"}),
        ("page", f"<think>hm</think>{GOOD['page']}", {"error leftover", "warning tags"}),
        ("strings", GOOD["strings"].replace("```json\n", "").replace("\n```", ""), {"warning fence"}),
        ("strings", GOOD["strings"].replace('"y"]', '"y"],'), {"warning json"}),
        ("strings", GOOD["strings"].replace('"y"]', '"y"'), {"error json"}),
        ("strings", GOOD["strings"].replace('"n": 1,', ""), {"error entries"}),
        ("strings", GOOD["strings"].replace('"n"', '"m"'), {"error keys"}),
        ("strings", GOOD["strings"].replace('"n": 1', '"n": 2'), {"error keys"}),
        ("strings", GOOD["strings"].replace('"x", "y"', '"x"'), {"error keys"}),
        ("strings", GOOD["strings"].replace("{{count}}", "{{anzahl}}"), {"error placeholders"}),
        ("strings", GOOD["strings"].replace('"n": 1, ', "").replace("{", '{"n": 1, ', 1), set()),
        ("speech", GOOD["speech"].replace("\n\n", "\n"), {"error paragraphs"}),
        ("speech", GOOD["speech"].replace("\n", " ", 1), {"warning lines"}),
        ("speech", f"<p>{GERMAN}</p>", {"error kind"}),
        ("speech", f"Here is the translation:\n{GOOD['speech']}", {"error leftover", "warning lines"}),
        ("speech", f"Okay, here we go, said he.\n{GERMAN}\n\n{GERMAN}", set()),
        ("speech", "I'm sorry, but I cannot do that.\nNo.\n\nNo.", {"error leftover"}),
        ("speech", GOOD["speech"] + "<|im_end|>", {"error leftover"}),
        ("speech", GOOD["speech"] + "\ufffd", {"warning characters"}),
        ("speech", SPEECH, {"warning copy"}),
        ("speech", "Стара лодка\n" + "слово " * 20 + "\n\nслово", {"warning script"}),
        ("speech", f"{GERMAN}\n{'und so weiter ' * 200}\n\n{GERMAN}", {"warning repetition"}),
    ],
)  # fmt: skip
def test_each_fault_is_found_and_no_other(
    checked: Callable[..., Check], document: str, hypothesis: str, found: set[str]
) -> None:
    assert kinds(checked(**{document: hypothesis})) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda lines: lines[:2], {"error missing"}),
        (lambda lines: [*lines, lines[0]], {"error twice"}),
        (lambda lines: [*lines, line("unheard", "a")], {"error foreign"}),
        (lambda lines: [*lines, line("other", GOOD["speech"])], {"error language"}),
        (lambda lines: [{**lines[0], "tgt_lang": "de"}, *lines[1:]], {"error language", "error missing"}),
        (lambda lines: [{**lines[0], "dataset_id": "wmt25"}, *lines[1:]], {"error fields"}),
        (lambda lines: [{k: each[k] for k in each if k != "dataset_id"} for each in lines], {"error fields"}),
        (lambda lines: [{**lines[0], "translation_granularity": None}, *lines[1:]], {"warning fields"}),
        (lambda lines: [{**lines[0], "hypothesis": None}, *lines[1:]], {"error empty"}),
        (lambda lines: [{**lines[0], "hypothesis": ["a"]}, *lines[1:]], {"error line", "error missing"}),
        (lambda lines: [], {"error missing"}),
    ],
)  # fmt: skip
def test_documents_and_fields(
    checked: Callable[..., Check], change: Callable[[list[dict[str, Any]]], Any], found: set[str]
) -> None:
    assert kinds(checked(change([line(name, text) for name, text in GOOD.items()]))) == found


def test_a_length_that_stands_out(tmp_path: Path) -> None:
    many = [{"doc_id": f"{n}", "source_doc": WORDS * 2, "tgt_lang": "de_DE"} for n in range(12)]
    answers = [line(f"{n}", GERMAN * 2) for n in range(11)]
    check = check_submission(
        write(tmp_path / "s.jsonl", [*answers, line("11", "Das alte Boot lag dort.")]),
        write(tmp_path / "t.jsonl", many),
    )
    [finding] = check.findings
    assert (finding.kind, finding.document, finding.line) == ("length", "11", 12)


@pytest.mark.parametrize(
    ("source", "hypothesis", "counts"),
    [
        ("<p>a</p><p>b</p>", "<p>a</p>", (2, 1)),
        ("<p>a</p><p class='x'>b</p>", "<P>a</p><p>", (1, 1)),
        ('```json\n{"a": "b", "c": "d"}\n```', '{"a": "b", "c": "d",}', (2, 2)),
        ('```json\n["a", "b"]\n```', '```json\n["a", "b"', (2, None)),
        ('```json\n"a"\n```', '```\n"b"\n```', (1, 1)),
        ('{"a": "b"}', '{"a": "b"}', None),
        ("a <p>", "b", None),
    ],
)
def test_counts_of_the_organisers_by_hand(
    source: str, hypothesis: str, counts: tuple[int, int | None] | None
) -> None:
    found = organisers_counts(source, hypothesis)
    assert (found and (found.source, found.hypothesis)) == counts


def test_the_command(tmp_path: Path) -> None:
    source = write(tmp_path / "task.jsonl", TASK)
    good = write(tmp_path / "good.jsonl", [line(name, text) for name, text in GOOD.items()])
    bad = write(tmp_path / "bad.jsonl", [line("page", GOOD["page"]), line("speech", "")])
    assert cotext("check", good, "--source", source).code == 0
    shown = cotext("check", bad, "--source", source)
    assert shown.code == 1
    assert "error: missing (1)\n  strings: line 2 of the source has no answer\n" in shown.out
    assert "error: empty (1)\n  line 2, speech: the hypothesis is empty\n" in shown.out
    assert shown.out.endswith("bad.jsonl: 2 errors, 0 warnings\n")
    told = json.loads(cotext("check", bad, "--source", source, "--json").out)
    assert (told["format"], told["errors"], told["counted"]) == ("cotext-check", 2, 1)
    assert {finding["kind"] for finding in told["findings"]} == {"missing", "empty"}
    czech = cotext("check", good, "--source", source, "--target-language", "cs")
    assert (czech.code, "no line answers one of the source" in czech.out) == (1, True)
    refused = cotext("check", good, "--source", good)
    assert (refused.code, "give --source the lines of the task" in refused.err) == (2, True)


def test_damage_is_found_or_refused(tmp_path: Path) -> None:
    """Whatever is in a file, the answer is findings or one clear error."""
    source = write(tmp_path / "task.jsonl", TASK)
    whole = write(tmp_path / "sub.jsonl", [line(name, text) for name, text in GOOD.items()]).read_bytes()
    draw, read = random.Random(5), 0
    told: list[str] = []
    for _ in range(60):
        path = tmp_path / "damaged.jsonl"
        path.write_bytes(mutate(whole, draw)[0])
        try:
            check = check_submission(path, source)
        except CotextError as error:
            told.append(str(error))
            continue
        assert check.render()
        assert json.dumps(check.as_dict())
        read += 1
    assert read > 20
    assert all("damaged.jsonl" in each for each in told)


def test_a_task_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    """Of nothing, or of a document that is there twice: findings would be of the wrong lines."""
    submission = write(tmp_path / "sub.jsonl", [line(name, text) for name, text in GOOD.items()])
    twice = write(tmp_path / "twice.jsonl", [*TASK, TASK[0]])
    for task, said in (
        (twice, rf"twice\.jsonl:{len(TASK) + 1}: document '{TASK[0]['doc_id']}' was in line 1 already"),
        (write(tmp_path / "none.jsonl", []), r"none\.jsonl: is empty"),
    ):
        with pytest.raises(CotextError, match=said):
            check_submission(submission, task)


@pytest.mark.parametrize(("language", "foreign"), [("de", ["nowhere"]), ("cs_CZ", ["nirgendwo"])])
def test_one_language_of_documents_that_have_the_same_ids_in_both(
    tmp_path: Path, language: str, foreign: list[str]
) -> None:
    languages = ("de_DE", "cs_CZ")
    task = [{"doc_id": "page", "source_doc": "A boat.", "tgt_lang": each} for each in languages]
    lines = [line("page", "Text.", tgt_lang=each) for each in languages]
    lines += [line("nowhere", "Text."), line("nirgendwo", "Text.", tgt_lang="cs_CZ")]
    submission = write(tmp_path / "both.jsonl", lines)
    check = check_submission(submission, write(tmp_path / "task.jsonl", task), language)
    assert [(each.kind, each.document) for each in check.findings] == [("foreign", id) for id in foreign]


def test_a_document_of_nothing_is_answered_by_nothing(tmp_path: Path) -> None:
    """Its task is of the year that its key tells, as that of others, which `--like` writes."""
    task = [
        {"doc_id": name, "source_doc": text, "tgt_lang": "de_DE"} for name, text in (("a", ""), ("b", "x"))
    ]
    path = write(tmp_path / "task.jsonl", task)
    assert [each.default_dataset for each in read_wmt_lines(path)] == ["wmt26", "wmt26"]
    submission = write(tmp_path / "s.jsonl", [line("a", ""), line("b", "y")])
    assert check_submission(submission, path).findings == []
