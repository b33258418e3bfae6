"""Damage is noticed, wherever it is."""

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.runtime.files import digests, require_whole, sealed, sealed_lines, unsealed
from tests.loops import loop_over
from tests.refusals import must_raise

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
contents = st.dictionaries(st.text().filter(lambda key: key != "crc32"), values, min_size=1, max_size=4)


@settings(max_examples=40)
@given(contents)
def test_what_is_sealed_comes_back(content: dict[str, object]) -> None:
    line = sealed(content)
    assert "\n" not in line
    assert unsealed(line) == content
    assert unsealed(f"{line}\n") == content
    assert {key: value for key, value in json.loads(line).items() if key != "crc32"} == content


@settings(max_examples=40)
@given(contents, st.data())
def test_no_other_character_goes_unnoticed(content: dict[str, object], data: st.DataObject) -> None:
    line = sealed(content)
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.characters(exclude_characters=line[place]))
    damaged = line[:place] + other + line[place + 1 :]
    try:
        found = unsealed(damaged)
    except ValueError:
        return
    assert found == content  # white space between the checksum and what is around it


@settings(max_examples=40)
@given(contents, st.data())
def test_no_part_of_a_line_is_taken_for_one(content: dict[str, object], data: st.DataObject) -> None:
    line = sealed(content)
    with pytest.raises(ValueError, match="damaged or cut off"):
        unsealed(line[: data.draw(st.integers(0, len(line) - 1))])


@loop_over("line", ["", "{}", '{"a": 1}', '{"a": 1, "crc32": "00000000"}', "[]", "null"])
def test_what_is_not_sealed_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unsealed(line)


def test_files_and_their_digests(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    paths = [tmp_path / "b", tmp_path / "inner" / "a"]
    for path in paths:
        path.write_text(path.name)
    expected = digests(tmp_path, reversed(paths))
    assert list(expected) == ["b", "inner/a"]
    require_whole(tmp_path, expected, "do something")
    paths[1].write_text("A")
    must_raise(r"inner/a: damaged, .*; do something$", require_whole, tmp_path, expected, "do something")
    paths[1].unlink()
    must_raise("inner/a: is missing; do something", require_whole, tmp_path, expected, "do something")


def test_lines_of_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert sealed_lines(path) == [""]
    path.write_bytes(b"one\n\xfftwo\x0b\nthr")
    assert sealed_lines(path) == ["one", "\ufffdtwo\x0b", "thr"]
    for target, reason in (("nowhere", ""), ("/dev/zero", "it is not a regular file")):
        path.unlink()
        path.symlink_to(target)
        must_raise(f"lines: cannot be read: {reason}", sealed_lines, path)


@pytest.mark.parametrize("content", ['{"a": ' + "[" * 10**5, '{"a": ' + "9" * 10**4])
def test_monstrous_content_is_damage_even_with_a_checksum(content: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deep|integer string conversion"):
        unsealed(f'{content}, "crc32": "{zlib.crc32(content.encode()):08x}"}}')
