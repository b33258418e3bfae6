"""Scores of the written tokens, scores of the text, and their tables."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.tokenizer import Side, Tokenizer
from cotext.translation.corpus_files import score_figures, score_lines
from cotext.translation.document_state import OpenDocument
from cotext.translation.open import open_run
from cotext.translation.scorer import SentenceScore
from cotext.translation.translator import DocumentTranslator, Translation
from tests.command_line import World, cotext, documents_file, must_refuse, succeed
from tests.tiny_runs import toy_documents


class AsWritten:
    """A tokenizer that splits the texts of some translations into the subwords which were written."""

    def __init__(self, tokenizer: Tokenizer, written: dict[str, list[int]]) -> None:
        self.tokenizer = tokenizer
        self.written = written

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        whole = self.tokenizer.encode_batch(sentences, side)
        return [self.written.get(s, tokens) for s, tokens in zip(sentences, whole, strict=True)]

    def __getattr__(self, name: str) -> object:
        return getattr(self.tokenizer, name)


def table(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_translation_knows_the_scores_of_what_it_wrote_and_where_its_text_differs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = open_run(world.run, "cpu", {"beam": 2}).translator
    tokenizer, complete = translator.tokenizer, translator._translation
    chosen: dict[str, list[list[int]]] = {}

    def noted(opened: OpenDocument) -> Translation:
        chosen[opened.document.id] = [list(sentence.tokens) for sentence in opened.sentences()]
        return complete(opened)

    monkeypatch.setattr(translator, "_translation", noted)
    documents = toy_documents(30, 21)
    found = dict(translator.translate(Document(d.id, d.source) for d in documents))
    checked = {True: 0, False: 0}
    for number, document in enumerate(documents):
        translation, written = found[number], chosen[document.id]
        texts = translation.document.sentences
        differing = {j for j, text in enumerate(texts) if tokenizer.encode(text) != written[j]}
        assert set(translation.resegmented) == differing
        if len(set(texts)) < len(texts):
            continue
        checked[bool(differing)] += 1
        # With the subwords that were written, the scores are those of translation whatever the text is
        # split into; without, they are where nothing differs.
        if differing:
            translator.tokenizer = AsWritten(tokenizer, dict(zip(texts, written, strict=True)))  # type: ignore[assignment]
        [scores] = translator.score([ParallelDocument(document.id, document.source, texts)])
        translator.tokenizer = tokenizer
        expected = pytest.approx(translation.log_probabilities, abs=1e-4)
        assert [s.log_probability for s in scores] == expected
        assert tuple(s.tokens for s in scores) == translation.tokens
    assert min(checked.values()) > 2, checked


def test_a_translation_writes_its_scores_beside_it(world: World, tmp_path: Path) -> None:
    source = documents_file(tmp_path / "in.en", 12, 21)
    out, scores = tmp_path / "out.de", tmp_path / "scores.tsv"
    shown = succeed("translate", world.run, source, "--out", out, "--scores", scores, "--set", "beam=2").out
    again = table(succeed("score", world.run, "--source", source, "--target", out).out)
    rows = table(scores.read_text())
    assert rows[0] == again[0] == ["document", "sentence", "log_probability", "tokens"]
    assert [row[:2] for row in rows] == [row[:2] for row in again]
    differing = [a for a, b in zip(rows[1:], again[1:], strict=True) if a[3] != b[3]]
    assert differing
    told = next(line for line in shown.splitlines() if "into other subwords" in line)
    count = int(told.split()[0])
    assert len(differing) <= count < len(rows) - 1
    assert f"({count / (len(rows) - 1):.1%})" in told
    for name in ("out.de", "out.de.nbest.jsonl", "out.docids"):
        command = "translate", world.run, source, "--out", out, "--scores", tmp_path / name
        must_refuse("is a file that --out writes, too", *command)


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\rb"])
def test_an_id_that_would_shift_columns_is_refused_before_any_work(
    world: World, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [*toy_documents(2, 5), ParallelDocument(name, ("the cat",), ("die katze",))]
    path, out = tmp_path / "both.jsonl", tmp_path / "out"
    write_parallel(path, None, documents, "jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(DocumentTranslator, "score", None)
        patched.setattr(DocumentTranslator, "translate", None)
        for command in (
            ["score", world.run, "--source", path, "--out", out],
            ["translate", world.run, path, "--out", tmp_path / "t.jsonl", "--scores", out],
        ):
            refused = cotext(*command)
            assert (refused.code, repr(name) in refused.err, "--json" in refused.err) == (2, True, True)
    assert [p.name for p in tmp_path.iterdir()] == ["both.jsonl"]
    figures = json.loads(succeed("score", world.run, "--source", path, "--json").out)
    assert [d["id"] for d in figures["documents"]] == ["d0", "d1", name]


def test_scores_as_json_are_those_of_the_table(world: World, tmp_path: Path) -> None:
    sides = ["--source", world.folder / "test.en", "--target", world.folder / "test.de"]
    shown = succeed("score", world.run, *sides)
    out = tmp_path / "scores.json"
    succeed("score", world.run, *sides, "--json", "--out", out)
    figures = json.loads(out.read_text())
    assert figures["signature"] == shown.err.strip()
    found = [
        [d["id"], str(number), f"{p:.6f}", str(n)]
        for d in figures["documents"]
        for number, (p, n) in enumerate(zip(d["log_probabilities"], d["tokens"], strict=True), 1)
    ]
    assert found == table(shown.out)[1:]


def test_what_has_no_probability_is_null_in_json() -> None:
    documents = [("d", [SentenceScore(-math.inf, 3)])]
    assert list(score_lines(documents))[1] == "d\t1\t-inf\t3"
    [figures] = json.loads(json.dumps(score_figures(documents, "s"), allow_nan=False))["documents"]
    assert figures == {"id": "d", "log_probabilities": [None], "tokens": [3]}
