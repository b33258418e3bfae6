import json
from pathlib import Path
from typing import Any, cast

import pytest

import cotext
from cotext import Document, Translator
from cotext.data.formats import read_documents, write_documents
from cotext.translation.open import open_run
from cotext.translation.translate_file import translate_file
from cotext.translation.window_search import WindowSearch
from tests.command_line import World, documents_file, succeed
from tests.loops import loop_over
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tiny_runs import toy_documents


@pytest.fixture(scope="module")
def translator(world: World) -> Translator:
    return cotext.load(world.run)


def test_the_example_of_the_documentation(world: World) -> None:
    translator = cotext.load(str(world.run), beam=4)
    translations = translator.translate(["The table was new.", "It was expensive."])
    assert len(translations) == 2
    assert all(translations)
    [score] = translator.score(["The table was new."], ["Der Tisch war neu."])
    assert score < 0


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_as_many_sentences_come_back(translator: Translator, count: int) -> None:
    sentences = [f"the cat {'sees a dog ' * number}".strip() for number in range(count)]
    for given in (sentences, tuple(sentences)):
        assert len(translator.translate(given)) == count
        assert len(translator.score(given, given)) == count


def test_documents_keep_their_id(translator: Translator) -> None:
    document = Document("news", ("the cat sees", "", "a bird"))
    found = translator.translate_document(document)
    assert found.id == "news"
    assert [bool(s) for s in found.sentences] == [True, False, True]
    assert list(found.sentences) == translator.translate(document.sentences)
    assert translator.translate_document(Document("none", ())) == Document("none", ())


def test_many_documents_in_one_call_take_as_many_batches_as_the_command(
    world: World, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(f"n{i}", d.source) for i, d in enumerate(toy_documents(12, 31))]
    documents[3:3] = [Document("empty", ())]
    batches = calls_of(monkeypatch, WindowSearch, "_search", lambda search, batch, *rest: len(batch))
    found = translator.translate_documents(iter(documents))
    in_one_call = [batches.pop(0) for _ in [*batches]]
    assert [d.id for d in found] == [d.id for d in documents]
    write_documents(tmp_path / "in.jsonl", [d for d in documents if d.sentences], "jsonl")
    translate_file(open_run(world.run), tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    by_the_command = [batches.pop(0) for _ in [*batches]]
    assert [d for d in found if d.sentences] == list(read_documents(tmp_path / "out.jsonl", side="target"))
    assert in_one_call == by_the_command
    assert found == [translator.translate_document(d) for d in documents]
    assert len(in_one_call) < len(batches) / 3
    assert translator.translate_documents([]) == []
    long = [documents[0], Document("long", ("cat " * 2000,))]
    must_raise(r"document long, sentence 1: \d+ tokens", translator.translate_documents, long)


def test_the_sentences_before_count(translator: Translator) -> None:
    source, target = ["a dog runs", "the cat sees"], ["eine hund rennt", "die katze sieht"]
    together, alone = translator.score(source, target), translator.score(source[1:], target[1:])
    assert together[0] == pytest.approx(translator.score(source[:1], target[:1])[0], abs=1e-4)
    assert abs(together[1] - alone[0]) > 1e-3


def test_settings_of_decoding(world: World) -> None:
    found = cotext.load(world.run, device="cpu", beam=1, target_context="regenerate", length_penalty=0)
    assert found.signature.endswith(
        "view:window-1+1+0-512|separators:plain|align:constrained|beam:1|lp:0|limit:1x+3|target:regenerate"
    )
    assert len(found.translate(["a dog", "the cat"])) == 2


@loop_over(
    ("settings", "words"),
    [
        ({"beams": 4}, ["'beams'", "'beam'", "max_source_tokens"]),
        ({"beam": 0}, ["decode.beam", "greater than 0"]),
        ({"beam": "many"}, ["decode.beam", "'many'"]),
        ({"target_context": "before"}, ["decode.target_context", "prefix", "regenerate"]),
        ({"device": "toaster"}, ["'toaster'"]),
        ({"device": "meta"}, ["'meta'"]),
    ],
)
def test_unknown_settings_are_refused(world: World, settings: dict[str, Any], words: list[str]) -> None:
    message = must_raise("", cotext.load, world.run, **settings)
    assert [word for word in words if word not in message] == []


def test_refused_calls(translator: Translator, tmp_path: Path) -> None:
    """A string is a sequence of strings: its letters would be translated one by one."""
    translate, score, letters = translator.translate, translator.score, cast(Any, "The table was new.")
    must_raise("not a single string", translate, letters)
    must_raise("not a single string", translator.translate_documents, [Document("1", letters)])
    must_raise("not a single string", score, letters, ["Der Tisch"])
    must_raise("not a single string", score, ["The table"], letters)
    must_raise("sentence 2 is not a string, but int", translate, ["a dog", 3])
    must_raise("sentence 1 has half a character", translate, ["\ud800"])
    must_raise("2 source sentences but 1 target", score, ["a dog", "a cat"], ["eine hund"])
    must_raise(r"sentence 2: \d+ tokens, at most 1024", translate, ["a dog", "cat " * 2000])
    must_raise("no such run folder", cotext.load, tmp_path / "nothing")
    must_raise("no such model file", cotext.load, tmp_path)


def test_files_are_prepared_translated_and_evaluated_as_by_the_commands(world: World, tmp_path: Path) -> None:
    source = documents_file(tmp_path / "in.en", 3, 4)
    by_command, ours = tmp_path / "command.de", tmp_path / "ours.de"
    succeed("translate", world.run, source, "--out", by_command, "--set", "beam=1")
    [report] = cotext.translate_files(
        cotext.TranslationRequest(run=world.run, files=[source], out=ours, decode={"beam": 1})
    )
    assert ours.read_bytes() == by_command.read_bytes()
    assert report.documents == 3
    found = cotext.evaluate(cotext.EvaluationRequest(hypothesis=[ours], reference=[by_command]))
    shown = succeed("evaluate", "--hypothesis", ours, "--reference", by_command, "--json").out
    assert found.as_dict() == json.loads(shown)
    files = {"source": "train.en", "target": "train.de", "dev_source": "dev.en", "dev_target": "dev.de"}
    sides = {side: world.folder / name for side, name in files.items()}
    prepared = cotext.prepare(
        cotext.PreparationRequest(**sides, vocabulary=48, out=tmp_path / "data", workers=1)
    )
    expected = json.loads((world.folder / "data" / "report.json").read_text())
    assert prepared.tokenizer["fingerprint"] == expected["tokenizer"]["fingerprint"]


def test_rules_of_options_hold_in_python(world: World) -> None:
    a, b, c, stream = (Path(name) for name in "abc-")
    sides = {"hypothesis": [a], "reference": [b]}
    must_raise("--comet-context needs --comet", cotext.EvaluationRequest, **sides, comet_context=2)
    files = {"files": [a, b], "out": c}
    must_raise("--out is for one file, but 2", cotext.TranslationRequest, run=world.run, **files)
    data = {"source": a, "dev_source": b, "out": c}
    must_raise("--jieba needs --tokenizer moses-bpe", cotext.PreparationRequest, **data, jieba=True)
    request = cotext.TranslationRequest(run=world.run, files=[stream])
    must_raise("use the command line", cotext.translate_files, request)
