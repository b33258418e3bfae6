"""Files of lists of translations: what is written is read again, and what is out of order is refused."""

import json
import math
import re
from pathlib import Path

import pytest

from cotext.data.formats import read_documents
from cotext.data.formats.streams import atomic_sinks
from cotext.data.nbest_lists import Candidate, ListedDocument, is_lists, read_lists, write_documents
from tests.loops import loop_over
from tests.refusals import must_raise

DOCUMENTS = [
    ListedDocument("a", ((Candidate("eins", -1.5, -0.5), Candidate("zwei «ö»", -2.5, -1.0)),)),
    ListedDocument("a", ((Candidate("drei", -math.inf, -3.0),), (Candidate("", -0.0, 0.0),))),
]
HEAD = '{"format": "cotext-nbest", "version": 1, "nbest": 2, "signature": "s"}'


def line(sentence: object, rank: object, document: object = "a", text: object = "x", **more: object) -> str:
    entry = {"document": document, "sentence": sentence, "rank": rank, "text": text}
    return json.dumps({**entry, "log_probability": -1.0, "score": -1.0, **more})


@pytest.mark.parametrize("name", ["lists.jsonl", "lists.jsonl.gz"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with atomic_sinks([path]) as [sink]:
        write_documents(sink, DOCUMENTS, 2, "model:x|nbest:2")
    assert is_lists(path)
    signature, found = read_lists(path)
    first, second = found
    assert signature == "model:x|nbest:2"
    assert first == DOCUMENTS[0]
    assert second.id == "a"  # a document begins with its first sentence, whatever the name of the one before
    [unknown], [empty] = second.sentences
    assert (unknown.text, unknown.score, empty.text) == ("drei", -3.0, "")
    assert math.isnan(unknown.log_probability)  # JSON has no infinity


@loop_over(
    ("lines", "message"),
    [
        ([], "contains no translations"),
        ([line(1, 2)], ":2: rank 2 of sentence 1 of document 'a', at the beginning"),
        ([line(1, 1), line(1, 3)], ":3: rank 3 of sentence 1 of document 'a', after rank 1 of sentence 1"),
        ([line(1, 1), line(3, 1)], ":3: rank 1 of sentence 3"),
        ([line(1, 1), line(2, 1, "b")], ":3: rank 1 of sentence 2 of document 'b'"),
        ([line(1, True)], ":2: 'rank': Input should be a valid integer"),
        ([line(1, 1, text="a\nb")], "'text': contains a line break"),
        ([line(1, 1, score="high")], "'score': Input should be a valid number"),
        (["[1]"], "Input should be a valid dictionary"),
        (["{"], ":2: not valid JSON"),
        ([line(1, 1)[:-1] + ', "score": NaN}'], "is not finite"),
    ],
)
def test_what_is_out_of_order_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    must_raise(re.escape(message), lambda: read_lists(path)[1])


@loop_over("first", ["Ein Satz.", '{"id": "a", "sentences": ["x"]}', "{", "", "[1]"])
def test_other_files_are_no_lists(tmp_path: Path, first: str) -> None:
    path = tmp_path / "other"
    path.write_text(f"{first}\n")
    assert not is_lists(path)
    must_raise(r":1: ", read_lists, path)


def test_a_damaged_corpus_and_another_version_are_told(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text(f"{HEAD}\n{line(1, 1)}\n")
    must_raise(r"lists.jsonl:1: 'cotext-nbest' is a file that Cotext wrote", read_documents, path)
    path.write_text(HEAD.replace('"version": 1', '"version": 2') + "\n")
    must_raise("version 2 of the format; this version of Cotext reads 1", read_lists, path)
