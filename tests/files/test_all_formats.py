"""Every format, with structures and translations drawn at random; tests/hostile draws more of them."""

import random
import sys

import enemies
import pytest
import structures
from structures import STRUCTURES

from cotext.files.blocks import Block
from cotext.files.table import file_formats, recognise
from cotext.runtime.errors import CotextError


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_hostile_translation_is_a_text_like_any_other(name: str) -> None:
    for seed in range(8):
        enemies.attack(name, random.Random(f"{name} {seed}"))


def test_every_format_has_its_enemy() -> None:
    assert set(STRUCTURES) == set(file_formats())


@pytest.mark.parametrize(
    ("name", "content", "library"),
    [
        ("a.docx", structures.docx(random.Random(1))[0], "lxml.etree"),
        ("a.md", b"# Text", "markdown_it"),
        ("a.yml", b"a: text", "ruamel.yaml"),
    ],
)
def test_without_its_library_a_format_says_what_to_install(
    name: str, content: bytes, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotext.runtime.xml import lxml_etree

    lxml_etree.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    format = recognise(content, name)
    assert format is not None
    with pytest.raises(CotextError, match=r"cotext\[files\]"):
        format.open(content, name)
    lxml_etree.cache_clear()


def test_yaml_with_line_ends_of_unicode_is_read_again() -> None:
    yaml = file_formats()["yaml"]
    for scalar in ("word", "'word'", '"word"', "|\n    word"):
        opened = yaml.open(f"en:\n  a: {scalar}\n".encode(), "a.yml")
        [[block]] = opened.contents.documents
        written = opened.written([[Block(("a\u2028b\x85c\x7fd",), block.place)]])
        found = recognise(written, "a.yml")
        assert found is not None
        assert found.open(written, "a.yml").contents.documents[0][0].text == "a\u2028b\x85c\x7fd"
