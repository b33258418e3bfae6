"""Translation from standard input to standard output."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cotext as package
from cotext.cli import translate
from cotext.data.documents import Document
from cotext.files.translate_blocks import StreamTranslation
from cotext.translation.open import Terminology, open_run
from tests.command_line import Outcome, World, cotext, must_refuse, piped, process_environment, succeed
from tests.tiny_runs import toy_documents


def fed(world: World, content: bytes, monkeypatch: pytest.MonkeyPatch, *more: str) -> Outcome:
    with piped(content) as path:
        monkeypatch.setattr(translate, "STANDARD_INPUT", path)
        return cotext("translate", world.run, "-", *more)


def test_a_line_comes_out_for_each_that_goes_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = toy_documents(4, 41)
    text = "\n" + "\n\n".join("\n".join(d.source) for d in documents[:2])
    text += "\n\n\n\n" + "\n\n".join("\n".join(d.source) for d in documents[2:])
    # A row a batch: of a model that knows nothing, near ties fall by the rounding of the batch's size.
    outcome = fed(world, text.encode(), monkeypatch, "--set", "max_tokens=1")
    assert outcome.code == 0, outcome.err
    lines, given = outcome.out.split("\n"), text.split("\n")
    assert len(lines) == len(given)
    assert [bool(line) for line in lines] == [bool(line) for line in given]
    translator = package.load(world.run, max_tokens=1)
    expected = [s for d in documents for s in translator.translate(d.source)]
    assert [line for line in lines if line] == expected
    sentences = sum(len(d) for d in documents)
    assert outcome.err.splitlines()[0] == f"{sentences} sentences in 4 documents"
    assert outcome.err.splitlines()[-1] == translator.signature


def test_a_document_is_answered_before_the_next_one_comes(world: World) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cotext", "translate", world.run, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=process_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(2):
        process.stdin.write("the cat sees a dog\na bird sings\n\n")
        process.stdin.flush()
        assert [bool(process.stdout.readline().strip()) for _ in range(3)] == [True, True, False]
    # Who reads has had enough.
    process.stdout.close()
    process.stdin.write("the cat\n\n")
    process.stdin.close()
    assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_documents_that_are_there_already_share_batches(world: World) -> None:
    opened = open_run(world.run)
    translator = opened.translator
    together: list[int] = []
    translate = translator.translate

    def noted(documents: Any, **more: Any) -> Any:
        given = list(documents)
        together.append(len(given))
        return translate(given, **more)

    translator.translate = noted  # type: ignore[method-assign]
    documents = [Document(d.id, d.source) for d in toy_documents(40, 42)]
    lines = [f"{line}\n" for d in documents for line in (*d.sentences, "")]
    written: list[str] = []
    stream = StreamTranslation(opened, None, Terminology())
    stream.run(enumerate(lines, 1), written.append)
    assert stream.counts["documents"] == sum(together) == 40
    assert len(together) < 40
    assert "".join(written).count("\n") == len(lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"the cat\n\na \xff dog\n", [":3: invalid UTF-8"]),
        (b"the cat\n\na dog\nthe " + b"cat " * 2000 + b"\n\na bird\n", ["document of line 3, sentence 2:"]),
    ],
)
def test_what_came_before_a_problem_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, content: bytes, words: list[str]
) -> None:
    outcome = fed(world, content, monkeypatch)
    assert (outcome.code, outcome.out.count("\n")) == (2, 2)
    assert all(word in outcome.err for word in words), outcome.err
    assert "Traceback" not in outcome.err


def test_empty_standard_input(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = fed(world, b"", monkeypatch)
    assert (outcome.code, outcome.out) == (0, "")


def test_options_for_files_are_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for more in (["--out", tmp_path / "o"], ["--scores", tmp_path / "s"], ["--format", "prose"]):
        must_refuse("reads standard input", "translate", world.run, "-", *more)
    must_refuse("--out FILE is needed", "translate", world.run, world.folder / "test.en")
    refused = fed(world, b"a dog\n", monkeypatch, "--set", "align=free")
    assert (refused.code, "align = free" in refused.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    shown = succeed("translate", "--help").out.replace("│", " ")
    assert "standard input" in " ".join(shown.split())
