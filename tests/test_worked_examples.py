"""The worked examples of CONTRIBUTING.md, run on a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cotext

ROOT = Path(cotext.__file__).parent
PAGE = ROOT.parents[1] / "CONTRIBUTING.md"
EXAMPLES = re.compile(r"As an example, the file `(cotext/[\w/]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files that the page prints, and two translations of a reference."""
    folder = tmp_path_factory.mktemp("copy")
    # With what is compiled already, but for what another process is writing.
    shutil.copytree(ROOT, folder / "cotext", ignore=shutil.ignore_patterns("*.pyc.*"))
    # Scoring does without torch, which takes seconds to import.
    (folder / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    examples = EXAMPLES.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 2
    for name, content in examples:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (folder / "right.en").write_text("one\ntwo two\n\nthree\nfour\n", encoding="utf-8")
    (folder / "right.de").write_text("eins\nzwei zwei\n\ndrei\nvier\n", encoding="utf-8")
    (folder / "a.de").write_text("eins\nzwei\n\ndrei\nvier\n", encoding="utf-8")
    (folder / "b.de").write_text("eins\nzwo\n\nvier\nvier\n", encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cotext", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_metric_is_one_module(copy: Path) -> None:
    scored = ("--reference", "right.de", "--protocol", "exact-match")
    files = ("--hypothesis", "a.de", "--hypothesis", "b.de")
    found = json.loads(run(copy, "evaluate", *files, *scored, "--paired", "--samples", "100", "--json"))
    scores = {name: each["scores"]["exact-match"]["value"] for name, each in found["systems"].items()}
    assert scores == {"a.de": 75.0, "b.de": 50.0}
    assert found["paired"]["exact-match"]["comparisons"][0]["difference"] == -25.0
    ranked = json.loads(run(copy, "leaderboard", "a.de", "b.de", *scored, "--out", "l.html", "--json"))
    assert [each["name"] for each in ranked["systems"]] == ["a.de", "b.de"]
    run(copy, "mbr", "a.de", "b.de", "right.de", "--utility", "exact-match", "--out", "mbr.de")
    assert (copy / "mbr.de").read_text(encoding="utf-8") == "eins\nzwei\n\ndrei\nvier\n"


def test_an_analysis_is_one_folder(copy: Path) -> None:
    shown = run(copy, "sentence-lengths", "right.de")
    assert " ".join(shown.split()) == "position words 1 1.00 2 1.50"
    assert "sentence-lengths" in run(copy, "--help")
