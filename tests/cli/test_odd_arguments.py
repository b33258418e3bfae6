"""Whatever is given for a file, a folder, a number or a name: a message that fits a screen, exit code 2."""

import os
import re
from pathlib import Path

import pytest

from cotext.cli.options import settings
from cotext.runtime import CotextError
from tests.command_line import TINY, Outcome, World, cotext, listing, must_refuse
from tests.loops import loop_over

NINES = "9" * 6000
LONG = "x" * 6000

# What may stand where a command reads: `{odd}` in the lines below. Corpora are read from pipes if told to.
ODD_FILES = ("missing", "folder", "pipe", "zero", "empty", "binary", LONG)
READING = [
    "prepare --out {out}/p --source {odd} --target {odd} {dev}",
    "train {odd}.yaml --data {world}/data --out {out}/r",
    "train {tiny} --data {odd} --out {out}/r",
    "train {tiny} --data {world}/data --out {out}/r --init {odd}",
    "translate {odd} {world}/test.en --out {out}/t",
    "translate {world}/run {odd} --out {out}/t",
    "translate {world}/run {odd} --format text --out {out}/t",
    "translate {world}/run {world}/test.en --out {out}/t --set first_pass={odd}",
    "score {world}/run --source {odd} --target {world}/test.de",
    "contrastive {world}/run {odd}",
    "evaluate --hypothesis {odd} --reference {world}/test.de",
    "evaluate --hypothesis {world}/test.de --reference {world}/test.de --discourse {odd}",
    "compare-decisions {odd} {world}/suite.json",
    "compare {world}/run --suite {odd} --out {out}/c",
    "attention {world}/run {odd} --out {out}/a",
    "average {odd} --checkpoint 3 --out {out}/a",
    "distill {world}/run --data {odd} --out {out}/d",
]
FINE = {"train {odd}.yaml --data {world}/data --out {out}/r": "empty"}  # a recipe of defaults

# What may be given for a number or a name, `{}`.
ODD_VALUES = [
    ("prepare --out {out}/p {corpus} {dev} --vocabulary {}", [NINES, "99999999999", "1e9", "-5", "nan", "0"]),
    ("prepare --out {out}/p {corpus} {dev} --max-characters {}", [NINES, "-5", "0"]),
    ("prepare --out {out}/p {corpus} {dev} --tokenizer {}", [LONG]),
    ("prepare-controlled --out {out}/p {}", [NINES, "-5", "nan", "0", "\u0663", "\u00b2", LONG]),
    ("train {} --data {world}/data --out {out}/r", [LONG, "/dev/zero"]),
    (
        "translate {world}/run {world}/test.en --out {out}/t  --set {}",
        [f"beam={NINES}", f"{LONG}=1", f"align={LONG}", f"beam={'[' * 5000}", "beam={1:2}", 'align="\\0"'],
    ),
    ("translate {world}/run {world}/test.en --out {out}/t --device {}", [NINES, LONG, "", "cuda:9", "meta"]),
    ("translate {world}/run {world}/test.en --out {out}/t --checkpoint {}", [NINES, "9" * 20, "-1", "1e3"]),
    ("translate {world}/run {world}/test.en --out {out}/t --format {}", [LONG]),
    ("translate {world}/run {world}/test.en --out {out}/{}", [LONG, f"{LONG}/t"]),
    ("average {world}/run --out {out}/a --checkpoint {}", [NINES, "9" * 20, "-1"]),
    (
        "distill {world}/run --data {world}/data --out {out}/d --shard {}",
        [NINES, f"{NINES}/{NINES}", f"1/{NINES}", "1/9999999", "٣/٤", "²/²", "0/1", "2/1"],
    ),
    ("contrastive {world}/run {world}/suite.json --tie {}", [LONG]),
    ("evaluate {scored} --paired --samples {}", [NINES, "9" * 20, "99999999999", "-1", "0"]),
    ("evaluate {scored} --paired --baseline {}", [LONG]),
    ("evaluate {scored} --protocol {}", [LONG]),
    ("evaluate {scored} --comet x --comet-python /bin/true --comet-context {}", ["-1", NINES]),
    ("compare {world}/run --suite {world}/suite.json --out {out}/c --samples {}", ["-1", "99999999999"]),
    ("attention {world}/run {world}/test.en --out {out}/a --document {}", [LONG, NINES]),
    ("cxmi {world}/run --source {world}/test.en --target {world}/test.de --context {}", [LONG]),
    ("{}", [LONG, f"--{LONG}", "\ud800"]),
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    for end in ("", ".yaml"):
        (folder / f"folder{end}").mkdir()
        os.mkfifo(folder / f"pipe{end}")
        (folder / f"zero{end}").symlink_to("/dev/zero")
        (folder / f"empty{end}").touch()
        (folder / f"binary{end}").write_bytes(bytes(range(256)) * 50)
    return folder


def arguments(line: str, world: World, out: Path, **places: object) -> list[str]:
    pairs = {"corpus": ("--source {world}/train.en", "--target {world}/train.de")}
    pairs["dev"] = ("--dev-source {world}/dev.en", "--dev-target {world}/dev.de")
    pairs["scored"] = ("--hypothesis {world}/test.de --hypothesis {world}/run/config.yaml",)
    pairs["scored"] += ("--reference {world}/test.de",)
    pairs["tiny"] = ("focused-concatenation/s2to2", *TINY)
    for name, parts in pairs.items():
        line = line.replace(f"{{{name}}}", " ".join(parts))
    return [
        part.replace("{world}", str(world.folder)).replace("{out}", str(out)).replace("{}", "{value}")
        for part in line.split()
    ]


def assert_refused(outcome: Outcome, given: str, out: Path) -> None:
    assert outcome.code == 2, (given, outcome)
    assert "Traceback" not in outcome.err, given
    message = outcome.err.rpartition("cotext: ")[2]
    assert 0 < len(message.splitlines()) <= 25, given
    assert len(message) < 4000, given
    assert listing(out) == {}, given


@loop_over("line", READING)
def test_whatever_is_read(world: World, odd: Path, tmp_path: Path, line: str) -> None:
    parts = arguments(line, world, tmp_path)
    for name in ODD_FILES:
        if FINE.get(line) != name:
            given = [part.replace("{odd}", str(odd / name)) for part in parts]
            assert_refused(cotext(*given), name[:9], tmp_path)


@loop_over(("line", "values"), ODD_VALUES)
def test_whatever_is_given(world: World, tmp_path: Path, line: str, values: list[str]) -> None:
    parts = arguments(line, world, tmp_path)
    for value in values:
        given = [part.replace("{value}", value) for part in parts]
        assert_refused(cotext(*given), value[:19], tmp_path)


# Settings that parse, and are refused by what they ask for together or of the data.
REFUSED = (
    "train.best_by=bleu train.validate_bleu=false",
    "view.max_tokens=1",
    "view.kind=sentence view.before=1 view.target_before=null",
    "view.separators=bracket decode.align=free",
    "model.dimension=17",
    "model.positions=reset model.attention.score=positions",
    "loss.name=glancing",
    "train.context=foreign view.mixed_with=[{kind: sentence}]",
    "train.precision=fp16",
    "train.order=documents view.mixed_with=[{kind: sentence}]",
    "languages=en-fr model.layers=2",
    "model.dimension=4096 model.feed_forward=1000000 model.encoder_layers=1000",
    "train.init=required",
)


@loop_over("settings", REFUSED)
def test_a_refused_training_leaves_no_run_folder(world: World, tmp_path: Path, settings: str) -> None:
    given = re.findall(r"\S+=(?:\[.*\]|\S+)", settings)
    outcome = cotext("train", "focused-concatenation/s2to2", *TINY, *given, *data_and_out(world, tmp_path))
    assert_refused(outcome, settings, tmp_path)


def data_and_out(world: World, out: Path) -> list[str | Path]:
    return ["--data", world.folder / "data", "--out", out / "r"]


def test_names_that_are_no_text(world: World, tmp_path: Path) -> None:
    """No file that is written could note them."""
    out = ("--out", tmp_path / "caf\udce9")
    for command in (
        ("translate", world.run, world.folder / "test.en", *out),
        ("train", "focused-concatenation/base", "--data", world.folder / "data", *out),
        ("evaluate", "--hypothesis", "caf\udce9", "--reference", world.folder / "test.de"),
    ):
        outcome = cotext(*command)
        assert_refused(outcome, "surrogate", tmp_path)
        assert "caf\\udce9': not UTF-8" in outcome.err


def test_long_messages_keep_their_beginning_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from cotext.cli import main as cli

    def refuse(prog_name: str) -> None:
        raise CotextError("\n".join(["here: " + "x" * 5000 + "; do that", *["and more"] * 500]))

    monkeypatch.setattr(cli, "app", refuse)
    lines = cotext("systems").err.splitlines()
    assert lines[0].startswith("cotext: here: xxx")
    assert lines[0].endswith("xxx; do that")
    assert max(map(len, lines)) < 700
    assert (len(lines), lines[-1]) == (25, "... and 477 more lines")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 640000000 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    ],
)
def test_no_memory(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    from cotext.cli import main as cli

    def fail(prog_name: str) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    must_refuse("decode.max_tokens", "systems")
    monkeypatch.setattr(cli, "app", lambda prog_name: exec("raise RuntimeError('a mistake of ours')"))
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        cotext("systems")


def test_settings_of_decoding_may_have_their_section() -> None:
    assert settings(["decode.beam=2", "nbest=1"]) == {"beam": 2, "nbest": 1}
