"""A plain installation, without extras, translates and scores; other commands say which extra they need."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import World

# Python imports a module of this name when it starts.
WITHOUT = """import sys
for name in ("accelerate", "tensorboard", "matplotlib", "pyarrow", "starlette", "httpx2"):
    sys.modules[name] = None
"""


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path


# Commands one after the other in one process: importing torch takes most of their time.
SEVERAL = """
import json, sys
from cotext.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code or 0)
"""


def cotext(*commands: list[str], before: str = "") -> subprocess.CompletedProcess[str]:
    process = [sys.executable, "-c", before + SEVERAL, json.dumps(commands)]
    return subprocess.run(process, capture_output=True, text=True, check=False)


def test_text_is_translated_scored_and_shown(light: Path, world: World) -> None:
    source, out = light / "letter.en", light / "letter.de"
    source.write_text("It is old.\nIt is new.\n")
    translate = ["translate", str(world.run), str(source), "--out", str(out)]
    evaluate = ["evaluate", "--hypothesis", str(out), "--reference", str(out)]
    done = cotext(translate, evaluate, ["head", str(world.folder / "test.en")])
    assert done.stdout.count("exit code 0") == 3, done.stderr
    assert len(out.read_text().splitlines()) == 2
    assert "100.00" in done.stdout


@pytest.mark.parametrize(
    ("missing", "extra", "before"),
    [
        ("pyarrow", "data", "import cotext.serving.application, cotext.serving.systems"),  # which need none
        ("accelerate", "train", ""),
    ],
)
def test_training_says_which_extra_it_needs(light: Path, missing: str, extra: str, before: str) -> None:
    hook = light / "site" / "sitecustomize.py"
    hook.write_text(re.sub(r"in \(.*\)", f"in [{missing!r}]", hook.read_text()))
    done = cotext(["train", "focused-concatenation/base", "--data", "none", "--out", "run"], before=before)
    assert done.stdout == "exit code 2\n"
    assert f"pip install '.[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
