"""What a person can get wrong: it ends in a message that says where, in exit code 2, and in no file."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from cotext.models.checkpoint import CHECKSUM
from tests.command_line import TINY, World, cotext, documents_file, listing, must_refuse, start


@pytest.fixture(scope="module")
def bad(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all that is wrong."""
    folder = tmp_path_factory.mktemp("bad")
    lines = (world.folder / "test.de").read_text(encoding="utf-8").splitlines()
    # The second sentence of a document: one is left without partner.
    second = next(i for i in range(1, len(lines)) if lines[i - 1] and lines[i])
    documents_file(folder / "good.en", 2, 7)
    suite = json.loads((world.folder / "suite.json").read_text())
    for name, content in {
        "short.de": "".join(f"{line}\n" for i, line in enumerate(lines) if i != second),
        "fewer.de": "die katze\n",
        "long.en": f"a dog\n{'cat ' * 12_500}\n",
        "none.json": json.dumps({**suite, "examples": []}),
    }.items():
        (folder / name).write_text(content)
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "thesis.txt").write_text("do not touch\n")
    shutil.copytree(world.run / "tokenizer", folder / "not-a-number" / "tokenizer")
    with safe_open(world.run / "model.safetensors", framework="pt") as file:
        # Without its checksum: else the first thing wrong would be that.
        metadata = {key: value for key, value in file.metadata().items() if key != CHECKSUM}
        weights = {name: file.get_tensor(name) * float("nan") for name in file.keys()}  # noqa: SIM118
    save_file(weights, folder / "not-a-number" / "model.safetensors", metadata)
    return folder


CORPUS = "--source {world}/train.en --target {world}/train.de"
DEV = "--dev-source {world}/dev.en --dev-target {world}/dev.de"
PREPARE = f"prepare --out {{out}}/data {CORPUS} {DEV}"
TRAIN = f"train focused-concatenation/s2to2 {' '.join(TINY)} --data {{world}}/data"
TRANSLATE = "translate {world}/run {bad}/good.en"
SCORE = "score {world}/run --source {world}/test.en --target {world}/test.de"
SUITE = "contrastive {world}/run {world}/suite.json"
EVALUATE = "evaluate --hypothesis {world}/test.de --reference {world}/test.de"
AVERAGE = "average {world}/run --checkpoint 3"

# A command line, and what its message has to contain. `{out}` is an empty folder that stays empty.
# What is wrong inside of a file is tested where the file is read.
CASES = {
    "prepare": [
        (f"prepare --out {{out}}/p --source {{bad}}/empty {DEV}", ["empty", "contains no sentence pairs"]),
        (f"prepare --out {{out}}/p {DEV}", ["--source"]),
        ("prepare --out {out}/p " + CORPUS, ["--dev-source"]),
        (f"{PREPARE} --test-target {{world}}/test.de", ["--test-source"]),
        (PREPARE.replace("{out}/data", "/proc/p"), ["/proc/p", "written"]),
    ],
    "train": [
        (TRAIN.replace("{world}/data", "{bad}/full") + " --out {out}/r", ["full", "no prepared data"]),
        (f"{TRAIN} --out {{bad}}/good.en", ["good.en"]),
        (f"{TRAIN} --out {{world}}/run decode.beam=3", ["decode.beam: 4 in the run, 3 requested"]),
    ],
    "translate": [
        ("translate {bad}/full {bad}/good.en --out {out}/o", ["has the run been trained"]),
        ("translate {world}/run {bad}/long.en --out {out}/o", ["long.en: document 1, sentence 2", "1024"]),
        (f"{TRANSLATE} --out {{out}}/no/o", ["no", "does not exist"]),
        (f"{TRANSLATE} --out {{out}}", ["is a folder"]),
        (f"{TRANSLATE} --out {{bad}}/good.en", ["good.en", "--out"]),
        (f"{TRANSLATE} --out {{bad}}/../{{bad.name}}/good.en", ["good.en", "--out"]),
        (f"{TRANSLATE} --out {{bad}}/short.de/o", ["short.de", "is not a folder"]),
        (f"{TRANSLATE} --out /proc/o", ["/proc/o", "cannot be written"]),
        (f"{TRANSLATE} --out /dev/full", ["/dev/full", "regular file"]),
        (f"{TRANSLATE} --out {{out}}/o --set beam", ["--set beam", "key=value"]),
        (f"{TRANSLATE} --out {{out}}/o --checkpoint 4", ["update 4", "3, 6"]),
        ("translate {world}/run /dev/null --format text --out {out}/o", ["/dev/null", "regular file"]),
    ],
    "score": [
        (f"{SCORE} --out {{world}}/test.de", ["test.de", "would overwrite"]),
        (SCORE.replace("{world}/test.de", "{bad}/short.de") + " --out {out}/o", ["source sentences"]),
        (SCORE.replace("{world}/run", "{bad}/not-a-number") + " --out {out}/o", ["not finite"]),
    ],
    "contrastive": [
        (f"{SUITE} --tie last", ["--tie 'last'", "wrong, first"]),
        (f"{SUITE} --out {{world}}/suite.json", ["would overwrite"]),
        (f"{SUITE} {{bad}}/empty", ["empty", "is a directory"]),
        ("contrastive {world}/run {bad}/none.json --out {out}/o", ["example"]),
        ("contrastive {bad}/not-a-number {world}/suite.json", ["not finite"]),
    ],
    "evaluate": [
        (f"{EVALUATE} --reference {{bad}}/short.de", ["sentences"]),
        (f"{EVALUATE} --reference {{bad}}/fewer.de", ["documents in", "fewer.de"]),
        (f"{EVALUATE} --source {{bad}}/good.en", ["good.en", "sentences in"]),
    ],
    "average": [(f"{AVERAGE} --out {{out}}/x --checkpoint 3", ["twice"])],
}


@pytest.mark.parametrize(
    ("line", "words"),
    [pytest.param(*case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)],
)
def test_a_mistake_is_a_message(world: World, bad: Path, tmp_path: Path, line: str, words: list[str]) -> None:
    arguments = [part.format(world=world.folder, bad=bad, out=tmp_path) for part in line.split()]
    outcome = cotext(*arguments)
    assert outcome.code == 2, outcome
    assert "Traceback" not in outcome.err
    message = outcome.err.rpartition("cotext: ")[2]
    assert [word for word in words if word not in message] == [], message
    assert "Errno" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module", autouse=True)
def nothing_changes(world: World, bad: Path) -> Iterator[None]:
    """Over all mistakes of this file: no input and no folder that was in the way is touched."""
    before = listing(world.folder), listing(bad)
    yield
    assert (listing(world.folder), listing(bad)) == before


def test_no_arguments_or_an_unknown_option_show_how_it_is_done() -> None:
    assert "Usage:" in cotext("translate").err
    must_refuse("No such option", "translate", "--beam", "4")
    assert cotext("trnslate").code == 2


def test_a_traceback_is_only_for_our_own_mistakes(world: World, tmp_path: Path) -> None:
    """In a process of its own, as it is run: nothing but one message."""
    process = start("translate", "nowhere", "nothing", "--out", "x", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    said = "cotext: nowhere: no such run folder, and no installed model of this name; `cotext models` lists "
    assert (process.returncode, out, err) == (2, "", f"{said}the available models\n")


def test_standard_output_that_takes_nothing() -> None:
    command = [sys.executable, "-m", "cotext", "--help"]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (2, "cotext: file system: No space left on device\n")
    # As with `| head`: who reads has enough, and nobody complains.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1
