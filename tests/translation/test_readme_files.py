"""The README's section on files, run as it stands."""

from pathlib import Path

import pytest

from cotext.cli import translate
from tests.command_line import World, commands_of, succeed
from tests.files import test_docx, test_po, test_subtitles
from tests.files.faking import members

UNITS = "<trans-unit id='1'><source>the cat sees</source></trans-unit>"
JOB = (
    "<xliff version='1.2' xmlns='urn:oasis:names:tc:xliff:document:1.2'><file original='a' "
    f"datatype='plaintext' source-language='en' target-language='de'><body>{UNITS}</body></file></xliff>"
)


def test_commands_work_as_they_stand(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [" ".join(words) for words in commands_of("Files")]
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/a").symlink_to(world.run)
    Path("letter.docx").write_bytes(test_docx.real())
    Path("page.html").write_text("<title>the cat</title><p>the cat <b>sees</b> a dog")
    Path("terms.tsv").write_text("cat\tdog\n")
    Path("notes.txt").write_text("The cat sees. A dog runs. The bird sings.\n\nRed dog.")
    Path("talk.srt").write_text(test_subtitles.SRT)
    Path("report.md").write_text("# the cat\n\nA dog `x` runs.\n")
    Path("messages.po").write_text(test_po.CATALOGUE)
    Path("job.xliff").write_text(JOB)
    for line in lines:
        piped, _, command = line.rpartition("| ")
        command, _, out = command.partition(" > ")
        first, *words = command.split()
        assert first == "cotext"
        if piped:
            monkeypatch.setattr(translate, "STANDARD_INPUT", Path(piped.split()[1]))
        shown = succeed(*words)
        if out:
            Path(out).write_text(shown.out)
    assert "terms: 2 of 2 kept" in " ".join(succeed(*lines[1].split()[1:], "--overwrite").out.split())
    before, after = (members(Path(name).read_bytes()) for name in ("letter.docx", "brief.docx"))
    assert list(before) == list(after)
    assert '<table class="both">' in Path("brief.html").read_text()
    assert Path("notizen.txt").read_text().count("\n") == 2
    assert {path.name for path in Path("translated").iterdir()} == {
        *("talk.srt", "report.md", "messages.po", "job.xliff")
    }
