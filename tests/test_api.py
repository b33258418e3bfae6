import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cotext
from cotext import CotextError, Document, Translator
from cotext.data.formats import read_documents, write_documents
from cotext.translation.open import open_run
from cotext.translation.translate_file import translate_file
from cotext.translation.window_search import WindowSearch
from tests.command_line import World, documents_file, process_environment, succeed
from tests.tiny_runs import toy_documents


@pytest.fixture(scope="module")
def translator(world: World) -> Translator:
    return cotext.load(world.run)


def test_import_does_not_wait_for_torch() -> None:
    code = "import sys, cotext; cotext.Document, cotext.CotextError; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=process_environment()
    )
    assert found.stdout == "False\n"


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
    empty = Document("none", ())
    assert translator.translate_document(empty) == empty


def test_many_documents_in_one_call_take_as_many_batches_as_the_command(
    world: World, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(f"n{i}", d.source) for i, d in enumerate(toy_documents(12, 31))]
    documents[3:3] = [Document("empty", ())]
    batches: list[int] = []
    searched = WindowSearch._search

    def counted(self: WindowSearch, batch: Sequence[Any], *rest: Any) -> Any:
        batches.append(len(batch))
        return searched(self, batch, *rest)

    monkeypatch.setattr(WindowSearch, "_search", counted)
    found = translator.translate_documents(iter(documents))
    in_one_call, batches = batches, []
    assert [d.id for d in found] == [d.id for d in documents]
    write_documents(tmp_path / "in.jsonl", [d for d in documents if d.sentences], "jsonl")
    translate_file(open_run(world.run), tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    by_the_command, batches = batches, []
    assert [d for d in found if d.sentences] == list(read_documents(tmp_path / "out.jsonl", side="target"))
    assert in_one_call == by_the_command
    assert found == [translator.translate_document(d) for d in documents]
    assert len(in_one_call) < len(batches) / 3
    assert translator.translate_documents([]) == []
    with pytest.raises(CotextError, match=r"document long, sentence 1: \d+ tokens"):
        translator.translate_documents([documents[0], Document("long", ("cat " * 2000,))])


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


@pytest.mark.parametrize(
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
    with pytest.raises(CotextError) as refused:
        cotext.load(world.run, **settings)
    assert [word for word in words if word not in str(refused.value)] == []


def test_one_string_is_not_a_document(translator: Translator) -> None:
    """A string is a sequence of strings: its letters would be translated one by one."""
    for call in (
        lambda: translator.translate("The table was new."),
        lambda: translator.score("The table", ["Der Tisch"]),
        lambda: translator.score(["The table"], "Der Tisch"),
    ):
        with pytest.raises(CotextError, match=r"not a single string"):
            call()
    with pytest.raises(CotextError, match="sentence 2 is not a string, but int"):
        translator.translate(["a dog", 3])  # type: ignore[list-item]


def test_scores_need_equally_many_sentences(translator: Translator) -> None:
    with pytest.raises(CotextError, match="2 source sentences but 1 target"):
        translator.score(["a dog", "a cat"], ["eine hund"])


def test_a_sentence_over_the_limit_is_refused(translator: Translator) -> None:
    with pytest.raises(CotextError, match=r"sentence 2: \d+ tokens, at most 1024"):
        translator.translate(["a dog", "cat " * 2000])


def test_no_run_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(CotextError, match="no such run folder"):
        cotext.load(tmp_path / "nothing")
    with pytest.raises(CotextError, match="no such model file"):
        cotext.load(tmp_path)


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
    with pytest.raises(CotextError, match="--comet-context needs --comet"):
        cotext.EvaluationRequest(hypothesis=[Path("a")], reference=[Path("b")], comet_context=2)
    with pytest.raises(CotextError, match="--out is for one file, but 2 files are given"):
        cotext.TranslationRequest(run=world.run, files=[Path("a"), Path("b")], out=Path("c"))
    with pytest.raises(CotextError, match="--jieba needs --tokenizer moses-bpe"):
        cotext.PreparationRequest(source=Path("a"), dev_source=Path("b"), out=Path("c"), jieba=True)
    with pytest.raises(CotextError, match="for the command line"):
        cotext.translate_files(cotext.TranslationRequest(run=world.run, files=[Path("-")]))
