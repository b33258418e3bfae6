"""Bilingual files by the command line: entries that are translated, kept or requested."""

from pathlib import Path

import polib
from lxml import etree

from tests.command_line import World, must_refuse, succeed

CATALOGUE = """msgid ""
msgstr ""
"Language: \\n"
"Content-Type: text/plain; charset=UTF-8\\n"

#, c-format
msgid "the cat sees %s"
msgstr ""

msgid "a dog"
msgstr "kept"

#, fuzzy
msgid "the bird"
msgstr "guess"
"""
JOB = """<xliff version="1.2"><file source-language="en" original="a"><body>
<trans-unit id="1"><source>the <g id="1">cat</g> sees</source></trans-unit>
<trans-unit id="2"><source>a dog</source><target state="final">kept</target></trans-unit>
</body></file></xliff>
"""


def test_catalogues_are_translated_where_they_are_not(world: World, tmp_path: Path) -> None:
    folder, files = tmp_path, [tmp_path / name for name in ("m.po", "job.xlf")]
    for file, content in zip(files, (CATALOGUE, JOB), strict=True):
        file.write_text(content)
    told = succeed("translate", world.run, *files, "--out-dir", folder / "out").err
    assert "translated entries kept, and used as context: 1" in told
    po = {entry.msgid: entry for entry in polib.pofile(str(folder / "out" / "m.po"))}
    assert "%s" in po["the cat sees %s"].msgstr
    assert (po["a dog"].msgstr, po["the bird"].msgstr, po["the bird"].fuzzy) == ("kept", "guess", True)
    root = etree.parse(folder / "out" / "job.xlf").getroot()
    assert root[0].get("target-language")
    targets = list(root.iter("target"))
    assert [target.get("state") for target in targets] == ["needs-review-translation", "final"]
    assert [child.get("id") for child in targets[0]] == ["1"]
    out = folder / "out.po"
    succeed("translate", world.run, folder / "m.po", "--out", out, "--entries", "unfinished")
    po = {entry.msgid: entry for entry in polib.pofile(str(out))}
    assert po["the bird"].msgstr != "guess"
    assert not po["the bird"].fuzzy
    assert po["a dog"].msgstr == "kept"
    command = ("translate", world.run, folder / "m.po", "--out", folder / "b.po", "--entries", "some")
    must_refuse("untranslated, unfinished, all", *command)
