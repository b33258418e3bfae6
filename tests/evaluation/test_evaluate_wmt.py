"""Submissions to WMT as hypotheses: in any order, of one language, and refused where documents differ."""

import json
import random
from pathlib import Path

import pytest

from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
from tests.command_line import must_refuse, succeed
from tests.refusals import must_raise

PARAGRAPHS = 3


def text(number: int, word: str, as_html: bool) -> str:
    parts = [f"{word} {number} a{n}. Then {word} b{n}!" for n in range(PARAGRAPHS)]
    return "\n".join(f"<p>{part}</p>" for part in parts) if as_html else "\n\n".join(parts)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Source, references, and a submission in another order and with documents for another language."""
    numbers = list(range(6))
    published = [
        {"doc_id": f"d{n}", "src_lang": "en", "tgt_lang": "de_DE"}
        | {"src_text": text(n, "the", True), "refs": {"A": {"ref": text(n, "der", True)}}}
        for n in numbers
    ]
    random.Random(1).shuffle(numbers)
    submission = [
        {"doc_id": f"d{n}", "tgt_lang": "de_DE", "hypothesis": text(n, "der" if n else "die", n % 2 == 0)}
        for n in numbers
    ] + [{"doc_id": "d0", "tgt_lang": "cs_CZ", "hypothesis": text(0, "ten", False)}]
    for name, lines in (("refs", published), ("sub", submission)):
        content = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(content, encoding="utf-8")
    for name, first in (("ref", "der"), ("hyp", "die")):
        documents = [text(n, "der" if n else first, False).replace("\n\n", "\n") for n in range(6)]
        (tmp_path / f"{name}.de").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return tmp_path


def test_scores_are_those_of_the_same_paragraphs_as_text(files: Path) -> None:
    plain = succeed("evaluate", "--hypothesis", files / "hyp.de", "--reference", files / "ref.de").out
    assert "6 documents, 18 sentences" in plain
    assert "s-BLEU  100" not in plain
    given = ["evaluate", "--hypothesis", files / "sub.jsonl", "--target-language", "de"]
    assert succeed(*given, "--reference", files / "refs.jsonl").out == plain
    # A reference without ids stands in the order of the source.
    options = ["--reference", files / "ref.de", "--source", files / "refs.jsonl"]
    assert succeed(*given, *options).out == plain


def test_what_does_not_fit_is_refused(files: Path) -> None:
    given = ["evaluate", "--reference", files / "refs.jsonl", "--hypothesis"]
    must_refuse("a document of cs_CZ, after others of de_DE", *given, files / "sub.jsonl")
    lines = (files / "sub.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:6]
    part, twice, empty = (files / f"{name}.jsonl" for name in ("part", "twice", "empty"))
    part.write_text("".join(lines[:5]), encoding="utf-8")
    must_refuse("part.jsonl: lacks 1 of the documents of the task", *given, part)
    twice.write_text("".join([*lines, lines[0]]), encoding="utf-8")
    must_refuse("twice.jsonl: has documents twice", *given, twice)
    changed = {**json.loads(lines[0]), "hypothesis": "<p>a</p><p></p><p></p>"}
    empty.write_text("".join([json.dumps(changed) + "\n", *lines[1:]]), encoding="utf-8")
    assert "2 empty hypothesis sentences" in succeed(*given, empty).out
    empty.write_text("".join([json.dumps({**changed, "hypothesis": ""}) + "\n", *lines[1:]]))
    must_refuse(": 1 sentences in", *given, empty)


def test_the_order_is_never_guessed(tmp_path: Path) -> None:
    """Lines of a submission stand in any order: something has to tell that of a reference without ids."""
    turned, task, plain = (tmp_path / name for name in ("turned.jsonl", "task.jsonl", "plain.de"))
    for path, key, names in ((turned, "hypothesis", "ba"), (task, "source_doc", "ab")):
        path.write_text("".join(f"{json.dumps({'doc_id': n, key: f'{n}!'})}\n" for n in names))
    plain.write_text("a!\n\nb!\n", encoding="utf-8")
    request = EvaluationRequest(hypothesis=[turned], reference=[plain])
    must_raise(r"any order.*--source", evaluate_files, request)
    request = EvaluationRequest(hypothesis=[turned], reference=[plain], source=task)
    assert evaluate_files(request).scores["turned.jsonl"][2].value == 100
