"""The README's section on outputs of any system, run as it stands."""

from pathlib import Path

import pytest

from cotext.data.formats import read_documents
from tests.command_line import World, commands_of, succeed
from tests.language_models.described import described
from tests.language_models.fake import Fake


def test_the_commands_are_right(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = commands_of("Evaluate the output of any system")
    assert [words[1] for words in commands] == [
        *("audit", "evaluate", "leaderboard", "translate", "mbr", "translate", "contrastive")
    ]
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/a").symlink_to(world.run)
    Path("suite.json").symlink_to(world.folder / "suite.json")
    for name in ("document", "dev"):
        Path(f"{name}.en").symlink_to(world.folder / "test.en")
    for name in ("reference", "dev"):
        Path(f"{name}.de").symlink_to(world.folder / "test.de")
    documents = list(read_documents(Path("document.en")))
    Path("outputs").mkdir()
    # Every document in one line, as who writes whole documents may do.
    references = list(read_documents(Path("reference.de")))
    Path("outputs/a.de").write_text("\n".join(f"{' '.join(d.sentences)}\n" for d in references))
    with Fake({sentence: sentence for d in documents for sentence in d.sentences}) as fake:
        described(tmp_path, fake.url).rename("gpt.yaml")
        for _, *words in commands:
            succeed(*words)
    for name in ("a.de", "mbr.de", "gpt.de"):
        assert [len(d) for d in read_documents(Path(name))] == [len(d) for d in documents]
    assert Path("audit.html").exists()
    assert Path("leaderboard.html").exists()
