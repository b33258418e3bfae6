"""Texts that anybody may have made: within limits they are read, beyond them a short message says so."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotext import runtime
from cotext.config.recipe import dump_config, load_config, parse_config
from cotext.runtime import (
    nearest,
    parse_json,
    parse_yaml,
    read_bytes,
    read_json,
    read_text,
    shown,
    substituted,
)
from tests.config.test_config import write
from tests.loops import loop_over
from tests.refusals import must_raise

NINES = "9" * 6000
LEVELS = "".join(
    f"{c}: &{c} [{', '.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)
ALIAS_BOMB = f"a: &a [{', '.join('x' * 9)}]\n{LEVELS}"  # nine lists of nine of nine ...: 43 million texts


@loop_over(
    ("text", "value"),
    [
        ("", None),
        ("[1, -2.5, true, null, ~, 0]", [1, -2.5, True, None, None, 0]),
        ("[yes, No, 010, -1:30, 'a:b']", ["yes", "No", "010", "-1:30", "a:b"]),
        ("{a: {b: [c]}}", {"a": {"b": ["c"]}}),
        ("2001-99-99", "2001-99-99"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("=", "="),
        ("9" * 40, int("9" * 40)),
        ("1e300", "1e300"),
        ("'a & b * c ! d'", "a & b * c ! d"),
        ('"\\U0001F600"', "\U0001f600"),
    ],
)
def test_plain_yaml(text: str, value: Any) -> None:
    assert parse_yaml(text, "here") == value


@loop_over(
    ("text", "message"),
    [
        (ALIAS_BOMB, "line 1, column 4: anchors and aliases"),
        ("a: *b", "anchors and aliases"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is duplicated"),
        ("{1: a, true: b}", "the key True is duplicated"),
        ("? [1]\n: 2", "unhashable key"),
        ("a: !!int x", "line 1, column 4: tags"),
        ("a: !!python/object/apply:os.system [x]", "tags"),
        ("! a", "tags"),
        ("[" * 5000, "line 1, column 21: nested too deep"),
        (NINES, "a number that long"),
        (f"0x{NINES}", "a number that long"),
        ("0b_", "invalid literal"),
        ('"\\ud800"', "half a character"),
        ('"a\\0b"', "NUL"),
        ("\udc80", "xdc80"),
        ("a\0b", "x0000"),
        ("a: [", "line 1, column 5: expected the node content"),
        ("a\n---\nb", "another document"),
        ("x" * 70_000, "more than 65,536 characters"),
    ],
)
def test_yaml_that_is_refused(text: str, message: str) -> None:
    found = must_raise("", parse_yaml, text, "here")
    assert found.startswith("here is not valid YAML: ")
    assert message in found
    assert len(found) < 400
    assert "\n" not in found


def test_configurations_are_written_as_they_are_read() -> None:
    config = parse_config({"paper": "2001-99-99", "train": {"init": "on", "learning_rate": 1e-5}}, "here")
    text = dump_config(config)
    assert parse_yaml(text, "here") == yaml.safe_load(text) == config.model_dump(mode="json")
    assert len(text) < runtime.MAX_YAML_CHARACTERS / 10


@loop_over(
    ("text", "value"),
    [
        ('{"a": [1, -2.5e3, true, null]}', {"a": [1, -2500.0, True, None]}),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_plain_json(text: str, value: Any) -> None:
    assert parse_json(text, "here") == value


@loop_over(
    ("text", "message"),
    [
        ("", "column 1"),
        ('{"a": 1} x', "column 10"),
        ('{\n"a": 1,,}', "line 2 column 8"),
        ("[" * 100_000, "nested too deep"),
        (NINES, "64 bits"),
        (str(2**63), "64 bits"),
        ("1e999", "not finite"),
        ("NaN", "not finite"),
        ('"\\ud800"', "half a character"),
        ('{"a": [{"\\uDFFF": 1}]}', "half a character"),
    ],
)
def test_json_that_is_refused(text: str, message: str) -> None:
    found = must_raise("", parse_json, text, "here")
    assert found.startswith("here: ")
    assert message in found
    assert len(found) < 400


def test_numbers_that_nobody_asks_for_are_not_looked_at() -> None:
    text = f'{{"id": "a", "score": NaN, "rank": {NINES}, "p": 1e999}}'
    assert parse_json(text, "here", numbers=False) == {"id": "a", "score": 0, "rank": 0, "p": 0}


def test_only_regular_files_of_a_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "whole.json").write_text(json.dumps({"a": 1}))
    for name, message in (
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
        ("folder", "a folder"),
        ("absent", "No such file"),
        ("large", "longer than the 100 bytes"),
    ):
        must_raise(f"{name}: cannot be read: .*{message}", read_bytes, tmp_path / name, 100)
    assert read_bytes(tmp_path / "large", 101) == b"x" * 101
    must_raise("binary: cannot be read: not a text in UTF-8", read_text, tmp_path / "binary")
    must_raise(r"list\.json: damaged: not a JSON object", read_json, tmp_path / "list.json")
    assert read_json(tmp_path / "whole.json") == {"a": 1}


def test_values_are_shown_shortened() -> None:
    assert shown("many") == "'many'"
    assert shown("\ud800") == "'\\ud800'"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10**6, [["x" * 1000] * 1000] * 1000, {"k" * 5000: "v" * 5000}, 10**5000, deep):
        assert len(shown(value)) < 250
    assert nearest("x" * 10**6, ["xx", "yy"]) == []


def test_the_nearest_word_is_found_and_none_where_none_is_near() -> None:
    known = ["paper", "model.encoder", "model.encoder.top", "model.decoder.top", "han/source", "han/target"]
    for word, near in {
        "model.encodr": "model.encoder",
        "encoder": "model.encoder",  # without its section
        "model.encoder.tpo": "model.encoder.top",
        "top": "model.encoder.top",
        "han/taget": "han/target",
        "taget": "han/target",
    }.items():
        assert nearest(word, known) == [near]
    for word in ("nope", "x", "", "qwertz", "beam"):
        assert nearest(word, known) == []


class _Counted:
    """A pattern that notes the longest text of a single substitution."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.longest = re.compile(pattern), 0
        self.search, self.match = self.pattern.search, self.pattern.match

    def sub(self, replacement: str, text: str) -> str:
        self.longest = max(self.longest, len(text))
        return self.pattern.sub(replacement, text)


@pytest.mark.parametrize("pattern", ["[ \t]+", "[\0x]", "\r\n?"])
@given(text=st.text(st.sampled_from(" \t\0x\r\na"), max_size=80))
def test_a_substitution_in_parts_is_that_of_the_whole(pattern: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "PART", 4)
        assert substituted(re.compile(pattern), "_", text) == re.sub(pattern, "_", text)


@pytest.mark.parametrize("text", ["a " * 2_000_000, "a" * 4_000_000])
def test_no_part_of_a_substitution_is_long(text: str) -> None:
    counted: Any = _Counted(" +")
    substituted(counted, "", text)
    assert counted.longest <= 2 * runtime.PART + 1


def test_many_problems_are_counted(tmp_path: Path) -> None:
    many = write(tmp_path, "".join(f"key_{n}: {n}\n" for n in range(1234)))
    lines = must_raise("", load_config, many).splitlines()
    assert lines[0].endswith("unknown key 'key_0': docs/recipes.md lists all keys")
    assert lines[-1].endswith("and 1,224 more like these")


@loop_over(
    ("override", "message"),
    [
        ("decode.beam=2001-99-99", "decode.beam = '2001-99-99': input should be a valid integer"),
        ("decode.max_ratio=1e300", "decode.max_ratio = '1e300': input should be less than or equal to 20"),
        ("decode.max_ratio=1.0e+400", "should be a finite number"),
        ("model.dimension=1000000", "less than or equal to 65536"),
        ("model.shift=1000000000", "less than or equal to 10000"),
        ("view.mixed_with=[{weight: 1.0e+300}]", "less than or equal to 1000"),
        ("paper=\udc80", "xdc80"),
        ("\udc80=1", "'\\udc80'"),
        (f"{'a' * 5000}=1", "unknown key 'aaa"),
        (f"{'.'.join('a' * 5000)}=1", "no key is nested that deeply"),
        ("..=1", "unknown key ''"),
    ],
)
def test_overrides_beyond_all_limits(override: str, message: str) -> None:
    found = must_raise("", load_config, "focused-concatenation/s2to2", None, [override])
    assert message in found
    assert len(found) < 700
