"""The README's section on pretrained models, run as it stands."""

from pathlib import Path

import pytest
from command_line import succeed, write_corpus
from pretrained_models import FOLDERS
from tiny_runs import toy_documents

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents

pytest.importorskip("ctranslate2")
README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_commands_work_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = README.read_text(encoding="utf-8").split("## From a pretrained model")[1]
    commands = [line.split() for line in section.split("```")[1].strip().splitlines()]
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
    for name in ("document.opus.de", "document.engine.de"):
        assert [len(d) for d in read_documents(Path(name))] == [len(d) for d in documents]
    assert {path.name for path in tmp_path.iterdir()} >= {"engine", "hf", "published"}
