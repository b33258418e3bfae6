"""A plain installation, without extras, translates and scores; other commands say which extra they need."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import World

# Python imports a module of this name when it starts.
WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("accelerate", "tensorboard", "matplotlib", "pyarrow", "starlette", "httpx2"):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)

sys.meta_path.insert(0, Without())
"""


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path


def cotext(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cotext", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_text_is_translated_and_scored(light: Path, world: World) -> None:
    source, out = light / "letter.en", light / "letter.de"
    source.write_text("It is old.\nIt is new.\n")
    translated = cotext("translate", world.run, source, "--out", out)
    assert (translated.returncode, len(out.read_text().splitlines())) == (0, 2), translated.stderr
    scored = cotext("evaluate", "--hypothesis", out, "--reference", out)
    assert (scored.returncode, "100.00" in scored.stdout) == (0, True), scored.stderr


def test_corpora_and_the_server_need_no_pyarrow(light: Path, world: World) -> None:
    hook = light / "site" / "sitecustomize.py"
    hook.write_text(re.sub(r"in \(.*\)", "== 'pyarrow'", hook.read_text()))
    shown = cotext("head", world.folder / "test.en")
    assert shown.returncode == 0, shown.stderr
    code = "import sys, cotext.serving.application, cotext.serving.systems; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(("missing", "extra"), [("pyarrow", "data"), ("accelerate", "train")])
def test_a_command_says_which_extra_it_needs(light: Path, missing: str, extra: str) -> None:
    hook = light / "site" / "sitecustomize.py"
    hook.write_text(re.sub(r"in \(.*\)", f"== {missing!r}", hook.read_text()))
    done = cotext("train", "focused-concatenation/base", "--data", "none", "--out", "run")
    assert done.returncode == 2
    assert f"pip install '.[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
