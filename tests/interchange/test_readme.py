"""The commands on pretrained models of the README and of docs/pretrained.md, run as they stand."""

import re
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from tests.command_line import TINY, commands_of, succeed, write_corpus
from tests.pretrained_models import FOLDERS
from tests.tiny_runs import make_controlled_corpora_small, toy_documents

pytest.importorskip("ctranslate2")


def test_the_commands_work_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = commands_of("From a pretrained model")
    assert [words[1] for words in commands][:3] == ["import", "prepare", "train"]
    assert {words[0] for words in commands} == {"cotext"}
    monkeypatch.chdir(tmp_path)
    FOLDERS["swish"](tmp_path / "opus-mt-en-de")
    write_corpus(tmp_path)
    documents = [Document(d.id, d.source) for d in toy_documents(2, 8)]
    write_documents(Path("document.en"), documents, "text")
    shorter = (
        "train.max_updates=1 train.accumulate=1 train.validate_sentences=4 train.threads=1 decode.max_extra=2"
    )
    for _, *words in commands:
        succeed(*words, *(shorter.split() if words[0] == "train" else ()))
    for exported in ("engine", "published"):
        succeed("translate", exported, "document.en", "--out", f"{exported}.de")
        assert [len(d) for d in read_documents(Path(f"{exported}.de"))] == [len(d) for d in documents]


def test_document_runs_begin_where_sentence_runs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they stand, but for fewer documents and choices, a smaller model, and a few updates."""
    monkeypatch.chdir(tmp_path)
    make_controlled_corpora_small(monkeypatch)
    shorter = {
        "prepare-controlled": "",
        "train": " ".join((*TINY, "train.max_updates=1", "train.max_tokens=9000", "decode.beam=1")),
        "compare": "--samples 100",
    }
    shown = ""
    for _, command, *words in commands_of("From a sentence run to a document run", "docs/pretrained.md"):
        fewer = ["100" if word == "small" else word for word in words]
        shown = succeed(command, *fewer, *shorter[command].split()).out
    own, there = re.findall(r"(\d\.\d{3}) \((\d\.\d{3})\)", shown)[0]
    assert own == there
