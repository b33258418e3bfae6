"""Odd inputs: texts, corpora, suites that may be anything. Refused in a message, or no sentence is lost."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cotext.data.formats import FORMATS, read_documents
from tests.command_line import World, documents_file
from tests.hostile.attacks import Attacks
from tests.hostile.mutations import mutate

# Characters that have been taken for ends of lines, for nothing, or for markup by some tool.
ODD = "\x00\x01\x0b\x0c\x1c\x1e\x85\u2028\u2029\u200b\u200e\ufeff\u00a0\u3000\ufffd\U0001f600e\u0301\u0130ß"
ODD += "<>&]]>\t\r\x1b"
WORDS = ["the", "cat", "a", "dog", "sees", "<seg>", "</doc>", "<d>", "|||", "<eos>", "&amp;"]
WORDS += ["{", '"', "\\", "%s"]


def sentence(draw: random.Random) -> str:
    """Words, and now and then what is no word."""
    words = draw.choices(WORDS, k=draw.randint(0, 12))
    if draw.random() < 0.3:
        words.insert(draw.randrange(len(words) + 1), "".join(draw.choices(ODD, k=draw.randint(1, 5))))
    if draw.random() < 0.03:
        words = ["x" * draw.choice([300, 5_000])]
    return " ".join(words)


def text(draw: random.Random) -> bytes:
    """A file of lines."""
    ends = draw.choice(["\n", "\n", "\r\n", "\r"])
    lines = ["" if draw.random() < 0.2 else sentence(draw) for _ in range(draw.randint(0, 12))]
    content = ends.join(lines) + draw.choice(["", ends])
    encoding = draw.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"])
    return content.encode(encoding, "replace")


def noise(draw: random.Random) -> bytes:
    """Bytes."""
    return draw.randbytes(draw.choice([1, 7, 300, 5000]))


def a_line_a_line(source: Path, out: Path, is_running: bool = False) -> str | None:
    """What is wrong with a translation of a file of any format; running text is broken into lines anew."""
    before, after = list(read_documents(source)), list(read_documents(out))
    if [d.id for d in before] != [d.id for d in after]:
        return "other documents"
    if not is_running and [len(d.sentences) for d in before] != [len(d.sentences) for d in after]:
        return "sentences lost"
    return None


@pytest.mark.parametrize("make", [text, noise])
def test_texts_to_translate(
    attacks: Attacks, world: World, tmp_path: Path, make: Callable[[random.Random], bytes]
) -> None:
    for number in range(250):
        content = make(attacks.random)
        source, out = tmp_path / "in.en", tmp_path / "out.de"
        source.write_bytes(content)
        what = f"{number}: {content[:200]!r}"
        options = ["--format", "text"] if attacks.random.random() < 0.5 else []
        outcome = attacks.run(what, "translate", world.run, source, "--out", out, *options)
        if outcome is None or outcome.code == 2:
            pass
        elif options:
            # Lines of spaces and tabs are empty, and empty lines behind the last document are no part of it.
            before, after = (path.read_bytes().replace(b"\r\n", b"\n") for path in (source, out))
            lines = [len(side.rstrip(b" \t\n").split(b"\n")) for side in (before, after)]
            if lines[0] != lines[1]:
                attacks.fail(what, f"{lines[0]} lines in, {lines[1]} out")
        elif problem := a_line_a_line(source, out, "read as running text" in outcome.err):
            attacks.fail(what, problem)
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("format", sorted(name for name, row in FORMATS.items() if row.encode))
def test_corpora_of_every_format(attacks: Attacks, world: World, tmp_path: Path, format: str) -> None:
    documents_file(tmp_path / "whole", 3, 5, format)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for number in range(60):
        name = attacks.random.choice(sorted(whole))
        content, how = mutate(whole[name], attacks.random)
        if attacks.random.random() < 0.1:
            content = gzip.compress(content)
        for path in tmp_path.iterdir():
            path.unlink()
        for other, unchanged in whole.items():
            (tmp_path / other).write_bytes(content if other == name else unchanged)
        out = tmp_path / "out"
        told = ["--format", format] if attacks.random.random() < 0.5 else []
        what = f"{number}: {format} {name} {how} {told}"
        attacks.run(what, "translate", world.run, tmp_path / "whole", "--out", out, *told)


def test_suites(attacks: Attacks, world: World, tmp_path: Path) -> None:
    whole = (world.folder / "suite.json").read_bytes()
    for number in range(150):
        path = tmp_path / "suite.json"
        if attacks.random.random() < 0.5:
            content, how = mutate(whole, attacks.random)
        else:
            content, how = _other_value(json.loads(whole), attacks.random)
        path.write_bytes(content)
        attacks.run(f"{number}: {how}", "contrastive", world.run, path)


def _other_value(suite: dict[str, object], draw: random.Random) -> tuple[bytes, str]:
    """A suite with one value of another type or size."""
    examples = suite["examples"]
    section = draw.choice([suite, draw.choice(examples)])
    key = draw.choice(sorted(section))
    section[key] = draw.choice(
        [None, -1, 10**400, 1e308, True, "", [], {}, [[]], [["x"]], "\ud800", {"a": 1}]
    )
    return json.dumps(suite).encode(), f"{key} = {str(section[key])[:40]}"


def test_corpora_to_prepare(attacks: Attacks, world: World, tmp_path: Path) -> None:
    for number in range(60):
        paths = [tmp_path / name for name in ("train.en", "train.de")]
        for path in paths:
            content = (world.folder / path.name).read_bytes()
            content = mutate(content, attacks.random)[0] if attacks.random.random() < 0.6 else content
            path.write_bytes(text(attacks.random) if attacks.random.random() < 0.1 else content)
        out = tmp_path / "data"
        outcome = attacks.run(
            f"{number}",
            *("prepare", "--source", paths[0], "--target", paths[1], "--dev-source", world.folder / "dev.en"),
            *("--dev-target", world.folder / "dev.de", "--vocabulary", "48", "--overwrite", "--out", out),
        )
        left = [path.name for path in tmp_path.iterdir()]
        if outcome is not None and outcome.code == 2 and any(name.startswith(".") for name in left):
            attacks.fail(f"{number}", f"left {left}")


def test_texts_to_score_and_evaluate(attacks: Attacks, world: World, tmp_path: Path) -> None:
    sides = {side: (world.folder / f"test.{side}").read_bytes() for side in ("en", "de")}
    for number in range(120):
        side = attacks.random.choice(sorted(sides))
        content, how = mutate(sides[side], attacks.random)
        paths = {s: world.folder / f"test.{s}" for s in sides} | {side: tmp_path / f"odd.{side}"}
        paths[side].write_bytes(content)
        if number % 2:
            arguments = ["score", world.run, "--source", paths["en"], "--target", paths["de"]]
        else:
            arguments = ["evaluate", "--hypothesis", paths["de"], "--reference", world.folder / "test.de"]
        attacks.run(f"{number}: {arguments[0]} {side} {how}", *arguments)
