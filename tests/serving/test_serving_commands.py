"""The commands of the README's section on the server, and of docs/serving.md, run as they stand."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from loopback import served
from tiny_server import tiny_application
from typer.main import get_command

from cotext.cli.main import app
from cotext.serving.systems import System, Systems

TOP = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:5000"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def address(quick_systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    named = zip("ab", (quick_systems.named("window"), quick_systems.named("sentence")), strict=True)
    systems = Systems([System(name, system.opened) for name, system in named])
    with served(tiny_application(systems, tmp_path_factory.mktemp("state"))) as client:
        yield str(client.base_url).rstrip("/")


def commands(page: str, heading: str) -> list[str]:
    """The commands of a section."""
    text = (TOP / page).read_text(encoding="utf-8")
    _, start, rest = text.partition(f"\n{heading}\n")
    assert start, f"{page} has no {heading}"
    level = heading.partition(" ")[0]
    section = re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]
    found = [
        line
        for block in re.findall(r"```\n(.*?)\n```", section, re.DOTALL)
        for line in block.replace("\\\n", "").split("\n")
    ]
    assert found
    return found


def curl(command: str, address: str, folder: Path) -> str:
    """What a command of curl prints."""
    words = [word.replace(ADDRESS, address) for word in shlex.split(command)]
    assert words[0] == "curl"
    asked = [words[0], "--silent", "--show-error", "--fail-with-body", "--max-time", "60", *words[1:]]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    return done.stdout


def test_the_readme(address: str, tmp_path: Path) -> None:
    start, *asked = commands("README.md", "## Server")
    first, verb, *words = start.split()
    assert first == "cotext"
    parsed = get_command(app).commands[verb].make_context(verb, words)
    assert (parsed.params["runs"], parsed.params["port"]) == (["runs/a", "runs/b"], int(ADDRESS[-4:]))
    answers = [json.loads(curl(command, address, tmp_path)) for command in asked]
    assert [list(answer) for answer in answers] == [["translatedText"], ["translations"], ["translatedText"]]


@pytest.mark.parametrize("heading", ["## LibreTranslate", "## Sessions", "### curl"])
def test_the_page(address: str, tmp_path: Path, heading: str) -> None:
    (tmp_path / "letter.html").write_text("<p>A cat sees.</p>", encoding="utf-8")
    for command in commands("docs/serving.md", heading):
        answer = json.loads(curl(command, address, tmp_path))
        text = answer.get("translatedText", answer.get("translation", answer.get("translations")))
        if (file := answer.get("translatedFileUrl")) is not None:
            text = curl(f"curl {ADDRESS}{urlsplit(file).path}", address, tmp_path)
        assert text, command
