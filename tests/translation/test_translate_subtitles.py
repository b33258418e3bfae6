"""Subtitles through the command: the same cues, with other words."""

from pathlib import Path

import pysubs2

from tests.command_line import World, succeed

SOURCE = """1
00:00:01,000 --> 00:00:02,000
the cat sees

2
00:00:02,000 --> 00:00:03,000
<i>a dog</i> and the bird.

3
00:00:05,000 --> 00:00:06,000
- The cat.
- A dog.
"""


def test_subtitles_keep_their_cues_and_times(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SOURCE)
    succeed("translate", world.run, tmp_path / "a.srt", "--out", tmp_path / "b.srt")
    found, before = (pysubs2.load(str(tmp_path / name)) for name in ("b.srt", "a.srt"))
    assert [(e.start, e.end) for e in found] == [(e.start, e.end) for e in before]
    assert [e.text for e in found] != [e.text for e in before]
    assert all(e.text.strip() for e in found)
    written = (tmp_path / "b.srt").read_text()
    assert written.count("<i>") == written.count("</i>") >= 1
    assert written.count("\n- ") == 2
